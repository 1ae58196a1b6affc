"""Ops on images: values against plain NumPy, gradients against differences, chance, refusals."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.interpreter import run_graph
from tests.ops_contract.sample import integers, uniform

pytestmark = pytest.mark.usefixtures("graph")

X = uniform(2, 4, 5, 3, low=0.05, high=0.95)
METHODS = tb.image.ResizeMethod


def value(tensor, feeds=None):
    return run_graph([tensor], feeds or {})[0]


def by_pixel(function, x):
    rows = [function(*map(float, pixel)) for pixel in x.reshape(-1, 3)]
    return np.array(rows, x.dtype).reshape(*x.shape[:-1], -1)


def with_hsv(change):
    def adjusted(r, g, b):
        return colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(r, g, b)))

    return lambda x: by_pixel(adjusted, x)


def interpolated(x, height, width, corners=False):
    """Linear interpolation, with the last pixel beyond the end."""
    for axis, size in ((1, height), (2, width)):
        extent = x.shape[axis]
        scale = (extent - 1) / (size - 1) if corners else extent / size
        at = np.minimum(np.arange(size) * scale, extent - 1)
        x = np.apply_along_axis(lambda line, at=at: np.interp(at, np.arange(len(line)), line), axis, x)
    return x.astype(np.float32)


def spread(x):
    centred = x - x.mean((1, 2, 3), keepdims=True)
    return centred / x.std((1, 2, 3), keepdims=True)


IMAGES = {
    "flip_left_right": (tb.image.flip_left_right, lambda x: x[:, :, ::-1]),
    "flip_up_down": (tb.image.flip_up_down, lambda x: x[:, ::-1]),
    "transpose_image": (tb.image.transpose_image, lambda x: x.swapaxes(1, 2)),
    "rot90": (tb.image.rot90, lambda x: np.rot90(x, axes=(1, 2))),
    "rot90 twice": (lambda x: tb.image.rot90(x, 2), lambda x: np.rot90(x, 2, (1, 2))),
    "rot90 back": (lambda x: tb.image.rot90(x, -1), lambda x: np.rot90(x, -1, (1, 2))),
    "crop": (lambda x: tb.image.crop_to_bounding_box(x, 1, 2, 3, 2), lambda x: x[:, 1:4, 2:4]),
    "pad": (
        lambda x: tb.image.pad_to_bounding_box(x, 1, 2, 6, 7),
        lambda x: np.pad(x, ((0, 0), (1, 1), (2, 0), (0, 0))),
    ),
    "crop or pad": (
        lambda x: tb.image.resize_image_with_crop_or_pad(x, 7, 2),
        lambda x: np.pad(x[:, :, 1:3], ((0, 0), (1, 2), (0, 0), (0, 0))),
    ),
    "central_crop": (lambda x: tb.image.central_crop(x, 0.5), lambda x: x[:, 1:3, 1:4]),
    "nearest": (
        lambda x: tb.image.resize_nearest_neighbor(x, [8, 3]),
        lambda x: x[:, np.arange(8) // 2][:, :, [0, 1, 3]],
    ),
    "bilinear": (lambda x: tb.image.resize_bilinear(x, [7, 9]), lambda x: interpolated(x, 7, 9)),
    "bilinear corners": (
        lambda x: tb.image.resize_images(x, [3, 8], align_corners=True),
        lambda x: interpolated(x, 3, 8, True),
    ),
    "bicubic of whole pixels": (
        lambda x: tb.image.resize_bicubic(x, [7, 9], align_corners=True)[..., ::2, ::2, :],
        lambda x: x,
    ),
    "area": (
        lambda x: tb.image.resize_area(x[..., :4, :], [2, 2]),
        lambda x: x[:, :, :4].reshape(2, 2, 2, 2, 2, 3).mean((2, 4)),
    ),
    "area of parts": (
        lambda x: tb.image.resize_area(x, [4, 2]),
        lambda x: (
            np.stack(
                [(x[:, :, 0] + x[:, :, 1] + x[:, :, 2] / 2), (x[:, :, 2] / 2 + x[:, :, 3] + x[:, :, 4])], 2
            )
            / 2.5
        ),
    ),
    "brightness": (lambda x: tb.image.adjust_brightness(x, 0.25), lambda x: x + np.float32(0.25)),
    "contrast": (
        lambda x: tb.image.adjust_contrast(x, 1.5),
        lambda x: (x - x.mean((1, 2), keepdims=True)) * 1.5 + x.mean((1, 2), keepdims=True),
    ),
    "gamma": (lambda x: tb.image.adjust_gamma(x, 2.5, 0.5), lambda x: x**2.5 / 2),
    "hue": (lambda x: tb.image.adjust_hue(x, -0.3), with_hsv(lambda h, s, v: ((h - 0.3) % 1, s, v))),
    "saturation": (
        lambda x: tb.image.adjust_saturation(x, 1.3),
        with_hsv(lambda h, s, v: (h, min(1.3 * s, 1), v)),
    ),
    "hsv": (tb.image.rgb_to_hsv, lambda x: by_pixel(colorsys.rgb_to_hsv, x)),
    "grey": (tb.image.rgb_to_grayscale, lambda x: (x @ [[0.2989], [0.587], [0.114]]).astype(np.float32)),
    "grey with channels": (
        lambda x: tb.image.grayscale_to_rgb(x[..., 1:2]),
        lambda x: np.repeat(x[..., 1:2], 3, -1),
    ),
    "standardized": (tb.image.per_image_standardization, spread),
    "variation": (
        tb.image.total_variation,
        lambda x: np.abs(np.diff(x, axis=1)).sum((1, 2, 3)) + np.abs(np.diff(x, axis=2)).sum((1, 2, 3)),
    ),
    "psnr": (
        lambda x: tb.image.psnr(x, x[::-1] * 0.5, 2.0),
        lambda x: 10 * np.log10(4 / ((x - x[::-1] * 0.5) ** 2).mean((1, 2, 3))),
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", IMAGES)
def test_values_and_gradients(name):
    function, expected = IMAGES[name]
    result, wanted = value(function(tb.constant(X))), expected(X)
    assert (result.dtype, result.shape) == (np.float32, wanted.shape)
    np.testing.assert_allclose(result, wanted, rtol=3e-5, atol=2e-6)
    if name != "psnr":  # in float32
        check_gradients(lambda x: [function(x)], [X], rtol=1e-4, known="shapes")
    if name not in ("psnr", "variation"):
        one = value(function(tb.constant(X[:1]))[0])
        np.testing.assert_allclose(value(function(tb.constant(X[0]))), one, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize("name", IMAGES)
def test_extents_may_be_known_in_a_step_only(name):
    """Values and gradients are those of images of known extents."""
    function, _ = IMAGES[name]
    results = []
    for shape in (X.shape, [None, None, None, 3], [None] * 4):
        x = tb.placeholder(tb.float32, shape)
        y = function(x)
        with tb.Session() as session:
            slope = tb.gradients(tb.reduce_sum(tb.sin(y)), x)[0]
            results.append(session.run([y, slope], {x: X}))
    for found in results[1:]:
        for one, other in zip(found, results[0], strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


WINDOWS = {
    "resize": (lambda x, n: tb.image.resize_images(x, n[2:], METHODS.BICUBIC), [0, 0, 3, 7]),
    "resize to [height, width]": (lambda x, n: tb.image.resize_area(x, [n[2], n[3]]), [0, 0, 3, 2]),
    "crop": (lambda x, n: tb.image.crop_to_bounding_box(x, n[0], n[1], n[2], n[3]), [1, 2, 3, 2]),
    "pad": (lambda x, n: tb.image.pad_to_bounding_box(x, n[0], n[1], n[2], n[3]), [1, 0, 5, 9]),
    "crop or pad": (lambda x, n: tb.image.resize_image_with_crop_or_pad(x, n[2], n[3]), [0, 0, 7, 2]),
    "crop to a known height": (lambda x, n: tb.image.crop_to_bounding_box(x, n[0], 0, 2, n[3]), [1, 2, 3, 2]),
}


@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize("name", WINDOWS)
def test_sizes_may_be_tensors(name):
    function, numbers = WINDOWS[name]
    fed = tb.placeholder(tb.int32, [4])
    x = tb.placeholder(tb.float32, X.shape)
    found, wanted, constants = function(x, fed), function(x, numbers), function(x, tb.constant(numbers))
    slopes = [tb.gradients(tb.reduce_sum(tb.sin(y)), x)[0] for y in (found, wanted)]
    with tb.Session() as session:
        a, b, c, d, e = session.run([found, wanted, *slopes, constants], {x: X, fed: numbers})
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(c, d, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(e, b, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("reference_kernels")
def test_windows_that_do_not_fit_are_refused_in_a_step():
    x, n = tb.placeholder(tb.float32, [None, None, 3]), tb.placeholder(tb.int32, [])
    refused = {
        "crop_to_bounding_box: rows 3:5, columns 0:2 of images of 4 x 5": (
            tb.image.crop_to_bounding_box(x, 3, 0, 2, 2)
        ),
        r"pad_to_bounding_box: images of 4 x 5 at \[0, 0\] do not fit 4 x 4": (
            tb.image.pad_to_bounding_box(x, 0, 0, 4, 4)
        ),
        "crop_or_pad: offsets .., height 0, width 2": tb.image.resize_image_with_crop_or_pad(x, n, 2),
        r"ResizeImages: images of 4 x 5 to size \[0, 2\]": tb.image.resize_images(x, [n, 2]),
    }
    with tb.Session() as session:
        for words, result in refused.items():
            with pytest.raises(InvalidArgumentError, match=words):
                session.run(result, {x: X[0], n: 0})
    with pytest.raises(InvalidArgumentError, match="expected a whole number"):
        tb.image.resize_image_with_crop_or_pad(x, tb.placeholder(tb.float32, []), 2)


def test_integer_images_come_back_in_their_dtype():
    x = integers(3, 4, 3, high=256).astype(np.uint8)
    brighter = value(tb.image.adjust_brightness(x, 0.2))
    assert brighter.dtype == np.uint8
    np.testing.assert_array_equal(brighter, np.minimum(np.int64(x) + 51, 255))
    assert value(tb.image.resize_nearest_neighbor(x, [6, 4])).dtype == np.uint8
    assert value(tb.image.resize_bilinear(x, [6, 4])).dtype == np.float32
    floats = value(tb.image.convert_image_dtype(x, tb.float32))
    np.testing.assert_allclose(floats, x / 255, rtol=1e-6)
    np.testing.assert_array_equal(value(tb.image.convert_image_dtype(floats, tb.uint8)), x)
    wide = value(tb.image.convert_image_dtype(x, tb.int32))
    np.testing.assert_array_equal(wide, np.int32(x) << 23)
    np.testing.assert_array_equal(value(tb.image.convert_image_dtype(wide, tb.uint8)), x)
    assert (
        value(tb.image.per_image_standardization(np.full((4, 4, 1), 7, np.uint8))).tolist() == [[[0]] * 4] * 4
    )


@pytest.mark.slow
def test_what_is_drawn_anew_in_each_step():
    images = tb.placeholder(tb.float32, [None, 4, 5, 3])
    flipped = tb.image.random_flip_left_right(images, seed=1)
    part = tb.random_crop(images, [30, 2, 3, 3], seed=2)
    changed = tb.image.random_contrast(tb.image.random_brightness(images, 0.3, seed=3), 0.5, 1.5, seed=4)
    turned = tb.image.random_saturation(tb.image.random_hue(images, 0.2, seed=5), 0.5, 1.5, seed=6)
    x = np.repeat(X, 15, 0)
    with tb.Session() as session:
        steps = [session.run([flipped, part, changed, turned], {images: x}) for _ in range(2)]
    for results in steps:
        mirrored = [np.array_equal(image, old[:, ::-1]) for image, old in zip(results[0], x, strict=True)]
        same = [np.array_equal(image, old) for image, old in zip(results[0], x, strict=True)]
        assert all(a != b for a, b in zip(mirrored, same, strict=True))
        assert 5 < sum(mirrored) < 25
        places = [(i, j) for i in range(3) for j in range(3)]
        assert any(np.array_equal(results[1], x[:, i : i + 2, j : j + 3]) for i, j in places)
    assert all(not np.array_equal(a, b) for a, b in zip(*steps, strict=True))


def test_refusals():
    for call, words in (
        (
            lambda: tb.image.crop_to_bounding_box(X, 2, 0, 3, 5),
            r"rows 2:5, columns 0:5 of .* inside the image",
        ),
        (lambda: tb.image.pad_to_bounding_box(X, 0, 1, 4, 5), r"do not fit 4 x 5"),
        (lambda: tb.image.resize_images(X, [3]), r"a size \[height, width\], got .* and \(3,\)"),
        (
            lambda: tb.image.resize_images(tb.placeholder(tb.float32), [3, 3]),
            r"known rank",
        ),
        (lambda: tb.random_crop(X, [2, 4, 6, 3]), r"a part \[2, 4, 6, 3\] is larger than"),
        (lambda: tb.random_crop(X, [2, 4]), r"expected an extent per axis"),
        (lambda: tb.image.flip_up_down(X[0, 0]), r"expected images \[batch, height, width, channels\]"),
        (lambda: tb.image.rgb_to_hsv(X[..., :2]), r"expected three channels"),
        (lambda: tb.image.random_contrast(X, 1.0, 0.5), r"expected lower < upper, got 1 and 0\.5"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            call()


@pytest.mark.parametrize("known", [True, False])
def test_images_are_fitted_into_margins(known):
    values = np.random.default_rng(2).normal(size=(4, 6, 2)).astype(np.float32)
    x = tb.placeholder(tb.float32, [4, 6, 2] if known else [None, None, 2])
    with tb.Session() as session:
        found, inside = session.run(
            [tb.image.resize_image_with_pad(x, 7, 4), tb.image.resize_images(x, [2, 4])], {x: values}
        )
    assert found.shape == (7, 4, 2)
    assert np.allclose(found[2:4], inside)
    assert not found[:2].any()
    assert not found[4:].any()
