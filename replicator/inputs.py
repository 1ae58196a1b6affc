"""Inputs of a replicated step: splits the batches of `input_fn` over replicas, checks their shapes."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from replicator.input_functions import (
    PER_WORKER,
    CalledForEachStep,
    InputCalls,
    InputOptions,
    ReplicaShare,
    failure,
    no_batch,
)
from replicator.step_inputs import StepInputs
from tensorbow.array_likes import ArrayLike, as_array
from tensorbow.data import BatchInputs, BatchRun, Dataset, ImageDataset
from tensorbow.data.drawing_ahead import DrawingAhead
from tensorbow.errors import InvalidArgumentError, OutOfRangeError, TensorBowError
from tensorbow.graph import Tensor
from tensorbow.nest import flatten, leaves_like, map_leaves, named_leaves, pack
from tensorbow.ops.constant import to_array
from tensorbow.specs import COMPILED, Array, Dims, TensorSpec, as_dtype, float32, int64, render_dims, uint8
from tensorbow.string_ops.packing import packed_strings, packed_width

MOST_DROPPED = 1000  # smaller batches in a row
FEW_ARRAYS = 8  # a list of up to 8 arrays may have been meant as the parts of one batch
SLOW_S = 2e-4  # draws that take longer, twice in a row, make the next ones come from a thread of their own
_WIDER = {"i": int64, "u": int64, "f": float32}  # by NumPy's kind, of dtypes that generated code lacks
_COMPILED = {dtype.name for dtype in COMPILED}

RoundInputs: TypeAlias = "list[tuple[Array, ...]]"
"""Arrays of one round, by replica."""


class ReplicaInputs(StepInputs):
    """Inputs of a replicated step: per round a tuple of arrays for each replica.

    `input_fn` returns an iterable of nests of arrays, as a generator or a list, a function that is called for
    the nest of each step, or one nest of arrays (a tuple, a dictionary, an array) that every step uses again.
    Tensors in the nest become part of the step. All replicas run the same step, so if the tensors differ
    between replicas, each replica computes all of them and selects its own. Where drawing takes long, a
    thread draws the next inputs while the step runs.
    """

    def __init__(
        self,
        calls: InputCalls | None,
        options: InputOptions,
        share: ReplicaShare,
    ):
        """Draws the first batches, to learn their structure and shapes.

        calls: of `input_fn`; None if there is none. Raises InvalidArgumentError for batches of different
        shapes or without examples, OutOfRangeError for an input without batches.
        """
        self.replicas, self._first_replica = share.count, share.first
        self._per_worker = options.replication == PER_WORKER
        self._split = options.split if options.split is not None else split_leading_axis
        self._smaller_batch, self._prefetch = options.smaller_batch, options.prefetch
        self.compiles_smaller = options.smaller_batch == "compile"
        self._ahead: DrawingAhead | None = None
        self._slow_draws = 0  # in a row
        self._one_at_a_time = threading.RLock()
        self._dropped = 0  # rounds in a row
        self.taken = 0  # rounds
        self._rounds = 0  # drawn
        self._drawn: list[tuple[int, ...]] | None = None  # shapes of the first batch as it was drawn
        self._first: RoundInputs | None = None
        self._waiting: deque[RoundInputs] = deque()  # given back, or too small for a launch: copied
        self._error: Exception | None = None  # of the draw after the waiting ones
        self._plain: list[tuple[Any, Any]] | None = None  # (shape, dtype) per leaf of a flat tuple
        self._streams: list[Iterator[Any]] = []
        if calls is None:
            return
        self._hint = calls.hint
        given = calls[0]
        if isinstance(given, CalledForEachStep) and _has_tensors(given.first):
            given = given.first
        if not isinstance(given, CalledForEachStep) and _has_tensors(given):
            self.tensors = [given]
            if self._per_worker:
                self.tensors = self._parts(given)
            elif calls.told_the_replica:
                others = (calls[number] for number in range(1, self.replicas))
                self.tensors += [
                    each.first if isinstance(each, CalledForEachStep) else each for each in others
                ]
            return
        if _may_be_one_batch(given):
            self.hint = (
                f"; input_fn gave a list, which is {len(given)} batches; for one batch of {len(given)} parts "
                "give a tuple"
            )
        self._streams = [self._stream(calls[number], number) for number in range(len(calls))]
        self._first = self._timed_draw()
        is_drawn = isinstance(given, (Dataset, Iterator)) and not isinstance(given, CalledForEachStep)
        if is_drawn and not calls.told_the_replica:
            self.are_equal = len(calls) > 1 and _are_equal(self._first)

    @property
    def round_nbytes(self) -> int:
        """See StepInputs.round_nbytes."""
        return sum(spec.nbytes for spec in self.specs) * self.replicas

    def declared_shape(self, spec: TensorSpec) -> Dims:
        """Shape of a leaf in the step: the number of examples is None if it may be smaller."""
        return (None, *spec.extents[1:]) if self._may_be_smaller(spec) else spec.extents

    def _may_be_smaller(self, spec: TensorSpec) -> bool:
        """True for leaves with as many rows as the first that has rows, with smaller_batch='compile'."""
        rows = next((each.extents[0] for each in self.specs if each.extents), None)
        return self.compiles_smaller and spec.extents[:1] == (rows,)

    @property
    def why_one_by_one(self) -> str:
        """See StepInputs.why_one_by_one."""
        if any(isinstance(stream, CalledForEachStep) for stream in self._streams):
            return "input_fn gives a function that is called for each step"
        return "prefetch=0, or two steps that draw from one iterator" if not self._prefetch else ""

    def take(self, most: int, ahead: int = 1, keeps: bool = False) -> list[RoundInputs]:
        """See StepInputs.take."""
        with self._one_at_a_time:
            if self._ahead is not None:
                self._ahead.allow(max(1, min(self._prefetch * most, ahead)))
            rounds: list[RoundInputs] = []
            try:
                while len(rounds) < most:
                    batch = self._next(keeps or most > 1)
                    if rounds and self.compiles_smaller and _shapes_of(batch) != _shapes_of(rounds[0]):
                        self._waiting.appendleft(batch)
                        break
                    rounds.append(batch)
            except Exception as error:
                if not rounds:
                    raise
                self._error = error
            except BaseException:
                self._waiting.extendleft(reversed(rounds))
                raise
            self.taken += len(rounds)
            return rounds

    def joined(self, rounds: Sequence[RoundInputs]) -> Sequence[BatchInputs | BatchRun]:
        """See StepInputs.joined."""
        return rounds[0] if len(rounds) == 1 else [BatchRun(batches) for batches in zip(*rounds, strict=True)]

    def give_back(self, rounds: Sequence[RoundInputs], error: Exception | None = None) -> None:
        """See StepInputs.give_back."""
        with self._one_at_a_time:
            self._error = error or self._error
            self._waiting.extendleft(reversed(rounds))
            self.taken -= len(rounds)

    def skip_to(self, taken: int) -> None:
        """See StepInputs.skip_to."""
        if all(isinstance(stream, itertools.repeat) for stream in self._streams):
            self.taken = taken
        if self.taken > taken:
            raise InvalidArgumentError(
                f"the inputs are further on than those of the file, {self.taken} rounds and not {taken}, and "
                "cannot go back; restore before the first step, in a new Replicator"
            )
        while self.taken < taken:
            self.take(1)

    def _next(self, is_kept: bool) -> RoundInputs:
        """The next round; a copy if it is kept while others are drawn, since user code may reuse arrays."""
        if self._waiting:
            return self._waiting.popleft()
        error, self._error = self._error, None
        if error is not None:
            raise error
        if self._ahead is not None and self._ahead.is_used_up:
            self._ahead = None
        if self._ahead is not None:
            drawn: RoundInputs = self._ahead.take()
            return drawn
        batch, self._first = self._first, None
        if batch is None:
            batch = self._timed_draw()
        draws_ahead = self._slow_draws > 1 and self._prefetch and self._streams
        if is_kept or draws_ahead:
            batch = _copied(batch)
        if draws_ahead:
            self._ahead = DrawingAhead(
                weakref.WeakMethod(self._draw_copy), self._prefetch, "replicator inputs"
            )
            weakref.finalize(self, self._ahead.stop).atexit = False
        return batch

    def close(self) -> None:
        """See StepInputs.close."""
        if self._ahead is not None:
            self._ahead.close()

    def draw_here_if_shared(self, other: StepInputs) -> None:
        """See StepInputs.draw_here_if_shared."""
        if not isinstance(other, ReplicaInputs):
            return
        if not {id(stream) for stream in self._streams}.isdisjoint(id(stream) for stream in other._streams):
            for inputs in (self, other):
                inputs._prefetch = 0
                inputs.close()

    def _timed_draw(self) -> RoundInputs:
        began = perf_counter()
        drawn = self._draw()
        self._slow_draws = self._slow_draws + 1 if perf_counter() - began > SLOW_S else 0
        return drawn

    def _draw_copy(self) -> RoundInputs:
        """Draws a round while the last one is in use: copied, since the user's code may reuse its arrays."""
        return _copied(self._draw())

    def _draw(self) -> RoundInputs:
        """Draws the inputs of a round, and drops rounds with a smaller batch if that is asked for."""
        while True:
            batch = self._draw_round()
            if batch is not None:
                self._dropped = 0
                return batch
            self._dropped += 1
            if self._dropped == MOST_DROPPED:
                raise InvalidArgumentError(
                    f"smaller_batch='drop': {MOST_DROPPED} batches in a row are smaller than the first; "
                    "give the first batch its usual size"
                )

    def _draw_round(self) -> RoundInputs | None:
        """Inputs of the next round; None for one that is dropped."""
        if not self._streams:
            return [()] * self.replicas
        nests = [self._take(number, stream) for number, stream in enumerate(self._streams)]
        if self._smaller_batch in ("drop", "pad"):
            nests = [self._fitted(nest) for nest in nests]
            if any(nest is None for nest in nests):
                self._rounds += 1
                return None
        if self._per_worker:
            nests = self._parts(nests[0])
        batch = [self._arrays(nest, number) for number, nest in enumerate(nests, self._first_replica)]
        if self.compiles_smaller:
            self._require_equal(batch)
        self._rounds += 1
        return batch

    def _fitted(self, nest: Any) -> Any:
        """A batch with as many examples as the first one; None for a smaller one that is to be dropped."""
        if self._drawn is None:
            self._drawn = [np.shape(leaf) for leaf in flatten(nest)]
            return nest
        leaves: list[Any] = []
        counts = set[int]()  # of examples in leaves that are smaller
        for shape, leaf in zip(self._drawn, flatten(nest), strict=False):
            given = np.shape(leaf)
            if not given or not shape or given[1:] != shape[1:] or given[0] >= shape[0]:
                leaves.append(leaf)
            elif self._smaller_batch == "drop" or not given[0]:
                return None
            else:
                counts.add(given[0])
                leaves.append(np.take(_read(leaf), np.arange(shape[0]) % given[0], 0))
        if len(counts) > 1:
            raise InvalidArgumentError(
                f"smaller_batch='pad': expected the same number of examples in all parts of batch "
                f"{self._rounds}, got {' and '.join(map(str, sorted(counts)))}"
            )
        return pack(nest, iter(leaves)) if len(leaves) == len(flatten(nest)) else nest

    def _require_equal(self, batch: RoundInputs) -> None:
        """Raises InvalidArgumentError unless all parts of a batch have one number of examples."""
        named = named_leaves(self.structure, "inputs")
        for index, (name, spec) in enumerate(named):
            counts = [len(arrays[index]) for arrays in batch] if self._may_be_smaller(spec) else []
            expected = next(len(a) for a, s in zip(batch[0], self.specs, strict=True) if s.extents)
            for replica, count in enumerate(counts, self._first_replica):
                if count != expected:
                    raise InvalidArgumentError(
                        f"smaller_batch='compile': {name} of replica {replica}, batch {self._rounds}: "
                        f"expected {expected} examples as in the other parts and replicas, got {count}"
                    )

    def _parts(self, nest: Any) -> list[Any]:
        try:
            parts = list(self._split(nest, self.replicas))
        except TensorBowError:
            raise
        except Exception as error:
            raise failure(error, f"input_split_fn, batch {self._rounds},", self._hint) from error
        if len(parts) != self.replicas:
            raise InvalidArgumentError(
                f"input_split_fn: expected {self.replicas} parts, one per replica, got {len(parts)}"
            )
        return parts

    def _take(self, number: int, stream: Iterator[Any]) -> Any:
        try:
            return next(stream)
        except StopIteration:
            raise self._end(number) from None
        except TensorBowError:
            raise
        except Exception as error:
            raise failure(error, f"the input{self._of(number)}, batch {self._rounds},", self._hint) from error

    def _stream(self, given: Any, number: int) -> Iterator[Any]:
        try:
            return _stream(given)
        except TensorBowError:
            raise
        except Exception as error:
            raise failure(error, f"the iterator of input_fn{self._of(number)}", self._hint) from error

    def _of(self, number: int) -> str:
        return "" if self._per_worker else f" of replica {self._first_replica + number}"

    def _end(self, number: int) -> OutOfRangeError:
        """The error for an input that has ended. Finds out whether another replica's goes on."""
        if not self._rounds:
            return no_batch(self._of(number))
        text = f"the input{self._of(number)} has ended after {self._rounds} batches{self.hint}"
        for other, stream in enumerate(self._streams):
            with suppress(Exception):
                if other < number or (other > number and next(stream, None) is not None):
                    self.ended_early = True
                    return OutOfRangeError(f"{text}, while that{self._of(other)} goes on")
        return OutOfRangeError(text)

    def _arrays(self, nest: Any, replica: int) -> tuple[Array, ...]:
        if self.structure is None:
            self.structure = map_leaves(partial(_spec_of, replica), nest, "inputs")
            named = named_leaves(nest, "inputs")
            self.packed = frozenset(name for name, leaf in named if _read(leaf).dtype == object)
            if type(nest) is tuple and all(isinstance(spec, TensorSpec) for spec in self.structure):
                self._plain = [(s.extents, np.dtype(s.dtype.as_numpy_dtype)) for s in self.structure]
        if type(nest) is tuple and self._plain is not None and len(nest) == len(self._plain):
            kinds = zip(nest, self._plain, strict=True)
            if all(type(a) is np.ndarray and (a.shape, a.dtype) == kind for a, kind in kinds):
                return nest  # fast path: a flat tuple of arrays, as in the first batch
        arrays = []
        for spec, (name, leaf) in zip(self.specs, leaves_like(self.structure, nest, "inputs"), strict=True):
            dtype = spec.dtype.as_numpy_dtype
            array = leaf if isinstance(leaf, np.ndarray) and leaf.dtype == dtype else _read(leaf)
            if name in self.packed and array.dtype == object:
                array = self._packed(array, spec, f"{name} of replica {replica}, batch {self._rounds}")
            same_dtype = array.dtype == dtype
            if not (array.shape == spec.extents or self._is_smaller(array, spec)) or not same_dtype:
                remedy = "give all batches one " + (
                    "shape, as by padded_batch with fixed extents" if same_dtype else "dtype"
                )
                if same_dtype and array.shape[1:] == spec.extents[1:] and array.shape < spec.extents:
                    remedy = "for a smaller last batch give smaller_batch='drop', 'pad' or 'compile'"
                raise InvalidArgumentError(
                    f"{name} of replica {replica}, batch {self._rounds}: expected "
                    f"{spec.dtype.name}{render_dims(spec.extents)} as in the first batch, "
                    f"got {array.dtype}{render_dims(array.shape)}{self.hint or f'; {remedy}'}"
                )
            arrays.append(array)
        return tuple(arrays)

    @staticmethod
    def _packed(strings: Array, spec: TensorSpec, label: str) -> Array:
        try:
            return packed_strings(strings, spec.extents[-1])
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{label}: {error}; put a longer one into the first batch") from None

    def _is_smaller(self, array: Array, spec: TensorSpec) -> bool:
        """True for a part of a smaller batch, for which the step is compiled."""
        is_part = self._may_be_smaller(spec) and array.ndim and array.shape[1:] == spec.extents[1:]
        return bool(is_part and 0 < len(array) < spec.extents[0])


