"""Synchronisation of replicas: options, synchronisers (step -> step with exchanges), transports.

Imports `scheduler.options` and `tensorbow.kernels.gpu.runtime`.
"""
