"""Hooks of monitored sessions that log, watch the loss, feed and end, under TensorFlow 1's names."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NumericsError
from tensorbow.kinds import (
    Flag,
    Function,
    Kind,
    Mapped,
    Positive,
    PositiveNumber,
    RefusedError,
    checked,
    whole,
)
from tensorbow.runtime.global_step import get_global_step
from tensorbow.runtime.monitored import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from tensorbow.runtime.session import Session
from tensorbow.variables import Variable

_logger = logging.getLogger("tensorbow")


def _read_tensors(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)) and value:
        return {each if isinstance(each, str) else getattr(each, "name", str(each)): each for each in value}
    raise RefusedError


Steps: TypeAlias = Annotated[int, whole()]
Tensors: TypeAlias = Annotated[Any, Kind("a list of tensors, or a dictionary by names", _read_tensors)]
LOGGING = ("every_n_iter", "every_n_secs")


class Timer:
    """Says at which steps something happens: every so many steps, or after so many seconds."""

    def __init__(
        self,
        name: str,
        steps: int | None,
        seconds: float | None,
        options: tuple[str, str] = ("every_n_steps", "every_n_secs"),
    ):
        """options: names of both. Raises InvalidArgumentError unless exactly one of both is given."""
        if (steps is None) == (seconds is None):
            raise InvalidArgumentError(
                f"{name}: expected either {' or '.join(options)}, got {steps} and {seconds}"
            )
        self._steps, self._seconds = steps, seconds
        self._last: tuple[int, float] | None = None

    def reset(self) -> None:
        """Forgets when it happened last."""
        self._last = None

    def is_due(self, step: int) -> bool:
        """True at the first step, and from then on at each at which it happens."""
        if self._last is None:
            return True
        last_step, last_time = self._last
        if self._steps is not None:
            return step >= last_step + self._steps
        return time.monotonic() >= last_time + (self._seconds or 0.0)

    def happened(self, step: int) -> tuple[int, float] | None:
        """Steps and seconds since it happened last; None the first time."""
        now, last = time.monotonic(), self._last
        self._last = step, now
        return None if last is None else (step - last[0], now - last[1])


class SecondOrStepTimer:
    """Says at which steps a hook of one's own acts: every so many steps, or after so many seconds."""

    @checked
    def __init__(self, every_secs: PositiveNumber | None = None, every_steps: Positive | None = None):
        """Raises InvalidArgumentError unless exactly one of both is given."""
        self._timer = Timer("SecondOrStepTimer", every_steps, every_secs, ("every_steps", "every_secs"))
        self._last: int | None = None

    def reset(self) -> None:
        """Forgets the last step."""
        self._timer.reset()
        self._last = None

    @checked
    def should_trigger_for_step(self, step: Steps) -> bool:
        """True for the first step, and from then on for each at which the hook acts."""
        return step != self._last and self._timer.is_due(step)

    @checked
    def update_last_triggered_step(self, step: Steps) -> tuple[float | None, int | None]:
        """Notes that the hook has acted. Gives seconds and steps since it last did; (None, None) at first."""
        passed, self._last = self._timer.happened(step), step
        return (None, None) if passed is None else (passed[1], passed[0])

    def last_triggered_step(self) -> int | None:
        """The step at which the hook has last acted."""
        return self._last


