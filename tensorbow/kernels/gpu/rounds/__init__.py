"""Whole rounds of all replicas as CUDA graphs: replicas as branches, exchanges, what comes in and out.

Imports `plan` and what it is made of.
"""
