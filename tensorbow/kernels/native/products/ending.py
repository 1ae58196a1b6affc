"""Ending of a contraction: what is done to its result before and after it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.epilogue import Epilogue
from tensorbow.kernels.native.products.channels import ChannelSums
from tensorbow.kernels.native.products.row_pooling import RowPooling

Place = TypeVar("Place")  # a Ref, or the pointer to it
Other = TypeVar("Other")


@dataclass(frozen=True)
class Ending(Generic[Place]):
    """An epilogue and its operands, and the work on rows of the result while they are cached.

    summed: places of the running sums, and of their other operands. pooled: place of the pooled result, or
    nothing.
    """

    epilogue: Epilogue | None = None
    operands: Sequence[Place] = ()
    sums: ChannelSums | None = None
    summed: Sequence[Place] = ()
    pool: RowPooling | None = None
    pooled: Sequence[Place] = ()

    @property
    def places(self) -> Sequence[Place]:
        """Places of all operands."""
        return (*self.operands, *self.summed, *self.pooled)

    def at(self, places: Sequence[Other]) -> Ending[Other]:
        """The same ending with other places."""
        first, second = len(self.operands), len(self.operands) + len(self.summed)
        operands, summed, pooled = places[:first], places[first:second], places[second:]
        return Ending(self.epilogue, operands, self.sums, summed, self.pool, pooled)

    def begin(self: Ending[ir.Value], e: Emitter) -> None:
        """Emits the work before the first rows."""
        if self.sums is not None:
            self.sums.clear(e, self.summed[0])

    def absorb(self: Ending[ir.Value], e: Emitter, made: ir.Value, first: ir.Value, rows: int) -> None:
        """Emits the work after some rows; made: pointer to the first of them; first: its number."""
        if self.sums is not None:
            running, *others = self.summed
            self.sums.absorb(e, made, first, rows, running, others)
        if self.pool is not None:
            self.pool.write(e, made, first, rows, self.pooled[0])
