"""Decides from what workers tell whether their job is over, or which of them has failed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.workers.job_warnings import JobWarnings

PATIENCE_S = 2.0  # from a worker's failure to the job's: others that fail of themselves tell so meanwhile
ANSWER_S = 0.5  # for the others to say how far they are when a worker is lost
LONGER = 10  # times as long as a step may evaluations and checkpoints take
START_S = 300.0  # usual limit for a worker to start
STOPPED_S = 5.0  # without a word of a worker that is blamed: the whole process has stopped, or its link
LEFT_S = 4.0  # for which all others wait, until it is the fault of a worker whose program has ended


HANGS, KILLED = "hangs", "was killed or has crashed"
STOPPED = "it has stopped, or its host or link is down"
NOBODY = -1  # in place of a worker's number: none has started


@dataclass
class Watched:
    """A worker as its messages show it.

    heard: when the last one came. waits: for other workers. still_s: seconds since its rounds moved. doing,
    doing_s: what it does outside of rounds, and seconds for which it has.
    status: exit status of its program, None while it runs. left: that of a program whose end fails the job
    only if others need it, and `status` is 0; None where it is not known. reason: the error that ended it, or
    the text of `sys.exit`. shown: lines for people on it. follows: 0 for an error of its own, 1 for one that
    may, 2 for one that does follow on another worker's. lost: when its connection was closed.
    """

    number: int
    host: str = ""
    process: int = 0
    heard: float | None = None
    round: int = 0
    waits: bool = False
    still_s: float = 0.0
    doing: str = ""
    doing_s: float = 0.0
    status: int | None = None
    ended: float = 0.0
    left: int | None = 0
    reason: str = ""
    follows: int = 0
    shown: str = ""
    lost: float | None = None

    @property
    def name(self) -> str:
        """The worker in messages."""
        where = f" ({self.host}, process {self.process})" if self.process else ""
        return f"worker {self.number}{where}"

    @property
    def where(self) -> str:
        """Its step, and what else it does, for messages."""
        return f"at step {self.round}{f', {self.doing}' if self.doing else ''}"


@dataclass(frozen=True)
class Fault:
    """Reason why a job ends early. number: of the worker that is the cause, or NOBODY. status: the job's."""

    number: int
    text: str
    status: int = 1


