"""ONNX files that PyTorch's exporters made, as models that compute and learn as PyTorch's."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import tensorbow as tb

onnx = pytest.importorskip("onnx", reason="ONNX files need the package onnx")
DATA = Path(__file__).parent / "data"
FILES = sorted(path.stem for path in DATA.glob("*.onnx"))
pytestmark = pytest.mark.usefixtures("reference_kernels")
KEEPS_PARAMETERS = ("plain", "training")  # files whose weights have PyTorch's names and layout
MOVED = "resnet-script-training"  # tracing for training updates the moving averages that the file has


def facts_of(name: str) -> dict[str, np.ndarray]:
    return load_file(DATA / f"{name.partition('-')[0]}.safetensors")


def placeholder_for(array: np.ndarray, batch: int | None = None) -> tb.Tensor:
    return tb.placeholder(array.dtype, [batch, *array.shape[1:]])


def as_stored(name: str, array: np.ndarray) -> np.ndarray:
    """PyTorch's array in the layout of the variable."""
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array


@pytest.mark.sampled(1)
@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize("name", [name for name in FILES if name != MOVED])
def test_outputs_are_those_of_pytorch(name, batch):
    facts = facts_of(name)
    model = tb.interop.onnx.load(DATA / f"{name}.onnx")
    with tb.Graph().as_default():
        x = placeholder_for(facts["x"], batch)
        y = model(x)
        assert y.shape.as_list() == [batch, *facts["eval/output"].shape[1:]]
        with tb.Session() as session:
            session.run(tb.global_variables_initializer())
            np.testing.assert_allclose(session.run(y, {x: facts["x"]}), facts["eval/output"], 1e-5, 1e-5)
            if batch is None:
                part = session.run(y, {x: facts["x"][:2]})
                np.testing.assert_allclose(part, facts["eval/output"][:2], 1e-5, 1e-5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(KEEPS_PARAMETERS)])
def test_gradients_and_moving_averages_are_those_of_pytorch(name):
    facts = facts_of(name)
    mode = "train" if "resnet" in name else "eval"  # in training dropout is random
    model = tb.interop.onnx.load(DATA / f"{name}.onnx")
    with tb.Graph().as_default():
        x = placeholder_for(facts["x"])
        y = model(x, training=mode == "train")
        expected = {k.split("/")[-1]: v for k, v in facts.items() if k.startswith(f"{mode}/gradient/")}
        variables = {name.split("/")[-1]: v for name, v in model.variables.items() if v.trainable}
        assert set(variables) == set(expected)
        loss = tb.reduce_sum(tb.square(y))
        gradients = tb.gradients(loss, list(variables.values()))
        updates = tb.get_collection(tb.GraphKeys.UPDATE_OPS)
        with tb.Session() as session:
            session.run(tb.global_variables_initializer())
            found = session.run([tb.convert_to_tensor(g) for g in gradients], {x: facts["x"]})
            for label, gradient in zip(variables, found, strict=True):
                want = as_stored(label, expected[label])
                np.testing.assert_allclose(
                    gradient, want, rtol=1e-3, atol=2e-5 * np.abs(want).max(), err_msg=label
                )
            session.run(updates, {x: facts["x"]})
            for key, want in facts.items():
                if key.startswith("after/") and name != MOVED:
                    moved = session.run(model.variables[key.removeprefix("after/")])
                    np.testing.assert_allclose(moved, want, rtol=1e-4, atol=1e-5)


def test_images_with_channels_last_need_no_transpose():
    facts = facts_of("resnet")
    model = tb.interop.onnx.load(DATA / "resnet-dynamo.onnx", data_format="NHWC")
    with tb.Graph().as_default() as graph:
        images = facts["x"].transpose(0, 2, 3, 1)
        x = placeholder_for(images)
        y = model(x)
        assert not [op.name for op in graph.get_operations() if op.definition.name == "Transpose"]
        with tb.Session() as session:
            session.run(tb.global_variables_initializer())
            np.testing.assert_allclose(session.run(y, {x: images}), facts["eval/output"], 1e-5, 1e-5)


