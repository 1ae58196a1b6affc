"""Replicas of a step on devices: their memory, their bound plans, z, and what is enqueued on their streams.

Imports `scheduler.averaging` and `scheduler.workers`.
"""