class LoggingTensorHook(SessionRunHook):
    """Logs the values of tensors by Python's `logging`, as level INFO of the logger `tensorbow`."""

    @checked
    def __init__(
        self,
        tensors: Tensors,
        every_n_iter: Positive | None = None,
        every_n_secs: PositiveNumber | None = None,
        at_end: Flag = False,
        formatter: Function | None = None,
    ):
        """tensors: by the names that the lines have, or a list, whose names are the tensors'. formatter:
        makes a line of the values by name. at_end: logs at the end, too, and with neither of every_n then
        only.

        Raises InvalidArgumentError for both every_n, and for none without at_end.
        """
        self._tensors, self._formatter, self._at_end = tensors, formatter, at_end
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        self._timer = None if only_at_end else Timer("LoggingTensorHook", every_n_iter, every_n_secs, LOGGING)
        self._step, self._is_due = 0, False

    def begin(self) -> None:
        """Begins to count."""
        self._step = 0
        if self._timer is not None:
            self._timer.reset()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetches the tensors, if a line is due."""
        self._is_due = self._timer is not None and self._timer.is_due(self._step)
        return SessionRunArgs(self._tensors) if self._is_due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes the line."""
        if self._is_due and self._timer is not None:
            passed = self._timer.happened(self._step)
            self._log(run_values.results, "" if passed is None else f" ({passed[1]:.3f} sec)")
        self._step += 1

    def end(self, session: Session) -> None:
        """Writes a last line."""
        if self._at_end:
            self._log(session.run(self._tensors), "")

    def _log(self, values: Mapping[str, Any], ending: str) -> None:
        if self._formatter is not None:
            _logger.info("%s", self._formatter(values))
        else:
            _logger.info("%s%s", ", ".join(f"{name} = {value}" for name, value in values.items()), ending)


class NanTensorHook(SessionRunHook):
    """Ends the loop, with an error or without, when a tensor, such as the loss, is not finite."""

    @checked
    def __init__(self, loss_tensor: Any, fail_on_nan_loss: Flag = True):
        """fail_on_nan_loss: False writes a warning and asks the loop to stop, instead of NumericsError."""
        self._loss, self._fails = loss_tensor, fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetches the tensor."""
        return SessionRunArgs(self._loss)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Raises NumericsError for a value that is not finite, or stops the loop."""
        if np.isfinite(run_values.results).all():
            return
        text = f"NanTensorHook: {getattr(self._loss, 'name', self._loss)} is not finite"
        if self._fails:
            raise NumericsError(f"{text}; lower the learning rate, or clip the gradients")
        _logger.warning("%s; the loop is asked to stop", text)
        run_context.request_stop()


class FinalOpsHook(SessionRunHook):
    """Runs tensors and operations at the end of the loop; `final_ops_values` has what they gave."""

    @checked
    def __init__(self, final_ops: Any, final_ops_feed_dict: Mapped | None = None):
        """final_ops: a tensor, an operation, or a nest of them."""
        self._fetches, self._feeds = final_ops, final_ops_feed_dict
        self.final_ops_values: Any = None

    def end(self, session: Session) -> None:
        """Runs them."""
        self.final_ops_values = session.run(self._fetches, self._feeds)


class FeedFnHook(SessionRunHook):
    """Feeds each run with the dictionary that a function returns."""

    @checked
    def __init__(self, feed_fn: Function):
        """feed_fn: a function without arguments."""
        self._feed: Callable[[], Mapping[Any, Any]] = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Adds the feeds."""
        return SessionRunArgs(None, self._feed())


class GlobalStepWaiterHook(SessionRunHook):
    """Waits before the first run until the global step, which other workers raise, has reached a number."""

    PAUSE_S = 0.5

    @checked
    def __init__(self, wait_until_step: Steps):
        """wait_until_step: of 0 or less does not wait."""
        self._wanted = wait_until_step
        self._global_step: Variable | None = None

    def begin(self) -> None:
        """Finds the global step. Raises FailedPreconditionError if there is none."""
        self._global_step = get_global_step()
        if self._global_step is None:
            raise FailedPreconditionError(
                "GlobalStepWaiterHook: expected a global step, got none; make it by "
                "tb.train.get_or_create_global_step()"
            )

    def before_run(self, run_context: SessionRunContext) -> None:
        """Waits, before the first run."""
        if self._wanted > 0:
            _logger.info("Waiting for global step %d before starting training.", self._wanted)
        while self._wanted > 0 and int(run_context.session.run(self._global_step)) < self._wanted:
            time.sleep(self.PAUSE_S)
        self._wanted = 0
