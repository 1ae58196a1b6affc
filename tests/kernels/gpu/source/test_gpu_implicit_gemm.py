"""Convolutions as implicit GEMM: every pass, tile and precision against the CPU's kernels in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.kernels.gpu.runtime.call import DeviceArray
from tensorbow.kernels.gpu.source.direct_convolution import Convolution
from tensorbow.kernels.gpu.source.implicit_gemm import (
    THREADS,
    BlockTile,
    ConvolutionProduct,
    Pass,
    implicit_gemm,
)
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.specs import TensorSpec, float32
from tests.gpu_rig.counted import OpenedGpu
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.runtimes import needs_compiler

pytestmark = needs_compiler
TOLERANCE = {"fp32": 5e-6, "tf32": 1e-3, "bf16": 1e-2}  # of the largest element
MANY, FEW = 132, 1  # multiprocessors: small tiles, large ones


def attrs_of(strides=(1, 1), padding="SAME", dilations=(1, 1)):
    return {"strides": (1, *strides, 1), "padding": padding, "dilations": (1, *dilations, 1)}


SHAPES = {
    "same": ((2, 6, 7, 5), (3, 3, 5, 9), attrs_of()),
    "even window": ((2, 6, 7, 4), (2, 4, 4, 6), attrs_of()),
    "strides": ((2, 9, 8, 8), (3, 3, 8, 20), attrs_of((2, 3))),
    "valid": ((3, 9, 11, 5), (3, 2, 5, 4), attrs_of((2, 3), "VALID")),
    "dilated": ((2, 9, 8, 6), (3, 2, 6, 4), attrs_of((1, 1), "SAME", (2, 3))),
    "wider strides than windows": ((2, 9, 7, 5), (2, 1, 5, 3), attrs_of((3, 4), "VALID")),
    "first layer": ((3, 22, 20, 1), (5, 5, 1, 32), attrs_of(padding="VALID")),
    "many outputs": ((2, 5, 6, 16), (3, 3, 16, 72), attrs_of()),
    "one output": ((1, 5, 4, 2), (3, 3, 2, 1), attrs_of()),
}


def operands(images, filters, attrs):
    """By pass: left and right operand in float32, and the result in float64."""
    draw = np.random.default_rng([*images, *filters])
    x, w = (draw.standard_normal(shape).astype(np.float32) for shape in (images, filters))
    flow = draw.standard_normal(run_reference_kernel(Conv2D, [x, w], attrs)[0].shape).astype(np.float32)
    wide = [a.astype(np.float64) for a in (x, w, flow)]
    sizes = [np.array(shape, np.int32) for shape in (images, filters)]
    return {
        Pass.FORWARD: (x, w, run_reference_kernel(Conv2D, wide[:2], attrs)[0]),
        Pass.TO_IMAGES: (flow, w, run_reference_kernel(Conv2DBackpropInput, [sizes[0], *wide[1:]], attrs)[0]),
        Pass.TO_FILTERS: (
            x,
            flow,
            run_reference_kernel(Conv2DBackpropFilter, [wide[0], sizes[1], wide[2]], attrs)[0],
        ),
    }


def convolved(
    bench: GpuBench, which: Pass, what: Convolution, left, right, shape, misaligned=0
) -> np.ndarray:
    """The result of a pass; misaligned: bytes from an aligned address to every array."""

    def place(shape):
        array = bench.memory(TensorSpec((int(np.prod(shape)) + misaligned // 4,), float32))
        return DeviceArray(array.address + misaligned, tuple(shape), array.dtype)

    arrays = place(left.shape), place(right.shape), place(shape)
    for value, target in zip((left, right), arrays, strict=False):
        bench.upload(value, target)
    partial = place((ConvolutionProduct.of(which, what).parts, *shape))
    implicit_gemm(bench.context, "Conv2D", which, what, *arrays, partial)()
    result = bench.download(arrays[2])
    bench.free_arrays()
    return result


@pytest.mark.sampled(1)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("multiprocessors", [MANY, FEW])
@pytest.mark.parametrize("compute", TOLERANCE)
@pytest.mark.parametrize("which", Pass)
@pytest.mark.parametrize("case", SHAPES)
def test_agrees_with_the_reference(
    opened: OpenedGpu, case, which, compute, multiprocessors, backwards
) -> None:
    images, filters, attrs = SHAPES[case]
    left, right, expected = operands(images, filters, attrs)[which]
    what = Convolution.of(images, filters, attrs)
    options = {"multiprocessors": multiprocessors, "backwards": backwards}
    with opened(**options) as runtime, GpuBench(runtime, compute) as bench:
        actual = convolved(bench, which, what, left, right, expected.shape)
    largest = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE[compute] * largest)
    if compute != "fp32":  # it did read fewer bits
        assert np.abs(actual - expected).max() > 1e-5 * largest


@pytest.mark.slow
@pytest.mark.parametrize("which", Pass)
def test_misaligned_arrays_are_read_element_by_element(opened: OpenedGpu, which) -> None:
    images, filters, attrs = (2, 6, 7, 8), (3, 3, 8, 12), attrs_of()
    left, right, expected = operands(images, filters, attrs)[which]
    what = Convolution.of(images, filters, attrs)
    with opened() as runtime, GpuBench(runtime) as bench:
        aligned, other, half = (
            convolved(bench, which, what, left, right, expected.shape, nbytes) for nbytes in (0, 4, 8)
        )
    assert aligned.tobytes() == other.tobytes() == half.tobytes()
    np.testing.assert_allclose(aligned, expected, rtol=0, atol=5e-6 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("which", Pass)
def test_tiles_do_not_change_the_bits(opened: OpenedGpu, which) -> None:
    images, filters, attrs = (5, 22, 20, 4), (3, 3, 4, 16), attrs_of()
    left, right, expected = operands(images, filters, attrs)[which]
    what = Convolution.of(images, filters, attrs)
    results = []
    for multiprocessors in (FEW, 4, MANY):
        with opened(multiprocessors=multiprocessors) as runtime, GpuBench(runtime) as bench:
            results.append(convolved(bench, which, what, left, right, expected.shape))
    assert len({result.tobytes() for result in results}) == 1
    assert len({ConvolutionProduct.of(which, what).tile(2 * count) for count in (FEW, MANY)}) == 2


def test_gradients_of_filters_over_many_windows_are_summed_in_parts(opened: OpenedGpu) -> None:
    images, filters, attrs = (4, 28, 28, 3), (3, 3, 3, 16), attrs_of()
    left, right, expected = operands(images, filters, attrs)[Pass.TO_FILTERS]
    what = Convolution.of(images, filters, attrs)
    assert ConvolutionProduct.of(Pass.TO_FILTERS, what).parts == 4 * 28 * 28 // 512
    with opened() as runtime, GpuBench(runtime) as bench:
        actual = convolved(bench, Pass.TO_FILTERS, what, left, right, expected.shape)
        assert runtime.counts["launch"] == 2
    np.testing.assert_allclose(actual, expected, rtol=0, atol=5e-6 * np.abs(expected).max())


def test_parts_need_little_memory():
    """A large filter has blocks enough; parts of it would cost its size each."""
    large = Convolution.of((64, 56, 56, 512), (3, 3, 512, 512), attrs_of())
    assert ConvolutionProduct.of(Pass.TO_FILTERS, large).parts == 1
    small = Convolution.of((64, 56, 56, 16), (3, 3, 16, 16), attrs_of())
    assert ConvolutionProduct.of(Pass.TO_FILTERS, small).parts > 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("compute", ["tf32", "bf16"])
def test_infinities_and_nan_stay(opened: OpenedGpu, compute) -> None:
    images, filters, attrs = (1, 4, 4, 2), (1, 2, 2, 3), attrs_of(padding="VALID")
    left, right, _ = operands(images, filters, attrs)[Pass.FORWARD]
    left[0, 0, 0, 0], left[0, 1, 1, 1] = np.inf, np.nan
    expected = run_reference_kernel(Conv2D, [left, right], attrs)[0]
    with opened() as runtime, GpuBench(runtime, compute) as bench:
        what = Convolution.of(images, filters, attrs)
        actual = convolved(bench, Pass.FORWARD, what, left, right, expected.shape)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    np.testing.assert_array_equal(actual[np.isinf(expected)], expected[np.isinf(expected)])


TILES = [(rows, columns) for rows in (32, 64, 128) for columns in (16, 32, 64) if rows * columns <= 4096]


@pytest.mark.parametrize(("rows", "columns"), TILES)
def test_threads_and_warps_cover_a_tile(rows, columns):
    tile = BlockTile(rows, columns)
    (down, across), (warps_down, warps_across) = tile.of_thread, tile.warps
    assert down * across * THREADS == rows * columns
    assert warps_down * warps_across * 32 == THREADS
    assert rows % (16 * warps_down) == columns % (8 * warps_across) == 0
