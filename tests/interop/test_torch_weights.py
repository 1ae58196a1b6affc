"""Weights of PyTorch models in variables, and back."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tensorbow as tb

pytestmark = pytest.mark.usefixtures("reference_kernels")
DATA = Path(__file__).parent / "data"


def lenet(images):
    y = tb.nn.relu(tb.layers.conv2d(images, 3, 5, padding="same", name="conv1"))
    y = tb.nn.relu(tb.layers.conv2d(tb.layers.max_pooling2d(y, 2, 2), 4, 5, name="conv2"))
    y = tb.layers.flatten(tb.layers.average_pooling2d(y, 2, 2))
    return tb.layers.dense(tb.nn.relu(tb.layers.dense(y, 9, name="fc1")), 10, name="fc2")


def resnet(images, training=False):
    def norm(x):
        return tb.layers.batch_normalization(x, momentum=0.9, epsilon=1e-5, training=training)

    def conv(x, filters, size, stride=1):
        side = size // 2
        x = tb.pad(x, [[0, 0], [side, side], [side, side], [0, 0]])
        return norm(tb.layers.conv2d(x, filters, size, stride, use_bias=False))

    def block(x, filters, stride):
        y = conv(tb.nn.relu(conv(x, filters, 3, stride)), filters, 3)
        return tb.nn.relu(y + (conv(x, filters, 1, stride) if stride > 1 else x))

    y = tb.pad(tb.nn.relu(conv(images, 4, 7, 2)), [[0, 0], [1, 1], [1, 1], [0, 0]])
    y = block(block(tb.layers.max_pooling2d(y, 3, 2), 4, 1), 6, 2)
    return tb.layers.dense(tb.reduce_mean(y, [1, 2]), 5)


def in_order_of_layers(state):
    parts = ["conv1", "bn1", "blocks", "fc"]
    return dict(sorted(state.items(), key=lambda item: (parts.index(item[0].partition(".")[0]), item[0])))


@pytest.mark.parametrize("model", [lenet, resnet])
def test_a_state_dict_comes_in_and_goes_out(model, tmp_path):
    """Outputs are PyTorch's; what is written is what was read, but for counters."""
    name = model.__name__
    facts = load_file(DATA / f"{name}.safetensors")
    images = facts["x"].transpose(0, 2, 3, 1)
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, *images.shape[1:]])
        y = model(x)
        with tb.Session() as session:
            file = DATA / f"{name}-state.safetensors"
            source = file if model is lenet else in_order_of_layers(load_file(file))
            names = tb.interop.torch.load_weights(source, session)
            np.testing.assert_allclose(session.run(y, {x: images}), facts["eval/output"], 1e-5, 1e-5)
            written = tb.interop.torch.save_weights(tmp_path / "state.safetensors", session, names=names)
    state = load_file(file)
    kept = {name for name in state if not name.endswith("num_batches_tracked")}
    assert set(names.values()) == kept
    for entry, array in load_file(written).items():
        np.testing.assert_array_equal(array, state[entry], err_msg=entry)


def test_an_lstm_of_two_layers_comes_in_and_goes_out(tmp_path):
    """Outputs are PyTorch's; the two biases come back as their sum."""
    facts, file = load_file(DATA / "lstm.safetensors"), DATA / "lstm-state.safetensors"
    with tb.Graph().as_default(), tb.Session() as session:
        cells = [tb.nn.rnn_cell.LSTMCell(5), tb.nn.rnn_cell.BasicLSTMCell(5, forget_bias=0.5)]
        y = tb.layers.embedding(facts["x"], 11, 6)
        y, _ = tb.nn.dynamic_rnn(tb.nn.rnn_cell.MultiRNNCell(cells), y)
        y = tb.layers.dense(y[:, -1], 4, name="head")
        names = tb.interop.torch.load_weights(file, session)
        assert names["rnn/multi_rnn_cell/cell_1/basic_lstm_cell/kernel"] == "lstm.weight_ih_l1"
        np.testing.assert_allclose(session.run(y), facts["eval/output"], 1e-5, 1e-6)
        written = tb.interop.torch.save_weights(tmp_path / "state.safetensors", session, names=names)
        assert tb.interop.torch.state_of(session).keys() == load_file(file).keys()
        state, back = load_file(file), load_file(written)
        assert back.keys() == state.keys()
        for entry, array in state.items():
            other = entry.replace("bias_ih", "bias_hh")
            wanted = array + state[other] if other != entry else 0 * array if "bias_hh" in entry else array
            np.testing.assert_allclose(back[entry], wanted, 1e-6, 1e-6, err_msg=entry)
        for more, message in [
            ("lstm.weight_ih_l0_reverse", "bidirectional"),
            ("lstm.weight_hr_l0", "projection"),
            (
                "gru.weight_hh_l0",
                r"GRU, which resets .*GRUCell\(units, reset_after=True",
            ),
        ]:
            with pytest.raises(tb.errors.InvalidArgumentError, match=message):
                tb.interop.torch.load_weights({**state, more: np.zeros((15, 5), np.float32)}, session)


