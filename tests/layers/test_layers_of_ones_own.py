"""Layers that a program defines: variables, names, layers within, losses, other graphs, cells."""

from __future__ import annotations

import gc
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError
from tests.ops_contract.sample import normal

pytestmark = pytest.mark.usefixtures("session")


class Scaled(tb.layers.Layer):
    """inputs * scale + shift; the shift is not trained."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.builds = 0

    def build(self, input_shape: Any) -> None:
        self.builds += 1
        width = input_shape[-1].value
        regularizer = tb.layers.l2_regularizer(0.5)
        self.scale = self.add_weight("scale", [width], initializer="ones", regularizer=regularizer)
        self.shift = self.add_variable("shift", trainable=False, initializer=tb.constant_initializer(2.0))
        super().build(input_shape)

    def call(self, inputs: Any, twice: bool = False) -> Any:
        self.add_update(self.shift.assign_add(1.0))
        return inputs * self.scale * (2.0 if twice else 1.0) + self.shift


class MLPBlock(tb.layers.Layer):
    """Layers as objects and as functions, and a variable, within a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = tb.layers.Dense(3, kernel_regularizer=tb.layers.l2_regularizer(0.1))
        self.norm = tb.layers.BatchNormalization()

    def call(self, inputs: Any, training: bool = False) -> Any:
        hidden = self.norm(self.first(inputs), training=training)
        self.add_loss(tb.reduce_sum(tb.abs(hidden)))
        return tb.layers.dense(hidden, 2) * tb.get_variable("gain", [], initializer="ones")


def test_a_layer_is_built_once_and_shares_its_variables(session: tb.Session) -> None:
    x = normal(4, 3)
    layer = Scaled()
    assert (layer.built, layer.variables, layer.losses, layer.updates) == (False, [], [], [])
    with tb.variable_scope("model"):
        first = layer(x)
    second = layer.apply(tb.constant(2 * x), twice=True)
    assert (layer.builds, layer.built, layer.name, layer.scope_name) == (1, True, "scaled", "model/scaled")
    assert layer.variables == layer.weights == [layer.scale, layer.shift]
    assert [v.op.name for v in layer.variables] == ["model/scaled/scale", "model/scaled/shift"]
    assert layer.trainable_variables == [layer.scale] == tb.trainable_variables()
    assert layer.non_trainable_variables == [layer.shift]
    assert layer.count_params() == 4
    assert layer.losses == tb.get_collection(tb.GraphKeys.REGULARIZATION_LOSSES)
    assert len(layer.losses) == 1
    assert layer.updates == tb.get_collection(tb.GraphKeys.UPDATE_OPS)
    assert len(layer.updates) == 2
    assert first.op.name.startswith("model/scaled/")
    session.run(tb.global_variables_initializer())
    assert session.run(layer.losses) == [0.75]
    shift, one = session.run([layer.shift, first])
    np.testing.assert_allclose(one, x + shift, rtol=1e-6)
    shift, two = session.run([layer.shift, second])
    np.testing.assert_allclose(two, 4 * x + shift, rtol=1e-6)
    session.run(layer.updates)
    assert session.run(layer.shift) == shift + 2


def test_each_layer_has_a_name_of_its_own() -> None:
    x = tb.zeros([2, 3])
    layers = [Scaled(), Scaled(), Scaled(name="own"), MLPBlock()]
    for layer in layers:
        layer(x)
    assert [layer.name for layer in layers] == ["scaled", "scaled_1", "own", "mlp_block"]
    with pytest.raises(InvalidArgumentError, match="own/scale"):
        Scaled(name="own")(x)
    shared = Scaled(name="own", _reuse=True)
    shared(x)
    assert shared.variables == layers[2].variables


