"""How replicas are kept together: the options of synchronisation, SMA and S-SGD as plan segments, all-reduce.

Imports nothing of the scheduler.
"""
