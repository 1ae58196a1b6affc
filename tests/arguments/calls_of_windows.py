"""A good call of each function of windows, volumes, boxes and similarity of images, under odd arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.calls_of_ops import ops
from tests.arguments.calls_of_variables import LAYER, OF_INITIALIZER, TAKES
from tests.arguments.public_calls import Call


def images() -> Any:
    return tb.constant(np.ones((1, 5, 4, 3), np.float32))


def volumes() -> Any:
    return tb.constant(np.ones((1, 3, 4, 5, 2), np.float32))


_MADE = ("pad", "reshape", "conv2d", "transpose", "slice", "strided_slice", "max_pool", "avg_pool")
_SIZES = dict.fromkeys(("filters", "kernel_size", "pool_size", "strides", "dilation_rate"), "count")
_WHOLES = dict.fromkeys(("strides", "dilation_rate"), "extents or none")

CALLS: Mapping[str, Call] = {
    **ops(
        "layers.conv3d layers.conv3d_transpose",
        lambda: {"inputs": volumes(), "filters": 2, "kernel_size": 2},
        sorts={**_SIZES, **LAYER, "output_padding": "nothing"},
        takes=TAKES,
        names=(*OF_INITIALIZER, *_MADE, "constant", "conv3d"),
    ),
    **ops(
        "layers.max_pooling3d layers.average_pooling3d",
        lambda: {"inputs": volumes(), "pool_size": 2, "strides": 1},
        sorts={**_SIZES, "inputs": "tensor"},
        names=(*_MADE, "max_pool3d", "avg_pool3d"),
    ),
    "nn.conv3d_transpose": Call(
        lambda: {
            "value": volumes(),
            "filter": np.ones((2, 2, 2, 3, 2), np.float32),
            "output_shape": [1, 3, 4, 5, 3],
            "strides": 1,
        },
        sorts={"output_shape": "shape"},
        names=_MADE,
    ),
    "nn.convolution": Call(
        lambda: {"input": images(), "filter": np.ones((2, 2, 3, 2), np.float32), "padding": "SAME"},
        sorts={**_WHOLES, "data_format": "choice or none"},
        names=_MADE,
    ),
    **{
        f"nn.{way}_pool1d": Call(
            lambda: {"input": np.ones((1, 4, 2), np.float32), "ksize": 2, "strides": 1, "padding": "SAME"},
            sorts={"ksize": "count", "strides": "count", "data_format": "choice"},
            names=("pool", *_MADE),
        )
        for way in ("avg", "max")
    },
    "nn.pool": Call(
        lambda: {"input": images(), "window_shape": [2, 2], "pooling_type": "MAX", "padding": "SAME"},
        sorts={
            **_WHOLES,
            "window_shape": "extents",
            "pooling_type": "choice",
            "data_format": "choice or none",
        },
        names=_MADE,
    ),
    **ops(
        "nn.dilation2d",
        lambda: {
            "input": images(),
            "filter": np.ones((2, 2, 3), np.float32),
            "strides": 1,
            "rates": 1,
            "padding": "SAME",
        },
        sorts={"rates": "windows"},
        names=_MADE,
    ),
    "nn.erosion2d": Call(
        lambda: {
            "value": images(),
            "kernel": np.ones((2, 2, 3), np.float32),
            "strides": 1,
            "rates": 1,
            "padding": "SAME",
        },
        sorts={"kernel": "tensor", "rates": "windows"},
        names=(*_MADE, "reverse"),
    ),
    "nn.max_pool_with_argmax": Call(
        lambda: {"input": images(), "ksize": 2, "strides": 2, "padding": "SAME"},
        sorts={
            "Targmax": "dtype",
            "output_dtype": "dtype or none",
            "include_batch_in_index": "flag",
            "data_format": "choice or none",
        },
    ),
    **ops(
        "nn.fractional_max_pool nn.fractional_avg_pool",
        lambda: {"value": images(), "pooling_ratio": [1.0, 1.5, 1.5, 1.0]},
        sorts={
            **{"pooling_ratio": "extents", "pseudo_random": "flag", "overlapping": "flag"},
            **{"deterministic": "flag", "seed": "seed or none", "seed2": "seed or none"},
        },
    ),
    "nn.log_poisson_loss": Call(
        lambda: {"targets": [1.0], "log_input": [0.5]},
        sorts={"targets": "tensor", "log_input": "tensor", "compute_full_loss": "flag"},
        names=("exp", "mul"),
    ),
    "nn.sufficient_statistics": Call(
        lambda: {"x": images(), "axes": [0]},
        sorts={"axes": "axes or none", "shift": "tensor or none"},
        names=("sum", "sub", "square"),
    ),
    "nn.normalize_moments": Call(
        lambda: {"counts": 2.0, "mean_ss": [1.0], "variance_ss": [2.0], "shift": None},
        sorts={
            **dict.fromkeys(("counts", "mean_ss", "variance_ss"), "tensor"),
            "shift": "tensor or none",
        },
        names=("mul", "reciprocal", "add"),
    ),
    "nn.weighted_moments": Call(
        lambda: {"x": images(), "axes": [0], "frequency_weights": 1.0},
        sorts={"axes": "axes or none", "frequency_weights": "tensor"},
        names=("cast", "mul", "sum"),
    ),
    "image.crop_and_resize": Call(
        lambda: {
            "image": images(),
            "boxes": np.ones((1, 4), np.float32),
            "box_ind": [0],
            "crop_size": [2, 2],
        },
        sorts={
            **dict.fromkeys(("image", "boxes", "box_ind"), "tensor"),
            "crop_size": "extents",
            "method": "choice",
            "extrapolation_value": "number",
        },
        names=("cast",),
    ),
    "image.draw_bounding_boxes": Call(
        lambda: {"images": images(), "boxes": np.ones((1, 1, 4), np.float32)},
        sorts={"images": "tensor", "boxes": "tensor"},
    ),
    **{
        f"image.non_max_suppression{way}": Call(
            lambda: {"boxes": np.ones((1, 4), np.float32), "scores": [1.0], "max_output_size": 1},
            sorts={
                **dict.fromkeys(
                    ("boxes", "scores", "max_output_size", "iou_threshold", "score_threshold"), "tensor"
                ),
                "pad_to_max_output_size": "flag",
                "soft_nms_sigma": "positive",
            },
            names=("non_max_suppression", "NonMaxSuppressionWithScores"),
        )
        for way in ("", "_padded", "_with_scores")
    },
    "image.non_max_suppression_overlaps": Call(
        lambda: {"overlaps": np.ones((1, 1), np.float32), "scores": [1.0], "max_output_size": 1},
        sorts=dict.fromkeys(
            ("overlaps", "scores", "max_output_size", "overlap_threshold", "score_threshold"), "tensor"
        ),
        names=("non_max_suppression", "NonMaxSuppressionWithOverlaps"),
    ),
    "image.sample_distorted_bounding_box": Call(
        lambda: {"image_size": [4, 5, 3], "bounding_boxes": np.ones((1, 1, 4), np.float32)},
        sorts={
            **dict.fromkeys(("image_size", "bounding_boxes"), "tensor"),
            **dict.fromkeys(("seed", "seed2"), "seed or none"),
            "min_object_covered": "number or none",
            **dict.fromkeys(("aspect_ratio_range", "area_range"), "anything"),
            "max_attempts": "count",
            "use_image_if_no_bounding_boxes": "flag",
        },
    ),
    **ops(
        "image.rgb_to_yiq image.rgb_to_yuv image.yiq_to_rgb image.yuv_to_rgb",
        lambda: {"images": images()},
        sorts={"images": "tensor"},
    ),
    "image.ssim_multiscale": Call(
        lambda: {
            **{"img1": images(), "img2": images(), "max_val": 1.0, "filter_size": 1},
            "power_factors": [0.5, 0.5],
        },
        sorts={
            **dict.fromkeys(("img1", "img2"), "tensor"),
            **dict.fromkeys(("max_val", "filter_sigma", "k1", "k2"), "positive"),
            **{"filter_size": "count", "power_factors": "numbers"},
        },
        names=("convert_image_dtype", "reshape", "cast", "ssim"),
    ),
    "image.extract_glimpse": Call(
        lambda: {"input": images(), "size": [2, 2], "offsets": tb.zeros([1, 2])},
        sorts={
            **{"size": "shape", "offsets": "tensor", "noise": "choice"},
            **dict.fromkeys(("centered", "normalized", "uniform_noise"), "flag"),
        },
        takes={"noise": frozenset({"none"})},
    ),
    "image.ssim": Call(
        lambda: {"img1": images(), "img2": images(), "max_val": 1.0, "filter_size": 3},
        sorts={
            **dict.fromkeys(("img1", "img2"), "tensor"),
            **dict.fromkeys(("max_val", "filter_sigma", "k1", "k2"), "positive"),
            "filter_size": "count",
        },
        names=("convert_image_dtype", "reshape", "cast"),
    ),
}
