"""Tracing some rounds of a training run to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from scheduler.engine.results import RoundResults
from tensorbow.errors import ResourceExhaustedError
from tensorbow.timeline import TraceFile, Tracer

DEFAULT_ROUNDS = 100  # number of rounds traced by default, from the run's first


class RunTrace:
    """Traces some rounds of a run if a file is given; `save` writes the trace.

    `rounds` is the traced range. A resumed run counts rounds from the start of the original run.
    """

    def __init__(self, path: str | None, rounds: tuple[int, int] | None, batch_size: int):
        """rounds: (first, stop); None traces the first DEFAULT_ROUNDS of the run."""
        self._path = None if path is None else Path(path)
        self._asked = rounds
        self._batch_size = batch_size
        self.unit = "examples"  # name of what the rate counts
        self._file: TraceFile | None = None
        self._tracer = Tracer()
        self.rounds = range(0)
        self._last = -1  # last traced round with results
        self._ended_s: float | None = None  # time at which it ended

    def claim_early(self, output: Path | None) -> None:
        """Opens the file, unless its folder is the output folder and does not exist yet; then `begin` does.

        Raises InvalidArgumentError for a file that cannot be written.
        """
        if self._path is None:
            return
        is_there = self._path.parent.is_dir()
        if is_there or output is None or self._path.parent.resolve() != output.resolve():
            self._file = TraceFile(self._path)

    def begin(self, round: int) -> None:
        """Sets the first round of this run and opens the file. Raises what `claim_early` raises."""
        if self._path is None:
            return
        self._file = self._file or TraceFile(self._path)
        self.rounds = range(*self._asked) if self._asked else range(round, round + DEFAULT_ROUNDS)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, AbstractContextManager[None]]]:
        """Splits rounds `start` to `stop` - 1 where tracing begins and ends.

        Yields for each piece the round to stop before, and the context to train it in.
        """
        inner = {self.rounds.start, self.rounds.stop} if self.rounds else set()
        for end in sorted({edge for edge in inner if start < edge < stop} | {stop}):
            yield end, self._recording() if start in self.rounds else nullcontext()
            start = end

    @contextmanager
    def _recording(self) -> Iterator[None]:
        self._ended_s = None
        self._tracer.start()
        try:
            yield
        finally:
            self._tracer.stop()

    def on_results(self, results: RoundResults) -> None:
        """Records examples per second, launch by launch."""
        if results.rounds.start in self.rounds:
            ended_s = max(results.times_s)
            if self._ended_s is not None and ended_s > self._ended_s:
                rate = len(results.losses) * self._batch_size / (ended_s - self._ended_s)
                self._tracer.count(f"{self.unit}/s", ended_s, round(rate, 1))
            self._last, self._ended_s = results.rounds[-1], max(ended_s, self._ended_s or ended_s)

    def save(self, say: Callable[[str], None], failing: bool) -> None:
        """Writes the file once, and reports its content by `say`.

        Raises ResourceExhaustedError if it cannot be written; with failing, because the run itself ends with
        an error, this is only a warning.
        """
        file, self._file = self._file, None
        if file is None:
            return
        tracer, rounds = self._tracer, self.rounds
        try:
            file.save(tracer)
        except ResourceExhaustedError as error:
            if not failing:
                raise
            say(f"warning: {error}")
            return
        if not tracer.spans:
            say(f"the trace in {file.path} is empty: round {rounds.start} was not reached")
            return
        left_out = f", {tracer.dropped:,} more are left out: trace fewer rounds" if tracer.dropped else ""
        say(
            f"trace of rounds {rounds.start} to {max(rounds.start, self._last)} in {file.path}: "
            f"{len(tracer.spans):,} spans{left_out}; open it in https://ui.perfetto.dev"
        )

    def close(self) -> None:
        """Discards the file if it was not written; idempotent."""
        if self._file is not None:
            self._file.discard()
            self._file = None
