"""Inputs of a replicated step: calls `input_fn`, splits its batches over replicas, checks their shapes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.array_likes import ArrayLike
from tensorbow.data import Dataset
from tensorbow.errors import AbortedError, InvalidArgumentError, OutOfRangeError, TensorBowError
from tensorbow.graph import Tensor
from tensorbow.kinds import FUNCTION, Kind, Positive, checked, one_of, with_remedy
from tensorbow.nest import flatten, leaves_like, map_leaves, named_leaves
from tensorbow.ops.constant import to_array
from tensorbow.specs import Array, TensorSpec, as_dtype, render_dims

PER_REPLICA, PER_WORKER = "per_replica", "per_worker"
REPLICATIONS = (PER_REPLICA, PER_WORKER)
CONTEXT_NAMES = ("context", "ctx", "input_context")  # optional parameters of these names get the context

Replication: TypeAlias = Annotated[str, Kind("tb.PER_REPLICA or tb.PER_WORKER", one_of(*REPLICATIONS).read)]
InputFunction: TypeAlias = Annotated[
    Callable[..., Any],
    with_remedy(Kind("a function that gives batches", FUNCTION.read), "write input_fn=lambda: ... around it"),
]
SplitFunction: TypeAlias = "Callable[[Any, int], Sequence[Any]]"


@dataclass(frozen=True)
class InputContext:
    """Argument of `input_fn`: the replica that it makes input for.

    replica_id: number of the replica; 0 with PER_WORKER. num_input_pipelines: number of calls of `input_fn`.
    num_replicas: number of replicas that run the step.
    """

    replica_id: int
    num_input_pipelines: int
    num_replicas: int

    @checked
    def per_replica_batch_size(self, global_batch_size: Positive) -> int:
        """global_batch_size / num_replicas. Raises InvalidArgumentError when it does not divide."""
        if global_batch_size % self.num_replicas:
            raise InvalidArgumentError(
                f"per_replica_batch_size: a global_batch_size of {global_batch_size} does not split over "
                f"{self.num_replicas} replicas"
            )
        return global_batch_size // self.num_replicas


class _WatchedContext(InputContext):
    """InputContext that records whether `replica_id` was read."""

    told_the_replica = False

    def __getattribute__(self, name: str) -> Any:
        if name == "replica_id":
            object.__setattr__(self, "told_the_replica", True)
        return super().__getattribute__(name)


class ReplicaInputs:
    """Iterator over the inputs of a replicated step: per round a tuple of arrays for each replica.

    `input_fn` returns an iterable of nests of arrays, or one nest of arrays that every step uses again.
    Tensors in the nest become part of the step. All replicas run the same step, so if the tensors differ
    between replicas, each replica computes all of them and selects its own.
    """

    def __init__(
        self,
        input_fn: Callable[..., Any] | None,
        replicas: int,
        replication: str = PER_REPLICA,
        split: SplitFunction | None = None,
    ):
        """Calls `input_fn` and draws the first batches, to learn their structure and shapes.

        Raises InvalidArgumentError for batches of different shapes or without examples, OutOfRangeError for
        an input without batches.
        """
        if split is not None and replication == PER_REPLICA:
            raise InvalidArgumentError("input_split_fn is for PER_WORKER; leave it out with PER_REPLICA")
        self.replicas = replicas
        self._per_worker = replication == PER_WORKER
        self._split = split if split is not None else split_leading_axis
        self._rounds = 0
        self._first: list[tuple[Array, ...]] | None = None
        # Nests that contain tensors, if input_fn returned some: one for all replicas, or one per replica.
        self.tensors: list[Any] | None = None
        self.structure: Any = None  # nest of the first batch, with specs as leaves
        self._plain: list[tuple[Any, Any]] | None = None  # (shape, dtype) per leaf of a flat tuple
        self._streams: list[Iterator[Any]] = []
        if input_fn is None:
            return
        self._hint = _hint(input_fn)
        calls = 1 if self._per_worker else replicas
        contexts = [_WatchedContext(number, calls, replicas) for number in range(calls)]
        given = _call(input_fn, contexts[0])
        if any(isinstance(leaf, Tensor) for leaf in flatten(given)):
            self.tensors = [given]
            if self._per_worker:
                self.tensors = self._parts(given)
            elif contexts[0].told_the_replica:
                self.tensors += [_call(input_fn, context) for context in contexts[1:]]
            return
        self._streams = [_stream(given), *(_stream(_call(input_fn, context)) for context in contexts[1:])]
        self._first = self._draw()

    @property
    def specs(self) -> list[TensorSpec]:
        """Specs of the leaves of one replica's batch, in order."""
        return [] if self.structure is None else flatten(self.structure)

    def __next__(self) -> list[tuple[Array, ...]]:
        """Arrays of the next round, by replica.

        Raises OutOfRangeError when an input has ended, InvalidArgumentError for a batch whose structure,
        shapes or dtypes differ from the first, AbortedError for an exception in the user's input code.
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
            nests = self._parts(nests[0])
        return [self._arrays(nest, number) for number, nest in enumerate(nests)]

    def _parts(self, nest: Any) -> list[Any]:
        parts = list(self._split(nest, self.replicas))
        if len(parts) != self.replicas:
            raise InvalidArgumentError(
                f"input_split_fn: expected {self.replicas} parts, one per replica, got {len(parts)}"
            )
        return parts

    def _take(self, number: int, stream: Iterator[Any]) -> Any:
        who = "the input" if self._per_worker else f"the input of replica {number}"
        try:
            return next(stream)
        except StopIteration:
            remedy = "" if self._rounds else "; input_fn must give one at least, to know its shape"
            raise OutOfRangeError(f"{who} has ended after {self._rounds} batches{remedy}") from None
        except TensorBowError:
            raise
        except Exception as error:
            kind = type(error).__name__
            raise AbortedError(f"{who}, batch {self._rounds}, failed: {kind}: {error}{self._hint}") from error

    def _arrays(self, nest: Any, replica: int) -> tuple[Array, ...]:
        if self.structure is None:
            self.structure = map_leaves(partial(_spec_of, replica), nest, "inputs")
            if type(nest) is tuple and all(isinstance(spec, TensorSpec) for spec in self.structure):
                self._plain = [(s.extents, np.dtype(s.dtype.as_numpy_dtype)) for s in self.structure]
        if type(nest) is tuple and self._plain is not None and len(nest) == len(self._plain):
            kinds = zip(nest, self._plain, strict=True)
            if all(type(a) is np.ndarray and (a.shape, a.dtype) == kind for a, kind in kinds):
                return nest  # fast path: a flat tuple of arrays, as in the first batch
        arrays = []
        for spec, (name, leaf) in zip(self.specs, leaves_like(self.structure, nest, "inputs"), strict=True):
            array = leaf if isinstance(leaf, np.ndarray) else to_array(leaf, None)
            same_dtype = array.dtype == spec.dtype.as_numpy_dtype
            if array.shape != spec.extents or not same_dtype:
                last = "drop or fill up a smaller last batch"
                remedy = last if same_dtype else "give all batches one dtype"
                raise InvalidArgumentError(
                    f"{name} of replica {replica}, batch {self._rounds}: expected "
                    f"{spec.dtype.name}{render_dims(spec.extents)} as in the first batch, "
                    f"got {array.dtype}{render_dims(array.shape)}; {remedy}"
                )
            arrays.append(array)
        return tuple(arrays)


def _spec_of(replica: int, name: str, leaf: Any) -> TensorSpec:
    try:
        array = to_array(leaf, None)
        spec = TensorSpec(array.shape, as_dtype(array.dtype))
    except (InvalidArgumentError, TypeError) as error:
        raise InvalidArgumentError(f"{name}: {error}") from None
    if array.ndim and not len(array):
        raise InvalidArgumentError(
            f"{name} of replica {replica}, batch 0: expected at least one example, got "
            f"{spec.dtype.name}{render_dims(array.shape)}, whose mean is NaN; leave empty batches out"
        )
    return spec


def _call(input_fn: Callable[..., Any], context: InputContext) -> Any:
    """Calls `input_fn` with the argument that its signature asks for: none, `replica_id` or the context."""
    taken = inspect.signature(input_fn).parameters
    if "replica_id" in taken and taken["replica_id"].kind != inspect.Parameter.POSITIONAL_ONLY:
        others = [name for name in _required(taken) if name != "replica_id"]
        if not others:
            return input_fn(replica_id=context.replica_id)
    names = _required(taken) or [name for name in CONTEXT_NAMES if name in taken]
    if not names:
        return input_fn()
    if len(names) > 1:
        raise InvalidArgumentError(
            f"input_fn takes nothing, `replica_id` or a context; it asks for {', '.join(names)}"
        )
    only = taken[names[0]]
    if only.kind == only.KEYWORD_ONLY:
        return input_fn(**{only.name: context})
    return input_fn(context.replica_id if only.name == "replica_id" else context)


def _hint(input_fn: Callable[..., Any]) -> str:
    """Hint for error messages if the name of `input_fn`'s parameter does not tell that it gets a context."""
    names = _required(inspect.signature(input_fn).parameters)
    if len(names) != 1 or names[0] in ("replica_id", *CONTEXT_NAMES):
        return ""
    return f" ({names[0]} is an InputContext; a parameter of the name replica_id gets the number)"


