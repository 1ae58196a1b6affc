"""Native plans: runs and reference kernels between them, sharing, errors, whole models, replicas."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

import tensorbow as tb
from tensorbow.devices import get_device
from tensorbow.errors import InvalidArgumentError
from tensorbow.kernels import backend_for, register_backend
from tensorbow.kernels.native import plan
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.native.codegen import functions
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.switches import ALL, Switches
from tensorbow.kernels.native.codegen.target import host_target
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.models import LeNet, LogisticRegression, ResNet
from tests.native_rig.native_calls import native_cpu
from tests.native_rig.targets import narrow_target
from tests.program_rig.interpreter import initial_values, programs
from tests.program_rig.poisoned import PoisonedStep
from tests.scalar_rig.numpy_backend import used
from tests.scheduler_rig.programs import convolutional
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, same_bits

pytestmark = pytest.mark.usefixtures("graph")


@pytest.fixture
def native():
    with native_cpu() as backend:
        yield backend


X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
N = np.arange(1, 5, dtype=np.int32)


def mixed():
    """Native calls, an integer division, which is not, and native calls that use it."""
    x, n = tb.placeholder(tb.float32, [3, 4]), tb.placeholder(tb.int32, [4])
    before = tb.reduce_sum(tb.exp(x), axis=0, name="before")
    whole = tb.floordiv(100, n, name="whole")
    return x, n, before * tb.cast(whole, tb.float32) + 1


def kinds(step):
    return [isinstance(group.kernel, NativeKernel) for s in step.executable.segments for group in s.groups]


def test_reference_kernels_run_between_native_ones(native):
    x, n, y = mixed()
    with PoisonedStep([y], {x: X, n: N}) as step:
        (result,) = step.run()
        assert kinds(step).count(False) == 1
        assert len(step.binding.plan._calls[0]) == 3
        np.testing.assert_allclose(result, np.exp(X).sum(0) * (100 // N) + 1, rtol=1e-6)


def test_explain_names_the_backend_and_what_is_not_native(native):
    x, n, y = mixed()
    with tb.Session() as session:
        for _ in range(2):
            text = str(session.explain([y], {x: X, n: N}))
            assert f"on /device:CPU:0 by {native.title}" in text
            assert text.count("one native function") == 2
            assert "FloorDiv whole has no native code: its reference kernel runs" in text
            session.run(y, {x: X, n: N})


def test_errors_name_the_op_that_raised(native):
    x, n, y = mixed()
    with tb.Session() as session:
        with pytest.raises(InvalidArgumentError, match=r"FloorDiv whole.*made at .*test_native_plan"):
            session.run(y, {x: X, n: N - 1})
        np.testing.assert_allclose(session.run(y, {x: X, n: N}), np.exp(X).sum(0) * (100 // N) + 1, rtol=1e-6)


def test_the_first_native_result_that_is_not_finite_is_named(native):
    x = tb.placeholder(tb.float32, [2])
    bad = tb.log(x - 1.0, name="bad")
    sums = tb.reduce_sum(bad, name="added")
    with PoisonedStep([sums, tb.exp(sums)], {x: np.array([1.0, 3.0], np.float32)}) as step:
        step.run()
        found = step.binding.plan.find_nonfinite(0)
        assert found.startswith("Log bad (made at ")
        step.binding.write({x.name: np.array([2.0, 3.0])}, {})
        assert step.binding.plan.find_nonfinite(0) is None


@pytest.mark.slow
def test_bindings_share_their_code(native, monkeypatch):
    compiled = []
    compile_module = functions.compile_module
    monkeypatch.setattr(functions, "compile_module", lambda *a: compiled.append(1) or compile_module(*a))
    x = tb.placeholder(tb.float32, [None, 5])
    w = tb.Variable(np.ones((5, 3), np.float32))
    loss = tb.reduce_mean(tb.square(tb.tanh(tb.matmul(x, w)) - 0.5))
    train = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    initializer = tb.global_variables_initializer()
    with tb.TensorBowSession(replicas_per_device=4) as session:
        session.run(initializer)
        session.run([loss, train], {x: np.ones((8, 5), np.float32)})
        before = len(compiled)
        for _ in range(3):
            session.run([loss, train], {x: np.ones((8, 5), np.float32)})
    assert len(compiled) == before
    assert 0 < before <= 6  # executables: initial values, the step, the averaging; not one per replica


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs())
def test_random_programs_natively_equal_the_interpreter(native, program):
    start = initial_values()
    expected, after = program.interpret(start)
    with tb.Graph().as_default():
        fetches, feeds, variables = program.build()
        with PoisonedStep(fetches, feeds) as step:
            step.container.load({v.op.name: value for v, value in zip(variables, start, strict=True)})
            for result, value in zip(step.run(), expected, strict=True):
                np.testing.assert_allclose(result, value, rtol=1e-6)
            for variable, value in zip(variables, after, strict=True):
                np.testing.assert_allclose(step.container.read(variable.op.name), value, rtol=1e-6)


# Whole models --------------------------------------------------------------------------------------------

# Two sums that differ in their last place can choose another element of a pooling window, or fall on the
# other side of a ReLU; rates are so small that what follows from that stays small over the steps.
MODELS = {
    "lenet": (LeNet(), (28, 28, 1), 0.0005),
    "resnet8": (ResNet(blocks=1), (16, 16, 3), 0.002),
    "logreg": (LogisticRegression(), (28, 28, 1), 0.02),
}
LONG = {"resnet32": (ResNet(blocks=5), (32, 32, 3), 0.000005)}


def trained(model, backend, steps, replicas=0):
    """Losses and variables, by one Session or by replicas that are not averaged."""
    network, shape, rate = {**MODELS, **LONG}[model]
    size = 4
    rng = np.random.default_rng(6)  # with 5, half an ulp in the images flips a ReLU of the reference itself
    images = rng.standard_normal((steps, max(1, replicas) * size, *shape)).astype(np.float32) * 0.3
    labels = rng.integers(0, 10, images.shape[:2])
    with used(backend), tb.Graph().as_default() as graph:
        tb.set_random_seed(1)
        x, y = tb.placeholder(tb.float32, [None, *shape]), tb.placeholder(tb.int64, [None])
        loss = network(x, y, training=True, classes=10).loss
        with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
            train = tb.train.MomentumOptimizer(rate, 0.9).minimize(loss)
        initializer = tb.global_variables_initializer()
        session = (
            tb.TensorBowSession(graph=graph, replicas_per_device=replicas)
            if replicas
            else tb.Session(graph=graph)
        )
        with session:
            session.run(initializer)
            pairs = zip(images, labels, strict=True)
            losses = [session.run([loss, train], {x: i, y: n})[0] for i, n in pairs]
            return np.array(losses), session.run(tb.global_variables())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "target"),
    [
        *((model, "host") for model in MODELS),
        *(pytest.param(model, "narrow", marks=pytest.mark.slow) for model in MODELS),
        *(pytest.param(model, "host", marks=pytest.mark.slow) for model in LONG),
    ],
)
def test_twenty_steps_lie_close_to_the_reference(model, target):
    expected, _ = trained(model, ReferenceBackend(), 20)
    losses, _ = trained(model, NativeBackend(narrow_target() if target == "narrow" else None), 20)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert np.isfinite(losses).all()


@pytest.fixture(scope="module")
def with_all_mechanisms():
    return {model: trained(model, NativeBackend(), 3, replicas=2)[0] for model in ("lenet", "resnet8")}


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [field.name for field in fields(Switches)])
def test_without_one_mechanism_training_is_alike(mechanism, with_all_mechanisms):
    target = replace(host_target(), switches=replace(ALL, **{mechanism: False}))
    assert repr(target) != repr(host_target())  # which the names of code on disk are made of
    for model, expected in with_all_mechanisms.items():
        losses, _ = trained(model, NativeBackend(target), 3, replicas=2)
        np.testing.assert_allclose(losses, expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["logreg", *(pytest.param(model, marks=pytest.mark.slow) for model in ("lenet", "resnet8"))]
)
def test_averaged_replicas_lie_close_to_the_reference(model):
    expected, values = trained(model, ReferenceBackend(), 4, replicas=3)
    runs = [trained(model, NativeBackend(), 4, replicas=3) for _ in range(2)]
    np.testing.assert_allclose(runs[0][0], expected, rtol=1e-5)
    for ours, theirs in zip(runs[0][1], values, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-5)
    assert runs[0][0].tobytes() == runs[1][0].tobytes()  # whatever the timing of the threads
    for first, second in zip(runs[0][1], runs[1][1], strict=True):
        assert first.tobytes() == second.tobytes()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", MODELS)
def test_the_step_of_a_model_is_native_as_a_whole(model, native):
    network, shape, rate = MODELS[model]
    x, y = tb.placeholder(tb.float32, [4, *shape]), tb.placeholder(tb.int64, [4])
    loss = network(x, y, training=True, classes=10).loss
    with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
        train = tb.train.MomentumOptimizer(rate, 0.9).minimize(loss)
    feeds = {x: np.zeros((4, *shape), np.float32), y: np.zeros(4, np.int64)}
    with tb.Session() as session:
        text = str(session.explain([loss, train], feeds))
    assert "reference kernel" not in text
    assert text.count("one native function") == 1
    assert "updates in one pass" in text


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [False, True])
def test_the_averaging_is_taken_into_the_update(dropout):
    """The same bits as in three passes."""
    model = convolutional(dropout=dropout)
    results = []
    for merges in (True, False):
        backend = NativeBackend()
        with pytest.MonkeyPatch.context() as patch, used(backend):
            if not merges:
                patch.setattr(plan, "merge_averaging", lambda groups, kernel_of: groups)
            with engine_of(model, cpu_devices(1), 3) as engine:
                engine.run(Prepared(model.batch, 3).open, 0, 5)
                results.append(engine.learners.values.state_arrays())
                steps = [segments.executable for segments in backend._segments.values()]
        names = {g.definition.name for e in steps for s in e.segments for g in s.groups}
        assert ("SmaDifference" in names) != merges
    assert same_bits(*results)


def test_the_backend_can_be_taken_back():
    device = get_device("/cpu:0")
    before = backend_for(device)
    with native_cpu() as backend:
        assert backend_for(device) is backend
    assert backend_for(device) is before
    register_backend("cpu", before)
