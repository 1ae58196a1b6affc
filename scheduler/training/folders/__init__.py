"""Folders of runs: what train writes, and what evaluate, compare and resumed runs read.

Imports `configuration` and `measures`.
"""