def _read(leaf: Any) -> Array:
    """Array of a leaf. As in data sets, integers of other widths become int64, float16 float32."""
    if not isinstance(leaf, ArrayLike):
        return to_array(leaf, None)
    array = as_array(leaf)
    wider = None if array.dtype.name in _COMPILED else _WIDER.get(array.dtype.kind)
    return to_array(array, wider)


def _copied(batch: RoundInputs) -> RoundInputs:
    return [tuple(np.array(array) for array in arrays) for arrays in batch]


def _are_equal(batch: RoundInputs) -> bool:
    first, *others = batch
    return all(np.array_equal(one, its) for other in others for one, its in zip(first, other, strict=True))


def _shapes_of(batch: RoundInputs) -> list[tuple[int, ...]]:
    return [array.shape for array in batch[0]]


def _has_tensors(nest: Any) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in flatten(nest))


def _may_be_one_batch(given: Any) -> bool:
    """True for a short list of arrays: as a list it is one of batches, as a tuple it would be one batch."""
    is_short = isinstance(given, list) and 1 < len(given) <= FEW_ARRAYS
    return is_short and all(isinstance(each, ArrayLike) for each in given) and all(map(np.ndim, given))


def _spec_of(replica: int, name: str, leaf: Any) -> TensorSpec:
    try:
        array = _read(leaf)
        spec = TensorSpec(array.shape, as_dtype(array.dtype))
    except (InvalidArgumentError, TypeError) as error:
        raise InvalidArgumentError(f"{name}: {error}") from None
    if spec.dtype.is_string and not array.ndim:
        raise InvalidArgumentError(
            f"{name} of replica {replica}: expected numbers, or an array of strings, got one string"
        )
    if spec.dtype.is_string:
        spec = TensorSpec((*array.shape, packed_width(array)), uint8)
    if array.ndim and not len(array):
        raise InvalidArgumentError(
            f"{name} of replica {replica}, batch 0: expected at least one example, got "
            f"{spec.dtype.name}{render_dims(array.shape)}, whose mean is NaN; leave empty batches out"
        )
    return spec


