"""The trace of a training run: of which rounds, into which file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from scheduler.engine.results import RoundResults
from tensorbow.errors import ResourceExhaustedError
from tensorbow.timeline import TraceFile, Tracer

DEFAULT_ROUNDS = 100  # the first of a run, when nobody says which


class RunTrace:
    """Traces some rounds of a run, if a file is given; `save` writes them.

    `rounds` is the range that is traced, counted from the first round of all, also in a run that goes on
    from a checkpoint.
    """

    def __init__(self, path: str | None, rounds: tuple[int, int] | None, batch_size: int):
        """rounds: first, and the one to stop before; None: the run's first hundred."""
        self._path = None if path is None else Path(path)
        self._asked = rounds
        self._batch_size = batch_size
        self._file: TraceFile | None = None
        self._tracer = Tracer()
        self.rounds = range(0)
        self._last = -1  # round of which there are results
        self._ended_s: float | None = None  # when it ended

    def claim_early(self, output: Path | None) -> None:
        """Claims the file, unless it is to lie in the run's folder, still to be made; then `begin` does.

        Raises InvalidArgumentError for a file that cannot be written.
        """
        if self._path is None:
            return
        is_there = self._path.parent.is_dir()
        if is_there or output is None or self._path.parent.resolve() != output.resolve():
            self._file = TraceFile(self._path)

    def begin(self, round: int) -> None:
        """Says which round is the first of this run. Raises InvalidArgumentError as `claim_early`."""
        if self._path is None:
            return
        self._file = self._file or TraceFile(self._path)
        self.rounds = range(*self._asked) if self._asked else range(round, round + DEFAULT_ROUNDS)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, AbstractContextManager[None]]]:
        """Cuts rounds `start` to `stop` - 1 where tracing begins and ends: the round each piece ends before,
        and what to train it in.
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
        """Counts images per second, launch by launch."""
        if results.rounds.start in self.rounds:
            ended_s = max(results.times_s)
            if self._ended_s is not None and ended_s > self._ended_s:
                rate = len(results.losses) * self._batch_size / (ended_s - self._ended_s)
                self._tracer.count("images/s", ended_s, round(rate, 1))
            self._last, self._ended_s = results.rounds[-1], max(ended_s, self._ended_s or ended_s)

    def save(self, say: Callable[[str], None], failing: bool) -> None:
        """Writes the file, once, and says what is in it.

        failing: the run ends with an error, so that one of the file is only said. Otherwise raises
            ResourceExhaustedError.
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
        """Gives the file up that was not written; idempotent."""
        if self._file is not None:
            self._file.discard()
            self._file = None
