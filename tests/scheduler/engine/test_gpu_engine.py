"""The engine on GPUs: the CPU's results, the same bits every time, what it costs, memory.

Emulated ones here; what takes `opened` runs in `tests/gpu` on the GPU of the machine.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import TaskResult
from scheduler.averaging.synchronisers import averaging
from tensorbow.devices import Device, GpuDevice
from tensorbow.errors import InvalidArgumentError, NumericsError, ResourceExhaustedError
from tensorbow.kernels import backend_for
from tensorbow.program import Region
from tests.gpu_rig.counted import OpenedGpu
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model, convolutional, logistic, well
from tests.scheduler_rig.reference import FirstComeAveraging
from tests.scheduler_rig.running import (
    Hesitant,
    Prepared,
    cpu_devices,
    engine_of,
    gpu_devices,
    poison,
    same_bits,
    within,
)

pytestmark = needs_compiler
ROUNDS = 7


def delays(seed: int) -> Any:
    rng = random.Random(seed)
    return lambda: time.sleep(rng.random() * 2e-4 if rng.random() < 0.3 else 0)


def trained(
    model: Model, devices: list[Device], per_device: Any, *, poisoned: bool = False, **options: Any
) -> tuple[list[float], dict[str, Any]]:
    """The losses and everything that is left after some rounds."""
    losses: list[float] = []
    with engine_of(model, devices, per_device, **options) as engine:
        if poisoned:
            poison(engine)
        source = Hesitant(model.batch, engine.learners.count)
        within(lambda: engine.run(source.open, 0, ROUNDS, lambda results: losses.extend(results.losses)))
        return losses, engine.learners.values.state_arrays()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tau": 2, "mu": 0.5},
        {"staleness": 1},
        {"sync": "ssgd"},
        {"sync": "none"},
        {"ssgd_from": 4},
        {"sync": "easgd", "tau": 2},
        {"sync": "diloco", "tau": 3},
        {"sync": "diloco", "tau": 2, "staleness": 1},
        {"launch_ahead": 1},
        {"launch_ahead": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("count", "per_device"), [(1, 4), pytest.param(2, 2, marks=pytest.mark.slow), (2, (3, 1))]
)
def test_it_agrees_with_the_cpu(
    opened: OpenedGpu, options: dict[str, Any], count: int, per_device: Any
) -> None:
    model = convolutional(dropout=True)
    losses, state = trained(model, cpu_devices(count), per_device, **options)
    with opened(delay=delays(1)) as runtime:
        found, left = trained(model, gpu_devices(runtime, count), per_device, poisoned=True, **options)
        assert runtime.counts["launch_graph"] > 0
    np.testing.assert_allclose(found, losses, rtol=1e-4, atol=1e-5)
    assert left.keys() == state.keys()
    for name, value in state.items():
        np.testing.assert_allclose(left[name], value, rtol=1e-4, atol=2e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"tau": 3}, {"staleness": 1}, {"sync": "none"}], ids=str)
def test_first_come_first_served(opened: OpenedGpu, options: dict[str, Any]) -> None:
    model, results = well(), list[TaskResult]()
    with opened(delay=delays(2)) as runtime:
        devices = gpu_devices(runtime, 2)
        with engine_of(model, devices, 2, dispatch="fcfs", **options) as engine:
            poison(engine)
            source = Hesitant(model.batch, 4)
            assert within(lambda: engine.run(source.open, 0, ROUNDS, results.extend)) == ROUNDS
            left = [engine.learners.values.replica_values(index)["w"] for index in range(4)]
            reference = FirstComeAveraging(model.initial["w"], 4, engine.options, devices=2)
    assert [(r.round, r.batch_number) for r in results] == [(t, i) for t in range(ROUNDS) for i in range(4)]
    reference.run(model.batch, [result.replica for result in results], 0)
    np.testing.assert_allclose(left, reference.w, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_doubles_agree_with_the_cpu_to_rounding(opened: OpenedGpu) -> None:
    model = logistic()
    _, state = trained(model, cpu_devices(2), 2)
    with opened() as runtime:
        _, left = trained(model, gpu_devices(runtime, 2), 2)
    for name, value in state.items():
        np.testing.assert_allclose(left[name], value, rtol=1e-12, err_msg=name)


@pytest.mark.slow
def test_the_same_bits_whatever_the_timing(opened: OpenedGpu) -> None:
    model = convolutional(dropout=True)
    first: Any = None
    for seed in range(4):
        with opened(delay=delays(seed), backwards=bool(seed % 2)) as runtime:
            losses, state = trained(model, gpu_devices(runtime, 2), 2, tau=2)
        first = first or (losses, state)
        assert losses == first[0]
        assert same_bits(state, first[1])


def beside_has_the_bits_of_alone(opened: OpenedGpu, model: Model, replicas: int, times: int) -> None:
    """Replicas on one GPU at the same time, again and again, against each with the GPU to itself."""
    alone: dict[str, Any] = {}
    for replica in range(replicas):
        own = Model(
            model.program, model.shapes, model.initial, lambda t, _, mine=replica: model.batch(t, mine)
        )
        with opened() as runtime:
            _, state = trained(own, gpu_devices(runtime, 1), 1, sync="none")
        alone |= {name.replace("replica0", f"replica{replica}"): value for name, value in state.items()}
    for seed in range(times):
        with opened(delay=delays(seed)) as runtime:
            _, beside = trained(model, gpu_devices(runtime, 1), replicas, sync="none")
        for name, value in alone.items():
            assert value.tobytes() == beside[name].tobytes(), f"{name}, time {seed}"


@pytest.mark.slow
def test_replicas_beside_one_another_have_the_bits_of_replicas_alone(opened: OpenedGpu) -> None:
    beside_has_the_bits_of_alone(opened, convolutional(dropout=False), replicas=3, times=3)


def owned_ranges(engine: tb.LearningEngine) -> list[tuple[int, int, str]]:
    """Address ranges of the GPU's memory, with owners, that belong to one replica or to z alone."""
    ranges: list[tuple[int, int, str]] = []
    for replica in engine.learners.replicas:
        nbytes = replica.own_step.region_nbytes
        for region, base in replica.binding.bases.items():
            if region.name not in ("CENTRAL", "EXCHANGE", "RESULTS") and nbytes.get(region, 0):
                ranges.append((base, base + nbytes[region], f"replica {replica.index} {region.name}"))
        workspace = backend_for(replica.device).context_of(replica.group).workspace  # type: ignore[attr-defined]
        end = workspace.address + workspace.nbytes
        ranges.append((workspace.address, end, f"replica {replica.index} workspace"))
    for index, central in enumerate(engine.learners.central):
        for region in (Region.CENTRAL, Region.EXCHANGE, Region.RESULTS):
            base = central.bases[region]
            end = base + central._binding.executable.region_nbytes[region]
            ranges.append((base, end, f"{region.name} of device {index}"))
    return ranges


