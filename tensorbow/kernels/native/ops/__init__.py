"""Native code of ops, file by file as in `tensorbow/ops`.

Imports `codegen` and `products`.
"""
