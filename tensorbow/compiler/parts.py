"""Compilation of the step of a replica that has several parts, one per logical device.

The step is cut at the borders of its parts as a session's step over several devices is (`partition`). Each
part then becomes an executable with the variants of rounds, as if it were a whole replica's step: equal parts
of all replicas meet in its exchanges (TF-Replicator, section 3.3).

With every value that one part sends to another goes the status: a flag, 0, or NaN while the status is set.
The receiver checks it, so that a loss that is not finite stops the updates of all parts behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tensorbow.compiler.compile import AVERAGING_STATE, assemble, copy_fed, state_scalars
from tensorbow.compiler.fold import fold
from tensorbow.compiler.group import SegmentDraft, group_variants, split
from tensorbow.compiler.merge import merge
from tensorbow.compiler.partition import Cut, Part, Send, partition, segments_with_copies, settle_views
from tensorbow.compiler.plan_memory import check_no_overlap, plan_memory
from tensorbow.compiler.protect import protect
from tensorbow.compiler.prune import drop_unused, prune
from tensorbow.compiler.variable_layout import VariableLayout
from tensorbow.errors import InternalError
from tensorbow.graph import Operation, Tensor
from tensorbow.ops.averaging import GradientSpoil
from tensorbow.ops.control import CheckFinite, Copy
from tensorbow.ops.state import VariableReference
from tensorbow.program.backend import Backend
from tensorbow.program.nodes import Node, Program, Rewriting, SplitStep, Value, storage_of
from tensorbow.program.plan import Executable, Ref, Segment
from tensorbow.specs import TensorSpec, float32, float64


@dataclass(frozen=True)
class PartSpec:
    """One part of a replica: a name that no other part has, its variables, backend and synchroniser."""

    name: str
    layout: VariableLayout
    backend: Backend
    rewriting: Rewriting


@dataclass(frozen=True)
class PartedExecutable:
    """A compiled step of a replica with several parts.

    fetches: for each fetched value the part that has it, and its index among that part's fetches.
    """

    parts: tuple[Executable, ...]
    fetches: tuple[tuple[int, int], ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def reads_first(self) -> frozenset[str]:
        """Variables read before this step writes them."""
        return frozenset().union(*(part.reads_first for part in self.parts))

    @cached_property
    def writes(self) -> frozenset[str]:
        """Variables this step writes."""
        return frozenset().union(*(part.writes for part in self.parts))

    @cached_property
    def scalars(self) -> dict[str, float]:
        """Step scalars and their defaults."""
        return {key: value for part in self.parts for key, value in part.scalars.items()}

    @cached_property
    def counters(self) -> tuple[str, ...]:
        """Names of the random ops that draw in this step."""
        return tuple(name for part in self.parts for name in part.counters)

    def order(self, variant: str) -> list[tuple[int, int]]:
        """Part and number of each segment that a variant runs: none comes before what it receives is sent."""
        waiting = [list(part.variants[variant]) for part in self.parts]
        sent: set[str] = set()
        order: list[tuple[int, int]] = []
        while any(waiting):
            before = len(order)
            for number, (part, left) in enumerate(zip(self.parts, waiting, strict=True)):
                while left and sent.issuperset(part.segments[left[0]].receives):
                    sent.update(key for _, key, _ in sends_of(part.segments[left[0]]))
                    order.append((number, left.pop(0)))
            if len(order) == before:
                raise InternalError(f"{variant}: the parts of a replica wait for each other")
        return order


def sends_of(segment: Segment) -> list[tuple[str, str, Ref]]:
    """Name of the receiving part, key, and memory of each value that a segment sends."""
    sends = [group for group in segment.groups if group.definition is Send]
    return [(group.attrs["to"], group.attrs["key"], group.inputs[0]) for group in sends]


def compile_parts(
    fetches: Sequence[Tensor | Operation],
    feeds: Mapping[Tensor, TensorSpec],
    placement: Callable[[Operation], str],
    parts: Sequence[PartSpec],
    *,
    guard: Tensor | None = None,
    replicas: int = 1,
    within: Collection[Operation] | None = None,
    copied: Collection[Tensor] = (),
) -> PartedExecutable:
    """Compiles a step whose operations are placed on parts of a replica.

    placement: the name of the part of an operation. Other parameters: as of `compile_step`; a guard that is
    fed is checked by each part.

    Raises InvalidArgumentError, naming op and user line, for a step that cannot be planned.
    """
    tensors = [f for f in fetches if isinstance(f, Tensor)]
    wanted = [*tensors, *([guard] if guard is not None else [])]
    targets = [f if isinstance(f, Operation) else f.op for f in (*fetches, *wanted) if f not in feeds]
    needed = prune(targets, feeds, within)
    names = {op: placement(op) for op in needed}
    operations = [f for f in fetches if isinstance(f, Operation)]
    program = fold(needed, feeds, wanted, operations, names, replicas)
    settle_views(program)
    program = drop_unused(merge(drop_unused(program)))
    copy_fed(program, copied)
    program.check_invariants()
    guarded = program.fetches.pop() if guard is not None else None
    step = split(program, guarded, hoists=True)
    if guarded is not None:
        _check_early(step.gradient, guarded, [spec.name for spec in parts])
    program.nodes = [*step.gradient, *step.update]
    update = set(step.update)
    variables = {op.name: name for op, name in names.items() if op.definition is VariableReference}
    cut = partition(program, parts[0].name, variables)
    _send_copies_of_weights(cut)
    _send_status(cut)
    executables: list[Executable] = []
    fetched_from: dict[int, tuple[int, int]] = {}  # by index of the fetch
    for number, spec in enumerate(parts):
        part = cut.parts.get(spec.name) or Part(spec.name, Program([], [], {}), [[]])
        executables.append(_compile_part(part, spec, update, step.guarded))
        fetched_from.update({index: (number, own) for own, index in enumerate(part.fetched)})
    places = tuple(fetched_from[index] for index in range(len(program.fetches)))
    return PartedExecutable(tuple(executables), places, tuple(program.notes))


def _check_early(nodes: list[Node], guard: Value, parts: Sequence[str]) -> None:
    """Moves the check of the loss directly behind its producer, so that later sends carry the status.

    A loss that no node makes is checked by each part before all else.
    """
    check = nodes.pop()
    producer = storage_of(guard).node
    if producer is None:
        nodes[:0] = [replace(check, inputs=[guard], device=part) for part in parts]
    else:
        check.device = producer.device
        nodes.insert(nodes.index(producer) + 1, check)


def _send_copies_of_weights(cut: Cut) -> None:
    """Adds copies of weights that are sent: averaging may change a weight before the end of its stage."""
    for part in cut.parts.values():
        for nodes in part.segments:
            copies: list[Node] = []
            for node in nodes:
                if node.definition is not Send:
                    continue
                variable = storage_of(node.inputs[0]).variable
                if variable is not None and variable.attrs["role"] == "weights":
                    (value,) = node.inputs
                    copy = Node(f"{node.name}/copy", Copy, {}, [value], node.position, node.source)
                    copy.outputs = [Value(value.name, value.spec, copy)]
                    node.inputs[0] = copy.outputs[0]
                    copies.append(copy)
            first = next((i for i, node in enumerate(nodes) if node.definition is Send), len(nodes))
            nodes[first:first] = copies


def _send_status(cut: Cut) -> None:
    """Adds sends of the status to each stage that waits for another, which checks it first."""
    numbers = {(stage.device, stage.segment): number for number, stage in enumerate(cut.stages)}
    for device, part in cut.parts.items():
        for segment, nodes in enumerate(part.segments):
            for number in reversed(cut.stages[numbers[device, segment]].waits):
                sender = cut.stages[number]
                key = f"status of stage {number} for stage {numbers[device, segment]}"
                spec = TensorSpec((), float32)
                theirs = cut.parts[sender.device].segments[sender.segment]
                theirs += _flag(key, device)
                flag = Value(key, spec, feed=key)
                part.receive(key, flag)
                check = Node(key, CheckFinite, {}, [flag], 0, unfused=True, device=device)
                check.note = "sets the status when it is set in the other part"
                nodes.insert(0, check)
    for part in cut.parts.values():
        part.program.nodes = [node for nodes in part.segments for node in nodes]


def _flag(key: str, receiver: str) -> list[Node]:
    """Nodes that send 0, or NaN while the status is set."""
    spec = TensorSpec((), float32)
    zero = Value(key, spec, constant=np.zeros((), np.float32))
    copy = Node(f"{key}/flag", Copy, {}, [zero], 0, unfused=True)
    copy.outputs = [Value(key, spec, copy)]
    spoil = Node(f"{key}/spoil", GradientSpoil, {}, [*copy.outputs], 0, unfused=True)
    spoil.note, spoil.unconditional = "NaN while the status is set", True
    send = Node(f"{key}/send", Send, {"to": receiver, "key": key}, [*copy.outputs], 0)
    send.note = f"to {receiver}"
    return [copy, spoil, send]


def _compile_part(part: Part, spec: PartSpec, update: set[Node], guarded: bool) -> Executable:
    """Compiles one part. update: the nodes of the step that come after its gradient."""
    program = protect(part.program, spec.backend.kernel_kind)
    program.check_invariants()
    stages: dict[Node, int] = {}
    step = SplitStep([], [], guarded)
    for number, nodes in enumerate(segments_with_copies(part)):
        stages.update(dict.fromkeys(nodes, number))
        whole = [node for node in nodes if not node.unfused]  # without flags and their checks
        late = next((index for index, node in enumerate(nodes) if node in update), len(nodes))
        first = 0 if whole and whole[0] in update else late
        step.gradient += nodes[:first]
        step.update += nodes[first:]
    read = {storage_of(value) for node in step.gradient for value in node.inputs}
    sent = [program.feeds[key] for key in sorted(part.received)]
    step.received = {value for value in sent if value in read}
    step.received_late = {value for value in sent if value not in read}
    drafts, variants = group_variants(step, program.fetches, spec.backend, spec.rewriting, stages)
    for run in variants.values():
        _note_received(part, [drafts[number] for number in run])
    state = state_scalars(drafts) | dict.fromkeys(AVERAGING_STATE, float64)
    plan = plan_memory(program, drafts, spec.layout, state)
    check_no_overlap(drafts, plan)
    return assemble(program, drafts, plan, variants, fetches_status=True)


def _note_received(part: Part, drafts: Sequence[SegmentDraft]) -> None:
    """Sets `receives` of a variant's segments: the values from other parts that each is the first to read."""
    seen: set[str] = set()
    for draft in drafts:
        values = [storage_of(value) for unit in draft.units for value in unit.inputs]
        read = dict.fromkeys(value.feed for value in values if value.feed in part.received)
        draft.receives = tuple(key for key in read if key is not None and key not in seen)
        seen.update(draft.receives)
