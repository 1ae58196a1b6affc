"""Stages of `gpu_first_hour.py`: what each measures, and how a part that crashes or hangs is survived."""
