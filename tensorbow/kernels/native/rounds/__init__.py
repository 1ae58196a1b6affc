"""Whole rounds of all replicas as one native call per thread: driver, exchange passes, batches made inside.

Imports `codegen`, `ops` and `plan`.
"""
