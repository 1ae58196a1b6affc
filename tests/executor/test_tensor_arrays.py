"""TensorArray, map_fn, foldl, foldr and scan: TensorFlow 1's documented cases, in both modes."""

import re

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError


@pytest.fixture(autouse=True, params=[False, True], ids=["dynamic", "compiled"])
def session(request):
    """compiled: loops of a known number of iterations are unrolled, and arrays are plain values."""
    with tb.Graph().as_default(), tb.Session(config=tb.ConfigProto(compiles_loops=request.param)) as session:
        yield session


def slope(function, at, step=1e-5):
    return (function(at + step) - function(at - step)) / (2 * step)


def test_elements_are_written_and_read(session):
    x = tb.placeholder(tb.float64, [2])
    array = tb.TensorArray(tb.float64, 3).write(0, x).write(2, x * 3.0).write(1, x * 2.0)
    found = session.run(
        [array.read(1), array.stack(), array.gather([2, 0]), array.size(), array.concat()], {x: [1, 2]}
    )
    for value, expected in zip(
        found, ([2, 4], [[1, 2], [2, 4], [3, 6]], [[3, 6], [1, 2]], 3, [1, 2, 2, 4, 3, 6]), strict=True
    ):
        np.testing.assert_array_equal(value, expected)


def test_rows_are_scattered_and_an_array_grows(session):
    x = tb.placeholder(tb.float64, [3, 2])
    array = tb.TensorArray(tb.float64, dynamic_size=True).unstack(x).write(4, x[0]).scatter([3], x[:1] * 2.0)
    np.testing.assert_array_equal(
        session.run(array.stack(), {x: np.eye(3, 2)}), [[1, 0], [0, 1], [0, 0], [2, 0], [1, 0]]
    )


def test_a_loop_without_iterations_gives_no_rows(session):
    """The shape of the elements is that of the write in the loop's body."""
    x = tb.placeholder(tb.float64, [None, 2])
    count = tb.shape(x)[0]
    _, array = tb.while_loop(
        lambda i, a: i < count,
        lambda i, a: (i + 1, a.write(i, x[i] * 2.0)),
        [0, tb.TensorArray(tb.float64, count)],
    )
    rows = array.stack()
    assert (array.element_shape, rows.shape.as_list()) == ((2,), [None, 2])
    (slope_,) = tb.gradients(rows * rows, x)
    for value in (np.ones((0, 2)), np.eye(3, 2)):
        found, g = session.run([rows, slope_], {x: value})
        np.testing.assert_array_equal(found, 2 * value)
        np.testing.assert_array_equal(g, 8 * value)


def test_elements_of_different_lengths_are_joined_and_split(session):
    x, lengths = tb.placeholder(tb.float64, [4, 2]), tb.placeholder(tb.int32, [3])
    written = tb.TensorArray(tb.float64, 2, element_shape=[None, 2]).write(1, x[:1]).write(0, x[1:] * 2.0)
    split = tb.TensorArray(tb.float64, 3).split(x, lengths)
    grown = tb.TensorArray(tb.float64, dynamic_size=True).split(x, [1, 3]).write(2, x[:2])
    joined = grown.concat()
    y = tb.reduce_sum(joined * joined) + tb.reduce_sum(split.read(2) * 3.0) + tb.reduce_sum(written.concat())
    value = np.arange(8.0).reshape(4, 2)
    found = session.run(
        [written.concat(), split.read(0), split.read(1), split.concat(), joined, tb.gradients(y, x)[0]],
        {x: value, lengths: [0, 3, 1]},
    )
    expected = value * 2 + np.array([[1.0], [2], [2], [2]])
    expected[:2] += value[:2] * 2
    expected[3] += 3
    for got, other in zip(
        found,
        ([*value[1:] * 2, value[0]], value[:0], value[:3], value, [*value, *value[:2]], expected),
        strict=True,
    ):
        np.testing.assert_array_equal(got, other)
    nothing = tb.TensorArray(tb.float64, 0, element_shape=[None, 5]).concat()
    assert session.run(nothing).shape == (0, 5)


