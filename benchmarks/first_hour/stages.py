"""A stage: its parts one after another, each in a process of its own, within the stage's time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from first_hour.records import (
    BAD,
    CRASHED,
    FAILED,
    NO_TIME,
    NOT_THERE,
    PASSED,
    STICKY_STATUS,
    TIMED_OUT,
    Check,
    Recorder,
    checks_of,
)

FOLDER = Path(__file__).resolve().parents[1]
SCRIPT = FOLDER / "gpu_first_hour.py"
LEAST_S = 1.0  # that a part is begun with
GRACE_S = 3.0  # for a process to write its stacks, and then to end
FACTS = "facts"  # part whose findings describe the machine
PROCESS = "process"  # name in place of a check, for what happens to a part outside of its checks


@dataclass(frozen=True)
class Part:
    """Checks that run in a process of their own.

    target: `module:function`, called as function(recorder, **arguments). most_s: after that it is ended.
    environment: variables of the process.
    """

    name: str
    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    most_s: float = 120.0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """Number, title and parts, which are listed when the stage begins. name: of its files."""

    number: int
    title: str
    parts: Callable[[], Sequence[Part]]
    name: str


Launch = Callable[[dict[str, Any], Mapping[str, str], Path, float], int | None]
"""Runs a part: what `child` takes, variables, log, seconds. Returns the exit status; None: it was ended."""


def in_a_process(
    call: dict[str, Any], environment: Mapping[str, str], log: Path, seconds: float
) -> int | None:
    """See `Launch`. A process that is out of time writes its threads' stacks to the log and is killed."""
    command = [sys.executable, str(SCRIPT), "--child", json.dumps(call)]
    paths = [str(FOLDER.parent), str(FOLDER), os.environ.get("PYTHONPATH", "")]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # faulthandler writes the stacks
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
            return None
        finally:  # what it has started, too
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):  # one that hangs in the driver cannot be killed
                process.wait(GRACE_S)


def child(call: dict[str, Any]) -> None:
    """Does a part in this process: the other side of `in_a_process`."""
    from importlib import import_module

    module, _, function = call["target"].partition(":")
    recorder = Recorder(Path(call["records"]), call["seconds"])
    getattr(import_module(module), function)(recorder, **call["arguments"])


class StageRun:
    """One run of a stage: writes `stage_<number>.json` and `.log` into a folder."""

    def __init__(self, stage: Stage, folder: Path, budget_s: float, size: str, launch: Launch = in_a_process):
        self.stage, self._folder, self._launch = stage, folder, launch
        folder.mkdir(parents=True, exist_ok=True)
        self._name = stage.name
        self._log = folder / f"{self._name}.log"
        self._started = time.monotonic()
        self._until = self._started + budget_s
        self.checks: list[Check] = []
        self._head: dict[str, Any] = {
            "stage": stage.number,
            "title": stage.title,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "budget_s": budget_s,
            "size": size,
        }
        self._facts: dict[str, Any] = {}

    def run(self) -> bool:
        """Runs the parts; True if no check was bad."""
        self._say(f"== stage {self.stage.number}: {self.stage.title}")
        try:
            parts = self.stage.parts()
        except Exception as error:
            self.checks.append(
                Check("stage", "list of parts", FAILED, error=f"{type(error).__name__}: {error}")
            )
            parts = []
        for part in parts:
            self._run(part)
            self._write(finished=False)
        self._write(finished=True)
        return not any(check.status in BAD for check in self.checks)

    def _run(self, part: Part) -> None:
        """One part, in as many processes as it takes; a check that ends its process is not begun again."""
        records = self._folder / f"{self._name}.{len(self.checks)}.jsonl"
        records.unlink(missing_ok=True)
        part_until = time.monotonic() + part.most_s
        found: list[Check] = []
        while True:
            left = min(part_until, self._until) - time.monotonic()
            if left < LEAST_S:
                if not found:
                    found.append(Check(part.name, PROCESS, NO_TIME))
                break
            self._say(f"== {part.name}, at most {left:.0f} s")
            call = {
                "target": part.target,
                "arguments": dict(part.arguments),
                "records": str(records),
                "seconds": max(left - GRACE_S, 0.8 * left),  # its own, so that it ends by itself
            }
            before = len([check for check in found if check.name != PROCESS])
            status = self._launch(call, part.environment, self._log, left)
            found = self._read(part, records, status)
            known = len([check for check in found if check.name != PROCESS])
            if status in (0, None) or known == before:
                break
        self._facts.update(next((c.findings for c in found if c.part == FACTS and c.status == PASSED), {}))
        self.checks += found
        records.unlink(missing_ok=True)
        for check in found:
            self._say(
                f"   {check.part}, {check.name}: {check.status}{': ' if check.error else ''}{check.error}"
            )

    def _read(self, part: Part, records: Path, status: int | None) -> list[Check]:
        """Checks of a part so far. One that has not ended is marked so in the records, and not repeated."""
        found = checks_of(part.name, records, time.time())
        why = "out of time" if status is None else _described(status)
        recorder, hanging = Recorder(records, 0), False
        for check in found:
            if not check.ended:
                hanging = True
                check.status = TIMED_OUT if status is None else check.status
                check.error = f"{why}; see the log"
                values = {"status": check.status, "seconds": check.seconds, "error": check.error}
                recorder.write("ended", check.name, **values)
        if status not in (0, STICKY_STATUS) and not hanging:
            how = TIMED_OUT if status is None else CRASHED
            found.append(Check(part.name, PROCESS, how, error=f"{why}; see the log"))
        if status == 0 and not found:
            found.append(Check(part.name, PROCESS, NOT_THERE, error="it had nothing to check"))
        return found

    def _say(self, text: str) -> None:
        print(text, flush=True)
        with self._log.open("a") as log:
            log.write(f"{text}\n")

    def _write(self, *, finished: bool) -> None:
        """Replaces the stage's file, so that it is whole at any time."""
        head = {**self._head, "seconds": round(time.monotonic() - self._started, 1), "finished": finished}
        lines = ",\n".join(f"  {json.dumps(check.as_json())}" for check in self.checks)
        head_lines = "".join(
            f"{json.dumps(k)}: {json.dumps(v)},\n" for k, v in {**head, FACTS: self._facts}.items()
        )
        target = self._folder / f"{self._name}.json"
        partial = target.with_suffix(".partial")
        partial.write_text(f'{{\n{head_lines}"checks": [\n{lines}\n]\n}}\n')
        os.replace(partial, target)


def _described(status: int) -> str:
    """The end of a process, in words."""
    if status >= 0:
        return f"its process ended with status {status}"
    with suppress(ValueError):
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process was ended by signal {-status}"
