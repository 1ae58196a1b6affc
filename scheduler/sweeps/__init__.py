"""Sweeps: many configurations of one model, each an independent replica with the bits of its run alone.

No room imports it. Imports `scheduler.averaging`, `scheduler.batches`, `scheduler.decisions`,
`scheduler.engine`, `scheduler.options`, `scheduler.replicas`, `scheduler.training.configuration`,
`scheduler.training.folders`, `scheduler.training.measures`, `scheduler.training.models`,
`scheduler.training.running` and `scheduler.workers`.
"""
