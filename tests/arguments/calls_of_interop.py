"""A good call of what exchanges models and weights with other frameworks, for the walk over odd arguments."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call

MODEL = str(Path(__file__).parent.parent / "interop" / "data" / "mlp-script.onnx")
STATE = str(Path(__file__).parent.parent / "interop" / "data" / "lenet-state.safetensors")
PATH = frozenset({"path"})
NONE = frozenset({"none", "empty list", "empty dict"})
OF_FILES = ("there is no file", "cannot read", "cannot write")
WEIGHTS = {"session": "object", "variables": "nothing", "names": "nothing", "flattened": "nothing"}


def trained() -> Mapping[str, Any]:
    """A session of a new graph with a dense layer, and its only variables."""
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float32, [None, 2], name="x")
        y = tb.layers.dense(x, 3, name="fc")
        with tb.Session() as session:
            session.run(tb.global_variables_initializer())
            values = session.run({v.op.name: v.op.outputs[0] for v in tb.global_variables()})
    return {"graph": graph, "x": x, "y": y, "values": values}


def exporting() -> Mapping[str, Any]:
    made = trained()
    return {
        "source": made["graph"],
        "file": f"{tempfile.mkdtemp()}/m.onnx",
        "inputs": {"x": made["x"]},
        "outputs": {"y": made["y"]},
        "values": made["values"],
    }


def session() -> tb.Session:
    """A session of the current graph, which has a dense layer."""
    tb.layers.dense(tb.zeros([1, 2]), 3, name="fc")
    made = tb.Session()
    made.run(tb.global_variables_initializer())
    return made


def state() -> Mapping[str, Any]:
    return {"fc.weight": np.zeros((3, 2), np.float32), "fc.bias": np.zeros(3, np.float32)}


CALLS: Mapping[str, Call] = {
    "interop.onnx.load": Call(
        lambda: {"file": MODEL},
        {"file": "text", "data_format": "choice", "frozen": "list of texts"},
        {"file": PATH},
    ),
    "interop.onnx.OnnxClassifier": Call(
        lambda: {"file": MODEL}, {"file": "text", "frozen": "list of texts"}, {"file": PATH}, names=("load",)
    ),
    "interop.onnx.export": Call(
        exporting,
        {
            "source": "text",
            "file": "text",
            "inputs": "names",
            "outputs": "names",
            "values": "names",
            "opset": "count",
        },
        {"source": PATH | {"graph"}, "file": PATH, "outputs": frozenset({"empty list"})},
        names=("ONNX", "holds no trained model", "is not an element of this graph", "cannot write"),
    ),
    "interop.torch.read_state": Call(
        lambda: {"file": STATE}, {"file": "text"}, {"file": PATH}, names=OF_FILES
    ),
    "interop.torch.load_weights": Call(
        lambda: {"source": state(), "session": session()},
        {"source": "text", "strict": "flag", "skip": "list of texts", **WEIGHTS},
        {"source": PATH | {"empty dict"}, **dict.fromkeys(("variables", "names", "flattened"), NONE)},
        names=OF_FILES,
    ),
    "interop.torch.state_of": Call(
        lambda: {"session": session()}, WEIGHTS, dict.fromkeys(("variables", "names", "flattened"), NONE)
    ),
    "interop.torch.save_weights": Call(
        lambda: {"session": session(), "file": f"{tempfile.mkdtemp()}/state.safetensors"},
        {"file": "text", **WEIGHTS},
        {"file": PATH, **dict.fromkeys(("variables", "names", "flattened"), NONE)},
        names=("state_of", *OF_FILES),
    ),
}
