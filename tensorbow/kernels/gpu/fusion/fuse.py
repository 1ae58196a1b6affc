"""Fusion on a GPU: the passes, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorbow.graph import Kernel
from tensorbow.kernels.gpu.fusion.batched_maps import batch_maps
from tensorbow.kernels.gpu.fusion.inlining import inline_maps
from tensorbow.kernels.gpu.fusion.loss_heads import fuse_loss_heads
from tensorbow.kernels.gpu.fusion.maps import map_kernel
from tensorbow.kernels.gpu.fusion.packed_filters import pack_filters
from tensorbow.kernels.scalars import fuse_maps
from tensorbow.program.nodes import Node, Unit


def fuse(nodes: Sequence[Node], kernel_of: Callable[[Node], Kernel]) -> list[Unit]:
    """The units of a segment; `kernel_of` gives the GPU kernel of a node that is not fused."""
    units = fuse_loss_heads(fuse_maps(nodes, kernel_of, map_kernel))
    return batch_maps(pack_filters(inline_maps(units)))
