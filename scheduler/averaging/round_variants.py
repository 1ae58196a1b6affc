"""Which variant of its step a round runs."""

from __future__ import annotations

from scheduler.averaging.synchronisation import Synchronisation
from scheduler.averaging.synchronisers import CLEAR, ON_MEAN, UPDATE, averaging, restart


class RoundVariants:
    """The variants of rounds, by the options and the number of replicas."""

    def __init__(self, options: Synchronisation, replicas: int):
        averages = options.averages(replicas)
        self.slots = options.staleness + 1 if averages else 0
        self.gang_from = options.gang_from(replicas)
        self._tau, self._apart = options.tau, options.first_come

    @property
    def names(self) -> list[str]:
        """All variants of rounds."""
        names = [UPDATE, *map(averaging, range(0 if self._apart else self.slots))]
        return names if self.gang_from is None else [*names, ON_MEAN]

    def of(self, round: int) -> str:
        """The variant that a round's tasks run."""
        if self.gang_from is not None and round >= self.gang_from:
            return ON_MEAN
        if self._apart or not self.averages(round):
            return UPDATE
        return self.averaging_after(round)

    def averages(self, round: int) -> bool:
        """True if an averaging follows a round, unless it steps on the mean gradient."""
        return bool(self.slots) and (round + 1) % self._tau == 0

    def averaging_after(self, round: int) -> str:
        """The variant of the averaging after a round."""
        return averaging(self.last_slot(round), self._apart)

    def restarts(self, round: int) -> list[str]:
        """What is run when averaging restarts after a round and its averaging."""
        names = [restart(self.last_slot(round))]
        return [*names, CLEAR] if round + 1 == self.gang_from else names

    def last_slot(self, round: int) -> int:
        """The slot of z after a round and its averaging; before the first averaging all slots are equal."""
        return ((round + 1) // self._tau - 1) % self.slots
