"""CUDA source that kernels of several ops share: maps, reductions, strided copies.

Imports `runtime`.
"""
