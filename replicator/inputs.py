"""What `input_fn` gives: batches for every replica, checked against the first."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from replicator.nests import leaves_like, map_leaves, named_leaves
from tensorbow.errors import InvalidArgumentError, OutOfRangeError
from tensorbow.graph import Tensor
from tensorbow.ops.constant import to_array
from tensorbow.runtime.nest import flatten
from tensorbow.specs import Array, TensorSpec, as_dtype, render_dims

PER_REPLICA, PER_WORKER = "per_replica", "per_worker"
REPLICATIONS = (PER_REPLICA, PER_WORKER)

SplitFunction: TypeAlias = "Callable[[Any, int], Sequence[Any]]"


@dataclass(frozen=True)
class InputContext:
    """For whom an `input_fn` is called.

    replica_id: the replica, or 0 with PER_WORKER, where one input serves all. num_input_pipelines: how often
    `input_fn` is called. num_replicas: over how many replicas a step goes.
    """

    replica_id: int
    num_input_pipelines: int
    num_replicas: int

    def per_replica_batch_size(self, global_batch_size: int) -> int:
        """global_batch_size / num_replicas. Raises InvalidArgumentError when it does not divide."""
        if global_batch_size % self.num_replicas:
            raise InvalidArgumentError(
                f"a global batch of {global_batch_size} does not split over {self.num_replicas} replicas"
            )
        return global_batch_size // self.num_replicas


class ReplicaInputs:
    """The inputs of a replicated step: per round a tuple of arrays for each replica.

    What `input_fn` returns is an iterable of nests of arrays, or one nest of arrays that every step takes
    anew. Tensors among it are built once, into the step itself.
    """

    def __init__(
        self,
        input_fn: Callable[..., Any] | None,
        replicas: int,
        replication: str = PER_REPLICA,
        split: SplitFunction | None = None,
    ):
        """Calls `input_fn` and draws the first batches, to know their structure.

        Raises InvalidArgumentError for batches that do not fit one another, OutOfRangeError for none.
        """
        if replication not in REPLICATIONS:
            raise InvalidArgumentError(
                f"input_replication: expected PER_REPLICA or PER_WORKER, got {replication!r:.60}"
            )
        if split is not None and replication == PER_REPLICA:
            raise InvalidArgumentError("input_split_fn is for PER_WORKER; leave it out with PER_REPLICA")
        self.replicas = replicas
        self._per_worker = replication == PER_WORKER
        self._split = split if split is not None else split_leading_axis
        self._rounds = 0
        self._first: list[tuple[Array, ...]] | None = None
        self.tensors: Any = None  # the nest, when it is made of tensors
        self.structure: Any = None  # the first batch's nest, its leaves replaced by their specs
        self._streams: list[Iterator[Any]] = []
        if input_fn is None:
            return
        calls = 1 if self._per_worker else replicas
        for number in range(calls):
            given = _call(input_fn, InputContext(number, calls, replicas))
            if any(isinstance(leaf, Tensor) for leaf in flatten(given)):
                self.tensors = given
                self._streams = []
                return
            self._streams.append(_stream(given))
        self._first = self._draw()

    @property
    def specs(self) -> list[TensorSpec]:
        """The specs of a replica's leaves, in order."""
        return [] if self.structure is None else flatten(self.structure)

    def __next__(self) -> list[tuple[Array, ...]]:
        """The next round's arrays by replica.

        Raises OutOfRangeError when an input has ended, InvalidArgumentError for a batch unlike the first.
        """
        first, self._first = self._first, None
        batch = first if first is not None else self._draw()
        self._rounds += 1
        return batch

    def _draw(self) -> list[tuple[Array, ...]]:
        if not self._streams:
            return [()] * self.replicas
        nests = [self._take(number, stream) for number, stream in enumerate(self._streams)]
        if self._per_worker:
            parts = list(self._split(nests[0], self.replicas))
            if len(parts) != self.replicas:
                raise InvalidArgumentError(
                    f"input_split_fn: expected {self.replicas} parts, one per replica, got {len(parts)}"
                )
            nests = parts
        return [self._arrays(nest, number) for number, nest in enumerate(nests)]

    def _take(self, number: int, stream: Iterator[Any]) -> Any:
        try:
            return next(stream)
        except StopIteration:
            who = "the input" if self._per_worker else f"the input of replica {number}"
            raise OutOfRangeError(f"{who} has ended after {self._rounds} batches") from None

    def _arrays(self, nest: Any, replica: int) -> tuple[Array, ...]:
        if self.structure is None:
            self.structure = map_leaves(_spec_of, nest, "inputs")
        arrays = []
        for spec, (name, leaf) in zip(self.specs, leaves_like(self.structure, nest, "inputs"), strict=True):
            array = leaf if isinstance(leaf, np.ndarray) else to_array(leaf, None)
            if array.shape != spec.extents or array.dtype != spec.dtype.as_numpy_dtype:
                raise InvalidArgumentError(
                    f"{name} of replica {replica}, batch {self._rounds}: expected "
                    f"{spec.dtype.name}{render_dims(spec.extents)} as in the first batch, "
                    f"got {array.dtype}{render_dims(array.shape)}; drop or fill up a smaller last batch"
                )
            arrays.append(array)
        return tuple(arrays)


def _spec_of(name: str, leaf: Any) -> TensorSpec:
    try:
        array = to_array(leaf, None)
        return TensorSpec(array.shape, as_dtype(array.dtype))
    except (InvalidArgumentError, TypeError) as error:
        raise InvalidArgumentError(f"{name}: {error}") from None


def _call(input_fn: Callable[..., Any], context: InputContext) -> Any:
    """Calls it with what it takes: nothing, `replica_id`, or the context."""
    parameters = [
        p
        for p in inspect.signature(input_fn).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    if not parameters:
        return input_fn()
    if len(parameters) > 1:
        names = ", ".join(p.name for p in parameters)
        raise InvalidArgumentError(f"input_fn takes nothing, `replica_id` or a context; it asks for {names}")
    return input_fn(context.replica_id if parameters[0].name == "replica_id" else context)


def _stream(given: Any) -> Iterator[Any]:
    """The batches of an iterable; a nest of arrays again and again."""
    if isinstance(given, (Mapping, list, tuple, np.ndarray)) or not hasattr(given, "__iter__"):
        return _again(given)
    return iter(given)


def _again(nest: Any) -> Iterator[Any]:
    while True:
        yield nest


def split_leading_axis(nest: Any, replicas: int) -> list[Any]:
    """Cuts every leaf `[replicas * batch, ...]` into `replicas` equal parts.

    Raises InvalidArgumentError naming the leaf and both numbers where it does not divide.
    """
    arrays = {name: to_array(leaf, None) for name, leaf in named_leaves(nest, "inputs")}
    for name, array in arrays.items():
        if not array.ndim or array.shape[0] % replicas:
            what = f"{array.shape[0]} rows do" if array.ndim else "a scalar does"
            raise InvalidArgumentError(
                f"{name}: {what} not split over {replicas} replicas; "
                f"give a multiple of {replicas}, or an input_split_fn"
            )

    def part(number: int) -> Any:
        def cut(name: str, leaf: Any) -> Array:
            rows = len(arrays[name]) // replicas
            return arrays[name][number * rows : (number + 1) * rows]

        return map_leaves(cut, nest, "inputs")

    return [part(number) for number in range(replicas)]
