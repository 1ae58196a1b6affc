"""GPU kernels that move elements: against NumPy's views, for shapes that cross tiles, words and launches."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

import tensorbow.kernels.gpu.ops.arrays
import tensorbow.kernels.gpu.ops.indexing
import tensorbow.kernels.gpu.ops.shaping
import tensorbow.kernels.gpu.ops.slicing  # noqa: F401 - these register the kernels
from tensorbow.kernels.gpu.runtime.call import DeviceArray
from tensorbow.kernels.gpu.source import index_types, padded_copy, strided_copy, words
from tensorbow.ops.arrays import ConcatV2, Transpose
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.indexing import GatherGrad, GatherV2, OneHot
from tensorbow.ops.shaping import ReverseV2, Split, Tile
from tensorbow.ops.slicing import Pad, Slice, SliceGrad, StridedSlice, StridedSliceGrad
from tensorbow.specs import TensorSpec, as_dtype
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler

DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool")


@pytest.fixture(scope="module")
def bench() -> Iterator[GpuBench]:
    with emulated_runtime() as runtime, GpuBench(runtime) as made:
        yield made


def numbered(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Different elements, as far as the dtype has them."""
    values = np.arange(math.prod(shape)).reshape(shape)
    return (values % 3 == 1) if dtype == "bool" else values.astype(dtype)


def launches(bench: GpuBench, op, inputs, attrs=None) -> list[str]:
    """The kernels of one step, which gives the bits of the CPU's kernel."""
    expected = run_reference_kernel(op, inputs, attrs)
    call = BoundGpuCall(bench, op, inputs, attrs)
    call.reset()
    bench.runtime.synchronize_stream(bench.stream)
    bench.runtime.log.clear()
    call.enqueue()
    bench.runtime.synchronize_stream(bench.stream)
    names = [entry.name for entry in bench.runtime.log if entry.kind == "launch"]
    for actual, wanted in zip(call.result().outputs, expected, strict=True):
        assert actual.dtype == wanted.dtype
        np.testing.assert_array_equal(actual, wanted)
    bench.free_arrays()
    return names


@pytest.fixture(params=["int", "long long"])
def index(request, monkeypatch) -> str:
    """Both index types, on arrays for which one would do."""
    if request.param != "int":
        monkeypatch.setattr(index_types, "LARGE", 0)
    return request.param


# Transpose --------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(33, 65), (32, 64), (31, 8), (8, 100), (7, 100), (1, 70), (70, 1)])
def test_matrices_are_transposed_through_tiles(bench, shape, dtype):
    (name,) = launches(bench, Transpose, [numbered(*shape, dtype=dtype)])
    assert ("tiled" in name) == (min(shape) >= strided_copy.LEAST_TILED)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("shape", "perm", "tiled"),
    [
        ((3, 9, 10, 11), (0, 3, 1, 2), True),  # NHWC to NCHW
        ((3, 9, 10, 11), (0, 2, 3, 1), True),
        ((3, 3, 9, 33), (3, 0, 1, 2), True),  # HWIO to OHWI
        ((33, 3, 4, 9), (1, 2, 3, 0), True),
        ((5, 6, 40), (1, 0, 2), False),  # the fastest axis stays
        ((2, 3, 4, 5, 6), (4, 2, 0, 3, 1), False),  # tiles would be all but empty
        ((9, 10, 11, 12, 13), (4, 2, 0, 3, 1), True),
        ((9, 1, 12, 1), (3, 2, 1, 0), True),
        ((), (), False),
        ((0, 9, 12), (2, 1, 0), None),
    ],
)
def test_any_permutation(bench, index, shape, perm, tiled):
    names = launches(bench, Transpose, [numbered(*shape)], {"perm": perm})
    assert [("tiled" in name) for name in names] == ([] if tiled is None else [tiled])


