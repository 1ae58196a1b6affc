"""The classifier application: trainer, run folder, auto-tuner, prediction.

Imports all other rooms; nothing of the scheduler imports it.
"""
