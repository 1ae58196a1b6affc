"""Native data movement: any rank, order, stride, element size; boxes at the edges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.ops.arrays import ConcatV2, Transpose
from tensorbow.ops.broadcasting import BroadcastTo
from tensorbow.ops.filling import Fill
from tensorbow.ops.indexing import OneHot
from tensorbow.ops.shaping import ReverseV2, Split, Tile
from tensorbow.ops.slicing import Pad, Slice, SliceGrad, StridedSlice, StridedSliceGrad
from tensorbow.specs import COMPILED
from tests.native_rig.native_calls import (
    TARGETS,
    assert_as_reference,
    assert_sample,
    host_target,
    is_taken,
    native_cpu,
    samples_of,
)
from tests.ops_contract.collection import each
from tests.program_rig.examples import given_few

OPS = {
    d.name
    for d in (
        Transpose, ConcatV2, Split, ReverseV2, BroadcastTo, Fill, Tile, Slice, SliceGrad, Pad, StridedSlice,
        StridedSliceGrad, OneHot,
    )
}  # fmt: skip
dtypes = st.sampled_from([dtype.as_numpy_dtype for dtype in COMPILED])
extents = st.sampled_from([1, 2, 3, 5, 8, 15, 16, 17, 33])
targets = st.sampled_from(list(TARGETS))


def numbered(shape, dtype):
    return (np.arange(int(np.prod(shape))) % 251).reshape(shape).astype(dtype)


def assert_moved(op, inputs, attrs=None, target="host"):
    assert_as_reference(op, inputs, attrs, rtol=0, atol=0, targets=[target], aligned=False)


@each(samples_of(OPS), few=4)
@pytest.mark.sampled(1)
def test_native_copy_samples(sample):
    assert_sample(sample)


@pytest.mark.slow
@given_few(
    10, 40, st.lists(extents, min_size=1, max_size=4), dtypes, targets, st.randoms(use_true_random=False)
)
def test_native_transpose(shape, dtype, target, random):
    perm = list(range(len(shape)))
    random.shuffle(perm)
    assert_moved(Transpose, (numbered(shape, dtype),), {"perm": tuple(perm)}, target)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("perm", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("shape", [(2, 35, 50), (0, 3, 4), (40, 1, 20)])
def test_native_transpose_of_three_axes(shape, perm):
    assert_moved(Transpose, (numbered(shape, np.float32),), {"perm": perm})


@given_few(
    7,
    30,
    st.lists(extents, min_size=1, max_size=3),
    st.lists(st.sampled_from([0, 1, 4, 16, 19]), min_size=1, max_size=4),
    st.integers(0, 2),
    dtypes,
    targets,
)
def test_native_concat_and_split(shape, sizes, axis, dtype, target):
    axis %= len(shape)
    parts = [numbered([*shape[:axis], size, *shape[axis + 1 :]], dtype) for size in sizes]
    assert_moved(ConcatV2, parts, {"axis": axis - len(shape)}, target)
    whole = np.concatenate(parts, axis)
    assert_moved(Split, (whole,), {"size_splits": tuple(sizes), "axis": axis}, target)


@pytest.mark.slow
@given_few(
    7,
    40,
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 20)), max_size=4),
    dtypes,
    targets,
    st.sampled_from([np.int32, np.int64]),
)
def test_native_boxes(axes, dtype, target, index_dtype):
    size, before, after = (np.array([axis[i] for axis in axes], index_dtype) for i in range(3))
    whole = size + before + after
    x, part = numbered(whole, dtype), numbered(size, dtype)
    assert_moved(Slice, (x, before, size), None, target)
    assert_moved(SliceGrad, (part, before, whole), None, target)
    paddings = np.stack([before, after], 1).reshape(-1, 2)
    assert_moved(Pad, (part, paddings), {"constant_values": 1}, target)


INDICES = [
    ((2, "..."), (5, 4, 17)),
    (((None, None, -1), (None, None, 2), "new", (16, 3, -3)), (5, 4, 17)),
    (("...", (1, None, 2)), (3, 33)),
    ((-1, (4, 1, None), 3), (5, 4, 17)),
    (("...", "new"), ()),
    (((0, 0, None),), (5,)),
]


@pytest.mark.parametrize(("index", "shape"), INDICES, ids=str)
def test_native_strided_slice_and_its_gradient(index, shape):
    x = numbered(shape, np.float32)
    assert_moved(StridedSlice, (x,), {"index": index})
    special = {"...": Ellipsis, "new": None}
    part = x[
        tuple(
            special.get(i, i) if isinstance(i, str) else slice(*i) if isinstance(i, tuple) else i
            for i in index
        )
    ]
    gradient = (np.array(part), np.array(shape, np.int32))
    assert_moved(StridedSliceGrad, gradient, {"index": index}, "narrow")


@pytest.mark.slow
@given_few(
    10,
    40,
    st.lists(st.tuples(extents, st.booleans(), st.sampled_from([1, 2, 3])), max_size=4),
    dtypes,
    targets,
)
def test_native_broadcast_tile_and_reverse(axes, dtype, target):
    wide = [extent for extent, *_ in axes]
    x = numbered([extent if kept else 1 for extent, kept, _ in axes], dtype)
    assert_moved(BroadcastTo, (x, np.array(wide, np.int32)), None, target)
    assert_moved(Tile, (x, np.array([count for *_, count in axes], np.int32)), None, target)
    turned = tuple(axis for axis, (_, kept, _) in enumerate(axes) if kept)
    assert_moved(ReverseV2, (x,), {"axis": turned}, target)
    assert_moved(Fill, (np.array(wide, np.int64), np.array(1, dtype)), None, target)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_native_one_hot(axis, dtype):
    indices = np.array([[0, 3, 6, 7], [5, 1, 2, 100]], dtype)
    if dtype != np.uint8:
        indices[0, 0] = -1
    attrs = {"depth": 7, "axis": axis, "on_value": 2.5, "off_value": -1.0}
    assert_moved(OneHot, (indices,), attrs)
    assert_moved(OneHot, (indices,), {"depth": 0, "axis": axis})


def test_native_pad_leaves_what_is_no_number_of_the_dtype_to_the_reference():
    x, paddings = numbered((3,), np.uint8), np.array([[1, 1]], np.int32)
    assert is_taken(Pad, (x, paddings), {"constant_values": 7}, host_target())
    assert not is_taken(Pad, (x, paddings), {"constant_values": 300}, host_target())


def test_session_runs_movement_natively_as_by_reference():
    def step():
        x = tb.placeholder(tb.float32, [4, 6, 5])
        y = tb.pad(tb.transpose(x, [2, 0, 1])[1:, ::2], [[1, 0], [0, 2], [3, 0]], constant_values=-1)
        return x, [tb.concat([y, tb.reverse(y, [0])], 1), tb.gradients(tb.reduce_sum(y * y), x)[0]]

    results = []
    for native in (True, False):
        with tb.Graph().as_default():
            x, fetches = step()
            feed = {x: numbered((4, 6, 5), np.float32)}
            if native:
                with native_cpu(), tb.Session() as session:
                    results.append(session.run(fetches, feed))
            else:
                with tb.Session() as session:
                    results.append(session.run(fetches, feed))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, theirs)
