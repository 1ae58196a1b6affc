"""Compilation of a step over several devices: one part per device, and the order of their stages.

The devices may be those of several processes: each cuts the whole step, and compiles the parts of its own
devices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tensorbow.compiler.compile import assemble, state_scalars
from tensorbow.compiler.delay_receives import delay_receives
from tensorbow.compiler.fold import fold
from tensorbow.compiler.group import SegmentDraft, units_of
from tensorbow.compiler.merge import merge
from tensorbow.compiler.partition import (
    Cut,
    Part,
    Send,
    Stage,
    partition,
    segments_with_copies,
    settle_views,
)
from tensorbow.compiler.plan_memory import check_no_overlap, plan_memory
from tensorbow.compiler.protect import protect
from tensorbow.compiler.prune import drop_unused
from tensorbow.compiler.variable_layout import VariableLayout
from tensorbow.devices import Device
from tensorbow.errors import UnimplementedError
from tensorbow.graph import Operation, Tensor
from tensorbow.kernels.backends import backend_for
from tensorbow.ops.state import VariableReference
from tensorbow.program.backend import Backend
from tensorbow.program.nodes import Node, Program, Unit, record_readers
from tensorbow.program.plan import Executable
from tensorbow.specs import TensorSpec

LARGE_NBYTES = 1 << 20  # of a received value for which a stage more is worth its launch


@dataclass(frozen=True)
class MultiDeviceExecutable:
    """A compiled step over several devices.

    parts: one executable per device of this process, by the device's full name. stages: of all devices, in
    the order of enqueueing. fetches: for each fetched value the device whose part has it, and its index among
    that part's fetches. senders: by receiving device and key the number of the stage that sends a value.
    digest: equal in all processes that have cut the step in the same way.
    """

    parts: Mapping[str, Executable]
    devices: Mapping[str, Device]
    stages: tuple[Stage, ...]
    fetches: tuple[tuple[str, int], ...]
    notes: tuple[str, ...] = ()
    senders: Mapping[tuple[str, str], int] = field(default_factory=dict)
    digest: str = ""

    @cached_property
    def reads_first(self) -> frozenset[str]:
        """Variables read before this step writes them."""
        return frozenset().union(*(part.reads_first for part in self.parts.values()))

    @cached_property
    def reads_maybe(self) -> frozenset[str]:
        """Variables of `reads_first` that only branches and loops touch."""
        return self.reads_first.difference(*(p.reads_first - p.reads_maybe for p in self.parts.values()))

    @cached_property
    def writes(self) -> frozenset[str]:
        """Variables this step writes."""
        return frozenset().union(*(part.writes for part in self.parts.values()))

    @cached_property
    def counters(self) -> tuple[str, ...]:
        """Names of the random ops in this step, which draw with a counter."""
        return tuple(name for part in self.parts.values() for name in part.counters)


def fold_for_devices(
    needed: Sequence[Operation],
    fetches: Sequence[Tensor | Operation],
    feeds: Mapping[Tensor, TensorSpec],
    names: Mapping[Operation, str],
    compiles_loops: bool = True,
) -> Program:
    """The program of a step over several devices. Arguments: see `compile_multi_device`.

    An operation whose name is "" has no device yet; its nodes are not merged with those that have one.
    """
    tensors = [f for f in fetches if isinstance(f, Tensor)]
    operations = [f for f in fetches if isinstance(f, Operation)]
    program = fold(needed, feeds, tensors, operations, names, compiles_loops=compiles_loops)
    settle_views(program)
    return drop_unused(merge(drop_unused(program)))


def compile_multi_device(
    needed: Sequence[Operation],
    fetches: Sequence[Tensor | Operation],
    feeds: Mapping[Tensor, TensorSpec],
    names: Mapping[Operation, str],
    home: str,
    devices: Mapping[str, Device],
    layouts: Mapping[str, VariableLayout],
    notes: Sequence[str] = (),
    compiles_loops: bool = True,
    keeps_received: bool = False,
    lossy: bool = False,
) -> MultiDeviceExecutable:
    """Compiles a step whose operations are placed.

    needed: the pruned operations. names: the full name of each one's device. home: the device of fetched
    constants and feeds. devices: those of this process, whose parts are compiled. layouts: the variable
    layout of each of them. Both by the device's full name. keeps_received: received values have memory of
    their own, as they may come at any time; by default they share the slab's, as long as they are read.
    lossy: see `partition`.

    Raises InvalidArgumentError for a step that cannot be planned, UnimplementedError for an operation without
    a kernel on its device; both name the operation and the user's line.
    """
    program = fold_for_devices(needed, fetches, feeds, names, compiles_loops)
    variables = {op.name: name for op, name in names.items() if op.definition is VariableReference}
    return compile_placed(program, variables, home, devices, layouts, notes, keeps_received, lossy)


def compile_placed(
    program: Program,
    variables: Mapping[str, str],
    home: str,
    devices: Mapping[str, Device],
    layouts: Mapping[str, VariableLayout],
    notes: Sequence[str] = (),
    keeps_received: bool = False,
    lossy: bool = False,
) -> MultiDeviceExecutable:
    """Compiles a program whose nodes have devices; see `compile_multi_device`.

    variables: the device of each.
    """
    program.check_invariants()
    cut = partition(delay_receives(program, variables), home, variables, LARGE_NBYTES, lossy)
    parts: dict[str, Executable] = {}
    fetched_from: dict[int, tuple[str, int]] = {}  # by index of the fetch
    for name, part in cut.parts.items():
        if name in devices:
            received = [stage.receives for stage in cut.stages if stage.device == name and not keeps_received]
            parts[name] = _compile_part(
                part, devices[name], layouts.get(name) or VariableLayout([]), received
            )
        fetched_from.update({index: (name, number) for number, index in enumerate(part.fetched)})
    return MultiDeviceExecutable(
        parts=parts,
        devices={name: devices[name] for name in parts},
        stages=tuple(cut.stages),
        fetches=tuple(fetched_from[index] for index in range(len(program.fetches))),
        notes=(*notes, *program.notes),
        senders=senders_of(cut),
        digest=_digest(cut),
    )


def of_one_device(executable: Executable, name: str, device: Device) -> MultiDeviceExecutable:
    """A step on one device in the form of one over several. name: the device's full name."""
    return MultiDeviceExecutable(
        parts={name: executable},
        devices={name: device},
        stages=tuple(Stage(name, number, (), ()) for number in range(len(executable.segments))),
        fetches=tuple((name, number) for number in range(len(executable.fetches))),
        notes=executable.notes,
    )


