"""Where in the data each round is, also when the number of replicas changes on the way."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from tensorbow.data import BatchOrder
from tensorbow.errors import InvalidArgumentError


class EpochPlace(NamedTuple):
    """The epoch of a round, and the number within it of the round's first batch."""

    epoch: int
    number: int


class RoundPositions:
    """Which batches each round takes: those that follow on the round before, one for each replica.

    An epoch ends where fewer batches are left than a round needs; these are dropped, whatever the numbers of
    replicas were in it. So no example comes twice in an epoch, and none is lost but with that rest. Where the
    batch size changes, the next batch is the first whole one of the new size behind the examples taken.
    Immutable. Rounds are counted from the first of the run.
    """

    def __init__(
        self,
        order: BatchOrder,
        replicas: int,
        changes: Iterable[tuple[int, int]] = (),
        earlier: tuple[RoundPositions, int] | None = None,
    ):
        """changes: (round, replicas), with rounds that do not fall: from that round on there are so many.

        earlier: the positions with another batch size, and the round that these here begin with.
        Raises InvalidArgumentError for too little data, or for rounds that fall.
        """
        order.rounds_per_epoch(replicas)
        self.order = order
        self._earlier = earlier
        self.counts: tuple[tuple[int, int], ...] = (
            (0 if earlier is None else earlier[1], replicas),
            *changes,
        )
        # Where each count begins. Where the rest of the epoch is too small for it, the next one begins.
        self._places = [EpochPlace(0, 0)]
        if earlier is not None:
            epoch, number = earlier[0].place(earlier[1])
            taken = number * earlier[0].order.batch_size
            self._places = [EpochPlace(epoch, min(-(-taken // order.batch_size), order.batches_per_epoch))]
        for index, (round, count) in enumerate(self.counts[1:], 1):
            if round < self.counts[index - 1][0]:
                raise InvalidArgumentError(
                    f"changes of the number of replicas: expected rounds that do not fall, got {round} after "
                    f"{self.counts[index - 1][0]}"
                )
            order.rounds_per_epoch(count)
            self._places.append(self._within(index - 1, round))

    def resized(self, round: int, replicas: int) -> RoundPositions:
        """The same up to a round, and from there on with another number of replicas."""
        (_, first), *changes = self.counts
        return RoundPositions(self.order, first, [*changes, (round, replicas)], self._earlier)

    @property
    def replicas(self) -> int:
        """Their number now, after the last change."""
        return self.counts[-1][1]

    @property
    def rounds_per_epoch(self) -> int:
        """Rounds of a whole epoch with so many."""
        return self.order.rounds_per_epoch(self.replicas)

    def place(self, round: int) -> EpochPlace:
        """Where a round begins; of one that is still to come, by the number of replicas now."""
        if self._earlier is not None and round < self._earlier[1]:
            return self._earlier[0].place(round)
        return self._within(bisect_right(self.counts, round, key=lambda change: change[0]) - 1, round)

    def _within(self, index: int, round: int) -> EpochPlace:
        first, replicas = self.counts[index]
        place, steps = self._places[index], round - first
        left = (self.order.batches_per_epoch - place.number) // replicas
        if steps < left:
            return EpochPlace(place.epoch, place.number + steps * replicas)
        epochs, rounds = divmod(steps - left, self.order.rounds_per_epoch(replicas))
        return EpochPlace(place.epoch + 1 + epochs, rounds * replicas)

    def begins_epoch(self, round: int) -> bool:
        """Whether an epoch begins with this round; the one before has then ended."""
        return self.place(round).number == 0

    def first_round(self, epoch: int) -> int:
        """The round that an epoch begins with, or where it was passed over the next one."""
        if self._earlier is not None and (round := self._earlier[0].first_round(epoch)) < self._earlier[1]:
            return round
        for index, ((first, replicas), place) in enumerate(zip(self.counts, self._places, strict=True)):
            round = first
            if place.epoch < epoch:
                left = (self.order.batches_per_epoch - place.number) // replicas
                round += left + (epoch - place.epoch - 1) * self.order.rounds_per_epoch(replicas)
            if index + 1 == len(self.counts) or round < self.counts[index + 1][0]:
                return round
        raise AssertionError("there is a first count")

    def epoch(self, round: int) -> float:
        """The epochs trained before a round, with the fraction of the one at hand."""
        epoch, number = self.place(round)
        whole = self.rounds_per_epoch * self.replicas
        return (epoch * whole + number) / whole
