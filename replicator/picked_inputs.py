"""Inputs of a replicated step from a `tb.data.Dataset` of arrays in memory: devices pick rows by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from replicator.dataset_inputs import DatasetInputs
from replicator.host_session import HostSession, is_host_input
from replicator.input_functions import (
    PER_REPLICA,
    PER_WORKER,
    CalledForEachStep,
    InputCalls,
    InputOptions,
    ReplicaShare,
)
from replicator.inputs import ReplicaInputs, RoundInputs
from replicator.step_inputs import StepInputs
from scheduler import DatasetBatches
from tensorbow.data import ArrayRows, BatchInputs, BatchKey, BatchRun, Dataset, LaunchRecipes, RoundRecipes
from tensorbow.errors import InvalidArgumentError
from tensorbow.nest import flatten, named_leaves, pack
from tensorbow.program import DATA
from tensorbow.specs import COMPILED, Array

KEPT_DTYPES = [np.dtype(dtype.as_numpy_dtype) for dtype in COMPILED]
NO_KEY = BatchKey(0, 0, 0)  # rows are not augmented


def inputs_of(options: InputOptions, share: ReplicaShare, host: HostSession | None = None) -> StepInputs:
    """Inputs of a step; calls `input_fn`. Raises as `ReplicaInputs` and `DatasetInputs`.

    host: draws what queues and readers make, which is otherwise part of the step.
    """
    if options.split is not None and options.replication == PER_REPLICA:
        raise InvalidArgumentError("input_split_fn is for PER_WORKER; leave it out with PER_REPLICA")
    if options.input_fn is None:
        return ReplicaInputs(None, options, share)
    calls = InputCalls(options.input_fn, options.replication == PER_WORKER, share)
    if isinstance(calls[0], DatasetBatches):
        return DatasetInputs(calls, options, share)
    if host is not None:
        _draw_by(host, calls)
    source = None
    if isinstance(calls[0], Dataset) and options.split is None and options.smaller_batch != "compile":
        source = _source_of([calls[number] for number in range(len(calls))])
    return (
        ReplicaInputs(calls, options, share)
        if source is None
        else PickedInputs(calls, options, share, source)
    )


def _draw_by(host: HostSession, calls: InputCalls) -> None:
    """Replaces tensors of queues and readers by their values, drawn by a session.

    Replicas whose number `input_fn` does not ask for draw from one input in turn.
    """
    given = _tensors(calls[0])
    if is_host_input(given):
        calls[0] = drawn = host.drawn(given)
        for number in range(1, len(calls)):
            calls[number] = host.drawn(_tensors(calls[number])) if calls.told_the_replica else drawn


def _tensors(given: Any) -> Any:
    return given.first if isinstance(given, CalledForEachStep) else given


def _source_of(given: Sequence[Any]) -> Any:
    """The nest of arrays whose rows all data sets batch, if devices can keep them; otherwise None."""
    rows = [each.row_batches() if isinstance(each, Dataset) else None for each in given]
    sources = [[*named_leaves(each[0], "inputs")] for each in rows if each is not None]
    if len(sources) < len(given) or len(sources[0]) > len(DATA):
        return None
    for name_and_array, *others in zip(*sources, strict=False):
        if any(name != name_and_array[0] or not _is_same(array, name_and_array[1]) for name, array in others):
            return None
        array = name_and_array[1]
        if not array.size or not array.dtype.isnative or array.dtype not in KEPT_DTYPES:
            return None
    return rows[0][0] if rows[0] is not None and len({len(each) for each in sources}) == 1 else None


def _is_same(one: Array, other: Array) -> bool:
    """True for views of the same memory."""
    return one is other or one.__array_interface__ == other.__array_interface__


class PickedInputs(StepInputs):
    """Rows of arrays in memory, whose numbers pipelines give: recipes, of which devices make batches."""

    def __init__(self, calls: InputCalls, options: InputOptions, share: ReplicaShare, source: Any):
        """calls: each gives a `Dataset` that batches rows of `source`, a nest of arrays.

        Raises as `ReplicaInputs`.
        """
        for number in range(len(calls)):
            calls[number] = calls[number].row_batches()[1]
        self._numbers = ReplicaInputs(calls, options, share)
        self.are_equal = self._numbers.are_equal
        self.dataset = self._rows = ArrayRows(flatten(source))
        self.data_on_device = options.data_on_device
        (numbers,) = self._numbers.specs
        self.structure = pack(source, iter(self._rows.batch_specs(numbers.extents[0])))

    @property
    def taken(self) -> int:  # type: ignore[override]
        """Rounds taken."""
        return self._numbers.taken

    @property
    def ended_early(self) -> bool:  # type: ignore[override]
        """True if one replica's input has ended, and another's has not."""
        return self._numbers.ended_early

    @property
    def round_nbytes(self) -> int:
        """See StepInputs.round_nbytes."""
        return self._numbers.round_nbytes

    @property
    def why_one_by_one(self) -> str:
        """See StepInputs.why_one_by_one."""
        return self._numbers.why_one_by_one

    def take(self, most: int, ahead: int = 1, keeps: bool = False) -> list[RoundInputs]:
        """See StepInputs.take: numbers of rows."""
        return self._numbers.take(most, ahead, keeps)

    def joined(self, rounds: Sequence[RoundInputs]) -> Sequence[BatchInputs | BatchRun]:
        """See StepInputs.joined."""
        picks = np.array([[numbers for (numbers,) in by_replica] for by_replica in rounds], np.int64)
        recipes = RoundRecipes(self._rows, picks, lambda *where: NO_KEY)
        return LaunchRecipes(recipes, 0 if len(rounds) == 1 else None)

    def give_back(self, rounds: Sequence[RoundInputs], error: Exception | None = None) -> None:
        """See StepInputs.give_back."""
        self._numbers.give_back(rounds, error)

    def skip_to(self, taken: int) -> None:
        """See StepInputs.skip_to."""
        self._numbers.skip_to(taken)

    def draw_here_if_shared(self, other: StepInputs) -> None:
        """Does nothing: each step iterates a data set from its beginning."""

    def close(self) -> None:
        """See StepInputs.close."""
        self._numbers.close()