def test_a_model_is_trained_by_replicas():
    """Two averaged replicas of an imported LeNet learn to tell two kinds of pictures apart."""
    model = tb.interop.onnx.load(DATA / "lenet-script-training.onnx", data_format="NHWC", frozen=["0.*"])
    rng = np.random.default_rng(0)

    def input_fn(replica_id):
        while True:
            labels = rng.integers(0, 2, 8)
            images = rng.normal(size=(8, 20, 16, 1)) + labels[:, None, None, None]
            yield images.astype(np.float32), labels

    replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2)
    with replicator.context():
        optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.05, 0.9))

    def step_fn(inputs):
        images, labels = inputs
        logits = model(images, training=True)
        loss = tb.reduce_mean(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    with replicator.context():
        train_loss = tb.reduce_mean(replicator.run(step_fn, input_fn))
    with tb.train.MonitoredSession() as session:
        replicator.init(session)
        losses = [session.run(train_loss) for _ in range(30)]
        replicator.shutdown(session)
    assert np.mean(losses[-5:]) < 0.6 * losses[0]
    with tb.Graph().as_default():
        model(tb.zeros([1, 20, 16, 1]))
        frozen = {name for name, variable in model.variables.items() if not variable.trainable}
    assert frozen == {"0.weight", "0.bias"}


def test_all_unsupported_nodes_are_listed(tmp_path):
    helper = onnx.helper
    nodes = [
        helper.make_node("Det", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("NonZero", ["b"], ["y"]),
    ]
    ends = [
        [helper.make_tensor_value_info("x", 1, [4, 4])],
        [helper.make_tensor_value_info("y", 7, [1, None])],
    ]
    graph = helper.make_graph(nodes, "odd", *ends)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    with pytest.raises(
        tb.errors.UnimplementedError, match=r"opset 18.*Det \(1: first\); NonZero \(1: y\).*Relu"
    ):
        tb.interop.onnx.load(tmp_path / "m.onnx")


def test_bad_files_and_inputs_are_refused(tmp_path):
    with pytest.raises(tb.errors.NotFoundError, match="there is no file"):
        tb.interop.onnx.load(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes((DATA / "mlp-script.onnx").read_bytes()[:600])
    with pytest.raises(tb.errors.DataLossError, match=r"bad\.onnx cannot be read"):
        tb.interop.onnx.load(tmp_path / "bad.onnx")
    with pytest.raises(tb.errors.InvalidArgumentError, match=r"frozen: no weight .* fits 'none\.\*'"):
        tb.interop.onnx.load(DATA / "mlp-script.onnx", frozen=["none.*"])
    model = tb.interop.onnx.load(DATA / "mlp-script.onnx")
    with pytest.raises(
        tb.errors.InvalidArgumentError, match=r"expected input x to be float32\[\?, 3, 4\].*int32"
    ):
        model(tb.zeros([2, 3, 4], tb.int32))
    with pytest.raises(tb.errors.InvalidArgumentError, match="expected the inputs x, got 0 by position"):
        model(image=1.0)


def test_a_file_of_another_batch_says_how_to_export_it(tmp_path):
    helper = onnx.helper
    ends = [
        [helper.make_tensor_value_info(name, 1, dims)] for name, dims in (("x", [4, 3]), ("y", [4, 1, 3]))
    ]
    shape = onnx.numpy_helper.from_array(np.array([4, 1, 3]), "shape")
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"])], "fixed", *ends, [shape])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    model = tb.interop.onnx.load(tmp_path / "m.onnx")
    assert model(tb.zeros([4, 3])).shape.as_list() == [4, 1, 3]
    words = r"^OnnxModel: ONNX model m\.onnx was exported for a batch of 4; export it with .*: Reshape node"
    with pytest.raises(tb.errors.InvalidArgumentError, match=words) as raised:
        model(tb.placeholder(tb.float32, [3, 3]))
    assert "made at" not in str(raised.value)  # the line is one of this library


def test_parts_of_an_open_batch(tmp_path):
    """What does not hold for all batches is refused; the other parts may be of any batch."""
    helper, limits = onnx.helper, onnx.numpy_helper.from_array
    ends = [[helper.make_tensor_value_info(name, 1, [None, 3])] for name in "xy"]
    for start, stop in ((0, 2), (2, 1 << 40), (0, 1), (1, 1 << 40), (-1, 1 << 40)):
        stored = [
            limits(np.array([each]), name) for each, name in zip((start, stop), ("s", "e"), strict=True)
        ]
        graph = helper.make_graph([helper.make_node("Slice", ["x", "s", "e"], ["y"])], "part", *ends, stored)
        file = tmp_path / "m.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), file)
        model = tb.interop.onnx.load(file)
        assert model(tb.ones([4, 3])).shape[0] == len(range(4)[start:stop])
        with tb.Graph().as_default(), tb.Session() as session:
            x = tb.placeholder(tb.float32, [None, 3])
            if (start, stop) in ((0, 2), (2, 1 << 40)):
                with pytest.raises(tb.errors.UnimplementedError, match="of axis 0, of which small batches"):
                    model(x)
                continue
            y = model(x)
            assert [len(session.run(y, {x: np.ones((n, 3))})) for n in (1, 2, 9)] == [
                len(range(n)[start:stop]) for n in (1, 2, 9)
            ]


def test_parts_of_several_rows_for_each_example(tmp_path):
    helper, stored = onnx.helper, onnx.numpy_helper.from_array
    ends = [
        [helper.make_tensor_value_info(name, 1, dims)]
        for name, dims in zip("xy", ([None, 5, 3], [None, 3]), strict=True)
    ]
    for stop in (2, 5, 6):
        constants = [
            stored(np.array(each), name) for name, each in (("shape", [-1, 3]), ("s", [0]), ("e", [stop]))
        ]
        nodes = [
            helper.make_node("Reshape", ["x", "shape"], ["rows"]),
            helper.make_node("Slice", ["rows", "s", "e"], ["y"]),
        ]
        graph = helper.make_graph(nodes, "rows", *ends, constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
        model = tb.interop.onnx.load(tmp_path / "m.onnx")
        with tb.Graph().as_default(), tb.Session() as session:
            x = tb.placeholder(tb.float32, [None, 5, 3])
            if stop > 5:  # more than a batch of one has
                with pytest.raises(tb.errors.UnimplementedError, match="part 0:6 of axis 0, of which small"):
                    model(x)
                continue
            y = model(x)
            assert y.shape.as_list() == [stop, 3]
            rows = np.arange(30, dtype=np.float32).reshape(2, 5, 3)
            for n in (1, 2):
                np.testing.assert_array_equal(session.run(y, {x: rows[:n]}), rows[0, :stop])


def test_normalised_pictures_for_a_file_that_normalises_them_itself(tmp_path):
    helper = onnx.helper
    ends = (
        [helper.make_tensor_value_info("x", 2, [None, 8])],
        [helper.make_tensor_value_info("y", 1, [None, 8])],
    )
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=1)], "raw", *ends)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "raw.onnx")
    model = tb.interop.onnx.OnnxClassifier(tmp_path / "raw.onnx")
    labels = tb.placeholder(tb.int64, [None])
    assert model(tb.placeholder(tb.uint8, [None, 8]), labels, False).outputs.dtype == tb.float32
    with pytest.raises(tb.errors.InvalidArgumentError, match=r"input x to be raw .* by --resume"):
        model(tb.placeholder(tb.float32, [None, 8]), labels, False)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
