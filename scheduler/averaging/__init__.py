"""Synchronisation of replicas: options, synchronisers (step -> step with exchanges), transports.

Imports `scheduler.options`, `scheduler.workers` and `tensorbow.kernels.gpu.runtime`.
"""
