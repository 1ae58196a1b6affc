"""The part of a step that the dynamic executor runs, for all replicas of a kind of device."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from scheduler.replicas.dynamic.division import shows_order
from scheduler.replicas.dynamic.handed_rows import HandedRows
from scheduler.replicas.dynamic.handed_values import homes_of
from tensorbow.errors import InvalidArgumentError
from tensorbow.executor import DynamicPlan, StaticRegion
from tensorbow.executor.effects import is_slow
from tensorbow.graph import Operation, Resources, Tensor
from tensorbow.ops.control import StepScalar
from tensorbow.ops.state import VariableReference
from tensorbow.program import Ref
from tensorbow.specs import Array, TensorSpec, render_dims

CompiledRegion = TypeVar("CompiledRegion")
CompileRegion: TypeAlias = "Callable[[StaticRegion, Sequence[Array], Mapping[Tensor, Ref]], CompiledRegion]"
COMPILED = 64  # regions kept, by shapes of their inputs; the least recently used one is dropped first


class ExecutorPart(Generic[CompiledRegion]):
    """Ops of a step, divided for the dynamic executor, and its compiled regions, which replicas share."""

    def __init__(
        self,
        plan: DynamicPlan,
        ops: Sequence[Operation],
        inputs: Mapping[Tensor, TensorSpec],
        crossing: Mapping[Tensor, TensorSpec],
        gradients: Mapping[Tensor, Ref],
        known: Mapping[Tensor, TensorSpec],
        compile_region: CompileRegion[CompiledRegion],
        resources: Resources,
        rows: Sequence[HandedRows] = (),
    ):
        """inputs: of the whole step, in the order of a batch. crossing: what it makes for the planned part.
        gradients: those of `crossing` that the planned part reads in GRADIENTS. known: specs of what `ops`
        make. compile_region: compiles a region for inputs, with memory of some tensors (see `compile_step`).
        resources: objects that its ops share with those of other replicas, such as queues. rows: gradients of
        `crossing` that have any number of rows.

        homes: memory of values that regions make or read in place, where the host addresses it: of gradients,
        and in HANDED, of which `handed_nbytes` are needed.
        """
        self.plan = plan
        self.inputs = inputs
        self.crossing = crossing
        self.gradients = gradients
        self.resources = resources
        place = {element: index for index, element in enumerate(plan.elements)}
        self._rows = [(each, place[each.values], place[each.indices]) for each in rows]
        self.homes, self.handed_nbytes = homes_of(plan, frozenset(ops), crossing, gradients, known)
        self._compile_region = compile_region
        self.counters = tuple(op.name for op in ops if op.definition.random)
        scalars = [op for op in _with_inputs(ops) if op.definition is StepScalar]
        self.scalars: dict[str, float] = {op.attrs["key"]: op.attrs["default"] for op in scalars}
        self.reads, self.writes = _variables_of(ops)
        self.ordered_by = shows_order(ops)  # an op because of which replicas run one after the other
        self.may_wait = any(map(is_slow, ops))  # then replicas run side by side, as they may wait for another
        self._compiled: OrderedDict[object, CompiledRegion] = OrderedDict()
        self._lock = threading.Lock()  # guards the field above

    @property
    def reason(self) -> str:
        """Reason why the step is not planned, with the op."""
        return self.plan.reason

    def compiled(
        self, region: StaticRegion, arrays: Sequence[Array], in_place: Collection[Tensor] | None
    ) -> CompiledRegion:
        """A region's step for inputs of these shapes. Raises as `compile_step`; thread-safe.

        in_place: inputs that lie in their homes; None if nothing has a home.
        """
        key = (region, region.key(arrays), in_place)
        with self._lock:
            found = self._compiled.get(key)
            if found is None:
                homes = self.homes if in_place is not None else {}
                placed = {t: homes[t] for t in (*(in_place or ()), *region.outputs) if t in homes}
                found = self._compiled[key] = self._compile_region(region, arrays, placed)
            self._compiled.move_to_end(key)
            while len(self._compiled) > COMPILED:
                self._compiled.popitem(last=False)
            return found

    def filled(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values of the plan's elements, with gradients by rows as the planned part was compiled for."""
        if not self._rows:
            return values
        filled = [*values]
        for each, rows, indices in self._rows:
            filled[rows], filled[indices] = each.filled(values[rows], values[indices])
        return filled

    def require_shape(self, tensor: Tensor, value: Array) -> None:
        """Raises InvalidArgumentError for a value that the planned part was not compiled for."""
        spec = self.crossing[tensor]
        if value.shape != spec.shape:
            raise InvalidArgumentError(
                f"{tensor.op.type} {tensor.name}: expected shape {render_dims(spec.extents)}, for which the "
                f"update was compiled, got {render_dims(value.shape)}; replicas report, exchange and "
                f"update by the same shapes in all steps (made at {tensor.op.source})"
            )


def _with_inputs(ops: Sequence[Operation]) -> list[Operation]:
    """The ops, and those whose results they read, each once."""
    return list(dict.fromkeys(each for op in ops for each in (op, *(tensor.op for tensor in op.inputs))))


def _variables_of(ops: Sequence[Operation]) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the variables that ops read, and of those that they write."""
    reads, writes = set[str](), set[str]()
    for op in ops:
        for index, tensor in enumerate(op.inputs):
            if tensor.op.definition is VariableReference:
                if index in op.definition.writes:
                    writes.add(tensor.op.name)
                if index not in op.definition.ignores and tensor.op.name not in writes:
                    reads.add(tensor.op.name)
    return frozenset(reads), frozenset(writes)
