"""Replicas with a part on each of several devices: the bits of whole replicas, ordered by events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import groupby
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import ReadyBatch, StepProgram
from scheduler.batches.sources import gathered
from scheduler.replicas.mail import Mail
from tensorbow.devices import LaunchLog, find_races
from tensorbow.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    NumericsError,
    TensorBowError,
)
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import (
    Hesitant,
    Prepared,
    cpu_devices,
    engine_of,
    gpu_devices,
    null_devices,
    same_bits,
    within,
)

RESTARTS = tb.train.PiecewiseConstant([3, 5], [0.3, 0.2, 0.1])
TWO, THREE = (0, 1, 0), (1, 0, 2)  # parts of the three layers; the values go forth and back


def layered(
    places: Sequence[int] | None, kind: str = "cpu", *, exchange: bool = False, second: bool = False
) -> Model:
    """Three layers with dropout and batch norm; places: the part of each layer, None for one device.

    exchange: the middle of the step depends on all replicas. second: another loss with an optimiser of its
    own, which reads what the first one wrote.
    """
    rng = np.random.default_rng(3)

    def at(layer: int) -> Any:
        return nullcontext() if places is None else tb.device(f"/{kind}:{places[layer]}")

    def weights(name: str, *shape: int) -> tb.Variable:
        return tb.Variable(rng.normal(size=shape).astype(np.float32) * 0.5, name=name)

    with tb.Graph().as_default() as graph:
        tb.set_random_seed(3)
        x = tb.placeholder(tb.float32, [None, 5], name="x")
        y = tb.placeholder(tb.float32, [None, 2], name="y")
        with at(0):
            hidden = tb.nn.relu(tb.matmul(x, weights("first", 5, 7)))
        with at(1):
            hidden = tb.nn.dropout(tb.matmul(hidden, weights("second", 7, 4)), rate=0.3, seed=4)
            if exchange:
                hidden = hidden - tb.all_sum(tb.reduce_mean(hidden, 0)) * 0.1
            hidden = tb.layers.batch_normalization(hidden, training=True)
        with at(2):
            loss = tb.reduce_mean(tb.square(tb.matmul(hidden, weights("third", 4, 2)) - y))
        with tb.control_dependencies(graph.get_collection(tb.GraphKeys.UPDATE_OPS)):
            update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        if second:
            with tb.control_dependencies([update]):
                after = tb.reduce_sum(tb.square(tb.global_variables()[0].read_value()))
            update = tb.train.AdamOptimizer(0.01).minimize(after, var_list=tb.trainable_variables()[:1])
        metrics = {"size": tb.shape(hidden)[0], "norm": tb.reduce_sum(tb.square(hidden))}
        program = StepProgram((x, y), loss, update, metrics)
        initial = program.initial_values()

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        own = np.random.default_rng((17, round, replica))
        return own.normal(size=(6, 5)).astype(np.float32), own.normal(size=(6, 2)).astype(np.float32)

    shapes = [tb.TensorSpec((6, 5), tb.float32), tb.TensorSpec((6, 2), tb.float32)]
    return Model(program, shapes, initial, batch)


def trained(
    model: Model, devices: list[Any], parts: int, per_device: Any = 1, rounds: int = 8, **options: Any
) -> tuple[dict[str, Any], list[Any]]:
    """The state after some rounds, and the results of all of them."""
    told: list[Any] = []
    schedule, steps = options.pop("schedule", RESTARTS), options.pop("steps_per_launch", 1)
    with engine_of(
        model, devices, per_device, schedule, devices_per_replica=parts, steps_per_launch=steps, **options
    ) as engine:
        source = Prepared(model.batch, engine.learners.count).open
        opened = gathered(source, steps) if steps > 1 else source
        run = lambda: engine.run(opened, 0, rounds, told.append)  # noqa: E731
        assert within(run) == rounds
        state = engine.learners.values.state_arrays()
    return state, [(task.round, task.loss, *map(float, task.metrics)) for each in told for task in each]


OPTIONS = [
    {"sync": "sma"},
    {"sync": "sma", "tau": 3, "mu": 0.3},
    {"sync": "sma", "staleness": 1, "launch_ahead": 3},
    {"sync": "easgd"},
    {"sync": "diloco", "tau": 3},
    {"sync": "diloco", "tau": 2, "staleness": 1},
    {"sync": "ssgd"},
    {"sync": "sma", "ssgd_from": 4},
    {"sync": "none", "launch_ahead": 3},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("places", [TWO, THREE], ids=str)
@pytest.mark.parametrize(("groups", "per_device"), [(2, 1), (1, 2), (2, (1, 2))])
def test_the_bits_are_those_of_whole_replicas(
    kernels: str, options: dict[str, Any], places: Sequence[int], groups: int, per_device: Any
) -> None:
    parts = max(places) + 1
    whole = trained(layered(None), cpu_devices(groups), 1, per_device, **options)
    apart = trained(layered(places), cpu_devices(groups * parts, delays=groups), parts, per_device, **options)
    assert same_bits(whole[0], apart[0])
    assert whole[1] == apart[1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("steps", [3, 8])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_several_rounds_in_a_launch(kernels: str, options: dict[str, Any], steps: int) -> None:
    one = trained(layered(THREE), cpu_devices(6), 3, **options)
    several = trained(layered(THREE), cpu_devices(6, delays=steps), 3, steps_per_launch=steps, **options)
    assert same_bits(one[0], several[0])
    assert one[1] == several[1]


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["sma", "ssgd", "none"])
@pytest.mark.parametrize("form", [{"exchange": True}, {"second": True}], ids=str)
def test_exchanges_and_second_losses_in_a_part(kernels: str, sync: str, form: dict[str, bool]) -> None:
    whole = trained(layered(None, **form), cpu_devices(2), 1, sync=sync, schedule=False)
    devices = cpu_devices(6, delays=5)
    apart = trained(layered(THREE, **form), devices, 3, sync=sync, schedule=False)
    assert same_bits(whole[0], apart[0])


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("sync", ["sma", "ssgd"])
def test_on_emulated_gpus(sync: str) -> None:
    with emulated_runtime() as runtime:
        whole = trained(layered(None), gpu_devices(runtime, 2), 1, rounds=4, sync=sync)
        apart = trained(layered(TWO, "gpu"), gpu_devices(runtime, 4), 2, rounds=4, sync=sync)
    assert same_bits(whole[0], apart[0])


def log_of(options: dict[str, Any], groups: int = 2, form: dict[str, bool] | None = None) -> LaunchLog:
    log = LaunchLog()
    model = layered(THREE, "null", **(form or {}))
    with engine_of(
        model, null_devices(3 * groups, log), 2, RESTARTS, devices_per_replica=3, **options
    ) as engine:
        source = Hesitant(model.batch, 2 * groups, pause_s=0)
        assert within(lambda: engine.run(source.open, 0, 9)) == 9
    return log


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("launch_ahead", [1, 3])
def test_no_races(options: dict[str, Any], launch_ahead: int) -> None:
    assert find_races(log_of({**options, "launch_ahead": launch_ahead})) == []


def test_the_checker_finds_mail_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mail, "before", lambda self, segment, number: iter(()))
    races = find_races(log_of({"launch_ahead": 3}))
    assert any("MAIL" in str(race) for race in races)


def test_a_part_goes_on_while_another_works_on_the_step_before() -> None:
    """Forward passes alone: the first part's third step waits for the second part's first, not second."""
    log = LaunchLog()
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 5], name="x")
        with tb.device("/null:0"):
            hidden = tb.nn.relu(x)
        with tb.device("/null:1"):
            count = tb.Variable(np.float32(0), trainable=False, name="count", combine="sum")
            update = count.assign_add(tb.reduce_sum(tb.square(hidden)))
        program = StepProgram((x,), None, update.op, {})
    spec, batch = tb.TensorSpec((6, 5), tb.float32), (np.ones((6, 5), np.float32),)
    model = Model(program, [spec], {"count": np.float32(0)}, lambda round, replica: batch)
    options = {"sync": "none", "launch_ahead": 4, "devices_per_replica": 2}
    devices = null_devices(2, log, hold=True)
    with engine_of(model, devices, 1, False, **options) as engine:
        run = engine.new_run(0, 4, None, None)
        engine.begin(run)
        for round in range(4):
            run.take(ReadyBatch(0, round, batch, lambda: None))
        first = [r for r in log.records() if r.stream.device is devices[0] and r.kind in ("launch", "wait")]
        complete(devices[:1])
        left = len(devices[0].pending())
        complete(devices)
        while run.finished_at is None:
            run.take(run.inbox.get())
            complete(devices)
        engine.end(run)
    kinds = [kind for kind, _ in groupby(r.kind for r in first)]  # value and status: two waits
    assert kinds == ["launch", "wait", "launch", "wait", "launch"]
    assert left == 2


def complete(devices: Sequence[Any]) -> None:
    """Completes what devices can do by themselves."""
    while ready := [(device, event) for device in devices for event in device.completable()]:
        for device, event in ready:
            device.complete(event)


def bad_batches(model: Model, at: tuple[int, int], value: float) -> Callable[[int, int], tuple[Any, ...]]:
    def batch(round: int, replica: int) -> tuple[Any, ...]:
        x, y = model.batch(round, replica)
        return (x, np.full_like(y, value)) if (round, replica) == at else (x, y)

    return batch


@pytest.mark.parametrize("sync", ["sma", "ssgd", "none"])
@pytest.mark.sampled(1)
def test_a_loss_that_is_not_finite_stops_all_parts(kernels: str, sync: str) -> None:
    states = []
    for places, parts in ((None, 1), (THREE, 3)):
        model = layered(places)
        options = {"sync": sync, "devices_per_replica": parts, "launch_ahead": 1}
        with engine_of(model, cpu_devices(2 * parts), 1, **options) as engine:
            source = Prepared(bad_batches(model, (4, 1), np.nan), 2)
            with pytest.raises(NumericsError, match=r"the loss of replica 1 is not finite at step 4; .*y"):
                within(lambda engine=engine, source=source: engine.run(source.open, 0, 9))
            states.append(engine.learners.values.state_arrays())
            again = Prepared(model.batch, 2)
            assert within(lambda engine=engine, again=again: engine.run(again.open, 5, 7)) == 7
    assert same_bits(*states)


@pytest.mark.parametrize("sync", ["sma", "ssgd"])
@pytest.mark.sampled(1)
def test_skipped_updates_are_skipped_in_all_parts(kernels: str, sync: str) -> None:
    states, skipped = [], []
    for places, parts in ((None, 1), (THREE, 3)):
        model = layered(places)
        options = {"sync": sync, "devices_per_replica": parts, "on_nan": "skip"}
        with engine_of(model, cpu_devices(2 * parts), 1, **options) as engine:
            source = Prepared(bad_batches(model, (3, 0), np.inf), 2)
            assert within(lambda engine=engine, source=source: engine.run(source.open, 0, 7)) == 7
            states.append(engine.learners.values.state_arrays())
            skipped.append(engine.skipped_updates)
    assert same_bits(*states)
    assert skipped[0] == skipped[1] > 0


def test_the_op_that_is_not_finite_is_named_wherever_it_is() -> None:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [2], name="x")
        with tb.device("/cpu:0"):
            w = tb.Variable(np.ones(2, np.float32), name="w")
            logs = tb.log(x, name="logs")
        with tb.device("/cpu:1"):
            loss = tb.reduce_sum(w * logs)
        update = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
        program = StepProgram((x,), loss, update, {})
    batch = (np.zeros(2, np.float32),)
    model = Model(program, [x.spec], {"w": np.ones(2, np.float32)}, lambda round, replica: batch)
    with engine_of(model, cpu_devices(2), 1, devices_per_replica=2) as engine:
        with pytest.raises(NumericsError, match=r"infinite result: Log logs \(made at .*test_parted"):
            within(lambda: engine.run(Prepared(model.batch, 1).open, 0, 3))
        assert engine.learners.values.replica_values(0)["w"].tolist() == [1, 1]


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("launch_ahead", [1, 3])
@pytest.mark.sampled(1)
def test_an_op_that_fails_in_a_part_ends_the_run(kernels: str, part: int, launch_ahead: int) -> None:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.int32, [2], name="x")
        with tb.device(f"/cpu:{part}"):
            w = tb.Variable(np.ones(3, np.float32), name="w")
            rows = tb.gather(w, x, name="rows")
        with tb.device(f"/cpu:{1 - part}"):
            v = tb.Variable(np.ones(2, np.float32), name="v")
            loss = tb.reduce_sum(tb.square(rows * v))
        update = tb.train.GradientDescentOptimizer(0.01).minimize(loss)
        program = StepProgram((x,), loss, update, {})
        initial = program.initial_values()

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        return (np.array([1, 7 if (round, replica) == (3, 1) else 2], np.int32),)

    model = Model(program, [x.spec], initial, batch)
    options = {"devices_per_replica": 2, "launch_ahead": launch_ahead}
    with engine_of(model, cpu_devices(4, delays=3), 1, False, **options) as engine:
        with pytest.raises(TensorBowError, match=r"replica 1 at step 3: .*rows") as told:
            within(lambda: engine.run(Prepared(batch, 2).open, 0, 9))
        assert not isinstance(told.value, AbortedError)
        engine.initialize(initial)
        assert within(lambda: engine.run(Prepared(batch, 2).open, 4, 9)) == 9


@pytest.mark.slow
def test_a_part_that_has_nothing_to_do() -> None:
    whole = trained(layered(None), cpu_devices(2), 1)
    apart = trained(layered((1, 1, 1)), cpu_devices(6), 3)
    assert same_bits(whole[0], apart[0])


@pytest.mark.slow
def test_one_replica_over_three_devices(kernels: str) -> None:
    whole = trained(layered(None), cpu_devices(1), 1)
    apart = trained(layered(THREE), cpu_devices(3), 3)
    assert same_bits(whole[0], apart[0])


@pytest.mark.slow
def test_what_is_refused() -> None:
    model = layered(TWO)
    with pytest.raises(InvalidArgumentError, match="a multiple of devices_per_replica=2, got 3"):
        trained(model, cpu_devices(3), 2)
    with pytest.raises(InvalidArgumentError, match="expected round_robin"):
        trained(model, cpu_devices(2), 2, dispatch="fcfs")
    with pytest.raises(InvalidArgumentError, match="expected /null:0 to be a cpu"):
        trained(model, [*cpu_devices(2), *null_devices(2, None)], 2)
    with engine_of(model, cpu_devices(2), 1, devices_per_replica=2) as engine:
        with pytest.raises(FailedPreconditionError, match="several devices each stay as many"):
            engine.resize(2)
        with pytest.raises(InvalidArgumentError, match="expected 2 arrays, got 1"):
            engine.learners.require_inputs([(np.zeros((6, 5), np.float32),)])
