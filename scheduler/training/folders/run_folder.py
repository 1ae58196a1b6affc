"""The folder of a training run: configuration, metrics, checkpoints, final model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.config_file import config_text
from scheduler.training.folders.output_folders import (
    begins_anew,
    find_checkpoint,
    first_output,
    numbered_folders,
)
from scheduler.training.measures.classification_metrics import ClassificationReport
from tensorbow.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    TensorBowError,
)
from tensorbow.files import NewFile, disk_is_full, remove_unfinished, shown, write_file
from tensorbow.models import ModelSource
from tensorbow.pictures import has_matplotlib
from tensorbow.specs import Array
from tensorbow.training import (
    Checkpoint,
    MetricsLog,
    RollingCheckpoints,
    load_metadata,
    make_folder,
    read_metrics,
    save_arrays,
)

try:
    import fcntl
except ImportError:  # not a POSIX system: folders are not locked there
    fcntl = None  # type: ignore[assignment]

GIVEN_BY_PROGRAM = "given by a program"  # the data set of a run, in its config.yaml
CONFIG, METRICS, MODEL = "config.yaml", "metrics.jsonl", "model.safetensors"
EMA_MODEL = "model-ema.safetensors"
BEST_MODEL = "model-best.safetensors"
TUNING = "tuning.json"
CONFUSION_TABLE = "confusion.csv"
GRAPH_FILE = "model-graph.json"  # of a model that is not the zoo's


class RunFolder:
    """Output folder of a run, and the checkpoint from which the run is resumed, if any.

    The constructor locks an existing folder and reads from it; `begin` is the first to write. `checkpoint` is
    None for a new run. `warnings` names checkpoints that were skipped because they are unusable, and says if
    there was none to resume from. Without `config.output` nothing is written. `close` unlocks the folder.

    On a full disk, checkpoints that would be deleted next are deleted early. If the folder is deleted, moved
    or replaced during the run, all methods that write raise AbortedError.
    """

    def __init__(self, config: TrainingConfig, numbered: bool = False, *, data_given: bool = False):
        """numbered: `config.output` is a default, which another run may take meanwhile. `begin` then creates
            the first free numbered folder for a new run, and sets `path` and `config` to it.
        data_given: a program gives the data, instead of the options; config.yaml says so.

        Raises FailedPreconditionError for a folder that another run is writing to, or that holds a run and
        is not resumed; InvalidArgumentError for a checkpoint of another run; DataLossError, NotFoundError for
        unusable or missing checkpoints. The folder is unlocked then.
        """
        self.config = config
        self.path = Path(config.output) if config.output is not None else None
        self.checkpoint: Checkpoint | None = None
        self.warnings: list[str] = []
        self._numbered, self._data_given = numbered, data_given
        self._described: dict[str, Any] = {}  # configuration written to checkpoints
        self._metrics: MetricsLog | None = None
        self._checkpoints: RollingCheckpoints | None = None
        self._resumed_in: Path | None = None  # folder of the checkpoint that the run is resumed from
        self._round = 0  # round of the last checkpoint
        self._handle: int | None = None  # file descriptor of the folder: holds the lock and the inode
        self._identity: tuple[int, int] | None = None  # the folder's device and inode
        anew = numbered and config.resume is None
        self._is_there = self.path is not None and not anew and self.path.is_dir()
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    def _look(self) -> None:
        """Locks the folder, then finds and checks the checkpoint, so that no other run changes it between."""
        config, path = self.config, self.path
        if path is not None and config.trace is not None:
            _require_other_file(Path(config.trace), path)
        if path is not None and self._is_there:
            try:
                self._claim(path)
            except FailedPreconditionError:
                if not self._numbered or RollingCheckpoints(path).paths():
                    raise
                self._is_there = False  # no checkpoint to resume from yet: begin a new run
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
        self._handle = lock_folder(path)
        self._identity = _identity(path if self._handle is None else self._handle)

    def _require_same_run(self, checkpoint: Checkpoint) -> None:
        differences = self.config.differences(checkpoint.metadata["config"])
        if differences:
            raise InvalidArgumentError(
                f"{checkpoint.path} is of another run: {'; '.join(differences)}; "
                "use the same options, or start anew in another --output"
            )

    def _require_one_run(self, checkpoint: Checkpoint) -> None:
        """Refuses a folder that also has checkpoints of another run, since this run might delete them."""
        folder = checkpoint.path.parent
        if self.path is None or folder.resolve() != self.path.resolve():
            return
        for _, path in RollingCheckpoints(folder).paths():
            try:
                config = load_metadata(path).get("config")
            except TensorBowError:  # damaged and skipped, or deleted meanwhile
                continue
            if isinstance(config, dict) and (differences := self.config.differences(config)):
                raise FailedPreconditionError(
                    f"{path} is of another run than {checkpoint.path.name} beside it: "
                    f"{'; '.join(differences)}; move those of one run away"
                )

    def _require_free(self, path: Path) -> None:
        """Refuses to overwrite a run that is not resumed."""
        saved = RollingCheckpoints(path).paths()
        if self.config.resume is None:
            if saved or (path / MODEL).exists():
                raise FailedPreconditionError(
                    f"output folder {path} holds a run already; add --resume auto (in a program "
                    "resume='auto') to go on with it, or choose another --output"
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
        """Creates the folder and its files; a resumed run keeps the metrics up to round `evaluated_at`.

        keep_config: keep the saved configuration, because there is nothing left to train.

        Raises ResourceExhaustedError or InvalidArgumentError if the folder cannot be written,
        FailedPreconditionError if another run is writing there.
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
        """Raises an error before training if a file that is written at its end cannot be written."""
        models = self.config.replicas if self.config.sync == "none" else 1
        files = [replica_file(path, replica) for replica in range(models)]
        if self.config.ema is not None:
            files.append(path / EMA_MODEL)
        if self.config.sync != "none":
            files.append(path / BEST_MODEL)
        for file in [*files, path / TUNING] if self.config.tunes else files:
            NewFile(file).discard()

    def _made(self, path: Path) -> Path:
        """Creates and locks the folder; returns its path, with a number if the default was taken meanwhile.

        Refuses a folder in which another run has finished meanwhile.
        """
        folders = numbered_folders(first_output(self.config)) if self._numbered else iter([path])
        for path in folders:
            try:
                make_folder(path, new=self._numbered)
                self._claim(path)
                break
            except (AlreadyExistsError, FailedPreconditionError):  # FailedPrecondition: another run locked it
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
        """Calls `write`, which writes into the folder; retries once if that may succeed."""
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
        """True if a write is worth a retry: a full disk has room now, or the file was deleted."""
        if isinstance(error, ResourceExhaustedError) and disk_is_full(error):
            return self._checkpoints is not None and self._checkpoints.make_room(self._round + 1)
        return isinstance(error.__cause__, FileNotFoundError)

    def _with_checkpoints_to_spare(self, error: TensorBowError) -> TensorBowError:
        """Adds advice to keep fewer checkpoints to a full disk's error, if more than the default are kept."""
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
        """Raises AbortedError if the path does not lead to the locked folder any more."""
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
        given = {"dataset": GIVEN_BY_PROGRAM, "data": None} if self._data_given else {}
        text = config_text({**self._described, **given})
        self._write(lambda: write_file(path / CONFIG, text.encode()))

    def _save_config_again(self, path: Path) -> bool:
        """Writes the configuration again if it was deleted; returns whether it was."""
        lost = not (path / CONFIG).exists()
        if lost:
            self._save_config(path)
        return lost

    def record(self, record: dict[str, Any]) -> list[str]:
        """Appends a record to the metrics; returns a warning for each file that was deleted meanwhile."""
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
        """Writes a rolling checkpoint. metadata: must have `round`; `best` and `sound` are never deleted."""
        checkpoints = self._checkpoints
        if checkpoints is not None:
            described = {**metadata, "config": self._described}
            round, spared = metadata["round"], _spared(metadata)
            self._write(lambda: checkpoints.save(round, arrays, described, spared))
            self._round = round

    @property
    def last_checkpoint(self) -> tuple[int, Path] | None:
        """Round and path of the newest checkpoint in the folder, or None."""
        saved = RollingCheckpoints(self.path).paths() if self.path is not None else []
        return saved[-1] if saved else None

    def holds(self, round: int | None) -> bool:
        """True if the folder has the checkpoint of a round."""
        kept = None if self.path is None or round is None else RollingCheckpoints(self.path).path_of(round)
        return kept is not None and kept.exists()

    def checkpoints(self) -> dict[int, Path]:
        """Checkpoints by round, oldest first: in this folder and in the one that the run was resumed from."""
        folders = [path for path in (self._resumed_in, self.path) if path is not None]
        return dict(sorted(item for folder in folders for item in RollingCheckpoints(folder).paths()))

    def save_tuning(self, facts: Mapping[str, Any]) -> None:
        """Writes the facts of the tuning to tuning.json, replacing earlier ones."""
        if self.path is not None:
            path, text = self.path / TUNING, json.dumps(facts, indent=1) + "\n"
            self._write(lambda: write_file(path, text.encode()))

    def save_graph(self, text: bytes, source: ModelSource) -> None:
        """Writes the inference graph of a user's model, with which it is used without its code, and, for
        people, a copy of its file.
        """
        if self.path is None:
            return
        path, code = self.path / GRAPH_FILE, source.code
        self._write(lambda: write_file(path, text))
        if source.file is not None and code is not None:
            copy, content = self.path / source.file.name, code
            self._write(lambda: write_file(copy, content))

    def save_confusion(self, report: ClassificationReport, title: str) -> None:
        """Writes the confusion matrix as a table, and where matplotlib is installed as a picture."""
        if self.path is not None:
            path = self.path / CONFUSION_TABLE
            self._write(lambda: write_file(path, report.csv().encode()))
            if has_matplotlib():
                self._write(lambda: report.draw(path.with_suffix(".png"), title))

    def save_model(
        self, values: Mapping[str, Array], metadata: dict[str, Any], replica: int = 0, kind: str = ""
    ) -> None:
        """Writes the variables (by name) of a model, replacing an earlier file.

        kind: file of a model that is no replica's: `EMA_MODEL`, of the moving average of z, or `BEST_MODEL`.
        """
        if self.path is not None:
            path = self.path / kind if kind else replica_file(self.path, replica)
            self._write(lambda: save_arrays(path, values, metadata))
            if kind != BEST_MODEL:  # during the run `record` does it, and says so
                self._save_config_again(self.path)

    def records(self) -> list[dict[str, Any]]:
        """Records of the metrics so far, of a resumed run; after `begin`."""
        if self.path is None or not (self.path / METRICS).exists():
            return []
        return read_metrics(self.path / METRICS)

    def remove_models(self, first: int) -> None:
        """Removes the models of replicas `first` and up: the run had more when it was interrupted."""
        while self.path is not None and (path := replica_file(self.path, first)).is_file():
            path.unlink()
            first += 1

    def close(self) -> None:
        """Unlocks the folder for other runs; idempotent."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def replica_file(folder: Path, replica: int) -> Path:
    """File of a replica's model, where replicas are independent."""
    return folder / (MODEL.replace(".", f"-replica{replica}.", 1) if replica else MODEL)


def _require_other_file(trace: Path, folder: Path) -> None:
    """Raises InvalidArgumentError if the trace's path is the run's folder or one of its files."""
    found, folder = Path(os.path.realpath(trace)), Path(os.path.realpath(folder))
    is_ours = found.name in (CONFIG, METRICS, TUNING) or found.suffix == Path(MODEL).suffix
    if found == folder or (found.parent == folder and is_ours):
        what = "its output folder" if found == folder else "a file of its own"
        raise InvalidArgumentError(f"trace: {shown(trace)} is where the run has {what}; choose another path")


def _spared(metadata: Mapping[str, Any]) -> set[int]:
    """Rounds of the checkpoints that are never deleted: the best one and the last sound one."""
    return {metadata[name] for name in ("best", "sound") if type(metadata.get(name)) is int}


def _identity(path: Path | int) -> tuple[int, int]:
    about = os.stat(path)
    return about.st_dev, about.st_ino


def lock_folder(folder: Path) -> int | None:
    """Locks a folder until the returned file descriptor is closed or the process ends.

    None where folders cannot be opened. Raises FailedPreconditionError if another run has the lock.
    """
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
