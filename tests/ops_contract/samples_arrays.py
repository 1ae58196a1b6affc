"""Samples of the ops that rearrange, broadcast, cut, pad and look up."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.arrays import ConcatV2, ExpandDims, Reshape, Squeeze, Transpose
from tensorbow.ops.axis_order import AxisOrder, InverseOrder, JoinedExtents, TransposeBy
from tensorbow.ops.broadcasting import BroadcastTo, Shape, Size, SumTo
from tensorbow.ops.indexing import GatherGrad, GatherV2, OneHot
from tensorbow.ops.shape_rules import BroadcastArgs, EnsureShape
from tensorbow.ops.slicing import Pad, Slice, SliceGrad, StridedSlice, StridedSliceGrad
from tensorbow.specs import Array, float64, int64
from tests.ops_contract.sample import Sample, integers, normal, vector


def _reshape(x: Array, shape: Array) -> Array:
    return np.array(x.ravel().tolist(), x.dtype).reshape(tuple(shape))


VIEWS = [
    Sample(Reshape, (normal(3, 4, 5), vector(6, 10)), _reshape, second_order=True),
    Sample(Reshape, (normal(3, 4, 5), vector(2, -1, 5)), _reshape, label="free"),
    Sample(Reshape, (normal(1, 1), vector()), _reshape, label="to scalar"),
    Sample(Reshape, (normal(), vector(-1)), _reshape, label="of scalar"),
    Sample(Reshape, (normal(0, 4), vector(2, 0, 7)), _reshape, label="empty"),
    Sample(ExpandDims, (normal(3, 5),), lambda x: x[:, None], {"axis": 1}),
    Sample(ExpandDims, (normal(3, 5),), lambda x: x[..., None], {"axis": -1}, label="last"),
    Sample(ExpandDims, (normal(0, 5),), lambda x: x[None], {"axis": -3}, label="empty"),
    Sample(Squeeze, (normal(1, 3, 1, 5),), lambda x: x[0, :, 0]),
    Sample(Squeeze, (normal(1, 3, 1, 5),), lambda x: x[:, :, 0], {"axis": (-2,)}, label="axis"),
    Sample(Squeeze, (normal(1, 0),), lambda x: x[0], {"axis": (0,)}, label="empty"),
]

SHAPES = [
    Sample(Shape, (normal(3, 4, 5),), lambda x: np.array(x.shape)),
    Sample(Shape, (normal(),), lambda x: np.zeros(0), {"out_type": int64}, label="scalar"),
    Sample(Shape, (normal(3, 0),), lambda x: np.array([3, 0]), label="empty"),
    Sample(Shape, (normal(256, 513),), lambda x: np.array([256, 513]), label="large"),
    Sample(Size, (normal(3, 4, 5),), lambda x: np.array(60)),
    Sample(Size, (normal(3, 0),), lambda x: np.array(0), {"out_type": int64}, label="empty"),
    Sample(Size, (normal(256, 513),), lambda x: np.array(256 * 513), label="large"),
]


SHAPES += [
    Sample(BroadcastArgs, (vector(1, 4, 1, 3), vector(5, 1)), lambda a, b: np.array([1, 4, 5, 3])),
    Sample(BroadcastArgs, (vector(), vector(2, 0)), lambda a, b: np.array([2, 0]), label="empty"),
    Sample(BroadcastArgs, (vector(*[2] * 31), vector(1)), lambda a, b: a, label="many axes"),
]
SHAPES += [
    Sample(AxisOrder, (vector(1, -1), vector(4)[0]), lambda a, n: np.array([0, 2, 1, 3], np.int32)),
    Sample(
        AxisOrder,
        (vector(-3)[0], vector(2)[0]),
        lambda a, n: np.array([1, 2, 0], np.int32),
        {"more": 1},
        label="more",
    ),
    Sample(AxisOrder, (vector(), vector(2)[0]), lambda a, n: np.array([0, 1], np.int32), label="empty"),
    Sample(InverseOrder, (vector(2, 0, 3, 1),), lambda perm: np.array([1, 3, 0, 2])),
    Sample(InverseOrder, (vector(),), lambda perm: perm, label="empty"),
    Sample(JoinedExtents, (vector(2, 3), vector()), lambda s, a: np.array([2, 3, 1]), label="empty"),
    Sample(JoinedExtents, (vector(2, 3, 5), vector(0, 1)), lambda s, a: np.array([2, 15])),
    Sample(
        JoinedExtents,
        (vector(2, 3, 5), vector(0)),
        lambda s, a: np.array([2, 3, 1]),
        {"last": "ones"},
        label="ones",
    ),
    Sample(
        JoinedExtents,
        (vector(2, 3, 5), vector(0)),
        lambda s, a: np.array([2, 3]),
        {"last": "none"},
        label="none",
    ),
]
SHAPES += [
    Sample(TransposeBy, (normal(*shape), vector(*perm)), np.transpose, label=label, second_order=not label)
    for label, shape, perm in (
        ("", (2, 3, 5), (2, 0, 1)),
        ("two", (3, 5), (1, 0)),
        ("scalar", (), ()),
        ("empty", (2, 0, 3), (1, 2, 0)),
        ("large", (64, 513, 5), (2, 1, 0)),
    )
]
SHAPES += [
    Sample(EnsureShape, (normal(*shape),), lambda x: x, {"shape": (None, shape[1])}, label=label)
    for label, shape in (("", (3, 5)), ("empty", (0, 5)), ("large", (256, 513)))
]


def _broadcast(x: Array, shape: Array) -> Array:
    return x * np.ones(tuple(shape), x.dtype)


def _sum_to(x: Array, shape: Array) -> Array:
    lead = x.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(shape) if n == 1)
    return np.sum(x.astype(np.float64), axis=axes).reshape(tuple(shape))


def _sum_sample(shape: tuple[int, ...], target: tuple[int, ...], label: str = "") -> Sample:
    inputs = (normal(*shape), vector(*target))
    return Sample(
        SumTo, inputs, _sum_to, label=label, exact_layout=False, second_order=not label, rtol=1e-4, atol=1e-3
    )


BROADCASTS = [
    Sample(BroadcastTo, (normal(3, 1), vector(2, 3, 4)), _broadcast, second_order=True),
    Sample(BroadcastTo, (normal(), vector(2, 3)), _broadcast, label="scalar"),
    Sample(BroadcastTo, (normal(2, 3), vector(2, 3)), _broadcast, label="same"),
    Sample(BroadcastTo, (normal(1, 3), vector(0, 3)), _broadcast, label="empty result", wrt=()),
    Sample(BroadcastTo, (normal(0, 1), vector(0, 3)), _broadcast, label="empty"),
    Sample(BroadcastTo, (normal(513), vector(256, 513)), _broadcast, label="large"),
    _sum_sample((2, 3, 4), (3, 1)),
    _sum_sample((2, 3, 4), (), "scalar"),
    _sum_sample((2, 3), (2, 3), "same"),
    _sum_sample((2, 1, 3), (1, 1, 3), "ones"),
    _sum_sample((0, 3), (1, 3), "empty"),
    _sum_sample((2, 0), (2, 1), "empty rows"),
    _sum_sample((256, 513), (513,), "large"),
    _sum_sample((256, 513), (256, 1), "large rows"),
]

TRANSPOSES = [
    Sample(Transpose, (normal(3, 5),), lambda x: np.array([[*column] for column in zip(*x, strict=True)])),
    Sample(
        Transpose, (normal(2, 3, 4),), lambda x: np.einsum("abc->cab", x), {"perm": (2, 0, 1)}, label="cab"
    ),
    Sample(Transpose, (normal(),), lambda x: x, label="scalar"),
    Sample(Transpose, (normal(3, 0, 2),), lambda x: np.zeros((0, 3, 2)), {"perm": (1, 0, 2)}, label="empty"),
    Sample(Transpose, (normal(256, 513),), lambda x: np.einsum("ab->ba", x), label="large"),
]


def _concat(*shapes: tuple[int, ...], axis: int, **more: Any) -> Sample:
    inputs = tuple(normal(*s, seed=i) for i, s in enumerate(shapes))
    return Sample(ConcatV2, inputs, lambda *x: np.concatenate(x, axis), {"axis": axis}, **more)


CONCATS = [
    _concat((2, 3), (4, 3), (1, 3), axis=0, second_order=True),
    _concat((2, 3, 5), (2, 4, 5), axis=-2, label="middle"),
    _concat((3, 2), axis=1, label="one"),
    _concat((0, 3), (2, 3), axis=0, label="empty"),
    _concat((256, 300), (256, 213), axis=1, label="large"),
]


def _box(x: Array, begin: Array, size: Array) -> Array:
    return x[
        np.ix_(*[np.arange(n)[b:][: n if s < 0 else s] for n, b, s in zip(x.shape, begin, size, strict=True)])
    ]


def _put(g: Array, begin: Array, shape: Array) -> Array:
    after = [int(n) - int(b) - e for n, b, e in zip(shape, begin, g.shape, strict=True)]
    return np.pad(g, list(zip(begin.tolist(), after, strict=True)))


def _pad(x: Array, paddings: Array) -> Array:
    return np.pad(x, [tuple(row) for row in paddings.tolist()])


def _paddings(*rows: tuple[int, int]) -> Array:
    return np.array(rows, np.int32).reshape(-1, 2)


BOXES = [
    Sample(Slice, (normal(4, 5, 6), vector(1, 0, 2), vector(2, -1, 3)), _box, second_order=True),
    Sample(Slice, (normal(4, 5), vector(4, 1), vector(0, 2)), _box, label="nothing"),
    Sample(Slice, (normal(0, 5), vector(0, 1), vector(-1, 3)), _box, label="empty"),
    Sample(Slice, (normal(300, 513), vector(20, 1), vector(256, 512)), _box, label="large"),
    Sample(SliceGrad, (normal(2, 3), vector(1, 2), vector(4, 6)), _put, second_order=True),
    Sample(SliceGrad, (normal(0, 3), vector(1, 2), vector(4, 6)), _put, label="empty"),
    Sample(SliceGrad, (normal(256, 512), vector(1, 2), vector(258, 520)), _put, label="large"),
    Sample(Pad, (normal(2, 3), _paddings((1, 2), (0, 3))), _pad, second_order=True),
    Sample(
        Pad,
        (normal(2, 3), _paddings((1, 0), (0, 2))),
        lambda x, p: np.pad(x, p, constant_values=0.5),
        {"constant_values": 0.5},
        label="value",
    ),
    Sample(Pad, (normal(0, 3), _paddings((2, 0), (0, 1))), _pad, label="empty"),
    Sample(Pad, (normal(256, 513), _paddings((2, 0), (0, 1))), _pad, label="large"),
]


def _indexed(index: tuple[Any, ...], x: Array, numpy_index: Any, **more: Any) -> Sample:
    return Sample(StridedSlice, (x,), lambda a: a[numpy_index], {"index": index}, **more)


def _unindexed(index: tuple[Any, ...], numpy_index: Any, *shape: int, **more: Any) -> Sample:
    def expected(g: Array, shape: Array) -> Array:
        result = np.zeros(tuple(shape), g.dtype)
        result[numpy_index] = g
        return result

    g = normal(*np.zeros(shape)[numpy_index].shape)
    return Sample(StridedSliceGrad, (g, vector(*shape)), expected, {"index": index}, **more)


WHOLE = (None, None, None)
STRIDES = [
    _indexed((1, (0, 4, 2)), normal(3, 5, 2), np.s_[1, 0:4:2], second_order=True),
    _indexed(("...", -1), normal(3, 5), np.s_[..., -1], label="last column"),
    _indexed(((None, None, -2), "new"), normal(5, 3), np.s_[::-2, None], label="reversed"),
    _indexed((1, 2), normal(3, 5), np.s_[1, 2], label="element"),
    _indexed(
        (-1, "...", "new", (3, 0, -1)), normal(2, 3, 5, 4), np.s_[-1, ..., None, 3:0:-1], label="all at once"
    ),
    _indexed(("new", "..."), normal(), np.s_[None, ...], label="of a scalar"),
    _indexed(((-9, 9, None), (None, -9, -3)), normal(3, 7), np.s_[-9:9, :-9:-3], label="beyond the ends"),
    _indexed(((1, 9, None),), normal(0, 3), np.s_[1:9], label="empty"),
    _indexed((WHOLE, (1, None, None)), normal(256, 513), np.s_[:, 1:], label="large"),
    _unindexed((1, (0, 4, 2)), np.s_[1, 0:4:2], 3, 5, 2, second_order=True),
    _unindexed(((1, 1, None), "..."), np.s_[1:1], 3, 2, label="empty"),
    _unindexed((-1, "...", "new", (3, 0, -1)), np.s_[-1, ..., None, 3:0:-1], 2, 3, 5, 4, label="all at once"),
    _unindexed((WHOLE, (1, None, None)), np.s_[:, 1:], 256, 513, label="large"),
]


def _gather(params: Array, indices: Array, axis: int = 0, **more: Any) -> Sample:
    return Sample(GatherV2, (params, indices), lambda p, i: p.take(i, axis), {"axis": axis}, **more)


def _gather_some(params: Array, indices: Array, axis: int = 0, **more: Any) -> Sample:
    """Zeros at indices -1, which numpy.take reads from a slice of zeros at the end."""

    def expected(p: Array, i: Array) -> Array:
        return np.concatenate([p, np.zeros_like(p.take([0], axis))], axis).take(i, axis)

    attrs = {"axis": axis, "allow_unused": True}
    return Sample(GatherV2, (params, indices), expected, attrs, **more)


def _gather_grad(
    g: Array, indices: Array, shape: Array, axis: int = 0, allow_unused: bool = False, **more: Any
) -> Sample:
    def expected(g: Array, i: Array, shape: Array) -> Array:
        one_hot = (i[..., None] == np.arange(shape[axis])).astype(np.float64)
        return np.moveaxis(
            np.tensordot(one_hot, g, (range(i.ndim), range(axis, axis + i.ndim))), 0, axis
        ).reshape(tuple(shape))

    attrs = {"axis": axis, "allow_unused": allow_unused}
    return Sample(GatherGrad, (g, indices, shape), expected, attrs, rtol=1e-4, **more)


LOOKUPS = [
    _gather(normal(4, 3), integers(2, 5, high=4), second_order=True),
    _gather(normal(2, 5, 3), integers(7, high=5, dtype=np.int64), 1, label="axis 1"),
    _gather(normal(2, 5), integers(3, 4, high=5, dtype=np.uint8), -1, label="last axis"),
    _gather(normal(5), np.array(3, np.int32), label="scalar index"),
    _gather(normal(4, 3), integers(0), label="empty"),
    _gather(normal(4, 0), integers(2, high=4), label="empty rows"),
    _gather(normal(0, 3), integers(0), label="nothing of nothing"),
    _gather(normal(600, 300), integers(512, high=600), label="large"),
    _gather_grad(normal(2, 5, 3), integers(2, 5, high=4), vector(4, 3), second_order=True),
    _gather_grad(normal(2, 7, 3), integers(7, high=5), vector(2, 5, 3), 1, label="axis 1"),
    _gather_grad(normal(3), np.array(1, np.int64), vector(2, 3), label="scalar index"),
    _gather_grad(normal(0, 3), integers(0), vector(2, 3), label="empty"),
    _gather_grad(normal(512, 300), integers(512, high=600), vector(600, 300), label="large", atol=1e-5),
    _gather_some(normal(4, 3), np.array([[2, -1], [-1, 0]]), label="unused", second_order=True),
    _gather_some(normal(2, 5, 9), np.int32([4, -1, 0]), 1, label="unused of axis 1"),
    _gather_grad(
        normal(2, 3, 9),
        np.int32([[2, -1, 2], [0, -1, -1]]),
        vector(4, 9),
        label="unused",
        allow_unused=True,
        second_order=True,
    ),
    _gather_grad(normal(2, 3, 5), np.array([-1, 3, -1]), vector(2, 4, 5), 1, True, label="unused of axis 1"),
]


def _one_hot(*shape: int, axis: int = -1, **more: Any) -> Sample:
    attrs = {"depth": 4, "axis": axis, **more.pop("attrs", {})}
    on, off = attrs.get("on_value", 1), attrs.get("off_value", 0)

    def expected(i: Array) -> Array:
        table = np.full((7, 4), off, np.float64)
        table[range(1, 5), range(4)] = on  # indices are from -1 to 5
        return np.moveaxis(table[i + 1], -1, axis)

    return Sample(OneHot, (integers(*shape, low=-1, high=6),), expected, attrs, **more)


LOOKUPS += [
    _one_hot(3, 5),
    _one_hot(3, 5, axis=0, label="first axis"),
    _one_hot(3, 5, axis=1, attrs={"on_value": 0.9, "off_value": 0.1, "dtype": float64}, label="smooth"),
    _one_hot(label="scalar"),
    _one_hot(0, 5, label="empty"),
    _one_hot(200, 513, label="large"),
]

SAMPLES = [*VIEWS, *SHAPES, *BROADCASTS, *TRANSPOSES, *CONCATS, *BOXES, *STRIDES, *LOOKUPS]
