"""Ending of a contraction: what is done to its result before and after it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.epilogue import Epilogue
from tensorbow.kernels.native.products.channels import ChannelSums

Place = TypeVar("Place")  # a Ref, or the pointer to it
Other = TypeVar("Other")


@dataclass(frozen=True)
class Ending(Generic[Place]):
    """An epilogue and its operands, and the work on rows of the result while they are cached.

    summed: places of the running sums, and of their other operands.
    """

    epilogue: Epilogue | None = None
    operands: Sequence[Place] = ()
    sums: ChannelSums | None = None
    summed: Sequence[Place] = ()

    @property
    def places(self) -> Sequence[Place]:
        """Places of all operands."""
        return (*self.operands, *self.summed)

    def at(self, places: Sequence[Other]) -> Ending[Other]:
        """The same ending with other places."""
        count = len(self.operands)
        return Ending(self.epilogue, places[:count], self.sums, places[count:])

    def begin(self: Ending[ir.Value], e: Emitter) -> None:
        """Emits the work before the first rows."""
        if self.sums is not None:
            self.sums.clear(e, self.summed[0])

    def absorb(self: Ending[ir.Value], e: Emitter, made: ir.Value, first: ir.Value, rows: int) -> None:
        """Emits the work after some rows; made: pointer to the first of them; first: its number."""
        if self.sums is not None:
            running, *others = self.summed
            self.sums.absorb(e, made, first, rows, running, others)
