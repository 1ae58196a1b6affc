"""Messages of a training run: ignored options, hopeless losses, finished runs, ways to resume."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Collection
from pathlib import Path

from scheduler.engine.results import RoundResults, TaskResult
from scheduler.options import options_of
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.option_dependencies import ALONE
from scheduler.training.folders.output_folders import numbered_folders
from scheduler.training.folders.run_folder import CONFIG, RunFolder
from scheduler.training.measures.tally import Tally, is_sound
from scheduler.training.models.evaluation import ACCURACY
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import NumericsError

HOPELESS = 1e6  # losses above this many times the loss of a guess, log(classes), get a warning
LOWER = 10  # a diverged run is advised to divide its learning rate by this


def ignored_options(
    config: TrainingConfig, more_replicas: bool = False, names: Collection[str] | None = None
) -> list[str]:
    """A line for each option that differs from its default and has no effect in this run.

    more_replicas: whether there are replicas beside the configuration's, as those of other workers.
    names: only of these options.
    """
    few = ALONE if more_replicas else None
    plain = TrainingConfig(config.model, config.model_options, None if config.data else config.dataset)
    return [
        f"{option.flag} is ignored: {reason}"
        for name, option in options_of(TrainingConfig).items()
        if (names is None or name in names)
        and getattr(config, name) != getattr(plain, name)
        and (reason := option.ignored(config)) not in ("", few)
    ]


def dispatch_notice(config: TrainingConfig) -> str:
    """First line of a run with `fcfs`: it is not reproducible. Empty for other runs."""
    if not config.synchronisation.first_come or (config.replicas == 1 and not config.tunes):
        return ""
    return (
        "dispatch fcfs: each batch goes to the replica that is free first; not reproducible: the assignment "
        "depends on timing"
    )


def epoch_text(epoch: float) -> str:
    """An epoch as text, with two decimals if it is not whole."""
    return f"{round(epoch, 2):g}" if epoch < 1e5 else f"{epoch:.0f}"


def loss_text(loss: float) -> str:
    """A loss as text, with four decimals; from 1,000 on with one, from 1e6 on in scientific notation."""
    return f"{loss:.4f}" if loss < 1e3 else f"{loss:.1f}" if loss < 1e6 else f"{loss:.4g}"


def metric_text(name: str, value: float) -> str:
    """A metric as text; accuracies, also those of topK, precision, recall and F1 in percent."""
    is_share = name.endswith((ACCURACY, "precision", "recall", "f1")) or re.search(r"\btop\d+$", name)
    return f"{value:7.2%}" if is_share else loss_text(value)


def epoch_line(config: TrainingConfig, tally: Tally, epoch: float, split: str, unit: str) -> str:
    """Line with the figures of an epoch; the rate is that of this epoch alone.

    split: the evaluated one. unit: of the training data, such as images.
    """
    mean = " (mean)" if config.sync == "none" and config.replicas > 1 else ""
    ema = "" if tally.ema_accuracy is None else f"  ema accuracy {tally.ema_accuracy:7.2%}"
    figures = {
        "loss": tally.loss,
        **tally.metrics,
        **{f"{split} {name}": value for name, value in tally.test_metrics.items()},
    }
    texts = [f"{name} {metric_text(name, value)}" for name, value in figures.items()]
    return (
        f"epoch {epoch_text(epoch):>3}/{config.epochs}  {'  '.join(texts)}{mean}{ema}  "
        f"{tally.epoch_images_per_second:,.0f} {unit}/s"
    )


class LossWatch:
    """Warns of losses that are finite but hopeless, once per epoch."""

    def __init__(self, classes: int | None, epoch_of: Callable[[int], int]):
        """classes: None if the loss of a guess is not known. epoch_of: maps a round to its epoch, from 0."""
        self._limit = math.inf if classes is None else HOPELESS * math.log(max(classes, 2))
        self._epoch_of = epoch_of
        self._told: int | None = None  # last epoch with a warning, from 0

    def warnings(self, results: RoundResults) -> list[str]:
        """Warnings for the losses of these tasks."""
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
    """Copy of a GPU's error that also names the checkpoint (step, path) to resume from."""
    if checkpoint is None:
        kept = "no checkpoint had been written yet"
    else:
        step, path = checkpoint
        kept = (
            f"the last checkpoint is of step {step}, {path}; go on with --resume auto --output {path.parent}"
        )
    return CudaError(f"{error}; {kept}", error.status, error.sticky)


def with_way_on(
    error: NumericsError, folder: RunFolder, tally: Tally, classes: int | None, rate: float
) -> NumericsError:
    """Copy of a diverged run's error that also has a command to resume from an earlier checkpoint.

    rate: the initial learning rate of the run.
    """
    if folder.path is None:
        return error
    kept, marked, advice = folder.checkpoints(), {}, "go on from"
    if tally.best in kept and is_sound(tally.best_loss, classes):
        best = (
            f"test loss {loss_text(tally.best_loss or 0.0)}"
            if tally.best_accuracy is None
            else f"test accuracy {tally.best_accuracy:.2%}"
        )
        marked[tally.best] = f"the best one, {best}"
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
