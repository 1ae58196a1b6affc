"""Decisions without threads, clocks or arrays: assignment of batches to replicas, number of replicas.

Imports only `tensorbow.errors`.
"""