def test_layers_within_a_layer_belong_to_it(session: tb.Session) -> None:
    block = MLPBlock()
    outputs = [block(normal(5, 4), training=True), block(normal(6, 4))]
    names = [v.op.name for v in block.variables]
    assert names == [
        *(f"mlp_block/{part}" for part in ("dense/kernel", "dense/bias")),
        *(f"mlp_block/batch_normalization/{part}" for part in ("gamma", "beta", "moving_mean")),
        *("mlp_block/batch_normalization/moving_variance", "mlp_block/dense_1/kernel"),
        *("mlp_block/dense_1/bias", "mlp_block/gain"),
    ]
    assert block.variables == tb.global_variables()
    assert [v.op.name for v in block.first.variables] == names[:2]
    assert len(block.losses) == 3  # of the kernel, and of each call
    assert len(block.first.losses) == 1
    assert block.updates == block.norm.updates
    assert len(block.updates) == 2
    session.run(tb.global_variables_initializer())
    assert [value.shape for value in session.run(outputs)] == [(5, 2), (6, 2)]


def test_a_layer_that_is_not_trained() -> None:
    layer = Scaled(trainable=False)
    layer(tb.zeros([2, 3]))
    assert (layer.trainable_variables, tb.trainable_variables()) == ([], [])
    assert layer.non_trainable_variables == layer.variables
    frozen = tb.layers.Dense(2)
    frozen.trainable = False
    frozen(tb.zeros([2, 3]))
    assert (frozen.trainable_weights, len(frozen.variables), tb.trainable_variables()) == ([], 2, [])


def test_dtypes_of_variables() -> None:
    assert Scaled()(tb.zeros([2, 3], tb.float64)).dtype == tb.float64
    wide = Scaled(dtype=tb.float64)

    class Table(tb.layers.Layer):
        """Rows by their numbers."""

        def build(self, input_shape: Any) -> None:
            self.rows = self.add_weight("rows", [5, 2])

        def call(self, inputs: Any) -> Any:
            return tb.gather(self.rows, inputs)

    assert Table()(tb.constant([1, 2])).dtype == tb.float32
    with pytest.raises(InvalidArgumentError, match="float64"):
        wide(tb.zeros([2, 3]))


def test_another_graph_has_variables_of_its_own() -> None:
    layer, x = Scaled(), tb.zeros([2, 3])
    layer(x)
    here = layer.scale
    with tb.Graph().as_default() as other:
        layer(tb.zeros([2, 4]))
        assert (layer.graph, layer.scale.graph, layer.scale.shape) == (other, other, [4])
        assert len(layer.losses) == 1
    layer(x)
    assert (layer.builds, layer.scale) == (3, here)
    assert [v.shape.as_list() for v in layer.variables] == [[3], []]


def test_nests_of_inputs_and_losses_of_outputs(session: tb.Session) -> None:
    class Sum(tb.layers.Layer):
        """The sum of two inputs."""

        def build(self, input_shape: Any) -> None:
            self.shapes = [shape.as_list() for shape in input_shape]

        def call(self, inputs: Any) -> Any:
            return inputs[0] + inputs[1]

    layer = Sum(activity_regularizer=tb.layers.l2_regularizer(1.0))
    total = layer([tb.ones([2, 3]), np.ones((1, 3), np.float32)])
    assert layer.shapes == [[2, 3], [1, 3]]
    assert tb.get_collection(tb.GraphKeys.REGULARIZATION_LOSSES) == layer.losses
    assert session.run([tb.reduce_sum(total), layer.losses]) == [12, [12]]
    layer.add_loss([total[0, 0], None])
    assert len(layer.losses) == 2 == len(tb.get_collection(tb.GraphKeys.REGULARIZATION_LOSSES))


class Elman(tb.nn.rnn_cell.RNNCell):
    """A cell with TensorFlow 1's methods of layers."""

    state_size = output_size = 2

    def build(self, input_shape: Any) -> None:
        self.kernel = self.add_variable("kernel", [input_shape[-1].value + 2, 2])
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        output = tb.tanh(tb.matmul(tb.concat([inputs, state], 1), self.kernel))
        return output, output


