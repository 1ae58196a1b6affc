"""How replicas are kept together: options, synchronisers (step -> step with exchanges), transports.

Imports nothing of the scheduler but its options.
"""
