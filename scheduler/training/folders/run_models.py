"""Models that a run's folder holds: z, the best z, its moving average, and each replica's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scheduler.training.folders.output_folders import folders_below
from scheduler.training.folders.run_folder import BEST_MODEL, EMA_MODEL, MODEL, replica_file
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.specs import Array
from tensorbow.training import RollingCheckpoints, load_arrays

REMEDY = "train the model again, or copy it anew"


class StoredModel(NamedTuple):
    """Variables by name, what a classifier must know about them, and the file that they are from."""

    file: Path
    values: dict[str, Array]
    about: dict[str, Any]


def central_model(path: Path) -> StoredModel:
    """z (with sync `none` replica 0) of a run's folder, or the model in a file. Raises as `load_arrays`."""
    file = path / MODEL if path.is_dir() else path
    try:
        return StoredModel(file, *load_arrays(file, remedy=REMEDY))
    except NotFoundError:
        hint = "; if the run was killed, go on with --resume auto" if path.is_dir() else ""
        if (path / "best" / MODEL).exists():
            hint = f"; it is the folder of a sweep, whose best member is {path / 'best'}"
        elif runs := folders_below(path, MODEL):
            hint = f"; give a run's folder, such as {runs}"
        raise NotFoundError(f"{path} holds no trained model: there is no {file}{hint}") from None


def average_model(path: Path) -> StoredModel:
    """The moving average of z of a run's folder. Raises as `replica_models`."""
    return _model_of(path, EMA_MODEL, "ema", "moving average of z", "train with --ema")


def best_model(path: Path) -> StoredModel:
    """z of the best evaluation of a run's folder. Raises as `replica_models`."""
    remedy = "a run writes it after its first evaluation, except with --sync none, which has no z"
    return _model_of(path, BEST_MODEL, "best", "best model", remedy)


def _model_of(path: Path, name: str, option: str, what: str, remedy: str) -> StoredModel:
    _require_run(path, option)
    file = path / name
    if not file.exists():
        raise NotFoundError(f"{path} holds no {what}: there is no {file}; {remedy}")
    return StoredModel(file, *load_arrays(file, remedy=REMEDY))


def replica_models(path: Path, what: str) -> list[StoredModel]:
    """Every replica's model of a run's folder: the saved ones, or those of the newest checkpoint.

    what: the option that asks for them. Raises InvalidArgumentError for a path that is no run's folder,
    NotFoundError without a model or a checkpoint, DataLossError.
    """
    _require_run(path, what)
    first = central_model(path)
    if replica_file(path, 1).exists():
        found = [first]
        while (file := replica_file(path, len(found))).exists():
            found.append(StoredModel(file, *load_arrays(file, remedy=REMEDY)))
        return found
    checkpoint, _ = RollingCheckpoints(path).newest()
    if checkpoint is None:
        raise NotFoundError(f"{what}: {path} has no checkpoint, which would have the replicas' own values")
    about = {**without_accuracy(first.about), "round": checkpoint.metadata["round"]}
    count = len({name.partition("/")[0] for name in checkpoint.arrays if name.startswith("replica")})
    return [
        StoredModel(checkpoint.path, _of_replica(checkpoint.arrays, number, first.values), about)
        for number in range(count)
    ]


def without_accuracy(about: Mapping[str, Any]) -> dict[str, Any]:
    """Description of a model without its accuracy, for another model of the same run."""
    return {name: value for name, value in about.items() if not name.endswith("_accuracy")}


def replica_model(path: Path, replica: int) -> StoredModel:
    """One replica's model of a run's folder. Raises as `replica_models`, and for a replica out of range."""
    found = replica_models(path, "replica")
    if not 0 <= replica < len(found):
        raise InvalidArgumentError(
            f"replica: expected a number from 0 to {len(found) - 1}, the replicas of {path}, got {replica}"
        )
    return found[replica]


def _of_replica(arrays: Mapping[str, Array], replica: int, like: Mapping[str, Array]) -> dict[str, Array]:
    """A replica's values of the variables that another model has, so without optimisers' slots."""
    return {name: arrays[f"replica{replica}/{name}"] for name in like if f"replica{replica}/{name}" in arrays}


def _require_run(path: Path, what: str) -> None:
    if not path.is_dir():
        raise InvalidArgumentError(f"{what}: expected the folder of a run, got {path}")
