"""Resuming a run: checks a checkpoint and restores its state."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from scheduler.options import shortened
from scheduler.replicas.parted_learners import AnyLearners
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.measures.tally import Tally
from scheduler.training.running.joint_run import COUNTS, WORKERS, own_arrays
from tensorbow.data import TrainingData
from tensorbow.devices import Device
from tensorbow.errors import DataLossError, InvalidArgumentError
from tensorbow.kernels import backend_for
from tensorbow.models import ModelSource
from tensorbow.optimizers import Schedule, slots_hold_rate
from tensorbow.specs import Array
from tensorbow.training import Checkpoint

RATE_OPTIONS = ("learning_rate", "learning_rate_drops", "schedule", "final_rate", "warmup_epochs")


def made_with(devices: Sequence[Device]) -> dict[str, str]:
    """Versions of kernels, libraries and processors on which a run's bits depend, by name."""
    found: dict[str, dict[str, None]] = {}  # a name has several values if devices of one kind differ
    with suppress(PackageNotFoundError):  # tensorbow is not installed, but run from a checkout
        found["tensorbow"] = {version("tensorbow"): None}
    for device in devices:
        for name, value in backend_for(device).made_with(device).items():
            found.setdefault(f"{device.kind.upper()} {name}", {})[value] = None
    return {name: ", ".join(values) for name, values in found.items()}


def changed_since(checkpoint: Checkpoint, now: Mapping[str, str]) -> str | None:
    """Warning if kernels or libraries have changed since the checkpoint; None if not, or if it is too old."""
    before = checkpoint.metadata.get("made_with")
    before = before if isinstance(before, dict) else {}
    changes = [
        f"{name} was {shortened(before[name])}, is {value!r}"
        for name, value in now.items()
        if before.get(name, value) != value
    ]
    if not changes:
        return None
    return (
        f"the checkpoint was made with other kernels or libraries: {'; '.join(changes)}; the run goes on, "
        "and its bits may differ from those of an uninterrupted one"
    )


def code_facts(source: ModelSource) -> dict[str, int]:
    """Name and checksum of a user's model file; empty for a model of the zoo."""
    code = source.code
    return {} if source.file is None or code is None else {source.file.name: zlib.crc32(code)}


def changed_code(checkpoint: Checkpoint, source: ModelSource) -> str | None:
    """Warning if the file of a user's model has changed since the checkpoint."""
    before, now = checkpoint.metadata.get("code"), code_facts(source)
    if not isinstance(before, dict) or before == now:
        return None
    name = ", ".join(now) or source.name
    return f"{name} has changed since the checkpoint; the run goes on with the model as it is now"


def counts_of(checkpoint: Checkpoint | None, configured: int, total: int) -> list[tuple[int, int]]:
    """(first round, replicas from it on) of the run so far, and of the checkpoint's rounds before.

    configured: replicas of a worker. total: replicas of all workers now.
    """
    if checkpoint is None:
        return [(0, total)]
    metadata = checkpoint.metadata
    earlier = metadata.get(COUNTS) or [(0, configured * metadata.get(WORKERS, 1))]
    counts = [(int(round), int(count)) for round, count in earlier]
    return counts if counts[-1][1] == total else [*counts, (metadata["round"], total)]


def with_rates_of(checkpoint: Checkpoint, config: TrainingConfig) -> TrainingConfig:
    """The options with the learning rates of the checkpoint's run; this run may have others."""
    kept = checkpoint.metadata["config"]
    return replace(config, **{name: kept[name] for name in RATE_OPTIONS if name in kept})


def restored(
    checkpoint: Checkpoint,
    learners: AnyLearners | None,
    data: TrainingData,
    schedule: Schedule,
    target_accuracy: float | None,
) -> Tally:
    """Loads the variables of a checkpoint into the learners, if there are some; returns its tally.

    Momentum slots of an earlier version contain the learning rate, and are divided by that of the last round.
    schedule: learning rates of the checkpoint's run.

    Raises InvalidArgumentError for a checkpoint of a run on other data or with other variables,
    DataLossError for invalid metadata.
    """
    facts = data.facts()
    if checkpoint.metadata.get("data") != facts:
        raise InvalidArgumentError(
            f"{checkpoint.path} is of a run on other data than {data.name} "
            f"({facts['examples']} examples); give the same --data or --data-dir"
        )
    tally = Tally.from_metadata(checkpoint.metadata)
    arrays: Mapping[str, Array] = checkpoint.arrays
    if slots_hold_rate(checkpoint.metadata):
        arrays = _without_rate(checkpoint, schedule(max(0, tally.round - 1)))
    try:
        if learners is not None:
            learners.values.load_state_arrays(own_arrays(arrays))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{checkpoint.path}: {error}") from error
    if target_accuracy is None or checkpoint.metadata["config"].get("target_accuracy") != target_accuracy:
        tally.seconds_to_target = None
    if tally.best is None and 0 < tally.round == tally.evaluated_at:  # written by an older version
        tally.best, tally.best_accuracy = tally.round, tally.test_accuracy
    replicas = None if learners is None else learners.count * checkpoint.metadata.get(WORKERS, 1)
    if learners is None:
        tally.test_accuracies = None  # they were of other replicas
    elif tally.test_accuracies is not None and len(tally.test_accuracies) != replicas:
        raise DataLossError(f"{checkpoint.path} has not one test accuracy for each replica")
    return tally


def _without_rate(checkpoint: Checkpoint, rate: float) -> dict[str, Array]:
    """Converts momentum slots of an earlier version, -rate times the sum of gradients, to that sum.

    Raises DataLossError if the division overflows.
    """
    arrays = dict(checkpoint.arrays)
    for name, value in arrays.items():
        if name.endswith("/Momentum") and value.dtype.kind == "f":  # other kinds are refused later
            with np.errstate(all="ignore"):
                divided = value / value.dtype.type(-rate)
            if np.isfinite(divided).sum() < np.isfinite(value).sum():
                raise DataLossError(f"{checkpoint.path}: {name} cannot hold a learning rate of {rate:g}")
            arrays[name] = divided
    return arrays
