"""The border between the compiler and the backends: regions, references, groups, segments.

A plan speaks of memory by region and offset, never by address; a backend binds it to the base
addresses of one replica. The same executable serves every replica.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any, TypeAlias

from tensorbow.devices import Access, DeviceValue
from tensorbow.errors import InternalError
from tensorbow.graph import Attrs, Kernel, OpDef, UserLine
from tensorbow.specs import Array, DType


class Region(IntEnum):
    """The memory a bound plan works on: one base address for each."""

    WEIGHTS = 0  # trainable variables, one flat vector per dtype
    GRADIENTS = 1  # a dense variable's gradient lies at the variable's offset
    SLOTS = 2  # the optimiser's variables, each slot laid out like WEIGHTS
    STATISTICS = 3  # all other variables
    CENTRAL = 4  # mirrored variables, once per device and equal on all: z and its momentum
    EXCHANGE = 5  # inputs of exchanges; gradients are handed in from GRADIENTS
    SLAB = 6  # intermediate tensors and scratch, packed by lifetime
    INPUT = 7  # what is fed
    STATE = 8  # scalars that change from step to step, and the status: see below
    RING = 9  # what is fetched, at step mod ring size
    CONSTANT = 10  # written once, when bound
    RESULTS = 11  # results of exchanges, and of ops on them; once per device
    PICKS = 12  # picks of a batch, where the device makes batches of a data set that it keeps:
    DATA_0 = 13  # all its pictures, or its first array,
    DATA_1 = 14  # all its labels, or its second array,
    DATA_2 = 15  # and so on
    DATA_3 = 16
    DATA_4 = 17
    DATA_5 = 18
    DATA_6 = 19
    DATA_7 = 20
    CONTROL = 21  # words of the loops that a plan runs: see `program.stacks`
    SWAPPED = 22  # pinned host memory: values that are swapped out between their uses


DATA = tuple(region for region in Region if Region.DATA_0 <= region <= Region.DATA_7)

# The status, an int64 in STATE, is set to 1 where a loss or gradient is not finite; while it is set,
# predicated groups write nothing. It stays set until the host clears it.


class SegmentKind(Enum):
    """Streams that a segment runs on."""

    REPLICA = "replica"  # on each replica's stream
    EXCHANGE = "exchange"  # on each device: its replicas' values joined, before devices exchange theirs
    MIRRORED = "mirrored"  # on each device: ops on results of exchanges and mirrored variables


@dataclass(frozen=True, slots=True)
class Ref:
    """A contiguous piece of memory in a region, with shape and dtype. The offset counts bytes."""

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
    nodes: tuple[str, ...] = ()  # names of the ops in it


@dataclass(frozen=True, slots=True)
class Segment:
    """Groups that run back to back on one stream. Streams meet between segments.

    receives: names of the inputs that other parts of the step send; they are copied into the slab before.
    """

    name: str
    groups: tuple[Group, ...]
    fetches: bool = True  # whether the fetched values go to the RING at its end
    kind: SegmentKind = SegmentKind.REPLICA
    receives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """Neighbouring calls of a segment that cost one launch in all, or one each: `reason` says why.

    form: what calls that are launched together are, for `explain`.
    """

    groups: tuple[Group, ...]
    reason: str = ""
    form: str = "captured as one CUDA graph"


@dataclass(frozen=True, eq=False)
class Executable:
    """A compiled step for fixed shapes, shared by all replicas, bound before it runs.

    variants: by name, what a round may do instead of others: the segments that run, in order.
    """

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
    reads_maybe: frozenset[str] = frozenset()  # of reads_first, those that only branches and loops touch
    peak_nbytes: int = 0  # of the slab, scratch counted
    lower_bound_nbytes: int = 0
    notes: tuple[str, ...] = field(default=())
    variants: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    stacks: tuple[tuple[Ref, Ref], ...] = ()  # words of each stack in CONTROL, and its memory in the slab
    exchange_inputs: frozenset[Region] = frozenset()  # read by exchanges: what lies there must be whole

    @cached_property
    def exchange_segments(self) -> tuple[int, ...]:
        """The segments in which replicas meet."""
        pairs = enumerate(self.segments)
        return tuple(number for number, segment in pairs if segment.kind is SegmentKind.EXCHANGE)

    @cached_property
    def shares_memory(self) -> bool:
        """True if something runs once per device, for all replicas, or lies there in CENTRAL."""
        return any(
            segment.kind is not SegmentKind.REPLICA
            or any(ref.region is Region.CENTRAL for group in segment.groups for ref in group.writes)
            for segment in self.segments
        )

    @cached_property
    def may_not_end(self) -> bool:
        """True if it has a loop whose condition may stay true for ever."""
        return any(_may_not_end(g.attrs) for segment in self.segments for g in segment.groups)

    def endless_calls(self, segment: int) -> tuple[str, ...]:
        """Names of a segment's calls with such a loop."""
        return tuple(group.name for group in self.segments[segment].groups if _may_not_end(group.attrs))

    @cached_property
    def for_replica(self) -> Executable:
        """A copy for binding a replica: segments that run once per device are empty; numbers stay."""
        return self._with_segments(
            segment if segment.kind is SegmentKind.REPLICA else replace(segment, groups=())
            for segment in self.segments
        )

    def for_device(self, first: int, count: int) -> Executable:
        """A copy for binding a device of replicas `first` to `first + count - 1`: their segments are empty.

        An exchange has one input from each of these replicas, which lie [count, bytes] in the region.
        """

        def here(group: Group) -> Group:
            if not group.definition.exchange:
                return group
            (ref,) = group.inputs
            stride = self.region_nbytes[ref.region]
            inputs = tuple(replace(ref, offset=ref.offset + n * stride) for n in range(count))
            attrs = {**group.attrs, "first": first} if "first" in group.attrs else group.attrs
            return replace(group, inputs=inputs, reads=inputs, attrs=attrs)

        made = self._with_segments(
            replace(segment, groups=())
            if segment.kind is SegmentKind.REPLICA
            else replace(segment, groups=tuple(map(here, segment.groups)))
            for segment in self.segments
        )
        handed = {region: self.region_nbytes[region] * count for region in self.exchange_inputs}
        nbytes = {region: self.region_nbytes.get(region, 0) for region in ONCE_PER_DEVICE}
        return replace(
            made,
            region_nbytes=nbytes | handed,
            ring_nbytes=0,
            inputs={},
            fetches=(),
            fetch_sources=(),
            peak_nbytes=0,
            lower_bound_nbytes=0,
            stacks=(),
        )

    def _with_segments(self, segments: Iterable[Segment]) -> Executable:
        return replace(self, segments=tuple(segments))


