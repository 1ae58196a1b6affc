"""Batches of the steps of a launch, which the threads that run it make of their recipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorbow.data import BatchInputs, BatchRecipe, BatchRun
from tensorbow.specs import Array


class LateBatches(Sequence[Mapping[str, Array]]):
    """Batches of a replica by input name, of one step or of several; recipes are followed when asked for."""

    def __init__(
        self, feeds: Callable[[Sequence[Array]], Mapping[str, Array]], inputs: BatchInputs | BatchRun
    ):
        """feeds: names the arrays of a batch; raises InvalidArgumentError for those that do not fit."""
        run = inputs if isinstance(inputs, BatchRun) else (inputs,)
        self._feeds = feeds
        self._batches = [one if isinstance(one, BatchRecipe) else feeds(one) for one in run]

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: Any) -> Any:
        one = self._batches[index]
        return self._feeds(one.arrays()) if isinstance(one, BatchRecipe) else one
