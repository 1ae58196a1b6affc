"""The null backend: plans that touch no memory but say what they would touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorbow.devices import Access, StreamGroup
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.program.plan import BoundPlan, Executable, Ref, Region, access_ranges
from tensorbow.specs import Array


class NullBackend(ReferenceBackend):
    """Plans like the reference backend's, bound to addresses only."""

    title = "nothing is run"

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
        """What the segment would read and write."""
        return self._accesses[segment]

    def find_nonfinite(self, segment: int) -> str | None:
        """Nothing is computed, so nothing is infinite."""
        return None