ONCE_PER_DEVICE = (Region.CENTRAL, Region.RESULTS, Region.STATE, Region.CONSTANT)


def _may_not_end(attrs: Attrs) -> bool:
    """True for the attributes of a loop that counts to no limit, or of a loop or cond with one in it."""
    program = attrs.get("loop") or attrs.get("branches")
    return not getattr(program, "ends", True) or any(
        _may_not_end(node.attrs) for node in getattr(program, "nodes", ())
    )


TellOp: TypeAlias = Callable[[str, float, float], None]
"""(op, begin, end): the times in seconds of `time.perf_counter`."""


class BoundPlan(ABC):
    """An executable with addresses. Launched from the stream that owns its memory."""

    executable: Executable
    is_one_call = False  # of native code, which an interrupt of Python does not cut off half-way
    keeps_values = False  # its device has memory of its own, where `launch_keeping` can leave results

    @abstractmethod
    def launch(self, segment: int, step: int = 0) -> None:
        """Runs one segment. `step` chooses the RING slot."""

    def launch_keeping(self, segment: int, kept: Mapping[int, DeviceValue]) -> None:
        """Launches as `launch` does, but copies only the fetched values in `kept`, by number, and there.

        Raises InternalError unless `keeps_values`.
        """
        raise InternalError(f"{type(self).__name__}: it leaves no values on its device")

    def launch_traced(self, segment: int, step: int, tell: TellOp) -> None:
        """Runs one segment op by op, where the host computes, and tells each one's time; else as `launch`."""
        self.launch(segment, step)

    @abstractmethod
    def write(self, inputs: Mapping[str, Array], state: Mapping[str, Any]) -> None:
        """Copies feeds (by tensor name) to INPUT and step scalars to STATE, on the stream, before a launch.

        The arrays may be changed once an event recorded after this call is done.
        """

    @abstractmethod
    def copy_out(self, ref: Ref, target: Array) -> None:
        """Copies the memory of `ref` to an array of the device's `host_array`, on the stream, after what was
        launched.
        """

    @abstractmethod
    def copy_in(self, name: str, source: Array) -> None:
        """Copies an array of the device's `host_array` to an input, before what is launched next."""

    @abstractmethod
    def fetch_arrays(self, step: int) -> tuple[Array, ...]:
        """Views of the fetched values of a step; copy what must outlive `ring` further steps."""

    def fetch_values(self, step: int) -> list[Any]:
        """The same to keep: of rank 0 as Python's numbers, others as copies."""
        return [view.copy() if view.ndim else view.item() for view in self.fetch_arrays(step)]

    @abstractmethod
    def accesses(self, segment: int) -> tuple[Sequence[Access], Sequence[Access]]:
        """Memory that a segment reads and writes, as address ranges, for the race checker."""

    def launches(self, segment: int) -> Sequence[PlannedLaunch]:
        """Launches of a segment's calls, for `explain`; empty where each is called by itself."""
        return ()

    def stop(self) -> None:  # noqa: B027 - most plans have no loops
        """Ends the loops that are running or will run, with CancelledError, until `resume`; thread-safe."""

    def resume(self) -> None:  # noqa: B027
        """Lets loops run again after `stop`."""

    def close(self) -> None:  # noqa: B027 - most plans hold nothing
        """Gives back what the plan holds beside its regions; nothing of it may be running. Idempotent."""

    @abstractmethod
    def find_nonfinite(self, segment: int) -> str | None:
        """Runs a segment op by op and names the first one with a NaN or infinite result."""


def access_ranges(refs: Iterable[Ref], bases: Mapping[Region, int], shift: int = 0) -> list[Access]:
    """Address ranges of refs, each once, for the race checker; constants are never written."""
    return [
        Access(bases[ref.region] + ref.offset + shift, ref.nbytes)
        for ref in dict.fromkeys(refs)
        if ref.nbytes and ref.region is not Region.CONSTANT
    ]
