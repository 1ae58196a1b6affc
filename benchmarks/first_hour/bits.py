"""Stage 6: the same bits every time, the modes' agreement, and NVIDIA's checkers of memory and races."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from harness import gpus_are_emulated
from replica_modes import CAPTURED, FUSED, Ways, missing

from first_hour.engines import state_of, training
from first_hour.gpus import opened
from first_hour.records import NotThereError, Recorder
from first_hour.suites import ROOT

REPLICAS, ROUNDS = 4, 6
SYNCS = ("sma", "none")
BOTH = (CAPTURED, FUSED)
CLOSE = 1e-5  # relative, of the modes
FOUND = 9  # exit status of a checker that has found something
CHECKERS = {
    "memcheck": ("--tool", "memcheck", "--report-api-errors", "no"),
    "racecheck": ("--tool", "racecheck"),
    "initcheck": ("--tool", "initcheck"),
    "synccheck": ("--tool", "synccheck"),
}


def trained(case: str, mode: str, sync: str) -> dict[str, Any]:
    """Everything that some rounds leave."""
    with opened() as (device,), training(case, [device], REPLICAS, Ways(mode), sync) as training_:
        training_.run_rounds(ROUNDS)
        return state_of(training_)


def digest(state: dict[str, Any]) -> str:
    """Digest of all names and bits."""
    found = hashlib.sha256()
    for name in sorted(state):
        found.update(name.encode() + np.ascontiguousarray(state[name]).tobytes())
    return found.hexdigest()[:16]


def engines(recorder: Recorder, case: str, mode: str, number: int) -> None:
    """Part: engines one after another give the same bits."""
    for sync in SYNCS:
        name = f"{number} engines, {case} x {REPLICAS}, {sync}, {mode}"

        def check(sync: str = sync, name: str = name) -> dict[str, Any]:
            found: dict[str, int] = {}
            until_s = 0.5 * recorder.left_s if sync == SYNCS[0] else 2.0
            for done in range(number):
                bits = digest(trained(case, mode, sync))
                found[bits] = found.get(bits, 0) + 1
                recorder.note(name, done=done + 1, different=len(found))
                if recorder.left_s < until_s:
                    break
            assert len(found) == 1, f"{sum(found.values())} engines gave {len(found)} results: {found}"
            return {"done": sum(found.values())}

        recorder.check(name, check, most_s=150.0)


def modes_agree(recorder: Recorder, case: str) -> None:
    """Part: fused replicas give the numbers of captured ones, to rounding."""

    def check() -> dict[str, Any]:
        for mode in BOTH:
            if missing(mode):
                raise NotThereError(missing(mode))
        one, other = (trained(case, mode, "sma") for mode in BOTH)
        assert one.keys() == other.keys(), f"only one keeps {sorted(one.keys() ^ other.keys())[:5]}"
        off = 0.0
        for name in one:
            a, b = np.asarray(one[name]), np.asarray(other[name])
            if a.dtype.kind == "f" and a.size:
                off = max(off, float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)))
        assert off <= CLOSE, f"{off:.2g} apart, expected at most {CLOSE:g}"
        return {"apart": off, "rounds": ROUNDS}

    recorder.check(f"{' and '.join(BOTH)}, {case} x {REPLICAS}", check)


def sanitizer() -> str:
    """Path of compute-sanitizer: on the path, of the toolkit, or in a wheel. Raises NotThereError."""
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = shutil.which("compute-sanitizer") or shutil.which(f"{toolkit}/bin/compute-sanitizer")
    spec = find_spec("nvidia") if not found else None
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        found = found or next((str(path) for path in Path(folder).glob("**/compute-sanitizer")), None)
    if not found:
        raise NotThereError("compute-sanitizer is not installed: it comes with the CUDA toolkit")
    return found


def checkers(recorder: Recorder, tools: Sequence[str]) -> None:
    """Part: a step of LeNet under each checker; and memcheck finds a kernel that overruns."""
    for tool in tools:
        recorder.check(f"a step under {tool}", partial(checked, "step", tool, 0), most_s=200.0, needs_s=10)
    recorder.check("memcheck finds an overrun", partial(checked, "overrun", "memcheck", FOUND), most_s=100.0)


def checked(what: str, tool: str, expected: int) -> dict[str, Any]:
    """Runs `tests.gpu_rig.checked_step` under a checker; on the emulated GPU, which looks itself, without."""
    command = [sys.executable, "-m", "tests.gpu_rig.checked_step", what]
    if not gpus_are_emulated():
        options = [*CHECKERS[tool], "--destroy-on-device-error", "kernel", "--error-exitcode", str(FOUND)]
        command = [sanitizer(), *options, *command]
    elif tool != "memcheck":
        raise NotThereError(f"{tool} is of compute-sanitizer, which needs a GPU")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    print(done.stdout[-20_000:], done.stderr[-20_000:], flush=True)
    said = [line for line in done.stdout.splitlines() if "=====" in line and "ERROR SUMMARY" not in line]
    first = next((line.strip("= ") for line in said[1:] if line.strip("= ")), "see the log")
    assert done.returncode == expected, f"status {done.returncode}, expected {expected}: {first}"
    return {"lines": len(said)}
