"""Sweeps: many configurations of one model, each an independent replica with the bits of its run alone.

Imports all other rooms of the scheduler; none of them imports it.
"""
