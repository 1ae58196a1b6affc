"""Default output folders of runs, and finding the checkpoint to resume from."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.measures.tally import Tally
from tensorbow.errors import DataLossError, InvalidArgumentError, NotFoundError
from tensorbow.training import Checkpoint, RollingCheckpoints, load_arrays


def numbered_folders(first: Path) -> Iterator[Path]:
    """Yields a folder, then `folder-2`, `folder-3` and so on beside it."""
    yield first
    named = first.resolve() if first.name in ("", "..") else first
    for number in itertools.count(2):
        yield named.parent / f"{named.name}-{number}"


def first_output(config: TrainingConfig) -> Path:
    """Default output folder of the first run of a model and data set: runs/MODEL-DATASET."""
    return Path("runs") / f"{config.source.label}-{config.data_name}"


def default_output(config: TrainingConfig) -> Path:
    """Default output folder of a run: the first free one, or the last existing one with `--resume auto`."""
    first = first_output(config)
    taken = list(itertools.takewhile(os.path.lexists, numbered_folders(first)))
    if config.resume == "auto":
        return taken[-1] if taken else first
    return next(itertools.islice(numbered_folders(first), len(taken), None))


def find_checkpoint(output: str | None, resume: str | None) -> tuple[Checkpoint | None, list[str]]:
    """Finds the checkpoint that `resume` names: auto, a file or a folder; None for a new run.

    Also returns warnings: for newer checkpoints that cannot be used, and if `auto` begins a new run. Raises
    NotFoundError, DataLossError, InvalidArgumentError.
    """
    if resume is None:
        return None, []
    if resume == "auto":
        if output is None:
            raise InvalidArgumentError("--resume auto needs --output, the folder of the run to go on with")
        checkpoint, warnings = RollingCheckpoints(Path(output)).newest(_require_sound)
        if checkpoint is None:
            warnings.append(begins_anew(output))
        return checkpoint, warnings
    path = Path(resume)
    if path.is_dir():
        checkpoint, warnings = RollingCheckpoints(path).newest(_require_sound)
        if checkpoint is None:
            raise NotFoundError(f"--resume {path}: the folder holds no checkpoint-*.safetensors")
        return checkpoint, warnings
    try:
        checkpoint = Checkpoint(path, *load_arrays(path))
    except NotFoundError as error:
        remedy = "give a checkpoint, the folder of a run, or auto with --output"
        raise NotFoundError(f"--resume: {error}; {remedy}") from None
    _require_sound(checkpoint)
    return checkpoint, []


def folders_below(path: Path, file: str) -> str:
    """Up to three folders in a folder that have a file, as text; empty if there are none."""
    found: list[str] = []
    with suppress(OSError):
        found = sorted(str(each) for each in path.iterdir() if (each / file).is_file())
    return f"{', '.join(found[:3])}{' ...' if len(found) > 3 else ''}"


def begins_anew(output: Path | str) -> str:
    """Warning that `--resume auto` found no checkpoint."""
    return f"--resume auto: {output} holds no checkpoint, so a new run begins"


def _require_sound(checkpoint: Checkpoint) -> None:
    """Raises DataLossError for an intact file that is not a checkpoint of a training run."""
    if not isinstance(checkpoint.metadata.get("config"), dict):
        raise DataLossError(f"{checkpoint.path} is no checkpoint of a training run: it has no configuration")
    try:
        Tally.from_metadata(checkpoint.metadata)
    except DataLossError as error:
        raise DataLossError(f"{checkpoint.path} is no checkpoint of a training run: {error}") from None
