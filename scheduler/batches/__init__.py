"""Sources of batches: positions in the data set, batches filled ahead of use, data sets kept on devices.

Imports `scheduler.replicas`.
"""