def test_gradients_of_arrays_add_up_by_element(session):
    x = tb.placeholder(tb.float64, [3, 2])
    array = tb.TensorArray(tb.float64, 4).unstack(x[:2] * 1.0).write(3, tb.square(x[2]))
    y = (
        tb.reduce_sum(array.read(0) * array.read(0) * array.read(1))
        + tb.reduce_sum(array.gather([3, 3])) * 5.0
    )
    value = np.array([[1.0, 2], [3, 4], [5, 6]])
    expected = [value[0] * value[1] * 2, value[0] ** 2, value[2] * 20]
    np.testing.assert_allclose(session.run(tb.gradients(y, x)[0], {x: value}), expected)


def test_a_loop_writes_an_array_and_its_gradient_reads_it(session):
    x = tb.placeholder(tb.float64, [])
    n = 5

    def body(i, array, t):
        t = t * x + 1.0
        return i + 1, array.write(i, t), t

    array = tb.TensorArray(tb.float64, n, element_shape=[])
    stacked = tb.while_loop(lambda i, a, t: i < n, body, [0, array, x])[1].stack()
    y = tb.reduce_sum(stacked * tb.constant([1.0, -2, 3, -4, 5], tb.float64))

    def plain(x):
        t, total = x, 0.0
        for weight in (1.0, -2, 3, -4, 5):
            t = t * x + 1
            total += weight * t
        return total

    found, gradient = session.run([y, tb.gradients(y, x)[0]], {x: 0.8})
    assert found == pytest.approx(plain(0.8))
    assert gradient == pytest.approx(slope(plain, 0.8), rel=1e-6)


def test_refused_uses_of_arrays(session):
    x = tb.placeholder(tb.float64, [2])
    length = tb.cast(tb.reduce_sum(x) - 1, tb.int32)  # 2 of what is fed

    def two():
        return tb.TensorArray(tb.float64, 2)

    for build, words in (
        (lambda: two().write(2, x).stack(), "index 2 is not in [0, 2)"),
        (lambda: two().write(0, x).write(0, x).read(0), "element 0 is written twice"),
        (lambda: two().write(0, x).stack(), "element 1 of 2 is read before it is written"),
        (lambda: tb.TensorArray(tb.float64, -length).size(), "size is -2, expected at least 0"),
        (lambda: two().split(x, [2, 1]).concat(), "lengths are [2, 1], expected at least 0 and a sum of 2"),
        (lambda: two().split(x, [1, 1, 0]).concat(), "3 lengths for 2 elements"),
    ):
        fetched = build()
        with pytest.raises(InvalidArgumentError, match=re.escape(words) + r"(.|\n)*made at .*lambda"):
            session.run(fetched, {x: [1, 2]})
    for build, words in (
        (lambda: tb.TensorArray(tb.float64), "give size"),
        (lambda: tb.TensorArray(tb.float64, -1), "expected size to be a whole number from 0 to"),
        (lambda: two().write(0, tb.constant(1)), "use tb.cast"),
        (lambda: two().write(0, x).write(1, x[:1]), "give infer_shape=False"),
        (lambda: two().unstack(tb.constant(1.0, tb.float64)), "expected rows"),
        (lambda: two().split(tb.constant(1.0, tb.float64), [1]), "expected rows"),
        (lambda: two().split(x, [0.5, 1.5]), "expected an integer vector"),
        (
            lambda: tb.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a.stack()), [0, two()]),
            "return the array after its writes",
        ),
    ):
        with pytest.raises(InvalidArgumentError, match=re.escape(words)):
            build()


# Loops over rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
def test_map_fn(session, known):
    x = tb.placeholder(tb.float64, [3 if known else None, 2])
    y = tb.map_fn(lambda row: tb.sin(row) * row[0], x)
    several = tb.map_fn(
        lambda rows: (rows[0] + rows[1], tb.reduce_sum(rows[0]) > 2.0), (x, x * x), (tb.float64, tb.bool)
    )
    value = np.array([[1.0, 2], [3, -4], [0.5, 6]])
    found = session.run([y, *several, tb.gradients(y, x)[0]], {x: value})
    np.testing.assert_allclose(found[0], np.sin(value) * value[:, :1])
    np.testing.assert_allclose(found[1], value + value**2)
    np.testing.assert_array_equal(found[2], value.sum(1) > 2)
    expected = np.cos(value) * value[:, :1]
    expected[:, 0] += np.sin(value).sum(1)
    np.testing.assert_allclose(found[3], expected)
    if known:
        assert y.shape == [3, 2]


