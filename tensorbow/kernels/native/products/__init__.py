"""Matrix products and convolutions: micro-kernel, tiling, packing, Winograd, epilogues.

Imports `codegen`.
"""
