"""Sources of batches: data sets, positions in them, and the copies that devices keep.

Imports `scheduler.replicas`.
"""
