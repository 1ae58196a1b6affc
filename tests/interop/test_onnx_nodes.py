"""Every ONNX op that is read, in nodes of one file, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.interop.onnx.graph_builder import RULES

onnx = pytest.importorskip("onnx", reason="ONNX files need the package onnx")
runtime = pytest.importorskip("onnxruntime", reason="nodes are compared with onnxruntime")
pytestmark = pytest.mark.usefixtures("reference_kernels")
RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


FEEDS = {
    "x": floats(2, 3, 4),
    "y": floats(3, 1) + 0.1,
    "images": floats(2, 4, 7, 6),
    "sequence": floats(5, 2, 3),
    "i": RNG.integers(0, 3, (2, 2)),
    "ends": np.array([[-4, -3, -1], [0, 2, 3]]),
}
FOUR = RNG.uniform(0.5, 1, 4).astype(np.float32)
INTEGERS = np.array([[-7, 5], [3, -4]])
POOL = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}


def recurrent(gates, directions=1, **attrs):
    sizes = [(directions, gates * 4, 3), (directions, gates * 4, 4), (directions, gates * 8)]
    return ["sequence", *(floats(*size) * 0.3 for size in sizes)], {"hidden_size": 4, **attrs}


# By op: inputs (names of fed tensors, or arrays that the file stores) and attributes.
NODES = [
    *(
        (op, ["x"], {})
        for op in (
            *(
                "Abs",
                "Ceil",
                "Celu",
                "Cos",
                "Elu",
                "Erf",
                "Exp",
                "Floor",
                "HardSigmoid",
                "HardSwish",
                "Identity",
            ),
            *(
                "IsInf",
                "IsNaN",
                "LeakyRelu",
                "Mish",
                "Neg",
                "Reciprocal",
                "Relu",
                "Round",
                "Selu",
                "Sigmoid",
                "Sign",
            ),
            *("Sin", "Size", "Softplus", "Softsign", "Tanh", "Dropout", "GlobalMaxPool", "GlobalAveragePool"),
            *(
                f"Reduce{kind}"
                for kind in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
            ),
        )
    ),
    *((op, ["x", "y"], {}) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "PRelu")),
    *((op, ["x", "y"], {}) for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")),
    ("Elu", ["x"], {"alpha": 0.7}),
    ("Celu", ["x"], {"alpha": 0.7}),
    ("Gelu", ["x"], {}),
    ("Gelu", ["x"], {"approximate": "tanh"}),
    ("Pow", ["x", np.array(2, np.int64)], {}),
    ("Mod", ["i", np.array(-3)], {}),
    ("Mod", ["x", "y"], {"fmod": 1}),
    ("Div", ["i", np.array(-2)], {}),
    ("Clip", ["x", np.float32(-0.5)], {}),
    ("Cast", ["i"], {"to": 1}),
    ("CastLike", ["i", "x"], {}),
    ("Constant", [], {"value_floats": [1.0, 2.0]}),
    ("ConstantOfShape", [np.array([2, 3])], {}),
    ("Shape", ["x"], {"start": 1}),
    ("Reshape", ["x", np.array([0, -1, 2])], {}),
    ("Flatten", ["images"], {"axis": 2}),
    ("Squeeze", ["y", np.array([-1])], {}),
    ("Unsqueeze", ["x", np.array([0, -1])], {}),
    ("Transpose", ["x"], {"perm": [2, 0, 1]}),
    ("Expand", ["y", np.array([2, 1, 4])], {}),
    ("Tile", ["y", np.array([2, 3])], {}),
    ("Range", [np.array(1), np.array(9), np.array(3)], {}),
    ("Concat", ["x", "x"], {"axis": -2}),
    ("Slice", ["x", np.array([3, 0]), np.array([-9, 2]), np.array([2, 1]), np.array([-2, 1])], {}),
    ("Gather", ["x", np.array([[-1, 0]])], {"axis": 1}),
    ("Gather", ["x", np.array(1)], {"axis": 2}),
    ("Gather", ["x", "i"], {"axis": 1}),
    ("Pad", ["x", np.array([1, 2, 0, 1]), np.float32(3), np.array([0, -1])], {}),
    ("Pad", ["x", np.array([1, 2, 0, 1]), np.float32(0), np.array([0, -1])], {"mode": "reflect"}),
    ("Trilu", ["x", np.array(1)], {"upper": 0}),
    ("OneHot", ["i", np.array(3), np.array([-1.0, 2.0], np.float32)], {"axis": 1}),
    ("OneHot", ["ends", np.array(3), np.array([-1.0, 2.0], np.float32)], {}),
    ("TopK", ["x", np.array([2])], {"axis": 1}),
    ("ArgMax", ["x"], {"axis": 1, "keepdims": 0}),
    ("ArgMin", ["x"], {"axis": -1}),
    ("Softmax", ["images"], {"axis": 1}),
    ("LogSoftmax", ["x"], {"axis": 0}),
    ("CumSum", ["x", np.array(1)], {"reverse": 1, "exclusive": 1}),
    ("MatMul", ["x", floats(4)], {}),
    ("MatMul", [floats(3), "x"], {}),
    ("Gemm", [floats(3, 2), "y", floats(2, 1)], {"transA": 1, "alpha": 0.5, "beta": 2.0}),
    ("Einsum", ["x", "x"], {"equation": "bij,bkj->bik"}),
    ("Conv", ["images", floats(4, 2, 3, 2), FOUR], {"group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    ("Conv", ["images", floats(8, 1, 3, 3)], {"group": 4, "auto_pad": "SAME_LOWER"}),
    ("Conv", ["x", floats(5, 3, 2)], {"dilations": [2], "pads": [2, 1]}),
    ("MaxPool", ["images"], POOL),
    ("MaxPool", ["images"], {**POOL, "ceil_mode": 1}),
    ("AveragePool", ["images"], POOL),
    ("AveragePool", ["images"], {**POOL, "count_include_pad": 1}),
    ("AveragePool", ["images"], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("AveragePool", ["x"], {"kernel_shape": [2], "auto_pad": "SAME_UPPER"}),
    ("BatchNormalization", ["images", FOUR, FOUR, -FOUR, FOUR], {"epsilon": 0.1}),
    ("LayerNormalization", ["x", FOUR, FOUR], {}),
    ("InstanceNormalization", ["images", FOUR, FOUR], {}),
    ("GroupNormalization", ["images", FOUR, -FOUR], {"num_groups": 2}),
    ("RMSNormalization", ["x", FOUR], {"epsilon": 0.1}),
    ("Attention", ["x", "x", "x"], {"q_num_heads": 2, "kv_num_heads": 2, "is_causal": 1}),
    ("Attention", [floats(2, 2, 3, 4), "images4", "images4", floats(3, 3)], {"scale": 0.3}),
    ("LSTM", *recurrent(4, 2, direction="bidirectional")),
    ("GRU", *recurrent(3, direction="reverse")),
    ("GRU", *recurrent(3, linear_before_reset=1)),
    ("RNN", *recurrent(1, activations=["Relu"])),
]
ELSEWHERE = {"And", "Or", "Xor", "Not", "Where", "Split", "Log", "Sqrt", "ReduceLogSum", "Swish"}


def test_nodes_compute_what_onnxruntime_does(tmp_path):
    helper = onnx.helper
    feeds = {**FEEDS, "images4": floats(2, 2, 3, 4)}
    nodes, stored, outputs = [], [], []

    def name_of(value):
        if isinstance(value, str):
            return value
        stored.append(onnx.numpy_helper.from_array(np.asarray(value), f"stored{len(stored)}"))
        return stored[-1].name

    def add(op, inputs, attrs, count=1):
        made = [f"{op}{len(nodes)}{'' if k == 0 else f'_{k}'}" for k in range(count)]
        nodes.append(helper.make_node(op, [name_of(value) for value in inputs], made, **attrs))
        outputs.extend(made)
        return made

    for op, inputs, attrs in NODES:
        add(op, inputs, attrs, {"LSTM": 3, "GRU": 2, "RNN": 2, "TopK": 2}.get(op, 1))
    low, high = add("Less", ["x", "y"], {}) + add("Greater", ["x", np.float32(1)], {})
    for op in ("And", "Or", "Xor"):
        add(op, [low, high], {})
    add("Where", [*add("Not", [low], {}), "x", "y"], {})
    positive = add("Exp", ["x"], {})
    for op in ("Log", "Sqrt", "ReduceLogSum"):
        add(op, positive, {})
    add("Split", ["x", np.array([1, 2])], {"axis": 1}, 2)
    used = {node.op_type for node in nodes}
    assert used | {"Swish"} == set(RULES)

    def info(name, array):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    ends = [info(name, array) for name, array in feeds.items()]
    results = [
        info(name, FEEDS["images"]) if name.startswith("Group") else onnx.ValueInfoProto(name=name)
        for name in outputs  # the types of all others are inferred
    ]
    graph = helper.make_graph(nodes, "nodes", ends, results, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    model = onnx.shape_inference.infer_shapes(model)
    onnx.save(model, tmp_path / "nodes.onnx")
    expected = runtime.InferenceSession(tmp_path / "nodes.onnx").run(None, feeds)
    imported = tb.interop.onnx.load(tmp_path / "nodes.onnx")
    with tb.Graph().as_default(), tb.Session() as session:
        found = imported(**{name: tb.constant(array) for name, array in feeds.items()})
        session.run(tb.global_variables_initializer())
        values = session.run(found)
    for name, want in zip(outputs, expected, strict=True):
        assert values[name].dtype == want.dtype, name
        np.testing.assert_allclose(values[name], want, rtol=1e-5, atol=1e-5, err_msg=name)
