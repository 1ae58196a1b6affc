"""What a run takes over from the checkpoint that it goes on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from scheduler.options import shortened
from scheduler.replicas.learners import Learners
from scheduler.training.tally import Tally
from tensorbow.data import Dataset
from tensorbow.devices import Device
from tensorbow.errors import DataLossError, InvalidArgumentError
from tensorbow.kernels import backend_for
from tensorbow.optimizers import Schedule, slots_hold_rate
from tensorbow.specs import Array
from tensorbow.training import Checkpoint


def data_facts(data: Dataset) -> dict[str, Any]:
    """What tells one data set of a name from another."""
    return {"examples": len(data), "mean": data.mean, "std": data.std}


def made_with(devices: Sequence[Device]) -> dict[str, str]:
    """What a run's bits depend on beside its options and data: kernels, libraries, processors, by name."""
    found: dict[str, dict[str, None]] = {}  # several values of a name, where devices of a kind differ
    with suppress(PackageNotFoundError):  # run from a checkout that is not installed
        found["tensorbow"] = {version("tensorbow"): None}
    for device in devices:
        for name, value in backend_for(device).made_with(device).items():
            found.setdefault(f"{device.kind.upper()} {name}", {})[value] = None
    return {name: ", ".join(values) for name, values in found.items()}


def changed_since(checkpoint: Checkpoint, now: Mapping[str, str]) -> str | None:
    """A line when the run goes on with other kernels or libraries; older checkpoints do not say theirs."""
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


def restored(
    checkpoint: Checkpoint,
    learners: Learners,
    data: Dataset,
    schedule: Schedule,
    target_accuracy: float | None,
) -> Tally:
    """The tally of a checkpoint, whose values the learners have from now on.

    Momentum's slots of an earlier version, which hold the rate too, are divided by that of the last round.
    schedule: the rates by round that the checkpoint's run had.

    Raises InvalidArgumentError for one of a run on other data, or of other variables; DataLossError.
    """
    facts = data_facts(data)
    if checkpoint.metadata.get("data") != facts:
        raise InvalidArgumentError(
            f"{checkpoint.path} is of a run on other data than {data.name} "
            f"({facts['examples']} examples); give the same --data-dir"
        )
    tally = Tally.from_metadata(checkpoint.metadata)
    arrays: Mapping[str, Array] = checkpoint.arrays
    if slots_hold_rate(checkpoint.metadata):
        arrays = _without_rate(checkpoint, schedule(max(0, tally.round - 1)))
    try:
        learners.values.load_state_arrays(arrays)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{checkpoint.path}: {error}") from error
    if target_accuracy is None or checkpoint.metadata["config"].get("target_accuracy") != target_accuracy:
        tally.seconds_to_target = None
    if tally.best is None and 0 < tally.round == tally.evaluated_at:  # of an older version
        tally.best, tally.best_accuracy = tally.round, tally.test_accuracy
    if tally.test_accuracies is not None and len(tally.test_accuracies) != learners.count:
        raise DataLossError(f"{checkpoint.path} has not one test accuracy for each replica")
    return tally


def _without_rate(checkpoint: Checkpoint, rate: float) -> dict[str, Array]:
    """The arrays of a checkpoint whose momentum slots hold -rate times the sum of gradients.

    Raises DataLossError for a rate that they cannot hold.
    """
    arrays = dict(checkpoint.arrays)
    for name, value in arrays.items():
        if name.endswith("/Momentum") and value.dtype.kind == "f":  # of another kind it fits no variable
            with np.errstate(all="ignore"):
                divided = value / value.dtype.type(-rate)
            if np.isfinite(divided).sum() < np.isfinite(value).sum():
                raise DataLossError(f"{checkpoint.path}: {name} cannot hold a learning rate of {rate:g}")
            arrays[name] = divided
    return arrays
