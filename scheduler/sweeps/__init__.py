"""Sweeps: many configurations of one model, each an independent replica with the bits of its run alone.

No room imports it. Imports `scheduler.averaging`, `scheduler.batches`, `scheduler.decisions`,
`scheduler.engine`, `scheduler.options`, `scheduler.replicas` and `scheduler.training`.
"""
