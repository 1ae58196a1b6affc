"""The null backend: plans that touch no memory but say what they would touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorbow.devices import Access, StreamGroup
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.program.plan import BoundPlan, Executable, Ref, Region, access_ranges
from tensorbow.program.rounds import LaunchFeeds, RoundLaunch, RoundProgram, RoundProgramSpec
from tensorbow.specs import Array


class NullBackend(ReferenceBackend):
    """Plans like the reference backend's, bound to addresses only."""

    title = "nothing is run"

    def __init__(self, *, launches_rounds: bool = False):
        """launches_rounds: launches the rounds of all replicas at once, without recording their accesses."""
        self._launches_rounds = launches_rounds

    def round_program(self, plans: Sequence[BoundPlan], rounds: RoundProgramSpec) -> RoundProgram | None:
        """See Backend.round_program."""
        return NullRounds(plans) if self._launches_rounds else None

    def bind(
        self, executable: Executable, bases: Mapping[Region, int], group: StreamGroup, ring: int
    ) -> BoundPlan:
        """Computes the address ranges of every segment."""
        return NullPlan(executable, bases, ring)


class NullPlan(BoundPlan):
    """Accesses as address ranges, and nothing to run."""

    def __init__(self, executable: Executable, bases: Mapping[Region, int], ring: int):
        self.executable = executable
        self._accesses = []
        for segment in executable.segments:
            reads = access_ranges((ref for group in segment.groups for ref in group.reads), bases)
            writes = access_ranges((ref for group in segment.groups for ref in group.writes), bases)
            if segment.fetches:
                reads += access_ranges(executable.fetch_sources, bases)
                for slot in range(ring):
                    writes += access_ranges(executable.fetches, bases, slot * executable.ring_nbytes)
            self._accesses.append((reads, writes))
        self._fetched = tuple(np.zeros(ref.shape, ref.dtype.as_numpy_dtype) for ref in executable.fetches)
        for zeros in self._fetched:
            zeros.flags.writeable = False

    def launch(self, segment: int, step: int = 0) -> None:
        """Nothing."""

    def write(self, inputs: Mapping[str, Array], state: Mapping[str, Any]) -> None:
        """Nothing."""

    def copy_out(self, ref: Ref, target: Array) -> None:
        """Nothing."""

    def copy_in(self, name: str, source: Array) -> None:
        """Nothing."""

    def fetch_arrays(self, step: int) -> tuple[Array, ...]:
        """Zeros, which cannot be written to."""
        return self._fetched

    def accesses(self, segment: int) -> tuple[Sequence[Access], Sequence[Access]]:
        """Memory that the segment would read and write."""
        return self._accesses[segment]

    def find_nonfinite(self, segment: int) -> str | None:
        """Nothing is computed, so nothing is infinite."""
        return None


class NullRounds(RoundProgram):
    """Rounds that are launched and do nothing: they show what scheduling costs."""

    stopped = False

    def __init__(self, plans: Sequence[BoundPlan]):
        self._plans = plans

    def launch(
        self,
        first: int,
        variants: Sequence[int],
        feeds: LaunchFeeds,
        state: Mapping[str, Any],
        threads: int,
    ) -> RoundLaunch:
        """See RoundProgram.launch."""
        return NullLaunch(len(self._plans), len(variants))

    def fetched(self, replica: int, first: int, count: int) -> list[Array]:
        """Zeros."""
        return [
            np.zeros((count, *view.shape), view.dtype) for view in self._plans[replica].fetch_arrays(first)
        ]

    def stop(self) -> None:
        """Nobody waits."""

    def reset(self) -> None:
        """Nothing is kept."""


class NullLaunch(RoundLaunch):
    """Rounds of all replicas, done by one thread."""

    def __init__(self, replicas: int, rounds: int):
        self._threads, self._rounds = (range(replicas),), rounds

    @property
    def threads(self) -> Sequence[range]:
        """See RoundLaunch.threads."""
        return self._threads

    def run(self, thread: int) -> None:
        """Nothing."""

    def at(self, thread: int) -> tuple[int, int]:
        """See RoundLaunch.at."""
        return 0, 0

    def done(self, replica: int) -> int:
        """All of them."""
        return self._rounds

    def let_go(self) -> None:
        """See RoundLaunch.let_go."""
