"""Functions of tensors in pipelines, their random numbers, and datasets made of tensors and lists."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.data import Dataset
from tensorbow.errors import InvalidArgumentError

X = np.arange(20, dtype=np.float32).reshape(10, 2)


def test_a_function_of_tensors_is_traced_once_for_a_shape():
    calls = []

    def prepared(x, y):
        calls.append(x)
        return {"x": tb.square(x) + 1.0, "y": tb.one_hot(y, 10), "n": 3}

    with tb.Graph().as_default() as graph:
        found = list(Dataset.from_tensor_slices((X, np.arange(10))).map(prepared))
        assert graph.get_operations() == []
    np.testing.assert_array_equal([each["x"] for each in found], X * X + 1)
    np.testing.assert_array_equal([each["y"] for each in found], np.eye(10))
    assert [each["n"] for each in found] == [3] * 10
    assert [type(each).__name__ for each in calls] == ["ndarray", "Tensor"]


def test_functions_that_arrays_do_not_suit():
    def padded(words):
        words.set_shape([None])
        return tb.pad(words, [[0, 5 - tb.shape(words)[0]]])

    rows = Dataset.from_generator(lambda: ([1] * n for n in (2, 4, 3, 3)), tb.int32, [None])
    assert [each.tolist() for each in rows.map(padded)] == [[1] * n + [0] * (5 - n) for n in (2, 4, 3, 3)]
    odd = Dataset.range(7).filter(lambda number: tb.equal(number % 2, 1))
    assert [int(each) for each in odd] == [1, 3, 5]


def test_the_error_is_that_of_the_function_for_arrays():
    def broken(number):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(Dataset.range(3).map(broken))
    with pytest.raises(InvalidArgumentError, match="a has 2 columns and b 3 rows"):
        list(
            Dataset.from_tensor_slices(X).map(lambda row: tb.matmul(tb.reshape(row, [1, 2]), np.ones((3, 3))))
        )


@pytest.mark.parametrize("threads", [None, 3])
def test_random_numbers_differ_by_element_and_repetition_and_not_by_iteration(threads):
    with tb.Graph().as_default():
        tb.set_random_seed(4)
        one = Dataset.range(5).map(lambda x: tb.random_uniform([]) + 0.0 * tb.cast(x, tb.float32), threads)
        first, again = ([float(each) for each in one.repeat(2)] for _ in range(2))
    assert first == again
    assert len({*first}) == 10
    assert all(0 <= each < 1 for each in first)


def test_tables_and_tensors_of_the_default_graph():
    with tb.Graph().as_default():
        table = tb.lookup.index_table_from_tensor(tb.constant(["a", "b", "c"]), default_value=7)
        offset = tb.constant(10, tb.int64)
        words = Dataset.from_tensor_slices(["c", "a", "z"])
        assert [int(each) for each in words.map(lambda word: table.lookup(word) + offset)] == [12, 10, 17]


def test_sources_of_tensors_and_lists():
    with tb.Graph().as_default():
        rows = Dataset.from_tensor_slices((tb.constant(X) * 2.0, ["a"] * 10))
        np.testing.assert_array_equal([x for x, _ in rows], X * 2)
        assert [int(each) for each in Dataset.from_tensor_slices([1, 2])] == [1, 2]
        whole = Dataset.from_tensors(([1, 2], {"x": X}))
        assert (len(whole), whole.output_shapes[1]["x"].as_list()) == (1, [10, 2])
        with pytest.raises(InvalidArgumentError, match="cannot be computed when the data set is made"):
            Dataset.from_tensor_slices(tb.placeholder(tb.float32, [3]))


def test_datasets_of_datasets():
    twice = Dataset.range(3).flat_map(lambda x: Dataset.from_tensors(x * 10).repeat(2))
    assert [int(each) for each in twice.concatenate(Dataset.range(2))] == [0, 0, 10, 10, 20, 20, 0, 1]
    assert [int(each) for each in Dataset.range(4).apply(lambda data: data.skip(2)).prefetch(-1)] == [2, 3]
    assert len(Dataset.range(3).concatenate(Dataset.range(4))) == 7
    with pytest.raises(InvalidArgumentError, match="flat_map: expected the function to give"):
        list(Dataset.range(3).flat_map(abs))


def test_types_and_shapes_of_a_generator():
    data = Dataset.from_generator(
        lambda count: ((n, [1] * n, "w") for n in range(1, count)),
        (tb.int32, tb.float32, tb.string),
        ([], [None], []),
        args=(4,),
    )
    assert data.output_types == (tb.int32, tb.float32, tb.string)
    assert [shape.as_list() for shape in data.output_shapes] == [[], [None], []]
    numbers, ones, words = next(iter(data.padded_batch(3, ([], [None], []))))
    assert (numbers.tolist(), words.tolist()) == ([1, 2, 3], [b"w"] * 3)
    assert (ones.tolist(), ones.dtype) == ([[1, 0, 0], [1, 1, 0], [1, 1, 1]], np.float32)
    with pytest.raises(InvalidArgumentError, match="output_types"):
        next(iter(Dataset.from_generator(lambda: [(1, 2)], (tb.int32,))))


def test_experimental_transformations():
    from tensorbow.data import experimental

    numbers = Dataset.range(6).apply(experimental.shuffle_and_repeat(6, 2, seed=3))
    batches = numbers.apply(
        experimental.map_and_batch(lambda n: n + 1, 6, num_parallel_calls=experimental.AUTOTUNE)
    )
    first, second = (batch.tolist() for batch in batches.prefetch(tb.data.experimental.AUTOTUNE))
    assert sorted(first) == sorted(second) == [1, 2, 3, 4, 5, 6]
    assert first != second


def test_elements_of_another_structure_are_refused():
    mixed = Dataset.from_generator(lambda: iter([(1.0, 2.0), (1.0, 2.0, 3.0)]))
    with pytest.raises(InvalidArgumentError, match="element: expected a tuple of 2 as in the first one"):
        list(mixed.map(lambda *parts: tb.add_n([tb.square(part) for part in parts])))
