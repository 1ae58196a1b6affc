"""Whole rounds as CUDA graphs: the bits of segments one by one, launches, ends, fused replicas.

On emulated GPUs here; what takes `opened` runs in `tests/gpu` on the GPU of the machine.
"""

from __future__ import annotations

import gc
import random
import time
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from scheduler import DatasetBatches, LearningEngine, ReadyBatch, Synchronisation
from scheduler.replicas.round_launcher import RoundLauncher
from tensorbow.data import BatchRun, make_synthetic
from tensorbow.devices import Device, GpuDevice
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import InvalidArgumentError, NumericsError, ResourceExhaustedError, UnimplementedError
from tensorbow.kernels.gpu.backend import GpuBackend
from tests.gpu_rig.counted import OpenedGpu
from tests.gpu_rig.emulated_nccl import EmulatedNccl
from tests.gpu_rig.gpu_models import classifier
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model, convolutional, well
from tests.scheduler_rig.running import (
    Prepared,
    cpu_devices,
    engine_of,
    gpu_devices,
    poison,
    same_bits,
    within,
)

pytestmark = needs_compiler
ROUNDS = 13
OPTIONS: list[dict[str, Any]] = [
    {},
    {"tau": 3, "mu": 0.5},
    {"staleness": 1},
    {"sync": "ssgd"},
    {"sync": "none"},
    {"sync": "easgd", "tau": 2},
    {"sync": "diloco", "tau": 3},
    {"sync": "diloco", "tau": 2, "staleness": 1},
    {"ssgd_from": 4},
    {"ema": 0.9, "mu": 0.3},
]
DEVICES = [(1, 1), (1, 3), (2, 2), (2, (1, 2))]


class Launches(Prepared):
    """Batches of several rounds at a time."""

    def __init__(self, batch: Any, replicas: int, steps: int) -> None:
        super().__init__(batch, replicas)
        self.steps = steps

    def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> Launches:
        for number, first in enumerate(range(start, stop, self.steps), start):
            rounds = range(first, min(first + self.steps, stop))
            for replica in range(self.replicas):
                run = BatchRun([self.batch(round, replica) for round in rounds])
                on_ready(ReadyBatch(replica, number, run, self._release))
        return self


def delay(seed: int) -> Any:
    rng = random.Random(seed)
    return lambda: time.sleep(rng.random() * 2e-4 if rng.random() < 0.3 else 0)


class Trained:
    """What some rounds have left. bad: the round and the replica whose batch has a NaN, if any."""

    def __init__(
        self,
        model: Model,
        devices: list[Device],
        per_device: Any,
        steps: int = 1,
        rounds: int = ROUNDS,
        bad: tuple[int, int] | None = None,
        **options: Any,
    ):
        self.losses: list[float] = []
        self.error = ""

        def batch(round: int, replica: int) -> tuple[Any, ...]:
            arrays = [np.array(array) for array in model.batch(round, replica)]
            if (round, replica) == bad:
                arrays[0].reshape(-1)[0] = np.nan
            return (*arrays,)

        with engine_of(model, devices, per_device, steps_per_launch=steps, **options) as engine:
            poison(engine)
            self.whole = isinstance(engine.learners.launcher, RoundLauncher)
            count = engine.learners.count
            source = Launches(batch, count, steps) if steps > 1 else Prepared(batch, count)
            try:
                within(lambda: engine.run(source.open, 0, rounds, lambda r: self.losses.extend(r.losses)))
            except NumericsError as error:
                self.error = str(error)
            self.state = engine.learners.values.state_arrays()

    def has_the_bits_of(self, other: Trained) -> bool:
        return self.losses == other.losses and same_bits(self.state, other.state)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("count", "per_device"), DEVICES, ids=str)
def test_they_have_the_bits_of_segments_one_by_one(
    opened: OpenedGpu, options: dict[str, Any], count: int, per_device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = convolutional(dropout=True)
    whole: list[Trained] = []
    for steps in (1, 4):
        with opened(delay=delay(steps)) as runtime:
            whole.append(Trained(model, gpu_devices(runtime, count), per_device, steps, **options))
            assert runtime.counts["launch_graph"] > 0
    monkeypatch.setattr(GpuBackend, "round_program", lambda *_: None)
    with opened() as runtime:
        apart = Trained(model, gpu_devices(runtime, count), per_device, **options)
    assert [each.whole for each in (*whole, apart)] == [True, True, False]
    assert all(each.has_the_bits_of(apart) for each in whole)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("count", "per_device"), DEVICES, ids=str)
