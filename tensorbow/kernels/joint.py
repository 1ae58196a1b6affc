"""Whole steps of one device's replicas, averaging included, as one launch of each: the border to backends.

Without it a step is two launches of a replica, and averaging further ones of z's stream. Where steps are
short that is much of what they cost; and on one processor the passes over memory can be shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tensorbow.kernels.examples import KeptExamples
from tensorbow.specs import Array


@dataclass(frozen=True)
class JointAveraging:
    """How replicas are kept together: the segment of their update with averaging, and z.

    central: z's base addresses, by number of region. has_momentum: whether z has one; without, u is
    not written.
    """

    segment: int
    central: Sequence[int]
    has_momentum: bool


@dataclass(frozen=True)
class JointInputs:
    """The batches of some steps: as arrays by input name, or of what `examples` makes them.

    picks: `PICK` [steps, batch_size]. targets: the addresses of the pictures and labels made.
    """

    feeds: Sequence[Mapping[str, Array]] = ()
    picks: NDArray[Any] | None = None
    examples: KeptExamples | None = None
    targets: tuple[int, int] = (0, 0)


class JointLaunch(ABC):
    """Some steps of a replica, to be called once, on its stream; whoever holds it keeps its memory."""

    @abstractmethod
    def __call__(self) -> None:
        """Runs them. Raises the error of an op, and AbortedError where another replica's launch failed."""

    @property
    @abstractmethod
    def done(self) -> int:
        """Steps done: fewer than asked for after an error, or a status that is set."""


class JointRounds(ABC):
    """Launches of all replicas, one of each, as one call: one thread does their steps in turn."""

    @abstractmethod
    def __call__(self) -> None:
        """Runs them. Raises the error of an op, of the replica `at`."""

    @property
    @abstractmethod
    def at(self) -> int:
        """The replica that it has got to."""


class JointSteps(ABC):
    """The bound steps of all replicas of a device. One thread at a time asks for launches."""

    @abstractmethod
    def launch(
        self,
        replica: int,
        first: int,
        averages: Sequence[bool],
        inputs: JointInputs,
        state: Mapping[str, Any],
    ) -> JointLaunch:
        """Prepares steps of a replica; one for each of `averages`.

        In a step that averages all replicas meet: each must be launched, with the same `averages`, on a
        thread of its own. first: the number of the first step, which chooses the RING slot. state: step
        scalars, one value or one for each step; with a status, which each step then begins with, steps go on
        whatever it becomes, else they end with one that sets it.
        """

    @abstractmethod
    def rounds(self, launches: Sequence[JointLaunch]) -> JointRounds:
        """The launches of all replicas, by number, as one call in their place; all of their steps average."""

    @abstractmethod
    def fetched(self, replica: int, first: int, count: int) -> list[Array]:
        """What steps that are done have fetched: by fetch, [steps, ...]."""

    @abstractmethod
    def stop(self) -> None:
        """Lets those go that wait for a replica that will not come; from any thread."""

    @abstractmethod
    def reset(self) -> None:
        """Takes back `stop`, and takes note of step scalars that were set; while nothing runs."""
