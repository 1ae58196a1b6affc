"""Whole rounds of all replicas as one native call: driver, passes of exchanges, batches made inside it.

Imports the other rooms, and `plan`.
"""
