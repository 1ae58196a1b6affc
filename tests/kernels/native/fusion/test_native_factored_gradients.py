"""Weight gradients that updates make of their factors: the same values, the same guarantees, fewer passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

import tensorbow as tb
from scheduler import StepProgram
from tensorbow.errors import NumericsError
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.native.codegen.switches import Switches
from tensorbow.kernels.native.codegen.target import host_target
from tensorbow.kernels.native.fusion import factored_gradients
from tensorbow.kernels.native.fusion.factored_gradients import FACTORS_FORM, PAIRED_FORM
from tensorbow.kernels.reference import ReferenceBackend
from tests.native_rig.native_calls import TARGETS, each_target
from tests.program_rig.examples import given_few
from tests.scalar_rig.numpy_backend import used
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, same_bits

OPTIMIZERS = {
    "descent": lambda: tb.train.GradientDescentOptimizer(0.05),
    "momentum": lambda: tb.train.MomentumOptimizer(0.05, 0.9, weight_decay=0.01),
    "nesterov": lambda: tb.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
    "adam": lambda: tb.train.AdamOptimizer(0.01),
    "rmsprop": lambda: tb.train.RMSPropOptimizer(0.01, momentum=0.5),
}


WAYS = [{}, {"sync": "none"}, {"staleness": 1, "tau": 2}]


@pytest.fixture(autouse=True)
def small_gradients_count(monkeypatch):
    monkeypatch.setattr(factored_gradients, "LARGE", 0)


def dense(batch, features, units, optimizer="momentum", scale=1.0, dtype=tb.float32, clips=False):
    """A small layer before and after one whose weights' gradient may stay factors."""
    kind = dtype.as_numpy_dtype
    rng = np.random.default_rng(3)
    shapes = {"w0": (3, features), "b0": (features,), "w": (features, units), "b": (units,), "w1": (units, 1)}
    initial = {name: (rng.normal(size=shape) / 4).astype(kind) for name, shape in shapes.items()}
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(dtype, [batch, 3], name="x")
        v = {name: tb.Variable(value, name=name) for name, value in initial.items()}
        hidden = tb.tanh(tb.matmul(x, v["w0"]) + v["b0"])
        hidden = tb.tanh(tb.matmul(hidden, v["w"]) + v["b"])
        loss = tb.reduce_mean(tb.square(tb.matmul(hidden, v["w1"]) - 0.5)) * scale
        rule = OPTIMIZERS[optimizer]()
        pairs = rule.compute_gradients(loss)
        if clips:
            clipped, _ = tb.clip_by_global_norm([g for g, _ in pairs], 0.1)
            pairs = [(g, variable) for g, (_, variable) in zip(clipped, pairs, strict=True)]
        update = rule.apply_gradients(pairs)

    def batch_of(round, replica):
        return (np.random.default_rng((5, round, replica)).normal(size=(batch, 3)).astype(kind),)

    program = StepProgram((x,), loss, update, {})
    return Model(program, [tb.TensorSpec((batch, 3), dtype)], initial, batch_of), pairs


def factored(backend):
    """Number of products kept as factors in all plans of a backend."""
    steps = [segments.executable for segments in backend._segments.values()]
    groups = [group for step in steps for segment in step.segments for group in segment.groups]
    return sum(getattr(group.kernel, "form", None) in (FACTORS_FORM, PAIRED_FORM) for group in groups)


def trained(model, backend, replicas=1, rounds=4, factors=None, **options):
    """All state after some rounds. factors: asserts that some (True) or no (False) products stay factors."""
    with used(backend), engine_of(model, cpu_devices(1), replicas, **options) as engine:
        engine.run(Prepared(model.batch, replicas).open, 0, rounds)
        if factors is not None:
            assert (factored(backend) > 0) == factors
        return engine.learners.values.state_arrays()


def assert_close(ours, theirs, rtol=1e-4, atol=1e-5):
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.slow
@each_target
@given_few(
    1,
    8,
    st.sampled_from([1, 2, 3, 4, 7, 8, 9, 16, 21]),
    st.sampled_from([5, 15, 16, 17, 31, 32, 33, 66]),
    st.sampled_from([9, 15, 16, 17, 31, 33, 48, 65]),
    st.sampled_from(sorted(OPTIMIZERS)),
)
def test_updates_equal_the_reference(target, batch, features, units, optimizer):
    model, _ = dense(batch, features, units, optimizer)
    fits = batch * (features + units) <= features * units or batch * (3 + features) <= 3 * features
    ours = trained(model, NativeBackend(TARGETS[target]()), factors=fits)
    assert_close(ours, trained(model, ReferenceBackend()), rtol=2e-3 if optimizer == "adam" else 1e-4)


@pytest.mark.slow
@each_target
@pytest.mark.parametrize(("features", "units"), [(33, 130), (18, 100), (64, 128)])
def test_updates_of_columns_in_several_panels(features, units, target):
    model, _ = dense(5, features, units, scale=0.1)
    ours = trained(model, NativeBackend(TARGETS[target]()), factors=True)
    assert_close(ours, trained(model, ReferenceBackend()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "dtype", "options"),
    [
        (4, tb.float32, WAYS[0]),
        (16, tb.float64, WAYS[2]),
        *(pytest.param(4, tb.float32, options, marks=pytest.mark.slow) for options in WAYS[1:]),
        *(pytest.param(16, tb.float64, options, marks=pytest.mark.slow) for options in WAYS[:2]),
    ],
    ids=str,
)
def test_replicas_are_averaged_as_before(batch, options, dtype):
    """The same bits as with the gradient in memory, alone and with others, run after run."""
    model, _ = dense(batch, 40, 33, dtype=dtype)
    results = []
    for factors in (True, True, False):
        target = replace(host_target(), switches=Switches(factored_gradients=factors))
        results.append(trained(model, NativeBackend(target), 3, factors=factors, **options))
    assert same_bits(results[0], results[1])
    assert_close(results[0], results[2], rtol=1e-5)
    assert_close(results[0], trained(model, ReferenceBackend(), 3, **options))


