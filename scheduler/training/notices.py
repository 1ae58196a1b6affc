"""The lines that a training run says beside its figures: what is ignored, hopeless, done already or left."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from pathlib import Path

from scheduler.engine.results import RoundResults, TaskResult
from scheduler.options import options_of
from scheduler.training.config import TrainingConfig
from scheduler.training.run_folder import CONFIG, RunFolder
from scheduler.training.run_places import numbered_folders
from scheduler.training.tally import Tally, is_sound
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import NumericsError

HOPELESS = 1e6  # times the loss of a guess, log(classes)
LOWER = 10  # by this the learning rate is divided that a run which diverged is advised to go on with


def ignored_options(config: TrainingConfig) -> list[str]:
    """A line for each option that was given and changes nothing in this run."""
    plain = TrainingConfig(config.model)
    return [
        f"{option.flag} is ignored: {reason}"
        for name, option in options_of(TrainingConfig).items()
        if getattr(config, name) != getattr(plain, name) and (reason := option.ignored(config))
    ]


def dispatch_notice(config: TrainingConfig) -> str:
    """A line that a run with `fcfs` begins with, or nothing."""
    if not config.synchronisation.first_come or (config.replicas == 1 and not config.tunes):
        return ""
    return (
        "dispatch fcfs: each batch goes to the replica that is free first; timing decides which, so that two "
        "runs do not give the same bits"
    )


def epoch_text(epoch: float) -> str:
    """An epoch, to two decimals where it is not whole."""
    return f"{round(epoch, 2):g}" if epoch < 1e5 else f"{epoch:.0f}"


def loss_text(loss: float) -> str:
    """A loss to four decimals; one that diverges in short."""
    return f"{loss:.4f}" if loss < 1e6 else f"{loss:.4g}"


def epoch_line(config: TrainingConfig, tally: Tally, epoch: float, test_loss: float) -> str:
    """The figures of an epoch; its own images/s."""
    mean = " (mean)" if len(tally.test_accuracies or ()) > 1 else ""
    return (
        f"epoch {epoch_text(epoch):>3}/{config.epochs}  loss {loss_text(tally.loss)}  "
        f"accuracy {tally.accuracy:7.2%}  test loss {loss_text(test_loss)}  "
        f"test accuracy {tally.test_accuracy or 0.0:7.2%}{mean}  "
        f"{tally.epoch_images_per_second:,.0f} images/s"
    )


def nothing_left(config: TrainingConfig, tally: Tally, epoch: float) -> str | None:
    """Why a run has nothing left to train, so many epochs on; None when it has."""
    done = f"already at epoch {epoch_text(epoch)}"
    if epoch >= config.epochs:
        return f"{done}; --epochs {config.epochs} asks for no more"
    if tally.seconds_to_target is not None:
        return f"{done}; --target-accuracy {config.target_accuracy:g} is reached"
    if config.max_seconds is not None and tally.seconds >= config.max_seconds:
        return f"{done}, after {tally.seconds:.1f} s; --max-seconds {config.max_seconds:g} asks for no more"
    return None


class LossWatch:
    """Tells of losses that are finite and hopeless, once an epoch."""

    def __init__(self, classes: int, epoch_of: Callable[[int], int]):
        """epoch_of: the epoch of a round, counted from 0."""
        self._limit = HOPELESS * math.log(max(classes, 2))
        self._epoch_of = epoch_of
        self._told: int | None = None  # the last epoch it was told of, counted from 0

    def warnings(self, results: RoundResults) -> list[str]:
        """Lines for the losses of tasks that are to be told."""
        losses = results.losses
        if not any(map(self._limit.__lt__, losses)):
            return []
        return [line for task in results if (line := self._warning(task)) is not None]

    def _warning(self, task: TaskResult) -> str | None:
        loss, round = task.loss, task.round
        if not self._limit < loss < math.inf or (epoch := self._epoch_of(round)) == self._told:
            return None
        self._told = epoch
        return (
            f"warning: the loss of replica {task.replica} is {loss:.3g} at step {round}, far beyond a guess "
            f"({self._limit / HOPELESS:.2f}); lower the learning rate"
        )


def with_last_checkpoint(error: CudaError, checkpoint: tuple[int, Path] | None) -> CudaError:
    """The error of a GPU that ended a run, and from which step it can go on."""
    if checkpoint is None:
        kept = "no checkpoint had been written yet"
    else:
        step, path = checkpoint
        kept = (
            f"the last checkpoint is of step {step}, {path}; go on with --resume auto --output {path.parent}"
        )
    return CudaError(f"{error}; {kept}", error.status, error.sticky)


def with_way_on(
    error: NumericsError, folder: RunFolder, tally: Tally, classes: int, rate: float
) -> NumericsError:
    """The error of a run that diverged, and the command that goes on from a checkpoint of before.

    rate: the learning rate that the run began with.
    """
    if folder.path is None:
        return error
    kept, marked, advice = folder.checkpoints(), {}, "go on from"
    if tally.best in kept and is_sound(tally.best_loss, classes):
        marked[tally.best] = f"the best one, test accuracy {tally.best_accuracy or 0.0:.2%}"
    if tally.sound in kept:
        marked.setdefault(tally.sound, "the last sound one")
    if not marked:
        advice = "no checkpoint is known to be sound: start anew"
        if len(kept) < 2:
            return type(error)(f"{error}; {advice}")
        advice, marked = f"{advice}, or try", {min(kept): "the oldest one"}
    start, *others = marked
    elsewhere = next(path for path in numbered_folders(folder.path) if not os.path.lexists(path))
    options = {"config": folder.path / CONFIG, "resume": kept[start], "output": elsewhere}
    words = [word for name, path in options.items() for word in (f"--{name}", shlex.quote(str(path)))]
    command = f"tensorbow train {' '.join(words)} --learning-rate {rate / LOWER:.3g}"
    either = "".join(f"; or from {kept[round]} ({marked[round]})" for round in others)
    return type(error)(
        f"{error}; {advice} the checkpoint of step {start} ({marked[start]}) by: {command}{either}"
    )
