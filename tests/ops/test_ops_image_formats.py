"""NCHW, groups, transposed convolution: what is made of the convolution and pooling ops."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.interpreter import run_graph
from tests.ops_contract.naive_windows import dilated, naive_conv2d, naive_gradients
from tests.ops_contract.sample import normal, uniform

pytestmark = pytest.mark.usefixtures("graph")

IMAGES = normal(2, 5, 6, 4)
SECOND = IMAGES.transpose(0, 3, 1, 2)


def both(function):
    """A function(images, data_format, nest of spatial numbers) of NHWC and of NCHW images, both as NHWC."""
    last = function(tb.constant(IMAGES), "NHWC", lambda h, w: [1, h, w, 1])
    second = function(tb.constant(SECOND), "NCHW", lambda h, w: [1, 1, h, w])
    a, b = run_graph([last, second], {})
    assert second.shape.as_list() == list(b.shape)
    return a, b.transpose(0, 2, 3, 1)


FUNCTIONS = {
    "conv2d": lambda x, f, n: tb.nn.conv2d(x, normal(3, 2, 4, 5), n(1, 2), "SAME", data_format=f),
    "dilated": lambda x, f, n: tb.nn.conv2d(
        x, normal(3, 2, 4, 5), n(1, 1), "SAME", data_format=f, dilations=n(1, 3)
    ),
    "dilated groups": lambda x, f, n: tb.nn.conv2d(
        x, normal(2, 2, 1, 8), 1, "VALID", data_format=f, dilations=n(3, 2)
    ),
    "dilated transpose": lambda x, f, n: tb.nn.conv2d_transpose(
        x,
        normal(3, 2, 7, 4),
        [2, 5, 6, 7] if f == "NHWC" else [2, 7, 5, 6],
        1,
        data_format=f,
        dilations=n(2, 3),
    ),
    "dilated depthwise": lambda x, f, n: tb.nn.depthwise_conv2d(
        x, normal(3, 2, 4, 2), n(1, 1), "SAME", [2, 3], data_format=f
    ),
    "input gradient": lambda x, f, n: tb.nn.conv2d_backprop_input(
        [2, 5, 6, 6] if f == "NHWC" else [2, 6, 5, 6], normal(3, 2, 3, 4), x, n(1, 1), "SAME", data_format=f
    ),
    "groups": lambda x, f, n: tb.nn.conv2d(x, normal(3, 2, 2, 6), n(2, 1), "VALID", data_format=f),
    "depthwise": lambda x, f, n: tb.nn.depthwise_conv2d(
        x, normal(3, 2, 4, 2), n(1, 1), "SAME", data_format=f
    ),
    "max_pool": lambda x, f, n: tb.nn.max_pool(x, n(2, 3), n(2, 1), "SAME", data_format=f),
    "avg_pool": lambda x, f, n: tb.nn.avg_pool(x, n(2, 3), n(2, 1), "SAME", data_format=f),
    "bias_add": lambda x, f, n: tb.nn.bias_add(x, normal(4), data_format=f),
    "batch_norm": lambda x, f, n: tb.nn.fused_batch_norm(x, uniform(4), normal(4), data_format=f)[0],
    "transpose": lambda x, f, n: tb.nn.conv2d_transpose(
        x, normal(3, 2, 7, 4), [2, 10, 6, 7] if f == "NHWC" else [2, 7, 10, 6], n(2, 1), data_format=f
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_channels_second_give_the_same(name):
    last, second = both(FUNCTIONS[name])
    np.testing.assert_allclose(second, last, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("groups", [2, 4])
def test_groups(groups):
    filters = normal(3, 2, 4 // groups, 8)
    result = run_graph([tb.nn.conv2d(IMAGES, filters, 1, "SAME")], {})[0]
    parts = [
        naive_conv2d(x, w, (1, 1), "SAME")
        for x, w in zip(np.split(IMAGES, groups, 3), np.split(filters, groups, 3), strict=True)
    ]
    np.testing.assert_allclose(result, np.concatenate(parts, 3), rtol=1e-4, atol=1e-5)
    check_gradients(lambda x, w: [tb.nn.conv2d(x, w, 2, "SAME")], [IMAGES, filters])


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_in_groups(dynamic):
    """The ops give what differentiation gives, and have gradients themselves."""
    filters, flow = normal(3, 2, 2, 6), normal(2, 3, 3, 6)
    inputs = {
        tb.placeholder(tb.float32, [None, *a.shape[1:]] if dynamic else a.shape): a
        for a in (IMAGES, filters, flow)
    }
    x, w, dy = inputs

    def shape_of(tensor):
        """Shape as a tensor instead of an unknown extent."""
        return [tb.shape(tensor)[0], *tensor.shape.as_list()[1:]]

    result = tb.nn.conv2d(x, w, 2, "SAME")
    expected = tb.gradients(result, [x, w], dy)
    sizes = list(IMAGES.shape)
    got = [
        tb.nn.conv2d_backprop_input(shape_of(x) if dynamic else sizes, w, dy, 2, "SAME"),
        tb.nn.conv2d_backprop_filter(x, shape_of(w) if dynamic else filters.shape, dy, 2, "SAME"),
    ]
    assert got[0].shape.as_list() == [None if dynamic else 2, 5, 6, 4]
    for a, b in zip(run_graph(got, inputs), run_graph(expected, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    check_gradients(lambda w, dy: [tb.nn.conv2d_backprop_input(sizes, w, dy, 2, "SAME")], [filters, flow])
    check_gradients(
        lambda x, dy: [tb.nn.conv2d_backprop_filter(x, filters.shape, dy, 2, "SAME")], [IMAGES, flow]
    )


def test_dilation_with_space_between():
    """Dilation equals convolution with zeros between the filter's elements."""
    filters = normal(2, 3, 4, 5)
    result = run_graph([tb.nn.conv2d(IMAGES, filters, 1, "SAME", dilations=[3, 2])], {})[0]
    expected = naive_conv2d(IMAGES, dilated(filters, (3, 2)), (1, 1), "SAME")
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    check_gradients(lambda x, w: [tb.nn.conv2d(x, w, 1, "SAME", dilations=[3, 2])], [IMAGES, filters])
    grouped = normal(2, 2, 2, 6)
    check_gradients(lambda x, w: [tb.nn.conv2d(x, w, 1, "VALID", dilations=2)], [IMAGES, grouped])


