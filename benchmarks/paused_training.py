"""Training runs that pause between their windows, so that several can be timed in turn."""

from __future__ import annotations

import threading
import time
from typing import Any

from scheduler import Trainer, TrainingConfig
from tensorbow.training import TrainingProgress

RAMP = 0.2  # of a window: not timed, while what was launched before the pause is handed out and queues fill
PATIENCE_S = 300.0


class Gate(TrainingProgress):
    """Lets the rounds of a run pass during windows, and blocks them between windows."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._seconds: float | None = None  # of the window that is open
        self._opened_s = 0.0
        self._from: tuple[float, int] | None = None  # when, and after how many rounds, its timing began
        self._rate: float | None = None  # rounds per second of the last one
        self.failure_of_run: BaseException | None = None
        self._held = self._closed = False

    def rounds(self, finished: int) -> None:
        """Called in the run's thread when rounds have ended."""
        now = time.perf_counter()
        with self._changed:
            if (
                self._seconds is not None
                and self._from is None
                and now >= self._opened_s + RAMP * self._seconds
            ):
                self._from = now, finished
            elif (
                self._seconds is not None and self._from is not None and now >= self._from[0] + self._seconds
            ):
                self._rate = (finished - self._from[1]) / (now - self._from[0])
                self._seconds = None
                self._changed.notify_all()
            while self._seconds is None and not self._closed:
                self._held = True
                self._changed.notify_all()
                self._changed.wait()

    def await_hold(self, seconds: float) -> None:
        """Waits until the run is paused. Raises the run's error, or TimeoutError after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._held or self._closed, seconds)
            if self.failure_of_run is not None:
                raise self.failure_of_run
            if not self._held:
                raise TimeoutError(f"a run was to be held within {seconds:g} s: it is over, or it hangs")

    def window(self, seconds: float) -> float:
        """Rounds per second of a window of about so many seconds. Raises the run's error."""
        with self._changed:
            self._rate, self._from, self._opened_s, self._seconds = None, None, time.perf_counter(), seconds
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._rate is not None or self._closed, PATIENCE_S + 10 * seconds)
            if self.failure_of_run is not None:
                raise self.failure_of_run
            if self._rate is None:
                raise TimeoutError(f"no window of {seconds:g} s has ended: the run is over, or it hangs")
            return self._rate

    def close(self, failure: BaseException | None = None) -> None:
        """Opens the gate for good."""
        with self._changed:
            self.failure_of_run, self._closed = failure, True
            self._changed.notify_all()


class PausedTraining:
    """Run of `tensorbow train` on a thread of its own: a `Window`. Use it as a context manager.

    trainer: the run's trainer; read it only while the run is paused.
    """

    def __init__(self, config: TrainingConfig, gate: Gate | None = None):
        """config: of a run without an end."""
        self._gate = gate or Gate()
        self.trainer = Trainer(config, self._gate)
        self._batch_size = config.batch_size
        self._thread = threading.Thread(target=self._train, name="paused training")
        self._thread.start()

    def _train(self) -> None:
        failure: BaseException | None = None
        try:
            self.trainer.train()
        except BaseException as error:
            failure = error
        self._gate.close(failure)

    def __call__(self, seconds: float) -> float:
        """Images per second of a window."""
        rounds = self._gate.window(seconds)
        return self._batch_size * self.trainer.engine.learners.count * rounds

    @property
    def steps_per_launch(self) -> int:
        """Steps per launch that the run has chosen."""
        return self.trainer.engine.steps_per_launch

    def __enter__(self) -> PausedTraining:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.trainer.request_stop()
        self._gate.close()
        self._thread.join()
        self.trainer.close()
