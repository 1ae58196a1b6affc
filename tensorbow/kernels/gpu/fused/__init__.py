"""Fused replicas: one launch of each kernel for all replicas of a GPU, the replica as an axis of the grid.

A `FusedPlan` binds an executable once for k replicas, with the kernels of `gpu.ops`: a `FusedContext`
launches them with the replica in the grid, products go as batches, convolutions by own kernels. May import
all of `tensorbow.kernels.gpu` but the plan and the backend above.
"""
