"""Whole rounds of all replicas as one native call: driver, averaging pass, batches made inside it.

Imports the other rooms, and `plan`.
"""
