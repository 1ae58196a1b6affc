"""GPU kernels of ops, file by file as in `tensorbow/ops`.

Imports `runtime` and `source`.
"""
