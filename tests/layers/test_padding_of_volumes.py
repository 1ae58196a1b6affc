"""Padding by numbers, as in PyTorch, of transposed convolutions and of layers of volumes; their gradients."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tensorbow as tb

pytestmark = pytest.mark.usefixtures("reference_kernels")
rng = np.random.default_rng(0)
STEP = 1e-5


def computed(build, x, layout="channels_last"):
    """Result, kernel and types of ops of a layer without bias; checks both gradients by differences."""
    axes = x.ndim
    to, back = (0, axes - 1, *range(1, axes - 1)), (0, *range(2, axes), 1)
    if layout == "channels_last":
        to = back = tuple(range(axes))
    with tb.Graph().as_default() as graph, tb.Session() as session:
        given = tb.placeholder(tb.float64, x.transpose(to).shape)
        y = build(given)
        types = {op.type for op in graph.get_operations()}
        inputs = [given, *tb.trainable_variables()]
        weights = rng.normal(size=y.shape.as_list())
        total = tb.reduce_sum(y * weights)
        gradients = tb.gradients(total, inputs)
        session.run(tb.global_variables_initializer())
        result, own, found = session.run([y, inputs, gradients], {given: x.transpose(to)})
        along = [rng.normal(size=np.shape(each)) for each in own]
        ends = []
        for sign in (1, -1):
            images, *kernels = (each + sign * STEP * way for each, way in zip(own, along, strict=True))
            session.load_variables({v.op.name: k for v, k in zip(inputs[1:], kernels, strict=True)})
            ends.append(session.run(total, {given: images}))
        analytic = sum(float((g * way).sum()) for g, way in zip(found, along, strict=True))
        np.testing.assert_allclose(analytic, (ends[0] - ends[1]) / (2 * STEP), rtol=1e-6, atol=1e-7)
        return result.transpose(back), (own[1] if kernels else None), types


def spread(x, kernel, strides, padding, added):
    """Transposed convolution by a kernel `[..., out, in]`: each element adds a window to the result."""
    sizes = kernel.shape[:-2]
    extents = zip(x.shape[1:-1], sizes, strides, added, strict=True)
    whole = np.zeros((len(x), *[(n - 1) * s + k + a for n, k, s, a in extents], kernel.shape[-2]))
    for place in product(*map(range, x.shape[1:-1])):
        window = tuple(slice(i * s, i * s + k) for i, s, k in zip(place, strides, sizes, strict=True))
        whole[(slice(None), *window)] += np.einsum("bi,...oi->b...o", x[(slice(None), *place)], kernel)
    return whole[(slice(None), *[slice(p, n - p) for p, n in zip(padding, whole.shape[1:-1], strict=True)])]


@pytest.mark.parametrize(
    ("size", "strides", "padding", "added", "cuts"),
    [
        (3, 2, 1, 1, True),
        (4, 2, 1, None, False),
        (3, 1, 1, None, False),
        ((3, 2), (2, 3), (1, 0), (0, 2), True),
        (2, 3, 0, None, False),
    ],
)
@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_transposed_convolutions_of_images(size, strides, padding, added, cuts, layout):
    """The values of PyTorch's formula; without cuts where the op makes that shape itself."""
    x = rng.normal(size=(2, 3, 4, 2))

    def build(images):
        return tb.layers.conv2d_transpose(
            images, 5, size, strides, padding, layout, use_bias=False, output_padding=added
        )

    result, kernel, types = computed(build, x, layout)
    pair = [each if isinstance(each, tuple) else (each or 0,) * 2 for each in (strides, padding, added)]
    np.testing.assert_allclose(result, spread(x, kernel, *pair), rtol=1e-9, atol=1e-12)
    assert ("StridedSlice" in types) is cuts


