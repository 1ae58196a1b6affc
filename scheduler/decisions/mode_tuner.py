"""Decisions of the auto-tuner on GPUs: the mode of the replicas, and their number with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scheduler.decisions.replica_tuner import THRESHOLD, Decision, Measure, Measurement, ReplicaTuner


class ModeTuner:
    """Finds the fastest of several modes of replicas: a `ReplicaTuner` for each, one mode after the other.

    Pure like that one, and driven in the same way. Steps, measurements and decisions carry their mode; on
    devices without modes it is None.
    """

    def __init__(
        self,
        modes: Sequence[str | None],
        most: int,
        threshold: float = THRESHOLD,
        windows: int = 3,
        *,
        why_no_more: str = "",
        start: int = 1,
        goes_on: bool = False,
        allowed: Sequence[int] | None = None,
        unit: str = "examples",
    ):
        """modes: in the order in which they are measured; (None,) on devices without. goes_on: whether the
        further modes begin with the number that was chosen for the one before, and try no smaller one.
        unit: name of what a rate counts.

        Otherwise as `ReplicaTuner`.
        """
        self.modes = (*modes,)
        self.threshold, self._windows, self._goes_on = threshold, windows, goes_on
        self._unit = unit
        self._allowed = range(1, max(most, start) + 1) if allowed is None else allowed
        self._tuners = [
            ReplicaTuner(
                most, threshold, windows, why_no_more=why_no_more, start=start, allowed=self._allowed
            )
        ]
        self.decisions: tuple[Decision, ...] = ()  # by mode, of those that are done
        self.left_out = ""  # why further modes are left out
        self._ended: str | None = None

    @property
    def current(self) -> ReplicaTuner:
        """Tuner of `mode`."""
        return self._tuners[-1]

    @property
    def mode(self) -> str | None:
        """Mode that is measured now, or was measured last."""
        return self.modes[len(self._tuners) - 1]

    @property
    def has_more(self) -> bool:
        """True if another mode follows the current one."""
        return len(self._tuners) < len(self.modes)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All measurements, by mode and rising count."""
        return tuple(
            replace(known, mode=mode)
            for mode, tuner in zip(self.modes, self._tuners, strict=False)
            for known in tuner.measurements
        )

    # Told ---------------------------------------------------------------------------------------

    def record(self, replicas: int, images_per_second: float) -> Measurement:
        """Records a window of the current mode; see `ReplicaTuner.record`."""
        return replace(self.current.record(replicas, images_per_second), mode=self.mode)

    def decide(self, decision: Decision) -> None:
        """Ends the current mode with a decision, such as one from a checkpoint, and begins the next mode."""
        self.decisions += (replace(decision, mode=self.mode),)
        if self.has_more and self._ended is None:
            most, why = self.current.most, self.current.why_no_more
            start = decision.replicas if self._goes_on else 1
            allowed = [count for count in self._allowed if start <= count <= most]
            further = ReplicaTuner(
                most, self.threshold, self._windows, why_no_more=why, start=start, allowed=allowed
            )
            self._tuners.append(further)

    def leave_out(self, reason: str) -> None:
        """Leaves out the modes after the first, which cannot be had. reason: as text."""
        self.modes, self.left_out = self.modes[:1], reason
        del self._tuners[1:]
        self.decisions = self.decisions[:1]

    def end_mode(self, reason: str) -> None:
        """Ends the current mode, of which a window is known, with what is known; see `ReplicaTuner.end`."""
        self.current.end(reason)

    def end(self, reason: str) -> None:
        """Makes the next step a decision from the windows so far. reason: why no more can be measured."""
        self._ended = reason
        if self.current.measurements or not self.decisions:
            self.current.end(reason)
        else:
            self._tuners.pop()

    # Decided ------------------------------------------------------------------------------------

    def next_step(self) -> Measure | Decision:
        """Next window to measure, or the decision. Raises FailedPreconditionError if ended without any."""
        while len(self.decisions) < len(self._tuners):
            step = self.current.next_step()
            if isinstance(step, Measure):
                return replace(step, mode=self.mode)
            self.decide(step)
        return self._fastest()

    def _fastest(self) -> Decision:
        fastest = max(self.decisions, key=lambda decision: decision.images_per_second)
        reasons = [fastest.reason]
        for other in self.decisions:
            if other is not fastest:
                rate = f"{other.images_per_second:,.0f} {self._unit}/s"
                reasons.append(f"{other.mode} replicas reach {rate}, with {other.replicas} per device")
        if unknown := self.modes[len(self.decisions) :]:
            reasons.append(f"{' and '.join(map(str, unknown))} not measured: {self._ended}")
        complete = not unknown and all(decision.complete for decision in self.decisions)
        return replace(fastest, reason="; ".join(reasons), complete=complete)