# Concat and split -------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("pieces", "count"), [(1, 1), (2, 1), (3, 1), (17, 1), (128, 1), (129, 2), (300, 3)])
def test_concat_and_split_take_a_launch_for_128_pieces(bench, index, pieces, count):
    extents = [(7 * i) % 5 for i in range(pieces)]  # zeros among them
    extents[0] = 3
    given = sum(extent > 0 for extent in extents)
    parts = [numbered(4, extent, 3) + 1000 * i for i, extent in enumerate(extents)]
    wanted = -(-given // 128)
    assert wanted <= count
    assert len(launches(bench, ConcatV2, parts, {"axis": 1})) == wanted
    whole = np.concatenate(parts, 1)
    assert len(launches(bench, Split, [whole], {"size_splits": tuple(extents), "axis": -2})) == wanted


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat_and_split_of_every_dtype(bench, dtype, axis):
    whole = numbered(6, 4, 8, dtype=dtype)
    launches(bench, ConcatV2, np.array_split(whole, 2, axis), {"axis": axis})
    launches(bench, Split, [whole], {"num_split": 2, "axis": axis})


# Boxes ------------------------------------------------------------------------------------------------


def boxes(seed: int) -> Iterator[tuple[tuple[int, ...], list[int], list[int], str]]:
    """Shapes, and where boxes in them begin and how large they are."""
    draw = np.random.default_rng(seed)
    for _ in range(12):
        shape = tuple(int(n) for n in draw.choice([1, 2, 3, 4, 8, 12, 16], draw.integers(0, 5)))
        size = [
            n if draw.random() < 0.4 else int(draw.integers(0 if draw.random() < 0.1 else 1, n + 1))
            for n in shape
        ]
        begin = [int(draw.integers(0, n - s + 1)) for n, s in zip(shape, size, strict=True)]
        yield shape, begin, size, str(draw.choice(DTYPES))


@pytest.mark.slow
@pytest.mark.parametrize("position", [np.int32, np.int64])
@pytest.mark.parametrize("seed", range(3))
def test_slice_pad_and_the_gradient_of_slice(bench, index, seed, position):
    for shape, begin, size, dtype in boxes(seed):
        start, extent = np.array(begin, position), np.array(size, position)
        x = numbered(*shape, dtype=dtype)
        box = x[tuple(slice(b, b + s) for b, s in zip(begin, size, strict=True))]
        assert len(launches(bench, Slice, [x, start, extent])) == bool(box.size)
        launches(bench, SliceGrad, [box, start, np.array(shape, position)])
        around = [[b, n - b - s] for n, b, s in zip(shape, begin, size, strict=True)]
        fill = {"constant_values": 1 if dtype == "bool" else 7}
        launches(bench, Pad, [box, np.array(around, position).reshape(-1, 2)], fill)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("shape", "at"),
    [
        ((9,), ((None, None, -1),)),
        ((9,), ((7, 1, -2),)),
        ((9,), ((7, 1, 2),)),
        ((12, 16), ((2, 10, 3), (4, 12, None))),
        ((12, 16), (-1,)),
        ((12, 16), ("...", 3)),
        ((5, 6, 8), (2, "new", (None, None, 5), "...", (None, None, -3))),
        ((5, 6, 8), ("...",)),
        ((5, 6, 8), ((1, 4, None), (None, None, None), (None, None, None))),
        ((3, 4, 1, 2), ("new", -2, (None, None, -1), 0)),
        ((), ("new",)),
        ((4, 0), ((None, None, -1),)),
    ],
)
def test_strided_slice_and_its_gradient(bench, index, shape, at):
    for dtype in ("float32", "uint8"):
        x = numbered(*shape, dtype=dtype)
        launches(bench, StridedSlice, [x], {"index": at})
        (gradient,) = run_reference_kernel(StridedSlice, [x], {"index": at})
        launches(bench, StridedSliceGrad, [gradient, np.array(shape, np.int32)], {"index": at})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("multiples", [(1, 1, 1), (2, 1, 3), (1, 5, 1), (3, 0, 2), (2, 2, 2)])
def test_tile_and_reverse(bench, index, multiples):
    x = numbered(3, 1, 8)
    launches(bench, Tile, [x, np.array(multiples, np.int64)])
    axes = tuple(axis - 3 for axis in range(3) if multiples[axis] > 1)
    launches(bench, ReverseV2, [x], {"axis": axes})


