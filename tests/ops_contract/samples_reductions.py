"""Samples of the reductions and of ArgMax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.ops.reductions import All, Any_, ArgMax, Max, Mean, Min, Prod, Sum
from tensorbow.specs import Array, int32
from tests.ops_contract.sample import Sample, apart, integers, normal


def _one(
    op: OpDef, expected: Callable[..., Any], x: Array, axis: tuple[int, ...] | None, **more: Any
) -> Sample:
    keepdims = more.pop("keepdims", False)

    def reference(array: Array) -> Array:
        wide = array.astype(np.float64) if array.dtype.kind == "f" else array
        return np.asarray(expected(wide, axis, keepdims))

    return Sample(
        op,
        (x,),
        reference,
        {"axis": axis, "keepdims": keepdims},
        exact_layout=op in (Max, Min, Any_, All),  # sums go in another order
        rtol=1e-4,
        atol=1e-3,
        **more,
    )


def _signs(*shape: int) -> Array:
    """Numbers around 1 and -1, whose products stay within bounds."""
    return np.asarray(np.sign(normal(*shape)) * (1 + normal(*shape) / 256), np.float32)


def _truths(*shape: int) -> Array:
    return np.asarray(normal(*shape) > 1)


MAKERS: dict[OpDef, Callable[..., Array]] = {
    Max: apart,
    Min: apart,
    Prod: _signs,
    Any_: _truths,
    All: _truths,
}


def _reduction(op: OpDef, expected: Callable[..., Any], second_order: bool = False) -> list[Sample]:
    make = MAKERS.get(op, normal)
    return [
        _one(op, expected, make(2, 3, 4), None, label="all", second_order=second_order),
        _one(op, expected, make(2, 3, 4), (1,), label="axis 1", second_order=second_order),
        _one(op, expected, make(2, 3, 4), (-1, 0), label="two axes"),
        _one(op, expected, make(2, 3, 4), (0, 2), keepdims=True, label="kept"),
        _one(op, expected, make(2, 3), None, keepdims=True, label="all kept"),
        _one(op, expected, make(2, 3), (), label="no axis"),
        _one(op, expected, make(), None, label="scalar"),
        _one(op, expected, make(3, 0), (0,), label="empty result"),
        _one(op, expected, make(256, 513), (0,), label="large columns"),
        _one(op, expected, make(256, 513), (1,), label="large rows"),
        _one(op, expected, make(256, 513), None, label="large"),
    ]


def _sum(x: Array, axis: Any, keepdims: bool) -> Any:
    return np.sum(x, axis, keepdims=keepdims)


def _mean(x: Array, axis: Any, keepdims: bool) -> Any:
    return np.sum(x, axis, keepdims=keepdims) / (x.size / max(1, np.sum(x, axis).size))


def _max(x: Array, axis: Any, keepdims: bool) -> Any:
    return np.max(x, axis, keepdims=keepdims)


def _min(x: Array, axis: Any, keepdims: bool) -> Any:
    return np.min(x, axis, keepdims=keepdims)


def _prod(x: Array, axis: Any, keepdims: bool) -> Any:
    return np.exp2(np.log2(np.abs(x)).sum(axis, keepdims=keepdims)) * (-1) ** (x < 0).sum(
        axis, keepdims=keepdims
    )


def _any(x: Array, axis: Any, keepdims: bool) -> Any:
    return np.sum(x, axis, keepdims=keepdims) > 0


def _all(x: Array, axis: Any, keepdims: bool) -> Any:
    return np.sum(~x, axis, keepdims=keepdims) == 0


def _filled(value: float) -> Callable[..., Any]:
    return lambda x, axis, keepdims: np.full((3,), value)


SAMPLES = [
    *_reduction(Sum, _sum),
    *_reduction(Mean, _mean),
    *_reduction(Max, _max),
    *_reduction(Min, _min),
    *_reduction(Prod, _prod, second_order=True),
    *[s for s in _reduction(Any_, _any) if not s.large],
    *[s for s in _reduction(All, _all) if not s.large],
    _one(Any_, _any, np.zeros((1024, 513), bool), (1,), label="large"),
    _one(All, _all, np.ones((1024, 513), bool), (0,), label="large"),
    _one(Prod, _prod, integers(3, 5, low=1), (1,), label="int32"),
    _one(
        Prod,
        lambda x, axis, keepdims: np.zeros(2),
        np.array([[2.0, 0, 3], [0, 0, 1]], np.float32),
        (1,),
        label="zeros",
    ),
    _one(Sum, _sum, integers(3, 5), (1,), label="int32"),
    _one(Max, _max, integers(3, 5), (1,), label="int32"),
    _one(Min, _min, integers(3, 5, dtype=np.uint8), (1,), label="uint8"),
    _one(Max, _max, np.array([[1.0, np.nan], [np.inf, 2.0]], np.float32), (1,), label="nan", wrt=()),
    _one(Sum, _filled(0), normal(3, 0), (1,), label="empty"),
    _one(Mean, _filled(np.nan), normal(3, 0), (1,), label="empty"),
    _one(Max, _filled(-np.inf), normal(3, 0), (1,), label="empty"),
    _one(Min, _filled(np.inf), normal(3, 0), (1,), label="empty"),
    _one(Prod, _filled(1), normal(3, 0), (1,), label="empty"),
    _one(Any_, _filled(False), np.zeros((3, 0), bool), (1,), label="empty"),
    _one(All, _filled(True), np.zeros((3, 0), bool), (1,), label="empty"),
]


def _first_of_the_greatest(axis: int) -> Callable[[Array], Array]:
    def expected(x: Array) -> Array:
        rows = np.moveaxis(x, axis, -1)
        return np.asarray([list(row).index(max(row)) for row in rows.reshape(-1, rows.shape[-1])]).reshape(
            rows.shape[:-1]
        )

    return expected


def _argmax(x: Array, axis: int, **more: Any) -> Sample:
    attrs = {"axis": axis, **more.pop("attrs", {})}
    return Sample(ArgMax, (x,), _first_of_the_greatest(axis), attrs, **more)


SAMPLES += [
    _argmax(normal(3, 5), 0),
    _argmax(normal(3, 5), -1, attrs={"output_type": int32}, label="last axis"),
    _argmax(integers(4, 5, high=3), 1, label="ties"),
    _argmax(normal(2, 3, 4), 1, label="middle"),
    _argmax(normal(3, 0), 0, label="empty"),
    _argmax(normal(256, 513), 0, label="large"),
    _argmax(normal(256, 513), 1, label="large rows"),
]
