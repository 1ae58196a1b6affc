"""The learning engine: runs of rounds over replicas, fed with batches, in order.

Imports all rooms of the scheduler but `training`.
"""
