"""Training on the GPU of this machine: batches that are made on the device, and traces."""

from __future__ import annotations

import json
from pathlib import Path

import tensorbow as tb
from tensorbow.data import make_synthetic
from tensorbow.devices import GpuDevice
from tests.gpu_rig.counted import OpenedGpu
from tests.gpu_rig.gpu_models import classifier
from tests.gpu_rig.runtimes import is_emulated, real_runtime
from tests.scheduler_rig.running import Prepared, engine_of, same_bits

RUNTIME = real_runtime()
ROUNDS = 4 if is_emulated(RUNTIME) else 100


def test_data_kept_on_the_device_gives_the_bits_of_data_on_the_host(opened: OpenedGpu) -> None:
    data, _ = make_synthetic(256, 16)
    model, states = classifier("lenet", batch_size=4), {}
    for where in ("never", "always"):
        with opened() as runtime, engine_of(model, [GpuDevice("/gpu:0", runtime)], 2) as engine:
            batches = tb.DatasetBatches(data, 4, 2, seed=5)
            assert batches.keep_on_devices(engine.learners, where) == ""
            assert batches.on_devices == (where == "always")
            engine.run(batches.open, 0, ROUNDS)
            states[where] = engine.learners.values.state_arrays()
            del batches
    assert same_bits(states["always"], states["never"])


def test_a_trace_shows_every_task_and_how_far_they_overlap(opened: OpenedGpu, tmp_path: Path) -> None:
    model, replicas = classifier("lenet", batch_size=4), 2
    with (
        opened() as runtime,
        engine_of(model, [GpuDevice("/gpu:0", runtime)], replicas, dispatch="fcfs") as engine,
    ):
        source = Prepared(model.batch, replicas)
        engine.run(source.open, 0, 3)
        with tb.profiler.trace(tmp_path / "trace.json"):
            engine.run(source.open, 3, 3 + ROUNDS)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    tasks = [f"replica {replica} gradient" for replica in range(replicas)]
    work = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] in tasks)
    assert len(work) == replicas * ROUNDS
    assert all(start <= end for start, end in work)
    busy, covered, last = 0.0, 0.0, work[0][0]
    for start, end in work:
        busy += end - start
        covered += max(0.0, end - max(start, last))
        last = max(last, end)
    print(f"\n{RUNTIME.properties.name}: {busy / covered:.2f} gradients at a time, of {replicas} replicas")
    assert busy / covered > 1 - 1e-6
