"""Results with names, and arguments of TensorFlow's that programs give."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError


@pytest.fixture(autouse=True)
def session():
    with tb.Graph().as_default(), tb.Session() as session:
        yield session


def test_results_have_names(session):
    greatest = tb.nn.top_k([1.0, 3.0, 2.0], 2)
    unique, counted = tb.unique([5, 5, 4]), tb.unique_with_counts([5, 5, 4])
    left = tb.setdiff1d([1, 2, 3], [2])
    assert session.run([greatest.values, greatest.indices])[1].tolist() == [1, 2]
    found = session.run({"u": unique, "c": counted, "l": left})
    assert (found["u"].y.tolist(), found["u"].idx.tolist()) == ([5, 4], [0, 0, 1])
    assert found["c"].count.tolist() == [2, 1]
    assert (found["l"].out.tolist(), found["l"].idx.tolist()) == ([1, 3], [0, 2])


def test_an_array_by_the_handle_and_flow_of_another(session):
    first = tb.TensorArray(tb.float32, 2, False, True, "own").write(0, 1.0)
    assert first.handle.op.name.startswith("own/")
    again = tb.TensorArray(tb.float32, handle=first.handle, flow=first.flow).write(1, 2.0)
    assert session.run(again.stack()).tolist() == [1.0, 2.0]
    with pytest.raises(InvalidArgumentError, match="give both, and no size"):
        tb.TensorArray(tb.float32, handle=first.handle)


def test_older_names_of_the_axes_of_sequences(session):
    x = tb.constant([[1, 2, 3], [4, 5, 6]])
    turned = tb.reverse_sequence(x, [2, 3], seq_dim=1, batch_dim=0)
    assert session.run(turned).tolist() == [[2, 1, 3], [6, 5, 4]]


def test_zeros_for_what_a_result_does_not_depend_on(session):
    x, other = tb.constant([1.0, 2.0]), tb.constant([[3.0]])
    assert tb.gradients(x * x, [other]) == [None]
    found = tb.gradients(x * x, [x, other], unconnected_gradients="zero")
    assert [each.tolist() for each in session.run(found)] == [[2.0, 4.0], [[0.0]]]


def test_assignments_take_use_locking(session):
    v = tb.Variable(1.0)
    session.run(v.initializer)
    session.run(tb.assign(v, 5.0, validate_shape=True, use_locking=True))
    session.run(tb.assign_add(v, 2.0, use_locking=True))
    assert session.run(v.assign_sub(1.0, use_locking=False)) == 6.0


def test_a_gradient_is_not_registered_for_an_op_that_is_there():
    with pytest.raises(InvalidArgumentError, match="got the op Sub, whose gradient is in its definition"):
        tb.RegisterGradient("Sub")


def test_colocation_groups():
    leader = tb.constant(1.0, name="leader")
    with tb.colocate_with(leader):
        follower = tb.constant(2.0)
    assert follower.op.colocation_groups() == [b"loc:@leader"]
    assert leader.op.colocation_groups() == [b"loc:@leader"]


def test_a_quotient_is_zero_where_the_divisor_is(session):
    x, y = tb.constant([1.0, 2.0, np.inf]), tb.constant([0.0, 4.0, 0.0])
    quotient = tb.div_no_nan(x, y)
    found, *slopes = session.run([quotient, *tb.gradients(quotient, [x, y])])
    assert found.tolist() == [0.0, 0.5, 0.0]
    assert [each.tolist() for each in slopes] == [[0.0, 0.25, 0.0], [0.0, -0.125, 0.0]]
    assert session.run(tb.lin_space(0.0, 1.0, 3)).tolist() == [0.0, 0.5, 1.0]
