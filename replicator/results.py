"""Results of a step outside of it: the replicas' own values, their sum and mean, and what variables give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from replicator.tracing import is_tracing
from tensorbow.compiler.prune import prune
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import Graph, Operation, Tensor
from tensorbow.kinds import refuse
from tensorbow.nest import flatten, map_leaves, named_leaves, pack
from tensorbow.ops import reduce_mean, reduce_sum, unstack
from tensorbow.ops.control import Placeholder
from tensorbow.ops.exchanges import ReplicaId
from tensorbow.ops.state import VariableReference
from tensorbow.runtime import Session
from tensorbow.specs import NUMERIC, Array, as_dtype
from tensorbow.variables import Variable

ArrayReduction = Callable[..., Any]
REDUCTIONS: Mapping[str, tuple[ArrayReduction, ArrayReduction]] = {
    "reduce_sum": (reduce_sum, np.sum),
    "reduce_mean": (reduce_mean, np.mean),
}  # of tensors, of arrays


class ReplicaResults:
    """Results `[replicas, ...]` of the steps of one replicator, and variables of its graph.

    rows: gives a variable's value in each replica, by name.
    """

    def __init__(self, graph: Graph, replicas: int, rows: Callable[[str], Sequence[Array]]):
        self._graph, self._replicas, self._rows = graph, replicas, rows

    def local(self, value: Any) -> tuple[Any, ...]:
        """See `Replicator.local_results`."""
        leaves = [self._parts(name, leaf) for name, leaf in named_leaves(value, "value")]
        return tuple(pack(value, (parts[number] for parts in leaves)) for number in range(self._replicas))

    def _parts(self, name: str, leaf: Any) -> Sequence[Any]:
        if leaf is None or isinstance(leaf, Operation):
            return [leaf] * self._replicas
        stacked = self._stacked("local_results", name, leaf)
        return unstack(stacked) if isinstance(stacked, Tensor) else [*stacked]

    def reduced(self, what: str, value: Any, axis: int | None) -> Any:
        """See `Replicator.reduce_mean` and `Replicator.reduce_sum`; what: the name of one of them."""
        return map_leaves(lambda name, leaf: self._reduced(what, name, leaf, axis), value, "value")

    def _reduced(self, what: str, name: str, leaf: Any, axis: int | None) -> Any:
        if leaf is None or isinstance(leaf, Operation):
            return leaf
        stacked = self._stacked(what, name, leaf)
        of_tensors, of_arrays = REDUCTIONS[what]
        dtype = stacked.dtype if isinstance(stacked, Tensor) else as_dtype(stacked.dtype)
        if not dtype.is_floating if what == "reduce_mean" else dtype not in NUMERIC:
            raise InvalidArgumentError(
                f"{what}: expected {'floating ' if what == 'reduce_mean' else ''}numbers in {name}, got "
                f"{dtype.name}; cast it in the step by tb.cast"
            )
        rank = len(stacked.shape) - 1
        if axis is not None and axis >= rank:
            raise InvalidArgumentError(
                f"{what}: expected an axis below {rank}, the rank of a replica's {name}, got {axis}; leave "
                "it out"
            )
        axes = 0 if axis is None else (0, axis + 1)
        if isinstance(stacked, Tensor):
            return of_tensors(stacked, axes)
        return of_arrays(stacked, axes, dtype=stacked.dtype)

    def _stacked(self, what: str, name: str, leaf: Any) -> Tensor | Array:
        """A leaf as a tensor or array `[replicas, ...]`. Raises for what is not there for each replica."""
        require_outside(what)
        if isinstance(leaf, Variable):
            if leaf.graph is not self._graph:
                raise refuse(what, name, "a variable of this replicator's graph", leaf)
            return np.stack(self._rows(leaf.op.name))
        if isinstance(leaf, Tensor) and leaf.graph is self._graph:
            raise InvalidArgumentError(
                f"{what}: {leaf.name} is a tensor of the step; return it from step_fn, and give the result"
            )
        value = leaf if isinstance(leaf, Tensor) else np.asarray(leaf)
        dims = value.spec.shape if isinstance(value, Tensor) else value.shape
        if not dims or dims[0] != self._replicas:
            raise refuse(
                what, name, f"a result of run or train, [{self._replicas}, ...], or a variable", leaf
            )
        return value


def read_outside(
    structure: Any, graph: Graph, values: Callable[[], Mapping[str, Array]], independent: bool
) -> Any:
    """See `Replicator.read`.

    values: gives the values of the step graph's variables by name. independent: True for several replicas
    without a central model.
    """
    require_outside("read")
    leaves = flatten(structure)
    for leaf in leaves:
        if not isinstance(leaf, (Variable, Tensor)) or leaf.graph is not graph:
            expected = "variables and tensors of this replicator's steps"
            raise refuse("read", "values", expected, leaf, "results of run are read by session.run")
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    operations = prune([leaf.op for leaf in leaves], ())
    for op in operations:
        _require_no_step(op)
    variables = [op for op in operations if op.definition is VariableReference]
    found = values()
    for op in variables:
        _require_value(op, found, independent)
    computed = iter(())
    if tensors:
        with Session(graph=graph) as session:
            session.load_variables({op.name: found[op.name] for op in variables})
            computed = iter(session.run(tensors))

    def read(leaf: Any) -> Any:
        return next(computed) if isinstance(leaf, Tensor) else found[leaf.op.name][()]

    return pack(structure, (read(leaf) for leaf in leaves))


def _require_value(variable: Operation, found: Mapping[str, Array], independent: bool) -> None:
    """Raises InvalidArgumentError for a variable without a value outside of a step."""
    if variable.name not in found:
        why = "an optimiser's slot" if variable.attrs["role"] == "slots" else "made after init()"
        raise InvalidArgumentError(
            f"read: {variable.name} is {why}; replica_values(i, slots=True) has "
            "slots, and init() takes new variables"
        )
    if independent and variable.attrs["role"] == "weights":
        raise InvalidArgumentError(
            f"read: {variable.name} has no value of all replicas: they are independent with sync 'none'; "
            "use local_results or replica_values"
        )


def _require_no_step(op: Operation) -> None:
    """Raises InvalidArgumentError for an operation that has a meaning only in a step."""
    why = ""
    if op.definition is Placeholder:
        why = "an input of the step"
    elif op.definition.exchange or op.definition is ReplicaId:
        why = "known only in the step, where replicas meet"
    elif op.definition.writes:
        why = "a write of a variable"
    if why:
        raise InvalidArgumentError(
            f"read: {op.definition.name} {op.name} is {why}; return what depends on it from step_fn (made at "
            f"{op.source})"
        )


def require_outside(what: str) -> None:
    """Raises FailedPreconditionError while a step is being traced."""
    if is_tracing():
        raise FailedPreconditionError(
            f"{what} is for use outside of steps; in step_fn, tb.all_reduce and tb.all_gather join replicas"
        )
