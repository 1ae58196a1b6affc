"""Steps of the library's models: none runs a reference kernel, and they train as those do."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import tensorbow as tb
from tests.native_rig.native_calls import TARGETS, native_cpu

# After what skips where llvmlite is missing.
from tensorbow.kernels.native.backend import NativeBackend  # isort: skip
from tensorbow.kernels.native.codegen.kernel import NativeKernel  # isort: skip

MODELS = {"logreg": (28, 28, 1), "lenet": (28, 28, 1), "resnet8": (32, 32, 3)}
BATCH, STEPS = 6, 20
RANDOM = {"RandomUniform", "TruncatedNormal"}  # of the initialisation


def train(model, target=None):
    """The losses of some steps; natively for a target."""
    tb.reset_default_graph()
    tb.set_random_seed(3)
    shape = MODELS[model]
    images, labels = tb.placeholder(tb.float32, [None, *shape]), tb.placeholder(tb.int64, [None])
    loss = tb.models.get_model(model)(images, labels, training=True, classes=10).loss
    with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
        update = tb.train.MomentumOptimizer(0.002, 0.9).minimize(loss)
    rng = np.random.default_rng(1)
    losses = []
    initial = {v: rng.normal(0, 0.05, v.shape.as_list()).astype(np.float32) for v in tb.trainable_variables()}
    with nullcontext() if target is None else native_cpu(target), tb.Session() as session:
        session.run(tb.global_variables_initializer())
        for variable, value in initial.items():
            variable.load(value, session)
        pictures = rng.normal(size=(BATCH, *shape)).astype(np.float32)
        for _ in range(STEPS):
            feed = {images: pictures, labels: rng.integers(0, 10, BATCH)}
            losses.append(session.run([loss, update], feed)[0])
    return np.array(losses)


@pytest.fixture(name="executables")
def _executables(monkeypatch):
    """Executables bound natively."""
    found, bind = [], NativeBackend.bind

    def recorded(self, executable, *rest):
        found.append(executable)
        return bind(self, executable, *rest)

    monkeypatch.setattr(NativeBackend, "bind", recorded)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=[pytest.mark.slow] if m != "logreg" else []) for m in MODELS]
)
def test_native_step_trains_as_by_reference_without_its_kernels(model, executables):
    expected = train(model)
    assert len(set(expected.tolist())) == STEPS
    for target in TARGETS.values():
        np.testing.assert_allclose(train(model, target()), expected, rtol=1e-5)
    by_reference = {
        group.definition.name
        for executable in executables
        for segment in executable.segments
        for group in segment.groups
        if not isinstance(group.kernel, NativeKernel)
    }
    assert len(executables) > len(TARGETS)
    assert by_reference <= RANDOM
