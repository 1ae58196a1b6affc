"""Work that the replicas of a step share: each does its part of the rows (TF-Replicator, section 3.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replicator.tracing import current_trace, replica_id
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor
from tensorbow.kinds import Function, Name, checked
from tensorbow.nest import map_leaves
from tensorbow.ops import gather, reshape
from tensorbow.ops.collectives import HowReduced, all_gather, all_reduce


@checked
def map_reduce(function: Function, value: Any, op: HowReduced = "sum", name: Name = None) -> Any:
    """Applies a function to a nest of rows, a part of them on each replica, and reduces the results.

    value: nest of tensors `[rows, ...]`, equal on all replicas; the rows must divide among the replicas.
    function: gets a nest of this replica's rows `[rows / replicas, ...]`, called once; returns a nest.
    op: see `tb.all_reduce`. The result is equal on all replicas. Differentiable, also in what `function`
    reads besides: each replica's gradient is that of its part.
    Raises FailedPreconditionError outside of a step, InvalidArgumentError for rows that do not divide.
    """
    return all_reduce(_on_own_part("map_reduce", function, value), op, name)


@checked
def map_gather(function: Function, value: Any, name: Name = None) -> Any:
    """Applies a function to a nest of rows, a part of them on each replica, and joins the results' rows.

    As `map_reduce`, but the results `[n, ...]` of all replicas are joined in order: `[replicas * n, ...]`.
    """
    count = current_trace("map_gather").replicas
    results = _on_own_part("map_gather", function, value)

    def joined(path: str, rows: Any) -> Tensor:
        shape = rows.spec.shape
        if not shape or None in shape:
            raise InvalidArgumentError(
                f"{path}: expected rows of a known shape from the function of map_gather, got {rows.spec}"
            )
        return reshape(all_gather(rows, name), [count * shape[0], *shape[1:]])

    return map_leaves(joined, map_leaves(lambda _, leaf: as_tensor(leaf), results, "result"), "result")


def _on_own_part(what: str, function: Callable[[Any], Any], value: Any) -> Any:
    """Result of a function of this replica's rows."""
    count = current_trace(what).replicas

    def own(path: str, leaf: Any) -> Tensor:
        rows = as_tensor(leaf)
        shape = rows.spec.shape
        if not shape or shape[0] is None or shape[0] % count:
            raise InvalidArgumentError(
                f"{what}: expected rows that divide among {count} replicas in {path}, got {rows.spec}"
            )
        inner = [-1 if extent is None else extent for extent in shape[1:]]
        return gather(reshape(rows, [count, shape[0] // count, *inner]), replica_id())

    return function(map_leaves(own, value, "value"))
