"""The folder of a training run: configuration, metrics, checkpoints, final model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from scheduler.config import TrainingConfig
from scheduler.tally import Tally
from tensorbow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from tensorbow.files import remove_unfinished, write_file
from tensorbow.specs import Array
from tensorbow.training import (
    Checkpoint,
    MetricsLog,
    RollingCheckpoints,
    load_arrays,
    make_folder,
    save_arrays,
)

try:
    import fcntl
except ImportError:  # not a POSIX system: folders are not locked there
    fcntl = None  # type: ignore[assignment]

CONFIG, METRICS, MODEL = "config.yaml", "metrics.jsonl", "model.safetensors"
TUNING = "tuning.json"


class RunFolder:
    """The output folder of a run, and the checkpoint the run goes on from, if any.

    The constructor claims the folder if it is there, then only looks; `begin` writes. `checkpoint` is None
    for a new run; `warnings` names damaged checkpoints that were passed over, and says where there was none
    to go on from. Without `config.output` nothing is written anywhere. Close it to let other runs use the
    folder.
    """

    def __init__(self, config: TrainingConfig):
        """Raises FailedPreconditionError for a folder that another run is writing to, or that holds a run,
        unless resuming; InvalidArgumentError when the checkpoint is of another run; DataLossError,
        NotFoundError. The folder is let go then.
        """
        self.config = config
        self.path = Path(config.output) if config.output is not None else None
        self.checkpoint: Checkpoint | None = None
        self.warnings: list[str] = []
        self._described = config.to_dict()  # in checkpoints
        self._metrics: MetricsLog | None = None
        self._checkpoints: RollingCheckpoints | None = None
        self._lock: int | None = None
        self._is_there = self.path is not None and self.path.is_dir()
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    def _look(self) -> None:
        """Claims the folder before it looks, so that what it finds stays as it is."""
        if self.path is not None and self._is_there:
            self._lock = _lock(self.path)
        self.checkpoint, self.warnings = find_checkpoint(self.config.output, self.config.resume)
        if self.checkpoint is not None:
            self._require_same_run(self.checkpoint)
        if self.path is not None:
            self._require_free(self.path)

    def _require_same_run(self, checkpoint: Checkpoint) -> None:
        differences = self.config.differences(checkpoint.metadata["config"])
        if differences:
            raise InvalidArgumentError(
                f"{checkpoint.path} is of another run: {'; '.join(differences)}; "
                "use the same options, or start anew in another --output"
            )

    def _require_free(self, path: Path) -> None:
        """Refuses to write over a run that this one does not go on with."""
        saved = RollingCheckpoints(path).paths()
        if self.config.resume is None:
            if saved or (path / MODEL).exists():
                raise FailedPreconditionError(
                    f"output folder {path} holds a run already; add --resume auto to go on with it, "
                    "or choose another --output"
                )
        elif self.config.resume != "auto" and saved and self.checkpoint is not None:
            mine, known = self.checkpoint.path, {p.resolve() for _, p in saved}
            round, newest = saved[-1]
            if mine.resolve() not in known:
                raise FailedPreconditionError(
                    f"output folder {path} holds another run than {mine}; choose another --output"
                )
            if round > self.checkpoint.metadata["round"] and Path(self.config.resume).is_file():
                raise FailedPreconditionError(
                    f"output folder {path} holds a later checkpoint, {newest.name}; add --resume auto to go "
                    "on from it, or choose another --output to branch off"
                )

    def begin(self, evaluated_at: int, keep_config: bool = False) -> None:
        """Makes the folder and opens what is written during the run; keeps metrics up to that round.

        keep_config: leaves the configuration of the run before, since this one adds nothing.

        Raises ResourceExhaustedError or InvalidArgumentError when it cannot be written,
        FailedPreconditionError when another run is writing there.
        """
        if self.path is None:
            return
        make_folder(self.path)
        if not self._is_there:
            self._lock = _lock(self.path)
            self._require_untouched(self.path)
        self._checkpoints = RollingCheckpoints(self.path, self.config.keep_checkpoints)
        remove_unfinished(self.path)
        if keep_config and self.checkpoint is not None:
            self._described = self.checkpoint.metadata["config"]
        if not (keep_config and (self.path / CONFIG).exists()):
            text = yaml.safe_dump(self.config.to_dict(), sort_keys=False)
            write_file(self.path / CONFIG, text.encode())
        resumed = self.checkpoint.path.parent / METRICS if self.checkpoint else None
        self._metrics = MetricsLog(
            self.path / METRICS, resume_at=evaluated_at if self.checkpoint else None, source=resumed
        )

    def _require_untouched(self, path: Path) -> None:
        """Refuses a folder that another run has made, filled and left since this one looked."""
        if RollingCheckpoints(path).paths() or (path / MODEL).exists():
            raise FailedPreconditionError(
                f"output folder {path}: another run has written there meanwhile; add --resume auto to go on "
                "with it, or choose another --output"
            )

    def record(self, record: dict[str, Any]) -> None:
        """Appends to the metrics."""
        if self._metrics is not None:
            self._metrics.append(record)

    def save_checkpoint(self, arrays: Mapping[str, Array], metadata: dict[str, Any]) -> None:
        """Writes a rolling checkpoint; `metadata` has the round."""
        if self._checkpoints is not None:
            described = {**metadata, "config": self._described}
            self._checkpoints.save(metadata["round"], arrays, described)

    @property
    def last_checkpoint(self) -> tuple[int, Path] | None:
        """The newest one there is: its round, and where."""
        saved = RollingCheckpoints(self.path).paths() if self.path is not None else []
        return saved[-1] if saved else None

    def save_tuning(self, facts: Mapping[str, Any]) -> None:
        """Writes what is known of the number of replicas, in place of what was."""
        if self.path is not None:
            write_file(self.path / TUNING, (json.dumps(facts, indent=1) + "\n").encode())

    def save_model(self, values: Mapping[str, Array], metadata: dict[str, Any], replica: int = 0) -> None:
        """Writes a model, in place of an earlier one: its variables by name."""
        if self.path is not None:
            save_arrays(self._model_of(self.path, replica), values, metadata)

    def remove_models(self, first: int) -> None:
        """Removes those of replicas from that number on, which the run had when it was interrupted."""
        while self.path is not None and (path := self._model_of(self.path, first)).exists():
            path.unlink()
            first += 1

    @staticmethod
    def _model_of(folder: Path, replica: int) -> Path:
        return folder / (MODEL.replace(".", f"-replica{replica}.", 1) if replica else MODEL)

    def close(self) -> None:
        """Lets other runs use the folder; idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def find_checkpoint(output: str | None, resume: str | None) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint that `resume` (auto, a file, a folder) means, and a line for each damaged newer one.

    None for a new run; that `auto` begins one is a line too. Raises NotFoundError, DataLossError,
    InvalidArgumentError.
    """
    if resume is None:
        return None, []
    if resume == "auto":
        if output is None:
            raise InvalidArgumentError("--resume auto needs --output, the folder of the run to go on with")
        checkpoint, warnings = RollingCheckpoints(Path(output)).newest(_require_sound)
        if checkpoint is None:
            warnings.append(f"--resume auto: {output} holds no checkpoint, so a new run begins")
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


def _require_sound(checkpoint: Checkpoint) -> None:
    """Raises DataLossError for a file that is whole but no checkpoint of a training run."""
    if not isinstance(checkpoint.metadata.get("config"), dict):
        raise DataLossError(f"{checkpoint.path} is no checkpoint of a training run: it has no configuration")
    try:
        Tally.from_metadata(checkpoint.metadata)
    except DataLossError as error:
        raise DataLossError(f"{checkpoint.path} is no checkpoint of a training run: {error}") from None


def _lock(folder: Path) -> int | None:
    """Claims a folder until the handle is closed or the process ends, however it ends."""
    if fcntl is None:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise FailedPreconditionError(
            f"output folder {folder}: another run is writing there; wait for it, or choose another --output"
        ) from None
    except OSError:  # a file system without locks
        os.close(handle)
        return None
    return handle
