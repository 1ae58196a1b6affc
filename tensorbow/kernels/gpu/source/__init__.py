"""CUDA source shared by kernels of several ops: maps, reductions, strided copies.

Imports `runtime`.
"""
