"""Crops, outlines, chosen and random boxes, similarity and colour spaces of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.sample import normal, uniform

pytestmark = pytest.mark.usefixtures("session")

IMAGES = uniform(2, 6, 8, 3)
BOXES = np.array([[0.11, 0.2, 0.73, 0.9], [0.93, 0.1, 0.23, 0.83], [-0.53, 0.01, 1.5, 0.98]], np.float32)
EXAMPLES = np.array([1, 0, 1], np.int32)


def _cropped(images: Any, size: tuple[int, int], method: str, outside: float) -> Any:
    _, height, width, channels = images.shape
    result = np.full((len(BOXES), *size, channels), outside)
    for n, ((top, left, bottom, right), b) in enumerate(zip(BOXES, EXAMPLES, strict=True)):
        for i, j in np.ndindex(*size):
            y = (top + (bottom - top) * i / (size[0] - 1)) * (height - 1)
            x = (left + (right - left) * j / (size[1] - 1)) * (width - 1)
            if not (0 <= y <= height - 1 and 0 <= x <= width - 1):
                continue
            if method == "nearest":
                result[n, i, j] = images[b, round(float(y)), round(float(x))]
                continue
            t, l = int(y), int(x)  # noqa: E741
            u, r = min(t + 1, height - 1), min(l + 1, width - 1)
            upper = images[b, t, l] + (images[b, t, r] - images[b, t, l]) * (x - l)
            lower = images[b, u, l] + (images[b, u, r] - images[b, u, l]) * (x - l)
            result[n, i, j] = upper + (lower - upper) * (y - t)
    return result


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
def test_crops(session: tb.Session, method: str) -> None:
    images = tb.placeholder(tb.float32, [None, 6, 8, 3])
    crops = tb.image.crop_and_resize(images, BOXES, EXAMPLES, [4, 5], method, 7.0)
    assert crops.shape == [3, 4, 5, 3]
    got = session.run(crops, {images: IMAGES})
    np.testing.assert_allclose(got, _cropped(IMAGES, (4, 5), method, 7.0), rtol=1e-4, atol=1e-5)
    one = session.run(tb.image.crop_and_resize(IMAGES, BOXES[:1], [0], [1, 1], "nearest"))
    assert one[0, 0, 0].tolist() == IMAGES[0, 2, 4].tolist()  # the middle: 0.42 * 5 and 0.55 * 7


def test_gradients_of_crops(session: tb.Session) -> None:
    """float32 alone, as TensorFlow's: slopes against differences of a larger step."""
    x, boxes = tb.constant(IMAGES), tb.constant(BOXES[:2])
    along, moved = normal(*IMAGES.shape, seed=5), normal(2, 4, seed=6) * 0.05

    def loss(images: Any, at: Any) -> Any:
        return tb.reduce_sum(tb.square(tb.image.crop_and_resize(images, at, EXAMPLES[:2], [4, 5])))

    slopes = session.run(tb.gradients(loss(x, boxes), [x, boxes]))
    for slope, direction, step, ends in (
        (slopes[0], along, 0.01, [loss(x + s * 0.01 * along, boxes) for s in (1, -1)]),
        (slopes[1], moved, 0.05, [loss(x, boxes + s * 0.05 * moved) for s in (1, -1)]),
    ):
        after, before = session.run(ends)
        assert float(np.sum(slope * direction)) == pytest.approx((after - before) / (2 * step), rel=0.03)


def test_boxes_of_which_none_overlap(session: tb.Session) -> None:
    boxes = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [1, 1, 0, 0], [0, 2, 1, 3], [0, 2.6, 1, 3.6]])
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.95])

    def chosen(*more: Any) -> list[int]:
        found: list[int] = session.run(tb.image.non_max_suppression(boxes, scores, *more)).tolist()
        return found

    assert chosen(9) == [4, 0, 3]
    assert chosen(2) == [4, 0]
    assert chosen(9, 0.2) == [4, 0]
    assert chosen(9, 0.95) == [4, 0, 1, 3]
    assert chosen(9, 0.5, 0.6) == [4, 0]


def test_chosen_boxes_with_their_number_scores_and_overlaps(session: tb.Session) -> None:
    boxes = np.array([[0, 0, 2, 2], [0, 1, 2, 3], [9, 9, 8, 8], [0, 0, 2, 2]], np.float32)
    scores = np.array([0.9, 0.6, 0.8, 0.5], np.float32)  # the first two share a third of their union
    chosen, count = tb.image.non_max_suppression_padded(boxes, scores, 4, 0.3, pad_to_max_output_size=True)
    assert chosen.shape == [4]
    assert [each.tolist() for each in session.run([chosen, count])] == [[0, 2, 0, 0], 2]
    few, count = tb.image.non_max_suppression_padded(boxes, scores, 4, 0.3)
    assert [each.tolist() for each in session.run([few, count])] == [[0, 2], 2]
    hard = session.run(tb.image.non_max_suppression_with_scores(boxes, scores, 4))
    assert hard[0].tolist() == [0, 2, 1]
    assert hard[1].tolist() == scores[[0, 2, 1]].tolist()
    order, lowered = session.run(
        tb.image.non_max_suppression_with_scores(boxes, scores, 4, soft_nms_sigma=0.5)
    )
    assert order.tolist() == [0, 2, 1, 3]
    by_third = np.exp(-1 / 9)
    np.testing.assert_allclose(lowered, [0.9, 0.8, 0.6 * by_third, 0.5 * np.exp(-1) * by_third], rtol=1e-6)
    above = tb.image.non_max_suppression_with_scores(boxes, scores, 4, 0.5, 0.2, soft_nms_sigma=0.5)
    assert session.run(above[0]).tolist() == [0, 2, 1]
    overlaps = np.eye(4, dtype=np.float32)
    overlaps[2, 0] = overlaps[0, 2] = 0.7
    for most, limit, expected in ((4, 0.5, [0, 1, 3]), (4, 0.7, [0, 2, 1, 3]), (1, 0.7, [0])):
        found = tb.image.non_max_suppression_overlaps(overlaps, scores, most, limit)
        assert session.run(found).tolist() == expected
    with pytest.raises(InvalidArgumentError, match=r"overlaps float32\[4, 4, 1\].*\[n, n\]"):
        tb.image.non_max_suppression_overlaps(overlaps[..., None], scores, 4)


