"""Random ops: Philox itself, purity by step, element and replica, distributions, seeds, dropout."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbow.errors import InvalidArgumentError
from tensorbow.gradients import gradients
from tensorbow.graph import Graph, set_random_seed
from tensorbow.ops.control import placeholder
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.nn import dropout
from tensorbow.ops.philox import WORD, PhiloxBlocks, philox, stream_key
from tensorbow.ops.random import (
    DropoutMask,
    RandomStandardNormal,
    RandomUniform,
    RandomUniformInt,
    TruncatedNormal,
    get_seed,
    random_normal,
    random_uniform,
    truncated_normal,
)
from tensorbow.ops.sampling import BLOCKS
from tensorbow.specs import float32, float64
from tests.ops_contract.interpreter import run_graph

ALL = (RandomUniform, RandomStandardNormal, TruncatedNormal, RandomUniformInt, DropoutMask)
MORE_INPUTS = {RandomUniformInt: (np.int64(-5), np.int64(10**12)), DropoutMask: (np.float32(0.5),)}


def draw(op, shape, seed=1, op_seed=2, counter=0, replica=0, more=None, **attrs):
    inputs = [np.array(shape, np.int32), *(MORE_INPUTS.get(op, ()) if more is None else more)]
    state = {"counter": np.int64(counter), "random_stream": np.int64(replica)}
    return run_reference_kernel(op, inputs, {"seed": seed, "seed2": op_seed, **attrs}, state)[0]


# Philox -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # known answers published with Random123, the authors' library (philox4x32, 10 rounds)
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((WORD,) * 4, (WORD, WORD), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, expected):
    assert philox(counter, key) == expected


@given(
    start=st.integers(0, WORD - 9),
    attempt=st.integers(0, 9),
    step=st.integers(0, 2**63 - 1),
    key=st.tuples(st.integers(0, WORD), st.integers(0, WORD)),
)
def test_blocks_are_philox(start, attempt, step, key):
    blocks = PhiloxBlocks.over(*(np.full((2, 9), 2**64 - 1, np.uint64) for _ in range(3)))
    blocks.set_key(key)
    words = blocks.fill(start, 7, attempt, step)
    for i in range(7):
        counter = (start + i, attempt, step & WORD, step >> 32)
        assert tuple(int(word[i]) for word in words) == philox(counter, key)


def test_stream_keys_differ():
    values = (0, 1, -1, 2**31, 2**32, 2**32 + 1, 2**63 - 1)
    keys = {stream_key(a, b, c) for a in values for b in values for c in (0, 1, 2**32)}
    assert len(keys) == len(values) ** 2 * 3
    assert stream_key(2**64 + 5, 7, 0) == stream_key(5, 7, 0)  # seeds are taken modulo 2**64


# Purity -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ALL)
def test_a_number_depends_on_nothing_but_seeds_replica_step_and_element(op):
    size = 4 * BLOCKS + 4 * 37 + 3  # more than is drawn at a time
    whole = draw(op, [size], counter=11, replica=3)
    assert np.array_equal(whole, draw(op, [size], counter=11, replica=3))
    for prefix in (1, 2, 5, 4 * BLOCKS, 4 * BLOCKS + 1):
        assert np.array_equal(whole[:prefix], draw(op, [prefix], counter=11, replica=3))
    assert np.array_equal(whole[:105].reshape(3, 5, 7), draw(op, [3, 5, 7], counter=11, replica=3))


@pytest.mark.parametrize("op", ALL)
def test_streams_are_distinct(op):
    base = {"seed": 1, "op_seed": 2, "counter": 5, "replica": 0}
    variants = [base, *({**base, key: value} for key in base for value in (77, 2**33))]
    drawn = [draw(op, [4000], **variant) for variant in variants]
    for i, first in enumerate(drawn):
        for second in drawn[:i]:
            assert abs(np.corrcoef(first, second)[0, 1]) < 0.08  # 5 standard deviations


def test_a_bound_op_follows_the_state():
    """The views of STATE are read in every step, not when the kernel is bound."""
    with Graph().as_default():
        set_random_seed(7)
        numbers = random_uniform([100])
    first, second, again = (
        run_graph([numbers], {}, {"counter": c, "random_stream": r})[0] for c, r in ((0, 0), (1, 0), (0, 0))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)


# Distributions ------------------------------------------------------------------------------------------


def kolmogorov(values, distribution):
    """The largest distance between the empirical distribution and `distribution`, times sqrt(size)."""
    expected = distribution(np.sort(values.astype(np.float64).reshape(-1)))
    ranks = np.arange(1, values.size + 1) / values.size
    return np.abs(expected - ranks).max() * math.sqrt(values.size)


def normal_distribution(x):
    return 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


LIMIT = 1.95  # exceeded with probability 0.001; the seeds are fixed


@pytest.mark.parametrize("dtype", [float32, float64])
def test_uniform(dtype):
    values = draw(RandomUniform, [50001], dtype=dtype)
    assert values.dtype == dtype.as_numpy_dtype
    assert values.min() >= 0
    assert values.max() < 1
    assert kolmogorov(values, lambda x: x) < LIMIT
    bits = 24 if dtype == float32 else 53
    assert np.array_equal(values * 2**bits, np.floor(values * 2**bits))
    assert (values * 2 ** (bits - 1) % 1 > 0).any()


@pytest.mark.parametrize("dtype", [float32, float64])
def test_normal(dtype):
    values = draw(RandomStandardNormal, [50001], dtype=dtype)
    assert np.isfinite(values).all()
    assert kolmogorov(values, normal_distribution) < LIMIT
    for lag in (1, 2, 3, 4):
        assert abs(np.corrcoef(values[lag:], values[:-lag])[0, 1]) < 0.02


@pytest.mark.parametrize("dtype", [float32, float64])
def test_truncated_normal(dtype):
    values = draw(TruncatedNormal, [50001], dtype=dtype)
    low, high = normal_distribution(np.array([-2.0, 2.0]))
    assert np.abs(values).max() < 2  # none was clamped
    assert kolmogorov(values, lambda x: (normal_distribution(x) - low) / (high - low)) < LIMIT


def test_integers():
    values = draw(RandomUniformInt, [60000], more=(np.int32(-3), np.int32(4)))
    assert values.dtype == np.int32
    counts = np.bincount(values + 3)
    assert len(counts) == 7
    assert ((counts - 60000 / 7) ** 2 / (60000 / 7)).sum() < 22.5  # chi-square, 6 degrees: 0.001
    extremes = np.int64(-(2**63)), np.int64(2**63 - 1)
    wide = draw(RandomUniformInt, [1000], more=extremes)
    assert kolmogorov(wide, lambda x: (x + 2.0**63) / 2.0**64) < LIMIT
    assert (draw(RandomUniformInt, [10], more=(np.int32(5), np.int32(6))) == 5).all()
    for extent in (10, 0):
        with pytest.raises(InvalidArgumentError, match=r"minval 5 must be less than maxval 5"):
            draw(RandomUniformInt, [extent], more=(np.int32(5), np.int32(5)))


# The functions ------------------------------------------------------------------------------------------


def test_bounds_and_moments():
    state = {"counter": 0, "random_stream": 0}
    with Graph().as_default():
        set_random_seed(3)
        low = placeholder(float32, [])
        fetches = [
            random_uniform([10000], -2, 3),
            random_uniform([10000], low, 3.0),
            random_uniform([100], maxval=10, dtype="int32"),
            random_normal([10000], mean=4.0, stddev=0.5, dtype=float64),
            truncated_normal([10000], stddev=0.1),
        ]
        assert [t.shape for t in fetches] == [[10000], [10000], [100], [10000], [10000]]
        a, b, c, d, e = run_graph(fetches, {low: np.float32(2)}, state)
    assert (-2 <= a.min() < -1.99, 2.99 < a.max() <= 3) == (True, True)
    assert (2 <= b.min() < 2.01, 2.99 < b.max() <= 3) == (True, True)
    assert set(c) <= set(range(10))
    assert (d.dtype, abs(d.mean() - 4) < 0.02, abs(d.std() - 0.5) < 0.02) == (np.float64, True, True)
    assert 0.19 < np.abs(e).max() <= 0.2


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: random_uniform([2], dtype="int32"), "int32 needs maxval"),
        (lambda: random_uniform([2], 3, 3, dtype="int64"), "minval 3 must be less than maxval 3"),
        (lambda: random_uniform([2], dtype="uint8"), "uint8"),
        (lambda: random_normal([2], dtype="int32"), "use float32 or float64"),
        (lambda: random_normal([[2]]), "shape"),
        (lambda: random_normal([2.5]), "expected shape to be a list of whole numbers"),
    ],
)
def test_refusals(build, words):
    with Graph().as_default(), pytest.raises(InvalidArgumentError, match=words):
        build()


def test_seeds():
    def two(graph_seed, *op_seeds):
        with Graph().as_default() as graph:
            if graph_seed is not None:
                set_random_seed(graph_seed)
            tensors = [random_uniform([8], seed=s) for s in op_seeds]
            assert graph is tensors[0].graph
            return [v.tolist() for v in run_graph(tensors, {}, {"counter": 0, "random_stream": 0})]

    a, b = two(5, None, None)
    assert a != b  # ops without a seed of their own differ
    assert [a, b] == two(5, None, None)  # and are the same in the next process
    assert a != two(6, None)[0]
    assert len({str(v) for v in (*two(5, 1, 2), *two(6, 1, 2))}) == 4
    assert two(5, 1) == two(5, 1)
    assert two(None, 1) == two(None, 1)  # TensorFlow's default seed for the graph
    assert two(None, None) != two(None, None)
    with Graph().as_default():
        assert get_seed(None) != get_seed(None)


# Dropout ------------------------------------------------------------------------------------------------


def test_dropout_uses_one_mask_forward_and_backward():
    state = {"counter": 2, "random_stream": 1}
    with Graph().as_default():
        x = placeholder(float32, [None, 50])
        y = dropout(x, rate=0.25, seed=3)
        (dx,) = gradients(y, x)
        assert y.shape == [None, 50]
        ones = np.ones((40, 50), np.float32)
        result, gradient = run_graph([y, dx], {x: ones}, state)
        other = run_graph([y], {x: ones}, {**state, "counter": 3})[0]
    assert np.array_equal(result, gradient)
    assert not np.array_equal(result, other)
    assert set(np.unique(result)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((result == 0).mean() - 0.25) < 0.05


def test_dropout_with_a_fed_probability():
    state = {"counter": 0, "random_stream": 0}
    x = np.arange(1, 601, dtype=np.float32).reshape(20, 30)
    with Graph().as_default():
        probability = placeholder(float32, [])
        y = dropout(x, probability)
        broadcast = dropout(x, keep_prob=probability, noise_shape=[20, 1])

        def run(value):
            return run_graph([y, broadcast], {probability: np.float32(value)}, state)

        assert all(np.array_equal(result, x) for result in run(1.0))
        half, rows = run(0.5)
        assert 0.4 < (half == 0).mean() < 0.6
        assert np.array_equal(half[half != 0], 2 * x[half != 0])
        assert all(row.all() or not row.any() for row in rows)
        assert np.isnan(run(0.0)[0]).all()


def test_dropout_of_nothing_is_the_input():
    with Graph().as_default():
        x = placeholder(float32, [3])
        assert dropout(x, rate=0.0).op.definition.is_view
        assert dropout(x, 1).op.definition.is_view


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "give rate"),
        ({"rate": 0.1, "keep_prob": 0.9}, "not both"),
        ({"rate": 1.0}, r"rate 1\.0 must be in \[0, 1\)"),
        ({"keep_prob": 50}, r"keep_prob in \(0, 1\]"),
    ],
)
def test_dropout_refusals(arguments, words):
    with Graph().as_default(), pytest.raises(InvalidArgumentError, match=words):
        dropout(placeholder(float32, [3]), **arguments)
