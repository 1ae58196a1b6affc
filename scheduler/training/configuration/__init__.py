"""Options of a run: their kinds, defaults, files and synonyms, optimisers, schedules, precision.

Imports `measures`, `scheduler.averaging`, `scheduler.batches`, `scheduler.options` and `scheduler.replicas`.
"""
