"""Workers: the processes of one job that train in lockstep, and what they tell each other (MPI).

Imports no other room.
"""