def test_a_gru_in_both_directions_comes_in_and_goes_out(tmp_path):
    """Outputs are PyTorch's; the two biases of r and z come back as their sum."""
    facts, file = load_file(DATA / "gru.safetensors"), DATA / "gru-state.safetensors"
    with tb.Graph().as_default(), tb.Session() as session:
        cells = [tb.nn.rnn_cell.GRUCell(4, reset_after=True) for _ in range(2)]
        both, _ = tb.nn.bidirectional_dynamic_rnn(*cells, facts["x"])
        names = tb.interop.torch.load_weights(file, session)
        assert names["bidirectional_rnn/bw/gru_cell/gates/kernel"] == "gru.weight_ih_l0_reverse"
        np.testing.assert_allclose(session.run(tb.concat(both, 2)), facts["eval/output"], 1e-5, 1e-6)
        back = load_file(tb.interop.torch.save_weights(tmp_path / "state", session, names=names))
        own = tb.interop.torch.state_of(session)
        assert "gru.weight_hh_l0_reverse" in own
        state = load_file(file)
        assert back.keys() == state.keys()
        for entry, array in state.items():
            wanted, other = array.copy(), state[entry.replace("bias_ih", "bias_hh")]
            if "bias" in entry:  # of r and z
                wanted[:8] = array[:8] + other[:8] if "bias_ih" in entry else 0
            np.testing.assert_allclose(back[entry], wanted, 1e-6, 1e-6, err_msg=entry)
        session.run(tb.global_variables_initializer())
        tb.interop.torch.load_weights(own, session)
        np.testing.assert_allclose(session.run(tb.concat(both, 2)), facts["eval/output"], 1e-5, 1e-6)


def test_lstms_that_pytorch_lacks_or_that_could_be_either_are_refused(tmp_path):
    sizes = {"weight_ih": (12, 2), "weight_hh": (12, 3), "bias_ih": (12,), "bias_hh": (12,)}
    state = {f"{of}.{part}_l0": np.ones(size, np.float32) for of in "ab" for part, size in sizes.items()}
    save_file(state, tmp_path / "file")
    with tb.Graph().as_default(), tb.Session() as session:
        tb.nn.dynamic_rnn(tb.nn.rnn_cell.LSTMCell(3), tb.ones([1, 2, 2]))
        with pytest.raises(tb.errors.InvalidArgumentError, match=r"a\.weight_ih_l0, b\.weight_ih_l0 fit"):
            tb.interop.torch.load_weights(tmp_path / "file", session, strict=False)
        chosen = {"rnn/lstm_cell/kernel": "b.weight_ih_l0"}
        names = tb.interop.torch.load_weights(tmp_path / "file", session, names=chosen, strict=False)
        assert names == {**chosen, "rnn/lstm_cell/bias": "b.bias_ih_l0"}
    with tb.Graph().as_default(), tb.Session() as session:
        tb.nn.dynamic_rnn(tb.nn.rnn_cell.LSTMCell(3, use_peepholes=True), tb.ones([1, 2, 2]))
        session.run(tb.global_variables_initializer())
        with pytest.raises(tb.errors.InvalidArgumentError, match="has no peepholes"):
            tb.interop.torch.state_of(session)


def normalised(images):
    return tb.layers.batch_normalization(tb.layers.dropout(tb.layers.flatten(images), training=True))


def behind_sequence(images):
    rows = tb.reshape(images, [-1, 6, 4])
    return tb.layers.flatten(tb.layers.max_pooling1d(tb.layers.conv1d(rows, 4, 1), 1, 1))


def channels_second(images):
    return tb.layers.flatten(tb.nn.relu(tb.transpose(images, [0, 3, 1, 2])))


