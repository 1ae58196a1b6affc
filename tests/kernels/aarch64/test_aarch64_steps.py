"""Fusions, whole steps of models and averaged replicas on NEON, against the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb

# After what skips where the emulator is missing.
from tensorbow.kernels.native.fusion import factored_gradients  # isort: skip
from tensorbow.kernels.native.backend import NativeBackend  # isort: skip
from tensorbow.kernels.reference import ReferenceBackend  # isort: skip
from tests.kernels.native import test_native_plan  # isort: skip
from tests.kernels.native.fusion import test_native_factored_gradients  # isort: skip
from tests.scalar_rig.numpy_backend import used  # isort: skip
from tests.scheduler_rig import round_engines  # isort: skip
from tests.scheduler_rig.programs import logistic  # isort: skip
from tests.scheduler_rig.running import Prepared  # isort: skip

pytestmark = pytest.mark.usefixtures("graph")

STEPS = {"logreg": 4}  # by default, of emulated models
MODELS = ("logreg", "lenet", "resnet8")
ROUNDS = 5


@pytest.fixture
def small_gradients_count(monkeypatch):
    monkeypatch.setattr(factored_gradients, "LARGE", 0)


test_factored_gradients = pytest.mark.usefixtures("small_gradients_count")(
    pytest.mark.parametrize("target", ["host"])(
        test_native_factored_gradients.test_updates_equal_the_reference.with_examples(1)
    )
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "steps"),
    [
        *STEPS.items(),
        *(pytest.param(model, steps, marks=pytest.mark.slow) for model in MODELS for steps in (1, 20)),
    ],
)
def test_steps_of_models_lie_close_to_the_reference(model, steps):
    expected, variables = test_native_plan.trained(model, ReferenceBackend(), steps)
    losses, ours = test_native_plan.trained(model, NativeBackend(), steps)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for value, other in zip(ours, variables, strict=True):
        np.testing.assert_allclose(value, other, rtol=2e-3, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "options"), [(3, {"mu": 0.5}), (2, {"sync": "easgd", "tau": 2})])
def test_averaged_replicas_of_one_launch_lie_close_to_the_reference(replicas, options):
    """The updates with averaging, by threads that meet in emulated code."""
    model, states = logistic(tb.float32), []
    for backend in (ReferenceBackend(), NativeBackend()):
        with used(backend), round_engines.engine_of(model, replicas, **options) as engine:
            assert (engine.learners.launches_rounds) == isinstance(backend, NativeBackend)
            engine.run(Prepared(model.batch, replicas).open, 0, ROUNDS)
            states.append(engine.learners.values.state_arrays())
    reference, ours = states
    assert ours.keys() == reference.keys()
    for name, value in reference.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_averaging_in_the_update(dropout):
    test_native_plan.test_the_averaging_is_taken_into_the_update(dropout)
