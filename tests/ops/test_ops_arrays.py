"""Public behaviour of the ops that rearrange, cut, reduce and multiply: shapes, refusals, messages."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.errors import InvalidArgumentError
from tensorbow.gradients import gradients
from tensorbow.ops.arrays import concat, expand_dims, reshape, squeeze, stack, transpose
from tensorbow.ops.broadcasting import broadcast_to, ones_like, shape, size, zeros_like
from tensorbow.ops.constant import constant
from tensorbow.ops.control import placeholder
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.elementwise import add
from tensorbow.ops.indexing import GatherGrad, GatherV2, gather, one_hot
from tensorbow.ops.matmul import matmul
from tensorbow.ops.padding import pad
from tensorbow.ops.reductions import argmax, reduce_max, reduce_mean, reduce_min, reduce_sum
from tensorbow.ops.slicing import SliceGrad, StridedSliceGrad, slice
from tensorbow.runtime import Session
from tensorbow.specs import float32, float64, int32, int64
from tests.ops_contract.interpreter import run_graph

pytestmark = pytest.mark.usefixtures("graph")


def value(tensor):
    return run_graph([tensor], {})[0]


def dims(tensor):
    return None if tensor.shape.ndims is None else tensor.shape.as_list()


def batch(*rest):
    return placeholder(float32, [None, *rest])


X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_static_shapes_with_an_unknown_batch():
    assert dims(reshape(batch(28, 28), [-1, 784])) == [None, 784]
    assert dims(reshape(batch(4), shape(batch(7)))) == [None, 7]
    assert dims(transpose(batch(2, 3), [1, 2, 0])) == [2, 3, None]
    assert dims(concat([batch(3), batch(4)], 1)) == [None, 7]
    assert dims(concat([batch(3), constant(X[:, :3])], 0)) == [None, 3]
    assert dims(matmul(batch(3), placeholder(float32, [5, 3]), transpose_b=True)) == [None, 5]
    assert dims(reduce_mean(batch(3, 4), [1, -1])) == [None]
    assert dims(argmax(batch(10), 1)) == [None]
    assert dims(one_hot(placeholder(int32, [None]), 10)) == [None, 10]
    assert dims(slice(batch(8), [0, 2], [-1, 3])) == [None, 3]
    assert dims(zeros_like(batch(8))) == dims(ones_like(batch(8), float64)) == [None, 8]
    assert dims(batch(8)[:, 2:5]) == [None, 3]
    assert dims(pad(batch(8), [[0, 0], [1, 2]])) == [None, 11]
    assert dims(expand_dims(batch(8), 1)) == [None, 1, 8]
    assert dims(squeeze(batch(1, 8), 1)) == [None, 8]
    assert dims(squeeze(batch(1, 8))) is None
    assert dims(gather(placeholder(float32, [100, 8]), placeholder(int64, [None, 3]))) == [None, 3, 8]


def test_filled_like_does_not_read_its_tensor():
    x = constant(X)
    assert value(zeros_like(x)).tolist() == np.zeros((3, 4)).tolist()
    assert value(ones_like(x, float64)).dtype == np.float64
    assert value(size(x)) == 12
    assert value(shape(x, out_type=int64)).dtype == np.int64


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: reshape(constant(X), [5, -1]), r"Reshape: .*12 elements.*\[5, \?\]"),
        (lambda: reshape(constant(X), [-1, -1]), "more than one -1"),
        (
            lambda: reshape(constant(X), [[3, 4]]),
            "expected shape to be a list of whole numbers, or a vector of them",
        ),
        (lambda: reshape(constant(X), [3.0, 4.0]), "expected shape to be a list of whole numbers"),
        (lambda: reshape(constant(X), constant([3.0, 4.0])), "dtype float32, expected int32 or int64"),
        (lambda: squeeze(constant(X), 1), "axis 1 .* extent 4, expected 1"),
        (lambda: expand_dims(constant(X), 3), r"axis 3 is not in \[-3, 3\)"),
        (lambda: transpose(constant(X), [0, 0]), "no permutation"),
        (lambda: transpose(constant(X), [2, 1, 0]), "3 axes"),
        (lambda: concat([constant(X), constant(X[:2])], 1), r"\[3, 4\] and \[2, 4\]"),
        (lambda: concat([], 0), "at least one"),
        (lambda: concat([constant(1.0)], 0), "use stack"),
        (lambda: slice(constant(X), [0, 2], [3, 3]), "axis 1 .* 2 to 5"),
        (lambda: slice(constant(X), [0], [3, 3]), "one entry per axis"),
        (lambda: pad(constant(X), [[1, 1]]), "1 rows"),
        (lambda: pad(constant(X), [[1, 1], [-1, 0]]), "use slice"),
        (lambda: constant(X)[3], "index 3 is out of range"),
        (lambda: constant(X)[0, 0, 0], "3 axes"),
        (lambda: constant(X)[::0], "step"),
        (lambda: gather(constant(X), constant([0.0])), "indices has dtype float32"),
        (lambda: one_hot(constant([1]), -2), "expected depth to be a whole number of at least 0, .* int -2"),
        (lambda: broadcast_to(constant(X), [3, 5]), r"\[3, 4\] does not broadcast to \[3, 5\]"),
        (lambda: matmul(constant(X), constant(X)), "4 columns.*3 rows.*transpose_b"),
        (lambda: matmul(constant(X), constant(X[0])), "b is .*expected rank 2"),
        (lambda: reduce_sum(constant(X), [0, -2]), "twice"),
        (lambda: reduce_sum(constant(X), 2), r"axis 2 is not in \[-2, 2\)"),
        (lambda: reduce_mean(constant([True])), r"Mean: .*bool.*tb\.cast"),
        (lambda: argmax(constant(X[:0]), 0), "empty"),
    ],
)
def test_refusals_say_what_is_wrong(build, message):
    with pytest.raises(InvalidArgumentError, match=message):
        build()


def test_an_index_out_of_range_is_named():
    with pytest.raises(InvalidArgumentError, match=r"indices\[1, 0\] = 4 is not in \[0, 4\)"):
        run_reference_kernel(GatherV2, [X, np.array([[0, 1], [4, 9]], np.int32)], {"axis": 1})
    with pytest.raises(InvalidArgumentError, match=r"= -1 is not in \[0, 3\)"):
        run_reference_kernel(GatherV2, [X, np.array([-1])])


TARGET = np.array([3, 4], np.int32)


@pytest.mark.parametrize(
    ("gradients", "index", "message"),
    [
        (X[0], (3,), r"StridedSliceGrad: index 3 is out of range for \[3, 4\]"),
        (X[0], (-4,), r"StridedSliceGrad: index -4 is out of range for \[3, 4\]"),
        (X[0], (0, 0, 0), r"StridedSliceGrad: an index of 3 axes for float32\[3, 4\]"),
        (X[0], ((None, None, 0),), "StridedSliceGrad: the step of a slice must not be 0"),
        (
            X[0],
            ((0, 2, None),),
            r"gradients are float32\[4\], the slice of .* is float32\[2, 4\]; give",
        ),
        (X[:1], ((0, 2, None),), r"float32\[1, 4\], the slice of .* is float32\[2, 4\]; give"),
        (X, (1,), r"float32\[3, 4\], the slice of .* is float32\[4\]; give"),
    ],
)
def test_gradients_that_a_slice_by_index_cannot_have(gradients, index, message):
    with pytest.raises(InvalidArgumentError, match=message):
        run_reference_kernel(StridedSliceGrad, [gradients, TARGET], {"index": index})


@pytest.mark.parametrize(
    ("gradients", "begin", "target", "message"),
    [
        (X, [1, 0], [3, 4], r"SliceGrad: axis 0 of .*\[3, 4\] has no elements 1 to 4.*begin \+ their shape"),
        (X[:, :2], [0, 3], [3, 4], "axis 1 of .* has no elements 3 to 5"),
        (X[:1], [-1, 0], [3, 4], "axis 0 of .* has no elements -1 to 0"),
        (X[0], [0, 0], [3, 4], r"the gradients are float32\[4\].*one entry per axis"),
        (X, [0], [3, 4], r"begin is int32\[1\].*one entry per axis"),
        (X, [0, 0], [3], r"the shape is float32\[3\]: give one entry per axis"),
    ],
)
def test_gradients_that_a_box_cannot_have(gradients, begin, target, message):
    with pytest.raises(InvalidArgumentError, match=message):
        run_reference_kernel(SliceGrad, [gradients, np.array(begin, np.int32), np.array(target, np.int32)])


@pytest.mark.parametrize(
    ("gradients", "indices", "target", "axis", "message"),
    [
        (
            X[:1],
            [0, 2],
            [3, 4],
            0,
            r"float32\[1, 4\], expected \[2, 4\]: one slice of .*\[3, 4\]",
        ),
        (X[0], [0, 2], [3, 4], 0, r"float32\[4\], expected \[2, 4\]"),
        (X[0, 0], [0], [3, 4], 0, r"float32\[\], expected \[1, 4\]"),
        (X[:2], [0, 2], [3, 4], 1, r"expected \[3, 2\]: .* for each of indices int32\[2\] along axis 1"),
        (X[:2], [0, 2], [3, 4], 2, r"GatherGrad: axis 2 is not in \[-2, 2\)"),
        (X[:2], [0, 2], [], 0, r"GatherGrad: axis 0 .* a scalar has no axes"),
        (X[:2], [0, 3], [3, 4], 0, r"GatherGrad: indices\[1\] = 3 is not in \[0, 3\)"),
    ],
)
def test_gradients_that_gathered_slices_cannot_have(gradients, indices, target, axis, message):
    arrays = [gradients, np.array(indices, np.int32), np.array(target, np.int32)]
    with pytest.raises(InvalidArgumentError, match=message):
        run_reference_kernel(GatherGrad, arrays, {"axis": axis})


@pytest.mark.parametrize("rank", [2, None])
def test_gradients_of_gathered_slices_are_checked_when_shapes_become_known(rank):
    g = placeholder(float32, None if rank is None else [None] * rank)
    dense = GatherGrad(g, constant([0, 2]), constant(TARGET))
    assert dims(dense) == [3, 4]
    with Session() as session:
        assert session.run(dense, {g: X[1:]})[2].tolist() == X[2].tolist()
        with pytest.raises(InvalidArgumentError, match=r"\[1, 4\], expected \[2, 4\]"):
            session.run(dense, {g: X[:1]})


def test_gradients_of_equal_indices_add_up():
    x = constant(X)
    (g,) = gradients([gather(x, [2, 0, 2])], [x])
    assert value(g)[:, 0].tolist() == [1, 0, 2]


def test_elements_that_tie_share_the_gradient():
    x = constant([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]])
    (g,) = gradients([reduce_max(x, 1)], [x])
    assert value(g).tolist() == [[0, 0.5, 0.5], [1, 0, 0]]
    (g,) = gradients([reduce_min(x)], [x])
    assert value(g).tolist() == [[0, 0, 0], [0, 1, 0]]


def test_stack_and_axis_as_users_give_them():
    x = constant(X)
    assert value(stack([x, x], 1)).shape == (3, 2, 4)
    assert value(stack([1, 2, 3])).tolist() == [1, 2, 3]
    for axis in (1, -1, [1], (1,), np.int64(1), np.array([1])):
        assert value(reduce_sum(x, axis)).tolist() == X.sum(1).tolist()
    assert value(reduce_mean(x, keepdims=True)).tolist() == [[5.5]]


def test_a_shape_vector_computed_in_the_graph():
    x = placeholder(float32, [None, 4])
    rows = shape(x)[:1]
    y = reshape(x, concat([rows, [2, 2]], 0))
    assert dims(y) == [None, 2, 2]
    (g,) = gradients([y], [x])
    both = run_graph([y, g], {x: X})
    assert [a.shape for a in both] == [(3, 2, 2), (3, 4)]


def test_gradients_with_unknown_shapes():
    x, w = placeholder(float32, [None, None]), placeholder(float32, [None])
    y = reduce_mean(concat([x[:, :1], add(x, w)], 1), 0)
    for tensor, result in zip([x, w], gradients([y], [x, w]), strict=True):
        assert run_graph([result], {x: X, w: X[0]})[0].shape == (X if tensor is x else X[0]).shape


def test_reductions_of_unknown_rank():
    x = placeholder(float32)
    assert dims(reduce_sum(x)) == []
    assert dims(reduce_sum(x, 1)) is None
    assert argmax(x, 0).dtype == int64
    (g,) = gradients([reduce_mean(x)], [x])
    np.testing.assert_allclose(run_graph([g], {x: X})[0], np.full((3, 4), 1 / 12), rtol=1e-6)
