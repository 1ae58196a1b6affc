"""Position of each round in the training data, also when the number of replicas changes during the run."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from tensorbow.data import BatchOrder
from tensorbow.errors import InvalidArgumentError


class EpochPosition(NamedTuple):
    """Position of a round in the data: its epoch, and the number of its first batch in it; both from 0."""

    epoch: int
    number: int


class RoundPositions:
    """Maps rounds to batches: each round takes the next `replicas` batches of the epoch.

    An epoch ends when fewer batches are left than a round needs; the rest is dropped. So no example is used
    twice in an epoch, also when the number of replicas changes within it. If the batch size changes, the next
    batch is the first whole one of the new size after the examples already used.
    Immutable. Rounds are counted from the start of the run.
    """

    def __init__(
        self,
        order: BatchOrder,
        replicas: int,
        changes: Iterable[tuple[int, int]] = (),
        earlier: tuple[RoundPositions, int] | None = None,
    ):
        """changes: (first round, number of replicas from it on), ordered by round.

        earlier: the positions with the previous batch size, and the first round of this object.
        Raises InvalidArgumentError if an epoch does not fill one round, or for rounds out of order.
        """
        order.rounds_per_epoch(replicas)
        self.order = order
        self._earlier = earlier
        self.counts: tuple[tuple[int, int], ...] = (
            (0 if earlier is None else earlier[1], replicas),
            *changes,
        )
        # Where each count starts: in the next epoch if the rest of this one does not fill a round.
        self._starts = [EpochPosition(0, 0)]
        if earlier is not None:
            epoch, number = earlier[0].at(earlier[1])
            taken = number * earlier[0].order.batch_size
            self._starts = [EpochPosition(epoch, min(-(-taken // order.batch_size), order.batches_per_epoch))]
        for index, (round, count) in enumerate(self.counts[1:], 1):
            if round < self.counts[index - 1][0]:
                raise InvalidArgumentError(
                    f"changes of the number of replicas: expected rounds that do not fall, got {round} after "
                    f"{self.counts[index - 1][0]}"
                )
            order.rounds_per_epoch(count)
            self._starts.append(self._within(index - 1, round))

    def resized(self, round: int, replicas: int) -> RoundPositions:
        """Copy of these positions in which the number of replicas changes at a round."""
        (_, first), *changes = self.counts
        return RoundPositions(self.order, first, [*changes, (round, replicas)], self._earlier)

    @property
    def replicas(self) -> int:
        """Number of replicas after the last change."""
        return self.counts[-1][1]

    @property
    def rounds_per_epoch(self) -> int:
        """Rounds of a whole epoch with the current number of replicas."""
        return self.order.rounds_per_epoch(self.replicas)

    def at(self, round: int) -> EpochPosition:
        """Position of a round's first batch; of a future round, with the current number of replicas."""
        if self._earlier is not None and round < self._earlier[1]:
            return self._earlier[0].at(round)
        return self._within(bisect_right(self.counts, round, key=lambda change: change[0]) - 1, round)

    def _within(self, index: int, round: int) -> EpochPosition:
        first, replicas = self.counts[index]
        start, steps = self._starts[index], round - first
        left = (self.order.batches_per_epoch - start.number) // replicas
        if steps < left:
            return EpochPosition(start.epoch, start.number + steps * replicas)
        epochs, rounds = divmod(steps - left, self.order.rounds_per_epoch(replicas))
        return EpochPosition(start.epoch + 1 + epochs, rounds * replicas)

    def begins_epoch(self, round: int) -> bool:
        """True if this round is the first of its epoch."""
        return self.at(round).number == 0

    def first_round(self, epoch: float) -> int:
        """First round of an epoch, or of the next epoch that has a round if this one was skipped.

        Of a fraction of an epoch, as 0.5: the first round before which at least so much is trained.
        """
        if epoch != int(epoch):
            within = range(self.first_round(int(epoch)), self.first_round(int(epoch) + 1))
            return within.start + bisect_left(within, epoch, key=self.epoch)
        if self._earlier is not None and (round := self._earlier[0].first_round(epoch)) < self._earlier[1]:
            return round
        for index, ((first, replicas), start) in enumerate(zip(self.counts, self._starts, strict=True)):
            round = first
            if start.epoch < epoch:
                left = (self.order.batches_per_epoch - start.number) // replicas
                round += left + (int(epoch) - start.epoch - 1) * self.order.rounds_per_epoch(replicas)
            if index + 1 == len(self.counts) or round < self.counts[index + 1][0]:
                return round
        raise AssertionError("there is a first count")

    def epoch(self, round: int) -> float:
        """Number of epochs trained before a round, including the fraction of the current one."""
        epoch, number = self.at(round)
        whole = self.rounds_per_epoch * self.replicas
        return (epoch * whole + number) / whole
