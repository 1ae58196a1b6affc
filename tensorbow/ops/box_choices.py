"""Choice among overlapping boxes by their scores (non-maximum suppression), functions of the host.

A box is [top, left, bottom, right], in any unit; turned ones count as they lie.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    Attrs,
    HostCall,
    Tensor,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.kinds import Flag, Name, NonNegative, checked
from tensorbow.ops.arrays import stack
from tensorbow.ops.broadcasting import size
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import subtract
from tensorbow.ops.padding import pad
from tensorbow.specs import FLOATING, Array, Dims, TensorSpec, compatible, float32, int32

__all__ = [
    "non_max_suppression",
    "non_max_suppression_overlaps",
    "non_max_suppression_padded",
    "non_max_suppression_with_scores",
]

_LOWEST = float("-inf")
_LIMITS = ("max_output_size", "iou_threshold", "score_threshold")


def _shares_of(boxes: Array) -> Callable[[int, Sequence[int]], Array]:
    """Function (box, other boxes) -> intersections over unions with them; 0 where both boxes are empty."""
    corners = np.sort(boxes.astype(np.float64).reshape(-1, 2, 2), axis=1)
    low, high = corners[:, 0], corners[:, 1]
    area = np.prod(high - low, axis=1)

    def shares(index: int, others: Sequence[int]) -> Array:
        chosen = list(others)
        both = np.minimum(high[chosen], high[index]) - np.maximum(low[chosen], low[index])
        common = np.prod(np.maximum(both, 0), axis=1)
        union = area[chosen] + area[index] - common
        found: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
        return found

    return shares


def _require_fitting(boxes: Array, scores: Array, most: Array) -> None:
    """Raises InvalidArgumentError unless each box has a score, and for a negative number of boxes."""
    if len(boxes) != len(scores):
        raise InvalidArgumentError(
            f"non_max_suppression: {len(scores)} scores of {len(boxes)} boxes; expected one for each box"
        )
    if most < 0:
        raise InvalidArgumentError(
            f"non_max_suppression: expected max_output_size to be at least 0, got {int(most)}"
        )


def _chosen(call: HostCall, shares: Callable[[int, Sequence[int]], Array]) -> Array:
    boxes, scores, most, overlap, least = call.inputs
    _require_fitting(boxes, scores, most)
    kept: list[int] = []
    for index in np.argsort(-scores, kind="stable").tolist():
        if len(kept) == int(most) or not scores[index] > least:
            break
        if not (shares(index, kept) > float(overlap)).any():
            kept.append(index)
    return np.array(kept, np.int32)


def _softly_chosen(call: HostCall) -> list[Array]:
    boxes, scores, most, overlap, least = call.inputs
    _require_fitting(boxes, scores, most)
    shares, sigma = _shares_of(boxes), float(call.attrs["soft_nms_sigma"])
    kept: list[int] = []
    kept_scores: list[float] = []
    # (score from the highest, box, how many of the kept ones have lowered it)
    waiting = [(-float(each), index, 0) for index, each in enumerate(scores) if each > least]
    heapq.heapify(waiting)
    while waiting and len(kept) < int(most):
        negative, index, lowered = heapq.heappop(waiting)
        new = shares(index, kept[lowered:])
        if not sigma:
            if (new > float(overlap)).any():
                continue
        elif new.any():
            lower = -negative * math.exp(-0.5 / sigma * float(np.square(new).sum()))
            if lower > least:
                heapq.heappush(waiting, (-lower, index, len(kept)))
            continue
        kept.append(index)
        kept_scores.append(-negative)
    return [np.array(kept, np.int32), np.array(kept_scores, scores.dtype)]


def _require(inputs: Sequence[TensorSpec], of_boxes: Dims, what: str) -> None:
    boxes, scores, most = inputs[:3]
    require_dtype("non_max_suppression", boxes, FLOATING, what)
    require_dtype("non_max_suppression", scores, FLOATING, "scores")
    require_dtype("non_max_suppression", most, (int32,), "max_output_size")
    if not compatible(of_boxes, boxes.shape) or not compatible((None,), scores.shape):
        expected = "[n, 4]" if what == "boxes" else "[n, n]"
        raise InvalidArgumentError(
            f"non_max_suppression: {what} {boxes} and scores {scores}; expected {expected} and [n]"
        )


def _of_boxes(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    _require(inputs, (None, 4), "boxes")
    return TensorSpec((None,), int32)


def _with_scores(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    return [_of_boxes(inputs, attrs), TensorSpec((None,), inputs[1].dtype)]


def _of_overlaps(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    _require(inputs, (None, None), "overlaps")
    return TensorSpec((None,), int32)


def _chosen_by_overlaps(call: HostCall) -> Array:
    overlaps = call.inputs[0]
    if overlaps.shape[0] != overlaps.shape[1]:
        raise InvalidArgumentError(f"non_max_suppression: overlaps are {[*overlaps.shape]}, expected [n, n]")
    return _chosen(call, lambda index, others: overlaps[index, list(others)])


NonMaxSuppression = define_op(
    "NonMaxSuppressionV3",
    spec=_of_boxes,
    gradient=NOT_DIFFERENTIABLE,
    host=lambda call: _chosen(call, _shares_of(call.inputs[0])),
    inputs=("boxes", "scores", *_LIMITS),
)
NonMaxSuppressionWithScores = define_op(
    "NonMaxSuppressionWithScores",
    spec=_with_scores,
    gradient=NOT_DIFFERENTIABLE,
    host=_softly_chosen,
    inputs=("boxes", "scores", *_LIMITS),
    attrs={"soft_nms_sigma": REQUIRED},
)
NonMaxSuppressionWithOverlaps = define_op(
    "NonMaxSuppressionWithOverlaps",
    spec=_of_overlaps,
    gradient=NOT_DIFFERENTIABLE,
    host=_chosen_by_overlaps,
    inputs=("overlaps", "scores", "max_output_size", "overlap_threshold", "score_threshold"),
)


@checked
def non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = _LOWEST,
    name: Name = None,
) -> Tensor:
    """Indices (int32) of at most `max_output_size` boxes by falling score, of which no two overlap.

    boxes: [n, 4]; scores: [n]. A box is left out if its intersection with one of a higher score is more than
    `iou_threshold` of their union, or its score at most `score_threshold`. In the dynamic mode.
    """
    with graph_of([boxes, scores, max_output_size]).as_default():
        limits = (as_tensor(each, float32) for each in (iou_threshold, score_threshold))
        return NonMaxSuppression.tensor(boxes, scores, max_output_size, *limits, name=name)


@checked
def non_max_suppression_padded(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = _LOWEST,
    pad_to_max_output_size: Flag = False,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """`non_max_suppression`, and how many boxes are chosen (int32).

    pad_to_max_output_size: zeros follow the indices up to `max_output_size` of them.
    """
    with (
        graph_of([boxes, scores, max_output_size]).as_default(),
        name_scope(name or "non_max_suppression_padded"),
    ):
        most = as_tensor(max_output_size, int32)
        chosen = non_max_suppression(boxes, scores, most, iou_threshold, score_threshold)
        count = size(chosen)
        if pad_to_max_output_size:
            chosen = pad(chosen, stack([stack([0, subtract(most, count)])]))
            chosen.set_shape([None if most.spec.value is None else int(most.spec.value)])
        return chosen, count


@checked
def non_max_suppression_with_scores(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = _LOWEST,
    soft_nms_sigma: NonNegative = 0.0,
    name: Name = None,
) -> tuple[Tensor, Tensor]:
    """Indices (int32) of chosen boxes as by `non_max_suppression`, and their scores.

    soft_nms_sigma: above 0, an overlap leaves no box out: it multiplies the score of the lower box by
    exp(-overlap^2 / (2 sigma)), after which that box competes again (Soft-NMS, Bodla et al., 2017). An
    overlap is the intersection over the union; `iou_threshold` has no effect then.
    """
    with graph_of([boxes, scores, max_output_size]).as_default():
        limits = (as_tensor(each, float32) for each in (iou_threshold, score_threshold))
        sigma = float(soft_nms_sigma)
        chosen, lowered = NonMaxSuppressionWithScores(
            boxes, scores, max_output_size, *limits, soft_nms_sigma=sigma, name=name
        )
        return chosen, lowered


@checked
def non_max_suppression_overlaps(
    overlaps: Any,
    scores: Any,
    max_output_size: Any,
    overlap_threshold: Any = 0.5,
    score_threshold: Any = _LOWEST,
    name: Name = None,
) -> Tensor:
    """`non_max_suppression` by given overlaps [n, n] of each two boxes, in place of the boxes."""
    with graph_of([overlaps, scores, max_output_size]).as_default():
        limits = (as_tensor(each, float32) for each in (overlap_threshold, score_threshold))
        return NonMaxSuppressionWithOverlaps.tensor(overlaps, scores, max_output_size, *limits, name=name)
