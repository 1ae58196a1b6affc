"""Matrix products and convolutions: micro-kernel, tiling, packing, Winograd.

Imports `codegen`.
"""
