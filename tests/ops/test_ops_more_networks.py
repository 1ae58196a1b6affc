"""Windows of any number of axes, morphology, transposed volumes, moments in parts, losses of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.sample import apart, normal, uniform

pytestmark = pytest.mark.usefixtures("session")

X = apart(2, 6, 7, 3)


def test_dilation_and_erosion(session: tb.Session) -> None:
    kernel = apart(3, 2, 3, step=0.01)
    around = np.pad(X, [(0, 0), (1, 1), (0, 1), (0, 0)], constant_values=np.nan)
    for padding, images in (("VALID", X), ("SAME", around)):
        arguments = ([1, 1, 1, 1], [1, 1, 1, 1], padding)
        results = tb.nn.dilation2d(X, kernel, *arguments), tb.nn.erosion2d(X, kernel, *arguments)
        views = np.lib.stride_tricks.sliding_window_view(images, (3, 2), axis=(1, 2))
        w = np.moveaxis(kernel, 2, 0)
        dilated, eroded = session.run(results)
        np.testing.assert_allclose(dilated, np.nanmax(views + w, (4, 5)), rtol=1e-5)
        np.testing.assert_allclose(eroded, np.nanmin(views - w[:, ::-1, ::-1], (4, 5)), rtol=1e-5)
    spread = session.run(tb.nn.dilation2d(X, kernel, [1, 2, 1, 1], [1, 1, 2, 1], "VALID"))
    rows = [[X[0, 2 * i : 2 * i + 3, j : j + 3 : 2] + kernel for j in range(5)] for i in range(2)]
    np.testing.assert_allclose(spread[0], np.max(rows, (2, 3)), rtol=1e-5)
    check_gradients(
        lambda x, w: [tb.nn.dilation2d(x, w, 1, 1, "SAME"), tb.nn.erosion2d(x, w, 2, 1, "VALID")], [X, kernel]
    )


def test_windows_of_one_to_three_axes(session: tb.Session) -> None:
    line, volume = X[:, :, 0], normal(1, 4, 5, 6, 2)
    w1, w2, w3 = normal(3, 3, 4), normal(2, 3, 3, 4), normal(2, 2, 3, 2, 4)
    cases = [
        (tb.nn.convolution(line, w1, "SAME", [2]), tb.nn.conv1d(line, w1, 2, "SAME")),
        (
            tb.nn.convolution(X, w2, "VALID", dilation_rate=[1, 2]),
            tb.nn.conv2d(X, w2, 1, "VALID", dilations=(1, 2)),
        ),
        (tb.nn.convolution(volume, w3, "SAME"), tb.nn.conv3d(volume, w3, 1, "SAME")),
        (
            tb.nn.convolution(np.moveaxis(X, 3, 1), w2, "SAME", data_format="NCHW"),
            tb.transpose(tb.nn.conv2d(X, w2, 1, "SAME"), [0, 3, 1, 2]),
        ),
        (tb.nn.pool(X, [2, 3], "MAX", "SAME", strides=[2, 1]), tb.nn.max_pool(X, [2, 3], [2, 1], "SAME")),
        (tb.nn.pool(line, [2], "AVG", "VALID"), (line[:, 1:] + line[:, :-1]) / 2),
        (tb.nn.pool(volume, [2, 2, 2], "MAX", "SAME"), tb.nn.max_pool3d(volume, 2, 1, "SAME")),
        (tb.nn.pool(X, [2, 2], "AVG", "VALID", [3, 2]),
         (X[:, :-3, :-2] + X[:, 3:, :-2] + X[:, :-3, 2:] + X[:, 3:, 2:]) / 4),
    ]  # fmt: skip
    for got, expected in session.run([(a, tb.convert_to_tensor(b)) for a, b in cases]):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidArgumentError, match=r"strides \[2, 2\] with dilation_rate \[1, 2\]"):
        tb.nn.convolution(X, w2, "SAME", [2, 2], [1, 2])
    with pytest.raises(InvalidArgumentError, match=r"window_shape is \[2\], expected 2 numbers"):
        tb.nn.pool(X, [2], "MAX", "SAME")


@pytest.mark.parametrize(("padding", "strides"), [("SAME", (2, 1, 3)), ("VALID", (1, 2, 2))])
def test_transposed_volumes_are_the_gradient_of_convolved_ones(
    session: tb.Session, padding: str, strides: Any
) -> None:
    volumes, w = tb.constant(normal(2, 5, 6, 7, 2)), normal(3, 2, 2, 2, 4)
    flow = tb.nn.conv3d(volumes, w, strides, padding)
    g = normal(*flow.shape.as_list(), seed=3)
    (expected,) = tb.gradients(flow, volumes, g)
    got = tb.nn.conv3d_transpose(g, w, [2, 5, 6, 7, 2], strides, padding)
    value, wanted = session.run([got, expected])
    np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)
    second = session.run(
        tb.nn.conv3d_transpose(np.moveaxis(g, 4, 1), w, [2, 2, 5, 6, 7], strides, padding, "NCDHW")
    )
    np.testing.assert_allclose(second, np.moveaxis(wanted, 4, 1), rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidArgumentError, match="windows with strides"):
        tb.nn.conv3d_transpose(g, w, [2, 9, 6, 7, 2], strides, padding)


def test_layers_of_volumes(session: tb.Session) -> None:
    volumes = tb.placeholder(tb.float32, [None, 4, 6, 5, 2])
    flow = tb.layers.conv3d(volumes, 3, 2, strides=(1, 2, 1), padding="same", activation=tb.nn.relu)
    assert flow.shape == [None, 4, 3, 5, 3]
    small = tb.layers.max_pooling3d(flow, 2, 1)
    mean = tb.layers.average_pooling3d(flow, (2, 1, 1), (2, 1, 1))
    large = tb.layers.conv3d_transpose(small, 2, 3, strides=2)
    first = tb.layers.conv3d(tb.zeros([1, 2, 4, 4, 4]), 3, 2, data_format="channels_first")
    assert [t.shape.as_list() for t in (small, mean, large, first)] == [
        [None, 3, 2, 4, 3], [None, 2, 3, 5, 3], [None, 7, 5, 9, 2], [1, 3, 3, 3, 3],
    ]  # fmt: skip
    assert [v.op.name for v in tb.trainable_variables()][:4] == [
        *("conv3d/kernel", "conv3d/bias", "conv3d_transpose/kernel", "conv3d_transpose/bias"),
    ]
    session.run(tb.global_variables_initializer())
    value = session.run([flow, mean], {volumes: normal(2, 4, 6, 5, 2)})
    np.testing.assert_allclose(value[1], (value[0][:, ::2] + value[0][:, 1::2]) / 2, rtol=1e-5)


def test_moments_in_parts(session: tb.Session) -> None:
    x, shift = tb.constant(X), tb.constant(0.5)
    for given in (None, shift):
        count, total, squares, by = tb.nn.sufficient_statistics(x, [0, 2], given)
        assert (by is None) == (given is None)
        mean, variance, n = session.run([*tb.nn.normalize_moments(count, total, squares, by), count])
        assert n == 14
        np.testing.assert_allclose(mean, X.mean((0, 2)), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(variance, X.var((0, 2)), rtol=1e-4)
    weights = uniform(6, 1, 3)
    for keeps in (True, False):
        mean, variance = session.run(tb.nn.weighted_moments(x, [0, 1], weights, keep_dims=keeps))
        full = np.broadcast_to(weights, X.shape)
        expected = np.average(X, (0, 1), full)
        spread = np.average((X - expected) ** 2, (0, 1), full)
        np.testing.assert_allclose(mean.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(variance.reshape(expected.shape), spread, rtol=1e-4)
        assert mean.shape == ((1, 1, 7, 3) if keeps else (7, 3))
    check_gradients(lambda y: tb.nn.weighted_moments(y, [0, 1], tb.cast(tb.constant(weights), y.dtype)), [X])


def test_losses_of_counts(session: tb.Session) -> None:
    counts, logs = np.array([0.0, 1.0, 3.0, 7.0], np.float32), normal(4)
    plain = np.exp(logs) - counts * logs
    large = np.maximum(counts, 1)
    rest = large * np.log(large) - large + 0.5 * np.log(2 * np.pi * large)
    stirling = np.where(counts > 1, rest, 0)
    got = session.run([tb.nn.log_poisson_loss(counts, logs), tb.nn.log_poisson_loss(counts, logs, True)])
    np.testing.assert_allclose(got, [plain, plain + stirling], rtol=1e-4)
    check_gradients(
        lambda x: [tb.nn.log_poisson_loss(tb.cast(tb.constant(counts), x.dtype), x, True)], [logs]
    )


def test_pooled_positions_find_the_elements(session: tb.Session) -> None:
    pooled, positions = tb.nn.max_pool_with_argmax(X, [1, 2, 3, 1], [1, 2, 2, 1], "SAME")
    value, places, plain = session.run([pooled, positions, tb.nn.max_pool(X, [2, 3], 2, "SAME")])
    np.testing.assert_array_equal(value, plain)
    for b in range(2):
        np.testing.assert_array_equal(X[b].ravel()[places[b]], value[b])