# Indices ----------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_and_its_gradient(bench, index, dtype, axis):
    params = np.random.default_rng(1).standard_normal((5, 6, 8)).astype(np.float32)
    extent = params.shape[axis]
    indices = np.random.default_rng(2).integers(0, extent, (4, 7)).astype(dtype)
    launches(bench, GatherV2, [params, indices], {"axis": axis})
    (taken,) = run_reference_kernel(GatherV2, [params, indices], {"axis": axis})
    launches(bench, GatherGrad, [taken, indices, np.array(params.shape, np.int32)], {"axis": axis})


@pytest.mark.parametrize("inner", [1, 3, 300])
def test_equal_indices_add_up_in_their_order(bench, inner):
    """More indices than a block has threads, few different ones, and sums that depend on the order."""
    draw = np.random.default_rng(0)
    gradients = (draw.standard_normal((700, inner)) * 10.0 ** draw.integers(-4, 5, (700, 1))).astype(
        np.float32
    )
    launches(bench, GatherGrad, [gradients, draw.integers(0, 9, 700), np.array([11, inner], np.int32)])


def test_an_index_out_of_range_gives_zeros_and_adds_nothing(bench):
    params, indices = numbered(3, 4) + 1, np.array([2, -1, 0, 3], np.int32)
    call = BoundGpuCall(bench, GatherV2, [params, indices])
    (taken,) = call.run().outputs
    np.testing.assert_array_equal(taken, [params[2], np.zeros(4), params[0], np.zeros(4)])
    shape = np.array([3, 4], np.int32)
    (gradient,) = BoundGpuCall(bench, GatherGrad, [taken + 5, indices, shape]).run().outputs
    np.testing.assert_array_equal(gradient, [taken[2] + 5, np.zeros(4), taken[0] + 5])
    bench.free_arrays()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(bench, index, dtype, axis):
    indices = np.array([[0, 3, -1], [5, 4, 2]], np.int64)
    on, off = (True, False) if dtype == "bool" else (3, 2)
    attrs = {"depth": 5, "axis": axis, "on_value": on, "off_value": off, "dtype": as_dtype(dtype)}
    launches(bench, OneHot, [indices], attrs)
    launches(bench, OneHot, [np.array([250, 3], np.uint8)], {**attrs, "axis": 0})


# Words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("itemsize", "addresses", "counts", "expected"),
    [
        (4, [256, 512], [8, 0, 4], 4),
        (4, [256, 520], [8], 2),
        (4, [256, 516], [8], 1),
        (4, [256], [6, 8], 2),
        (4, [256], [7], 1),
        (1, [256], [32], 16),
        (1, [256, 258], [32], 2),
        (8, [256], [6], 2),
    ],
)
def test_words_are_as_wide_as_all_allow(itemsize, addresses, counts, expected):
    assert words.elements_per_word(itemsize, addresses, counts) == expected


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shift", [0, 1, 2, 4])
def test_arrays_that_begin_anywhere(bench, shift):
    """In a flat buffer an array begins at any element: wider words must not be used."""
    x = numbered(4, 16)
    room = bench.memory(TensorSpec((128,), as_dtype("float32")))
    source = bench.memory(TensorSpec((4, 16), as_dtype("float32")))
    bench.upload(x, source)
    target = DeviceArray(room.address + 4 * shift, (4, 8), room.dtype)
    view = strided_copy.phantom(source)[:, 4:12]
    strided_copy.strided_copy(bench.context, "cut", target, source, view)()
    np.testing.assert_array_equal(bench.download(target), x[:, 4:12])
    axes = [padded_copy.PaddedAxis(6, 4, 1), padded_copy.PaddedAxis(12, 8, 4)]
    framed = DeviceArray(room.address + 4 * shift, (6, 12), room.dtype)
    part = DeviceArray(source.address + 4 * shift, (4, 8), room.dtype)
    padded_copy.padded_copy(bench.context, "frame", framed, part, axes, fill=-1)()
    expected = np.full((6, 12), -1, np.float32)
    expected[1:5, 4:12] = bench.download(part)
    np.testing.assert_array_equal(bench.download(framed), expected)
    bench.free_arrays()
