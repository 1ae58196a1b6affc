"""Matrix products and convolutions: micro-kernel, tiling, packing, Winograd, and what is fused onto results.

Imports `codegen`.
"""
