"""What is done with a contraction's result before and after it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tensorbow.kernels.native.channels import ChannelSums
from tensorbow.kernels.native.epilogue import Epilogue

Place = TypeVar("Place")  # a Ref, or the pointer to it
Other = TypeVar("Other")


@dataclass(frozen=True)
class Ending(Generic[Place]):
    """An epilogue and its operands; what is then added up of the rows while they are in the cache.

    summed: the places of the running sums, and of what else they are made of.
    """

    epilogue: Epilogue | None = None
    operands: Sequence[Place] = ()
    sums: ChannelSums | None = None
    summed: Sequence[Place] = ()

    @property
    def places(self) -> Sequence[Place]:
        """All of them."""
        return (*self.operands, *self.summed)

    def at(self, places: Sequence[Other]) -> Ending[Other]:
        """The same with other places."""
        count = len(self.operands)
        return Ending(self.epilogue, places[:count], self.sums, places[count:])
