"""Whole steps of one device's replicas, averaging included, as one launch of each: the border to backends.

Without it a step is two launches of a replica, and averaging further ones of z's stream. Where steps are
short that is much of what they cost; and on one processor the passes over memory can be shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tensorbow.program.examples import KeptExamples
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


@dataclass(frozen=True, eq=False)
class MadeBatches:
    """What batches are made of, and where: by replica, the addresses of pictures and labels."""

    examples: KeptExamples
    batch_size: int
    targets: Sequence[tuple[int, int]]


class JointInputs(NamedTuple):
    """All replicas' batches of some steps: as arrays, or of what `made` makes them.

    feeds: by replica and step, arrays by input name. picks: `PICK` [steps, replicas, batch_size], of which
    those from `first` on are for these steps.
    """

    feeds: Sequence[Sequence[Mapping[str, Array]]] = ()
    made: MadeBatches | None = None
    picks: NDArray[Any] | None = None
    first: int = 0


class JointLaunch(ABC):
    """Some steps of all replicas: `run` once for each replica, on its stream, or `run_all` in their place."""

    @abstractmethod
    def run(self, replica: int) -> None:
        """Runs a replica's. Raises the error of an op, and AbortedError where another replica's failed."""

    @abstractmethod
    def run_all(self) -> None:
        """Runs those of all replicas, step by step, in this thread. Raises the error of an op."""

    @property
    @abstractmethod
    def at(self) -> int:
        """The replica that `run_all` has got to."""

    @abstractmethod
    def done(self, replica: int) -> int:
        """A replica's steps done: fewer than asked for after an error, or a status that is set."""

    @abstractmethod
    def let_go(self) -> None:
        """Holds the inputs no more; after its end."""


class JointSteps(ABC):
    """The bound steps of all replicas of a device. One thread at a time asks for launches."""

    @abstractmethod
    def launch(
        self, first: int, averages: Sequence[bool], inputs: JointInputs, state: Mapping[str, Any]
    ) -> JointLaunch:
        """Prepares steps of all replicas; one for each of `averages`.

        In a step that averages all replicas meet, so that each must be run, on a thread of its own. first:
        the number of the first step, which chooses the RING slot. state: step scalars,
        one value or one for each step; with a status, which each step then begins with, steps go on whatever
        it becomes, else they end with one that sets it. A launch and its memory are used again when as many
        steps have followed as RING has slots.
        """

    @abstractmethod
    def fetched(self, replica: int, first: int, count: int) -> list[Array]:
        """What steps that are done have fetched: by fetch, [steps, ...]."""

    @property
    @abstractmethod
    def stopped(self) -> bool:
        """Whether a launch since `reset` has ended, or is to end, before its last step."""

    @abstractmethod
    def stop(self) -> None:
        """Lets those go that wait for a replica that will not come; from any thread."""

    @abstractmethod
    def reset(self) -> None:
        """Takes back `stop`, and takes note of step scalars that were set; while nothing runs."""