def test_groups_that_do_not_divide_the_outputs_are_refused():
    with pytest.raises(InvalidArgumentError, match="would be 2 groups, but its 5 outputs"):
        tb.nn.conv2d(IMAGES, normal(3, 2, 2, 5), 1, "SAME")


def test_transposed_convolution():
    filters = normal(3, 2, 7, 4)
    result = tb.nn.conv2d_transpose(IMAGES, filters, [2, 10, 11, 7], 2)
    expected = naive_gradients(np.zeros((2, 10, 11, 7)), filters, IMAGES, (2, 2), "SAME")[0]
    np.testing.assert_allclose(run_graph([result], {})[0], expected, rtol=1e-4, atol=1e-5)
    batch = tb.shape(tb.placeholder(tb.float32, [None, 5, 6, 4]))[0]
    assert tb.nn.conv2d_transpose(IMAGES, filters, tb.stack([batch, 10, 11, 7]), 2).shape.ndims == 4
    check_gradients(lambda x, w: [tb.nn.conv2d_transpose(x, w, [2, 10, 11, 7], 2)], [IMAGES, filters])
    with pytest.raises(InvalidArgumentError, match="out_backprop"):
        tb.nn.conv2d_transpose(IMAGES, filters, [2, 20, 11, 7], 2)


def test_refusals():
    with pytest.raises(
        InvalidArgumentError, match=r"strides \[2\] and rate \[2, 3\]; one of the two must be 1"
    ):
        tb.nn.depthwise_conv2d(IMAGES, normal(3, 3, 4, 1), 2, "SAME", rate=[2, 3])
    with pytest.raises(InvalidArgumentError, match=r"expected rate to be a whole number of at least 1"):
        tb.nn.depthwise_conv2d(IMAGES, normal(3, 3, 4, 1), 1, "SAME", rate=[2, 0])
    with pytest.raises(InvalidArgumentError, match=r"have 4 channels, the filter.*is for 3"):
        tb.nn.depthwise_conv2d(IMAGES, normal(3, 3, 3, 1), 1, "SAME")
    with pytest.raises(InvalidArgumentError, match="expected rank 4"):
        tb.nn.conv2d(normal(3, 4), normal(3, 3, 4, 1), 1, "SAME", data_format="NCHW")
    with pytest.raises(InvalidArgumentError, match="4 channels in"):
        tb.nn.bias_add(SECOND, normal(3), data_format="NCHW")
