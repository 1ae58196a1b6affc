"""Number of replicas by throughput: measured before a run, or while it trains.

Imports `configuration`, `folders`, `measures`, `models`, `scheduler.averaging`, `scheduler.batches`,
`scheduler.decisions`, `scheduler.engine`, `scheduler.options`, `scheduler.replicas` and
`scheduler.workers`.
"""
