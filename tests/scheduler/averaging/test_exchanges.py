"""Exchanges inside a step: what replicas get, on which devices it runs, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import DatasetBatches, LearningEngine, StepProgram, Synchronisation
from tensorbow.data import make_synthetic
from tensorbow.devices import LaunchLog, find_races
from tensorbow.errors import InvalidArgumentError
from tensorbow.kernels import backends
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.ops.collectives import all_gather, all_sum, broadcast
from tensorbow.ops.exchanges import ReplicaId
from tensorbow.program import SegmentKind
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import FUSE, Fuse, Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, gpu_devices, null_devices, within

SIZE, ROUNDS = 7, 5
NONE = {"sync": "none"}
Step = Callable[[tb.Tensor], tb.Tensor]
LAYOUTS = [(1, 1), (1, 3), (2, 2), (3, 1)]  # devices, replicas on each


pytestmark = pytest.mark.usefixtures("kernels")


@pytest.fixture
def launches(kernels: str) -> tuple[int, ...]:
    """Rounds of a launch."""
    return (1, 4) if kernels == "native" else (1,)


def own(round: int, replica: int) -> Any:
    return np.random.default_rng((5, round, replica)).normal(size=SIZE).astype(np.float32)


def batch(round: int, replica: int) -> tuple[Any, ...]:
    return (own(round, replica),)


def model_of(step: Step, **metrics: Step) -> Model:
    """Minimises what `step` makes of the weights' distance from a replica's input."""
    initial = {"w": np.linspace(-1, 1, SIZE).astype(np.float32)}
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [SIZE], name="x")
        w = tb.Variable(initial["w"], name="w")
        loss = tb.reduce_sum(tb.square(step(w - x))) * 0.5
        others = {name: make(x) for name, make in metrics.items()}
        update = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
    return Model(StepProgram((x,), loss, update, others), [x.spec], initial, batch)


def trained(
    model: Model, devices: list[Any], per_device: int, **options: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Results by round and replica, and the state at the end."""
    count, results = len(devices) * per_device, list[Any]()
    with engine_of(model, devices, per_device, tb.train.Constant(0.1), **options) as engine:
        if devices[0].kind == "cpu":  # nothing here needs a reference kernel
            is_native = backends.backend_of_kind("cpu").title.startswith("native")
            assert engine.learners.launches_rounds == is_native
        engine.run(Prepared(model.batch, count).open, 0, ROUNDS, results.extend)
        state = engine.learners.values.state_arrays()
    return sorted(results, key=lambda each: (each.round, each.replica)), state


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "per_device"), LAYOUTS)
def test_each_replica_gets_what_all_hand_in(devices: int, per_device: int) -> None:
    count = devices * per_device
    last = count - 1
    model = model_of(
        tb.identity,
        total=all_sum,
        twice=lambda x: all_sum(all_sum(x) * 0.5),
        rows=lambda x: all_gather(tb.stack([x, x * 2.0])),
        source=lambda x: broadcast(x + 1.0, last),
        numbers=lambda x: all_sum(ReplicaId() + 1),
        constant=lambda x: all_sum(tb.constant([1.0, 2.0])),
        empty=lambda x: all_gather(x[:0]),
        flags=lambda x: all_gather(x > 0.0),
    )
    results, _ = trained(model, cpu_devices(devices), per_device, **NONE)
    assert len(results) == ROUNDS * count
    for result in results:
        each = [own(result.round, replica) for replica in range(count)]
        total = np.sum(each, axis=0, dtype=np.float32)
        got = {name: np.asarray(value) for name, value in named(model, result).items()}
        np.testing.assert_allclose(got["total"], total, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got["twice"], total * 0.5 * count, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(got["rows"], np.stack([np.stack([x, x * 2]) for x in each]))
        np.testing.assert_array_equal(got["source"], each[last] + np.float32(1))
        assert got["numbers"] == count * (count + 1) // 2
        np.testing.assert_array_equal(got["constant"], [count, 2.0 * count])
        assert got["empty"].shape == (count, 0)
        np.testing.assert_array_equal(got["flags"], np.stack(each) > 0)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "per_device"), LAYOUTS)