@pytest.mark.parametrize(
    ("features", "images", "given"),
    [
        (normalised, (2, 3, 4), None),
        (behind_sequence, (1, 6, 4), None),
        (channels_second, None, None),
        (lambda x: tb.reshape(tb.reshape(tb.reshape(x, [-1, 6, 4]), [-1, 24]), [-1, 24]), (2, 3, 4), None),
        (lambda x: tb.concat([tb.layers.flatten(x), tb.zeros([1, 2])], 1), None, (1, 1, 26)),
        (lambda x: tb.layers.flatten(tb.transpose(x, [0, 2, 1, 3])), (3, 2, 4), (3, 2, 4)),
    ],
    ids=["normalised", "sequence", "channels second", "reshaped", "joined", "turned"],
)
def test_order_of_flattened_features_is_found_in_the_graph_or_refused(features, images, given):
    """Rows of a dense kernel, and vectors of a normalisation before it, of images [2, 3, 4]."""
    with tb.Graph().as_default(), tb.Session() as session:
        rows = features(tb.ones([1, 2, 3, 4]))
        size = rows.shape.as_list()[-1]
        tb.layers.dense(rows, 5, name="fc", use_bias=False)
        height, width, channels = images or (1, 1, size)
        order = np.arange(size).reshape(channels, height, width).transpose(1, 2, 0).reshape(-1)
        theirs = np.random.default_rng(0).normal(size=(5, size)).astype(np.float32)
        state, options = {"fc.weight": theirs}, {"strict": False}
        variables = [v for v in tb.global_variables() if v.shape.as_list()[0] == size]
        for vector in variables[:-1]:
            last = vector.op.name.rpartition("/")[2]
            entry = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean"}.get(
                last, "running_var"
            )
            state[f"batch_normalization.{entry}"] = np.arange(size, dtype=np.float32)
        if given:
            with pytest.raises(tb.errors.InvalidArgumentError, match=r"flattened=\{'fc/kernel': \(height"):
                tb.interop.torch.load_weights(state, session, variables=variables)
            options["flattened"] = {"fc/kernel": given}
        names = tb.interop.torch.load_weights(state, session, variables=variables, **options)
        *vectors, kernel = session.run([v.value() for v in variables])
        np.testing.assert_array_equal(kernel, theirs.T[order])
        for vector in vectors:
            np.testing.assert_array_equal(vector, order)
        options.pop("strict")
        back = tb.interop.torch.state_of(session, variables=variables, names=names, **options)
        assert len(back) == len(variables)
        for entry, array in back.items():
            np.testing.assert_array_equal(array, state[entry])


def test_entries_are_found_by_name_before_order_and_by_what_reads_them():
    """Two square kernels in another order, a depthwise kernel, and a table that nothing multiplies by."""
    rng = np.random.default_rng(0)
    shapes = {"b.weight": (4, 4), "a.weight": (4, 4), "table": (4, 4), "depth": (6, 1, 3, 2)}
    state = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    with tb.Graph().as_default() as graph, tb.Session() as session:
        x = tb.ones([2, 4])
        tb.layers.dense(tb.layers.dense(x, 4, name="a", use_bias=False), 4, name="b", use_bias=False)
        table = tb.get_variable("table", [4, 4])
        tb.nn.embedding_lookup(table, [1])
        depth = tb.get_variable("depth", [3, 2, 3, 2])
        tb.nn.depthwise_conv2d(tb.ones([1, 5, 5, 3]), depth, [1, 1, 1, 1], "SAME")
        tb.interop.torch.load_weights(state, session)
        a, found, own = session.run([graph.get_tensor_by_name("a/kernel:0"), table, depth])
        np.testing.assert_array_equal(a, state["a.weight"].T)
        np.testing.assert_array_equal(found, state["table"])
        np.testing.assert_array_equal(own[:, :, 1, 1], state["depth"][3, 0])
        back = tb.interop.torch.state_of(session)
        assert {name: array.shape for name, array in back.items()} == shapes
        np.testing.assert_array_equal(back["depth"], state["depth"])


def test_everything_that_does_not_fit_is_listed(tmp_path):
    with tb.Graph().as_default(), tb.Session() as session:
        tb.layers.dense(tb.ones([2, 4]), 3, name="fc")
        tb.train.MomentumOptimizer(0.1, 0.9).minimize(tb.reduce_sum(tb.layers.dense(tb.ones([1, 2]), 2)))
        wrong = {"fc.weight": np.zeros((3, 5), np.float32), "fc.bias": np.zeros(3, np.float32)}
        with pytest.raises(tb.errors.InvalidArgumentError) as caught:
            tb.interop.torch.load_weights(wrong, session)
        parts = [
            r"variable fc/kernel \[4, 3\]: expected \[3, 4\] in PyTorch, got fc\.weight \[3, 5\]",
            r"variable dense/bias \[2\]: no entry fits, expected \[2\] in PyTorch",
            r"variable dense/kernel",
        ]
        for part in parts:
            assert re.search(part, str(caught.value)), part
        assert "Momentum" not in str(caught.value)
        twins = {name: np.zeros(3, np.float32) for name in ("x", "y")}
        extra = {"fc.weight": np.zeros((3, 4), np.float32), "fc.bias": np.zeros(3, np.float32)}
        extra |= {"dense.weight": np.zeros((2, 2), np.float32), "dense.bias": np.zeros(2, np.float32)}
        with pytest.raises(tb.errors.InvalidArgumentError, match=r"entry x \[3\]: no variable takes it"):
            tb.interop.torch.load_weights({**extra, "x": twins["x"]}, session)
        save_file(twins, tmp_path / "twins")
        with pytest.raises(
            tb.errors.InvalidArgumentError, match=r"fc/bias \[3\]: (x, y|y, x) fit \(files do not"
        ):
            tb.interop.torch.load_weights(tmp_path / "twins", session, strict=False)
        with pytest.raises(tb.errors.InvalidArgumentError, match=r"flattened: there is no variable 'x'"):
            tb.interop.torch.load_weights(wrong, session, flattened={"x": (1, 2, 2)})
        (tmp_path / "bad").write_bytes(b"12345678910")
        with pytest.raises(tb.errors.DataLossError, match="is no safetensors file"):
            tb.interop.torch.read_state(tmp_path / "bad")


