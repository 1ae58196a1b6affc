"""The classifier application: trainer, run folder, auto-tuner, prediction.

Imports `scheduler.averaging`, `scheduler.batches`, `scheduler.decisions`, `scheduler.engine`,
`scheduler.options`, `scheduler.replicas` and `scheduler.workers`.
"""