def test_gradients_flow_through_exchanges(devices: int, per_device: int) -> None:
    """d_i is w_i - x_i; each replica's loss is half the squared sum of what the exchange gives it.

    Under `ssgd` the mean of these gradients, of which some are results of exchanges themselves.
    """
    count, rate = devices * per_device, np.float32(0.1)
    weights = [model_of(tb.identity).initial["w"]] * count
    cases: dict[str, tuple[Step, Callable[[list[Any]], list[Any]]]] = {
        "sum": (all_sum, lambda d: [count * sum(d)] * count),
        "gather": (all_gather, lambda d: [count * each for each in d]),
        "broadcast": (
            lambda d: broadcast(d, count - 1),
            lambda d: [np.zeros(SIZE)] * (count - 1) + [count * d[-1]],
        ),
    }
    for sync, (name, (step, gradients)) in itertools.product(("none", "ssgd"), cases.items()):
        _, state = trained(model_of(step), cpu_devices(devices), per_device, sync=sync)
        expected = [*weights]
        for round in range(ROUNDS):
            own_gradients = gradients([w - own(round, replica) for replica, w in enumerate(expected)])
            if sync == "ssgd":
                own_gradients = [np.mean(own_gradients, axis=0)] * count
            expected = [w - rate * g for w, g in zip(expected, own_gradients, strict=True)]
        for replica, value in enumerate(expected):
            np.testing.assert_allclose(
                state[f"replica{replica}/w"], value, rtol=2e-4, atol=1e-4, err_msg=name
            )


def named(model: Model, result: Any) -> dict[str, Any]:
    """A result's metrics by name."""
    return dict(zip(model.program.metrics, result.metrics, strict=True))


@pytest.mark.parametrize(("devices", "per_device"), [(1, 2), (2, 2)])
@pytest.mark.parametrize("options", [NONE, {}, {"sync": "ssgd"}], ids=str)
@pytest.mark.sampled(3)
def test_ops_that_read_several_results(devices: int, per_device: int, options: dict[str, Any]) -> None:
    """Sums read beside a gather or a broadcast of the same exchange, and behind a later exchange."""
    count = devices * per_device
    model = model_of(
        tb.identity,
        beside=lambda x: all_sum(x) + broadcast(x * 3.0, 1) + all_gather(x)[0],
        later=lambda x: all_sum(x + 1.0) * all_sum(tb.tanh(x * all_sum(x))),
    )
    results, _ = trained(model, cpu_devices(devices), per_device, **options)
    for result in results:
        each = [own(result.round, replica) for replica in range(count)]
        total, got = sum(each), named(model, result)
        np.testing.assert_allclose(got["beside"], total + 3 * each[1] + each[0], rtol=1e-4, atol=1e-5)
        later = (total + count) * sum(np.tanh(x * total) for x in each)
        np.testing.assert_allclose(got["later"], later, rtol=1e-3, atol=1e-4)


def late_exchange() -> Model:
    """The gradient of `v` is scaled by an exchange of the updated `w`."""
    initial = {"w": np.linspace(-1, 1, SIZE).astype(np.float32), "v": np.ones(SIZE, np.float32)}
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [SIZE], name="x")
        w, v = (tb.Variable(value, name=name) for name, value in initial.items())
        loss = tb.reduce_sum(tb.square(w - x))
        first = tb.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=[w])
        with tb.control_dependencies([first]):
            scale = tb.stop_gradient(tb.tanh(all_sum(tb.identity(w) * x)) * 2.0 + 1.0)
            second = tb.train.GradientDescentOptimizer(0.1).minimize(tb.reduce_sum(v * scale), var_list=[v])
    return Model(StepProgram((x,), loss, tb.group(first, second), {}), [x.spec], initial, batch)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"mu": 0.5}, {"mu": 0.5, "tau": 2}, {"sync": "ssgd"}, NONE], ids=str)
