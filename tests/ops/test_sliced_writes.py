"""`v[1:3].assign(value)`: program order, shapes, refusals; dtypes that no arithmetic has."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_a_slice_is_assigned_in_program_order():
    v = tb.Variable(X)
    before = tb.identity(v[1])
    row = v[1].assign([9.0, 8, 7, 6])
    with tb.control_dependencies([row]):
        corner = v[-1:, tb.constant(2) :].assign(v[0:1, 2:] * 10.0)
    after = tb.identity(v)
    with tb.Session() as session:
        session.run(v.initializer)
        old, new, read = session.run([before, corner, after])
    expected = X.copy()
    expected[1], expected[2, 2:] = [9, 8, 7, 6], [20, 30]
    np.testing.assert_array_equal(old, X[1])
    np.testing.assert_array_equal(new, expected)
    np.testing.assert_array_equal(read, expected)


def test_scalars_strides_and_other_dtypes():
    flags, counts = tb.Variable([False] * 5), tb.Variable(tb.zeros([2, 3], tb.uint16))
    sets = [
        flags[::-2].assign(True),
        counts[..., 1].assign(7),
        tb.strided_slice(counts, [0], [1]).assign([[1, 2, 3]]),
    ]
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        for each in sets:
            session.run(each)
        assert session.run(flags).tolist() == [True, False, True, False, True]
        assert session.run(counts).tolist() == [[1, 2, 3], [0, 7, 0]]


def test_refusals():
    v, rows = tb.Variable(X), tb.placeholder(tb.int32, [None])
    with pytest.raises(
        InvalidArgumentError, match=r"value is float32\[2\], expected float32\[4\], the slice"
    ):
        v[1].assign([1.0, 2.0])
    for other in (v * 2.0, tb.constant(X)[1], v[rows]):
        with pytest.raises(InvalidArgumentError, match="assign: expected a slice of a variable with numbers"):
            other.assign(1.0)
    with pytest.raises(InvalidArgumentError, match="cannot become float32"):
        v[1].assign("text")
