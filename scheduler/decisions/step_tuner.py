"""Tuning by durations that the caller measures: of a Replicator's steps, or of a session's runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scheduler.decisions.mode_tuner import ModeTuner
from scheduler.decisions.replica_tuner import Decision

LEAST_STEPS = 4  # of a window
WARM_STEPS = 3  # before the first window with a count: they compile, and touch new memory
WINDOW_SECONDS = 0.3  # least length of a window
MOST_REPLICAS = 16  # per device, by default
MAX_SECONDS = 60.0  # of steps, by default, until the decision


class StepTuner:
    """Chooses the number of replicas per device, and their mode, from the durations of single steps.

    The caller trains with `replicas` in `mode`, passes the duration of each step to `add`, and looks at both
    again before the next one. `decision` is None until the choice is made.
    """

    def __init__(self, tuner: ModeTuner, window_seconds: float):
        """window_seconds: least length of each measurement."""
        self.tuner = tuner
        self.replicas = 0
        self.mode: str | None = None
        self.decision: Decision | None = None
        self._window_seconds = window_seconds
        self._warm = WARM_STEPS  # steps to discard
        self._clear()
        self._follow()

    def _clear(self) -> None:
        self._steps, self._seconds, self._examples = 0, 0.0, 0.0  # of the window so far

    def add(self, seconds: float, examples: float) -> None:
        """Adds a step: its duration, and the number of examples, or another measure of its work."""
        if self._warm:
            self._warm -= 1
            return
        self._steps += 1
        self._seconds += seconds
        self._examples += examples
        if self._steps >= LEAST_STEPS and self._seconds >= self._window_seconds:
            self.tuner.record(self.replicas, self._examples / self._seconds)
            self._clear()
            self._follow()

    def warm_up(self) -> None:
        """Discards the next steps, as after a change of the number: the caller has begun a new training."""
        self._warm = WARM_STEPS

    def refuse(self, reason: str) -> None:
        """Limits further tries to fewer than `replicas`, which cannot be had. reason: as text."""
        known, refused = self.tuner.measurements, (self.replicas, self.mode)
        others = [measured for measured in known if (measured.replicas, measured.mode) != refused]
        if len(others) < len(known):  # so many did fit before
            best = max(others or known, key=lambda measured: measured.images_per_second)
            self.replicas, self.mode = best.replicas, best.mode
            self.decision = Decision(best.replicas, best.images_per_second, reason, False, best.mode)
        elif self.tuner.decisions and not self.tuner.current.measurements:
            self.leave_out(reason)
        else:
            self.tuner.current.limit(self.replicas - 1, reason)
            self._follow()

    def leave_out(self, reason: str) -> None:
        """Leaves out all modes but the first one. reason: why they cannot be had, as text."""
        self.tuner.leave_out(reason)
        self._follow()

    def end_mode(self, reason: str) -> None:
        """Ends the current mode, of which a window is known, if another follows. reason: as text."""
        if self.tuner.has_more and self.tuner.current.measurements and self.decision is None:
            self.tuner.end_mode(reason)
            self._follow()

    def end(self, reason: str) -> None:
        """Decides from the windows so far; see ReplicaTuner.end."""
        self.tuner.end(reason)
        self._follow()

    def _follow(self) -> None:
        before, step = (self.replicas, self.mode), self.tuner.next_step()
        self.replicas, self.mode = step.replicas, step.mode
        if isinstance(step, Decision):
            self.decision = step
        if (self.replicas, self.mode) != before:
            self._clear()
            self.warm_up()


class BatchSplitTuner:
    """Chooses into how many equal parts, one for each replica, a session splits its global batches.

    Only numbers are tried that divide all global batches so far; a batch that others divide starts a new
    tuning, unless the number is chosen already and divides it. Any number will do for a run that feeds no
    global batch, in which each replica has a batch of its own.
    """

    def __init__(
        self,
        devices: int,
        is_stable: Callable[[int], bool],
        modes: Sequence[str | None] = (None,),
    ):
        """devices: their number. is_stable: whether averaging is, with so many replicas per device. modes: of
        replicas, in the order in which they are measured.
        """
        self.replicas = 1  # per device, of the next run
        self._devices, self._is_stable, self._modes = devices, is_stable, modes
        self._common = 0  # greatest common divisor of the sizes of all global batches; 0: none so far
        self._allowed: list[int] = []
        self._seconds = 0.0
        self._steps: StepTuner | None = None

    @property
    def decision(self) -> Decision | None:
        """The choice; None before."""
        return None if self._steps is None else self._steps.decision

    @property
    def mode(self) -> str | None:
        """Mode of the replicas in the next run; None on devices without."""
        return self._modes[0] if self._steps is None else self._steps.mode

    def before_run(self, sizes: list[int]) -> None:
        """Sets `replicas` for a run. sizes: of the global batches that it feeds."""
        common = math.gcd(self._common, *sizes)
        if common % self._devices or 0 in sizes:
            return  # the session refuses such a batch
        self._common = common
        counts = range(1, MOST_REPLICAS + 1)
        allowed = [n for n in counts if common % (n * self._devices) == 0 and self._is_stable(n)]
        if allowed != self._allowed:
            self._allowed = allowed or [1]
            if self.decision is None or self.replicas not in self._allowed:
                why = f"of those that divide {common} examples" if common else f"of {MOST_REPLICAS}"
                start = self.replicas if self.replicas in self._allowed else 1
                tuner = ModeTuner(
                    self._modes,
                    self._allowed[-1],
                    why_no_more=why,
                    start=start,
                    goes_on=True,
                    allowed=self._allowed,
                )
                self._steps, self._seconds = StepTuner(tuner, WINDOW_SECONDS), 0.0
        if self._steps is not None:
            self.replicas = self._steps.replicas

    def after_run(self, seconds: float, examples: int) -> None:
        """Adds a run: its duration, and the number of examples that it trained on."""
        steps = self._steps
        if steps is None or steps.decision is not None:
            return
        steps.add(seconds, examples)
        self._seconds += seconds
        if self._seconds > MAX_SECONDS / 2:
            steps.end_mode(f"half of {MAX_SECONDS:g} s of training was over")
        if self._seconds > MAX_SECONDS and steps.decision is None and steps.tuner.measurements:
            steps.end(f"{MAX_SECONDS:g} s of training are over")

    def refuse(self, current: int, reason: str) -> None:
        """Goes back to `current` replicas per device, since `replicas` cannot be had. reason: as text."""
        if self._steps is not None:
            self._steps.refuse(reason)
        self.replicas = current

    def leave_out(self, reason: str) -> None:
        """Goes on with the first mode alone, since the others cannot be had. reason: as text."""
        if self._steps is not None:
            self._steps.leave_out(reason)
            self.replicas = self._steps.replicas
