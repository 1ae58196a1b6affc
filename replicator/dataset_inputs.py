"""Inputs of a replicated step from a data set that devices can keep: batches are made of positions in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Protocol, TypeAlias

import numpy as np

from replicator.input_functions import PER_WORKER, InputCalls, InputOptions, ReplicaShare
from replicator.step_inputs import StepInputs
from scheduler import DatasetBatches, LearningEngine
from scheduler.batches.keep_on_devices import ON_DEVICE, keep_on_devices
from tensorbow.data import BatchInputs, BatchKey, BatchRun, LaunchRecipes, RoundRecipes
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import one_of

OnDevice: TypeAlias = Annotated[str, one_of(*ON_DEVICE)]


class DatasetInputs(StepInputs):
    """Batches of a `DatasetBatches` for all replicas, or of one for each replica, from the first round on.

    They are known for every round: each is a recipe, of which a device makes the batch.
    """

    def __init__(self, calls: InputCalls, options: InputOptions, share: ReplicaShare):
        """calls: each gives a `DatasetBatches`. Raises InvalidArgumentError for sources that do not fit."""
        if options.smaller_batch != "error" or options.split is not None:
            raise InvalidArgumentError(
                "input_fn gave a DatasetBatches, whose batches are all whole and each of a replica: leave "
                "smaller_batch and input_split_fn out"
            )
        first: DatasetBatches = calls[0]
        self._share, for_all = share, first.replicas == share.total
        self._sources = [first] if for_all else [calls[i] for i in range(len(calls))]
        self._require_fitting(options.replication == PER_WORKER, share.total if for_all else share.count)
        self.dataset, self.data_on_device = first.dataset, options.data_on_device
        size = first.order.batch_size
        self.structure = tuple(first.dataset.batch_specs(size))
        picks = [source.recipes(range(1)).picks_drawn_to(0) for source in self._sources]
        self.are_equal = len(picks) > 1 and all(np.array_equal(picks[0], own) for own in picks[1:])

    def _require_fitting(self, per_worker: bool, replicas: int) -> None:
        first, *others = self._sources
        counts = [getattr(source, "replicas", source) for source in self._sources]
        if counts != [replicas] and (per_worker or counts != [1] * replicas):
            own = "" if per_worker else ", or for one replica each"
            shown = " and ".join(dict.fromkeys(f"{count!r:.60}" for count in counts))
            raise InvalidArgumentError(
                f"input_fn gave a DatasetBatches: expected one for {replicas} replicas{own}, got {shown}; "
                "make it with replicas=replicator.num_replicas"
            )
        number = self._share.first
        for replica, other in enumerate(others, 1):
            if other.dataset is not first.dataset or other.order.batch_size != first.order.batch_size:
                raise InvalidArgumentError(
                    f"input_fn: expected the same data set and batch_size for all replicas, got "
                    f"{other.dataset.name} of {other.order.batch_size} for replica {number + replica} and "
                    f"{first.dataset.name} of {first.order.batch_size} for replica {number}"
                )

    def take(self, most: int, ahead: int = 1, keeps: bool = False) -> list[int]:
        """See StepInputs.take: numbers of rounds."""
        rounds = range(self.taken, self.taken + most)
        self.taken = rounds.stop
        return [*rounds]

    def joined(self, rounds: Sequence[Any]) -> Sequence[BatchInputs | BatchRun]:
        """See StepInputs.joined."""
        recipes = self._recipes(range(rounds[0], rounds[-1] + 1))
        return LaunchRecipes(recipes, 0 if len(rounds) == 1 else None)

    def _recipes(self, rounds: range) -> RoundRecipes:
        parts = [source.recipes(rounds) for source in self._sources]
        if len(parts) == 1:
            return parts[0].of_replicas(self._share.first, self._share.count)
        picks = np.concatenate([part.picks_drawn_to(0) for part in parts], axis=1)

        def key_of(index: int, replica: int) -> BatchKey:
            return parts[replica].key_of(index, 0)

        return RoundRecipes(parts[0].dataset, picks, key_of)

    def give_back(self, rounds: Sequence[Any], error: Exception | None = None) -> None:
        """See StepInputs.give_back."""
        self.taken -= len(rounds)

    def skip_to(self, taken: int) -> None:
        """See StepInputs.skip_to."""
        self.taken = taken

    def draw_here_if_shared(self, other: StepInputs) -> None:
        """Does nothing: each step begins with the first round."""

    def close(self) -> None:
        """Does nothing: there is no thread."""


class HasInputs(Protocol):
    """A step."""

    @property
    def inputs(self) -> StepInputs:
        """Its inputs."""


def keep_data(engine: LearningEngine, steps: Sequence[HasInputs]) -> None:
    """Has devices keep the data set of the first of some steps that has one, while no run is going on.

    Raises InvalidArgumentError or ResourceExhaustedError where a step's data set is always to be kept, and
    cannot be.
    """
    wanted = [s.inputs for s in steps if s.inputs.dataset is not None and s.inputs.data_on_device != "never"]
    for inputs in wanted[1:]:
        if inputs.dataset is not wanted[0].dataset and inputs.data_on_device == "always":
            raise InvalidArgumentError(
                "data_on_device='always': expected one data set for all steps, since devices keep one, got "
                f"{wanted[0].dataset!r} and {inputs.dataset!r}; give 'auto' or 'never' for one of them"
            )
    if not wanted or wanted[0].dataset is None:
        return
    if engine.devices_per_replica > 1:
        if any(inputs.data_on_device == "always" for inputs in wanted):
            raise InvalidArgumentError(
                "data_on_device='always': expected 'auto' or 'never' for replicas with several devices each, "
                "whose batches are made on the host"
            )
        return
    if engine.learners.dataset is not wanted[0].dataset:
        keep_on_devices(engine.learners, wanted[0].dataset, wanted[0].data_on_device)
