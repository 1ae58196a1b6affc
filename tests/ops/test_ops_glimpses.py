"""Glimpses, sizes by name, similarity over scales, convolutions of sequences: against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.gradient_check import check_gradients

pytestmark = pytest.mark.usefixtures("graph")

IMAGES = np.random.default_rng(3).normal(size=(2, 6, 8, 3)).astype(np.float32)


def run(*made: Any) -> Any:
    with tb.Session() as session:
        return session.run(made[0] if len(made) == 1 else list(made))


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("normalized", [True, False])
def test_glimpses(centered: bool, normalized: bool) -> None:
    size, offsets = (4, 3), np.array([[0.1, -0.2], [0.9, 0.75]], np.float32)
    if not normalized:
        offsets *= [6, 8]
    found = run(tb.image.extract_glimpse(IMAGES, size, offsets, centered, normalized, noise="zero"))
    for image, offset, window in zip(IMAGES, offsets, found, strict=True):
        middle = offset * ([6, 8] if normalized else 1)
        middle = middle / 2 + [3, 4] if centered else middle
        top, left = (int(each) for each in middle - np.array(size) / 2)
        for row in range(4):
            for column in range(3):
                inside = 0 <= top + row < 6 and 0 <= left + column < 8
                expected = image[top + row, left + column] if inside else np.zeros(3)
                np.testing.assert_array_equal(window[row, column], expected)


def test_noise_beside_images_and_gradients_within() -> None:
    far = np.full((2, 2), 5.0, np.float32)
    uniform, gaussian = run(
        tb.image.extract_glimpse(IMAGES, (5, 7), far, noise="uniform"),
        tb.image.extract_glimpse(IMAGES, (5, 7), far, uniform_noise=False),
    )
    for image, noise, other in zip(IMAGES, uniform, gaussian, strict=True):
        assert image.min() <= noise.min() < noise.max() <= image.max()
        assert noise.std() > 0.5
        assert abs(other.mean() - image.mean()) < 0.6
        assert np.unique(other).size > 100
    x = tb.placeholder(tb.float32, [2, 6, 8, 3])
    window = tb.image.extract_glimpse(x, (4, 3), np.zeros((2, 2), np.float32), noise="zero")
    with tb.Session() as session:
        gradient = session.run(tb.gradients(tb.reduce_sum(window * window), x)[0], {x: IMAGES})
    expected = np.zeros_like(IMAGES)
    expected[:, 1:5, 2:5] = 2 * IMAGES[:, 1:5, 2:5]
    np.testing.assert_allclose(gradient, expected)
    with pytest.raises(InvalidArgumentError, match=r"expected offsets \[batch, 2\] for .*, got float32\[2\]"):
        tb.image.extract_glimpse(IMAGES, (4, 3), tb.constant([0.0, 0.0]))


def test_sizes_and_methods_by_name() -> None:
    for number, name in enumerate(("bilinear", "nearest", "bicubic", "area")):
        named, numbered = run(
            tb.image.resize(IMAGES, (3, 5), name), tb.image.resize_images(IMAGES, (3, 5), number)
        )
        np.testing.assert_array_equal(named, numbered)
    assert tb.image.resize(IMAGES, [9, 4], preserve_aspect_ratio=True).shape == [2, 3, 4, 3]
    assert tb.image.resize(IMAGES, [9, 100], preserve_aspect_ratio=True).shape == [2, 9, 12, 3]
    with pytest.raises(InvalidArgumentError, match="'bilinear', 'nearest'"):
        tb.image.resize(IMAGES, [9, 4], "lanczos3")
    with pytest.raises(InvalidArgumentError, match="preserve_aspect_ratio needs a known size"):
        tb.image.resize(tb.placeholder(tb.float32, [None, None, None, 3]), [9, 4], preserve_aspect_ratio=True)


def test_similarity_over_scales() -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(size=(3, 24, 21, 2)).astype(np.float32)
    y = np.clip(x + rng.normal(0, 0.1, x.shape), 0, 1).astype(np.float32)
    powers = (0.3, 0.7)
    options = {"filter_size": 5}
    found, same = run(
        tb.image.ssim_multiscale(x, y, 1.0, powers, **options),
        tb.image.ssim_multiscale(x, x, 1.0, powers, **options),
    )
    np.testing.assert_allclose(same, 1, rtol=1e-5)
    expected = []
    for a, b in zip(x, y, strict=True):
        channels = []
        for channel in range(2):
            first, second = a[..., channel], b[..., channel]
            product = similarity(first, second)[1] ** powers[0]
            halves = [
                np.concatenate([each, each[:, -1:]], 1).reshape(12, 2, 11, 2).mean((1, 3))
                for each in (first, second)
            ]
            channels.append(product * similarity(*halves)[0] ** powers[1])
        expected.append(np.mean(channels))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    one = run(tb.image.ssim_multiscale(x, y, 1.0, [1.0], **options))
    np.testing.assert_allclose(one, run(tb.image.ssim(x, y, 1.0, **options)), rtol=1e-5)
    with pytest.raises(
        InvalidArgumentError, match="ssim_multiscale: images of 6 x 6 pixels, expected at least"
    ):
        tb.image.ssim_multiscale(x, y, 1.0)


def similarity(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    place = np.arange(5) - 2.0
    kernel = np.exp(-0.5 * (place / 1.5) ** 2)
    kernel = np.outer(kernel, kernel) / kernel.sum() ** 2

    def mean(image: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.float64), (5, 5))
        return (windows * kernel).sum((2, 3))

    ma, mb, c1, c2 = mean(a), mean(b), 0.01**2, 0.03**2
    covariance, variances = mean(a * b) - ma * mb, mean(a * a) + mean(b * b) - ma**2 - mb**2
    contrast = (2 * covariance + c2) / (variances + c2)
    return float(((2 * ma * mb + c1) / (ma**2 + mb**2 + c1) * contrast).mean()), float(contrast.mean())


@pytest.mark.parametrize("layout", ["NWC", "NCW"])
@pytest.mark.parametrize(("stride", "padding", "steps"), [(2, "SAME", 7), (2, "VALID", 9), (1, "VALID", 6)])
def test_transposed_convolutions_of_sequences(layout: str, stride: int, padding: str, steps: int) -> None:
    """The gradient of `conv1d`."""
    rng = np.random.default_rng(0)
    filters = tb.constant(rng.normal(size=(3, 4, 2)).astype(np.float32))  # [size, out, in]
    shape = [5, steps, 4] if layout == "NWC" else [5, 4, steps]
    forward = tb.nn.conv1d(tb.zeros(shape), filters, stride, padding, layout)
    x = tb.constant(rng.normal(size=forward.shape.as_list()).astype(np.float32))
    made = tb.nn.conv1d_transpose(x, filters, shape, stride, padding, layout)
    of_tensor = tb.nn.conv1d_transpose(x, filters, tb.constant(shape), stride, padding, layout)
    source = tb.placeholder(tb.float32, shape)
    (expected,) = tb.gradients(tb.nn.conv1d(source, filters, stride, padding, layout), source, x)
    with tb.Session() as session:
        found = session.run([made, of_tensor, expected], {source: np.zeros(shape)})
    np.testing.assert_allclose(found[0], found[2], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[0], found[1])
    assert made.shape == shape


def test_the_gradient_of_a_transposed_convolution() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(2, 3, 2)), rng.normal(size=(3, 4, 2))]
    check_gradients(lambda x, w: [tb.nn.conv1d_transpose(x, w, [2, 7, 4], 2, "VALID")], arrays)


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize(
    ("padding", "strides", "rate"), [("same", 2, 1), ("causal", 1, 2), ("valid", 1, 1), (1, 2, 1)]
)
def test_separable_convolutions_of_sequences(layout: str, padding: Any, strides: int, rate: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 9, 3)).astype(np.float32)
    given = x if layout == "channels_last" else x.transpose(0, 2, 1)
    layer = tb.layers.SeparableConv1D(5, 4, strides, padding, layout, rate, 2, name="s")
    made = layer(given)
    names = ["s/depthwise_kernel", "s/pointwise_kernel", "s/bias"]
    own, mixing, _ = tb.trainable_variables()
    assert [v.op.name for v in tb.trainable_variables()] == names
    assert (own.shape, mixing.shape) == ([4, 3, 2], [1, 6, 5])
    separate = [
        tb.layers.conv1d(
            x[..., channel : channel + 1], 2, 4, strides, padding, "channels_last", rate, use_bias=False,
            kernel_initializer=lambda shape, dtype, channel=channel: own.value()[:, channel : channel + 1],
        )
        for channel in range(3)
    ]  # fmt: skip
    expected = tb.tensordot(tb.concat(separate, 2), mixing[0], 1)
    with tb.Session() as session:
        session.run(own.initializer)
        session.run(tb.global_variables_initializer())
        found, wanted = session.run([made, expected])
    wanted = wanted if layout == "channels_last" else wanted.transpose(0, 2, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
