"""Batches of the members in the places of a pool: each in the order of its own seed, at its own epoch."""

from __future__ import annotations

from collections.abc import Callable

from scheduler.batches.sources import BatchSource, DatasetBatches, OnReady, WholeRounds
from tensorbow.data import RoundRecipes, TrainingData


class MemberBatches:
    """Source of an engine's batches, each made as `DatasetBatches` makes those of one replica alone."""

    def __init__(self, dataset: TrainingData, batch_size: int, places: int, depth: int):
        """depth: launches held ready."""
        self.dataset, self.batch_size, self.depth, self.replicas = dataset, batch_size, depth, places
        self.steps_per_launch = 1
        self._orders: dict[int, DatasetBatches] = {}  # by seed
        self._places: list[
            tuple[int, int]
        ] = []  # by place: seed, and what turns a round into the member's own

    def place(self, members: list[tuple[int, int]]) -> None:
        """Sets the members, while nothing runs: of each place the seed, and its rounds less the engine's."""
        self._places = members
        seeds = {seed for seed, _ in members}
        self._orders = {seed: self._orders.get(seed) or self.order(seed) for seed in seeds}

    def order(self, seed: int) -> DatasetBatches:
        """Batches of a run alone with this seed."""
        return self._orders.get(seed) or DatasetBatches(self.dataset, self.batch_size, 1, seed)

    def recipes(self, rounds: range) -> RoundRecipes:
        """Recipes of the batches of some rounds of the engine."""
        different = [*dict.fromkeys(self._places)]
        parts = [
            self._orders[seed].recipes(range(rounds.start + shift, rounds.stop + shift))
            for seed, shift in different
        ]
        return RoundRecipes.side_by_side(parts, [different.index(place) for place in self._places])

    def open(
        self, start: int, stop: int, on_ready: OnReady, on_error: Callable[[BaseException], None]
    ) -> BatchSource:
        """Opens a source of rounds `start` to `stop` - 1 of the engine."""
        return WholeRounds(self, start, stop, on_ready)