@pytest.mark.slow
def test_a_replica_has_the_same_bits_alone_and_beside_another():
    model, _ = dense(4, 40, 33)
    values = []
    for replicas in (1, 2):
        with used(NativeBackend()), engine_of(model, cpu_devices(1), replicas, sync="none") as engine:
            engine.run(Prepared(model.batch, replicas).open, 0, 4)
            values.append(engine.learners.values.replica_values(0))
    assert same_bits(*values)


@pytest.mark.slow
def test_what_else_reads_the_gradient_keeps_it_whole():
    model, _ = dense(4, 40, 33)
    ours = trained(model, NativeBackend(), 2, factors=False, sync="ssgd")
    assert_close(ours, trained(model, ReferenceBackend(), 2, sync="ssgd"))
    clipped, _ = dense(4, 40, 33, clips=True)
    ours = trained(clipped, NativeBackend(), factors=False)
    assert_close(ours, trained(clipped, ReferenceBackend()))


@pytest.mark.slow
def test_a_fetched_gradient_is_whole():
    model, pairs = dense(4, 40, 33)
    gradients = [gradient for gradient, _ in pairs]
    with model.program.graph.as_default():
        initializer = tb.global_variables_initializer()
    feeds = {model.program.inputs[0]: model.batch(0, 0)[0]}
    results = []
    for backend in (NativeBackend(), ReferenceBackend()):
        with used(backend), tb.Session(graph=model.program.graph) as session:
            session.run(initializer)
            results.append(session.run([gradients, model.program.update], feeds)[0])
            session.run(model.program.update, feeds)
            results.append(session.run([gradients, model.program.update], feeds)[0])
    native, reference = (results[0] + results[1], results[2] + results[3])
    for ours, theirs in zip(native, reference, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", ["none", "sma"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e19], ids=str)
def test_a_product_that_is_not_finite_writes_nothing(sync, bad):
    """Also one of finite factors: 3e19 squared is beyond float32. Loss and all else are finite."""
    model = _steep(bad)
    backend = NativeBackend()
    with used(backend), engine_of(model, cpu_devices(1), 2, sync=sync) as engine:
        with pytest.raises(NumericsError, match=r"replica 1 is not finite at step 2; .*first .*(MatMul|Mul)"):
            engine.run(Prepared(model.batch, 2).open, 0, 4)
        after = engine.learners.values.replica_values(1)
        assert all(np.isfinite(value).all() for value in after.values())
        assert factored(backend) == 1
    with used(NativeBackend()), engine_of(model, cpu_devices(1), 2, sync=sync) as engine:
        engine.run(Prepared(model.batch, 2).open, 0, 2)
        assert same_bits({"w": engine.learners.values.replica_values(1)["w"]}, {"w": after["w"]})


@pytest.mark.slow
def test_factors_in_bfloat16():
    """An odd number of rows, with the same bits again; a product beyond float32 is found and named."""
    model, _ = dense(5, 40, 33)
    ours, again = (trained(model, rounding(NativeBackend()), 2, factors=True) for _ in range(2))
    assert same_bits(ours, again)
    assert_close(ours, trained(model, ReferenceBackend().computing("bf16"), 2), rtol=1e-2, atol=5e-4)
    steep, backend = _steep(3e19), rounding(NativeBackend())
    with (
        used(backend),
        engine_of(steep, cpu_devices(1), 2, sync="none") as engine,
        pytest.raises(NumericsError, match=r"replica 1 is not finite at step 2; .*first .*(MatMul|Mul)"),
    ):
        engine.run(Prepared(steep.batch, 2).open, 0, 4)


def rounding(backend):
    """A native backend whose products round, on any processor."""
    return NativeBackend(replace(backend.target, compute="bf16"))


@pytest.mark.slow
def test_large_finite_products_are_no_reason_to_stop():
    """The largest factors meet only small ones: then every element is checked, and all are finite."""
    model = _steep(3e19, apart=True)
    backend = NativeBackend()
    with used(backend), engine_of(model, cpu_devices(1), 2, sync="none") as engine:
        engine.run(Prepared(model.batch, 2).open, 0, 4)
        assert factored(backend) == 1


def _steep(bad, apart=False):
    """loss = sum(min(x w, 1) * y): its gradient x^T y can be infinite where the loss is not."""
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [4, 24], name="x")
        y = tb.placeholder(tb.float32, [4, 40], name="y")
        w = tb.Variable(np.zeros((24, 40), np.float32), name="w")
        loss = tb.reduce_sum(tb.matmul(x, w) * y, name="loss")
        update = tb.train.MomentumOptimizer(1e-25 if apart else 1e-3, 0.9).minimize(loss)

    def batch(round, replica):
        x, y = np.ones((4, 24), np.float32), np.ones((4, 40), np.float32)
        if (round, replica) == (2, 1):
            x[1, 3] = bad
            y[2 if apart else 1, 5] = bad if np.isfinite(bad) else 1
        if round < 2 and not apart:
            x[:], y[:] = 0, 0
        return x, y

    specs = [tb.TensorSpec((4, 24), tb.float32), tb.TensorSpec((4, 40), tb.float32)]
    return Model(StepProgram((x, y), loss, update, {}), specs, {"w": np.zeros((24, 40), np.float32)}, batch)
