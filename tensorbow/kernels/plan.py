"""The border between the compiler and the backends: regions, references, groups, segments.

A plan speaks of memory by region and offset, never by address; a backend binds it to the base
addresses of one replica. The same executable serves every replica.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from tensorbow.devices import Access, Device
from tensorbow.errors import InternalError
from tensorbow.graph import Attrs, Kernel, OpDef, UserLine
from tensorbow.kernels.program import Node, Unit
from tensorbow.specs import Array, DType


class Region(IntEnum):
    """The memory a bound plan works on: one base address for each."""

    WEIGHTS = 0  # trainable variables, one flat vector per dtype
    GRADIENTS = 1  # a dense variable's gradient lies at the variable's offset
    SLOTS = 2  # the optimiser's variables, each slot laid out like WEIGHTS
    STATISTICS = 3  # all other variables
    CENTRAL = 4  # z, laid out like WEIGHTS
    CORRECTIONS = 5  # what a replica hands to the averaging, laid out like WEIGHTS
    SLAB = 6  # intermediate tensors and scratch, packed by lifetime
    INPUT = 7  # what is fed
    STATE = 8  # scalars that change from step to step, and the sticky status
    RING = 9  # what is fetched, at step mod ring size
    CONSTANT = 10  # written once, when bound


@dataclass(frozen=True, slots=True)
class Ref:
    """A contiguous place in a region. The offset counts bytes."""

    region: Region
    offset: int
    shape: tuple[int, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.size

    def __str__(self) -> str:
        return f"{self.region.name}+{self.offset}:{self.nbytes}"


@dataclass(frozen=True, slots=True)
class Group:
    """One or several fused ops that run as one kernel call: the unit of planning.

    `reads` and `writes` say all that the call touches; the race checker goes by them.
    """

    name: str
    definition: OpDef
    kernel: Kernel
    attrs: Attrs
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    scratch: tuple[Ref, ...] = ()
    state: tuple[tuple[str, Ref], ...] = ()
    reads: tuple[Ref, ...] = ()
    writes: tuple[Ref, ...] = ()
    source: UserLine | None = None
    predicated: bool = False  # skipped while the status is set
    note: str = ""  # why it is there or looks as it does, for `explain`


@dataclass(frozen=True, slots=True)
class Segment:
    """Groups that run back to back on one stream. Streams meet between segments."""

    name: str
    groups: tuple[Group, ...]
    fetches: bool = True  # whether the fetched values go to the RING at its end


@dataclass(frozen=True)
class Executable:
    """A compiled step for fixed shapes, shared by all replicas, bound before it runs."""

    segments: tuple[Segment, ...]
    region_nbytes: Mapping[Region, int]
    inputs: Mapping[str, Ref]  # by tensor name
    fetch_sources: tuple[Ref, ...]  # copied to RING at the end of segments that fetch
    fetches: tuple[Ref, ...]  # RING slot 0
    ring_nbytes: int  # bytes of one RING slot
    state: Mapping[str, Ref]
    scalars: Mapping[str, float]  # step scalars and their defaults
    counters: tuple[str, ...]  # names of the random ops that draw in this step
    constants: bytes
    reads_first: frozenset[str]  # variables read before this step writes them
    writes: frozenset[str]  # variables this step writes
    peak_nbytes: int = 0  # of the slab, scratch counted
    lower_bound_nbytes: int = 0
    notes: tuple[str, ...] = field(default=())


class BoundPlan(ABC):
    """An executable with addresses. Launched from the stream that owns its memory."""

    executable: Executable

    @abstractmethod
    def launch(self, segment: int, step: int = 0) -> None:
        """Runs one segment. `step` chooses the RING slot."""

    @abstractmethod
    def array(self, ref: Ref) -> Array:
        """A host view of a place (CPU devices)."""

    @abstractmethod
    def fetch_arrays(self, step: int) -> tuple[Array, ...]:
        """Views of the fetched values of a step; copy what must outlive `ring` further steps."""

    @abstractmethod
    def accesses(self, segment: int) -> tuple[Sequence[Access], Sequence[Access]]:
        """What a segment reads and writes, as address ranges, for the race checker."""

    @abstractmethod
    def find_nonfinite(self, segment: int) -> str | None:
        """Runs a segment op by op and names the first one with a NaN or infinite result."""


class Backend(ABC):
    """How plans become calls on one kind of device."""

    kernel_kind: str  # whose kernels, scratch sizes and in-place rules it uses

    @abstractmethod
    def fuse(self, nodes: Sequence[Node]) -> list[Unit]:
        """Which neighbouring nodes become one group, before memory is planned."""

    @abstractmethod
    def bind(
        self, executable: Executable, bases: Mapping[Region, int], device: Device, ring: int
    ) -> BoundPlan:
        """Fixes the addresses. `ring` is the number of RING slots."""


_backends: dict[str, Backend] = {}


def register_backend(kind: str, backend: Backend) -> None:
    """Makes `backend` the one for devices of a kind."""
    _backends[kind] = backend


def backend_for(device: Device) -> Backend:
    """The backend of a device's kind. Raises InternalError when the kind has none."""
    backend = _backends.get(device.kind)
    if backend is None:
        raise InternalError(f"no backend is registered for {device.kind} devices")
    return backend
