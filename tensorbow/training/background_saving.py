"""BackgroundSaving: threads that write checkpoints and summaries beside a supervisor's loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.ops.summaries import event_protocol
from tensorbow.queues import Coordinator, LooperThread
from tensorbow.runtime import Session
from tensorbow.training.event_files import FileWriter

SUMMARY_REMEDY = "; where it needs feeds, give summary_op=None, and its values to summary_computed"

_logger = logging.getLogger("tensorbow.training")


class _LateLooper(LooperThread):
    """Waits for the interval before the first call, too."""

    def start_loop(self) -> None:
        self._coord.wait_for_stop(self._every_s)


class BackgroundSaving:
    """Threads of one session, which end when its coordinator stops.

    An error of writing is a warning, once, since training needs no file.
    """

    def __init__(self, session: Session, coord: Coordinator, global_step: Any):
        """global_step: variable or tensor that numbers what is written, or None."""
        self._session, self._coord, self._step = session, coord, global_step
        self.started: list[LooperThread] = []
        self._saving: LooperThread | None = None
        self._said: set[str] = set()
        self._counted: tuple[int, float] | None = None  # the global step, and when it was looked at

    def save(self, save: Callable[[Session], None], every_s: float) -> None:
        """Calls `save` every so many seconds, the first time after as many."""
        self._saving = _LateLooper(self._coord, every_s, self._try, ["checkpoint", save, self._session])
        self._start(self._saving)

    def summarise(self, summary_op: Any, writer: FileWriter, every_s: float) -> None:
        """Writes the graph, and the summary, at once and every so many seconds."""
        _, events = event_protocol()
        writer.reopen()
        writer.add_graph(self._session.graph)
        # TensorBoard discards what an earlier session has written of this step and later ones.
        log = events.SessionLog(status=events.SessionLog.SessionStatus.Value("START"))
        writer.add_event(events.Event(session_log=log), self._current_step())
        arguments = ["summary", self._summarise, summary_op, writer]
        self._start(LooperThread(self._coord, every_s, self._try, arguments))

    def log_rate(self, writer: FileWriter | None, every_s: float) -> None:
        """Logs the steps per second, and writes them as a summary if there is a writer."""
        self._start(LooperThread(self._coord, every_s, self._try, ["rate", self._log_rate, writer]))

    def end_saving(self) -> None:
        """Waits for a checkpoint that is being written; call it after the coordinator's stop."""
        if self._saving is not None:
            self._saving.join()

    def _start(self, thread: LooperThread) -> None:
        thread.start()
        self.started.append(thread)

    def _try(self, what: str, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except TensorBowError as error:
            if not self._coord.should_stop() and str(error) not in self._said:
                self._said.add(str(error))
                remedy = SUMMARY_REMEDY if isinstance(error, InvalidArgumentError) else ""
                _logger.warning("Supervisor: no %s was saved: %s%s", what, error, remedy)

    def _current_step(self) -> int | None:
        return None if self._step is None else int(self._session.run(self._step))

    def _summarise(self, summary_op: Any, writer: FileWriter) -> None:
        summary, *steps = self._session.run([summary_op, *([] if self._step is None else [self._step])])
        writer.add_summary(summary, int(steps[0]) if steps else None)

    def _log_rate(self, writer: FileWriter | None) -> None:
        """Logs the rate since the last call."""
        step, now = self._current_step() or 0, time.monotonic()
        before, self._counted = self._counted, (step, now)
        if before is None:
            return
        label, rate = "global_step/sec", (step - before[0]) / max(now - before[1], 1e-9)
        _logger.info("%s: %g", label, rate)
        if writer is not None:
            protocol, _ = event_protocol()
            value = protocol.Summary.Value(tag=label, simple_value=rate)
            writer.add_summary(protocol.Summary(value=[value]), step)
