"""Native random ops: the reference's bits where these are integers, its numbers within a bound elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.native.codegen import functions
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.plan_key import plan_key
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.ops.random import dropout_mask
from tests.native_rig.native_calls import TARGETS, each_target
from tests.program_rig.examples import given_few
from tests.program_rig.poisoned import PoisonedStep
from tests.scalar_rig.numpy_backend import used

SIZES = st.sampled_from([0, 1, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 1000])
SEEDS = st.sampled_from([0, 1, 7, 2**32 - 1, 2**32 + 5, 2**56 - 1])
STEPS = st.sampled_from([0, 1, 11, 2**32 - 1, 2**32 + 3])
REPLICAS = st.integers(0, 9)
BOUND = {tb.float32: 2e-6, tb.float64: 4e-15}


def exact(size, seed):
    """Ops whose numbers have the reference's bits."""
    return [
        tb.random_uniform([size], seed=seed),
        tb.random_uniform([size], dtype=tb.float64, seed=seed),
        tb.random_uniform([size], -5, 1000, dtype=tb.int32, seed=seed),
        tb.random_uniform([size], -(2**31), 2**31 - 1, dtype=tb.int32, seed=seed),
        tb.random_uniform([size], -(2**62), 2**62 + 1, dtype=tb.int64, seed=seed),
        *(
            dropout_mask([size], tb.constant(rate, dtype), seed=seed)
            for rate in (0.0, 0.3, 1 - 2.0**-24)
            for dtype in (tb.float32, tb.float64)
        ),
    ]


def drawn(backend, make, replica=3, step=11):
    """Numbers of one run, in memory filled with NaN; all drawn natively if the backend is native."""
    with used(backend), tb.Graph().as_default():
        tb.set_random_seed(5)
        with PoisonedStep(make(), {}) as compiled:
            groups = [group for s in compiled.executable.segments for group in s.groups]
            if isinstance(backend, NativeBackend):
                assert all(isinstance(group.kernel, NativeKernel) for group in groups)
            counters = [key for key in compiled.executable.state if key.startswith("counter:")]
            return compiled.run(**dict.fromkeys(counters, step), random_stream=replica)


@pytest.mark.slow
@each_target
@given_few(3, 15, size=SIZES, seed=SEEDS, step=STEPS, replica=REPLICAS)
def test_integers_uniforms_and_masks_have_the_same_bits(target, size, seed, step, replica):
    ours, theirs = (
        drawn(backend, lambda: exact(size, seed), replica, step)
        for backend in (NativeBackend(TARGETS[target]()), ReferenceBackend())
    )
    for number, (value, expected) in enumerate(zip(ours, theirs, strict=True)):
        assert value.dtype == expected.dtype
        assert value.tobytes() == expected.tobytes(), number


@pytest.mark.sampled(1)
@each_target
@pytest.mark.parametrize("dtype", BOUND, ids=lambda d: d.name)
@pytest.mark.parametrize("size", [1, 2, 3, 17, 64, 65, 4096, 100_003])
def test_normals_lie_within_the_bound(target, dtype, size):
    def make():
        return [
            tb.random_normal([size], dtype=dtype, seed=1),
            tb.truncated_normal([size], dtype=dtype, seed=2),
        ]

    ours, theirs = (
        drawn(backend, make) for backend in (NativeBackend(TARGETS[target]()), ReferenceBackend())
    )
    for value, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(value, expected, rtol=0, atol=BOUND[dtype])
    assert np.abs(ours[1]).max() <= 2
    if size > 10_000:
        assert abs(ours[0].mean()) < 0.02
        assert abs(ours[0].std() - 1) < 0.02
        assert (np.abs(ours[1]) > 1.9).any()


@each_target
def test_the_whole_range_of_normals(target):
    """The extremes of Box and Muller: the least radius, the greatest one, and every quarter of a turn."""
    numbers = drawn(NativeBackend(TARGETS[target]()), lambda: [tb.random_normal([1 << 20], seed=4)])[0]
    expected = drawn(ReferenceBackend(), lambda: [tb.random_normal([1 << 20], seed=4)])[0]
    assert np.abs(expected).max() > 4.5
    assert np.abs(expected).min() < 1e-5
    np.testing.assert_allclose(numbers, expected, rtol=0, atol=BOUND[tb.float32])


@pytest.mark.slow
def test_steps_and_replicas_draw_their_own_numbers():
    draws = [
        drawn(NativeBackend(), lambda: [tb.random_uniform([8], seed=1)], replica, step)[0].tobytes()
        for replica in range(3)
        for step in range(3)
    ]
    assert len(set(draws)) == 9


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2.0, math.nan])
def test_a_rate_that_is_none_gives_nan(rate):
    (mask,) = drawn(NativeBackend(), lambda: [dropout_mask([19], tb.constant(rate, tb.float32), seed=1)])
    assert np.isnan(mask).all()


def test_an_empty_range_is_an_error_of_its_op():
    with used(NativeBackend()), tb.Graph().as_default():
        low, high = tb.placeholder(tb.int32, []), tb.placeholder(tb.int32, [])
        numbers = tb.random_uniform([9], low, high, dtype=tb.int32, seed=1, name="numbers")
        with tb.Session() as session:
            with pytest.raises(InvalidArgumentError, match=r"numbers.*minval 4 must be less than maxval 4"):
                session.run(numbers, {low: 4, high: 4})
            assert set(session.run(numbers, {low: 4, high: 5})) == {4}


def test_seeds_are_not_in_the_code(monkeypatch):
    """One compilation, on disk and in memory, is good for every seed."""
    keys, written = set(), set()
    write = functions.compile_module

    def compile_module(module, *rest):
        written.add(sum(name.startswith("shared_") for name in module.globals))
        return write(module, *rest)

    monkeypatch.setattr(functions, "compile_module", compile_module)
    for seed in (1, 2):
        with used(NativeBackend()), tb.Graph().as_default():
            pair = [tb.random_normal([40], seed=seed), tb.random_normal([40], seed=seed + 5)]
            with PoisonedStep(pair, {}) as step:
                runs = [segment.groups for segment in step.executable.segments]
                keys.add(plan_key(runs, step.executable.state["status"]))
    assert len(keys) == 1
    assert keys != {None}
    assert written == {1}


@pytest.mark.slow
def test_a_network_with_dropout_learns_as_by_the_reference():
    losses = []
    for backend in (NativeBackend(), ReferenceBackend()):
        with used(backend), tb.Graph().as_default() as graph:
            tb.set_random_seed(2)
            x = tb.placeholder(tb.float32, [6, 20])
            w = tb.Variable(tb.truncated_normal([20, 33], stddev=0.1))
            hidden = tb.nn.dropout(tb.tanh(tb.matmul(x, w)), rate=0.4)
            loss = tb.reduce_mean(tb.square(hidden - 0.3))
            train = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
            initializer = tb.global_variables_initializer()
            with tb.Session(graph=graph) as session:
                session.run(initializer)
                data = np.random.default_rng(1).normal(size=(6, 20)).astype(np.float32)
                losses.append([session.run([loss, train], {x: data})[0] for _ in range(10)])
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert len(set(losses[0])) == 10
