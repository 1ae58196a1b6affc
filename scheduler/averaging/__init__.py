"""Synchronisation of replicas: options, synchronisers (step -> step with exchanges), transports.

Imports `scheduler.options`, and for transports between GPUs `tensorbow.kernels`.
"""
