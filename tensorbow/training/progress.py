"""Progress display of training: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

TERMINAL = "TENSORBOW_TERMINAL"  # environment variable of workers: whether worker 0 prints on a terminal
SMOOTHING = 0.98  # decay per task of the moving averages of loss and accuracy
REFRESH_S = 0.1  # least time between two updates of the bar's figures
QUIET_S = 10.0  # without a bar, longest time between two lines while rounds end
FIGURES_WIDTH = 76  # columns of the text beside the bar
SETTING_WIDTH = 28  # further columns for learning rate and replicas, on wide terminals
BAR_WIDTHS = (4, 24)  # least and greatest width in columns


def console_of_worker(quiet: bool = False, stderr: bool = False) -> Console:
    """Console on standard output or error; of a worker that mpirun has started, whose terminal is its own.

    Such a worker always sees a terminal, and its lines may go to a file: TENSORBOW_TERMINAL is 1 or 0 there.
    quiet: it shows nothing.
    """
    terminal = {"1": True, "0": False}.get(os.environ.get(TERMINAL, ""))
    return Console(quiet=quiet, stderr=stderr, force_terminal=terminal)


class TrainingProgress:
    """Shows loss, a metric, learning rate, number of replicas and examples/s; without a console, nothing.

    Without a terminal, it prints a line every `QUIET_S` seconds during long epochs.

    If output cannot be written (its reader is gone, the disk is full), no exception is raised: `failure` is
    set, and the trainer stops.
    """

    def __init__(self, console: Console | None = None):
        self._console = console
        self.unit = "examples"  # name of what the rate counts, such as images
        self._bar: Progress | None = None
        self._task: Any = None
        self._loss = self._figure = 0.0
        self._metric = ""  # name of the metric beside the loss
        self._weight = 0.0
        self._examples = 0
        self._started = self._shown = self._told = 0.0
        self._total = 0
        self._setting, self._has_room = "", True
        self.failure: OSError | None = None

    @classmethod
    def on_standard_output(cls) -> TrainingProgress:
        """A display on standard output."""
        return cls(console_of_worker())

    def start(self, epochs: float, rounds_per_epoch: int, first_round: int) -> None:
        """Starts the display of a run of `epochs` epochs, at round `first_round`."""
        console = self._console
        self._total = round(epochs * rounds_per_epoch)
        self._told = time.perf_counter()
        if console is None or not console.is_terminal or console.is_dumb_terminal:
            return
        self._has_room = console.width >= FIGURES_WIDTH + SETTING_WIDTH + BAR_WIDTHS[0]
        taken = FIGURES_WIDTH + (SETTING_WIDTH if self._has_room else 0)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=max(BAR_WIDTHS[0], min(console.width - taken, BAR_WIDTHS[1]))),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            refresh_per_second=4,
        )
        self._bar.start()
        self._task = self._bar.add_task("round", total=self._total, completed=first_round, figures="")

    def expect(self, rounds: int) -> None:
        """Sets the total number of rounds of the run."""
        self._total = rounds
        if self._bar is not None:
            self._bar.update(self._task, total=rounds)

    def set(self, learning_rate: float, replicas: int) -> None:
        """Sets the learning rate and the number of replicas to show from now on."""
        self._setting = f"rate {learning_rate:.3g}  {replicas} replica{'' if replicas == 1 else 's'}  "

    def resume_clock(self) -> None:
        """Restarts the measurement of the rate, after an evaluation or a checkpoint."""
        self._examples = 0
        self._started = time.perf_counter()

    def tasks(self, losses: Sequence[float], metrics: Mapping[str, Sequence[float]], examples: int) -> None:
        """Adds tasks of `examples` examples each; those whose loss is not finite count only for the rate.

        metrics: by name, means of each task's batch; "accuracy", or else the first, is shown.
        """
        self._examples += examples * len(losses)
        weight, mean, figure = self._weight, self._loss, self._figure
        self._metric = "accuracy" if "accuracy" in metrics else next(iter(metrics), "")
        for loss, value in zip(losses, metrics.get(self._metric, losses), strict=True):
            if -math.inf < loss < math.inf:
                weight = SMOOTHING * weight + 1
                mean += (loss - mean) / weight
                figure += (value - figure) / weight
        self._weight, self._loss, self._figure = weight, mean, figure

    def rounds(self, finished: int) -> None:
        """Updates the display: `finished` rounds have ended in total."""
        now = time.perf_counter()
        if now - self._shown < REFRESH_S or (self._bar is None and now - self._told < QUIET_S):
            return
        self._shown = now
        seconds = now - self._started
        rate = self._examples / seconds if seconds > 0 else 0.0
        value = f"{self._figure:6.2%}" if self._metric.endswith("accuracy") else f"{self._figure:.4f}"
        metric = f"{self._metric} {value}  " if self._metric else ""
        setting = self._setting if self._has_room else ""
        figures = f"loss {self._loss:.4f}  {metric}{setting}{rate:,.0f} {self.unit}/s"
        if self._bar is None:
            self.line(f"round {finished:,}/{self._total:,}  {figures}")
        else:
            self._bar.update(self._task, completed=finished, figures=figures)

    def evaluating(self, examples: int) -> None:
        """Shows that an evaluation begins; without a bar, only after at least `QUIET_S` of training."""
        words = f"evaluating on {examples:,} examples"
        if self._bar is not None:
            self._bar.update(self._task, figures=words)
        elif time.perf_counter() - self._started >= QUIET_S:
            self.line(words)

    def line(self, text: str) -> None:
        """Prints a permanent line, with control characters escaped."""
        self._told = time.perf_counter()
        if self._console is None or self.failure is not None:
            return
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
        try:
            self._console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)
        except OSError as error:
            self._fail(error)
        except SystemExit:  # rich raises it for a broken pipe
            self._fail(BrokenPipeError("nobody reads standard output any more"))

    def _fail(self, error: OSError) -> None:
        self.failure = error
        self._bar = None

    def stop(self) -> None:
        """Removes the bar."""
        bar, self._bar = self._bar, None
        if bar is not None:
            try:
                bar.stop()
            except (OSError, SystemExit):
                self._fail(OSError("the terminal is gone"))