def test_random_boxes_cover_an_object(session: tb.Session) -> None:
    objects = np.array([[[0.2, 0.3, 0.6, 0.7]]], np.float32)
    sampled = tb.image.sample_distorted_bounding_box([60, 80, 3], objects, seed=4, min_object_covered=0.5)
    found = [session.run(sampled) for _ in range(50)]
    for (top, left, _), (rows, columns, rest), box in found:
        assert 0 <= top <= 60 - rows
        assert 0 <= left <= 80 - columns
        assert rest == -1
        assert 0.04 < rows * columns / 4800 <= 1
        assert box[0, 0].tolist() == pytest.approx(
            [top / 60, left / 80, (top + rows) / 60, (left + columns) / 80]
        )
        down = min(top + rows, 36) - max(top, 12)
        across = min(left + columns, 56) - max(left, 24)
        assert (rows, columns) == (60, 80) or down * across >= 0.5 * 24 * 32
    assert len({tuple(begin) for begin, _, _ in found}) > 20
    cut = tb.slice(tb.zeros([60, 80, 3]), sampled[0], sampled[1])
    assert cut.shape.ndims == 3
    empty = np.zeros((1, 0, 4), np.float32)
    with pytest.raises(InvalidArgumentError, match="no bounding_boxes; give one"):
        session.run(tb.image.sample_distorted_bounding_box([60, 80, 3], empty))


def test_similarity(session: tb.Session) -> None:
    a = uniform(2, 16, 18, 3, low=0, high=1)
    b = np.clip(a + 0.1 * normal(2, 16, 18, 3), 0, 1).astype(np.float32)
    same, other = session.run([tb.image.ssim(a, a, 1.0), tb.image.ssim(a, b, 1.0)])
    np.testing.assert_allclose(same, [1, 1], rtol=1e-5)
    place = np.arange(11) - 5
    window = np.exp(-0.5 * (place / 1.5) ** 2)
    window = np.outer(window, window) / window.sum() ** 2
    views = np.lib.stride_tricks.sliding_window_view
    x, y = (views(each.astype(np.float64), (11, 11), axis=(1, 2)) for each in (a, b))

    def mean(v: Any) -> Any:
        return (v * window).sum((-1, -2))

    mx, my = mean(x), mean(y)
    vx, vy, cov = mean(x * x) - mx**2, mean(y * y) - my**2, mean(x * y) - mx * my
    c1, c2 = 0.01**2, 0.03**2
    expected = (2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    np.testing.assert_allclose(other, expected.mean((1, 2, 3)), rtol=1e-3)
    bytes_ = [(each * 255).astype(np.uint8) for each in (a, b)]
    np.testing.assert_allclose(session.run(tb.image.ssim(*bytes_, 255)), other, rtol=0.02)


def test_colour_spaces(session: tb.Session) -> None:
    x = uniform(2, 3, 3, low=0, high=1)
    for there, back in (
        (tb.image.rgb_to_yiq, tb.image.yiq_to_rgb),
        (tb.image.rgb_to_yuv, tb.image.yuv_to_rgb),
    ):
        other = there(x)
        luma, again = session.run([other, back(other)])
        np.testing.assert_allclose(luma[..., 0], x @ [0.299, 0.587, 0.114], rtol=1e-4)
        np.testing.assert_allclose(again, x, rtol=1e-4, atol=1e-5)
    white = session.run([tb.image.rgb_to_yiq([[1.0, 1, 1]]), tb.image.rgb_to_yuv([[1.0, 1, 1]])])
    np.testing.assert_allclose(white, [[[1, 0, 0]]] * 2, atol=1e-4)
    check_gradients(lambda y: [tb.image.rgb_to_yuv(y)], [x])


@pytest.mark.parametrize(
    ("rows", "most", "message"),
    [(2, 3, "3 scores of 2 boxes"), (3, -1, "max_output_size .* at least 0, got -1")],
)
@pytest.mark.parametrize("more", [(), (0.5, float("-inf"), 0.5)])
def test_choices_of_boxes_that_cannot_be_made(
    session: tb.Session, rows: int, most: int, message: str, more: tuple[float, ...]
) -> None:
    scores = np.array([0.9, 0.8, 0.7], np.float32)
    choose = tb.image.non_max_suppression_with_scores if more else tb.image.non_max_suppression
    with pytest.raises(InvalidArgumentError, match=message):
        session.run(choose(np.zeros((rows, 4), np.float32), scores, most, *more))


def test_overlaps_that_are_not_square(session: tb.Session) -> None:
    choice = tb.image.non_max_suppression_overlaps(np.zeros((2, 3), np.float32), np.ones(2, np.float32), 2)
    with pytest.raises(InvalidArgumentError, match=r"overlaps are \[2, 3\], expected \[n, n\]"):
        session.run(choice)
