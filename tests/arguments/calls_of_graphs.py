"""A good call of each function and method of graphs, for the walk over odd arguments."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call

_numbers = itertools.count()  # names that are taken once used

SCOPES = frozenset({"empty list", "set", "generator", "array", "nan array", "ragged list"})
FUNCTION = frozenset({"function"})
DEVICES = {"text", "empty text", "str subclass", "none", "function"}


def graph(method: str) -> Any:
    default = tb.get_default_graph()
    tb.constant(1.0, name="known")
    return getattr(default, method)


def graph_def() -> tb.GraphDef:
    with tb.Graph().as_default() as own:
        tb.constant(1.0, name="a")
        return own.as_graph_def()


def x() -> Any:
    return tb.placeholder(tb.float32, [None], name="x")


_BYTES: Any = {"data": "object"}, {"data": frozenset({"bytes"})}

CALLS: Mapping[str, Call] = {
    "graph_util.extract_sub_graph": Call(
        lambda: {"graph_def": graph_def(), "dest_nodes": ["a"]},
        {"graph_def": "object", "dest_nodes": "list of texts"},
        names=("GraphDef",),
    ),
    "graph_util.convert_variables_to_constants": Call(
        lambda: {
            "sess": tb.Session(graph=tb.Graph()),
            "input_graph_def": graph_def(),
            "output_node_names": ["a"],
        },
        {
            **{"sess": "object", "input_graph_def": "object", "output_node_names": "list of texts"},
            **dict.fromkeys(
                ("variable_names_whitelist", "variable_names_blacklist"), "list of texts or none"
            ),
        },
        names=("GraphDef",),
    ),
    "graph_util.remove_training_nodes": Call(
        lambda: {"input_graph": graph_def()},
        {"input_graph": "object", "protected_nodes": "list of texts or none"},
    ),
    "device": Call(lambda: {"name": "/cpu:0"}, takes={"name": frozenset(DEVICES)}),
    "Scopes.device": Call(
        lambda: {"device": "/cpu:0"},
        {"device": "name"},
        {"device": frozenset(DEVICES)},
        target=lambda: graph("device"),
    ),
    "name_scope": Call(
        lambda: {"name": "a"}, {"default_name": "name", "values": "nothing"}, {"values": SCOPES}
    ),
    "Scopes.name_scope": Call(lambda: {"name": "a"}, target=lambda: graph("name_scope")),
    "control_dependencies": Call(
        lambda: {"inputs": [tb.constant(1.0)]}, {"inputs": "nothing"}, {"inputs": frozenset({"empty list"})}
    ),
    "Scopes.control_dependencies": Call(
        lambda: {"inputs": [tb.constant(1.0)]},
        {"inputs": "nothing"},
        {"inputs": frozenset({"empty list"})},
        target=lambda: graph("control_dependencies"),
    ),
    "colocate_with": Call(
        lambda: {"op": tb.constant(1.0)},
        {"op": "name", "ignore_existing": "flag"},
        {"op": frozenset({"tensor", "variable"})},
    ),
    "Scopes.colocate_with": Call(
        lambda: {"op": tb.constant(1.0)},
        {"op": "name", "ignore_existing": "flag"},
        {"op": frozenset({"tensor", "variable"})},
        target=lambda: graph("colocate_with"),
    ),
    "Scopes.gradient_override_map": Call(
        lambda: {"op_type_map": {"Relu": "Other"}},
        {"op_type_map": "mapping"},
        target=lambda: graph("gradient_override_map"),
    ),
    "RegisterGradient": Call(lambda: {"op_type": "Other"}, {"op_type": "text"}),
    "NoGradient": Call(
        lambda: {"op_type": f"None{next(_numbers)}"}, {"op_type": "text"}, names=("NotDifferentiable",)
    ),
    "custom_gradient": Call(
        lambda: {"f": lambda x: (x, lambda dy: dy)}, {"f": "object"}, {"f": frozenset({"function", "class"})}
    ),
    "recompute_grad": Call(
        lambda: {"f": lambda x: x}, {"f": "object"}, {"f": frozenset({"function", "class"})}
    ),
    "make_template": Call(
        lambda: {"name_": "a", "func_": lambda: None},
        {
            **{"name_": "text", "func_": "object", "create_scope_now_": "flag"},
            **{"unique_name_": "name", "kwargs": "anything"},
        },
        {"func_": frozenset({"function", "class"})},
    ),
    "container": Call(lambda: {"name": "a"}, {"name": "text"}, names=("scope",)),
    "Scopes.container": Call(
        lambda: {"name": "a"}, {"name": "text"}, target=lambda: graph("container"), names=("scope",)
    ),
    "Scopes.unique_name": Call(
        lambda: {"name": "a"},
        {"name": "text", "mark_as_used": "flag"},
        target=lambda: graph("unique_name"),
        names=("name",),
    ),
    "set_random_seed": Call(lambda: {"seed": 1}, {"seed": "seed or none"}),
    "add_to_collection": Call(lambda: {"key": "a", "value": 1}, {"key": "text", "value": "anything"}),
    "add_to_collections": Call(lambda: {"names": ["a"], "value": 1}, {"names": "texts", "value": "anything"}),
    "Graph.add_to_collections": Call(
        lambda: {"names": ["a"], "value": 1},
        {"names": "texts", "value": "anything"},
        target=lambda: graph("add_to_collections"),
    ),
    "get_collection": Call(lambda: {"key": "a"}, {"key": "text", "scope": "name"}),
    "Graph.add_to_collection": Call(
        lambda: {"name": "a", "value": 1},
        {"name": "text", "value": "anything"},
        target=lambda: graph("add_to_collection"),
    ),
    "Graph.get_collection": Call(
        lambda: {"name": "a"},
        {"name": "text", "scope": "name"},
        target=lambda: graph("get_collection"),
    ),
    "Graph.get_operation_by_name": Call(
        lambda: {"name": "known"}, {"name": "text"}, target=lambda: graph("get_operation_by_name")
    ),
    "Graph.get_tensor_by_name": Call(
        lambda: {"name": "known:0"},
        {"name": "text"},
        target=lambda: graph("get_tensor_by_name"),
        names=("tensor name",),
    ),
    "Graph.as_graph_element": Call(
        lambda: {"obj": "known"},
        {"obj": "text"},
        {"obj": frozenset({"tensor", "variable"})},
        target=lambda: graph("as_graph_element"),
        names=("graph",),
    ),
    "Graph.consumers": Call(
        lambda: {"tensor": tb.constant(1.0)},
        {"tensor": "object"},
        {"tensor": frozenset({"tensor"})},
        target=lambda: graph("consumers"),
    ),
    "Graph.to_dot": Call(lambda: {"title": "a"}, {"title": "text"}, target=lambda: graph("to_dot")),
    "GraphDef.from_json": Call(
        lambda: {"text": tb.get_default_graph().as_graph_def().to_json()},
        {"text": "text"},
        {"text": frozenset({"bytes"})},
    ),
    "GraphDef.FromString": Call(
        lambda: {"data": tb.get_default_graph().as_graph_def().SerializeToString()}, *_BYTES
    ),
    "GraphDef.ParseFromString": Call(
        lambda: {"data": tb.get_default_graph().as_graph_def().SerializeToString()},
        *_BYTES,
        target=lambda: graph("as_graph_def")().ParseFromString,
    ),
    "GraphDef.from_file_content": Call(
        lambda: {"content": tb.get_default_graph().as_graph_def().SerializeToString()},
        {"content": "object"},
        {"content": frozenset({"bytes"})},
    ),
    "GraphDef.extract": Call(
        lambda: {"names": ["known"]},
        {"names": "object"},
        {"names": frozenset({"empty list"})},
        target=lambda: graph("as_graph_def")().extract,
    ),
    "Tensor.set_shape": Call(
        lambda: {"shape": [None]},
        {"shape": "extents or none"},
        {"shape": frozenset({"-1", "generator"})},
        target=lambda: x().set_shape,
    ),
    "Tensor.eval": Call(
        lambda: {"session": tb.Session()},
        {"feed_dict": "nothing", "session": "nothing"},
        {"feed_dict": frozenset({"empty dict"})},
        target=lambda: tb.constant(1.0).eval,
        names=("run",),
    ),
    "SparseTensor.eval": Call(
        lambda: {"session": tb.Session()},
        {"feed_dict": "nothing", "session": "nothing"},
        {"feed_dict": frozenset({"empty dict"})},
        target=lambda: tb.sparse_eye(2).eval,
        names=("run", "eval"),
    ),
    "SparseTensor.from_value": Call(
        lambda: {"sparse_tensor_value": tb.SparseTensorValue([[0]], [1.0], [2])},
        {"sparse_tensor_value": "object"},
        target=lambda: tb.SparseTensor.from_value,
        names=("from_value",),
    ),
    "Operation.run": Call(
        lambda: {"session": tb.Session()},
        {"feed_dict": "nothing", "session": "nothing"},
        {"feed_dict": frozenset({"empty dict"})},
        target=lambda: tb.constant(1.0).op.run,
    ),
    "TensorShape": Call(
        lambda: {"dims": [2, None]}, {"dims": "extents or none"}, {"dims": frozenset({"-1", "generator"})}
    ),
    "hessians": Call(
        lambda: {"ys": [tb.reduce_sum((variable := weights()) * 2.0)], "xs": [variable]},
        {"ys": "object", "xs": "object"},
        {name: frozenset({"tensor", "variable", "empty list"}) for name in ("ys", "xs")},
        names=("gradients",),
    ),
    "gradients": Call(
        lambda: {"ys": [tb.reduce_sum((variable := weights()) * 2.0)], "xs": [variable]},
        {
            "ys": "object",
            "xs": "object",
            "grad_ys": "tensor or none",
            "colocate_gradients_with_ops": "flag",
            **dict.fromkeys(("gate_gradients", "aggregation_method"), "anything"),
            "unconnected_gradients": "choice",
            "stop_gradients": "nothing",
        },
        {
            "ys": frozenset({"tensor", "variable", "empty list"}),
            "xs": frozenset({"tensor", "variable", "empty list"}),
            "stop_gradients": frozenset({"tensor", "variable", "empty list"}),
        },
    ),
}


def weights() -> Any:
    return tb.Variable(np.ones(2, np.float32), name="weights")