def test_fused_replicas_learn_as_those_side_by_side(
    opened: OpenedGpu, options: dict[str, Any], count: int, per_device: Any
) -> None:
    """Also with several rounds a launch, and the same bits whatever the timing."""
    model = convolutional(dropout=True)
    with opened() as runtime:
        beside = Trained(model, gpu_devices(runtime, count), per_device, **options)
    fused: list[Trained] = []
    for steps in (1, 4):
        with opened(delay=delay(steps), backwards=steps > 1) as runtime:
            devices = gpu_devices(runtime, count)
            fused.append(Trained(model, devices, per_device, steps, replica_mode="fused", **options))
    assert fused[0].has_the_bits_of(fused[1])
    np.testing.assert_allclose(fused[0].losses, beside.losses, rtol=1e-4)
    for name, value in beside.state.items():
        np.testing.assert_allclose(fused[0].state[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_fused_round_has_as_many_kernels_for_any_number_of_replicas(opened: OpenedGpu) -> None:
    model, kernels = convolutional(dropout=True), []
    for replicas in (1, 4):
        with opened() as runtime:
            devices = gpu_devices(runtime, 1)
            with engine_of(model, devices, replicas, sync="none", replica_mode="fused") as engine:
                source = Prepared(model.batch, replicas)
                engine.run(source.open, 0, 1)  # prepares
                before = runtime.counts["launch"]
                engine.run(source.open, 1, 2)  # captures
                kernels.append(runtime.counts["launch"] - before)
    assert 0 < kernels[0] == kernels[1]


def test_what_cannot_be_fused_is_refused_with_the_reason() -> None:
    model = well()
    options, refused = (
        Synchronisation(replica_mode="fused"),
        "replica_mode: 'fused' is for replicas of one GPU",
    )
    with pytest.raises(InvalidArgumentError, match=refused):
        LearningEngine(model.program, model.shapes, ["/cpu:0"], 2, options)
    with emulated_runtime() as runtime:
        device = gpu_devices(runtime, 1)[0]
        options = Synchronisation(dispatch="fcfs", replica_mode="fused")
        with pytest.raises(UnimplementedError, match=r"replica_mode: .* cannot be fused: dispatch is 'fcfs'"):
            LearningEngine(model.program, model.shapes, [device], 2, options)
        device.close()


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("count", "per_device"), DEVICES[1:], ids=str)
@pytest.mark.parametrize("steps", [1, 4])
def test_a_nan_ends_all_replicas_and_z_at_its_round(
    opened: OpenedGpu, options: dict[str, Any], count: int, per_device: Any, steps: int
) -> None:
    """Also if more rounds are under way: they leave what that many rounds leave that skip the bad update."""
    if "ssgd_from" in options:
        options = {"ssgd_from": 9}
    model, bad = well(), (6, 2)
    with opened(delay=delay(steps)) as runtime:
        ended = Trained(model, gpu_devices(runtime, count), per_device, steps, bad=bad, **options)
    assert "replica 2 is not finite at step 6" in ended.error or options == {"sync": "ssgd"}
    reference = Trained(model, cpu_devices(count), per_device, rounds=7, bad=bad, on_nan="skip", **options)
    for name, value in reference.state.items():
        np.testing.assert_allclose(ended.state[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(ended.losses, reference.losses[: len(ended.losses)], rtol=1e-5)
    assert len(ended.losses) == 6 * len(reference.losses) // 7


@pytest.mark.sampled(1)
@pytest.mark.parametrize("steps", [1, 4])
def test_updates_that_are_skipped_do_not_end_rounds(opened: OpenedGpu, steps: int) -> None:
    model = well()
    with opened() as runtime:
        skipped = Trained(model, gpu_devices(runtime, 1), 3, steps, bad=(6, 2), on_nan="skip")
    reference = Trained(model, cpu_devices(1), 3, bad=(6, 2), on_nan="skip")
    assert not skipped.error
    assert len(skipped.losses) == 3 * ROUNDS
    for name, value in reference.state.items():
        np.testing.assert_allclose(skipped.state[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("options", [{}, {"tau": 3}, {"sync": "none"}], ids=str)
@pytest.mark.parametrize("bad", [None, (6, 2)])
@pytest.mark.slow
def test_physical_gpus_meet_between_graphs(
    options: dict[str, Any], bad: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status that ends the rounds is seen by all of them at the same round."""
    model, rounds = well(), ROUNDS if bad is None else bad[0] + 1
    how = {"on_nan": "skip"} if bad else {}
    reference = Trained(model, cpu_devices(3), 2, rounds=rounds, bad=bad, **how, **options)
    with ExitStack() as stack:
        runtimes = [stack.enter_context(emulated_runtime(delay=delay(seed))) for seed in (1, 2, 3)]
        for index, runtime in enumerate(runtimes):
            runtime.index = index
        nccl = EmulatedNccl(runtimes)
        nccl.show(monkeypatch)
        devices: list[Device] = [
            GpuDevice(f"/gpu:{index}", runtime, limit_nbytes=1 << 27)
            for index, runtime in enumerate(runtimes)
        ]
        found = Trained(model, devices, 2, 4, bad=bad, **options)
        assert found.whole
        assert bool(nccl.posted) == ("sync" not in options)
        assert bool(found.error) == (bad is not None)
    for name, value in reference.state.items():
        np.testing.assert_allclose(found.state[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def trained_on_kept_data(
    opened: OpenedGpu, steps: int, kept: str, runs: int, **options: Any
) -> dict[str, Any]:
    """Everything after nine rounds of batches, made on the device unless `kept` is `never`."""
    data, _ = make_synthetic(37, 8)
    model = classifier("lenet", batch_size=4)

    def train(engine: LearningEngine) -> dict[str, Any]:
        batches = DatasetBatches(data, 4, 4, seed=1, steps_per_launch=steps)
        batches.keep_on_devices(engine.learners, kept)
        for run in range(runs):
            start, stop = 9 * run // runs, 9 * (run + 1) // runs
            within(lambda first=start, end=stop: engine.run(batches.open, first, end))
        return engine.learners.values.state_arrays()

    with opened() as runtime:
        devices = gpu_devices(runtime, 2)
        with engine_of(model, devices, 2, steps_per_launch=steps, **options) as engine:
            return train(engine)


@pytest.mark.slow
def test_batches_are_made_on_the_device(opened: OpenedGpu) -> None:
    first = trained_on_kept_data(opened, 1, "never", 1)
    assert all(same_bits(first, trained_on_kept_data(opened, steps, "always", 3)) for steps in (1, 4))
    fused = [trained_on_kept_data(opened, 4, kept, 3, replica_mode="fused") for kept in ("never", "always")]
    assert same_bits(*fused)


@pytest.mark.slow
def test_a_launch_that_cuda_refuses_names_its_step() -> None:
    model = well()
    with emulated_runtime() as runtime:
        with engine_of(model, gpu_devices(runtime, 1), 2) as engine:
            source = Prepared(model.batch, 2)
            engine.run(source.open, 0, 4)
            runtime.fail_next("launch_graph", after=2)
            with pytest.raises(CudaError, match=r"replica \d at step 6: .*launch_graph"):
                engine.run(source.open, 4, 9)
            assert engine.run(source.open, 6, 9) == 9  # and it goes on
        gc.collect()  # the error held pinned memory


@pytest.mark.slow
def test_a_capture_that_cuda_refuses_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    model = well()
    with emulated_runtime() as runtime:
        captured = Trained(model, gpu_devices(runtime, 1), 2)
    with emulated_runtime() as runtime:
        runtime.fail_next("end_capture", "cudaErrorStreamCaptureUnjoined")
        eager = Trained(model, gpu_devices(runtime, 1), 2)
        assert runtime.counts["launch_graph"] == 0
        gc.collect()  # the error held pinned memory
    assert "launched call by call: their capture failed" in caplog.text
    assert captured.has_the_bits_of(eager)


@pytest.mark.slow
def test_no_memory_for_what_comes_in_gives_everything_back() -> None:
    model = well()
    with emulated_runtime() as runtime:
        with engine_of(model, gpu_devices(runtime, 1), 2) as engine:
            runtime.fail_next("allocate_pinned")
            with pytest.raises(ResourceExhaustedError, match="cudaErrorMemoryAllocation"):
                engine.run(Prepared(model.batch, 2).open, 0, 4)
            assert engine.run(Prepared(model.batch, 2).open, 0, 4) == 4
        gc.collect()  # the error held pinned memory


def test_several_rounds_a_launch_say_what_they_need() -> None:
    model = well()
    with emulated_runtime() as runtime:
        device = gpu_devices(runtime, 1)[0]
        options = Synchronisation(dispatch="fcfs")
        with pytest.raises(InvalidArgumentError, match=r"steps_per_launch=4: .*round_robin; give 1"):
            LearningEngine(model.program, model.shapes, [device], 2, options, steps_per_launch=4)
        device.close()


@pytest.mark.slow
def test_a_resize_makes_the_graphs_anew(opened: OpenedGpu) -> None:
    model = well()
    with opened() as runtime, engine_of(model, gpu_devices(runtime, 1), 1) as engine:
        for replicas, start in ((1, 0), (3, 4), (2, 8), (1, 12)):
            if start:
                engine.resize(replicas, start)
            source = Prepared(model.batch, replicas)
            assert within(lambda s=source, first=start: engine.run(s.open, first, first + 4)) == start + 4
