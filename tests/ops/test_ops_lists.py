"""Lists with tensors in them stand for tensors: they are stacked, the numbers in the tensors' dtype."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")


def value(tensor, feeds=None):
    with tb.Session() as session:
        return session.run(tensor, feeds)


def test_a_shape_made_of_a_fed_batch_size():
    x = tb.placeholder(tb.float32, [None, 2, 3], name="x")
    batch = tb.shape(x)[0]
    flat = tb.reshape(x, [batch, 6])
    assert flat.shape.as_list() == [None, 6]
    product = tb.matmul(flat, tb.ones([6, 5])) + tb.zeros((batch, 1))
    filled = tb.fill([batch, 4], 2.5)
    with tb.Session() as session:
        for rows in (4, 1, 7):
            images = np.arange(rows * 6.0, dtype=np.float32).reshape(rows, 2, 3)
            out, full = session.run([product, filled], {x: images})
            np.testing.assert_array_equal(out, np.tile(images.reshape(rows, 6).sum(1)[:, None], 5))
            np.testing.assert_array_equal(full, np.full((rows, 4), 2.5))


def test_unknown_and_free_extents_in_such_a_shape():
    x = tb.placeholder(tb.float32, [None, 4])
    free = tb.reshape(x, [tb.shape(x)[0], -1, 2])
    assert free.shape.as_list() == [None, None, 2]
    assert value(free, {x: np.zeros((3, 4))}).shape == (3, 2, 2)
    assert value(tb.reshape(x, [None, tb.constant(2)]), {x: np.zeros((3, 4))}).shape == (6, 2)


def test_numbers_take_the_dtype_of_the_tensors():
    x = tb.placeholder(tb.float64, [])
    packed = tb.convert_to_tensor([[1, x], (2.5, 3)])
    assert packed.dtype == tb.float64
    np.testing.assert_array_equal(value(packed, {x: 7.0}), [[1, 7], [2.5, 3]])
    v = tb.Variable(np.float32(3.0))
    total = tb.reduce_sum([v, 1, 2.5])
    with tb.Session() as session:
        session.run(v.initializer)
        assert session.run(total) == 6.5


def test_gradients_flow_through_a_list():
    x = tb.placeholder(tb.float64, [2])
    y = tb.reduce_sum(tb.multiply([x, x * x, [1.0, 2.0]], 3.0))
    (gradient,) = tb.gradients(y, [x])
    np.testing.assert_array_equal(value(gradient, {x: [1.0, 2.0]}), [9.0, 15.0])


def test_what_does_not_stack_is_refused():
    x = tb.placeholder(tb.float32, [])
    i = tb.placeholder(tb.int32, [])
    with pytest.raises(InvalidArgumentError, match=r"use tb\.cast"):
        tb.reduce_sum([x, i])
    with pytest.raises(InvalidArgumentError, match=r"without loss.*test_ops_lists\.py"):
        tb.reduce_sum([i, 1.5])
    with pytest.raises(InvalidArgumentError, match="must be equal"):
        tb.reduce_sum([x, [1.0, 2.0]])


def test_a_list_is_of_the_graph_of_its_tensors():
    with tb.Graph().as_default() as other:
        x = tb.placeholder(tb.float32, [])
    assert tb.reduce_sum([[x, 1.0]]).graph is other
    assert tb.zeros([tb.cast(x, tb.int32), 2]).graph is other


def test_sums_and_stacks_of_lists_under_their_older_names():
    x = tb.placeholder(tb.float32, [2])
    total = tb.accumulate_n([x, x * 2.0, [1.0, 2.0]], shape=[2], tensor_dtype=tb.float32)
    one = tb.accumulate_n([tb.placeholder_with_default([1.0], [None])], shape=[1])
    assert one.shape == [1]
    stacked = tb.parallel_stack([x, total])
    np.testing.assert_array_equal(value(stacked, {x: [1, 2]}), [[1, 2], [4, 8]])
    for build, words in (
        (lambda: tb.accumulate_n([]), "expected at least one tensor"),
        (lambda: tb.accumulate_n([x], shape=[3]), r"term 0 is float32\[2\], expected shape \[3\]"),
        (lambda: tb.accumulate_n([x], tensor_dtype=tb.float64), "use tb.cast"),
        (lambda: tb.parallel_stack([tb.placeholder(tb.float32, [None])]), "value 0 is .*use tb.stack"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            build()