@pytest.mark.slow
def test_tensors_of_pytorch_are_taken_as_they_are():
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    layer = torch.nn.Linear(4, 3)
    with tb.Graph().as_default(), tb.Session() as session:
        y = tb.layers.dense(tb.ones([2, 4]), 3)
        tb.interop.torch.load_weights(layer.state_dict(), session)
        np.testing.assert_allclose(session.run(y), layer(torch.ones(2, 4)).detach().numpy(), 1e-6)
        state = tb.interop.torch.state_of(session)
        layer.load_state_dict({name.removeprefix("dense."): torch.tensor(a) for name, a in state.items()})


def test_kernels_of_conv1d_change_their_axes():
    """PyTorch has [out, in, size]; equal extents would hide swapped axes."""
    kernel = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    state = {"c.weight": kernel, "c.bias": np.zeros(3, np.float32)}
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 3, 3])
        y = tb.layers.conv1d(x, 3, 3, name="c")
        with tb.Session() as session:
            tb.interop.torch.load_weights(state, session)
            series = np.random.default_rng(1).normal(size=(2, 3, 3)).astype(np.float32)
            expected = np.einsum("nti,oit->no", series, kernel)
            np.testing.assert_allclose(session.run(y, {x: series})[:, 0], expected, rtol=1e-5)
            np.testing.assert_array_equal(tb.interop.torch.state_of(session)["c.weight"], kernel)


def dense_step(replicator):
    """A step that trains a dense layer, and makes its weights smaller."""
    with replicator.context():
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.5))

    def step_fn():
        outputs = tb.layers.dense(tb.ones([2, 3]), 2, name="fc")
        loss = tb.reduce_mean(tb.square(outputs))
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    return step_fn


def test_replicas_begin_with_weights_of_pytorch_and_give_them_back(tmp_path):
    """All replicas, and z, have them before the first step; later z is written, also when training ended."""
    state = {"fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "fc.bias": np.float32([1, -1])}
    replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2)
    with pytest.raises(tb.errors.InvalidArgumentError, match=r"no weights yet; .*replicator\.train"):
        tb.interop.torch.load_weights(state, replicator)
    loop = replicator.train(dense_step(replicator), steps=2)
    names = tb.interop.torch.load_weights(state, replicator)
    assert names == {"fc/kernel": "fc.weight", "fc/bias": "fc.bias"}
    for replica in range(2):
        np.testing.assert_array_equal(replicator.replica_values(replica)["fc/kernel"], state["fc.weight"].T)
    outputs = state["fc.weight"].sum(1) + state["fc.bias"]
    first = next(loop)
    np.testing.assert_allclose(first, [np.square(outputs).mean()] * 2)
    assert len([*loop]) == 1
    written = load_file(tb.interop.torch.save_weights(tmp_path / "z.safetensors", replicator))
    z = replicator.central_values()
    np.testing.assert_array_equal(written["fc.weight"], z["fc/kernel"].T)
    assert np.abs(written["fc.weight"] - state["fc.weight"]).max() > 0.1
    with pytest.raises(tb.errors.InvalidArgumentError, match=r"a tb\.Session or a Replicator"):
        tb.interop.torch.state_of(tb.MultiGpuReplicator)


def test_a_fitted_model_goes_out():
    x = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)

    def model(inputs, labels, training):
        outputs = tb.layers.dense(inputs, 1, name="head")[:, 0]
        return tb.reduce_mean(tb.square(outputs - labels)), outputs

    data = (x, x.sum(1)), (x, x.sum(1))
    with tb.fit(model, data, replicas=2, epochs=1, progress=False) as trained:
        state = tb.interop.torch.state_of(trained.model.session)
        np.testing.assert_allclose(
            x @ state["head.weight"][0] + state["head.bias"], trained.predict(x), 1e-4, 1e-5
        )
