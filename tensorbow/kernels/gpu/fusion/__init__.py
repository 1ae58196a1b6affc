"""Passes over a segment's nodes that have fewer kernels do the same work.

Imports `ops`, `source` and `runtime`.
"""
