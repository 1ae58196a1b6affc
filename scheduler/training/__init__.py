"""The classifier application: trainer, run folder, auto-tuner, prediction.

Imports all other rooms of the scheduler; none of them imports it.
"""