@pytest.mark.parametrize(
    ("size", "strides", "padding", "added"),
    [(3, 2, 1, 1), ((2, 3, 1), (1, 2, 2), (0, 1, 0), None), (4, 2, 1, None)],
)
def test_transposed_convolutions_of_volumes(size, strides, padding, added):
    x = rng.normal(size=(1, 2, 3, 2, 2))

    def build(volumes):
        return tb.layers.conv3d_transpose(
            volumes, 3, size, strides, padding, use_bias=False, output_padding=added
        )

    result, kernel, _ = computed(build, x)
    triple = [each if isinstance(each, tuple) else (each or 0,) * 3 for each in (strides, padding, added)]
    np.testing.assert_allclose(result, spread(x, kernel, *triple), rtol=1e-9, atol=1e-12)


def seen(x, widths, size, strides, number):
    """Windows [batch, slices, rows, columns, channels, size, size, size] of padded volumes."""
    wide = np.pad(x, [(0, 0), *((w, w) for w in widths), (0, 0)], constant_values=number)
    views = np.lib.stride_tricks.sliding_window_view(wide, (size,) * 3, (1, 2, 3))
    return views[:, :: strides[0], :: strides[1], :: strides[2]]


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize(("padding", "strides"), [(1, (2, 2, 2)), ((1, 0, 1), (1, 2, 1))])
def test_windows_of_volumes(padding, strides, layout):
    x = rng.normal(size=(1, 4, 6, 5, 2))
    widths = (padding,) * 3 if isinstance(padding, int) else padding

    def convolved(volumes):
        return tb.layers.conv3d(volumes, 3, 3, strides, padding, layout, use_bias=False)

    result, kernel, _ = computed(convolved, x, layout)
    expected = np.einsum("bdhwcxyz,xyzco->bdhwo", seen(x, widths, 3, strides, 0), kernel)
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)
    mean, _, _ = computed(
        lambda volumes: tb.layers.average_pooling3d(volumes, 3, strides, padding, layout), x, layout
    )
    np.testing.assert_allclose(mean, seen(x, widths, 3, strides, 0).mean((5, 6, 7)), rtol=1e-9, atol=1e-12)
    negative = -np.abs(x)
    most, _, _ = computed(
        lambda volumes: tb.layers.max_pooling3d(volumes, 3, strides, padding, layout), negative, layout
    )
    np.testing.assert_allclose(most, seen(negative, widths, 3, strides, -np.inf).max((5, 6, 7)))


def test_a_convolution_of_volumes_that_pads_so_by_itself_gets_them_as_they_are():
    x = rng.normal(size=(1, 3, 4, 5, 1))
    _, _, ops = computed(lambda volumes: tb.layers.conv3d(volumes, 1, 3, 1, 1, use_bias=False), x)
    _, _, by_name = computed(lambda volumes: tb.layers.conv3d(volumes, 1, 3, 1, "same", use_bias=False), x)
    assert ops == by_name


def test_paddings_that_do_not_fit_are_refused():
    x = tb.zeros([1, 2, 2, 1])
    for options, message in [
        ({"padding": 3}, r"conv2d_transpose: padding: expected less than half of .*\[5, 5\].* got \[3, 3\]"),
        ({"padding": 1, "output_padding": 2}, r"output_padding: expected numbers below the strides \[2, 2\]"),
        ({"padding": "same", "output_padding": 1}, r"output_padding: .*padding of numbers, got padding same"),
        ({"padding": (1, 2, 3)}, r"'same' or a number of rows and columns"),
        ({"output_padding": "x"}, r"a number of rows and columns"),
    ]:
        with pytest.raises(tb.errors.InvalidArgumentError, match=message):
            tb.layers.conv2d_transpose(x, 2, 3, 2, **options)
    with pytest.raises(tb.errors.InvalidArgumentError, match=r"'same' or .*\(slices, rows, columns\)"):
        tb.layers.conv3d(tb.zeros([1, 2, 2, 2, 1]), 2, 2, 1, (1, 1))
    with pytest.raises(tb.errors.InvalidArgumentError, match=r"max_pooling3d: .*half the size 2"):
        tb.layers.max_pooling3d(tb.zeros([1, 4, 4, 4, 1]), 2, 2, 2)
