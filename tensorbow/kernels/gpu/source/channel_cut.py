"""Division of rows [rows, channels] into blocks, for kernels that reduce the rows of each channel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.blocks import WARP, power_of_two
from tensorbow.kernels.gpu.source.index_types import IndexType
from tensorbow.kernels.gpu.source.reduction_plans import ENOUGH_BLOCKS
from tensorbow.specs import DType, TensorSpec

HELD = 8  # elements that a thread loads before it uses them
MOST_THREADS = 1024  # per block
SECTOR = 8  # channels in one memory transaction of 32 bytes
MOST_BLOCKS = 1024  # in a launch over the elements


@dataclass(frozen=True)
class ChannelCut:
    """Division of rows [rows, channels] into blocks; depends on the shape alone.

    at_once: blocks of `held_block` threads hold all rows of their channels. Otherwise blocks of `block`
    threads measure `parts` of `share` rows each, and then normalise `chunks` of `some` rows each.
    """

    rows: int
    channels: int
    held_block: tuple[int, int]
    block: tuple[int, int]
    parts: int
    share: int
    some: int

    @property
    def at_once(self) -> bool:
        """True if one launch is enough."""
        return self.rows <= HELD * self.held_block[1]

    @property
    def held_grid(self) -> int:
        """Blocks along the channels with one launch."""
        return -(-self.channels // self.held_block[0])

    @property
    def tiles(self) -> int:
        """Blocks along the channels with two launches."""
        return -(-self.channels // self.block[0])

    @property
    def chunks(self) -> int:
        """Blocks along the rows in the launch over the elements; at least one, which writes the vectors."""
        return max(1, -(-self.rows // self.some))

    def source(
        self, name: str, template: str, dtype: np.dtype[np.generic], index: IndexType, keys: Mapping[str, str]
    ) -> CudaSource:
        """Fills in a source template. keys: of its element, see `Element.keys`."""
        return CudaSource.of(
            name,
            template,
            T=c_type(dtype),
            I=index.name,
            BLOCK=str(BLOCK),
            HELD=str(HELD),
            MOST_THREADS=str(MOST_THREADS),
            **keys,
        )

    def scratch(self, numbers: int, dtype: DType) -> list[TensorSpec]:
        """Memory for so many numbers per part and channel; none with one launch."""
        return [] if self.at_once else [TensorSpec((self.parts, numbers, self.channels), dtype)]


def cut_rows(shape: Sequence[int]) -> ChannelCut:
    """The division of an array [..., channels]."""
    channels, rows = shape[-1], math.prod(shape[:-1])
    needed = power_of_two(-(-rows // HELD))
    held_width = WARP if needed * WARP <= MOST_THREADS else SECTOR
    held_block = held_width, min(needed, MOST_THREADS // held_width)
    width = min(WARP, power_of_two(channels))
    height = BLOCK // width
    tiles = max(1, -(-channels // width))
    parts = max(1, min(ENOUGH_BLOCKS // tiles, 8 * height, -(-rows // (HELD * height))))
    share = max(1, -(-rows // parts))
    chunks = max(1, min(-(-rows // (4 * height)), MOST_BLOCKS // tiles))
    some = max(1, -(-rows // chunks))
    return ChannelCut(rows, channels, held_block, (width, height), -(-rows // share), share, some)
