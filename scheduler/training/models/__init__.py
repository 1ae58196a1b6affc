"""Models of runs: the step that trains one, its evaluation, and trained ones for prediction.

Imports `configuration`, `folders`, `measures`, `scheduler.averaging`, `scheduler.engine`,
`scheduler.replicas` and `scheduler.workers`.
"""
