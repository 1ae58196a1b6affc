"""A step that no plan can run, compiled for replicas: a part of the dynamic executor, and a planned one.

The executor leaves gradients where a planned step has them, and hands the loss and reported values over as
inputs, so that everything behind them (checks, exchanges, updates, averaging) is what a planned step has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scheduler.averaging.synchronisers import Synchroniser
from scheduler.replicas.dynamic.crossing_specs import crossing_specs, inferred_specs
from scheduler.replicas.dynamic.division import Division, divide
from scheduler.replicas.dynamic.executor_part import ExecutorPart
from scheduler.replicas.dynamic.handed_values import gradients_in_place
from tensorbow.compiler import Binding, NeedsDynamicModeError, VariableLayout, compile_step
from tensorbow.compiler.prune import prune
from tensorbow.executor import DynamicPlan
from tensorbow.graph import Operation, Resources, Tensor
from tensorbow.program import Backend, Executable
from tensorbow.specs import TensorSpec


@dataclass(frozen=True, eq=False, kw_only=True)
class DividedExecutable(Executable):
    """The planned part of a step, and the part that the dynamic executor runs before it.

    part: of the executor. planned: the planned part as it was compiled.
    `counters`, `scalars`, `reads_first` and `writes` are those of both parts; `inputs` has what the executor
    hands over, and the inputs that the planned part reads itself.
    """

    part: ExecutorPart
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
    needed = prune([*(tensor.op for tensor in fetches), *operations], feeds)
    never_planned: set[Operation] = set()
    reason = error.why or str(error)
    while True:
        division = divide(needed, feeds, fetches, operations, never_planned)
        known = inferred_specs(division.dynamic, feeds)
        handed = sorted({*division.crossing, *division.results}, key=lambda each: (each.op.id, each.index))
        crossing = crossing_specs(handed, division.planned, known)
        gradients = gradients_in_place(division.planned, crossing, layout)
        try:
            planned = compile_step(
                [*fetches, *(op for op in operations if op in division.planned)],
                {**_read_by(division, fetches, feeds), **crossing},
                layout,
                backend,
                rewriting=lambda step: synchroniser.rewrite(step, layout, replicas),
                guard=loss,
                replicas=replicas,
                within=division.planned,
                copied=[tensor for tensor in division.crossing if tensor not in gradients],
                placed=gradients,
            )
        except NeedsDynamicModeError as late:
            if late.op is None or late.op in never_planned:
                raise
            never_planned.add(late.op)
            continue
        break
    part = ExecutorPart(
        _dynamic_plan(division, crossing, feeds, reason),
        division.dynamic,
        dict(feeds),
        crossing,
        gradients,
        known,
        layout,
        backend,
        resources,
    )
    own = {field: getattr(planned, field) for field in planned.__dataclass_fields__}
    made = DividedExecutable(**own, part=part, planned=planned)
    return replace(
        made,
        counters=tuple(dict.fromkeys((*planned.counters, *part.counters))),
        scalars={**part.scalars, **planned.scalars},
        reads_first=planned.reads_first | part.reads,
        writes=planned.writes | part.writes,
        notes=(f"dynamic: {reason}", *planned.notes),
    )


def _read_by(
    division: Division, fetches: Sequence[Tensor], feeds: Mapping[Tensor, TensorSpec]
) -> dict[Tensor, TensorSpec]:
    """The inputs of the step that its planned part reads."""
    read = {tensor for op in division.planned for tensor in op.inputs} | set(fetches)
    return {tensor: spec for tensor, spec in feeds.items() if tensor in read}


def _dynamic_plan(
    division: Division,
    crossing: Mapping[Tensor, TensorSpec],
    feeds: Mapping[Tensor, TensorSpec],
    reason: str,
) -> DynamicPlan:
    elements: list[Tensor | Operation] = [*crossing, *division.targets]
    wanted = [each if isinstance(each, Operation) else each.op for each in elements]
    needed = prune(wanted, feeds, frozenset(division.dynamic))
    return DynamicPlan(elements, feeds, needed, reason, repeats_reads=True)