@pytest.mark.slow
def test_memory_of_replicas_never_overlaps(opened: OpenedGpu) -> None:
    model = convolutional(dropout=True)
    with opened() as runtime, engine_of(model, gpu_devices(runtime, 2), 3) as engine:
        engine.run(Prepared(model.batch, 6).open, 0, 3)
        ranges = sorted(owned_ranges(engine))
    assert len(ranges) > 6 * 5
    for (_, end, first), (start, _, second) in itertools.pairwise(ranges):
        assert end <= start, f"{first} overlaps {second}"


def captured_has_the_bits_of_eager(opened: OpenedGpu, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as runtime:
        captured = trained(model, gpu_devices(runtime, 1), 2)
        assert runtime.counts["launch_graph"] > 0
    monkeypatch.setattr("tensorbow.kernels.gpu.plan.EAGER_LAUNCHES", 10**9)
    monkeypatch.setattr("tensorbow.kernels.gpu.rounds.device_rounds.EAGER_LAUNCHES", 10**9)
    with opened() as runtime:
        eager = trained(model, gpu_devices(runtime, 1), 2)
        assert runtime.counts["launch_graph"] == 0
    assert captured[0] == eager[0]
    assert same_bits(captured[1], eager[1])


@pytest.mark.slow
def test_graphs_have_the_bits_of_single_launches(opened: OpenedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    captured_has_the_bits_of_eager(opened, convolutional(dropout=True), monkeypatch)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_round_costs_one_graph_launch_and_one_copy(opened: OpenedGpu, replicas: int) -> None:
    model = well()
    with opened() as runtime, engine_of(model, gpu_devices(runtime, 1), replicas) as engine:
        source = Prepared(model.batch, replicas)
        engine.run(source.open, 0, 4)
        before = dict(runtime.counts)
        engine.run(source.open, 4, 24)
        counts = {kind: (runtime.counts[kind] - before.get(kind, 0)) / 20 for kind in runtime.counts}
        assert counts["launch_graph"] == 1
        assert counts["launch"] == 0
        assert counts["copy"] <= 1.1  # of the step scalars; batches and results lie in pinned memory
        assert counts["begin_capture"] == counts["allocate"] == counts["allocate_pinned"] == 0


def test_update_and_correction_are_one_pass(opened: OpenedGpu) -> None:
    model = convolutional(dropout=False)
    with opened() as runtime, engine_of(model, gpu_devices(runtime, 1), 2) as engine:
        segment = engine.learners.executable.variants[averaging(0)][1]
        (launch,) = engine.learners.replicas[0].binding.plan.launches(segment)
        check, *updates = launch.groups  # of decayed weights, and of the others
        assert [update.definition.name for update in updates] == ["ApplyMomentum"] * 2
        assert all("the update and w -= c in one pass" in update.note for update in updates)
        assert check.definition.name == "GradientCheck"


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [1, 3])
def test_tasks_are_queued_before_the_first_has_ended(ahead: int) -> None:
    model, gate = well(), threading.Event()
    with (
        emulated_runtime() as runtime,
        engine_of(model, gpu_devices(runtime, 1), 2, launch_ahead=ahead) as engine,
    ):
        source = Prepared(model.batch, 2)
        engine.run(source.open, 0, 4)
        before, runtime.delay = runtime.counts["launch_graph"], gate.wait
        thread = threading.Thread(target=lambda: engine.run(source.open, 4, 12))
        thread.start()
        counts = [-1, 0]
        while counts[-1] != counts[-2]:  # until nothing more is enqueued
            time.sleep(0.2)
            counts.append(runtime.counts["launch_graph"] - before)
        gate.set()
        thread.join(30)
        assert not thread.is_alive()
        assert counts[-1] == ahead  # a graph for each round


def test_a_loss_that_is_not_finite_stops_it_and_names_the_op(opened: OpenedGpu) -> None:
    model = well()
    bad = Model(
        model.program,
        model.shapes,
        model.initial,
        lambda t, i: (np.full(7, 1e30, np.float32),) if (t, i) == (4, 1) else model.batch(t, i),
    )
    with opened() as runtime, engine_of(bad, gpu_devices(runtime, 1), 2) as engine:
        with pytest.raises(
            NumericsError, match=r"loss of replica 1 is not finite at step 4; first NaN .*: \w+"
        ):
            engine.run(Prepared(bad.batch, 2).open, 0, 8)
        assert all(np.isfinite(value).all() for value in engine.learners.values.state_arrays().values())
        engine.run(Prepared(model.batch, 2).open, 4, 6)


def test_more_replicas_than_fit_say_how_many_do() -> None:
    model = convolutional(dropout=False)
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime, limit_nbytes=40 << 20) as device:
        with pytest.raises(
            ResourceExhaustedError, match=r"9 replicas do not fit on /gpu:0: (\d) fit"
        ) as error:
            tb.LearningEngine(model.program, model.shapes, [device], 9)
        fit = int(str(error.value).partition(" fit in")[0][-1])
        assert device.memory.held_nbytes == 0
        with tb.LearningEngine(model.program, model.shapes, [device], fit) as engine:
            engine.learners.values.initialize(model.initial)
            engine.run(Prepared(model.batch, fit).open, 0, 3)
        assert device.memory.held_nbytes == 0


