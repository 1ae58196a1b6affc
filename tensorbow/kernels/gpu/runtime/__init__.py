"""What GPU kernels run on: contexts, compiled programs, cuBLAS and cuDNN handles, pinned slots.

Imports no other room of the GPU backend.
"""
