"""Sweeps: many configurations of one model, each an independent replica with the bits of its run alone.

Imports `scheduler.training` and the rooms below it; only the command line imports it.
"""