def test_an_exchange_behind_an_update(
    options: dict[str, Any], kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels == "reference":
        pytest.skip("it is what native code is compared with")
    _, state = trained(late_exchange(), cpu_devices(1), 2, **options)
    monkeypatch.setitem(backends._backends, "cpu", ReferenceBackend())
    _, expected = trained(late_exchange(), cpu_devices(1), 2, **options)
    assert not np.array_equal(state["replica0/v"], np.ones(SIZE))
    for name, value in expected.items():
        np.testing.assert_allclose(state[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


DATA, _ = make_synthetic(96, 16, height=4, width=5)


def classifier(exchange_gradients: bool, normalise: Callable[[tb.Tensor], tb.Tensor]) -> StepProgram:
    with tb.Graph().as_default():
        tb.set_random_seed(3)
        images = tb.placeholder(tb.float32, [None, 4, 5, 1], name="images")
        labels = tb.placeholder(tb.int64, [None], name="labels")
        hidden = tb.nn.relu(normalise(tb.layers.dense(tb.reshape(images, [-1, 20]), 8)))
        logits = tb.layers.dense(hidden, 10)
        losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tb.reduce_mean(losses)
        optimizer = tb.train.MomentumOptimizer(0.05, 0.9)
        pairs = optimizer.compute_gradients(loss)
        if exchange_gradients:
            share = 1.0 / tb.cast(all_sum(tb.constant(1, tb.int32)), tb.float32)
            pairs = [(all_sum(gradient) * share, variable) for gradient, variable in pairs]
        return StepProgram((images, labels), loss, optimizer.apply_gradients(pairs), {})


def learned(
    program: StepProgram, devices: int, per_device: int, batch_size: int, steps: int = 1, **options: Any
) -> dict[str, Any]:
    """State after 8 rounds, of which `steps` are one launch."""
    opened = cpu_devices(devices)
    how = Synchronisation(**options)
    with LearningEngine(program, batch_size, opened, per_device, how, steps_per_launch=steps) as engine:
        engine.initialize()
        batches = DatasetBatches(DATA, batch_size, engine.learners.count, seed=1, steps_per_launch=steps)
        engine.run(batches.open, 0, 8)
        state = engine.learners.values.state_arrays()
    for device in opened:
        device.close()
    return state


@pytest.mark.parametrize(("devices", "per_device"), [(1, 3), (2, 2)])
@pytest.mark.sampled(1)
def test_a_step_that_averages_its_gradients_has_the_bits_of_ssgd(
    devices: int, per_device: int, launches: tuple[int, ...]
) -> None:
    expected = learned(classifier(False, tb.identity), devices, per_device, 4, sync="ssgd")
    for steps in launches:
        state = learned(classifier(True, tb.identity), devices, per_device, 4, steps, **NONE)
        assert state.keys() == expected.keys()
        for name, value in expected.items():
            assert np.array_equal(state[name], value), name


def over_replicas(hidden: tb.Tensor) -> tb.Tensor:
    """Normalises each feature over the batches of all replicas."""
    count = tb.cast(all_sum(tb.shape(hidden)[0]), tb.float32)
    mean = all_sum(tb.reduce_sum(hidden, 0)) / count
    variance = all_sum(tb.reduce_sum(tb.square(hidden - mean), 0)) / count
    return (hidden - mean) * tb.rsqrt(variance + 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "per_device"), [(1, 2), (2, 2)])
def test_normalisation_over_replicas_is_that_of_the_joint_batch(
    devices: int, per_device: int, launches: tuple[int, ...]
) -> None:
    count = devices * per_device
    whole = learned(classifier(False, over_replicas), 1, 1, 4 * count, **NONE)
    for steps, sync in itertools.product(launches, ("ssgd", "none")):
        if sync == "none" and count > 2:
            continue
        program = classifier(sync == "none", over_replicas)
        state = learned(program, devices, per_device, 4, steps, sync=sync)
        for name, value in whole.items():
            np.testing.assert_allclose(state[name], value, rtol=1e-4, atol=1e-5, err_msg=f"{name} {sync}")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"tau": 2, "mu": 0.5}, {"staleness": 1}, {"sync": "ssgd"}], ids=str)
