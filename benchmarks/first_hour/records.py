"""Records of a part's checks: lines of JSON, appended as they happen, so that they outlive the process."""

from __future__ import annotations

import faulthandler
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PASSED, FAILED, NOT_THERE, NO_TIME = "passed", "failed", "not there", "no time"
CRASHED, TIMED_OUT = "crashed", "timed out"
BAD = (FAILED, CRASHED, TIMED_OUT)
LOST = ("illegal memory access", "unspecified launch failure", "misaligned address", "device-side assert")
STICKY_STATUS = 87  # exit status of a process that ended itself after a sticky error
CHECK_S = 90.0  # after which a check counts as hanging


class NotThereError(Exception):
    """Raised by a check whose subject this machine or this version does not have."""


@dataclass
class Check:
    """Outcome of a check. error: first line. findings: figures, in the form in which JSON keeps them.

    ended: False if its process ended before it.
    """

    part: str
    name: str
    status: str
    seconds: float = 0.0
    error: str = ""
    findings: dict[str, Any] = field(default_factory=dict)
    ended: bool = False

    def as_json(self) -> dict[str, Any]:
        """The fields that say something."""
        return {
            name: value for name, value in asdict(self).items() if value not in ("", {}) and name != "ended"
        }


def first_line(error: BaseException) -> str:
    """An error in one line, with its type."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text:.300}" if text else type(error).__name__


def is_sticky(error: BaseException | None) -> bool:
    """True if an error, or one that caused it, has lost the process's CUDA context."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if getattr(error, "sticky", False) or any(words in str(error) for words in LOST):
            return True
        error = error.__cause__ or error.__context__
    return False


class Recorder:
    """Runs the checks of a part, in the part's own process, and appends their records to a file.

    Checks that the file has already, from a process before, are not repeated.
    """

    def __init__(self, path: Path, seconds: float):
        """seconds: that the part may take; later checks are not begun."""
        self.path = path
        self._until = time.monotonic() + seconds
        self._done = {entry["name"] for entry in entries(path) if entry["event"] == "ended"}

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self._until - time.monotonic()

    def write(self, event: str, name: str, **values: Any) -> None:
        """Appends a record."""
        line = json.dumps({"event": event, "name": name, **values}) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def note(self, name: str, **findings: Any) -> None:
        """Keeps findings of a check that is not over yet, in case it does not end."""
        self.write("noted", name, findings=findings)

    def check(
        self,
        name: str,
        work: Callable[[], dict[str, Any] | None],
        *,
        most_s: float = CHECK_S,
        needs_s: float = 1.0,
    ) -> None:
        """Runs a check: it returns findings, or raises. After a sticky error the process ends here.

        most_s: after that the process writes its stacks and ends. needs_s: not begun with less time left.
        """
        if name in self._done:
            return
        if self.left_s < needs_s:
            self.write("ended", name, status=NO_TIME, seconds=0.0)
            return
        print(f"-- {name}", flush=True)
        self.write("begun", name, at=time.time(), most_s=most_s)
        faulthandler.dump_traceback_later(most_s, exit=True)
        started = time.perf_counter()
        status, text, findings, sticky = PASSED, "", {}, False
        try:
            findings = work() or {}
        except NotThereError as error:
            status, text = NOT_THERE, str(error)
        except Exception as error:
            traceback.print_exc()
            status, text, sticky = FAILED, first_line(error), is_sticky(error)
        finally:
            faulthandler.cancel_dump_traceback_later()
        seconds = round(time.perf_counter() - started, 3)
        shown = text or ", ".join(f"{key} {value}" for key, value in findings.items())
        print(f"   {status} in {seconds:.2f} s{': ' if shown else ''}{shown:.2000}", flush=True)
        self.write("ended", name, status=status, seconds=seconds, error=text, findings=findings)
        if sticky:
            print("   the CUDA context is lost: this process ends", flush=True)
            os._exit(STICKY_STATUS)


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """Records of a file; a line that its writer did not finish is left out."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def checks_of(part: str, path: Path, until: float) -> list[Check]:
    """Checks of a part's file, in order; those that were begun and did not end have crashed or timed out.

    until: `time.time()` at the end of the process.
    """
    found: dict[str, Check] = {}
    limits: dict[str, tuple[float, float]] = {}  # when a check was begun, and the seconds it may take
    for entry in entries(path):
        check = found.setdefault(entry["name"], Check(part, entry["name"], CRASHED))
        check.findings.update(entry.get("findings", {}))
        if entry["event"] == "begun":
            limits[entry["name"]] = entry["at"], entry["most_s"]
        if entry["event"] in ("begun", "died") and not check.ended:
            at, most_s = limits[entry["name"]]
            check.seconds = round((until if entry["event"] == "begun" else entry["at"]) - at, 1)
            check.status = TIMED_OUT if check.seconds > 0.95 * most_s else CRASHED
        if entry["event"] == "ended":
            check.status, check.seconds = entry["status"], entry["seconds"]
            check.error, check.ended = entry.get("error", ""), True
    return list(found.values())
