"""Passes over planned calls that have them share work.

Imports `codegen`, `products` and `ops`.
"""
