"""The trainer, and what goes along with a run: callbacks, messages, several workers, resuming.

Imports `configuration`, `folders`, `measures`, `models`, `tuning`, `scheduler.averaging`,
`scheduler.batches`, `scheduler.engine`, `scheduler.options`, `scheduler.replicas` and `scheduler.workers`.
"""
