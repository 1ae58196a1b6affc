"""Inputs of every op, changed: other shapes, dtypes and values than its samples have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tensorbow.errors import TensorBowError
from tensorbow.specs import DTYPES, Array
from tests.graph.graph_def_programs import SMALL
from tests.ops_contract.harness import specs_of
from tests.ops_contract.sample import Sample

NUMBERS = (-1, -2, 0, 1, 7, 100, 2**31 - 1)
WIDE_NUMBERS = (2**32, 2**32 + 1, -(2**63))  # which are 0 and 1 in 32 bits
MOST_NBYTES = 1 << 22  # of a result that is worth computing here

SAMPLES: dict[str, list[Sample]] = {}
for _sample in SMALL:
    if max((array.size for array in _sample.inputs), default=0) <= 3000:
        SAMPLES.setdefault(_sample.op.name, []).append(_sample)


def _resized(array: Array, shape: tuple[int, ...]) -> Array:
    return np.resize(array if array.size else np.ones(1, array.dtype), shape).astype(array.dtype)


def _other_shapes(shape: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    for axis, extent in enumerate(shape):
        before, behind = shape[:axis], shape[axis + 1 :]
        for other in {0, 1, extent - 1, extent + 1, 2 * extent + 3} - {extent, -1}:
            yield (*before, other, *behind)
        yield (*before, *behind)
    yield from [(1, *shape), (2, *shape), (*shape, 1), (*shape, 3), (), (0,), (max(1, size),), shape[::-1]]


def _other_values(array: Array) -> Iterator[Array]:
    numbers = (*NUMBERS, *WIDE_NUMBERS) if array.dtype == np.int64 else NUMBERS
    for index in range(min(array.size, 4)):
        for number in numbers:
            changed = array.copy()
            changed.reshape(-1)[index] = np.array(number).astype(array.dtype)
            yield changed


def others(array: Array) -> list[Array]:
    """The same numbers in other shapes and dtypes; of integers also other numbers."""
    dtypes = [dtype.as_numpy_dtype for dtype in DTYPES.values() if dtype.as_numpy_dtype != array.dtype]
    with np.errstate(invalid="ignore", over="ignore"):
        cast = [(array if np.dtype(dtype).kind == "c" else array.real).astype(dtype) for dtype in dtypes]
    values = _other_values(array) if array.dtype.kind in "iu" else ()
    return [*(_resized(array, shape) for shape in _other_shapes(array.shape, array.size)), *cast, *values]


def changed_at(sample: Sample, index: int, array: Array) -> tuple[Array, ...]:
    """The sample's inputs with another one at an index."""
    return (*sample.inputs[:index], array, *sample.inputs[index + 1 :])


def is_huge(sample: Sample, inputs: tuple[Array, ...]) -> bool:
    """True if a result is too large to be computed in a test."""
    attrs: Any = sample.complete_attrs
    try:
        results = sample.op.infer(specs_of(inputs), attrs)
    except TensorBowError:
        return False
    return any(result.is_static and result.nbytes > MOST_NBYTES for result in results)
