"""Pooling joined to the convolution before it: the bits of two passes, in one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

import tensorbow as tb
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.reference import ReferenceBackend
from tests.native_rig.fused_runs import unfused
from tests.native_rig.native_calls import TARGETS
from tests.ops_contract.sample import normal
from tests.program_rig.examples import given_few
from tests.program_rig.poisoned import PoisonedStep
from tests.scalar_rig.numpy_backend import used

POOLS = {"max": tb.nn.max_pool, "mean": tb.nn.avg_pool}


def pooled(
    backend, images, filters, *, padding="SAME", stride=1, pool="max", window=(2, 2), more=None, relu=True
):
    """Pooled values and the fetches of `more`, from memory filled with NaN; and a text of the fused ops."""
    ksize = (1, *window, 1)
    with used(backend), tb.Graph().as_default():
        x, w = (tb.placeholder(tb.as_dtype(a.dtype), a.shape) for a in (images, filters))
        made = tb.nn.conv2d(x, w, strides=(1, stride, stride, 1), padding=padding)
        if relu:
            bias = tb.constant(normal(filters.shape[-1], seed=5).astype(images.dtype))
            made = tb.nn.relu(tb.nn.bias_add(made, bias))
        small = POOLS[pool](made, ksize=ksize, strides=ksize, padding="VALID")
        fetches = [small, *(() if more is None else more(x, w, made, small))]
        with PoisonedStep(fetches, {x: images, w: filters}) as step:
            groups = [group for s in step.executable.segments for group in s.groups]
            notes = [g.note for g in groups if g.definition.name in ("MaxPool", "AvgPool")]
            return step.run(), " ".join(notes)


def assert_pooled(images, filters, joined=True, targets=tuple(TARGETS), **options):
    apart, notes = pooled(unfused(), images, filters, **options)
    assert "Conv2D" not in notes
    reference, _ = pooled(ReferenceBackend(), images, filters, **options)
    for name in targets:
        ours, notes = pooled(NativeBackend(TARGETS[name]()), images, filters, **options)
        if joined is not None:
            assert ("fused with Conv2D" in notes) is joined, notes
        if name == "host":
            assert [value.tobytes() for value in ours] == [value.tobytes() for value in apart]
        for value, expected in zip(ours, reference, strict=True):
            eps = np.finfo(value.dtype).eps
            scale = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(value, expected, rtol=0, atol=600 * eps * scale)


def operands(images, filters, dtype=np.float32):
    return normal(*images, seed=1).astype(dtype), (normal(*filters, seed=2) / 4).astype(dtype)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("images", "filters", "padding", "pool", "dtype"),
    [
        ((3, 28, 28, 1), (5, 5, 1, 32), "VALID", "max", np.float32),  # LeNet's
        ((3, 12, 12, 32), (5, 5, 32, 64), "VALID", "max", np.float32),
        ((2, 16, 16, 20), (3, 3, 20, 24), "SAME", "mean", np.float32),
        ((37, 4, 4, 17), (3, 3, 17, 19), "SAME", "max", np.float64),
        ((2, 10, 6, 3), (1, 1, 3, 5), "SAME", "mean", np.float64),
    ],
    ids=str,
)
def test_convolutions_of_networks(images, filters, padding, pool, dtype):
    x, w = operands(images, filters, dtype)
    assert_pooled(x, w, padding=padding, pool=pool)


@given_few(
    3,
    40,
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.sampled_from([1, 3, 16, 18])),
    st.sampled_from([1, 5, 16, 33]),
    st.sampled_from([(1, 1), (3, 3), (5, 5), (2, 3)]),
    st.sampled_from([(2, 2), (3, 1), (1, 2), (3, 3)]),
    st.sampled_from([1, 2]),
    st.sampled_from(sorted(POOLS)),
    st.sampled_from(sorted(TARGETS)),
)
def test_any_convolution_and_window(sizes, outputs, taps, window, stride, pool, target):
    batch, high, wide, channels = sizes
    images = (batch, high * window[0] * stride, wide * window[1] * stride, channels)
    x, w = operands(images, (*taps, channels, outputs))
    assert_pooled(x, w, joined=None, targets=[target], window=window, stride=stride, pool=pool)


def test_what_others_read_is_there():
    x, w = operands((2, 12, 12, 8), (3, 3, 8, 16))
    assert_pooled(
        x, w, more=lambda x, w, made, small: [made * 2, *tb.gradients(tb.reduce_sum(small * small), [x, w])]
    )


def test_two_poolings_of_one_result():
    x, w = operands((2, 12, 12, 8), (3, 3, 8, 16))
    whole = (1, 2, 2, 1)
    assert_pooled(
        x,
        w,
        more=lambda x, w, made, small: [tb.nn.avg_pool(made, ksize=whole, strides=whole, padding="VALID")],
    )


@pytest.mark.parametrize("size", [13, 15])
def test_windows_that_leave_something_out_are_pooled_apart(size):
    x, w = operands((2, size, size, 4), (3, 3, 4, 8))
    assert_pooled(x, w, joined=False)


def test_numbers_that_are_not_finite():
    x, w = operands((2, 12, 12, 4), (3, 3, 4, 16))
    x[0, ::5, ::7] = np.nan
    x[1, 3, 4] = np.inf
    apart, _ = pooled(unfused(), x, w, relu=False)
    ours, notes = pooled(NativeBackend(), x, w, relu=False)
    assert "fused with Conv2D" in notes
    assert ours[0].tobytes() == apart[0].tobytes()
