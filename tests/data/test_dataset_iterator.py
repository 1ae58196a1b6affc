"""Iterators of datasets in graphs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, OutOfRangeError


def test_a_one_shot_iterator_gives_each_element_once() -> None:
    inputs = np.arange(20, dtype=np.float32).reshape(10, 2)
    data = tb.data.Dataset.from_tensor_slices({"x": inputs, "y": np.arange(10)}).batch(4)
    with tb.Graph().as_default(), tb.Session() as session:
        batch = data.make_one_shot_iterator().get_next()
        assert (batch["x"].shape.as_list(), batch["x"].dtype) == ([None, 2], tb.float32)
        total = tb.reduce_sum(batch["x"])
        found = [session.run((batch, total)) for _ in range(3)]
        assert [len(each["y"]) for each, _ in found] == [4, 4, 2]
        np.testing.assert_array_equal(np.concatenate([each["x"] for each, _ in found]), inputs)
        assert [float(sum) for _, sum in found] == [28.0, 92.0, 70.0]
        for _ in range(2):
            with pytest.raises(OutOfRangeError, match="the dataset has no further element; use repeat"):
                session.run(batch)


def test_an_initializable_iterator_starts_again() -> None:
    begun = []

    def numbers() -> Iterator[Any]:
        begun.append(1)
        yield from (np.int64(3), np.int64(5))

    iterator = tb.data.Dataset.from_generator(numbers).make_initializable_iterator()
    with tb.Graph().as_default(), tb.Session() as session:
        number, other = iterator.get_next(), iterator.get_next("other")
        assert number.shape.as_list() == []
        with pytest.raises(FailedPreconditionError, match="is not initialized; run its initializer"):
            session.run(number)
        for _ in range(3):
            session.run(iterator.initializer)
            assert [int(session.run(number)), int(session.run(other))] == [3, 5]
        assert iterator.initializer is iterator.initializer
    assert len(begun) == 3


@pytest.mark.parametrize("threads", [0, 1])
def test_each_get_next_of_a_step_takes_its_own_element_in_the_order_of_creation(threads: int) -> None:
    data = tb.data.Dataset.range(1000).map(lambda number: (time.sleep(1e-4 * (number % 3)), number)[1])
    iterator = data.make_initializable_iterator()

    def slow() -> None:
        time.sleep(2e-3)

    with tb.Graph().as_default():
        with tb.control_dependencies([tb.py_func(slow, [], [])]):  # ready after the others
            first = iterator.get_next()
        second, third = iterator.get_next(), tb.cond(tb.constant(True), iterator.get_next, lambda: first)
        restart = iterator.initializer
        config = tb.ConfigProto(inter_op_parallelism_threads=threads)
        with tb.Session(config=config) as session:
            session.run(restart)
            for step in range(20):
                assert session.run([third, second, first]) == [3 * step + 2, 3 * step + 1, 3 * step]
            assert session.run([first, restart]) == [60, None]
            assert session.run([second, first]) == [1, 0]


def test_iterations_of_a_loop_take_elements_in_their_order() -> None:
    iterator = tb.data.Dataset.range(1000).make_one_shot_iterator()

    def body(count: Any, pairs: Any) -> Any:
        one, other = iterator.get_next(), iterator.get_next()
        seen = tb.py_func(lambda *each: np.int64(each[0] * 100 + each[1]), [one, other], tb.int64)
        seen.set_shape([])
        return count + 1, pairs.write(count, seen)

    with tb.Graph().as_default(), tb.Session() as session:
        pairs = tb.TensorArray(tb.int64, 5, element_shape=[])
        found = tb.while_loop(lambda count, _: count < 5, body, [0, pairs], parallel_iterations=5)[1].stack()
        for step in range(0, 30, 10):
            assert session.run(found).tolist() == [101 * n + 1 for n in range(step, step + 10, 2)]


def test_a_model_is_trained_from_an_iterator() -> None:
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    rows = tb.data.Dataset.from_tensor_slices((x, x @ [1.0, -2.0, 0.5]))
    data = rows.shuffle(64, seed=0).batch(16).repeat()
    with tb.Graph().as_default(), tb.Session() as session:
        inputs, wanted = data.make_one_shot_iterator().get_next()
        found = tb.layers.dense(inputs, 1)[:, 0]
        loss = tb.reduce_mean(tb.square(found - tb.cast(wanted, tb.float32)))
        step = tb.train.GradientDescentOptimizer(0.2).minimize(loss)
        session.run(tb.global_variables_initializer())
        losses = [session.run((loss, step))[0] for _ in range(40)]
    assert losses[-1] < 1e-3 * losses[0]


def test_what_an_iterator_refuses() -> None:
    empty = tb.data.Dataset.range(0)
    with pytest.raises(InvalidArgumentError, match="expected a dataset with an element"):
        empty.make_one_shot_iterator()
    different = tb.data.Dataset.from_generator(lambda: iter([np.zeros((1, 2)), np.zeros((1, 3))]))
    iterator = different.make_one_shot_iterator()
    with pytest.raises(FailedPreconditionError, match="use make_initializable_iterator"):
        print(iterator.initializer)
    texts = tb.data.Dataset.from_tensor_slices(np.array(["a", "bc"])).make_one_shot_iterator()
    with tb.Graph().as_default(), tb.Session() as session:
        row = iterator.get_next()
        session.run(row)
        with pytest.raises(InvalidArgumentError, match=r"shapes .*\[\[None, 2\]\], got \[\[1, 3\]\]"):
            session.run(row)
        assert session.run(texts.get_next()) == b"a"


def test_an_iterator_for_several_datasets() -> None:
    training, held_out = tb.data.Dataset.range(100).map(lambda n: n * 10), tb.data.Dataset.range(50)
    with tb.Graph().as_default(), tb.Session() as session:
        iterator = tb.data.Iterator.from_structure(training.output_types, training.output_shapes)
        number = iterator.get_next()
        assert (number.dtype, number.shape.as_list()) == (tb.int64, [])
        begin, look = iterator.make_initializer(training), iterator.make_initializer(held_out)
        with pytest.raises(FailedPreconditionError, match="is not initialized"):
            session.run(number)
        found = []
        for start in (begin, look, begin):
            session.run(start)
            found.append([int(session.run(number)) for _ in range(3)])
        assert found == [[0, 10, 20], [0, 1, 2], [0, 10, 20]]
        with pytest.raises(
            InvalidArgumentError, match=r"elements of int64\[\], got a dataset of float32\[\]"
        ):
            iterator.make_initializer(training.map(np.float32))
        with pytest.raises(FailedPreconditionError, match=r"use make_initializer\(dataset\)"):
            _ = iterator.initializer
        with pytest.raises(FailedPreconditionError, match="an iterator made by from_structure"):
            training.make_one_shot_iterator().make_initializer(held_out)


def test_the_fed_handle_chooses_the_iterator() -> None:
    pairs = tb.data.Dataset.range(5).map(lambda n: {"n": n, "row": np.full(2, n)})
    ones, others = pairs.repeat().make_one_shot_iterator(), pairs.skip(3).make_initializable_iterator()
    with tb.Graph().as_default(), tb.Session() as session:
        handle = tb.placeholder(tb.string, [])
        types, shapes = {"n": tb.int64, "row": tb.int64}, {"n": [], "row": [2]}
        chosen = tb.data.Iterator.from_string_handle(handle, types, shapes).get_next()
        assert chosen["row"].shape.as_list() == [2]
        first, second = session.run([ones.string_handle(), others.string_handle()])
        session.run(others.initializer)
        found = [int(session.run(chosen, {handle: each})["n"]) for each in (first, second, first, second)]
        assert found == [0, 3, 1, 4]
        with pytest.raises(OutOfRangeError):
            session.run(chosen, {handle: second})
        assert int(session.run(chosen["n"], {handle: first})) == 2
        with pytest.raises(NotFoundError, match="no iterator has the handle b'x'"):
            session.run(chosen, {handle: b"x"})
