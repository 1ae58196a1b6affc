"""Compilation of fetches and feeds into an executable: runs the passes in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tensorbow.compiler.fold import fold
from tensorbow.compiler.group import SegmentDraft, group
from tensorbow.compiler.join import join_neighbours
from tensorbow.compiler.levels import counter_key
from tensorbow.compiler.merge import merge
from tensorbow.compiler.plan_memory import MemoryPlan, check_no_overlap, plan_memory
from tensorbow.compiler.protect import protect
from tensorbow.compiler.prune import drop_unused, prune
from tensorbow.compiler.recompute import NEVER, TRIED
from tensorbow.compiler.recompute import recompute as repeat
from tensorbow.compiler.swap import HIDDEN, can_swap, no_effect
from tensorbow.compiler.swap import swap as copy_out
from tensorbow.compiler.variable_layout import VariableLayout
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, blame
from tensorbow.ops.control import Copy
from tensorbow.program.backend import Backend
from tensorbow.program.control_forms import While
from tensorbow.program.nodes import Node, Program, Rewriting, Unit, Value, storage_of
from tensorbow.program.plan import Executable, Group, Ref, Region, Segment, SegmentKind
from tensorbow.specs import DType, TensorSpec, float64, int64

AVERAGING_STATE = ("alpha", "mu", "share", "outer_rate")  # scalars that synchronisers set
FETCHED_NBYTES = 64  # of one fetched scalar


def compile_step(
    fetches: Sequence[Tensor | Operation],
    feeds: Mapping[Tensor, TensorSpec],
    layout: VariableLayout,
    backend: Backend,
    *,
    rewriting: Rewriting | None = None,
    guard: Tensor | None = None,
    replicas: int = 1,
    within: Collection[Operation] | None = None,
    compiles_loops: bool = True,
    recompute: str = NEVER,
    swap: str = NEVER,
    swap_below: int = 0,
    copied: Collection[Tensor] = (),
    placed: Mapping[Tensor, Ref] | None = None,
) -> Executable:
    """Compiles a step for the fed shapes.

    fetches: tensors to return, in order, and operations to run without a result.
    feeds: the spec (fully known) of each fed tensor; one with a value is a constant.
    rewriting: makes the variants of the step, see `group`; the status is then fetched last.
    guard: a scalar tensor; while it is not finite no variable is written.
    replicas: how many take part in exchanges, where that is in a shape.
    within: see `prune`. compiles_loops: see `fold`.
    recompute, swap: see the passes of these names; the plan with the smallest peak is taken.
    swap_below: bytes of a slab that needs no swap.
    copied: fed tensors that the step reads as if it had computed them.
    placed: memory of the caller's, of some tensors: fed ones lie there and are no inputs; fetched ones are
        computed there, if nothing speaks against it: `fetch_sources` says where they are.

    Raises InvalidArgumentError, naming op and user line, for a step that cannot be planned.
    """
    tensors = [f for f in fetches if isinstance(f, Tensor)]
    wanted = [*tensors, *([guard] if guard is not None else [])]
    targets = [f if isinstance(f, Operation) else f.op for f in (*fetches, *wanted) if f not in feeds]
    needed = prune(targets, feeds, within)
    operations = [f for f in fetches if isinstance(f, Operation)]

    def planned(how: str, swaps: str) -> _Planned:
        program = fold(
            needed,
            feeds,
            wanted,
            operations,
            replicas=replicas,
            compiles_loops=compiles_loops,
            runs_blocks=backend.kernel_kind in While.kernels,
            selects=backend.kernel_kind not in While.kernels,
        )
        if needed:
            program.notes.insert(
                0, f"pruned: {len(needed)} of the graph's {needed[0].graph.version} ops are needed"
            )
        program = drop_unused(merge(drop_unused(program)))
        _place_fed(program, placed or {})
        copy_fed(program, copied)
        if how != NEVER:
            program = drop_unused(repeat(program, how))
        program = protect(program, backend.kernel_kind)
        program.check_invariants()
        guarded = program.fetches.pop() if guard is not None else None
        drafts, variants = group(program, backend, rewriting=rewriting, guard=guarded)
        kind = backend.kernel_kind
        if swaps != NEVER:
            copy_out(program, drafts, layout, kind, swaps, swap_below)
        elif any(node.swaps for node in program.nodes) and can_swap(kind):
            copy_out(program, drafts, layout, kind, HIDDEN, of_loops=True)
        state = state_scalars(drafts)
        if rewriting is not None:
            state |= dict.fromkeys(AVERAGING_STATE, float64)
        fetched = zip(program.fetches, tensors, strict=True) if placed else ()
        homes = {value: placed[tensor] for value, tensor in fetched if placed and tensor in placed}
        plan = plan_memory(program, drafts, layout, state, homes)
        return _Planned(program, drafts, plan, variants)

    tried = dict.fromkeys((how, NEVER) for how in TRIED[recompute])
    if swap != NEVER and can_swap(backend.kernel_kind):
        tried |= dict.fromkeys((how, swap) for how in TRIED[recompute])
    found = {each: planned(*each) for each in tried}
    best = min(found.values(), key=lambda each: each.plan.peak_nbytes)
    if recompute != NEVER:
        best.program.notes.append(f"recomputation: peak bytes of the slab with {_peaks(found, 0)}")
    if swap != NEVER and can_swap(backend.kernel_kind):
        best.program.notes.append(f"swap: peak bytes of the slab with {_peaks(found, 1)}")
    elif swap != NEVER:
        best.program.notes.append(no_effect(backend.kernel_kind))
    check_no_overlap(best.drafts, best.plan)
    return assemble(best.program, best.drafts, best.plan, best.variants, fetches_status=rewriting is not None)


def _place_fed(program: Program, placed: Mapping[Tensor, Ref]) -> None:
    """Has the nodes read fed tensors where they lie."""
    for tensor, ref in placed.items():
        value = program.feeds.pop(tensor.name, None)
        if value is not None:
            value.ref = ref


def copy_fed(program: Program, tensors: Collection[Tensor]) -> None:
    """Has the nodes read copies of fed tensors, which the first nodes make: one on each device that reads."""
    copies: list[Node] = []
    for tensor in tensors:
        value = program.feeds.get(tensor.name)
        readers = [] if value is None else [node for node in program.nodes if value in node.inputs]
        made: dict[str, Value] = {}
        for node in readers:
            copy = made.get(node.device)
            if copy is None and value is not None:
                copies.append(
                    Node(f"{tensor.op.name}/copy", Copy, {}, [value], tensor.op.id, tensor.op.source)
                )
                copy = made[node.device] = Value(value.name, value.spec, copies[-1])
                copies[-1].outputs, copies[-1].device = [copy], node.device
                copies[-1].note = "made by the dynamic executor"
            node.inputs = [copy if each is value and copy is not None else each for each in node.inputs]
    program.nodes = [*copies, *program.nodes]


def _peaks(found: Mapping[tuple[str, str], _Planned], which: int) -> str:
    """The smallest peak by the way of recomputation (0), or that of swapping (1)."""
    peaks: dict[str, int] = {}
    for ways, each in found.items():
        peaks[ways[which]] = min(peaks.get(ways[which], each.plan.peak_nbytes), each.plan.peak_nbytes)
    return ", ".join(f"{how} {nbytes:,}" for how, nbytes in peaks.items())


@dataclass
class _Planned:
    """A step with planned memory."""

    program: Program
    drafts: list[SegmentDraft]
    plan: MemoryPlan
    variants: dict[str, tuple[int, ...]]


def state_scalars(drafts: Sequence[SegmentDraft]) -> dict[str, DType]:
    """The scalars of STATE that every step has, and the counters of random ops.

    replica: its number. random_stream: number of the stream of random numbers that it draws from, by default
    the same.
    """
    counters = random_counters([unit for draft in drafts for unit in draft.units]).values()
    return dict.fromkeys(("status", "replica", "random_stream", *counters), int64)


def random_counters(units: Sequence[Unit]) -> dict[str, str]:
    """STATE key of the counter of each random op, by the op's name."""
    found: dict[str, str] = {}
    pending = [node for unit in units for node in unit.nodes]
    while pending:
        node = pending.pop()
        if node.definition.random:
            found[node.name] = counter_key(node)
        program = node.attrs.get("loop") or node.attrs.get("branches")
        pending.extend(getattr(program, "nodes", ()))
    return found