@pytest.mark.parametrize("steps", [3, None])
def test_a_cell_is_a_layer(session: tb.Session, steps: int | None) -> None:
    cell = Elman()
    x = tb.placeholder(tb.float32, [2, steps, 4])
    outputs, _ = tb.nn.dynamic_rnn(tb.nn.rnn_cell.MultiRNNCell([cell]), x, dtype=tb.float32)
    assert cell.variables == [cell.kernel] == tb.trainable_variables()
    assert cell.kernel.op.name == "rnn/multi_rnn_cell/cell_0/elman/kernel"
    session.run(tb.global_variables_initializer())
    data, h = normal(2, 3, 4), np.zeros((2, 2), np.float32)
    found, kernel = session.run([outputs, cell.kernel], {x: data})
    for step in range(3):
        h = np.tanh(np.concatenate([data[:, step], h], 1) @ kernel)
        np.testing.assert_allclose(found[:, step], h, rtol=1e-5, atol=1e-6)


def test_variables_of_cells_and_wrappers() -> None:
    cells = [tb.nn.rnn_cell.LSTMCell(3), tb.nn.rnn_cell.GRUCell(2)]
    stack = tb.nn.rnn_cell.DropoutWrapper(tb.nn.rnn_cell.MultiRNNCell(cells), 0.5)
    tb.nn.static_rnn(stack, [tb.zeros([1, 2])], dtype=tb.float32)
    assert [len(each.variables) for each in (*cells, stack)] == [2, 4, 6]
    assert stack.trainable_variables == tb.trainable_variables()


def test_names_and_scopes_of_cells_around_others(session: tb.Session) -> None:
    cell = tb.nn.rnn_cell
    inner = [cell.GRUCell(2), cell.GRUCell(2)]
    residual = cell.ResidualWrapper(inner[1], lambda inputs, outputs: 2 * inputs - outputs)
    stack = cell.MultiRNNCell([cell.DropoutWrapper(inner[0], 0.5), residual])
    device = cell.DeviceWrapper(stack, "/cpu:0")
    assert (residual.name, device.name, device.built) == ("residual_wrapper", "device_wrapper", False)
    with pytest.raises(FailedPreconditionError, match=r"DeviceWrapper\.scope_name: call the layer before"):
        _ = device.scope_name
    state = stack.zero_state(1, tb.float32)
    x = tb.constant(normal(1, 2))
    with tb.variable_scope("model"):
        output, _ = device(x, state)
        cell.MultiRNNCell([cell.GRUCell(2)])(x, stack.zero_state(1)[:1])
    assert (device.scope_name, stack.scope_name) == ("model", "model/multi_rnn_cell")
    assert (stack.name, residual.scope_name) == ("multi_rnn_cell", "model/multi_rnn_cell/cell_1")
    assert all(each.built and each.graph is tb.get_default_graph() for each in (device, stack, residual))
    assert tb.trainable_variables()[-1].op.name == "model/multi_rnn_cell_1/cell_0/gru_cell/candidate/bias"
    before, _ = residual(x, state[1])
    own, _ = inner[1](x, state[1])
    session.run(tb.global_variables_initializer())
    whole, alone, given = session.run([before, own, x])
    np.testing.assert_allclose(whole, 2 * given - alone, rtol=1e-6)
    assert len(device.variables) == 8
    assert output.shape == [1, 2]


def test_a_layer_checks_its_inputs() -> None:
    spec = tb.layers.InputSpec(shape=[None, 3], dtype=tb.float32)
    assert (spec.ndim, spec.min_ndim, spec.axes) == (2, None, {})
    layer = tb.layers.Dense(2, name="own")
    layer.input_spec = spec
    layer(tb.zeros([4, 3]))
    layer(np.zeros([4, 3], np.float32))
    spec.check(tb.placeholder(tb.float32, [None, None]), "own")
    for wrong in (tb.zeros([4, 2]), tb.zeros([3]), tb.zeros([4, 3], tb.float64), tb.placeholder(tb.float32)):
        with pytest.raises(InvalidArgumentError, match=r"own: expected inputs that fit InputSpec\(dtype="):
            layer(wrong)
    for limits, good, bad in (
        ({"min_ndim": 2}, [1, 2, 3], [2]),
        ({"max_ndim": 2}, [], [1, 2, 3]),
        ({"ndim": 1}, [2], [1, 2]),
        ({"axes": {-1: 3, 0: None}}, [5, 3], [3, 5]),
        ({"axes": {1: 3}}, [2, 3, 4], [3]),
    ):
        spec = tb.layers.InputSpec(**limits)
        spec.check(tb.zeros(good), "layer")
        with pytest.raises(InvalidArgumentError, match="layer: expected inputs that fit"):
            spec.check(tb.zeros(bad), "layer")
    tb.layers.InputSpec().check(tb.placeholder(tb.float32), "layer")
    with pytest.raises(InvalidArgumentError, match="expected axes to be a dictionary of extents"):
        tb.layers.InputSpec(axes=[3])