class JobWatch:
    """All workers of a job. `heard` and `lost` take notes, `fault` and `status` decide; times in seconds."""

    def __init__(self, size: int, limit_s: float, start_limit_s: float = START_S, began: float = 0.0):
        """limit_s: time without any progress after which a worker hangs. start_limit_s: time from `began`,
        the start of the job, within which each worker must be heard. 0 for no limit.
        """
        self.workers = [Watched(number) for number in range(size)]
        self.limit_s, self.start_limit_s, self.began = limit_s, start_limit_s, began
        self.folder: str | None = None  # output folder of the run, to go on in
        self.warnings = JobWarnings()

    def heard(self, number: int, message: Mapping[str, Any], now: float) -> None:
        """Takes note of a message of a worker."""
        worker = self.workers[number]
        worker.heard = now
        for name in (
            "host",
            "process",
            "round",
            "waits",
            "still_s",
            "doing",
            "doing_s",
            "left",
            "reason",
            "follows",
            "shown",
        ):
            if name in message:
                setattr(worker, name, message[name])
        self.folder = message.get("folder", self.folder)
        if "warning" in message:
            self.warnings.heard(number, str(message["warning"]), now)
        if "status" in message and worker.status is None:
            worker.status, worker.ended = int(message["status"]), now

    def lost(self, number: int, now: float) -> None:
        """Takes note that the connection to a worker is closed; the others are to say how far they are."""
        self.workers[number].lost = now

    @property
    def status(self) -> int | None:
        """The job's exit status when all workers have ended of themselves: the first that is not 0."""
        found = [worker.status for worker in self.workers]
        return None if None in found else next((status for status in found if status), 0)

    def fault(self, now: float) -> Fault | None:
        """The fault that the job has, if any."""
        if self.status is not None:  # programs that end with a status have said why; exceptions have a reason
            has_reason = any(worker.status and worker.reason for worker in self.workers)
            return (self._left(math.inf) or self._failed(math.inf)) if has_reason else None
        fault = self._killed(now) or self._left(now) or self._failed(now)
        return fault or self._starting(now) or self._hanging(now)

    @property
    def all_have_started(self) -> bool:
        """True if each worker has been heard."""
        return all(worker.heard is not None for worker in self.workers)

    def last_words(self) -> list[tuple[int, str]]:
        """Lines for people on the errors of workers, each once, with the first worker that has it.

        Errors that follow on another worker's are left out where that one has told its own, was killed, or
        has left.
        """
        told = [worker for worker in self.workers if worker.status and worker.shown]
        is_gone = any(w.status == 0 or (w.lost is not None and w.status is None) for w in self.workers)
        own = 0 if is_gone else 2
        least = min([own, *(worker.follows for worker in told)])
        words = dict[str, int]()
        for worker in told:
            if worker.follows <= least:
                words.setdefault(worker.shown, worker.number)
        return [(number, shown) for shown, number in words.items()]

    def _killed(self, now: float) -> Fault | None:
        lost = [(w.lost, w.number) for w in self.workers if w.lost is not None and w.status is None]
        for lost_s, number in sorted(lost):  # MPI ends others when the first one's connections are closed
            others = [w for w in self.workers if w.status is None and w.lost is None]
            if now - lost_s < ANSWER_S and any((w.heard or 0.0) < lost_s for w in others):
                continue
            worker = self.workers[number]
            worker.round = max(w.round for w in self.workers)  # it has taken part in all steps
            return Fault(number, f"{worker.name} {KILLED} {worker.where}")
        return None

    def _left(self, now: float) -> Fault | None:
        """The fault of a worker whose program has ended while all others need it.

        They wait, or have failed as it did not come. This does not take the limit: it never comes.
        """
        ended = [worker for worker in self.workers if worker.status == 0]
        others = [worker for worker in self.workers if worker.status != 0]
        longest_s = min(LEFT_S, self.limit_s or LEFT_S)
        if not ended or not all(_needs_others(worker, now, longest_s) for worker in others):
            return None
        first = min(ended, key=lambda worker: worker.ended)
        how = "at the end of its program" if first.left is None else f"with status {first.left}"
        how += f" ({first.reason})" if first.reason else ""
        who = "the other one needs" if len(others) == 1 else "the others need"
        text = f"{first.name} left the job {first.where} {how}, while {who} it"
        return Fault(first.number, text, first.left or 1)

    def _failed(self, now: float) -> Fault | None:
        failed = [worker for worker in self.workers if worker.status]
        for worker in sorted(failed, key=lambda worker: (worker.follows, worker.ended)):
            if now - worker.ended >= PATIENCE_S * (2 if worker.follows else 1):
                how = worker.reason or f"ended with status {worker.status}"
                name = worker.name
                same = {(w.reason, w.follows) for w in self.workers} == {(worker.reason, worker.follows)}
                if worker.reason and len(self.workers) > 1 and same:
                    name = f"all {len(self.workers)} workers"
                return Fault(worker.number, f"{name}, {worker.where}: {how}", worker.status or 1)
        return None

    def _starting(self, now: float) -> Fault | None:
        missing = [worker.number for worker in self.workers if worker.heard is None]
        if not missing or not self.start_limit_s or now - self.began < self.start_limit_s:
            return None
        if len(missing) == len(self.workers):
            return Fault(NOBODY, f"launch: no worker has started within {self.start_limit_s:g} s")
        return Fault(missing[0], f"worker {missing[0]} has not started within {self.start_limit_s:g} s")

    def _hanging(self, now: float) -> Fault | None:
        limit = self.limit_s
        if not limit:
            return None
        silent = [w for w in self.workers if w.status is None and self._silent_s(w, now) >= limit]
        waiting = [w for w in self.workers if w.status is None and w.waits and w.still_s >= limit]
        if not silent and not waiting:
            return None
        stopped = [
            w for w in self.workers if w.status is None and self._silent_s(w, now) >= min(STOPPED_S, limit)
        ]
        if blamed := max(stopped, key=lambda w: self._silent_s(w, now), default=None):
            awaited = [w.round for w in self.workers if w.waits and w is not blamed]
            blamed.round = max(blamed.round, min(awaited, default=0))  # its own last word may be older
            heard = f"nothing heard for {self._silent_s(blamed, now):.0f} s"
            return Fault(blamed.number, f"{blamed.name} {HANGS} {blamed.where}: {heard}; {STOPPED}")
        if not waiting:
            return None
        others = [w for w in self.workers if not w.waits or w.status is not None]
        at_work = [worker for worker in others if worker.status is None]
        if any(worker.still_s < limit for worker in at_work):
            return None  # workers of a sweep go on by themselves, up to the end of an epoch
        if busy := [worker for worker in at_work if worker.doing]:
            longest = limit * LONGER
            late = next((worker for worker in busy if worker.doing_s >= longest), None)
            if late is None:
                return None  # what the others wait for is neither a step nor a hang
            return Fault(late.number, f"{late.name} {HANGS} {late.where}: it has done so for {longest:g} s")
        blamed = min(others or waiting, key=lambda w: (w.status is None, w.round, w.number))
        between = "it is between two steps" if blamed.round else "it has not come to its first step"
        state = "its program has ended" if blamed.status == 0 else between
        if not others:
            state = "all wait for each other: a link is cut, or an exchange hangs"
        text = (
            f"{blamed.name} {HANGS} {blamed.where}: no step of the job has ended for {limit:g} s, and {state}"
        )
        return Fault(blamed.number, text)

    def _silent_s(self, worker: Watched, now: float) -> float:
        """Seconds since something was heard of a worker; 0 for one that has not started."""
        return 0.0 if worker.heard is None else now - worker.heard


def _needs_others(worker: Watched, now: float, longest_s: float) -> bool:
    """True if a worker has waited for others for so long, or has failed with an error that may be theirs."""
    if worker.status is None:
        return worker.waits and worker.still_s >= longest_s
    return worker.follows > 0 and now - worker.ended >= PATIENCE_S