def assemble(
    program: Program,
    drafts: Sequence[SegmentDraft],
    plan: MemoryPlan,
    variants: Mapping[str, tuple[int, ...]] | None = None,
    *,
    fetches_status: bool = False,
) -> Executable:
    """The executable of a program with planned memory. fetches_status: the status is fetched last."""
    units = [unit for draft in drafts for unit in draft.units]
    scalars: dict[str, float] = {}
    reads_first: set[str] = set()
    always: set[str] = set()  # those that are read by others than branches and loops
    written: set[str] = set()
    for unit in units:
        for node in unit.nodes:
            definition = node.definition
            for index, value in enumerate(node.inputs):
                root = storage_of(value)
                if root.scalar is not None:
                    scalars[root.scalar.attrs["key"]] = root.scalar.attrs["default"]
                if root.variable is not None and index not in definition.ignores:
                    reads_first.update({root.variable.name} - written)
                    if not {"loop", "branches"} & node.attrs.keys():
                        always.add(root.variable.name)
            for index in definition.writes:
                root = storage_of(node.inputs[index])
                if root.variable is not None:
                    written.add(root.variable.name)
                elif not node.unfused:
                    raise InvalidArgumentError(
                        f"{node.name} ({definition.name}) writes {root.name}, which is no variable "
                        f"(made at {node.source})"
                    )
    for value in program.fetches:
        root = storage_of(value)
        if root.scalar is not None:
            scalars[root.scalar.attrs["key"]] = root.scalar.attrs["default"]
        if root.variable is not None:
            reads_first.update({root.variable.name} - written)
            always.add(root.variable.name)
    segments = tuple(
        Segment(
            draft.name,
            tuple(join_neighbours([_group(unit, plan, draft.predicated) for unit in draft.units])),
            draft.fetches,
            draft.kind,
            draft.receives,
        )
        for draft in drafts
    )
    sources, fetches = [plan.refs[v] for v in program.fetches], [*plan.fetches]
    nbytes = dict(plan.region_nbytes)
    if fetches_status:
        sources.append(plan.state["status"])
        fetches.append(Ref(Region.RING, nbytes[Region.RING], (), int64))
        nbytes[Region.RING] += FETCHED_NBYTES
    return Executable(
        segments=segments,
        region_nbytes=nbytes,
        inputs=plan.inputs,
        fetch_sources=tuple(sources),
        fetches=tuple(fetches),
        ring_nbytes=nbytes[Region.RING],
        state=plan.state,
        scalars=scalars,
        counters=tuple(random_counters(units)),
        constants=plan.constants,
        reads_first=frozenset(reads_first),
        writes=frozenset(written),
        reads_maybe=frozenset(reads_first - always),
        peak_nbytes=plan.peak_nbytes,
        lower_bound_nbytes=plan.lower_bound_nbytes,
        notes=(*program.notes, *plan.notes),
        variants=variants or {},
        stacks=tuple(plan.stacks.items()),
        exchange_inputs=frozenset(
            ref.region
            for segment in segments
            if segment.kind is SegmentKind.EXCHANGE
            for group in segment.groups
            for ref in group.inputs
        ),
    )