def _required(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Names of the parameters without a default."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, p in parameters.items() if p.default is p.empty and p.kind not in variadic]


def _stream(given: Any) -> Iterator[Any]:
    """Iterator over the batches of an iterable; a single nest of arrays is repeated forever."""
    if isinstance(given, Dataset):
        raise InvalidArgumentError(
            f"input_fn gave the data set {given.name!r}: expected batches of it; "
            "yield dataset.batch(rows) in a loop"
        )
    if given is None:
        raise InvalidArgumentError(
            "input_fn gave None: expected an iterable of batches, or one batch; return or yield it, "
            "or give no input_fn"
        )
    if isinstance(given, (Mapping, list, tuple, ArrayLike)) or not hasattr(given, "__iter__"):
        return _again(given)
    return iter(given)


def _again(nest: Any) -> Iterator[Any]:
    while True:
        yield nest


def split_leading_axis(nest: Any, replicas: int) -> list[Any]:
    """Splits every leaf `[replicas * batch, ...]` into `replicas` equal parts.

    Raises InvalidArgumentError, naming the leaf, if its leading axis is unknown or not divisible.
    """
    arrays: dict[str, Any] = {}
    for name, leaf in named_leaves(nest, "inputs"):
        arrays[name] = leaf if isinstance(leaf, Tensor) else to_array(leaf, None)
        shape = leaf.spec.shape if isinstance(leaf, Tensor) else arrays[name].shape
        if not shape or shape[0] is None or shape[0] % replicas:
            count = "an unknown number of" if not shape or shape[0] is None else shape[0]
            what = "a scalar does" if shape == () else f"{count} rows do"
            raise InvalidArgumentError(
                f"{name}: {what} not split over {replicas} replicas; "
                f"give a multiple of {replicas}, or an input_split_fn"
            )

    def part(number: int) -> Any:
        def cut(name: str, leaf: Any) -> Any:
            rows = int(arrays[name].shape[0]) // replicas
            return arrays[name][number * rows : (number + 1) * rows]

        return map_leaves(cut, nest, "inputs")

    return [part(number) for number in range(replicas)]
