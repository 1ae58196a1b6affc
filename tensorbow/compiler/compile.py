"""Compilation of fetches and feeds into an executable: runs the passes in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorbow.compiler.fold import fold
from tensorbow.compiler.group import SegmentDraft, group
from tensorbow.compiler.merge import merge
from tensorbow.compiler.plan_memory import MemoryPlan, check_no_overlap, plan_memory
from tensorbow.compiler.protect import protect
from tensorbow.compiler.prune import drop_unused, prune
from tensorbow.compiler.variable_layout import VariableLayout
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, blame
from tensorbow.program.backend import Backend
from tensorbow.program.nodes import Program, Unit, storage_of
from tensorbow.program.plan import Executable, Group, Ref, Region, Segment
from tensorbow.specs import TensorSpec


def compile_step(
    fetches: Sequence[Tensor | Operation],
    feeds: Mapping[Tensor, TensorSpec],
    layout: VariableLayout,
    backend: Backend,
    *,
    cut_before_update: bool = False,
    guard: Tensor | None = None,
) -> Executable:
    """Compiles a step for the fed shapes.

    fetches: tensors to return, in order, and operations to run without a result.
    feeds: the spec (fully known) of each fed tensor.
    cut_before_update: make two segments, so that the second can wait for z.
    guard: a scalar tensor; while it is not finite no variable is written.

    Raises InvalidArgumentError, naming op and user line, for a step that cannot be planned.
    """
    tensors = [f for f in fetches if isinstance(f, Tensor)]
    wanted = [*tensors, *([guard] if guard is not None else [])]
    targets = [f if isinstance(f, Operation) else f.op for f in (*fetches, *wanted) if f not in feeds]
    needed = prune(targets, feeds)
    program = fold(needed, feeds, wanted, [f for f in fetches if isinstance(f, Operation)])
    if needed:
        program.notes.insert(
            0, f"pruned: {len(needed)} of the graph's {needed[0].graph.version} ops are needed"
        )
    program = protect(drop_unused(merge(drop_unused(program))), backend.kernel_kind)
    program.check_invariants()
    guarded = program.fetches.pop() if guard is not None else None
    drafts = group(program, backend, cut=cut_before_update, guard=guarded)
    units = [unit for draft in drafts for unit in draft.units]
    keys = ["status", "replica", *random_counters(units).values()]
    plan = plan_memory(program, units, layout, keys)
    check_no_overlap(units, plan)
    return assemble(program, drafts, plan, guarded is not None)


def random_counters(units: Sequence[Unit]) -> dict[str, str]:
    """STATE key of the counter of each random op, by the op's name."""
    return {n.name: f"counter:{n.name}" for unit in units for n in unit.nodes if n.definition.random}


def assemble(program: Program, drafts: Sequence[SegmentDraft], plan: MemoryPlan, guarded: bool) -> Executable:
    """The executable of a program with planned memory. guarded: writes depend on the status."""
    units = [unit for draft in drafts for unit in draft.units]
    scalars: dict[str, float] = {}
    reads_first: set[str] = set()
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
            for index in definition.writes:
                root = storage_of(node.inputs[index])
                if root.variable is None:
                    raise InvalidArgumentError(
                        f"{node.name} ({definition.name}) writes {root.name}, which is no variable "
                        f"(made at {node.source})"
                    )
                written.add(root.variable.name)
    for value in program.fetches:
        root = storage_of(value)
        if root.scalar is not None:
            scalars[root.scalar.attrs["key"]] = root.scalar.attrs["default"]
        if root.variable is not None:
            reads_first.update({root.variable.name} - written)
    segments = tuple(
        Segment(
            draft.name,
            tuple(_group(unit, plan, guarded) for unit in draft.units),
            fetches=draft is drafts[-1],
        )
        for draft in drafts
    )
    return Executable(
        segments=segments,
        region_nbytes=plan.region_nbytes,
        inputs=plan.inputs,
        fetch_sources=tuple(plan.places[v] for v in program.fetches),
        fetches=plan.fetches,
        ring_nbytes=plan.region_nbytes[Region.RING],
        state=plan.state,
        scalars=scalars,
        counters=tuple(random_counters(units)),
        constants=plan.constants,
        reads_first=frozenset(reads_first),
        writes=frozenset(written),
        peak_nbytes=plan.peak_nbytes,
        lower_bound_nbytes=plan.lower_bound_nbytes,
        notes=(*program.notes, *plan.notes),
    )


def _group(unit: Unit, plan: MemoryPlan, guarded: bool) -> Group:
    head = unit.head
    definition = head.definition
    inputs = tuple(plan.places[v] for v in unit.inputs)
    outputs = tuple(plan.places[v] for v in unit.outputs)
    scalars = [f"counter:{head.name}" if key == "counter" else key for key in definition.state]
    unknown = [key for key in scalars if key not in plan.state]
    if unknown:
        error = InvalidArgumentError(
            f"it reads {', '.join(unknown)}, which only a scheduler of replicas sets; fetch another op"
        )
        raise InvalidArgumentError(blame(definition.name, head.name, error, head.source))
    state = tuple((key, plan.state[scalar]) for key, scalar in zip(definition.state, scalars, strict=True))
    scratch = plan.scratch[unit]
    written = tuple(inputs[i] for i in definition.writes)
    status = tuple(ref for key, ref in state if key == "status")
    predicated = guarded and bool(definition.writes)
    reads: list[Ref] = [ref for i, ref in enumerate(inputs) if i not in definition.ignores]
    reads += [ref for key, ref in state if key != "status"]
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
        writes=tuple(dict.fromkeys((*outputs, *written, *scratch, *status))),
        source=head.source,
        predicated=predicated,
        note=unit.note,
    )
