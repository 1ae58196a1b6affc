"""Lists of variables and initialisers under TensorFlow 1's other names; other newly known names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")


def test_variables_under_other_names(session: tb.Session) -> None:
    v = tb.Variable([1.0, 2.0])
    local = tb.get_local_variable(
        "count", [], tb.int32, initializer=tb.zeros_initializer(), collections=["own"]
    )
    averages = tb.train.ExponentialMovingAverage(0.5)
    averages.apply([v])
    assert tb.all_variables() == tb.global_variables()
    assert (tb.local_variables(), tb.get_collection("own"), tb.trainable_variables()) == (
        [local],
        [local],
        [v],
    )
    assert tb.moving_average_variables() == [v]
    session.run([tb.initialize_all_variables(), tb.initialize_local_variables()])
    assert session.run(local) == 0
    session.run(v.assign([3.0, 4.0]))
    session.run(tb.initialize_variables([v]))
    np.testing.assert_array_equal(session.run(v), [1, 2])


def test_a_global_step_in_a_session(session: tb.Session) -> None:
    step = tb.train.create_global_step()
    session.run(step.assign(5))
    assert tb.train.global_step(session, step) == 5
    with pytest.raises(InvalidArgumentError, match="global_step: expected sess to be a session"):
        tb.train.global_step(None, step)


def test_positions_and_convolutions_under_older_names(session: tb.Session) -> None:
    x = np.array([[3, 1, 2], [0, 5, -1]])
    assert session.run([tb.arg_max(x, 1), tb.arg_min(x, dimension=0)])[0].tolist() == [0, 1]
    assert tb.arg_min(x, 0, tb.int32).dtype is tb.int32
    assert session.run(tb.arg_min(x, 0)).tolist() == [1, 0, 1]
    images = np.arange(50, dtype=np.float32).reshape(1, 5, 5, 2)
    filters = np.ones((2, 2, 2, 1), np.float32)
    native = tb.nn.depthwise_conv2d_native(images, filters, [1, 1, 1, 1], "VALID", dilations=[1, 2, 2, 1])
    plain = tb.nn.depthwise_conv2d(images, filters, [1, 1, 1, 1], "VALID", rate=[2, 2])
    np.testing.assert_array_equal(*session.run([native, plain]))


def test_unconnected_gradients() -> None:
    x, y = tb.constant([1.0, 2.0]), tb.constant(3.0)
    assert tb.gradients(y, x, unconnected_gradients=tb.UnconnectedGradients.NONE) == [None]
    (zeros,) = tb.gradients(y, x, unconnected_gradients=tb.UnconnectedGradients.ZERO)
    assert zeros.shape == [2]


@pytest.mark.parametrize("value", [1.5, [[1, 2], [3, 4]], "text", [b"a", b"b"], np.zeros((0, 2), np.int8)])
def test_messages_of_tensors(value: Any) -> None:
    pytest.importorskip("google.protobuf")
    again = tb.make_ndarray(tb.make_tensor_proto(value))
    expected = np.array(value)
    assert again.shape == expected.shape
    text = value.encode() if isinstance(value, str) else value
    assert again.tolist() == np.array(text, object if expected.dtype.kind in "SU" else None).tolist()


def test_shapes_of_messages() -> None:
    pytest.importorskip("google.protobuf")
    message = tb.make_tensor_proto(2, tb.float32, shape=[2, 3])
    np.testing.assert_array_equal(tb.make_ndarray(message), np.full((2, 3), 2, np.float32))
    assert tb.make_ndarray(tb.make_tensor_proto([1, 2, 3, 4], shape=[2, 2])).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InvalidArgumentError, match="expected shape to be one of 3 elements"):
        tb.make_tensor_proto([1, 2, 3], shape=[2, 2])
    with pytest.raises(InvalidArgumentError, match="a TensorProto"):
        tb.make_ndarray([1.0])