@pytest.mark.slow
def test_a_run_resumes_bit_for_bit(opened: OpenedGpu) -> None:
    model = convolutional(dropout=True)
    with opened() as runtime:
        _, straight = trained(model, gpu_devices(runtime, 2), 2)
    with opened() as runtime:
        with engine_of(model, gpu_devices(runtime, 2), 2) as engine:
            engine.run(Prepared(model.batch, 4).open, 0, 3)
            kept = engine.learners.values.state_arrays()
        with engine_of(model, gpu_devices(runtime, 2), 2) as engine:
            engine.learners.values.load_state_arrays(kept)
            engine.run(Prepared(model.batch, 4).open, 3, ROUNDS)
            assert same_bits(engine.learners.values.state_arrays(), straight)


def test_devices_of_several_kinds_are_refused() -> None:
    model = well()
    with emulated_runtime() as runtime:
        devices = [*cpu_devices(1), *gpu_devices(runtime, 1)]
        with pytest.raises(InvalidArgumentError, match="one kind of device for replicas, got cpu and gpu"):
            tb.LearningEngine(model.program, model.shapes, devices, 1)
        for device in devices:
            device.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: tb.train.PiecewiseConstant([2], [0.1, 0.05]),
        lambda: tb.train.WarmUp(tb.train.CosineDecay(0.1, 6), 4),
    ],
)
def test_a_schedule_of_the_optimiser_counts_and_restarts_as_on_the_cpu(opened: OpenedGpu, make: Any) -> None:
    schedule = make()
    model, options = well(rate=schedule), {"schedule": schedule, "mu": 0.5}
    with opened() as runtime:
        losses, values = trained(model, gpu_devices(runtime, 1), 2, **options)
    expected_losses, expected = trained(model, cpu_devices(1), 2, **options)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-5, atol=1e-6)
    assert values["replica1/Momentum/iterations"] == ROUNDS
