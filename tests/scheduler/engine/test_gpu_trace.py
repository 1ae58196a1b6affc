"""A traced engine on emulated GPUs: the same bits, a row for each stream, every unit of work a span."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import GpuDevice
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import logistic
from tests.scheduler_rig.running import Hesitant, engine_of, within

pytestmark = needs_compiler
ROUNDS = 5


def trained(trace: Path | None) -> tuple[dict[str, Any], int]:
    """State after ROUNDS rounds on two virtual GPUs, and the number of events that were timed."""
    with emulated_runtime() as runtime:
        devices = [GpuDevice(f"/gpu:{index}", runtime, limit_nbytes=1 << 27) for index in range(2)]
        model = logistic()
        with engine_of(model, devices, (2, 1)) as engine:
            source = Hesitant(model.batch, engine.learners.count)
            if trace is None:
                within(lambda: engine.run(source.open, 0, ROUNDS))
            else:
                with tb.profiler.trace(trace):
                    within(lambda: engine.run(source.open, 0, ROUNDS))
            state = engine.learners.values.state_arrays()
        for device in devices:
            device.close()
        return state, runtime.counts["elapsed_ms"]


@pytest.mark.slow
def test_every_unit_of_work_is_a_span_and_no_bit_changes(tmp_path: Path) -> None:
    plain, timed = trained(None)
    assert timed == 0
    traced, timed = trained(tmp_path / "trace.json")
    assert timed > 0
    assert all(np.array_equal(plain[name], traced[name]) for name in plain)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    streams = {e["tid"]: e["args"]["name"].partition(" ")[2] for e in events if e["name"] == "thread_name"}
    devices = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    work = Counter(
        (devices[e["pid"]], streams[e["tid"]], e["name"]) for e in events if e.get("cat") == "work"
    )
    for round in range(ROUNDS):
        assert work["/gpu:0", "replica 0", f"step of all replicas, round {round}"] == 1
    assert work["/gpu:0", "exchanges", "join virtual GPUs"] == ROUNDS
    assert all(e["dur"] >= 0 for e in events if e["ph"] == "X")
    ends: dict[int, float] = {}
    for event in (e for e in events if e["ph"] == "X"):
        assert ends.get(event["tid"], 0.0) <= event["ts"] + 2e-3
        ends[event["tid"]] = event["ts"] + event["dur"]
