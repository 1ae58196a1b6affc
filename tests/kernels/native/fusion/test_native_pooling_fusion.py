"""Gradients of max pooling joined to those of ReLU: the bits of two passes, in one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

import tensorbow as tb
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.reference import ReferenceBackend
from tests.native_rig.fused_runs import unfused
from tests.native_rig.native_calls import TARGETS
from tests.native_rig.pools import ANY_POOL
from tests.ops_contract.sample import integers, normal
from tests.program_rig.examples import given_few
from tests.program_rig.poisoned import PoisonedStep
from tests.scalar_rig.numpy_backend import used


def gradients(backend, images, bias, window, stride, padding, *, dtype=tb.float32, keeps=False):
    """Gradients of images and bias, by a pass over memory filled with NaN; and a text of the fused ops.

    keeps: another op also uses the gradient of the pooled images.
    """
    with used(backend), tb.Graph().as_default():
        x, b = tb.placeholder(dtype, images.shape), tb.placeholder(dtype, bias.shape)
        hidden = tb.nn.relu(tb.nn.bias_add(x, b))
        ksize, strides = (1, *window, 1), (1, *stride, 1)
        pooled = tb.nn.max_pool(hidden, ksize=ksize, strides=strides, padding=padding)
        flow = normal(*pooled.shape.as_list(), seed=9).astype(images.dtype)
        wanted = [x, b, hidden] if keeps else [x, b]
        fetches = tb.gradients(tb.reduce_sum(pooled * flow), wanted)
        with PoisonedStep(fetches, {x: images, b: bias}) as step:
            notes = [group.note for s in step.executable.segments for group in s.groups]
            return step.run(), " ".join(notes)


def assert_joined(images, bias, *options, targets=tuple(TARGETS), **more):
    apart, notes = gradients(unfused(), images, bias, *options, **more)
    assert "MaxPoolGrad" not in notes
    reference, _ = gradients(ReferenceBackend(), images, bias, *options, **more)
    for name in targets:
        ours, notes = gradients(NativeBackend(TARGETS[name]()), images, bias, *options, **more)
        assert "fused with MaxPoolGrad" in notes
        if name == "host":
            assert [value.tobytes() for value in ours] == [value.tobytes() for value in apart]
        for value, expected in zip(ours, reference, strict=True):
            eps = np.finfo(value.dtype).eps
            np.testing.assert_allclose(value, expected, rtol=40 * eps, atol=40 * eps * images.shape[0] * 9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [tb.float32, tb.float64])
@pytest.mark.parametrize("shape", [(4, 24, 24, 32), (3, 8, 8, 64), (2, 7, 9, 150), (1, 5, 4, 3)], ids=str)
def test_pools_of_a_network(shape, dtype):
    images = normal(*shape, seed=1).astype(dtype.as_numpy_dtype)
    bias = normal(shape[3], seed=2).astype(dtype.as_numpy_dtype)
    assert_joined(images, bias, (2, 2), (2, 2), "VALID", dtype=dtype)


@given_few(3, 15, *ANY_POOL)
def test_any_windows(shape, window, stride, padding, target):
    assume(padding == "SAME" or (window[0] <= shape[1] and window[1] <= shape[2]))
    images = integers(*shape, high=4, dtype=np.float32) - 2  # with ties, and zeros that ReLU leaves
    assert_joined(images, np.zeros(shape[3], np.float32), window, stride, padding, targets=[target])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(bad):
    images = normal(2, 6, 8, 19)
    images.reshape(-1)[::7] = bad
    images[1, :4, :4] = bad
    assert_joined(images, np.zeros(19, np.float32), (2, 2), (2, 2), "VALID")


def test_a_gradient_that_is_wanted_elsewhere_stays():
    arguments = normal(2, 6, 8, 19), np.zeros(19, np.float32), (2, 2), (2, 2), "VALID"
    ours, notes = gradients(NativeBackend(), *arguments, keeps=True)
    assert "MaxPoolGrad" not in notes
    expected, _ = gradients(ReferenceBackend(), *arguments, keeps=True)
    for value, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-5)
