"""Division of a step that no plan can run: what the dynamic executor runs, and what stays planned.

Exchanges and writes of variables stay planned, with all that depends on them: averaging and updates are the
calls that a planned step has. Everything else, the forward and the backward pass, is the dynamic part, less
large gradients that are products of smaller factors: the factors cross, and updates multiply them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tensorbow.compiler.wholes import chains_of, wholes_in
from tensorbow.errors import InvalidArgumentError
from tensorbow.executor.units import IN_PLANS, partners_among
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.ops.matmul import MatMul
from tensorbow.ops.state import VariableReference
from tensorbow.specs import TensorSpec


@dataclass(frozen=True)
class Division:
    """The two parts of a step.

    dynamic: ops of the executor, in program order. planned: those of the plan. crossing: tensors that the
    executor makes and the plan reads, each once. results: those that the executor makes and the step fetches.
    targets: ops of the executor that run though nothing reads their results.
    """

    dynamic: tuple[Operation, ...]
    planned: frozenset[Operation]
    crossing: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    targets: tuple[Operation, ...]


def needs_executor(op: Operation) -> bool:
    """True for an op that no plan has, whatever the shapes: a function of the host, or strings."""
    return op.has_strings or (op.definition.host is not None and op.definition not in IN_PLANS)


def divide(
    needed: Sequence[Operation],
    fed: Collection[Tensor],
    fetched: Sequence[Tensor],
    targets: Collection[Operation],
    never_planned: Collection[Operation],
    known: Mapping[Tensor, TensorSpec] | None = None,
) -> Division:
    """Divides the pruned ops of a step, in program order.

    fed: its inputs. targets: ops to run without a result. never_planned: ops that cannot be planned, beside
    those of the host. known: specs of what ops make; with them, a product that planned ops alone read is
    planned, too, where its factors are smaller.

    Raises InvalidArgumentError for an op of the host that needs an exchange, or a weight that the step has
    written, before it: replicas would have to meet inside of what the executor runs.
    """
    ops = [op for op in needed if not is_free(op) and not any(tensor in fed for tensor in op.outputs)]
    graph = _Dependencies(ops)
    first = {op for op in ops if op in never_planned or needs_executor(op)}
    early = graph.closure(first, graph.needs)
    for op in ops:
        if op in early and (op.definition.exchange or _writes_weights(op)):
            raise _refusal(op, graph.reached(op, graph.needed_by, first))
    starts = {op for op in ops if op not in early and (op.definition.exchange or _written(op))}
    planned = graph.closure(starts, graph.needed_by)
    if known is not None:
        kept = {*early, *targets, *(tensor.op for tensor in fetched)}
        planned |= {
            op
            for op in ops
            if op not in kept and graph.needed_by[op] <= planned and _is_large_product(op, known)
        }
    dynamic = tuple(op for op in ops if op not in planned)
    made = {tensor for op in dynamic for tensor in op.outputs}
    read = dict.fromkeys(tensor for op in ops if op in planned for tensor in op.inputs if tensor in made)
    awaited = {control for op in planned for control in op.control_inputs}
    return Division(
        dynamic,
        frozenset(planned),
        tuple(read),
        tuple(dict.fromkeys(tensor for tensor in fetched if tensor in made)),
        tuple(op for op in dynamic if op in targets or op in awaited),
    )


def shows_order(ops: Sequence[Operation]) -> Operation | None:
    """An op of the host whose effects or inputs depend on the order of replicas; None without one."""
    for op in ops:
        definition = op.definition
        takes = definition.asynchronous or (definition.changes and op.attrs[definition.changes] is not None)
        if needs_executor(op) and (definition.stateful or definition.random or takes):
            return op
    return None


class _Dependencies:
    """Ops that each op waits for: of its inputs and control inputs, and earlier users of its variables.

    A loop or cond is one thing, with all that is in it, and so are a stack, or a TensorArray, and all who use
    it: what one op of it needs, all need.
    """

    def __init__(self, ops: Sequence[Operation]):
        included = set(ops)
        self.needs: dict[Operation, set[Operation]] = {op: set() for op in ops}
        self.needed_by: dict[Operation, set[Operation]] = {op: set() for op in ops}
        wholes = wholes_in(ops)
        chains = chains_of(ops, wholes)
        partners = partners_among(ops)
        members: dict[object, list[Operation]] = {}
        for op in ops:
            for key in chains[op][:1]:
                members.setdefault(key, []).append(op)
        for group in (*members.values(), *partners.values()):
            for op, following in zip(group, [*group[1:], group[0]], strict=True):
                self._add(op, following)
        readers: dict[Operation, list[Operation]] = {}
        writers: dict[Operation, list[Operation]] = {}
        for op in ops:
            for other in (*(tensor.op for tensor in op.inputs), *op.control_inputs):
                if other in included:
                    self._add(op, other)
            written = _written(op)
            for index, tensor in enumerate(op.inputs):
                variable = _variable_of(tensor)
                if variable is None:
                    continue
                for other in writers.get(variable, ()):
                    self._add(op, other)
                if variable in written:
                    for other in readers.get(variable, ()):
                        self._add(op, other)
                into = writers if index in op.definition.writes else readers
                into.setdefault(variable, []).append(op)

    def _add(self, op: Operation, needed: Operation) -> None:
        if op is not needed:
            self.needs[op].add(needed)
            self.needed_by[needed].add(op)

    @staticmethod
    def closure(ops: Collection[Operation], edges: dict[Operation, set[Operation]]) -> set[Operation]:
        """The ops, and all that the edges lead to."""
        found, pending = set(ops), list(ops)
        while pending:
            for other in edges[pending.pop()]:
                if other not in found:
                    found.add(other)
                    pending.append(other)
        return found

    def reached(
        self, op: Operation, edges: dict[Operation, set[Operation]], among: Collection[Operation]
    ) -> Operation:
        """The first op of `among`, in program order, that the edges lead to."""
        return min(self.closure([op], edges) & set(among), key=lambda each: each.id)


def _variable_of(tensor: Tensor) -> Operation | None:
    """The variable whose reference a tensor is, itself or handed on by the op that wrote it."""
    while tensor.op.definition is not VariableReference:
        source = dict(tensor.op.definition.alias).get(tensor.index)
        if source is None or source not in tensor.op.definition.writes:
            return None
        tensor = tensor.op.inputs[source]
    return tensor.op


def _is_large_product(op: Operation, known: Mapping[Tensor, TensorSpec]) -> bool:
    """True for a product outside of loops and branches, of known shapes, that is larger than its factors."""
    specs = [known.get(tensor, tensor.spec) for tensor in (*op.inputs, *op.outputs)]
    if op.definition is not MatMul or op.context is not None or not all(spec.is_static for spec in specs):
        return False
    *factors, product = (prod(spec.extents) for spec in specs)
    return sum(factors) < product


def _written(op: Operation) -> list[Operation]:
    """The variables that an op writes."""
    found = [_variable_of(op.inputs[index]) for index in op.definition.writes]
    return [variable for variable in found if variable is not None]


def _writes_weights(op: Operation) -> bool:
    return any(variable.attrs["role"] == "weights" for variable in _written(op))


def _refusal(op: Operation, host: Operation) -> InvalidArgumentError:
    """The error of an op that the dynamic part would need, and that must be planned."""
    what = "is an exchange, in which replicas meet" if op.definition.exchange else "writes a weight"
    remedy = (
        "exchange what comes after it, such as a loss or gradients"
        if op.definition.exchange
        else "compute it from what was there before the update, or fetch it in a run of its own"
    )
    return InvalidArgumentError(
        f"{host.type} {host.name}: a step of replicas runs it by the dynamic executor, before replicas meet "
        f"and before weights are written, but it needs {op.type} {op.name} (made at {op.source}), which "
        f"{what}; {remedy} (made at {host.source})"
    )
