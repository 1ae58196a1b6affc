"""Collectives: functions that combine one value of each replica of a step (TF-Replicator, 2019, section 3.4).

They may be called anywhere in a step: in the forward pass, between gradient and update, behind the update.
Each takes a nest (a tensor, or mappings, lists, tuples and data classes of tensors) with the same structure,
shapes and dtypes on every replica, and returns a nest like it. All are differentiable. Tensors that are ready
together are exchanged together. In a step of one replica, as a plain session runs it, there is one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Annotated, Any
from weakref import WeakSet

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import Graph, Tensor, as_tensor, get_default_graph, name_scope
from tensorbow.kinds import Name, checked, one_of, whole
from tensorbow.nest import flatten, map_leaves
from tensorbow.ops.arrays import reshape
from tensorbow.ops.elementwise import divide
from tensorbow.ops.exchanges import AllGather, AllSum, Broadcast
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.ops.reductions import reduce_max, reduce_min, reduce_prod

__all__ = ["all_gather", "all_reduce", "all_sum", "broadcast"]

OUTSIDE = 0  # number of replicas where there is no step
_replicas: ContextVar[int | None] = ContextVar("replicas", default=None)
_around_steps: WeakSet[Graph] = WeakSet()  # graphs that run whole steps, and in which there is no replica
_OF_GATHERED = {"max": reduce_max, "min": reduce_min, "prod": reduce_prod}

HowReduced = Annotated[str, one_of("sum", "mean", *_OF_GATHERED)]


@contextmanager
def known_replicas(count: int) -> Iterator[None]:
    """Context of building a step for a known number of replicas, so that all_gather's shape is known."""
    token = _replicas.set(count)
    try:
        yield
    finally:
        _replicas.reset(token)


@contextmanager
def outside_steps() -> Iterator[None]:
    """Context in which collectives are refused: of a Replicator's graph, but not in a step."""
    with known_replicas(OUTSIDE) if _replicas.get() is None else nullcontext():
        yield


def refuse_around_steps(graph: Graph) -> None:
    """Has collectives refused in a graph around steps, in which results of all replicas are there already."""
    _around_steps.add(graph)


@checked
def all_reduce(value: Any, op: HowReduced = "sum", name: Name = None) -> Any:
    """Reduces each tensor of a nest over all replicas, element by element; the result is equal on all.

    op: sum, mean (of floating tensors), max, min or prod. Sums are taken in a fixed order, so that the bits
    are the same run after run. The gradient of the sum is the sum of the gradients. IndexedSlices are summed
    or averaged by joining the rows of all replicas.
    Raises InvalidArgumentError for a dtype that the reduction does not take, naming the leaf.
    """
    return _mapped("all_reduce", lambda leaf, given: _reduced(leaf, op, given), value, name)


@checked
def all_sum(value: Any, name: Name = None) -> Any:
    """Sums each tensor of a nest over all replicas, see `all_reduce`; the gradient is the gradients' sum."""
    return _mapped("all_sum", lambda leaf, given: _reduced(leaf, "sum", given), value, name)


@checked
def all_gather(value: Any, name: Name = None) -> Any:
    """Stacks the values of all replicas, for each tensor of a nest: `[replicas, *shape]`, equal on all.

    Gradient: the sum of the gradients, at the replica's own row. The first axis is unknown until the step is
    compiled, but in the step_fn of a Replicator.
    """
    return _mapped("all_gather", _gathered, value, name)


@checked
def broadcast(value: Any, source: Annotated[int, whole(0)] = 0, name: Name = None) -> Any:
    """The values of replica `source` on all replicas, for each tensor of a nest.

    Gradient: the sum of the gradients at `source`, 0 elsewhere. Raises InvalidArgumentError for a source that
    is not there, at the latest when the step is compiled.
    """
    count = _replicas.get()
    if count is not None and source >= count:
        raise InvalidArgumentError(
            f"broadcast: expected a source from 0 to {count - 1}, for {count} replicas, got {source}"
        )
    return _mapped("broadcast", lambda leaf, given: Broadcast(leaf, source=source, name=given), value, name)


def _mapped(what: str, function: Callable[[Any, str | None], Any], value: Any, name: str | None) -> Any:
    """Applies a function to the leaves of a nest; a list or tuple of numbers alone is one tensor."""
    replicas = _replicas.get()
    if replicas == OUTSIDE or (replicas is None and get_default_graph() in _around_steps):
        raise FailedPreconditionError(
            f"{what} is for use inside a step: call it in the step_fn that is given to replicator.run; "
            "results of run have all replicas' values, which replicator.reduce_mean and reduce_sum combine"
        )
    leaves = flatten(value)
    plain = leaves and not any(
        isinstance(leaf, (Tensor, IndexedSlices)) or hasattr(leaf, "dtype") for leaf in leaves
    )
    if plain and isinstance(value, (int, float, list, tuple)):
        return function(as_tensor(value), name)
    if len(leaves) == 1 and leaves[0] is value:
        return function(value, name)

    def of_leaf(path: str, leaf: Any) -> Any:
        try:
            return function(leaf, None)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{path}: {error}") from error

    with name_scope(name, what):
        return map_leaves(of_leaf, value, what)


def _reduced(value: Any, op: str, name: str | None) -> Any:
    if isinstance(value, IndexedSlices):
        return _joined_rows(value, op, name)
    if op in _OF_GATHERED:
        return _OF_GATHERED[op](_gathered(value, None), 0, name=name)
    if op == "sum":
        return AllSum(value, name=name)
    tensor = as_tensor(value)
    if not tensor.dtype.is_floating:
        raise InvalidArgumentError(
            f"all_reduce: expected floating numbers for a mean, got {tensor.spec}; use tb.cast"
        )
    return divide(AllSum(tensor), _count(tensor), name=name)


def _count(like: Tensor) -> Tensor:
    """Number of replicas, as a scalar of a tensor's dtype."""
    known = _replicas.get()
    with like.graph.as_default():
        count: Tensor = AllSum(as_tensor(1, like.dtype)) if known is None else as_tensor(known, like.dtype)
    return count


def _gathered(value: Any, name: str | None) -> Tensor:
    result: Tensor = AllGather(value, name=name)
    count = _replicas.get()
    if count is not None and result.spec.shape is not None:
        result.set_shape((count, *result.spec.shape[1:]))
    return result


def _joined_rows(slices: IndexedSlices, op: str, name: str | None) -> IndexedSlices:
    """The sum or mean of sparse rows: those of all replicas, one after the other; equal indices add up."""
    if op not in ("sum", "mean"):
        raise InvalidArgumentError(
            f"all_reduce: expected sum or mean for IndexedSlices, got {op}; use tb.convert_to_tensor"
        )
    with slices.graph.as_default(), name_scope(name, "all_reduce"):
        values, indices = (_gathered(each, None) for each in (slices.values, slices.indices))
        shape = slices.values.spec.shape
        inner = None if shape is None else shape[1:]
        if inner is None or None in inner:
            raise InvalidArgumentError(
                f"all_reduce: expected IndexedSlices with rows of a known shape, got {slices.values.spec}"
            )
        rows = reshape(values, [-1, *inner])
        if op == "mean":
            rows = divide(rows, _count(rows))
        return IndexedSlices(rows, reshape(indices, [-1]), slices.dense_shape)
