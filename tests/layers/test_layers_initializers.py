"""Initialisers: statistics, bounds, names, seeds, orthogonality."""

import math

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

SHAPE = [3, 3, 40, 60]
FAN_IN, FAN_OUT = 360, 540


@pytest.fixture(autouse=True)
def session():
    with tb.Graph().as_default(), tb.Session() as session:
        tb.set_random_seed(4)
        yield session


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "variance"),
    [
        ("glorot_uniform", 2 / (FAN_IN + FAN_OUT)),
        ("glorot_normal", 2 / (FAN_IN + FAN_OUT)),
        ("xavier_normal", 2 / (FAN_IN + FAN_OUT)),
        ("he_uniform", 2 / FAN_IN),
        ("he_normal", 2 / FAN_IN),
        ("lecun_uniform", 1 / FAN_IN),
        ("lecun_normal", 1 / FAN_IN),
        ("variance_scaling", 1 / FAN_IN),
        ("random_uniform", 0.1**2 / 12),
        ("random_normal", 0.05**2),
        ("truncated_normal", (0.05 * 0.87962566) ** 2),
    ],
)
def test_variances(session, name, variance):
    values = session.run(tb.initializers.get(name)(SHAPE))
    assert values.shape == tuple(SHAPE)
    assert values.dtype == np.float32
    deviation = math.sqrt(variance)
    assert abs(values.mean()) < 5 * deviation / math.sqrt(values.size)
    assert values.std() == pytest.approx(deviation, rel=0.02)
    if "uniform" in name:
        assert abs(values).max() <= deviation * math.sqrt(3) * (1 + 1e-6)
    elif name != "random_normal":
        assert abs(values).max() <= 2 * deviation / 0.87962566 * (1 + 1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("mode", "n"), [("fan_in", FAN_IN), ("fan_out", FAN_OUT), ("fan_avg", (FAN_IN + FAN_OUT) / 2)]
)
@pytest.mark.parametrize("distribution", ["normal", "truncated_normal", "untruncated_normal", "uniform"])
def test_variance_scaling(session, mode, n, distribution):
    values = session.run(tb.initializers.variance_scaling(3.0, mode, distribution)(SHAPE, tb.float64))
    assert values.dtype == np.float64
    assert values.std() == pytest.approx(math.sqrt(3 / n), rel=0.02)


def test_constants(session):
    assert not session.run(tb.initializers.zeros()([2, 3])).any()
    assert session.run(tb.initializers.ones()([2], tb.int32)).tolist() == [1, 1]
    assert session.run(tb.initializers.constant(0.5)([2])).tolist() == [0.5, 0.5]
    assert session.run(tb.initializers.constant([1, 2, 3, 4])([2, 2])).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InvalidArgumentError, match=r"3 values do not fill the shape \[2, 2\]"):
        tb.initializers.constant([1, 2, 3])([2, 2])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", [[6, 4], [4, 6], [5, 5], [3, 2, 7], [1, 4]])
def test_orthogonal(session, shape):
    matrix = session.run(tb.initializers.orthogonal(gain=2.0)(shape, tb.float64)).reshape(-1, shape[-1])
    product = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)


def test_orthogonal_is_spread_over_all_directions(session):
    """Without the sign of R's diagonal the first row of Q would have one sign."""
    signs = [np.sign(session.run(tb.initializers.orthogonal(seed=s)([3, 3])))[0, 0] for s in range(30)]
    assert 5 < sum(sign > 0 for sign in signs) < 25


def test_seeds(session):
    draws = [session.run(tb.initializers.he_normal(seed)([50])) for seed in (1, 1, 2, None, None)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
    assert not np.array_equal(draws[3], draws[4])


def test_what_get_takes(session):
    assert isinstance(tb.initializers.get("zeros"), tb.initializers.Zeros)
    assert isinstance(tb.initializers.get(tb.initializers.Zeros), tb.initializers.Zeros)
    assert isinstance(tb.initializers.get(tb.initializers.he_normal), tb.initializers.VarianceScaling)
    made = tb.initializers.glorot_uniform()
    assert tb.initializers.get(made) is made
    assert tb.initializers.get(np.zeros) is np.zeros


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tb.initializers.get("zero"), "unknown identifier 'zero'; known: constant, glorot_normal"),
        (
            lambda: tb.initializers.get(3),
            "expected identifier to be a name or a function of shape and dtype, got int 3",
        ),
        (
            lambda: tb.initializers.variance_scaling(0.0),
            "VarianceScaling: expected scale to be a finite number above 0, got float 0.0",
        ),
        (lambda: tb.initializers.variance_scaling(mode="fan"), "expected mode to be 'fan_in' or"),
        (
            lambda: tb.initializers.variance_scaling(distribution="cauchy"),
            "expected distribution to be 'normal' or",
        ),
        (lambda: tb.initializers.orthogonal()([3]), "expected at least two axes"),
        (lambda: tb.initializers.zeros()([None, 3]), "the shape must be fully known"),
    ],
)
def test_misuse(make, words):
    with pytest.raises(InvalidArgumentError, match=words):
        make()
