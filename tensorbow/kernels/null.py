"""The null backend: plans that touch no memory but say what they would touch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tensorbow.devices import Access, Device
from tensorbow.kernels.plan import BoundPlan, Executable, Ref, Region, register_backend
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.specs import Array


class NullBackend(ReferenceBackend):
    """Plans like the reference backend's, bound to addresses only."""

    def bind(
        self, executable: Executable, bases: Mapping[Region, int], device: Device, ring: int
    ) -> BoundPlan:
        """Computes the address ranges of every segment."""
        return NullPlan(executable, bases, ring)


class NullPlan(BoundPlan):
    """Accesses as address ranges, and nothing to run."""

    def __init__(self, executable: Executable, bases: Mapping[Region, int], ring: int):
        self.executable = executable
        self._bases = dict(bases)
        self._accesses = []
        for segment in executable.segments:
            reads = self._ranges(ref for group in segment.groups for ref in group.reads)
            writes = self._ranges(ref for group in segment.groups for ref in group.writes)
            if segment.fetches:
                reads += self._ranges(executable.fetch_sources)
                writes += [a for slot in range(ring) for a in self._ranges(executable.fetches, slot)]
            self._accesses.append((reads, writes))

    def _ranges(self, refs: Iterable[Ref], slot: int = 0) -> list[Access]:
        shift = slot * self.executable.ring_nbytes
        unique = dict.fromkeys(refs)
        return [
            Access(self._bases[ref.region] + ref.offset + shift, ref.nbytes)
            for ref in unique
            if ref.nbytes and ref.region is not Region.CONSTANT
        ]

    def launch(self, segment: int, step: int = 0) -> None:
        """Nothing."""

    def array(self, ref: Ref) -> Array:
        """Zeros that nobody else sees."""
        return np.zeros(ref.shape, ref.dtype.as_numpy_dtype)

    def fetch_arrays(self, step: int) -> tuple[Array, ...]:
        """Zeros."""
        return tuple(self.array(ref) for ref in self.executable.fetches)

    def accesses(self, segment: int) -> tuple[Sequence[Access], Sequence[Access]]:
        """What the segment would read and write."""
        return self._accesses[segment]

    def find_nonfinite(self, segment: int) -> str | None:
        """Nothing is computed, so nothing is infinite."""
        return None


register_backend("null", NullBackend())
