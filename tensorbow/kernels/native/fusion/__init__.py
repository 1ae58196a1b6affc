"""Passes that fuse neighbouring nodes into one native call.

Imports `codegen`, `products` and `ops`.
"""
