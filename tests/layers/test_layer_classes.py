"""Layers as objects: variables that calls share, their names, arguments of calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tests.ops_contract.sample import normal

pytestmark = pytest.mark.usefixtures("session")


def test_calls_share_variables_wherever_they_are(session: tb.Session) -> None:
    x = tb.constant(normal(4, 3))
    layer = tb.layers.Dense(2, activation=tb.nn.relu, kernel_regularizer=tb.layers.l2_regularizer(0.1))
    assert (layer.built, layer.variables) == (False, [])
    with pytest.raises(FailedPreconditionError, match=r"Dense\.name: call the layer before"):
        _ = layer.name
    with tb.variable_scope("model"):
        first = layer(x)
    with tb.variable_scope("elsewhere"):
        second = layer.apply(2.0 * x)
    assert [v.name for v in layer.variables] == ["model/dense/kernel:0", "model/dense/bias:0"]
    assert (layer.name, layer.scope_name, layer.built) == ("dense", "model/dense", True)
    assert layer.trainable_weights == [layer.kernel, layer.bias] == tb.trainable_variables()
    assert len(tb.get_collection(tb.GraphKeys.REGULARIZATION_LOSSES)) == 1
    session.run(tb.global_variables_initializer())
    one, two, w, b, given = session.run([first, second, layer.kernel, layer.bias, x])
    np.testing.assert_allclose(one, np.maximum(given @ w + b, 0), rtol=1e-5)
    np.testing.assert_allclose(two, np.maximum(2 * given @ w + b, 0), rtol=1e-5)
    with pytest.raises(AttributeError, match="a Dense has no attribute 'gamma'"):
        _ = layer.gamma


def test_names_are_those_of_functions() -> None:
    x = tb.zeros([2, 8, 8, 3])
    tb.layers.conv2d(x, 4, 3)
    layers = [tb.layers.Conv2D(4, 3), tb.layers.Conv2D(4, 3), tb.layers.Conv2D(4, 3, name="own")]
    for layer in layers:
        layer(x)
    tb.layers.conv2d(x, 4, 3)
    assert [layer.name for layer in layers] == ["conv2d_1", "conv2d_2", "own"]
    kernels = [v.name for v in tb.global_variables() if "kernel" in v.name]
    assert kernels == [f"{name}/kernel:0" for name in ("conv2d", "conv2d_1", "conv2d_2", "own", "conv2d_3")]


def test_arguments_of_calls(session: tb.Session) -> None:
    norm = tb.layers.BatchNormalization(momentum=0.5)
    x = tb.constant(normal(6, 3) + 4)
    trained, plain = norm(x, training=True), norm(x)
    assert [v.op.name.rpartition("/")[2] for v in norm.non_trainable_variables] == [
        "moving_mean",
        "moving_variance",
    ]
    session.run(tb.global_variables_initializer())
    session.run(tb.get_collection(tb.GraphKeys.UPDATE_OPS))
    np.testing.assert_allclose(session.run(trained).mean(0), np.zeros(3), atol=1e-5)
    np.testing.assert_allclose(*session.run([norm.moving_mean, tb.reduce_mean(x, 0) / 2.0]), rtol=1e-5)
    assert abs(session.run(plain).mean()) > 1
    drop = tb.layers.Dropout(0.5)
    assert session.run(drop(x)).all()
    assert not session.run(drop(x, training=True)).all()


CASES: dict[str, tuple[tuple[Any, ...], tuple[int, ...]]] = {
    "Conv1D": ((2, 3), (2, 8, 3)),
    "Conv2DTranspose": ((2, 3), (2, 4, 5, 3)),
    "Conv3D": ((2, 3), (1, 4, 5, 6, 3)),
    "Conv3DTranspose": ((2, 3), (1, 3, 4, 5, 3)),
    "SeparableConv2D": ((2, 3), (2, 6, 7, 3)),
    "Flatten": ((), (2, 3, 4)),
    **{
        f"{kind}Pooling{n}D": ((2, 2), (2, *(4, 6, 8)[:n], 3))
        for kind in ("Max", "Average")
        for n in (1, 2, 3)
    },
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_each_is_its_function(session: tb.Session, name: str) -> None:
    arguments, shape = CASES[name]
    x = tb.constant(normal(*shape))
    layer = getattr(tb.layers, name)(*arguments)
    function = type(layer)._function
    assert getattr(tb.layers, function.__name__) is function
    result = layer(x)
    again = (
        function(x, *arguments, name=layer.name, reuse=True) if layer.variables else function(x, *arguments)
    )
    session.run(tb.global_variables_initializer())
    np.testing.assert_array_equal(*session.run([result, again]))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="'size'"):
        tb.layers.Dense(2, size=3)
    with pytest.raises(TypeError, match="units"):
        tb.layers.Dense()


def test_a_layer_in_another_graph_has_other_variables() -> None:
    layer = tb.layers.Dense(2)
    layer(tb.zeros([1, 3]))
    with tb.Graph().as_default() as other:
        layer(tb.zeros([1, 4]))
        assert layer.kernel.graph is other


def test_two_layers_of_one_name_share_nothing_unasked():
    x = tb.ones([2, 3])
    layer = tb.layers.Dense(2, name="own")
    layer(layer(x)[:, :1] * tb.ones([1, 3]))
    with pytest.raises(InvalidArgumentError, match="own/kernel"):
        tb.layers.Dense(2, name="own")(x)
    shared = tb.layers.Dense(2, name="own", reuse=True)
    shared(x)
    assert shared.variables == layer.variables


def test_a_layer_whose_name_has_scopes_and_one_of_another_graph():
    layer = tb.layers.Dense(2, name="block/d")
    layer(tb.ones([2, 3]))
    assert layer.kernel.op.name == "block/d/kernel"
    other = tb.Graph()
    with other.as_default():
        x = tb.ones([2, 3])
    layer = tb.layers.Dense(2)
    layer(x)
    assert len(layer.variables) == 2
    assert layer.kernel.graph is other