def test_folds_and_scans(session):
    x = tb.placeholder(tb.float64, [4])
    value = np.array([2.0, 3, 5, 7])
    found = session.run(
        [
            tb.foldl(lambda a, b: a - b, x),
            tb.foldr(lambda a, b: a - b, x),
            tb.foldl(lambda a, b: a * 2.0 + b, x, tb.constant(1.0, tb.float64)),
            tb.scan(lambda a, b: a + b, x),
            tb.scan(lambda a, b: a + b, x, reverse=True),
            tb.scan(
                lambda a, b: (a[0] + b, a[1] * b),
                x,
                (tb.constant(0.0, tb.float64), tb.constant(1.0, tb.float64)),
            )[1],
        ],
        {x: value},
    )
    for a, b in zip(
        found,
        (
            -13,
            7 - 5 - 3 - 2,
            16 + 16 + 12 + 10 + 7,
            value.cumsum(),
            value[::-1].cumsum()[::-1],
            value.cumprod(),
        ),
        strict=True,
    ):
        np.testing.assert_allclose(a, b)


def test_gradient_of_a_scan(session):
    x = tb.placeholder(tb.float64, [4])
    y = tb.reduce_sum(tb.scan(lambda a, b: a * b, x))
    value = np.array([2.0, 3, 5, 7])
    (gradient,) = session.run(tb.gradients(y, x), {x: value})
    expected = [slope(lambda t, i=i: np.cumprod(value + t * np.eye(4)[i]).sum(), 0.0) for i in range(4)]
    np.testing.assert_allclose(gradient, expected, rtol=1e-7)


def test_refused_rows():
    x = tb.placeholder(tb.float64, [4])
    for build, words in (
        (lambda: tb.map_fn(lambda a: a, tb.constant(1.0)), "elems has a scalar"),
        (lambda: tb.map_fn(lambda a: a[0], (x, x[:3])), "elems have 3 and 4 rows"),
        (lambda: tb.map_fn(lambda a: a > 1.0, x), "give dtype"),
        (lambda: tb.foldl(lambda a, b: (a, b), x), "fn returns 2 values, expected 1"),
        (lambda: tb.scan(lambda a, b: a, []), "elems is empty"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            build()


@pytest.mark.slow
@pytest.mark.parametrize("time_major", [False, True])
def test_dynamic_rnn_over_an_unknown_number_of_steps(session, time_major):
    """Outputs, state and gradients are those of the unrolled network."""
    value = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
    if time_major:
        value = value.transpose(1, 0, 2)
    loose = tb.placeholder(tb.float32, [None if n == 5 else n for n in value.shape])
    known, lengths = tb.placeholder(tb.float32, value.shape), tb.placeholder(tb.int32, [2])
    cell, found = tb.nn.rnn_cell.BasicLSTMCell(4), []
    for x, reuse in ((loose, False), (known, True)):
        with tb.variable_scope(tb.get_variable_scope(), reuse=reuse):
            outputs, state = tb.nn.dynamic_rnn(cell, x, lengths, dtype=tb.float32, time_major=time_major)
        loss = tb.reduce_sum(tb.square(outputs)) + tb.reduce_sum(state[0])
        found.append([outputs, *state, *tb.gradients(loss, [x, *tb.trainable_variables()])])
    session.run(tb.global_variables_initializer())
    for count in (5, 1):
        part = value[:count] if time_major else value[:, :count]
        feeds = {loose: part, known: np.zeros_like(value), lengths: [count, 1]}
        feeds[known][tuple(map(slice, part.shape))] = part
        a, b = session.run(found, feeds)
        for one, other in zip(a, b, strict=True):
            np.testing.assert_allclose(one, other[tuple(map(slice, one.shape))], rtol=1e-5, atol=1e-6)


def test_an_array_by_the_handle_and_flow_of_another(session):
    first = tb.TensorArray(tb.float32, 2, False, True, "own").write(0, 1.0)
    assert first.handle.op.name.startswith("own/")
    again = tb.TensorArray(tb.float32, handle=first.handle, flow=first.flow).write(1, 2.0)
    assert session.run(again.stack()).tolist() == [1.0, 2.0]
    with pytest.raises(InvalidArgumentError, match="give both, and no size"):
        tb.TensorArray(tb.float32, handle=first.handle)
