"""Graphs, saved models and runs as ONNX files, computed by onnxruntime; and read again."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from scheduler import TrainedModel
from tensorbow.cli.app import app
from tensorbow.interop.onnx.graph_writer import WRITERS

onnx = pytest.importorskip("onnx", reason="ONNX files need the package onnx")
runtime = pytest.importorskip("onnxruntime", reason="exported files are run by onnxruntime")
pytestmark = pytest.mark.usefixtures("reference_kernels")
RNG = np.random.default_rng(0)
FEEDS = {
    "x": RNG.uniform(0.2, 2, [3, 4, 5]).astype(np.float32),
    "i": RNG.integers(0, 4, [3, 2]),
    "images": RNG.normal(size=(3, 7, 6, 4)).astype(np.float32),
    "u": RNG.integers(0, 4, [3, 2]).astype(np.uint8),
}
IMAGES = (0, 3, 1, 2)


def weight(*shape):
    return tb.Variable(tb.random_normal(shape, seed=1))


def conv(t, *shape, **more):
    return tb.nn.conv2d(t, weight(*shape), more.pop("strides", 1), more.pop("padding", "SAME"), **more)


def biased(t):
    return tb.nn.bias_add(conv(t, 3, 3, 4, 5, strides=2), weight(5))


def normal(t):
    vectors = [tb.constant(RNG.uniform(0.5, 1, 4), tb.float32) for _ in range(4)]
    return tb.nn.fused_batch_norm(t, *vectors, is_training=False)[0]


BY_INPUT = {
    "x": {
        "activations": lambda x: tb.nn.relu6(
            tb.nn.elu(x - 1) + tb.nn.softplus(x) * tb.nn.leaky_relu(-x, 0.3)
        ),
        "functions": lambda x: tb.erf(x) + tb.log1p(x) * tb.expm1(-x) - tb.rsqrt(x) / tb.reciprocal(x) ** 1.5,
        "more functions": lambda x: (
            tb.sin(tb.ceil(x)) + tb.cos(tb.floor(-x)) * tb.round(x * 3) + tb.sign(1 - x)
        ),
        "last functions": lambda x: (
            tb.exp(-tb.abs(x)) * tb.sigmoid(x) + tb.log(x) * tb.sqrt(x) + tb.square(tb.tanh(x))
        ),
        "chosen": lambda x: tb.where(tb.logical_and(x > 0.5, tb.logical_not(x >= 1.5)), tb.minimum(x, 1), -x),
        "compared": lambda x: tb.logical_or(tb.logical_or(x < 0.4, tb.is_nan(x)), tb.not_equal(x, x[:, :1])),
        "equal": lambda x: tb.cast(tb.logical_and(tb.equal(x, x), tb.is_finite(x)), tb.int32),
        "less": lambda x: tb.less_equal(tb.maximum(x, 1), 1.2),
        "divided": lambda x: tb.floordiv(x - 1, 0.3) + tb.mod(x - 1, 0.3),
        "matrices": lambda x: tb.matmul(tb.matmul(x, weight(5, 6)), x, transpose_a=True),
        "product": lambda x: tb.nn.softmax(tb.matmul(tb.reshape(x, [-1, 5]), weight(6, 5), transpose_b=True)),
        "shapes": lambda x: tb.squeeze(tb.transpose(tb.expand_dims(x, 1), [2, 1, 0, 3]), [1]),
        "no slices": lambda x: tb.reduce_sum(x[:, -9:-9:-2], 1) + tb.reduce_sum(x[:, 3:-9:-2], 1),
        "slices": lambda x: x[1:, ::-2, None, -1] * x[1:, 1::2, None, 0],
        "one slice": lambda x: tb.slice(x, [0, 1, 2], [-1, 2, 3]),
        "parts": lambda x: tb.concat(tb.split(x, [2, 1, 2], 2)[::-1], 2) + tb.reverse(x, [1]),
        "padded": lambda x: tb.tile(tb.pad(x, [[0, 0], [1, 2], [0, 1]], constant_values=3), [1, 2, 1]),
        "sums": lambda x: (
            tb.reduce_sum(x, [0, 2]) + tb.reduce_mean(x) * tb.reduce_max(x, [0, 2], keepdims=True)[0, :, 0]
        ),
        "products": lambda x: tb.reduce_prod(x, -1) - tb.reduce_min(x, -1),
        "any": lambda x: tb.stack([tb.reduce_any(x > 1.5, 1), tb.reduce_all(x > 0.3, 1)]),
        "argmax": lambda x: tb.argmax(x, 1, output_type=tb.int32),
        "top": lambda x: tb.cast(tb.nn.top_k(x, 2)[1], tb.float32) + tb.nn.top_k(x, 2)[0],
        "running": lambda x: tb.cumsum(x, 1, exclusive=True, reverse=True),
        "sizes": lambda x: tb.reshape(x, [tb.shape(x)[0], tb.size(x) // (tb.shape(x)[0] * 5), 5]),
        "broadcast": lambda x: tb.broadcast_to(x[:, :1], tb.shape(x)) + tb.zeros_like(x),
        "filled": lambda x: tb.fill([tb.shape(x)[0], 2], 0.5),
        "counted": lambda x: x[..., 0] * tb.cast(tb.range(tb.shape(x)[0]), tb.float32)[:, None],
        "series": lambda x: tb.layers.conv1d(x, 4, 3, activation=tb.nn.tanh),
        "norm": lambda x: tb.nn.log_softmax(tb.nn.layer_norm(x, weight(5))),
    },
    "i": {
        "rows": lambda i: tb.gather(weight(4, 3), i),
        "one hot": lambda i: tb.one_hot(i, 4, 2.0, -1.0),
        "one hot of none": lambda i: tb.one_hot(i - 2, 3, axis=0) + tb.one_hot(i[0, 0], 3)[:, None, None],
        "count": lambda i: tb.size(i) - 1,
        "integers": lambda i: tb.floordiv(i - 2, 3) * tb.mod(i - 2, 3) + i**2,
    },
    "u": {
        "small rows": lambda u: tb.gather(weight(4, 3), u) + tb.one_hot(u, 3),
    },
    "images": {
        "convolution": biased,
        "odd windows": lambda t: tb.nn.relu(conv(t, 2, 3, 4, 5, padding="VALID", dilations=[2, 1])),
        "depthwise": lambda t: tb.nn.depthwise_conv2d(t, weight(3, 3, 4, 2), [1, 2, 2, 1], "SAME"),
        "pools": lambda t: tb.nn.max_pool(t, 3, 2, "SAME") + tb.nn.avg_pool(t, 3, 2, "SAME"),
        "normalised": lambda t: tb.nn.relu(normal(conv(t, 1, 1, 4, 4)) + t * weight(4)),
        "rest": lambda t: (
            tb.concat([conv(t, 3, 3, 4, 2), t], 3)[:, 1:] + tb.reduce_mean(t, [1, 2], keepdims=True)[..., :1]
        ),
        "pooled": lambda t: tb.reduce_mean(conv(t, 3, 3, 4, 6), [1, 2]),
        "flattened": lambda t: tb.matmul(tb.layers.flatten(conv(t, 3, 3, 4, 2)), weight(84, 3)),
        "split": lambda t: tb.split(conv(t, 3, 3, 4, 6), 2, 3)[1],
        "squeezed": lambda t: tb.squeeze(tb.nn.max_pool(conv(t, 3, 3, 4, 2), [7, 6], 1, "VALID"), [1, 2]),
        "padded images": lambda t: tb.pad(conv(t, 3, 3, 4, 2), [[0, 0], [1, 0], [0, 2], [0, 0]]),
    },
}


@pytest.mark.slow
def test_outputs_are_those_of_the_session(tmp_path):
    """Every case is an output of one file, which onnxruntime computes, and which is read as a model again."""
    with tb.Graph().as_default() as graph, tb.Session() as session:
        feeds = {n: tb.placeholder(a.dtype, [None, *a.shape[1:]], name=n) for n, a in FEEDS.items()}
        outputs = {c: make(feeds[name]) for name, cases in BY_INPUT.items() for c, make in cases.items()}
        session.run(tb.global_variables_initializer())
        wanted = session.run(outputs, {feeds[name]: array for name, array in FEEDS.items()})
        file = tb.interop.onnx.export(
            graph, tmp_path / "m.onnx", inputs=feeds, outputs=outputs, values=session
        )
    of_integers = {"Quantize", "Dequantize", "PackWeights", "QuantizedConv2D", "QuantizedMatMul"}
    assert set(WRITERS) - of_integers <= {op.definition.name for op in graph.get_operations()}
    written = onnx.load(file).graph
    read = {name for node in written.node for name in node.input}
    assert {item.name for item in written.initializer} <= read, "onnxruntime warns of what nothing reads"
    onnx_session = runtime.InferenceSession(file)
    names = [item.name for item in onnx_session.get_outputs()]
    model = tb.interop.onnx.load(file)
    with tb.Graph().as_default(), tb.Session() as session:
        feeds = {n: tb.placeholder(a.dtype, [None, *a.shape[1:]]) for n, a in FEEDS.items()}
        outputs = model(**feeds)
        session.run(tb.global_variables_initializer())
        again = session.run(outputs, {feeds[name]: array for name, array in FEEDS.items()})
    for found in (dict(zip(names, onnx_session.run(None, FEEDS), strict=True)), again):
        for case, want in wanted.items():
            assert found[case].dtype == want.dtype, case
            np.testing.assert_allclose(found[case], want, rtol=1e-5, atol=1e-5, err_msg=case)


def test_images_are_transposed_once(tmp_path):
    """One transpose at the input, none in between or before a global mean."""
    with tb.Graph().as_default() as graph, tb.Session() as session:
        x = tb.placeholder(tb.float32, [None, 8, 8, 3])
        y = tb.layers.conv2d(x, 4, 3, padding="same", activation=tb.nn.relu, name="a")
        y = tb.layers.batch_normalization(y) + tb.layers.conv2d(y, 4, 3, padding="same", name="b")
        y = tb.layers.dense(tb.reduce_mean(y, [1, 2]), 5)
        session.run(tb.global_variables_initializer())
        file = tb.interop.onnx.export(
            graph, tmp_path / "m.onnx", inputs={"x": x}, outputs={"y": y}, values=session
        )
    nodes = [node.op_type for node in onnx.load(file).graph.node]
    assert nodes.count("Transpose") == 1
    assert nodes == [
        "Transpose",
        "Conv",
        "Relu",
        "BatchNormalization",
        "Conv",
        "Add",
        "ReduceMean",
        "MatMul",
        "Add",
        "Identity",
    ]


def test_operations_without_a_counterpart_are_listed(tmp_path):
    with tb.Graph().as_default() as graph, tb.Session() as session:
        x = tb.placeholder(tb.float32, [2, 2], name="x")
        y = tb.matrix_inverse(tb.nn.dropout(x, rate=0.5), name="inverse")

        def export(**more):
            arguments = {"inputs": {"x": x}, "outputs": {"y": y}, "values": session, **more}
            tb.interop.onnx.export(graph, tmp_path / "m.onnx", **arguments)

        with pytest.raises(
            tb.errors.UnimplementedError, match=r"DropoutMask \(.*\); MatrixInverse \(inverse\)"
        ):
            export()
        with pytest.raises(tb.errors.InvalidArgumentError, match="a graph needs inputs"):
            export(values=None)
        with pytest.raises(tb.errors.InvalidArgumentError, match=r"Placeholder x: the outputs need this"):
            export(inputs={}, outputs={"y": x + 1})


@pytest.mark.slow
def test_several_inputs_have_their_names_in_the_data(tmp_path):
    def towers(inputs, labels, training):
        features = tb.concat([inputs["age"], inputs["logits"]], 1)
        outputs = tb.layers.dense(features, 1)[:, 0]
        return tb.reduce_mean(tb.square(outputs - labels)), {"logits": outputs}

    rng = np.random.default_rng(0)
    inputs = {name: rng.normal(size=(40, 2)).astype(np.float32) for name in ("age", "logits")}
    split = inputs, rng.normal(size=40).astype(np.float32)
    with tb.fit(towers, (split, split), epochs=1, progress=False, output=str(tmp_path / "run")) as trained:
        expected = trained.predict(inputs)["logits"]
    tb.interop.onnx.export(tmp_path / "run", tmp_path / "m.onnx")
    onnx_session = runtime.InferenceSession(tmp_path / "m.onnx")
    names = sorted(item.name for item in onnx_session.get_inputs())
    assert names[0] == "age"
    (output,) = (item.name for item in onnx_session.get_outputs())
    assert (names[1] == "logits") == (output != "logits")  # an output keeps its name
    (found,) = onnx_session.run(None, dict(zip(names, (inputs["age"], inputs["logits"]), strict=True)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_file_is_trained_and_its_run_becomes_a_file(tmp_path):
    """`train m.onnx`, whose run is used without that file, and `export --format onnx`."""
    source, run, file = tmp_path / "m.onnx", tmp_path / "run", tmp_path / "trained.onnx"
    with tb.Graph().as_default() as graph, tb.Session() as session:
        x = tb.placeholder(tb.float32, [None, 28, 28, 1])
        y = tb.layers.dense(tb.layers.flatten(x), 10)
        session.run(tb.global_variables_initializer())
        tb.interop.onnx.export(graph, source, inputs={"x": x}, outputs={"y": y}, values=session)
    app(["train", str(source), "--epochs", "2", "--output", str(run)], standalone_mode=False)
    source.unlink()
    app(["export", str(run), "--format", "onnx", "--output", str(file)], standalone_mode=False)
    _, test = tb.data.load("digits")
    onnx_session = runtime.InferenceSession(file)
    assert [item.name for item in onnx_session.get_inputs()] == ["images"]
    (found,) = onnx_session.run(["probabilities"], {"images": test.images})
    assert (found.argmax(1) == test.labels).mean() > 0.8
    with TrainedModel(run) as model:
        np.testing.assert_allclose(found, model.probabilities(test.images), atol=1e-5)


@pytest.mark.parametrize("kind", [pytest.param("pictures", marks=pytest.mark.slow), "table"])
def test_training_goes_on_from_an_exported_run(kind, tmp_path):
    """The file normalises its inputs itself: what it is trained on is not normalised twice."""
    data, options = "synthetic", {"epochs": 0.5, "progress": False}
    if kind == "table":
        rows = np.random.default_rng(0).normal(40, 9, (60, 2))
        lines = [f"{a},{b if b > 25 else ''},{900 * a - b}" for a, b in rows]  # some of b are missing
        (tmp_path / "t.csv").write_text("\n".join(["a,b,target", *lines]))
        data = str(tmp_path / "t.csv")
    model = "linear" if kind == "table" else "logreg"
    with tb.fit(model, data, output=tmp_path / "run", **options) as before:
        saved, file = (
            before.save(tmp_path / "saved"),
            str(tmp_path / "m.onnx"),
        )
        app(["export", saved, "--format", "onnx", "--output", file], standalone_mode=False)
        with tb.fit(file, data, learning_rate=1e-12, output=tmp_path / "on", **options) as after:
            found, expected = after.evaluate(), before.evaluate()
        assert found.loss == pytest.approx(expected.loss, rel=1e-4)
        assert found.metrics == pytest.approx(expected.metrics, rel=1e-4)
    tb.interop.onnx.export(tmp_path / "on", tmp_path / "again.onnx")  # and that of the run on the file
    once, again = (runtime.InferenceSession(str(tmp_path / name)) for name in ("m.onnx", "again.onnx"))
    (x,) = once.get_inputs()
    shape = [3, *x.shape[1:]]
    inputs = np.random.default_rng(1).integers(0, 255, shape).astype(np.uint8 if kind == "pictures" else "f4")
    for one, other in zip(once.run(None, {x.name: inputs}), again.run(None, {x.name: inputs}), strict=False):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