@pytest.mark.skipif(
    importlib.util.find_spec("onnxscript") is None, reason="PyTorch's exporter needs onnxscript"
)
def test_the_files_are_what_pytorch_makes(tmp_path):
    subprocess.run([sys.executable, DATA / "make_models.py", tmp_path], check=True, capture_output=True)
    for name in FILES:
        ops = [
            [node.op_type for node in onnx.load(folder / f"{name}.onnx").graph.node]
            for folder in (DATA, tmp_path)
        ]
        assert ops[0] == ops[1], name
    for path in DATA.glob("*.safetensors"):
        old, new = load_file(path), load_file(tmp_path / path.name)
        assert {k: v.shape for k, v in old.items()} == {k: v.shape for k, v in new.items()}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
@pytest.mark.skipif(
    importlib.util.find_spec("onnxscript") is None, reason="PyTorch's exporter needs onnxscript"
)
def test_a_whole_resnet18_is_imported_and_learns(tmp_path):
    """11.7 million weights, which are too many to be kept here."""
    make = [sys.executable, DATA / "make_models.py", tmp_path, "dynamo-plain"]
    subprocess.run(make, check=True, capture_output=True)
    facts, model = (
        load_file(tmp_path / "resnet18.safetensors"),
        tb.interop.onnx.load(tmp_path / "resnet18.onnx"),
    )
    with tb.Graph().as_default():
        x = placeholder_for(facts["x"])
        y, trained = model(x), model(x, training=True)
        weights = [v for v in model.variables.values() if v.trainable]
        assert sum(np.prod(v.shape.as_list()) for v in weights) == 11_689_512
        loss = tb.reduce_mean(tb.square(trained))
        with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
            update = tb.train.GradientDescentOptimizer(0.01).minimize(loss)
        with tb.Session() as session:
            session.run(tb.global_variables_initializer())
            np.testing.assert_allclose(session.run(y, {x: facts["x"]}), facts["y"], 1e-4, 1e-4)
            losses = [session.run([loss, update], {x: facts["x"]})[0] for _ in range(3)]
        assert losses[2] < losses[1] < losses[0]
