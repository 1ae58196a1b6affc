"""A step that no plan can run, compiled for replicas: a part of the dynamic executor, and a planned one.

The executor leaves gradients where a planned step has them, and hands the loss and reported values over as
inputs, so that everything behind them (checks, exchanges, updates, averaging) is what a planned step has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from scheduler.averaging.synchronisers import Synchroniser
from scheduler.replicas.dynamic.crossing_specs import crossing_specs, inferred_specs
from scheduler.replicas.dynamic.division import Division, divide
from scheduler.replicas.dynamic.executor_part import CompiledRegion, CompileRegion, ExecutorPart
from scheduler.replicas.dynamic.handed_rows import HandedRows, handed_rows
from scheduler.replicas.dynamic.handed_values import gradients_in_place
from tensorbow.compiler import Binding, NeedsDynamicModeError, VariableLayout, compile_step
from tensorbow.compiler.prune import prune
from tensorbow.executor import DynamicPlan, StaticRegion
from tensorbow.graph import Operation, Resources, Tensor
from tensorbow.program import Backend, Executable, Ref
from tensorbow.specs import Array, TensorSpec

Planned = TypeVar("Planned")


@dataclass(frozen=True, eq=False, kw_only=True)
class DividedExecutable(Executable):
    """The planned part of a step, and the part that the dynamic executor runs before it.

    part: of the executor. planned: the planned part as it was compiled.
    `counters`, `scalars`, `reads_first` and `writes` are those of both parts; `inputs` has what the executor
    hands over, and the inputs that the planned part reads itself.
    """

    part: ExecutorPart[Executable]
    planned: Executable

    def for_device(self, first: int, count: int) -> Executable:
        """See Executable: what runs once per device is planned."""
        return self.planned.for_device(first, count)


class DividedBinding(Binding):
    """The planned part of a divided step with its memory; it keeps the step scalars of both parts."""

    def write(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """See Binding.write; those that the executor alone reads are only kept."""
        known = self.executable.state
        self.plan.write(inputs, {key: value for key, value in state.items() if key in known})
        self.scalars.update(state)


def compile_divided(
    fetches: Sequence[Tensor],
    operations: Sequence[Operation],
    feeds: Mapping[Tensor, TensorSpec],
    layout: VariableLayout,
    backend: Backend,
    synchroniser: Synchroniser,
    *,
    loss: Tensor | None,
    replicas: int,
    resources: Resources,
    error: NeedsDynamicModeError,
) -> DividedExecutable:
    """Divides and compiles a step that cannot be planned, for the fed shapes.

    operations: to run without a result. resources: see ExecutorPart. error: why it cannot be planned.

    Raises InvalidArgumentError for a step that cannot be divided (`divide`, `crossing_specs`).
    """

    def planned_part(found: Divided) -> Executable:
        return compile_step(
            [*fetches, *found.targets],
            found.inputs,
            layout,
            backend,
            rewriting=lambda step: synchroniser.rewrite(step, layout, replicas),
            guard=loss,
            replicas=replicas,
            within=found.division.planned,
            copied=[tensor for tensor in found.division.crossing if tensor not in found.gradients],
            placed=found.gradients,
        )

    def compile_region(
        region: StaticRegion, arrays: Sequence[Array], placed: Mapping[Tensor, Ref]
    ) -> Executable:
        return compile_step(
            region.elements, region.feeds(arrays), layout, backend, within=region.within, placed=placed
        )

    found, planned = divide_and_compile(fetches, operations, feeds, layout, planned_part)
    part = found.executor_part(error.why or str(error), compile_region, resources)
    own = {field: getattr(planned, field) for field in planned.__dataclass_fields__}
    made = DividedExecutable(**own, part=part, planned=planned)
    return replace(
        made,
        counters=tuple(dict.fromkeys((*planned.counters, *part.counters))),
        scalars={**part.scalars, **planned.scalars},
        reads_first=planned.reads_first | part.reads,
        writes=planned.writes | part.writes,
        notes=(f"dynamic: {part.reason}", *planned.notes),
    )


@dataclass(frozen=True)
class Divided:
    """A division of a step whose shapes are known.

    feeds: the inputs of the step. inputs: those of its planned part, of which the executor makes `crossing`.
    targets: ops that the planned part runs without a result. gradients: crossing tensors that lie in
    GRADIENTS. known, rows: see ExecutorPart.
    """

    division: Division
    feeds: Mapping[Tensor, TensorSpec]
    inputs: Mapping[Tensor, TensorSpec]
    targets: Sequence[Operation]
    crossing: Mapping[Tensor, TensorSpec]
    gradients: Mapping[Tensor, Ref]
    known: Mapping[Tensor, TensorSpec]
    rows: Sequence[HandedRows]

    def executor_part(
        self, reason: str, compile_region: CompileRegion[CompiledRegion], resources: Resources
    ) -> ExecutorPart[CompiledRegion]:
        """The part that the executor runs. Arguments: see ExecutorPart, and DynamicPlan for the reason."""
        division = self.division
        elements: list[Tensor | Operation] = [*self.crossing, *division.targets]
        wanted = [each if isinstance(each, Operation) else each.op for each in elements]
        needed = prune(wanted, self.feeds, frozenset(division.dynamic))
        plan = DynamicPlan(elements, self.feeds, needed, reason, repeats_reads=True)
        return ExecutorPart(
            plan,
            division.dynamic,
            dict(self.feeds),
            self.crossing,
            self.gradients,
            self.known,
            compile_region,
            resources,
            self.rows,
        )


def divide_and_compile(
    fetches: Sequence[Tensor],
    operations: Sequence[Operation],
    feeds: Mapping[Tensor, TensorSpec],
    layout: VariableLayout | None,
    compile_planned: Callable[[Divided], Planned],
) -> tuple[Divided, Planned]:
    """Divides a step, and compiles its planned part; what that cannot have goes to the executor.

    layout: where gradients lie that the planned part reads in place; None where none do.
    """
    needed = prune([*(tensor.op for tensor in fetches), *operations], feeds)
    never_planned: set[Operation] = set()
    known = inferred_specs(needed, feeds)
    while True:
        products = None if layout is None else known
        division = divide(needed, feeds, fetches, operations, never_planned, products)
        handed = sorted({*division.crossing, *division.results}, key=lambda each: (each.op.id, each.index))
        rows = _rows_of(division, known)
        shapes = {tensor: shape for each in rows for tensor, shape in each.shapes.items()}
        crossing = crossing_specs(handed, division.planned, known, shapes)
        found = Divided(
            division,
            feeds,
            {**_read_by(division, fetches, feeds), **crossing},
            [op for op in operations if op in division.planned],
            crossing,
            {} if layout is None else gradients_in_place(division.planned, crossing, layout),
            known,
            rows,
        )
        try:
            return found, compile_planned(found)
        except NeedsDynamicModeError as late:
            if late.op is None or late.op in never_planned:
                raise
            never_planned.add(late.op)


def _rows_of(division: Division, known: Mapping[Tensor, TensorSpec]) -> list[HandedRows]:
    """The gradients by rows whose number no run knows before it."""
    found = handed_rows(division.crossing, division.results, division.planned)
    specs = [[known.get(t, t.spec) for t in (each.values, each.indices)] for each in found]
    return [each for each, own in zip(found, specs, strict=True) if not all(spec.is_static for spec in own)]


def _read_by(
    division: Division, fetches: Sequence[Tensor], feeds: Mapping[Tensor, TensorSpec]
) -> dict[Tensor, TensorSpec]:
    """The inputs of the step that its planned part reads."""
    read = {tensor for op in division.planned for tensor in op.inputs} | set(fetches)
    return {tensor: spec for tensor, spec in feeds.items() if tensor in read}
