"""Tuning of a Replicator: steps per second with 1, 2, 3, ... replicas per device (Crossbow, VLDB 2019, 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from scheduler.decisions.mode_tuner import ModeTuner
from scheduler.decisions.replica_tuner import Decision
from scheduler.decisions.step_tuner import WARM_STEPS, StepTuner
from scheduler.workers.group import WorkerGroup
from tensorbow.errors import AbortedError, InvalidArgumentError, ResourceExhaustedError, UnimplementedError

_ENDED = object()
_MOST_TOGETHER, _TOGETHER_S = 64, 0.01  # steps of several workers between two agreements


@dataclass
class _Steps:
    """Steps of a training: how many, their seconds, whether the input ended, and an error.

    since_s: seconds since the tuning began.
    """

    done: int = 0
    seconds: float = 0.0
    ended: bool = False
    error: Exception | None = None
    since_s: float = 0.0

    def take(self, steps: Iterator[Any], most: int) -> None:
        """Takes so many steps, or fewer where the input ends."""
        began = perf_counter()
        while self.done < most and not self.ended:
            self.ended = next(steps, _ENDED) is _ENDED
            self.done += not self.ended
            self.seconds = perf_counter() - began

    def agreed(self, workers: WorkerGroup) -> _Steps:
        """The steps as all workers see them: those that all have, the longest times, and one error.

        Too little memory, or a mode that is not there, on one worker goes for all of them; any other error
        ends the tuning of all.
        """
        kinds = ResourceExhaustedError, UnimplementedError, AbortedError  # aborted: by another worker's error
        kind = next((each for each in kinds if isinstance(self.error, each)), None)
        text = "" if self.error is None else str(self.error)
        if self.error is not None and kind is None:
            text = f"{type(self.error).__name__}: {text}"
        rows = workers.all_gather((self.done, self.seconds, self.ended, self.since_s, kind, text))
        done, seconds, ended, since_s, found, texts = zip(*rows, strict=True)
        wrong = [pair for pair in zip(found, texts, strict=True) if pair[0] is not None or pair[1]]
        error = self.error
        if wrong and all(kind is not None for kind, _ in wrong):
            first = next(each for each in kinds if each in found)
            if not isinstance(error, first):
                error = first(next(text for kind, text in wrong if kind is first))
        elif error is None and wrong:
            error = AbortedError(next(text for kind, text in wrong if kind is None))
        return _Steps(min(done), max(seconds), any(ended), error, max(since_s))


def tuned(
    begin: Callable[[int, str | None], Iterator[Any]],
    most: int,
    window_seconds: float,
    max_seconds: float,
    modes: Sequence[str | None] = (None,),
    workers: WorkerGroup | None = None,
) -> Decision:
    """Measures counts of replicas until the tuner has decided, or so many seconds are over.

    begin: (replicas per device, mode) -> training with so many; it raises ResourceExhaustedError at its first
    step if they do not fit, UnimplementedError if there is no such mode of them, and is called anew where its
    input ends. modes: in this order, each from the number that was chosen for the one before. workers: those
    of a job measure and decide the same; a step takes as long as that of the slowest.
    Raises InvalidArgumentError for a training of too few steps to be timed.
    """
    window = min(window_seconds, max_seconds)  # the first one is waited for
    tuner = StepTuner(ModeTuner(modes, most, why_no_more=f"most={most}", goes_on=True), window)
    began_tuning = perf_counter()
    alone = workers is None or workers.size == 1

    def agreed(work: Callable[[_Steps], None]) -> _Steps:
        own = _Steps()
        try:
            work(own)
        except Exception as error:
            own.error = error
        own.since_s = perf_counter() - began_tuning
        return own if alone or workers is None else own.agreed(workers)

    steps: Iterator[Any] = iter(())
    count, mode = 0, modes[0]  # replicas that train, and their mode
    done, together = 0, 1  # steps since `begin`, and steps of a launch

    def start(_: _Steps) -> None:
        nonlocal steps
        steps = begin(count, mode)

    taken = _Steps()
    while tuner.decision is None:
        if taken.since_s > max_seconds / 2:
            tuner.end_mode(f"half of max_seconds {max_seconds:g} was over")
        if tuner.tuner.measurements and taken.since_s > max_seconds:
            tuner.end(f"max_seconds {max_seconds:g} are over")
            continue
        begins = taken.ended or (tuner.replicas, tuner.mode) != (count, mode)
        if begins:
            count, mode, done, together = tuner.replicas, tuner.mode, 0, 1
            taken = agreed(start)
        if not begins or taken.error is None:
            limit, running = together, steps
            taken = agreed(lambda own: own.take(running, limit))  # noqa: B023
        if isinstance(taken.error, ResourceExhaustedError):
            if count == 1 and mode == modes[0]:
                raise taken.error
            tuner.refuse("more do not fit into the memory of a device")
        elif isinstance(taken.error, UnimplementedError):
            if mode == modes[0]:
                raise taken.error
            tuner.leave_out(str(taken.error))
        elif taken.error is not None:
            raise taken.error
        else:
            done += taken.done
            if taken.done:
                tuner.add(taken.seconds, count * taken.done)
            if not alone and taken.done and done > WARM_STEPS:
                together = min(_MOST_TOGETHER, 1 + int(_TOGETHER_S * taken.done / taken.seconds))
            if taken.ended and done <= WARM_STEPS:
                raise InvalidArgumentError(
                    f"tune: expected input_fn to give at least {WARM_STEPS + 1} batches, got {done}; "
                    "let it repeat them"
                )
            if taken.ended:
                tuner.warm_up()
    return tuner.decision