def _stream(given: Any) -> Iterator[Any]:
    """Iterator over the batches of an iterable; a single nest of arrays is repeated forever.

    A list of arrays, tuples or dictionaries is one of batches; a list of numbers is an array.
    """
    if isinstance(given, ImageDataset):
        raise InvalidArgumentError(
            f"input_fn gave the data set {given.name!r}: expected batches of it; give "
            "tb.DatasetBatches(dataset, batch_size, replicas, seed), or yield dataset.batch(rows) in a loop"
        )
    if given is None:
        raise InvalidArgumentError(
            "input_fn gave None: expected an iterable of batches, or one batch; return or yield it, "
            "or give no input_fn"
        )
    if isinstance(given, list) and (not given or not all(map(np.isscalar, flatten(given)))):
        return iter(given)
    if isinstance(given, (Mapping, list, tuple, ArrayLike)):
        return itertools.repeat(given)
    if hasattr(given, "__getitem__") and hasattr(given, "__len__") and not hasattr(given, "__iter__"):
        return (given[number] for number in range(len(given)))
    return iter(given) if hasattr(given, "__iter__") else itertools.repeat(given)


def split_leading_axis(nest: Any, replicas: int) -> list[Any]:
    """Splits every leaf `[replicas * batch, ...]` into `replicas` equal parts.

    Raises InvalidArgumentError, naming the leaf, if its leading axis is unknown or not divisible.
    """
    arrays: dict[str, Any] = {}
    for name, leaf in named_leaves(nest, "inputs"):
        arrays[name] = leaf if isinstance(leaf, Tensor) else _read(leaf)
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
