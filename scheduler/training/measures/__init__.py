"""Measures of a run: metrics of classifiers, their order, running totals, and what tuning found.

Imports `scheduler.decisions`.
"""
