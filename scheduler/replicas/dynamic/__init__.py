"""Steps of replicas that the dynamic executor runs: their division, and each replica's executor.

Imports the compiler, the executor and the runtime below; `scheduler.replicas` and what is above import it.
"""