def test_exchanges_go_with_every_synchroniser(options: dict[str, Any], launches: tuple[int, ...]) -> None:
    """One device, two devices and several rounds a launch have the same bits, run after run."""
    program = classifier(False, over_replicas)
    states = [
        learned(program, *counts, 4, steps, **options) for counts in ((1, 4), (1, 4)) for steps in launches
    ]
    for state in states[1:]:
        for name, value in states[0].items():
            assert np.array_equal(state[name], value), name
    apart = learned(program, 2, 2, 4, launches[-1], **options)
    for name, value in states[0].items():
        np.testing.assert_allclose(apart[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


@contextmanager
def engine_on_null(step: Step, log: LaunchLog, **options: Any) -> Iterator[LearningEngine]:
    with engine_of(model_of(step), null_devices(2, log), 2, **options) as engine:
        yield engine


def test_ops_on_results_run_once_per_device_and_without_races(kernels: str) -> None:
    log = LaunchLog()
    with engine_on_null(lambda d: all_sum(d) * 0.25 + 1.0, log, **NONE) as engine:
        engine.run(Prepared(batch, 4).open, 0, ROUNDS)
        segments = engine.learners.replicas[0].step.segments
        assert engine.learners.central[0].executable is engine.learners.replicas[0].step
    once = [group for each in segments if each.kind is SegmentKind.MIRRORED for group in each.groups]
    assert {"Mul", "Add"} <= {group.definition.name for group in once}
    assert find_races(log) == []


@pytest.mark.slow
def test_several_sums_that_are_ready_together_are_one_exchange() -> None:
    model = model_of(lambda d: all_sum(d) + all_sum(d * 2.0) * all_sum(tb.square(d)))
    with engine_of(model, cpu_devices(1), 2, **NONE) as engine:
        assert len(engine.learners.replicas[0].step.exchange_segments) == 2  # forward, and of the gradients


@pytest.mark.sampled(1)
def test_a_failing_replica_holds_up_nobody() -> None:
    model = model_of(lambda d: all_sum(Fuse(d) + d))

    def blown(round: int, replica: int) -> tuple[Any, ...]:
        return (np.full(SIZE, FUSE, np.float32) if (round, replica) == (2, 1) else own(round, replica),)

    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [SIZE], name="x")
        w = tb.Variable(np.ones(SIZE, np.float32), name="w")
        loss = tb.reduce_sum(tb.square(all_sum(w - Fuse(x))))
        update = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
    model = Model(StepProgram((x,), loss, update, {}), [x.spec], {"w": np.ones(SIZE, np.float32)}, blown)
    for devices, per_device in ((1, 3), (2, 2)):
        count = devices * per_device
        with engine_of(model, cpu_devices(devices), per_device, **NONE) as engine:
            with pytest.raises(InvalidArgumentError, match="the fuse has blown"):
                within(lambda engine=engine, count=count: engine.run(Prepared(blown, count).open, 0, ROUNDS))
            within(lambda engine=engine, count=count: engine.run(Prepared(batch, count).open, 0, ROUNDS))


def test_what_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="source 2 is no replica: there are 2, counted from 0"):
        trained(model_of(lambda d: broadcast(d, 2)), cpu_devices(1), 2, **NONE)
    with pytest.raises(InvalidArgumentError, match="expected numbers, got bool"):
        model_of(lambda d: tb.cast(all_sum(d > 0.0), tb.float32))
    with pytest.raises(
        InvalidArgumentError, match=r"dispatch: expected round_robin for a step with exchanges"
    ):
        trained(model_of(all_sum), cpu_devices(1), 2, dispatch="fcfs", sync="none")


def test_a_session_is_one_replica() -> None:
    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.constant([1.0, 2.0])
        y = all_sum(x) + tb.reduce_sum(all_gather(x), 0) * broadcast(x)
        (gradient,) = tb.gradients(y, x)
        assert session.run([y, gradient])[0].tolist() == [2.0, 6.0]
        assert session.run(gradient).tolist() == [3.0, 5.0]


@pytest.mark.slow
@needs_compiler
def test_gpus_exchange_what_cpus_do(kernels: str) -> None:
    if kernels == "reference":
        pytest.skip("the same whatever the CPU's kernels")
    model = model_of(
        lambda d: all_sum(d) * 0.5,
        rows=lambda x: all_gather(x),
        source=lambda x: broadcast(x, 2),
        numbers=lambda x: all_sum(ReplicaId()),
    )
    expected, state = trained(model, cpu_devices(2), 2, **NONE)
    with emulated_runtime() as runtime:
        results, left = trained(model, gpu_devices(runtime, 2), 2, **NONE)
    for name, value in state.items():
        np.testing.assert_allclose(left[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    for one, other in zip(results, expected, strict=True):
        for value, wanted in zip(one.metrics, other.metrics, strict=True):
            np.testing.assert_array_equal(value, wanted)