def test_a_layer_of_several_inputs_has_a_specification_for_each() -> None:
    class Added(tb.layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.input_spec = [tb.layers.InputSpec(ndim=shape.ndims) for shape in input_shape]

        def call(self, inputs: Any) -> Any:
            return inputs[0] + inputs[1]

    added = Added()
    added([tb.zeros([2, 3]), tb.zeros([3])])
    with pytest.raises(InvalidArgumentError, match="added: expected inputs that fit"):
        added([tb.zeros([3]), tb.zeros([2, 3])])
    with pytest.raises(InvalidArgumentError, match="added: expected 2 inputs, got 1"):
        added([tb.zeros([2, 3])])


def test_what_a_layer_lacks_is_named() -> None:
    with pytest.raises(UnimplementedError, match=r"Layer: expected a method call\(self, inputs\)"):
        tb.layers.Layer()(tb.zeros([1]))
    for use in (
        lambda: Scaled().add_weight("w"),
        lambda: Scaled().add_loss(tb.zeros([])),
        lambda: Scaled().count_params(),
        lambda: Scaled().name,
    ):
        with pytest.raises(FailedPreconditionError, match=r"Scaled\.\w+: call the layer before"):
            use()
    layer = Scaled()
    layer(tb.zeros([2, 3]))
    with pytest.raises(InvalidArgumentError, match="losses to be a tensor or operation, or a list of them"):
        layer.add_loss("text")
    more = layer.add_weight("more", [2])
    assert more.op.name == "scaled/more"
    assert layer.variables[-1] is more


def test_a_layer_of_replicas() -> None:
    """The layer is made once for the graph of a step, and trained by its replicas."""
    replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2)
    layer = MLPBlock()

    def step(batch: Any) -> Any:
        loss = tb.reduce_mean(tb.square(layer(batch))) + tb.add_n(layer.losses)
        with tb.control_dependencies([replicator.wrap_optimizer(tb.train.AdamOptimizer()).minimize(loss)]):
            return tb.identity(loss)

    with replicator.context():
        found = replicator.run(step, lambda replica_id: iter([normal(4, 3, seed=replica_id)] * 12))
    with tb.train.MonitoredSession() as session:
        replicator.init(session)
        losses = [session.run(found).mean() for _ in range(5)]
    assert losses[-1] < losses[0]


def test_a_layer_keeps_no_graph() -> None:
    layer, graphs = tb.layers.Dense(2), WeakSet[tb.Graph]()
    for _ in range(4):
        with tb.Graph().as_default() as graph:
            layer(tb.zeros([1, 3]))
            graphs.add(graph)
    del graph
    gc.collect()
    assert len(graphs) == 1  # that of the last call


def test_losses_of_cells_within_cells() -> None:
    cell = tb.nn.rnn_cell.GRUCell(2, kernel_initializer="ones")
    with tb.variable_scope("all", regularizer=tb.layers.l2_regularizer(0.1)):
        around = tb.nn.rnn_cell.MultiRNNCell([tb.nn.rnn_cell.DropoutWrapper(cell)])
        around(tb.zeros([1, 3]), around.zero_state(1, tb.float32))
    assert around.losses == cell.losses != []
    assert around.count_params() == cell.count_params()
