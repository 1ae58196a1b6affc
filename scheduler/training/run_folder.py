"""The folder of a training run: configuration, metrics, checkpoints, final model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from scheduler.training.config import TrainingConfig
from scheduler.training.config_file import config_text
from scheduler.training.run_places import begins_anew, find_checkpoint, first_output, numbered_folders
from tensorbow.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    TensorBowError,
)
from tensorbow.files import NewFile, disk_is_full, remove_unfinished, shown, write_file
from tensorbow.specs import Array
from tensorbow.training import (
    Checkpoint,
    MetricsLog,
    RollingCheckpoints,
    load_metadata,
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
    for a new run; `warnings` names checkpoints that cannot be used and were passed over, and says where there
    was none to go on from. Without `config.output` nothing is written anywhere. Close it to let other runs
    use the folder.

    On a full disk older checkpoints that are to be deleted anyway make room. A folder that is deleted, moved
    or replaced while it is written to ends the run: whatever saves raises AbortedError then.
    """

    def __init__(self, config: TrainingConfig, numbered: bool = False):
        """numbered: nobody said where to save, and `config.output` is only where there was room a moment ago:
            a new run takes the first number that is free when it begins. `path` and `config` say which.

        Raises FailedPreconditionError for a folder that another run is writing to, or that holds a run,
        unless resuming; InvalidArgumentError when the checkpoint is of another run; DataLossError,
        NotFoundError. The folder is let go then.
        """
        self.config = config
        self.path = Path(config.output) if config.output is not None else None
        self.checkpoint: Checkpoint | None = None
        self.warnings: list[str] = []
        self._numbered = numbered
        self._described: dict[str, Any] = {}  # the configuration in checkpoints
        self._metrics: MetricsLog | None = None
        self._checkpoints: RollingCheckpoints | None = None
        self._resumed_in: Path | None = None  # the folder of the checkpoint
        self._round = 0  # of the last checkpoint
        self._handle: int | None = None  # of the folder: has the lock, and keeps its inode from another
        self._identity: tuple[int, int] | None = None  # its device and inode
        anew = numbered and config.resume is None
        self._is_there = self.path is not None and not anew and self.path.is_dir()
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    def _look(self) -> None:
        """Claims the folder before it looks, so that what it finds stays as it is."""
        config, path = self.config, self.path
        if path is not None and config.trace is not None:
            _require_other_file(Path(config.trace), path)
        if path is not None and self._is_there:
            try:
                self._claim(path)
            except FailedPreconditionError:
                if not self._numbered or RollingCheckpoints(path).paths():
                    raise
                self._is_there = False  # nothing to go on with yet: this is to be another run
                self.warnings = [begins_anew(path)]
                return
        self.checkpoint, self.warnings = find_checkpoint(config.output, config.resume)
        if self.checkpoint is not None:
            self._require_same_run(self.checkpoint)
            self._resumed_in, self._round = self.checkpoint.path.parent, self.checkpoint.metadata["round"]
            self._require_one_run(self.checkpoint)
        if path is not None and not self._numbered:
            self._require_free(path)

    def _claim(self, path: Path) -> None:
        self._handle = _lock(path)
        self._identity = _identity(path if self._handle is None else self._handle)

    def _require_same_run(self, checkpoint: Checkpoint) -> None:
        differences = self.config.differences(checkpoint.metadata["config"])
        if differences:
            raise InvalidArgumentError(
                f"{checkpoint.path} is of another run: {'; '.join(differences)}; "
                "use the same options, or start anew in another --output"
            )

    def _require_one_run(self, checkpoint: Checkpoint) -> None:
        """Refuses a folder into which checkpoints of another run were copied: one run's would be deleted."""
        folder = checkpoint.path.parent
        if self.path is None or folder.resolve() != self.path.resolve():
            return
        for _, path in RollingCheckpoints(folder).paths():
            try:
                config = load_metadata(path).get("config")
            except TensorBowError:  # passed over, or deleted just now
                continue
            if isinstance(config, dict) and (differences := self.config.differences(config)):
                raise FailedPreconditionError(
                    f"{path} is of another run than {checkpoint.path.name} beside it: "
                    f"{'; '.join(differences)}; move those of one run away"
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
        if not self._is_there:
            self.path = self._made(self.path)
            self.config = replace(self.config, output=str(self.path))
        checkpoint, path = self.checkpoint, self.path
        self._checkpoints = RollingCheckpoints(path, self.config.keep_checkpoints)
        if checkpoint is not None:
            self._checkpoints.spared = _spared(checkpoint.metadata)
        self._write(lambda: remove_unfinished(path))
        self._write(lambda: self._require_writable(path))
        resumed = checkpoint.path.parent / METRICS if checkpoint else None

        def open_metrics() -> None:
            resume_at = evaluated_at if checkpoint else None
            self._metrics = MetricsLog(path / METRICS, resume_at=resume_at, source=resumed)

        self._write(open_metrics)
        kept = checkpoint.metadata["config"] if checkpoint is not None and keep_config else None
        self._described = kept or self.config.to_dict()
        if kept is None or not (path / CONFIG).exists():
            self._save_config(path)

    def _require_writable(self, path: Path) -> None:
        """Raises the error of what can only be written later, before anything is trained for it."""
        models = self.config.replicas if self.config.sync == "none" else 1
        files = [self._model_of(path, replica) for replica in range(models)]
        for file in [*files, path / TUNING] if self.config.tunes else files:
            NewFile(file).discard()

    def _made(self, path: Path) -> Path:
        """The folder, made and claimed; with a number, if it was taken meanwhile.

        Refuses one that another run has made, filled and left since this one looked.
        """
        folders = numbered_folders(first_output(self.config)) if self._numbered else iter([path])
        for path in folders:
            try:
                make_folder(path, new=self._numbered)
                self._claim(path)
                break
            except (AlreadyExistsError, FailedPreconditionError):  # or somebody took it just then
                if not self._numbered:
                    raise
        if RollingCheckpoints(path).paths() or (path / MODEL).exists():
            raise FailedPreconditionError(
                f"output folder {path}: another run has written there meanwhile; add --resume auto to go on "
                "with it, or choose another --output"
            )
        return path

    # Writing ----------------------------------------------------------------------------------

    def _write(self, write: Callable[[], object]) -> None:
        """Has something written into the folder; a second time where that may succeed."""
        for attempt in (1, 2):
            self._require_folder()
            try:
                write()
                break
            except TensorBowError as error:
                self._require_folder()
                if attempt == 2 or not self._may_succeed_now(error):
                    raise self._with_checkpoints_to_spare(error) from error.__cause__
        self._require_folder()

    def _may_succeed_now(self, error: TensorBowError) -> bool:
        """Whether a write may succeed after this error: the disk was full and has room now, or the file was
        deleted while it was written.
        """
        if isinstance(error, ResourceExhaustedError) and disk_is_full(error):
            return self._checkpoints is not None and self._checkpoints.make_room(self._round + 1)
        return isinstance(error.__cause__, FileNotFoundError)

    def _with_checkpoints_to_spare(self, error: TensorBowError) -> TensorBowError:
        """The error, which names the option that frees space where more than the usual few are to be kept."""
        usual = TrainingConfig.keep_checkpoints
        rolling = self._checkpoints
        if rolling is None or not isinstance(error, ResourceExhaustedError) or not disk_is_full(error):
            return error
        if rolling.keep <= usual or len(found := rolling.paths()) <= usual:
            return error
        return type(error)(
            f"{error}; there are {len(found)} checkpoints, of which --resume auto --keep-checkpoints {usual} "
            "deletes the oldest"
        )

    def _require_folder(self) -> None:
        """Raises AbortedError when the folder is not that which was claimed any more."""
        assert self.path is not None
        now = None
        with suppress(OSError):
            now = _identity(self.path)
        if now == self._identity:
            return
        deleted = self._handle is not None and os.fstat(self._handle).st_nlink == 0
        became = f"was {'deleted' if deleted else 'moved or deleted'}{' and made again' if now else ''}"
        remedy = "start anew, in a folder that stays"
        if not deleted:
            remedy = f"if it was moved, go on from where it is now by --resume auto --output; else {remedy}"
        raise AbortedError(
            f"output folder {shown(self.path)} {became} while the run was writing there: the run ends, and "
            f"what was trained since the last checkpoint in it is lost; {remedy}"
        )

    def _save_config(self, path: Path) -> None:
        text = config_text(self._described)
        self._write(lambda: write_file(path / CONFIG, text.encode()))

    def _save_config_again(self, path: Path) -> bool:
        """Whether it had been deleted."""
        lost = not (path / CONFIG).exists()
        if lost:
            self._save_config(path)
        return lost

    def record(self, record: dict[str, Any]) -> list[str]:
        """Appends to the metrics; a line for each file that was deleted while the run went on."""
        metrics, path = self._metrics, self.path
        if metrics is None or path is None:
            return []
        lost = []
        if self._save_config_again(path):
            lost.append(f"warning: {path / CONFIG} was deleted; it is written again")
        if not (path / METRICS).exists():
            lost.append(f"warning: {path / METRICS} was deleted; it begins anew with round {record['round']}")
        self._write(lambda: metrics.append(record))
        return lost

    def save_checkpoint(self, arrays: Mapping[str, Array], metadata: dict[str, Any]) -> None:
        """Writes a rolling checkpoint; `metadata` has the round, and the rounds that are never deleted."""
        checkpoints = self._checkpoints
        if checkpoints is not None:
            described = {**metadata, "config": self._described}
            round, spared = metadata["round"], _spared(metadata)
            self._write(lambda: checkpoints.save(round, arrays, described, spared))
            self._round = round

    @property
    def last_checkpoint(self) -> tuple[int, Path] | None:
        """The newest one there is: its round, and where."""
        saved = RollingCheckpoints(self.path).paths() if self.path is not None else []
        return saved[-1] if saved else None

    def holds(self, round: int | None) -> bool:
        """Whether it has the checkpoint of a round."""
        kept = None if self.path is None or round is None else RollingCheckpoints(self.path).path_of(round)
        return kept is not None and kept.exists()

    def checkpoints(self) -> dict[int, Path]:
        """Those to go back to, by round, oldest first: in this folder, and beside the one gone on from."""
        folders = [path for path in (self._resumed_in, self.path) if path is not None]
        return dict(sorted(item for folder in folders for item in RollingCheckpoints(folder).paths()))

    def save_tuning(self, facts: Mapping[str, Any]) -> None:
        """Writes what is known of the number of replicas, in place of what was."""
        if self.path is not None:
            path, text = self.path / TUNING, json.dumps(facts, indent=1) + "\n"
            self._write(lambda: write_file(path, text.encode()))

    def save_model(self, values: Mapping[str, Array], metadata: dict[str, Any], replica: int = 0) -> None:
        """Writes a model, in place of an earlier one: its variables by name."""
        if self.path is not None:
            path = self._model_of(self.path, replica)
            self._write(lambda: save_arrays(path, values, metadata))
            self._save_config_again(self.path)

    def remove_models(self, first: int) -> None:
        """Removes those of replicas from that number on, which the run had when it was interrupted."""
        while self.path is not None and (path := self._model_of(self.path, first)).is_file():
            path.unlink()
            first += 1

    @staticmethod
    def _model_of(folder: Path, replica: int) -> Path:
        return folder / (MODEL.replace(".", f"-replica{replica}.", 1) if replica else MODEL)

    def close(self) -> None:
        """Lets other runs use the folder; idempotent."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _require_other_file(trace: Path, folder: Path) -> None:
    """Raises InvalidArgumentError for a trace where the run has its folder or its own files."""
    found, folder = Path(os.path.realpath(trace)), Path(os.path.realpath(folder))
    is_ours = found.name in (CONFIG, METRICS, TUNING) or found.suffix == Path(MODEL).suffix
    if found == folder or (found.parent == folder and is_ours):
        what = "its output folder" if found == folder else "a file of its own"
        raise InvalidArgumentError(f"trace: {shown(trace)} is where the run has {what}; choose another path")


def _spared(metadata: Mapping[str, Any]) -> set[int]:
    """The rounds of checkpoints that are not deleted: the best one and the last sound one."""
    return {metadata[name] for name in ("best", "sound") if type(metadata.get(name)) is int}


def _identity(path: Path | int) -> tuple[int, int]:
    about = os.stat(path)
    return about.st_dev, about.st_ino


def _lock(folder: Path) -> int | None:
    """A handle of a folder, which is claimed until that is closed or the process ends, however it ends."""
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
        pass
    return handle
