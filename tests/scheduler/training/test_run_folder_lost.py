"""Folders that are taken, deleted, moved, full or hold what are no files."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import scheduler.training.folders.run_folder as run_folder
from scheduler import Trainer, TrainingConfig, TrainingResult
from scheduler.training.folders.output_folders import default_output, numbered_folders
from scheduler.training.folders.run_folder import RunFolder
from scheduler.training.measures.tally import Tally
from tensorbow.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    TensorBowError,
)
from tensorbow.training import RollingCheckpoints, TrainingProgress

Options = Callable[..., TrainingConfig]
Run = Callable[..., TrainingResult]
Metrics = Callable[[Path], list[dict[str, Any]]]


def save(folder: RunFolder, round: int, **marks: Any) -> None:
    folder.save_checkpoint({"w": np.zeros(2)}, asdict(Tally(round=round, **marks)))


def rounds(folder: Path) -> list[int]:
    return [round for round, _ in RollingCheckpoints(folder).paths()]


needs_permissions = pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")


# A folder for a run that names none ---------------------------------------------------------------------


@pytest.fixture
def fresh(options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunFolder]:
    """The folder of a run that was started without one, before it has begun."""
    monkeypatch.chdir(tmp_path)

    def make(**given: Any) -> RunFolder:
        config = options(**given)
        return RunFolder(options(output=default_output(config), **given), numbered=True)

    return make


@pytest.mark.parametrize("resume", [None, "auto"])
def test_runs_that_start_at_once_have_a_folder_each(
    fresh: Callable[..., RunFolder], resume: str | None
) -> None:
    started = [fresh(resume=resume) for _ in range(5)]
    for round, folder in enumerate(started, 1):
        folder.begin(0)
        save(folder, round)
    names = ["logreg-synthetic", *(f"logreg-synthetic-{number}" for number in (2, 3, 4, 5))]
    assert [folder.path for folder in started] == [Path("runs", name) for name in names]
    for round, folder in enumerate(started, 1):
        assert folder.path is not None
        assert rounds(folder.path) == [round]
        assert yaml.safe_load((folder.path / "config.yaml").read_text())["output"] == str(folder.path)
        folder.close()


def test_the_last_folder_is_gone_on_with_unless_it_is_in_use(fresh: Callable[..., RunFolder]) -> None:
    first, second = fresh(), fresh()
    for folder in (first, second):
        folder.begin(0)
    early = fresh(resume="auto")  # before the second has anything to go on from
    early.begin(0)
    assert early.path == Path("runs/logreg-synthetic-3")
    save(early, 7)
    with pytest.raises(FailedPreconditionError, match="another run is writing there"):
        fresh(resume="auto")
    early.close()
    late = fresh(resume="auto")
    late.begin(0)
    assert late.path == early.path
    for folder in (first, second, late):
        folder.close()


def test_a_folder_that_appeared_since_is_left_alone(fresh: Callable[..., RunFolder]) -> None:
    """Another run began and ended, or somebody put a file there."""
    first, second, third = fresh(), fresh(), fresh()
    first.begin(0)
    save(first, 7)
    first.close()
    Path("runs/logreg-synthetic-2").write_text("")
    Path("runs/logreg-synthetic-3").symlink_to("nowhere")
    for folder in (second, third):
        folder.begin(0)
        folder.close()
    assert rounds(Path("runs/logreg-synthetic")) == [7]
    assert (second.path, third.path) == (Path("runs/logreg-synthetic-4"), Path("runs/logreg-synthetic-5"))


@pytest.mark.slow
def test_a_run_says_where_it_is(options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = options(output="runs/logreg-synthetic", epochs=1)
    with Trainer(config, numbered=True) as first, Trainer(config, numbered=True) as second:
        for trainer in (first, second):
            assert trainer.train().steps == 7
            assert trainer.folder.path is not None
            assert (trainer.folder.path / "model.safetensors").exists()
        assert first.folder.path != second.folder.path


@pytest.mark.parametrize("name", ["run", ".", "..", "a/..", "a" * 254])
def test_a_folder_beside_another_has_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "in" / "a")
    first, second, third = itertools.islice(numbered_folders(Path(name)), 3)
    assert first == Path(name)
    assert second.parent.resolve() == third.parent.resolve() == first.resolve().parent
    assert [second.name, third.name] == [f"{first.resolve().name}-{number}" for number in (2, 3)]


# A folder that is lost on the way ------------------------------------------------------------------------


def delete(path: Path) -> None:
    shutil.rmtree(path)


def make_again(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replace_by_a_file(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.write_text("")


LOSSES = {
    delete: "run' was deleted while the run was writing there: .* is lost; start anew, in a folder that",
    make_again: "run' was deleted and made again while the run",
    move: "run' was moved or deleted while .*; if it was moved, go on from where it is now by --resume auto",
    replace_by_a_file: "run' was moved or deleted and made again while",
}
WRITES: dict[str, Callable[[RunFolder], object]] = {
    "metrics": lambda folder: folder.record({"round": 9}),
    "checkpoint": lambda folder: save(folder, 9),
    "tuning": lambda folder: folder.save_tuning({}),
    "model": lambda folder: folder.save_model({"w": np.zeros(2)}, {}),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
@pytest.mark.parametrize("write", WRITES)
def test_a_folder_that_is_lost_ends_the_run(
    tmp_path: Path, options: Options, lose: Callable[[Path], None], write: str
) -> None:
    path = tmp_path / "run"
    folder = RunFolder(options(output=path))
    folder.begin(0)
    save(folder, 7)
    lose(path)
    with pytest.raises(AbortedError, match=LOSSES[lose]):
        WRITES[write](folder)
    folder.close()
    assert not path.is_dir() or not list(path.iterdir())
    assert not path.with_name("elsewhere").exists() or rounds(path.with_name("elsewhere")) == [7]


def test_a_folder_that_is_replaced_during_a_write_ends_the_run(
    tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(options(output=tmp_path / "run"))
    folder.begin(0)
    write_file = run_folder.write_file

    def slow(path: Path, blob: bytes) -> None:
        make_again(path.parent)
        write_file(path, blob)

    monkeypatch.setattr(run_folder, "write_file", slow)
    with pytest.raises(AbortedError, match="was deleted and made again"):
        folder.save_tuning({})
    folder.close()


def test_a_file_that_is_deleted_while_it_is_written_is_written_again(
    tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(options(output=tmp_path))
    folder.begin(0)
    replace, calls = os.replace, []

    def overtaken(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 1:
            source.unlink()
        replace(source, target)

    monkeypatch.setattr(os, "replace", overtaken)
    save(folder, 7)
    assert (rounds(tmp_path), len(calls)) == ([7], 2)
    folder.close()


def test_a_run_whose_folder_is_deleted_ends_at_its_next_save(tmp_path: Path, options: Options) -> None:
    class Deletes(TrainingProgress):
        def line(self, text: str) -> None:
            if text.startswith("epoch   2"):
                make_again(tmp_path / "run")

    config = options(output=tmp_path / "run", epochs=9)
    with Trainer(config, Deletes()) as trainer, pytest.raises(AbortedError, match="was deleted and made"):
        trainer.train()
    assert not list((tmp_path / "run").iterdir())


def test_files_that_are_deleted_are_made_again_and_told(
    tmp_path: Path, options: Options, metrics: Metrics
) -> None:
    class Empties(TrainingProgress):
        def __init__(self) -> None:
            super().__init__()
            self.lines: list[str] = []

        def line(self, text: str) -> None:
            self.lines.append(text)
            if text.startswith("epoch   2"):
                for path in tmp_path.iterdir():
                    path.unlink()
            if text.startswith("epoch   4"):
                (tmp_path / "config.yaml").unlink()

    progress = Empties()
    with Trainer(options(output=tmp_path, epochs=4), progress) as trainer:
        trainer.train()
    assert [line for line in progress.lines if "deleted" in line] == [
        f"warning: {tmp_path / 'config.yaml'} was deleted; it is written again",
        f"warning: {tmp_path / 'metrics.jsonl'} was deleted; it begins anew with round 21",
    ]
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["epochs"] == 4
    assert [record["round"] for record in metrics(tmp_path)] == [21, 28]
    assert rounds(tmp_path)[-1] == 28


# A full disk ---------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[list[int]]]:
    """A disk under `run` with room for so many bytes more; what it gives fills with the rounds of the
    checkpoints that were there whenever it was full.
    """
    fsync, folder = os.fsync, tmp_path / "run"

    def used() -> int:
        return sum(path.stat().st_size for path in folder.iterdir())

    def limited(free: int) -> list[list[int]]:
        limit, refused = used() + free, []

        def full(handle: int) -> None:
            if used() > limit:
                refused.append(rounds(folder))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(handle)

        monkeypatch.setattr(os, "fsync", full)
        return refused

    return limited


@pytest.mark.slow
def test_a_full_disk_with_many_checkpoints_gets_going(
    tmp_path: Path, run: Run, metrics: Metrics, disk: Callable[[int], list[list[int]]]
) -> None:
    run(output=tmp_path / "whole", epochs=16)
    run(output=tmp_path / "run", epochs=14, keep_checkpoints=20)
    assert len(rounds(tmp_path / "run")) == 14
    refused = disk(0)
    run(output=tmp_path / "run", epochs=16, resume="auto", keep_checkpoints=3)
    assert refused[0] == [*range(7, 99, 7)]  # when the configuration was to be written
    assert all(98 in there for there in refused)
    assert rounds(tmp_path / "run")[-3:] == [98, 105, 112]
    assert len(rounds(tmp_path / "run")) <= 4
    name = "model.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


@pytest.mark.slow
def test_a_disk_that_stays_full_costs_no_checkpoint_that_is_needed(
    tmp_path: Path, run: Run, disk: Callable[[int], list[list[int]]]
) -> None:
    run(output=tmp_path / "run", epochs=4, keep_checkpoints=4)
    best = RollingCheckpoints(tmp_path / "run").newest()[0].metadata["best"]  # type: ignore[union-attr]
    disk(-(1 << 30))
    for keep in (3, 1):
        with pytest.raises(ResourceExhaustedError, match="No space left on device"):
            run(output=tmp_path / "run", epochs=9, resume="auto", keep_checkpoints=keep)
        assert {best, 21, 28} <= set(rounds(tmp_path / "run"))


@pytest.mark.slow
def test_a_full_disk_costs_none_that_are_to_be_kept_and_the_way_to_space_is_told(
    tmp_path: Path, run: Run, disk: Callable[[int], list[list[int]]]
) -> None:
    run(output=tmp_path / "run", epochs=6, keep_checkpoints=20)
    disk(0)
    with pytest.raises(ResourceExhaustedError, match=r"there are 6 checkpoints, .* --keep-checkpoints 2 del"):
        run(output=tmp_path / "run", epochs=8, resume="auto", keep_checkpoints=20)
    assert rounds(tmp_path / "run") == [*range(7, 43, 7)]
    run(output=tmp_path / "run", epochs=8, resume="auto", keep_checkpoints=2)
    assert rounds(tmp_path / "run")[-2:] == [49, 56]


def test_only_a_full_disk_costs_checkpoints(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(output=tmp_path, epochs=4, keep_checkpoints=4)

    def refuse(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(ResourceExhaustedError, match="Input/output error"):
        run(output=tmp_path, epochs=9, resume="auto", keep_checkpoints=1)
    assert rounds(tmp_path) == [7, 14, 21, 28]


# What is no file -----------------------------------------------------------------------------------------


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")  # refused before anything is read or written


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


def contents(folder: Path) -> dict[str, object]:
    """Bytes of each file, kind of everything else."""
    return {
        path.name: path.read_bytes() if path.is_file() else os.lstat(path).st_mode
        for path in folder.iterdir()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "model.safetensors", "tuning.json"])
@pytest.mark.parametrize("make", [a_fifo, a_folder, a_link_to_a_device, a_loop], ids=lambda m: m.__name__)
def test_what_is_no_file_is_refused_before_anything_is_trained(
    tmp_path: Path, options: Options, run: Run, make: Callable[[Path], None], name: str
) -> None:
    given: dict[str, Any] = {"replicas_per_device": "auto" if name == "tuning.json" else 2}
    (tmp_path / "new").mkdir()
    run(output=tmp_path / "old", epochs=1, **given)
    for folder, resume in ((tmp_path / "new", None), (tmp_path / "old", "auto")):
        (folder / name).unlink(missing_ok=True)
        make(folder / name)
        before = contents(folder)
        with pytest.raises(TensorBowError, match=rf"{folder / name}'|holds a run already") as caught:
            Trainer(options(output=folder, epochs=3, resume=resume, **given))
        assert "\n" not in str(caught.value)
        assert {entry: contents(folder)[entry] for entry in before} == before


def test_a_replica_s_model_that_cannot_be_written(tmp_path: Path, options: Options) -> None:
    a_fifo(tmp_path / "model-replica1.safetensors")
    with pytest.raises(InvalidArgumentError, match=r"model-replica1.safetensors': expected a regular file"):
        Trainer(options(output=tmp_path, sync="none"))


@needs_permissions
def test_what_may_not_be_written_is_known_before_anything_is_trained(
    tmp_path: Path, options: Options, run: Run
) -> None:
    run(output=tmp_path, epochs=1)
    (tmp_path / "metrics.jsonl").chmod(0o444)
    with pytest.raises(ResourceExhaustedError, match=r"cannot write '.*metrics.jsonl': Permission denied"):
        Trainer(options(output=tmp_path, epochs=3, resume="auto"))
    (tmp_path / "metrics.jsonl").chmod(0o644)
    tmp_path.chmod(0o500)
    with pytest.raises(ResourceExhaustedError, match=r"cannot write '.*config.yaml': Permission denied"):
        Trainer(options(output=tmp_path, epochs=3, resume="auto"))
    tmp_path.chmod(0o300)
    with pytest.raises(
        FailedPreconditionError, match=r"cannot look for checkpoints in .*: Permission denied"
    ):
        Trainer(options(output=tmp_path, epochs=3, resume="auto"))
    tmp_path.chmod(0o700)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", [a_fifo, a_folder, a_loop], ids=lambda m: m.__name__)
def test_a_checkpoint_s_name_may_be_taken_by_what_is_no_file(
    tmp_path: Path, options: Options, run: Run, make: Callable[[Path], None]
) -> None:
    run(output=tmp_path, epochs=1)
    make(tmp_path / "checkpoint-000000014.safetensors")
    with Trainer(options(output=tmp_path, epochs=4, resume="auto")) as trainer:
        (warning,) = trainer.folder.warnings
        assert "checkpoint-000000014.safetensors" in warning
        with pytest.raises(TensorBowError, match=r"cannot write '.*checkpoint-000000014.safetensors'"):
            trainer.train()
    assert RollingCheckpoints(tmp_path).path_of(7).is_file()
