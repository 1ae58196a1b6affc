"""Runtime of GPU kernels: contexts, compiled programs, cuBLAS and cuDNN handles, pinned slots.

Imports no other room of the GPU backend.
"""
