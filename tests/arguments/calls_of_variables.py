"""A good call of variables, their scopes, initialisers and layers, for the walk over odd arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.odd_values import ODD
from tests.arguments.public_calls import Call

START = frozenset(ODD) - {"class", "bytes", "empty dict", "set"}  # what an initialiser may be seen to be
SCALARS = {
    "trainable": "flag or none",
    "decayed": "flag or none",
    "combine": "choice or none",
    "synchronization": "choice",
    "aggregation": "choice",
}
COLLECTIONS = {"collections": frozenset({"empty list"})}
PARTS = ("kernel", "bias", "beta", "gamma", "depthwise", "pointwise", "embeddings")
WITH_REGULARIZER = ("kernel", "bias", "depthwise", "pointwise")
LAYER = {
    "trainable": "flag",
    "use_bias": "flag",
    "reuse": "flag or none",
    "activation": "nothing",
    **{f"{part}_regularizer": "function or none" for part in WITH_REGULARIZER},
    **{f"{part}_initializer": "start" for part in PARTS},
    **{f"moving_{part}_initializer": "start" for part in ("mean", "variance")},
}
TAKES = {
    "activation": frozenset({"function"}),
    **{name: START for name, sort in LAYER.items() if sort == "start"},
}
LAYER = {name: "nothing" if sort == "start" else sort for name, sort in LAYER.items()}
OF_INITIALIZER = ("get_variable", "initializer", "variable")
SHAPES = frozenset({"none", "-1", "generator"})


def images() -> Any:
    return tb.placeholder(tb.float32, [None, 8, 8, 3], name="images")


def rows() -> Any:
    return tb.placeholder(tb.float32, [None, 3], name="rows")


def called_layer() -> Any:
    layer = tb.layers.Dense(4)
    layer(rows())
    return layer


def weights() -> Any:
    return tb.Variable(np.ones(2, np.float32), name="weights")


def counter() -> Any:
    return tb.Variable(0, name="counter")


def with_seed(name: str) -> Call:
    return Call(dict, {"seed": "seed or none"}, names=("VarianceScaling", name))


def drawn(name: str, *numbers: str) -> Call:
    return Call(
        dict,
        {**dict.fromkeys(numbers, "number"), "seed": "seed or none"},
        names=(name.lower(),),
    )


CALLS: Mapping[str, Call] = {
    "Variable": Call(
        lambda: {"initial_value": [1.0, 2.0]},
        {
            "initial_value": "tensor",
            "dtype": "nothing",
            "slot": "nothing",
            "collections": "nothing",
            "use_resource": "flag or none",
            "validate_shape": "flag",
            **SCALARS,
        },
        {**COLLECTIONS, "initial_value": frozenset({"text", "bytes", "empty text", "str subclass"})},
        names=("Const", "fill"),
    ),
    "Variable.assign": Call(
        lambda: {"value": [1.0, 2.0]}, {"use_locking": "flag or none"}, target=lambda: weights().assign
    ),
    **{
        f"Variable.{method}": Call(
            lambda: {"delta": [1.0, 2.0]},
            {"delta": "tensor", "use_locking": "flag or none"},
            target=lambda method=method: getattr(weights(), method),
        )
        for method in ("assign_add", "assign_sub")
    },
    "assign": Call(
        lambda: {"ref": weights(), "value": [1.0, 2.0]},
        {"ref": "variable", "use_locking": "flag or none", "validate_shape": "flag or none"},
    ),
    "assign_add": Call(
        lambda: {"ref": weights(), "value": [1.0, 2.0]}, {"ref": "variable", "use_locking": "flag or none"}
    ),
    "assign_sub": Call(
        lambda: {"ref": weights(), "value": [1.0, 2.0]}, {"ref": "variable", "use_locking": "flag or none"}
    ),
    **{
        name: Call(
            lambda more=more: {"limit": 3} | ({"ref": counter()} if more else {}),
            {"ref": "variable", "limit": "axis"},
            {"limit": frozenset({"2**40"})},
            target=None if more else lambda: counter().count_up_to,
        )
        for name, more in (("count_up_to", True), ("Variable.count_up_to", False))
    },
    **{
        f"Variable.{method}": Call(
            lambda: {"sparse_delta": tb.IndexedSlices([1.0], [0])},
            {"sparse_delta": "object", "use_locking": "flag"},
            target=lambda method=method: getattr(weights(), method),
        )
        for method in (
            *("batch_scatter_update", "scatter_add", "scatter_div", "scatter_max", "scatter_min"),
            *("scatter_mul", "scatter_sub", "scatter_update"),
        )
    },
    **{
        f"Variable.{method}": Call(
            lambda: {"indices": [[1]], "updates": [1.0]},
            {"updates": "tensor"},
            target=lambda method=method: getattr(weights(), method),
            names=("scatter_nd",),
        )
        for method in ("scatter_nd_add", "scatter_nd_sub", "scatter_nd_update")
    },
    **{
        f"Variable.{method}": Call(
            lambda: {"indices": [[1]]},
            target=lambda method=method: getattr(weights(), method),
            names=("gather",),
        )
        for method in ("gather_nd", "sparse_read")
    },
    "Variable.eval": Call(
        lambda: {"session": initialized()},
        {"session": "nothing"},
        target=lambda: tb.global_variables()[0].eval,
    ),
    "Variable.load": Call(
        lambda: {"session": initialized(), "value": [1.0, 2.0]},
        {"session": "nothing"},
        target=lambda: tb.global_variables()[0].load,
        names=("weights",),
    ),
    "initialize_variables": Call(
        lambda: {"var_list": [weights()]}, {"var_list": "object"}, {"var_list": frozenset({"empty list"})}
    ),
    "moving_average_variables": Call(dict, {"scope": "name"}),
    "get_local_variable": Call(
        lambda: {"name": "w", "shape": [2]},
        {
            "name": "text",
            "shape": "extents",
            **dict.fromkeys(("dtype", "initializer", "collections"), "nothing"),
            "regularizer": "function or none",
        },
        {"shape": SHAPES, "collections": frozenset({"empty list"})},
        names=OF_INITIALIZER,
    ),
    "variables_initializer": Call(
        lambda: {"variables": [weights()]}, {"variables": "object"}, {"variables": frozenset({"empty list"})}
    ),
    "VariableScope": Call(
        dict,
        {
            "name": "text",
            "reuse": "flag",
            "initializer": "nothing",
            **dict.fromkeys(("regularizer", "partitioner", "custom_getter"), "function or none"),
        },
        {"initializer": START},
    ),
    "variable_creator_scope": Call(
        lambda: {"variable_creator": lambda make, **arguments: make(**arguments)},
        {"variable_creator": "function"},
    ),
    "variable_scope": Call(
        lambda: {"name_or_scope": "a"},
        {
            "name_or_scope": "name",
            "default_name": "name",
            "values": "anything",
            "initializer": "nothing",
            "regularizer": "function or none",
            "reuse": "flag or none",
            "dtype": "nothing",
            "partitioner": "function or none",
            "custom_getter": "function or none",
            "use_resource": "flag or none",
        },
        {"initializer": START},
    ),
    "get_variable": Call(
        lambda: {"name": "w", "shape": [2]},
        {
            "name": "text",
            "shape": "extents",
            "dtype": "nothing",
            "initializer": "nothing",
            "regularizer": "function or none",
            "partitioner": "function or none",
            "custom_getter": "function or none",
            "use_resource": "flag or none",
            "validate_shape": "flag",
            "collections": "nothing",
            **SCALARS,
        },
        {"initializer": START, "shape": SHAPES, **COLLECTIONS},
        names=("variable", "initializer", "constant"),
    ),
    "fixed_size_partitioner": Call(lambda: {"num_shards": 2}, {"num_shards": "count", "axis": "count"}),
    "variable_axis_size_partitioner": Call(
        lambda: {"max_shard_bytes": 64},
        {"max_shard_bytes": "count", "axis": "count", "max_shards": "count or none"},
    ),
    "min_max_variable_partitioner": Call(
        dict, {"max_partitions": "count", "axis": "count", "min_slice_size": "count"}
    ),
    **{
        f"PartitionedVariable.{method}": Call(
            lambda argument=argument: {argument: np.ones((3, 2))},
            {argument: "tensor"},
            target=lambda method=method: getattr(
                tb.get_variable("cut", [3, 2], partitioner=tb.fixed_size_partitioner(2)), method
            ),
            names=("split", "convert_to_tensor"),
        )
        for method, argument in (("assign", "value"), ("assign_add", "delta"), ("assign_sub", "delta"))
    },
    "Initializer.__call__": Call(
        lambda: {"shape": [2]},
        {"shape": "extents", "dtype": "nothing", "partition_info": "nothing or none"},
        {"shape": SHAPES},
        target=lambda: tb.initializers.he_normal(),
        names=("TruncatedNormal",),
    ),
    "constant_initializer": Call(dict, {"value": "anything", "verify_shape": "flag"}, names=("constant",)),
    "initializers.Zeros": Call(),
    "initializers.Ones": Call(),
    "initializers.RandomUniform": drawn("RandomUniform", "minval", "maxval"),
    "initializers.RandomNormal": drawn("RandomNormal", "mean", "stddev"),
    "initializers.TruncatedNormal": drawn("TruncatedNormal", "mean", "stddev"),
    "initializers.VarianceScaling": Call(
        dict, {"scale": "positive", "mode": "choice", "distribution": "choice", "seed": "seed or none"}
    ),
    "initializers.Orthogonal": Call(dict, {"gain": "number", "seed": "seed or none"}),
    "initializers.fans": Call(lambda: {"shape": [3, 4]}, {"shape": "extents"}),
    "initializers.get": Call(
        lambda: {"identifier": "zeros"}, {"identifier": "text"}, {"identifier": frozenset({"function"})}
    ),
    **{
        f"initializers.{name}": with_seed(name)
        for name in (
            "he_normal",
            "he_uniform",
            "lecun_normal",
            "lecun_uniform",
        )
    },
    **{f"{name}_initializer": with_seed(name) for name in ("glorot_normal", "glorot_uniform")},
    **{
        f"Layer.{method}": Call(
            lambda: {"inputs": rows()},
            {"inputs": "tensor"},
            target=lambda method=method: getattr(tb.layers.Dense(4), method),
            names=(*OF_INITIALIZER, "dense", "MatMul", "constant"),
        )
        for method in ("__call__", "apply")
    },
    "layers.Layer": Call(
        dict,
        {"trainable": "flag", "dtype": "dtype or none", "activity_regularizer": "function or none"}
        | {"_reuse": "flag or none"},
    ),
    "layers.InputSpec": Call(
        dict,
        {"dtype": "dtype or none", "axes": "names"}
        | dict.fromkeys(("ndim", "min_ndim", "max_ndim"), "count or none"),
        {"shape": SHAPES, **dict.fromkeys(("ndim", "min_ndim", "max_ndim"), frozenset({"zero"}))},
    ),
    "Layer.add_weight": Call(
        lambda: {"name": "w", "shape": [2]},
        {
            "dtype": "dtype or none",
            "name": "text",
            "initializer": "nothing",
            "regularizer": "function or none",
            "partitioner": "function or none",
            "use_resource": "flag or none",
            **{name: SCALARS[name] for name in ("synchronization", "aggregation")},
            "trainable": "flag",
        },
        {"initializer": START, "shape": SHAPES},
        target=lambda: called_layer().add_weight,
        names=OF_INITIALIZER,
    ),
    **{
        f"Layer.add_{what}": Call(
            lambda key=key: {key: tb.constant(1.0)},
            {"losses": "object", "updates": "object", "inputs": "anything"},
            dict.fromkeys(("losses", "updates"), frozenset({"none", "empty list", "empty tuple", "tensor"})),
            target=lambda what=what: getattr(called_layer(), f"add_{what}"),
        )
        for what, key in (("loss", "losses"), ("update", "updates"))
    },
    "layers.dense": Call(
        lambda: {"inputs": rows(), "units": 4},
        {"units": "count", **LAYER},
        TAKES,
        names=(*OF_INITIALIZER, "MatMul", "constant"),
    ),
    "layers.conv2d": Call(
        lambda: {"inputs": images(), "filters": 4, "kernel_size": 3},
        {
            **dict.fromkeys(("filters", "kernel_size", "strides", "dilation_rate", "groups"), "count"),
            **LAYER,
        },
        TAKES,
        names=(*OF_INITIALIZER, "constant"),
    ),
    "layers.conv2d_transpose": Call(
        lambda: {"inputs": tb.zeros([2, 8, 8, 3]), "filters": 4, "kernel_size": 3},
        {
            **dict.fromkeys(("filters", "kernel_size", "strides"), "count"),
            "output_padding": "nothing",
            **LAYER,
        },
        TAKES,
        names=(*OF_INITIALIZER, "constant"),
    ),
    "is_variable_initialized": Call(lambda: {"variable": weights()}, {"variable": "variable"}),
    "report_uninitialized_variables": Call(
        dict, {"var_list": "nothing"}, {"var_list": frozenset({"empty list", "empty tuple"})}
    ),
    **{
        f"{which}_variables": Call(dict, {"scope": "name"}, names=("get_collection",))
        for which in ("global", "local", "trainable", "model")
    },
    "layers.conv1d": Call(
        lambda: {"inputs": tb.zeros([2, 6, 3]), "filters": 4, "kernel_size": 2},
        {
            **dict.fromkeys(("filters", "kernel_size", "strides", "dilation_rate"), "count"),
            **LAYER,
        },
        TAKES,
        names=(*OF_INITIALIZER, "constant", "conv2d"),
    ),
    "layers.depthwise_conv2d": Call(
        lambda: {"inputs": images(), "kernel_size": 3},
        {**dict.fromkeys(("kernel_size", "strides", "depth_multiplier", "dilation_rate"), "count"), **LAYER},
        TAKES,
        names=(*OF_INITIALIZER, "constant"),
    ),
    "layers.separable_conv1d": Call(
        lambda: {"inputs": tb.zeros([2, 7, 3]), "filters": 4, "kernel_size": 3},
        {
            **dict.fromkeys(
                ("filters", "kernel_size", "strides", "depth_multiplier", "dilation_rate"), "count"
            ),
            **LAYER,
        },
        TAKES,
        names=(*OF_INITIALIZER, "constant", "depthwise_conv2d"),
    ),
    "layers.separable_conv2d": Call(
        lambda: {"inputs": images(), "filters": 4, "kernel_size": 3},
        {
            **dict.fromkeys(
                ("filters", "kernel_size", "strides", "depth_multiplier", "dilation_rate"), "count"
            ),
            **LAYER,
        },
        TAKES,
        names=(*OF_INITIALIZER, "constant", "depthwise_conv2d"),
    ),
    "layers.embedding": Call(
        lambda: {"inputs": tb.zeros([2, 3], tb.int32), "input_dim": 4, "output_dim": 5},
        {"input_dim": "count", "output_dim": "count", "dtype": "nothing", **LAYER},
        TAKES,
        names=(*OF_INITIALIZER, "gather", "constant"),
    ),
    "layers.layer_normalization": Call(
        lambda: {"inputs": rows()},
        {"epsilon": "positive", "center": "flag", "scale": "flag", **LAYER},
        TAKES,
        names=(*OF_INITIALIZER, "constant", "reduce_mean", "layer_norm"),
    ),
    "layers.group_normalization": Call(
        lambda: {"inputs": images(), "groups": 3},
        {"groups": "count", "epsilon": "positive", "center": "flag", "scale": "flag", **LAYER},
        TAKES,
        names=(*OF_INITIALIZER, "constant", "reduce_mean"),
    ),
    "layers.multi_head_attention": Call(
        lambda: {"query": tb.zeros([2, 3, 4]), "num_heads": 2},
        {
            "num_heads": "count",
            **dict.fromkeys(("key_dim", "value_dim", "output_dim"), "count or none"),
            "query": "tensor",
            **dict.fromkeys(("value", "key", "mask"), "tensor or none"),
            "dropout": "fraction",
            **dict.fromkeys(("causal", "training"), "flag"),
            **LAYER,
        },
        TAKES,
        names=(*OF_INITIALIZER, "constant", "dense", "Select", "attention"),
    ),
    "layers.sequential": Call(
        lambda: {"inputs": rows(), "layers": [tb.nn.relu]},
        {"layers": "nothing", "reuse": "flag or none"},
        {"layers": frozenset({"empty list"})},
    ),
    "layers.residual": Call(
        lambda: {"inputs": rows(), "block": tb.nn.relu},
        {"block": "object", "shortcut": "object or none", **LAYER},
        TAKES,
    ),
    **{
        f"nn.rnn_cell.{name}": Call(
            lambda: {"num_units": 3},
            {
                "num_units": "count",
                "num_proj": "count or none",
                **dict.fromkeys(("use_peepholes", "state_is_tuple", "reset_after"), "flag"),
                **dict.fromkeys(("cell_clip", "proj_clip"), "positive or none"),
                "forget_bias": "number",
                "initializer": "nothing",
                **LAYER,
            },
            {**TAKES, "initializer": START},
        )
        for name in ("BasicLSTMCell", "BasicRNNCell", "GRUCell", "LSTMCell")
    },
    "RNNCell.zero_state": Call(
        lambda: {"batch_size": 2},
        {"batch_size": "count"},
        target=lambda: tb.nn.rnn_cell.GRUCell(3).zero_state,
        names=("zeros",),
    ),
    **{
        f"layers.{which}_pooling1d": Call(
            lambda: {"inputs": tb.zeros([2, 6, 3]), "pool_size": 2, "strides": 2},
            {"pool_size": "count", "strides": "count"},
            names=("pool2d", "ExpandDims", "expand_dims"),
        )
        for which in ("average", "max")
    },
    "layers.max_pooling2d": Call(
        lambda: {"inputs": images(), "pool_size": 2, "strides": 2},
        {"pool_size": "count", "strides": "count"},
        names=("max_pool2d", "MaxPool"),
    ),
    "layers.average_pooling2d": Call(
        lambda: {"inputs": images(), "pool_size": 2, "strides": 2},
        {"pool_size": "count", "strides": "count"},
        names=("avg_pool2d", "AvgPool"),
    ),
    "layers.dropout": Call(
        lambda: {"inputs": rows(), "training": True},
        {"seed": "seed or none", "rate": "fraction", "noise_shape": "shape or none", "training": "flag"},
        {"noise_shape": frozenset({"generator"})},
        names=("value of type int64",),
    ),
    "layers.flatten": Call(lambda: {"inputs": rows()}, names=("Reshape", "slice")),
    **{
        f"layers.{name}": Call(lambda: {"scale": 0.1}, {"scale": "positive", "scope": "name"})
        for name in ("l1_regularizer", "l2_regularizer")
    },
    "layers.batch_normalization": Call(
        lambda: {"inputs": rows()},
        {
            "momentum": "fraction",
            "epsilon": "positive",
            "center": "flag",
            "scale": "flag",
            "training": "flag",
            "cross_replica": "flag",
            **LAYER,
        },
        TAKES,
        names=(*OF_INITIALIZER, "FusedBatchNorm"),
    ),
}


def initialized() -> Any:
    weights()
    session = tb.Session()
    session.run(tb.global_variables_initializer())
    return session
