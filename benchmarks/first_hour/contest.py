"""Stage 5: one case beside PyTorch and JAX, all contestants in turn, each library in a process of its own.

The windows of all contestants alternate, so that a slow spell of the machine affects all; only one process
works at a time. A library that crashes or hangs loses the contestant that did it: its process is started
again for the others.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from first_hour.records import STICKY_STATUS, Recorder, first_line, is_sticky

FOLDER = Path(__file__).resolve().parents[1]
SIDES = ("ours", "torch", "jax")
OPEN_S = 150.0  # most of one contestant, which may compile
WINDOW_S = 60.0  # most of a window, however short it is meant to be
WARM_TURNS = 1
GRACE_S = 3.0  # for a process to end


class LostError(Exception):
    """Raised when a side's process has ended or does not answer."""


class Side:
    """Process of one library, which opens contestants and runs their windows."""

    module = "first_hour.contest"  # run by the process

    def __init__(self, settings: dict[str, Any]):
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self.open: list[str] = []

    def ask(self, most_s: float, /, **question: Any) -> dict[str, Any]:
        """Answer to a question. Raises LostError; then the process is gone."""
        process = self._process or self._started()
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=most_s)
        except queue.Empty:
            self.end()
            raise LostError(f"no answer in {most_s:.0f} s") from None
        except OSError as error:
            self.end()
            raise LostError(first_line(error)) from None
        if line is None:
            status = process.wait()
            self.end()
            raise LostError(
                "the CUDA context is lost" if status == STICKY_STATUS else f"its process ended: {status}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _started(self) -> subprocess.Popen[str]:
        paths = [str(FOLDER.parent), str(FOLDER), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [sys.executable, "-m", self.module, json.dumps(self._settings)]
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        answers: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                answers.put(line)
            answers.put(None)

        threading.Thread(target=read, daemon=True).start()
        self._process, self._answers = process, answers
        self.open.clear()
        return process

    def end(self) -> None:
        """Ends the process; one that hangs first writes its stacks."""
        process, self._process = self._process, None
        self.open.clear()
        if process is None:
            return
        with suppress(OSError):
            process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


class Contest:
    """Contestants of all sides, their rates so far, and those that dropped out."""

    def __init__(self, sides: dict[str, Side], keep: Callable[[list[dict[str, Any]], list[str]], None]):
        """keep: called with the rows and the absent after every turn."""
        self._sides, self._keep = sides, keep
        self._known: dict[tuple[str, str], dict[str, Any]] = {}  # by side and name: what opening it gave
        self._rates: dict[tuple[str, str], list[float]] = {}
        self.absent: list[str] = []

    def drop(self, side: str, name: str, why: str) -> None:
        """Removes a contestant."""
        self.absent.append(f"{name or side}: {why}")
        self._known.pop((side, name), None)
        self._rates.pop((side, name), None)

    def open_all(self, left_s: Callable[[], float]) -> None:
        """Opens the contestants of all sides in turn, as far as there is time."""
        waiting: dict[str, list[str]] = {}
        for name, side in self._sides.items():
            try:
                answer = side.ask(OPEN_S, do="list")
            except LostError as error:
                self.drop(name, "", str(error))
                continue
            if "error" in answer:
                self.drop(name, "", answer["error"])
            waiting[name] = answer.get("names", [])
        while any(waiting.values()):
            for side_name, names in waiting.items():
                if not names:
                    continue
                name = names.pop(0)
                if left_s() < 5:
                    self.absent.append(f"{name}: not opened, no time")
                    continue
                self._open(side_name, name, min(OPEN_S, left_s()))

    def _open(self, side_name: str, name: str, seconds: float) -> bool:
        side = self._sides[side_name]
        try:
            answer = side.ask(seconds, do="open", name=name)
        except LostError as error:
            self.drop(side_name, name, str(error))
            return False
        if "error" in answer:
            self.drop(side_name, name, answer["error"])
            return False
        side.open.append(name)
        self._known[side_name, name] = answer
        self._rates.setdefault((side_name, name), [])
        print(f"   opened {name}", flush=True)
        return True

    def turn(self, seconds: float, left_s: Callable[[], float], counts: bool) -> bool:
        """One window of every contestant; False if time ran out. counts: False for a warm-up."""
        for side_name, name in list(self._known):
            if left_s() < 2 * seconds + 1:
                return False
            side = self._sides[side_name]
            if name not in side.open and not self._open(side_name, name, min(OPEN_S, left_s())):
                continue
            try:
                answer = side.ask(WINDOW_S, do="window", name=name, seconds=seconds)
            except LostError as error:
                answer = {"error": str(error)}
            if "error" in answer:
                self.drop(side_name, name, answer["error"])
            elif counts:
                self._rates[side_name, name].append(answer["rate"])
        self._keep(self.rows(), self.absent)
        return True

    def facts(self, left_s: Callable[[], float]) -> None:
        """Adds further measurements to what is known of the contestants."""
        for (side_name, name), known in list(self._known.items()):
            side = self._sides[side_name]
            if left_s() < 3 or name not in side.open:
                continue
            with suppress(LostError):
                known.update(side.ask(WINDOW_S, do="facts", name=name))

    def rows(self) -> list[dict[str, Any]]:
        """Rows in the form of `gpu_replicas.py`; contestants without a window are left out."""
        found = []
        for key, rates in self._rates.items():
            if rates:
                row = {"images_per_second": statistics.median(rates), "windows": [round(r, 1) for r in rates]}
                found.append({**self._known[key], **row})
        return found


def contest(
    recorder: Recorder,
    case: str,
    counts: list[int],
    rounds_per_launch: list[int],
    compute: str,
    window_s: float,
    windows: int,
    open_s: float,
) -> None:
    """Part: see above."""
    from gpu_replicas_contestant import Case
    from gpu_replicas_report import summary
    from harness import gpus_are_emulated

    from first_hour.engines import known_modes

    known_modes(recorder)
    name, model, batch_size = f"contest {case}", *case.split(":")
    common = {"case": case, "counts": counts, "rounds_per_launch": rounds_per_launch, "compute": compute}
    sides = {side: Side({**common, "side": side, "emulated": gpus_are_emulated()}) for side in SIDES}

    def keep(rows: list[dict[str, Any]], absent: list[str]) -> None:
        recorder.note(name, rows=rows, absent=absent)

    def check() -> dict[str, Any]:
        here = Contest(sides, keep)
        until_open = recorder.left_s - min(open_s, 0.7 * recorder.left_s)
        try:
            here.open_all(lambda: recorder.left_s - until_open)
            for turn in range(WARM_TURNS + windows):
                if not here.turn(window_s, lambda: recorder.left_s, counts=turn >= WARM_TURNS):
                    break
            here.facts(lambda: recorder.left_s)
        finally:
            for side in sides.values():
                side.end()
        rows = here.rows()
        if not rows:
            raise RuntimeError(f"no contestant has a window: {'; '.join(here.absent)}")
        found = summary(Case(model, int(batch_size)), rows)
        return {
            "model": model,
            "batch_size": int(batch_size),
            "rows": rows,
            "absent": here.absent,
            "summary": found,
        }

    recorder.check(name, check, most_s=recorder.left_s + 30)


# In a side's process ---------------------------------------------------------------------------------------


class Server:
    """Answers questions about one library's contestants."""

    def __init__(self, settings: dict[str, Any]):
        self._settings = settings
        self._openings: dict[str, Callable[[], Any]] = {}
        self._opened: dict[str, Any] = {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answer; an error of the contestant is one. Ends the process after a sticky error."""
        try:
            return dict(getattr(self, f"_{question.pop('do')}")(**question))
        except Exception as error:  # of any library
            import traceback

            traceback.print_exc()
            if is_sticky(error):
                os._exit(STICKY_STATUS)
            return {"error": first_line(error)}

    def _list(self) -> dict[str, Any]:
        from gpu_replicas_contestant import Case, Settings
        from gpu_replicas_jax import jax_contestants
        from gpu_replicas_ours import our_contestants
        from gpu_replicas_torch import torch_contestants
        from replica_modes import ways_here

        from first_hour.gpus import runtimes

        given = self._settings
        model, _, batch_size = given["case"].partition(":")
        settings = Settings(
            runtimes()[0] if given["side"] == "ours" else None,  # type: ignore[arg-type]  # of ours alone
            given["counts"],
            given["compute"],
            1.0,
            1,
            given["emulated"],
            ways_here(given["rounds_per_launch"]),
        )
        make = {"ours": our_contestants, "torch": torch_contestants, "jax": jax_contestants}[given["side"]]
        self._openings = dict(make(Case(model, int(batch_size)), settings))
        if not self._openings:
            return {"names": [], "error": "not installed, or without a GPU"}
        return {"names": list(self._openings)}

    def _open(self, name: str) -> dict[str, Any]:
        if not self._openings:
            self._list()
        made = self._opened[name] = self._openings[name]()
        return {"name": made.name, "replicas": made.replicas, "way": made.way}

    def _window(self, name: str, seconds: float) -> dict[str, Any]:
        try:
            return {"rate": self._opened[name].window(seconds)}
        except BaseException:
            with suppress(Exception):
                self._opened.pop(name).close()
            raise

    def _facts(self, name: str) -> dict[str, Any]:
        return dict(self._opened[name].facts())


def main(settings: dict[str, Any]) -> None:
    """Answers lines of JSON with lines of JSON; what libraries print goes to standard error."""
    import faulthandler

    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server(settings)
    for line in sys.stdin:
        print(json.dumps(server.answer(json.loads(line))), file=answers, flush=True)
    os._exit(0)  # nothing is left to release: the process has its GPU to itself


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
