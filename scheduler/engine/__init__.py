"""The learning engine: runs of rounds over replicas, fed with batches, in order.

Imports `scheduler.averaging`, `scheduler.batches`, `scheduler.decisions`,
`scheduler.replicas` and `scheduler.workers`.
"""
