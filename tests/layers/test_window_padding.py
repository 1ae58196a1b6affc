"""Padding of layers by a number of rows and columns, as in PyTorch: values, and the ops that are built."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb

pytestmark = pytest.mark.usefixtures("reference_kernels")
rng = np.random.default_rng(0)


def value(build, x, layout="channels_last"):
    """The layer's result for images [batch, height, width, channels], and the types of its graph's ops."""
    with tb.Graph().as_default() as graph, tb.Session() as session:
        first = layout == "channels_first"
        y = build(tb.constant(x.transpose(0, 3, 1, 2) if first else x))
        session.run(tb.global_variables_initializer())
        result = session.run(y)
        return (result.transpose(0, 2, 3, 1) if first else result), {op.type for op in graph.get_operations()}


def around(x, rows, columns, number):
    return np.pad(x, [(0, 0), (rows, rows), (columns, columns), (0, 0)], constant_values=number)


def windows(x, size, stride):
    """[batch, rows, columns, channels, size, size] of padded images."""
    seen = np.lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))
    return seen[:, ::stride, ::stride]


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize(("padding", "stride"), [(1, 2), ((2, 0), 1), ((0, 1), 2), (0, 1)])
def test_windows_of_images(padding, stride, layout):
    """Convolution and pools of a size at which `same` lays its windows elsewhere; each against NumPy."""
    x = rng.normal(size=(2, 6, 8, 3)).astype(np.float32)
    rows, columns = (padding, padding) if isinstance(padding, int) else padding
    seen = windows(around(x, rows, columns, 0), 3, stride)

    def convolved(images):
        return tb.layers.conv2d(
            images, 1, 3, stride, padding, layout, use_bias=False, kernel_initializer="ones"
        )

    def each_channel(images):
        return tb.layers.depthwise_conv2d(
            images, 3, stride, padding, 1, layout, use_bias=False, depthwise_initializer="ones"
        )

    np.testing.assert_allclose(value(convolved, x, layout)[0][..., 0], seen.sum((3, 4, 5)), 1e-4, 1e-5)
    np.testing.assert_allclose(value(each_channel, x, layout)[0], seen.sum((4, 5)), 1e-4, 1e-5)
    if max(rows, columns) > 1:
        return
    pool = {"pool_size": 3, "strides": stride, "padding": padding, "data_format": layout}
    mean, _ = value(lambda images: tb.layers.average_pooling2d(images, **pool), x, layout)
    np.testing.assert_allclose(mean, seen.mean((4, 5)), 1e-5, 1e-6)
    negative = -np.abs(x)
    most, _ = value(lambda images: tb.layers.max_pooling2d(images, **pool), negative, layout)
    np.testing.assert_allclose(most, windows(around(negative, rows, columns, -np.inf), 3, stride).max((4, 5)))


def test_sequences():
    x = rng.normal(size=(2, 7, 3)).astype(np.float32)
    seen = windows(around(x[:, None], 0, 1, 0), 1, 1)[..., 0, 0][:, 0]  # [2, 9, 3]
    thirds = np.stack([seen[:, i : i + 3] for i in range(0, 7, 2)], 1)  # [2, 4, 3 steps, 3]
    with tb.Graph().as_default(), tb.Session() as session:
        results = [
            tb.layers.conv1d(x, 1, 3, 2, 1, use_bias=False, kernel_initializer="ones")[..., 0],
            tb.layers.average_pooling1d(x, 3, 2, 1),
            tb.layers.max_pooling1d(-np.abs(x), 3, 2, 1),
        ]
        session.run(tb.global_variables_initializer())
        convolved, mean, most = session.run(results)
    np.testing.assert_allclose(convolved, thirds.sum((2, 3)), 1e-4, 1e-5)
    np.testing.assert_allclose(mean, thirds.mean(2), 1e-5, 1e-6)
    assert most.shape == (2, 4, 3)
    assert (most < 0).all()


def test_an_op_that_pads_so_by_itself_gets_the_images_as_they_are():
    x = rng.normal(size=(1, 6, 6, 2)).astype(np.float32)
    for build, pads in [
        (lambda images: tb.layers.conv2d(images, 2, 3, 1, 1), False),
        (lambda images: tb.layers.conv2d(images, 2, 5, 1, (2, 2)), False),
        (lambda images: tb.layers.conv2d(images, 2, 3, 2, 1), True),
        (lambda images: tb.layers.max_pooling2d(images, 3, 1, 1), False),
        (lambda images: tb.layers.max_pooling2d(images, 3, 2, 1), True),
        (lambda images: tb.layers.average_pooling2d(images, 3, 1, 1), True),  # SAME does not count zeros
    ]:
        assert ("Pad" in value(build, x)[1] or "PadV2" in value(build, x)[1]) is pads
    with tb.Graph().as_default():
        images = tb.placeholder(tb.float32, [None, None, None, 2])
        assert tb.layers.conv2d(images, 2, 3, 1, 1).shape.ndims == 4
        assert tb.layers.max_pooling2d(images, 3, 2, 1).shape.ndims == 4


def test_errors():
    with tb.Graph().as_default():
        x = tb.zeros([1, 6, 6, 2])
        with pytest.raises(tb.errors.InvalidArgumentError, match=r"at most half the size 2.* got 2"):
            tb.layers.max_pooling2d(x, 2, 2, 2)
        for wrong in (-1, (1, 2, 3), "sam", 1.0, None):
            with pytest.raises(tb.errors.InvalidArgumentError, match=r"'same' or a number of rows and"):
                tb.layers.conv2d(x, 2, 3, 1, wrong)
        with pytest.raises(tb.errors.InvalidArgumentError):
            tb.layers.average_pooling2d(tb.zeros([6, 6, 2]), 2, 2, 1)