def _group(unit: Unit, plan: MemoryPlan, predicated: bool) -> Group:
    head = unit.head
    definition = head.definition
    inputs = tuple(plan.refs[v] for v in unit.inputs)
    outputs = tuple(plan.refs[v] for v in unit.outputs)
    scalars = [counter_key(head) if key == "counter" else key for key in definition.state]
    unknown = [key for key in scalars if key not in plan.state]
    if unknown:
        error = InvalidArgumentError(
            f"it reads {', '.join(unknown)}, which only a scheduler of replicas sets; fetch another op"
        )
        raise InvalidArgumentError(blame(definition.name, head.name, error, head.source))
    state = tuple((key, plan.state[scalar]) for key, scalar in zip(definition.state, scalars, strict=True))
    scratch = plan.scratch[unit]
    written = tuple(inputs[i] for i in definition.writes)
    frames = tuple(plan.stacks[ref] for ref in inputs if ref in plan.stacks)
    status = (plan.state["status"],) if definition.sets_status else ()
    predicated = predicated and bool(definition.writes) and not head.unconditional
    reads: list[Ref] = [ref for i, ref in enumerate(inputs) if i not in definition.ignores]
    reads += [ref for _, ref in state if ref not in status]
    if predicated:
        reads.append(plan.state["status"])
    return Group(
        name=head.name,
        definition=definition,
        kernel=unit.kernel,
        attrs=head.attrs,
        inputs=inputs,
        outputs=outputs,
        scratch=scratch,
        state=state,
        reads=tuple(reads),
        writes=tuple(dict.fromkeys((*outputs, *written, *scratch, *status, *frames))),
        source=head.source,
        predicated=predicated,
        note=unit.note,
        nodes=tuple(node.name for node in unit.nodes),
    )