def senders_of(cut: Cut) -> dict[tuple[str, str], int]:
    """Number of the stage that sends a value, by receiving device and key."""
    return {
        (node.attrs["to"], node.attrs["key"]): number
        for number, stage in enumerate(cut.stages)
        for node in cut.parts[stage.device].segments[stage.segment]
        if node.definition is Send
    }


def _digest(cut: Cut) -> str:
    checksum = hashlib.sha256(repr(cut.stages).encode())
    for name, part in cut.parts.items():
        rows = [
            [(n.name, n.definition.name, n.outputs and str(n.outputs[0].spec)) for n in nodes]
            for nodes in part.segments
        ]
        checksum.update(repr((name, part.fetched, rows)).encode())
    return checksum.hexdigest()


def _compile_part(
    part: Part, device: Device, layout: VariableLayout, received: Sequence[tuple[str, ...]]
) -> Executable:
    """Compiles one device's part. received: by segment, the keys of received values that share the slab."""
    backend = backend_for(device)
    program = protect(part.program, backend.kernel_kind)
    program.check_invariants()
    segments = segments_with_copies(part)
    record_readers([node for nodes in segments for node in nodes], program.fetches)
    drafts = [
        SegmentDraft(f"{number}", _fuse(nodes, backend, device)) for number, nodes in enumerate(segments)
    ]
    for draft, keys in zip(drafts, received, strict=False):
        draft.receives = keys
    for last in drafts[-1:]:
        last.fetches = True
    plan = plan_memory(program, drafts, layout, state_scalars(drafts))
    check_no_overlap(drafts, plan)
    return assemble(program, drafts, plan)


def _fuse(nodes: Sequence[Node], backend: Backend, device: Device) -> list[Unit]:
    """The backend's units of a stage, followed by the stage's sends."""
    try:
        return units_of(nodes, backend)
    except UnimplementedError as error:
        raise UnimplementedError(f"on {device.name.short}: {error}") from None
