"""Convolutions with packed filters on an emulated GPU, against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.kernels.gpu.source.packed_filters import MOST_FILTERS
from tests.gpu_rig.fused_steps import launched_as_on_cpu
from tests.gpu_rig.runtimes import needs_compiler

pytestmark = needs_compiler

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "same": ((2, 6, 7, 5), (3, 3, 5, 9), {"strides": 1, "padding": "SAME"}),
    "even": ((2, 6, 7, 5), (2, 4, 5, 9), {"strides": 1, "padding": "SAME"}),
    "one axis odd": ((2, 8, 7, 5), (3, 3, 5, 9), {"strides": 2, "padding": "SAME"}),
    "strides": ((2, 8, 8, 35), (3, 3, 35, 33), {"strides": 2, "padding": "SAME"}),
    "valid": ((3, 9, 11, 5), (3, 2, 5, 4), {"strides": (2, 3), "padding": "VALID"}),
    "dilated": ((2, 9, 8, 6), (3, 2, 6, 4), {"strides": 1, "padding": "SAME", "dilations": (2, 3)}),
    "strided pixels": ((2, 6, 7, 5), (1, 1, 5, 9), {"strides": 2, "padding": "SAME"}),
}


def layers(case: str, dtype: tb.DType = tb.float32, count: int = 1) -> list[Any]:
    """Two convolutions by one filter, and the gradients of their images and filter; for each layer."""
    images, filters, options = CASES[case]
    draw = np.random.default_rng(len(case))
    fetched: list[Any] = []
    for _ in range(count):
        x = tb.constant(draw.standard_normal(images), dtype)
        w = tb.Variable(draw.standard_normal(filters), dtype=dtype)
        y = tb.nn.conv2d(x, w, **options)
        again = tb.nn.conv2d(tb.square(x), w, **options)
        flow = tb.constant(draw.standard_normal(y.shape.as_list()), dtype)
        fetched += [y, *tb.gradients(tb.reduce_sum((y + tb.square(again)) * flow), [x, w])]
    return fetched


@pytest.mark.parametrize("case", CASES)
def test_it_agrees_with_the_cpu_and_copies_nothing_else(case: str) -> None:
    names = launched_as_on_cpu(lambda: layers(case))
    if case == "dilated":  # no zeros in front make its padding symmetric
        assert names["padded_copy"]
        assert not names["pack_filters"]
    else:
        assert (names["pack_filters"], names["unpack_filters"]) == (1, 1)
        assert not names.keys() & {"padded_copy", "tiled_copy", "strided_copy"}


@pytest.mark.parametrize("case", CASES)
def test_a_cudnn_without_nhwc(case: str) -> None:
    """Copies to NCHW, or direct sums where the emulated cuDNN takes a filter of one element for NHWC."""
    names = launched_as_on_cpu(lambda: layers(case), nhwc=False)
    assert bool(names["to_filters"]) == (case == "strided pixels")


def test_doubles_are_not_packed() -> None:
    names = launched_as_on_cpu(lambda: layers("same", tb.float64))
    assert not names.keys() & {"pack_filters", "unpack_filters"}


def test_large_filters_are_not_packed() -> None:
    def build() -> list[Any]:
        x = tb.constant(np.random.default_rng(1).standard_normal((1, 4, 4, 520)), tb.float32)
        w = tb.Variable(np.random.default_rng(2).standard_normal((2, 2, 520, 129)), dtype=tb.float32)
        return [tb.nn.conv2d(x, w, strides=1, padding="VALID")]

    names = launched_as_on_cpu(build)
    assert (names["pack_filters"], names["tiled_copy"]) == (0, 1)


def test_a_launch_takes_so_many_filters_at_most() -> None:
    names = launched_as_on_cpu(lambda: layers("strided pixels", count=MOST_FILTERS + 1))
    assert names["pack_filters"] == 2


def test_a_filter_that_is_written_before_it_is_read_again_is_not_packed() -> None:
    def build() -> list[Any]:
        x = tb.constant(np.linspace(0, 1, 2 * 6 * 6 * 5).reshape(2, 6, 6, 5), tb.float32)
        w = tb.Variable(np.linspace(-1, 1, 3 * 3 * 5 * 9).reshape(3, 3, 5, 9), dtype=tb.float32)
        first = tb.nn.conv2d(x, w, strides=1, padding="SAME")
        with tb.control_dependencies([first]), tb.control_dependencies([w.assign_add(w * 0.5)]):
            return [first, tb.nn.conv2d(x, w.read_value(), strides=1, padding="SAME")]

    names = launched_as_on_cpu(build)
    assert (names["pack_filters"], names["tiled_copy"]) == (1, 1)
