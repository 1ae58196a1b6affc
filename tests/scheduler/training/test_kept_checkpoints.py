"""Retention of checkpoints, the error of a run that diverged, and resuming from the kept checkpoints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler import Evaluation, Evaluator, Trainer, TrainingConfig, TrainingResult
from scheduler.training.measures.tally import Tally
from tensorbow.cli.options import resolve_options
from tensorbow.errors import NumericsError
from tensorbow.training import RollingCheckpoints, load_arrays, save_arrays

Options = Callable[..., TrainingConfig]
Run = Callable[..., TrainingResult]

# The weights grow 18-fold with each step: for some 30 steps all is finite.
EXPLODING: dict[str, Any] = {"learning_rate": 0.2, "weight_decay": 100.0, "checkpoint_rounds": 1}


def rounds(folder: Path) -> list[int]:
    return [round for round, _ in RollingCheckpoints(folder).paths()]


def newest(folder: Path) -> Tally:
    return Tally.from_metadata(load_arrays(RollingCheckpoints(folder).paths()[-1][1])[1])


def advised(error: BaseException) -> TrainingConfig:
    """The run that the command in an error begins, as the command line resolves it."""
    match = re.search(r"by: tensorbow train (.*?)(; or from|$)", str(error))
    assert match is not None
    words = shlex.split(match[1])
    given: dict[str, Any] = {
        name.lstrip("-"): value for name, value in zip(words[::2], words[1::2], strict=True)
    }
    given["learning_rate"] = float(given.pop("learning-rate"))
    return resolve_options(given, Path(given.pop("config")))


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has the evaluations to come end so: pairs of a test loss and accuracy."""

    def evaluation(loss: float, accuracy: float) -> Evaluation:
        return Evaluation(loss, {"accuracy": accuracy})

    def to_come(*results: tuple[float, float]) -> None:
        left = iter(results)
        monkeypatch.setattr(Evaluator, "evaluate", lambda *_: evaluation(*next(left)))

    return to_come


@pytest.mark.slow
def test_a_run_that_explodes_keeps_what_was_sound_and_says_how_to_go_on(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "run"
    run(output=folder, epochs=3)
    best = newest(folder).best
    for _ in range(2):  # the second from weights that have exploded
        with pytest.raises(NumericsError, match="is not finite at step") as caught:
            run(output=folder, epochs=20, resume="auto", **EXPLODING)
        marks, kept = newest(folder), rounds(folder)
        assert marks.best == best
        assert marks.sound is not None
        assert kept == sorted({best, marks.sound, *kept[-2:]})
        assert marks.sound < kept[-2]
        assert f"or from {folder / f'checkpoint-{marks.sound:09d}.safetensors'}" in str(caught.value)
        assert "\n" not in str(caught.value)
    config = advised(caught.value)
    assert config.output == str(tmp_path / "run-2")
    assert (config.epochs, config.learning_rate, config.weight_decay) == (20, 0.02, 100.0)
    with Trainer(config) as trainer:
        assert trainer.train().steps == 140


@pytest.mark.slow
def test_a_run_that_explodes_at_once_has_nothing_to_go_on_from(tmp_path: Path, run: Run) -> None:
    given = {**EXPLODING, "learning_rate": 1e5, "replicas_per_device": 1}
    with pytest.raises(NumericsError, match=r"known to be sound: start anew, or try the checkpoint of step"):
        run(output=tmp_path / "some", epochs=2, **given)
    with pytest.raises(NumericsError, match=r"known to be sound: start anew$"):
        run(output=tmp_path / "none", epochs=2, **{**given, "checkpoint_rounds": None})
    with pytest.raises(NumericsError, match=r"by on_nan='skip' \(--on-nan skip\)$"):
        run(epochs=2, **given)


def test_the_best_one_stays_however_long_ago_it_was(
    tmp_path: Path, run: Run, evaluations: Callable[..., None]
) -> None:
    evaluations((1.0, 0.5), (1.0, 0.75), (0.5, 0.75), (0.5, 0.75), (0.1, 0.25), (float("nan"), 0.75))
    run(output=tmp_path, epochs=6, on_nan="skip", keep_checkpoints=1)
    assert rounds(tmp_path) == [21, 35, 42]  # the best, the last sound one, the newest
    assert (newest(tmp_path).best, newest(tmp_path).best_loss, newest(tmp_path).sound) == (21, 0.5, 35)
    evaluations((1.0, 0.8), (1.0, 0.1))
    run(output=tmp_path, epochs=8, resume="auto")
    assert rounds(tmp_path) == [49, 56]  # both marks are among the newest: they count once


def test_a_best_one_that_is_gone_is_forgotten(
    tmp_path: Path, run: Run, evaluations: Callable[..., None]
) -> None:
    evaluations((1.0, 0.9), (1.0, 0.5))
    run(output=tmp_path, epochs=1)
    (tmp_path / "checkpoint-000000007.safetensors").rename(tmp_path / "kept.safetensors")
    run(output=tmp_path / "other", epochs=2, resume=tmp_path / "kept.safetensors")
    assert newest(tmp_path / "other").best == 14


def test_going_on_from_the_best_one_gives_the_bits_of_the_whole_run(
    tmp_path: Path, run: Run, evaluations: Callable[..., None], model: Callable[[Path], dict[str, Any]]
) -> None:
    evaluations((1.0, 0.9), *[(1.0, 0.5)] * 8)
    run(output=tmp_path / "whole", epochs=5)
    assert rounds(tmp_path / "whole") == [7, 28, 35]
    best = tmp_path / "whole" / "checkpoint-000000007.safetensors"
    run(output=tmp_path / "branch", epochs=5, resume=best)
    files = [tmp_path / folder / "model.safetensors" for folder in ("whole", "branch")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_checkpoints_of_an_older_version_have_no_marks(
    tmp_path: Path, run: Run, evaluations: Callable[..., None]
) -> None:
    evaluations((1.0, 0.9))
    run(output=tmp_path, epochs=1)
    path = tmp_path / "checkpoint-000000007.safetensors"
    arrays, metadata = load_arrays(path)
    for name in ("best", "best_accuracy", "best_loss", "sound", "made_with"):
        del metadata[name]
    save_arrays(path, arrays, metadata)
    evaluations((1.0, 0.5), (1.0, 0.5), (1.0, 0.5))
    run(output=tmp_path, epochs=4, resume="auto")
    assert rounds(tmp_path) == [7, 21, 28]


@pytest.mark.parametrize("value", [-1, "7", 7.5, True, [7]], ids=str)
def test_marks_that_cannot_be_are_refused(tmp_path: Path, run: Run, value: Any) -> None:
    with pytest.raises(Exception, match="best cannot be"):
        Tally.from_metadata({**vars(Tally()), "best": value})


def test_a_loss_within_bounds_is_sound() -> None:
    guess = 2.302585  # log(10)
    for loss, sound in ((0.0, 7), (2 * guess, 7), (2.01 * guess, None), (float("inf"), None)):
        tally = Tally(round=14)
        tally.mark_sound(7, loss, classes=10)
        assert tally.sound == sound
    tally.mark_sound(7, float("nan"), classes=10)
    tally.mark_sound(0, 0.0, classes=10)  # where there is no checkpoint
    assert tally.sound is None
