"""Decisions without threads, clocks or arrays: which task or round runs next, how many replicas to train.

Imports only `tensorbow.errors`, `tensorbow.kinds` and `tensorbow.specs`.
"""
