"""Crosses of features against TensorFlow's documented numbers, and strings as rows of bytes."""

from __future__ import annotations

from itertools import chain, product
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.string_ops.crossing import crossed_buckets
from tensorbow.string_ops.packing import UnpackStrings, packed_strings, packed_width

pytestmark = pytest.mark.usefixtures("graph")


def run(fetches: Any) -> Any:
    with tb.Session() as session:
        return session.run(fetches)


def test_numbers_are_tensorflows() -> None:
    columns = [tb.constant([[f"batch1-FC{number}-F1"]]) for number in (1, 2, 3)]
    key = 0xDECAFCAFFE + 1
    found = run(
        [
            tb.sparse.cross_hashed(columns),
            tb.sparse.cross_hashed(columns, hash_key=key),
            tb.sparse.cross_hashed(columns, num_buckets=100),
            tb.sparse.cross_hashed(columns, 100, key),
        ]
    )
    assert [each.values.tolist() for each in found] == [
        *[[1971693436396284976], [4847552627144134031], [83], [31]]
    ]


def test_combinations_of_dense_and_sparse_columns() -> None:
    words = tb.SparseTensor([[0, 0], [0, 1], [2, 1], [3, 0]], ["a", "b", "c", "d"], [4, 2])
    numbers = np.array([[1, 2], [3, 4], [5, 6], [7, 8]])
    texts, hashed = run([tb.sparse.cross([words, numbers]), tb.sparse.cross_hashed([words, numbers], 1000)])
    rows = [["a", "b"], [], ["c"], ["d"]]
    expected = [
        [f"{w}_X_{n}".encode() for w, n in product(*pair)] for pair in zip(rows, numbers, strict=True)
    ]
    assert texts.values.tolist() == [*chain(*expected)]
    places = [[row, column] for row, each in enumerate(expected) for column in range(len(each))]
    assert texts.indices.tolist() == hashed.indices.tolist() == places
    assert texts.dense_shape.tolist() == hashed.dense_shape.tolist() == [4, 4]
    wide = np.array([[*row, *[""] * (2 - len(row))] for row in rows], object)
    dense = run(crossed_buckets([tb.constant(wide), tb.constant(numbers)], 1000, None))
    assert dense.shape == (4, 4)
    assert dense[dense >= 0].tolist() == hashed.values.tolist()
    empty = run(tb.sparse.cross([tb.zeros([0, 2], tb.int64), numbers[:0]]))
    assert (len(empty.values), empty.dense_shape.tolist()) == (0, [0, 0])


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="expected strings or whole numbers"):
        tb.sparse.cross([tb.zeros([2, 2])])
    with pytest.raises(InvalidArgumentError, match="expected rank 2"):
        tb.sparse.cross_hashed([tb.zeros([2], tb.int64)])
    with pytest.raises(InvalidArgumentError, match="expected inputs to be at least one tensor"):
        tb.sparse.cross([])
    with pytest.raises(InvalidArgumentError, match="expected columns of as many examples, got 2, 3"):
        run(tb.sparse.cross([tb.zeros([2, 1], tb.int64), tb.zeros([3, 1], tb.int64)]))


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 2)])
def test_packed_strings_are_read_back(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(2)
    texts: Any = np.empty(shape, object)
    for place in np.ndindex(shape):
        texts[place] = random.integers(0, 3, random.integers(0, 300), np.uint8).tobytes()
    width = packed_width(texts)
    assert width >= 64
    assert width & (width - 1) == 0
    packed = packed_strings(texts, width)
    assert (packed.dtype, packed.shape) == (np.uint8, (*shape, width))
    found = run(UnpackStrings.tensor(tb.constant(packed)))
    assert np.shape(found) == shape
    assert np.ravel(found).tolist() == texts.ravel().tolist()


def test_strings_that_are_too_long_are_refused() -> None:
    long: Any = np.array([b"x" * 32_767], object)
    with pytest.raises(InvalidArgumentError, match="at most 32,766 bytes, got one of 32,767"):
        packed_width(long)
    with pytest.raises(InvalidArgumentError, match="at most 62 bytes, got one of 32767"):
        packed_strings(long, 64)


def test_a_batch_without_examples() -> None:
    none = tb.SparseTensor(np.zeros((0, 2), np.int64), tb.constant(np.zeros(0, np.int64)), [0, 3])
    for crossed in (tb.sparse.cross_hashed([none, none], 10), tb.sparse.cross([none, np.zeros((0, 2), int)])):
        assert run(crossed).dense_shape.tolist() == [0, 0]
