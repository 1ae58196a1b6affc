"""TensorArrays: TensorFlow 1's cases of `tensor_array_ops_test`."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, TensorBowError


@pytest.fixture(params=[True, False], ids=["compiled", "dynamic"])
def session(request, graph):
    with tb.Session(config=tb.ConfigProto(compiles_loops=request.param)) as made:
        yield made


def array(*values, dtype=tb.float32, **options):
    """An array with values written one by one."""
    made = tb.TensorArray(dtype, len(values), **options)
    for number, value in enumerate(values):
        made = made.write(number, tb.constant(value, dtype))
    return made


def fed(graph_value):
    """A copy whose value the graph does not know."""
    return tb.placeholder_with_default(graph_value, graph_value.shape)


@pytest.mark.parametrize(
    "dtype", [tb.float32, tb.float64, tb.int32, tb.int64, tb.complex64, tb.bool], ids=str
)
def test_write_and_read(session, dtype):  # testTensorArrayWriteRead
    values = [np.ones((2, 1)), np.zeros((2, 1)), np.ones((2, 1))]
    made = array(*[value.astype(dtype.as_numpy_dtype) for value in values], dtype=dtype, infer_shape=False)
    for found, value in zip(session.run([made.read(n) for n in range(3)]), values, strict=True):
        np.testing.assert_array_equal(found, value)


def test_write_and_stack(session):  # testTensorArrayWritePack
    np.testing.assert_array_equal(
        session.run(array([[4.0, 5.0]], [[6.0, 7.0]], [[8.0, 9.0]]).stack()), [[[4, 5]], [[6, 7]], [[8, 9]]]
    )


def test_stack_of_no_elements(session):  # testEmptyTensorArrayPack
    empty = tb.TensorArray(tb.float32, 0, element_shape=[2, 3])
    assert session.run(empty.stack()).shape == (0, 2, 3)


def test_write_and_concat(session):  # testTensorArrayWriteConcat
    made = array([[4.0, 5.0], [104.0, 105.0]], [[6.0, 7.0]], [[8.0, 9.0], [204.0, 205.0]], infer_shape=False)
    np.testing.assert_array_equal(
        session.run(made.concat()), [[4, 5], [104, 105], [6, 7], [8, 9], [204, 205]]
    )


def test_unstack_and_read(session):  # testTensorArrayUnpackRead
    for value in ([1.0, 2.0, 3.0], [[1.0, 1.1], [2.0, 2.1], [3.0, 3.1]], np.zeros((3, 0))):
        made = tb.TensorArray(tb.float32, 3).unstack(tb.constant(value, tb.float32))
        for number, found in enumerate(session.run([made.read(n) for n in range(3)])):
            np.testing.assert_array_equal(found, np.float32(value)[number])


def test_split_and_read(session):  # testTensorArraySplitRead
    made = tb.TensorArray(tb.float32, 3, infer_shape=False)
    made = made.split(tb.constant([[1.0, 101.0], [2.0, 201.0], [3.0, 301.0]]), [1, 0, 2])
    found = session.run([made.read(n) for n in range(3)])
    np.testing.assert_array_equal(found[0], [[1, 101]])
    assert found[1].shape == (0, 2)
    np.testing.assert_array_equal(found[2], [[2, 201], [3, 301]])


def test_gather_and_scatter(session):  # testTensorArrayScatterRead, testTensorArrayGather
    made = tb.TensorArray(tb.float32, 6).scatter([1, 5], tb.constant([[1.0, -1.0], [10.0, -10.0]]))
    np.testing.assert_array_equal(session.run([made.read(1), made.read(5)]), [[1, -1], [10, -10]])
    np.testing.assert_array_equal(session.run(made.gather([5, 1, 5])), [[10, -10], [1, -1], [10, -10]])


def test_a_wrong_index_or_dtype(session):  # testTensorArray{Write,Read}WrongIndexOrDataTypeFails
    made = tb.TensorArray(tb.float32, 3)
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        session.run(made.write(0, tb.constant([1, 2])).flow)
    for index in (-1, 3):
        with pytest.raises(TensorBowError):
            session.run(made.write(index, 3.0).flow)
        with pytest.raises(TensorBowError):
            session.run(made.write(0, 1.0).read(index))


def test_an_element_that_was_not_written(session):  # testTensorArrayReadOrPackNotAllValuesAvailable*
    made = tb.TensorArray(tb.float32, 3, element_shape=[2]).write(0, tb.constant([1.0, 2.0]))
    with pytest.raises(TensorBowError):
        session.run(made.read(1))


def test_an_element_that_is_written_twice(session):  # testTensorArrayWriteMultipleFails
    made = tb.TensorArray(tb.float32, 3).write(2, 3.0)
    with pytest.raises(TensorBowError, match="2"):
        session.run(made.write(2, 4.0).flow)


def test_concat_of_shapes_that_do_not_fit(session):  # testTensorArrayConcatIncompatibleShapesFails
    made = tb.TensorArray(tb.float32, 3, infer_shape=False)
    scalars = made.write(0, 3.0).write(1, 3.0).write(2, 3.0)
    with pytest.raises(TensorBowError):
        session.run(scalars.concat())
    other = tb.TensorArray(tb.float32, 2, infer_shape=False).write(0, [[1.0, 2.0]]).write(1, [[1.0]])
    with pytest.raises(TensorBowError):
        session.run(other.concat())


def test_split_by_lengths_that_do_not_fit(session):  # testTensorArraySplitIncompatibleShapesFails
    lengths = tb.placeholder(tb.int64, [None])
    made = tb.TensorArray(tb.float32, 3, infer_shape=False)
    for given in ([1], [1, 2, 3]):
        with pytest.raises(TensorBowError):
            session.run(made.split(tb.constant([1.0, 2.0, 3.0]), lengths).flow, {lengths: given})
    with pytest.raises(TensorBowError):
        session.run(made.split(tb.constant(1.0), lengths).flow, {lengths: [1]})


def test_shapes_are_inferred_from_the_first_write(graph):  # testWriteShape, testPartlyUnknownShape
    made = tb.TensorArray(tb.float32, 0, dynamic_size=True, infer_shape=True)
    made = made.write(0, tb.constant([4.0, 5.0]))
    assert made.read(0).shape.as_list() == [2]
    with pytest.raises((TensorBowError, ValueError)):
        made.write(1, tb.constant([3.0]))
    partly = tb.TensorArray(tb.float32, 3)
    partly = partly.write(0, tb.placeholder(tb.float32, [None, None, None, 3]))
    assert partly.read(0).shape.as_list() == [None, None, None, 3]
    free = tb.TensorArray(tb.float32, 3, infer_shape=False).write(0, tb.constant([4.0]))
    assert free.read(0).shape.ndims is None


def test_shapes_of_unstacked_split_and_stacked_arrays(
    graph,
):  # testUnpackShape, testSplitShape, testStackShape
    rows = tb.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    unstacked = tb.TensorArray(tb.float32, 2).unstack(rows)
    assert unstacked.read(0).shape.as_list() == [3]
    assert unstacked.stack().shape.as_list() in ([2, 3], [None, 3])
    split = tb.TensorArray(tb.float32, 2).split(rows, [1, 1])
    assert split.read(0).shape.as_list() == [1, 3]


def test_an_element_may_be_read_twice(session):  # testTensorArrayReadTwice
    made = tb.TensorArray(tb.float32, 3, clear_after_read=False).unstack(tb.constant([1.0, 2.0, 3.0]))
    assert session.run([made.read(0), made.read(0)]) == [1.0, 1.0]


def test_sizes(session):  # testSizeTensorArray, testTensorArrayUnpackDynamic
    assert session.run(tb.TensorArray(tb.float32, 3).size()) == 3
    made = tb.TensorArray(tb.float32, 3, dynamic_size=True).unstack(tb.constant([1.0, 2.0, 3.0]))
    grown = made.write(5, 4.0).write(3, 1.0).write(4, 2.0)
    assert session.run(grown.size()) == 6
    np.testing.assert_array_equal(session.run(grown.stack()), [1, 2, 3, 1, 2, 4])


def test_closing(session):  # testCloseTensorArray, testWriteCloseTensorArray
    made = array(3.0, 4.0)
    session.run(made.close())


# Loops --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic_size", [False, True])
def test_a_loop_writes_and_the_gradient_comes_back(session, dynamic_size):  # testWhileLoopWritePackGradients
    x, v = tb.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), tb.Variable([0.5, 2.0])
    session.run(v.initializer)
    made = tb.TensorArray(tb.float32, 0 if dynamic_size else 3, dynamic_size=dynamic_size)

    def body(i, state, written):
        state = state + x[i] * v
        return i + 1, state, written.write(i, state)

    _, last, written = tb.while_loop(
        lambda i, s, w: i < 3, body, [tb.constant(0), tb.zeros([2]), made], parallel_iterations=3
    )
    states = np.cumsum([[0.5, 4.0], [1.5, 8.0], [2.5, 12.0]], 0)
    np.testing.assert_allclose(session.run(written.stack()), states)
    np.testing.assert_allclose(session.run(last), states[-1])
    (slope,) = tb.gradients(tb.reduce_sum(written.stack()), v)
    np.testing.assert_allclose(session.run(slope), [3 * 1 + 2 * 3 + 5, 3 * 2 + 2 * 4 + 6])


def test_a_loop_reads_an_array_from_outside(session):
    rows = tb.TensorArray(tb.float32, 3).unstack(tb.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    _, total = tb.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t + rows.read(i)), [0, tb.zeros([2])])
    np.testing.assert_array_equal(session.run(total), [9, 12])


def test_two_loops_in_series_share_an_array(session):  # testGradSerialTwoLoops
    x = tb.placeholder(tb.float32, [], name="x")
    made = tb.TensorArray(tb.float32, 5, clear_after_read=False).write(0, 1.0)

    def write(i, w):
        return i + 1, w.write(i + 1, w.read(i) * x)

    i, made = tb.while_loop(lambda i, w: i < 2, write, [tb.constant(0), made])
    _, made = tb.while_loop(lambda i, w: i < 4, write, [i, made])
    (slope,) = tb.gradients(made.read(4), x)
    assert session.run([made.read(4), slope], {x: 2.0}) == [16.0, 32.0]


def test_an_array_in_a_nested_loop(session):
    made = tb.TensorArray(tb.int32, 6)

    def outer(i, w):
        return i + 1, tb.while_loop(
            lambda j, u: j < 3, lambda j, u: (j + 1, u.write(i * 3 + j, i * j)), [0, w]
        )[1]

    _, made = tb.while_loop(lambda i, w: i < 2, outer, [0, made])
    np.testing.assert_array_equal(session.run(made.stack()), [0, 0, 0, 0, 1, 2])


# Gradients ----------------------------------------------------------------------------------------------


def test_the_gradient_of_writes_and_reads(session):  # testTensorArrayGradientWriteRead
    values = [tb.constant(3.0), tb.constant(4.0), tb.constant(5.0)]
    made = tb.TensorArray(tb.float32, 3)
    for number, value in enumerate(values):
        made = made.write(number, value)
    y = [made.read(0), made.read(1), made.read(2), made.read(0)]  # the first one twice
    slopes = tb.gradients(y, values, grad_ys=[tb.constant(g) for g in (2.0, 3.0, 4.0, 10.0)])
    assert session.run(slopes) == [12.0, 3.0, 4.0]


def test_the_gradient_of_stack_and_of_concat(session):  # testTensorArrayGradientWritePackConcatAndRead
    a, b = tb.constant([-1.0, 1.0]), tb.constant([-10.0, 10.0])
    made = tb.TensorArray(tb.float32, 2, clear_after_read=False).write(0, a).write(1, b)
    y = [made.read(0), made.stack(), made.concat()]
    grads = [
        tb.constant([20.0, 30.0]),
        tb.constant([[2.0, 3.0], [4.0, 5.0]]),
        tb.constant([6.0, 7.0, 8.0, 9.0]),
    ]
    got = session.run(tb.gradients(y, [a, b], grad_ys=grads))
    np.testing.assert_array_equal(got, [[28, 40], [12, 14]])


def test_the_gradient_of_unstack(session):  # testTensorArrayGradientUnpackRead
    value = tb.constant([[1.0, -1.0], [10.0, -10.0]])
    made = tb.TensorArray(tb.float32, 2, clear_after_read=False).unstack(value)
    y = [made.read(0), made.read(0), made.read(1)]
    grads = [tb.constant([2.0, 3.0]), tb.constant([-1.5, 1.5]), tb.constant([4.0, 5.0])]
    np.testing.assert_array_equal(session.run(tb.gradients(y, value, grad_ys=grads)[0]), [[0.5, 4.5], [4, 5]])


def test_the_gradient_of_split_and_concat(session):  # testTensorArrayGradientSplitConcat
    value = tb.constant([[1.0, -1.0], [10.0, -10.0], [100.0, -100.0]])
    made = tb.TensorArray(tb.float32, 2, infer_shape=False).split(value, [2, 1])
    y = made.concat()
    grads = [[2.0, -2.0], [20.0, -20.0], [200.0, -200.0]]
    (slope,) = tb.gradients(y, value, grad_ys=[tb.constant(grads)])
    np.testing.assert_array_equal(session.run(slope), grads)


def test_the_gradient_of_gather_and_scatter(session):
    value = tb.constant([[1.0, -1.0], [10.0, -10.0]])
    made = tb.TensorArray(tb.float32, 6, clear_after_read=False).scatter([1, 5], value)
    y = made.gather([5, 1, 5])
    (slope,) = tb.gradients(tb.reduce_sum(y * y), value)
    np.testing.assert_array_equal(session.run(slope), [[2, -2], [40, -40]])


def test_an_element_that_nothing_read_has_gradient_zero(session):  # testTensorArrayLastGrad-like
    a, b = tb.constant(1.0), tb.constant(2.0)
    made = tb.TensorArray(tb.float32, 2).write(0, a).write(1, b)
    slopes = tb.gradients(made.read(1) * 3.0, [a, b])
    assert slopes[0] is None or session.run(slopes[0]) == 0.0
    assert session.run(slopes[1]) == 3.0


def test_the_sum_of_two_reads(session):  # testSumOfTwoReadVariablesWithoutRepeatGrad
    a, b = tb.constant(2.0), tb.constant(3.0)
    made = tb.TensorArray(tb.float32, 2, clear_after_read=False).write(0, a).write(1, b)
    y = made.read(0) * made.read(1) + made.read(1)
    assert session.run(tb.gradients(y, [a, b])) == [3.0, 3.0]


def test_several_arrays_keep_apart(session):  # testMultiTensorArray
    one, two = array(10.0), array(1.0)
    assert session.run(one.read(0) + two.read(0)) == 11.0


@pytest.mark.parametrize("bad", [{"size": None}, {"size": [1, 2]}, {"size": -1}], ids=str)
def test_sizes_that_are_refused(session, bad):
    with pytest.raises((TensorBowError, InvalidArgumentError)):
        session.run(tb.TensorArray(tb.float32, **bad).size())
