"""A good call of each function of neural networks, under odd arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.calls_of_ops import flow, images, ops, vector, x23
from tests.arguments.public_calls import Call


def filters() -> Any:
    return tb.constant(np.ones((2, 2, 2, 3), np.float32))


def codes(values: Any) -> Any:
    """Numbers in 8 bits."""
    return tb.constant(values, tb.uint8)


def same(**more: Any) -> dict[str, Any]:
    return {"strides": 1, "padding": "SAME", **more}


_ZERO_POINTS = dict.fromkeys(("zero_point", "a_zero_point", "input_zero_point"), "extents")
_FAKE = {"num_bits": "extents", "narrow_range": "flag"}
_CONVOLVED = {"use_cudnn_on_gpu": "flag", "dilations": "windows or none", "data_format": "choice or none"}
COUNTS = {
    **dict.fromkeys(("num_true", "num_sampled", "range_max", "num_classes"), "count"),
    "seed": "seed or none",
}

CALLS: Mapping[str, Call] = {
    **ops("nn.relu nn.sigmoid nn.tanh", lambda: {"x": vector()}),
    **ops(
        "nn.softmax nn.log_softmax",
        lambda: {"logits": x23()},
        sorts={"axis": "axis or none"},
        names=("softmax",),
    ),
    "nn.softmax_cross_entropy_with_logits_v2": Call(
        lambda: {"labels": x23(), "logits": x23()},
        sorts={"axis": "axis or none"},
        names=("softmax_cross_entropy_with_logits",),
    ),
    "nn.softmax_cross_entropy_with_logits": Call(
        lambda: {"labels": x23(), "logits": x23()},
        sorts={"_sentinel": "nothing", "dim": "axis"},
        takes={"dim": frozenset({"2**40"})},
    ),
    "nn.sparse_softmax_cross_entropy_with_logits": Call(
        lambda: {"labels": [1, 0], "logits": x23()}, sorts={"_sentinel": "nothing"}
    ),
    "nn.sigmoid_cross_entropy_with_logits": Call(
        lambda: {"labels": x23(), "logits": x23()},
        sorts={"_sentinel": "nothing", "labels": "tensor", "logits": "tensor"},
    ),
    "nn.weighted_cross_entropy_with_logits": Call(
        lambda: {"targets": x23(), "logits": x23(), "pos_weight": 2.0},
        sorts={"targets": "tensor", "logits": "tensor", "pos_weight": "tensor"},
        names=("sub", "mul", "add"),
    ),
    "nn.xw_plus_b": Call(
        lambda: {"x": x23(), "weights": np.ones((3, 2), np.float32), "biases": [1.0, 2.0]},
        sorts={"weights": "tensor", "biases": "tensor"},
        names=("matmul", "bias_add"),
    ),
    "nn.relu_layer": Call(
        lambda: {"x": x23(), "weights": np.ones((3, 2), np.float32), "biases": [1.0, 2.0]},
        sorts={"weights": "tensor", "biases": "tensor"},
        names=("matmul", "bias_add", "xw_plus_b"),
    ),
    "nn.zero_fraction": Call(lambda: {"value": x23()}, names=("equal", "mean", "cast")),
    "nn.embedding_lookup": Call(
        lambda: {"params": x23(), "ids": [1]},
        sorts={
            "params": "tensor",
            "ids": "tensor",
            "partition_strategy": "choice",
            "max_norm": "positive or none",
            "validate_indices": "flag",
        },
        names=("gather",),
    ),
    **ops(
        "nn.log_uniform_candidate_sampler nn.uniform_candidate_sampler nn.learned_unigram_candidate_sampler",
        lambda: {"true_classes": [[1]], "num_true": 1, "num_sampled": 2, "unique": False, "range_max": 9},
        sorts={"true_classes": "tensor", **COUNTS, "unique": "flag"},
        names=("random_uniform",),
    ),
    "nn.all_candidate_sampler": Call(
        lambda: {"true_classes": [[1]], "num_true": 1, "num_sampled": 2, "unique": False},
        sorts={"true_classes": "tensor", **COUNTS, "unique": "flag"},
        names=("range", "constant"),
    ),
    "nn.fixed_unigram_candidate_sampler": Call(
        lambda: (
            {"true_classes": [[1]], "num_true": 1, "num_sampled": 1, "unique": False, "range_max": 2}
            | {"unigrams": [1.0, 2.0]}
        ),
        sorts={
            "true_classes": "tensor",
            **COUNTS,
            "unique": "flag",
            "vocab_file": "text",
            "shard": "count",
            "distortion": "positive",
            "num_reserved_ids": "count",
            "num_shards": "count",
            "unigrams": "numbers",
        },
    ),
    "nn.compute_accidental_hits": Call(
        lambda: {"true_classes": [[1]], "sampled_candidates": [1], "num_true": 1},
        sorts={"true_classes": "tensor", "sampled_candidates": "tensor", **COUNTS, "seed": "anything"},
        names=("cast", "equal"),
    ),
    **{
        f"nn.{name}": Call(
            lambda: (
                {"weights": x23(), "biases": [0.0, 1.0], "labels": [[1]], "inputs": [[1.0, 2.0, 3.0]]}
                | {"num_sampled": 2, "num_classes": 2}
            ),
            sorts={
                **dict.fromkeys(("weights", "biases", "labels", "inputs"), "tensor"),
                **COUNTS,
                "sampled_values": "nothing",
                "remove_accidental_hits": "flag",
                "partition_strategy": "choice",
                "seed": "seed or none",
            },
            takes=dict.fromkeys(("weights", "biases"), frozenset({"ragged list"})),  # shards
            names=(
                *("gather", "embedding_lookup", "log_uniform_candidate_sampler", "reshape", "slice"),
                *("multiply", "mul", "matmul", "random_uniform", "strided_slice", "expand_dims"),
            ),
        )
        for name in ("nce_loss", "sampled_softmax_loss")
    },
    "nn.in_top_k": Call(
        lambda: {"predictions": x23(), "targets": [1, 2], "k": 1},
        sorts={"predictions": "tensor", "targets": "tensor", "k": "count"},
        names=("slice", "shape", "cast", "equal", "where", "select", "greater", "expand_dims"),
    ),
    **ops(
        "lin_space",  # and linspace, the same function
        lambda: {"start": 0.0, "stop": 1.0, "num": 3},
        sorts={"start": "real", "stop": "real", "num": "count"},
        names=("mul", "add", "linspace"),
    ),
    "nn.bias_add": Call(
        lambda: {"value": x23(), "bias": [1.0, 2.0, 3.0]}, sorts={"data_format": "choice or none"}
    ),
    "nn.l2_loss": Call(lambda: {"t": x23()}),
    "nn.dropout": Call(
        lambda: {"x": x23(), "keep_prob": 0.5},
        sorts={
            "keep_prob": "rate or none",
            "rate": "rate or none",
            "noise_shape": "shape or none",
            "seed": "seed or none",
        },
    ),
    "nn.top_k": Call(lambda: {"input": x23()}, sorts={"k": "count", "sorted": "flag"}),
    "nn.l2_normalize": Call(
        lambda: {"x": x23()},
        sorts={"axis": "axes or none", "epsilon": "positive"},
        names=("Sum",),
    ),
    "nn.moments": Call(
        lambda: {"x": x23(), "axes": [0]},
        sorts={"axes": "axes or none", "shift": "anything"},
        names=("mean", "squeeze"),
    ),
    "nn.batch_normalization": Call(
        lambda: {
            "x": x23(),
            "mean": 0.0,
            "variance": 1.0,
            "offset": None,
            "scale": None,
            "variance_epsilon": 1e-3,
        },
        sorts={"offset": "tensor or none", "scale": "tensor or none", "variance_epsilon": "rate"},
        names=("add", "mul", "sub", "rsqrt"),
    ),
    "nn.cross_replica_batch_norm": Call(
        lambda: {"x": images(), "scale": vector(), "offset": vector()},
        sorts={"epsilon": "number", "data_format": "choice or none"},
        names=("cross_replica", "mul", "add"),
    ),
    "nn.fused_batch_norm": Call(
        lambda: {"x": images(), "scale": vector(), "offset": vector()},
        sorts={
            "mean": "tensor or none",
            "variance": "tensor or none",
            "epsilon": "number",
            "is_training": "flag",
            "data_format": "choice or none",
        },
        names=("batch_norm",),
    ),
    "nn.layer_norm": Call(
        lambda: {"x": x23()},
        sorts={"scale": "tensor or none", "offset": "tensor or none", "epsilon": "number"},
        names=("mul", "add"),
    ),
    **ops(
        "nn.avg_pool nn.max_pool",
        lambda: {"value": images(), "ksize": 2, **same()},
        sorts={"data_format": "choice or none"},
    ),
    "quantization.quantize": Call(
        lambda: {"input": x23(), "scale": 0.1},
        sorts={"zero_point": "extents", "axis": "axis or none"},
        takes={"zero_point": frozenset({"-1"})},
    ),
    "quantization.dequantize": Call(
        lambda: {"input": codes([[1, 2], [3, 4]]), "scale": 0.1},
        sorts={"zero_point": "extents", "axis": "axis or none"},
        takes={"zero_point": frozenset({"-1"})},
    ),
    "quantization.quantized_matmul": Call(
        lambda: {"a": codes([[1, 2]]), "b": tb.constant([[1], [2]], tb.int8)},
        sorts={"bias": "tensor or none", "multiplier": "tensor or none", **_ZERO_POINTS},
    ),
    "quantization.quantized_conv2d": Call(
        lambda: {
            "input": codes(np.ones((1, 4, 4, 2), np.uint8)),
            "filter": tb.constant(np.ones((2, 2, 2, 3), np.int8)),
            **same(),
        },
        sorts={"bias": "tensor or none", "multiplier": "tensor or none", "dilations": "windows or none"}
        | _ZERO_POINTS,
    ),
    **ops(
        "quantization.fake_quant_with_min_max_vars quantization.fake_quant_with_min_max_vars_per_channel",
        lambda: {"inputs": x23(), "min": -1.0, "max": 1.0},
        sorts={"min": "tensor", "max": "tensor", **_FAKE},
    ),
    "quantization.fake_quant_with_min_max_args": Call(
        lambda: {"inputs": x23()},
        sorts={"min": "number", "max": "number", **_FAKE},
        names=("fake_quant_with_min_max_vars",),
    ),
    "nn.conv2d": Call(lambda: {"input": images(), "filter": filters(), **same()}, sorts=_CONVOLVED),
    "nn.conv2d_backprop_input": Call(
        lambda: {"input_sizes": [1, 4, 4, 2], "filter": filters(), "out_backprop": flow(), **same()},
        sorts={**_CONVOLVED, "input_sizes": "shape"},
    ),
    "nn.conv2d_backprop_filter": Call(
        lambda: {"input": images(), "filter_sizes": [2, 2, 2, 3], "out_backprop": flow(), **same()},
        sorts={**_CONVOLVED, "filter_sizes": "shape"},
    ),
    "nn.conv2d_transpose": Call(
        lambda: {"value": flow(), "filter": filters(), "output_shape": [1, 4, 4, 2], **same()},
        sorts={**_CONVOLVED, "output_shape": "shape"},
        names=("conv2d_backprop_input",),
    ),
    "nn.depthwise_conv2d": Call(
        lambda: {"input": images(), "filter": filters(), **same()},
        sorts={"rate": "windows or none", "data_format": "choice or none"},
    ),
    "nn.depthwise_conv2d_native": Call(
        lambda: {"input": images(), "filter": filters(), **same()},
        sorts={"data_format": "choice or none"},
        takes={"dilations": frozenset({"empty list"})},  # refused as the rate
        names=("depthwise_conv2d",),
    ),
    "nn.conv1d_transpose": Call(
        lambda: {"input": tb.zeros([2, 6, 3]), "filters": tb.zeros([2, 4, 3]), "output_shape": [2, 6, 4]},
        sorts={"filters": "tensor", "output_shape": "shape", "strides": "count", "dilations": "count"},
        names=("conv2d_transpose", "expand_dims", "ExpandDims", "Conv2DBackpropInput"),
    ),
    "nn.conv1d": Call(
        lambda: {"value": tb.zeros([2, 6, 3]), "filters": tb.zeros([2, 3, 4])},
        sorts={"filters": "tensor", "stride": "count", "dilations": "count"},
        names=("conv2d", "expand_dims", "ExpandDims", "transpose"),
    ),
    "nn.scaled_dot_product_attention": Call(
        lambda: {"query": tb.zeros([2, 3, 4]), "key": tb.zeros([2, 5, 4]), "value": tb.zeros([2, 5, 6])},
        sorts={
            "query": "tensor",
            "key": "tensor",
            "mask": "tensor or none",
            "causal": "flag",
            "dropout_rate": "fraction",
        },
        names=("multiply", "Mul", "BatchMatMulV2", "matmul", "Select", "dropout"),
    ),
    **{
        f"nn.{name}": Call(
            lambda inputs=inputs: {"cell": tb.nn.rnn_cell.GRUCell(4), "inputs": inputs()},
            sorts={
                "cell": "object",
                "inputs": "tensor" if name == "dynamic_rnn" else "tensors",
                "initial_state": "tensor or none",
                "dtype": "nothing",
                "sequence_length": "tensor or none",
                "time_major": "flag",
                "scope": "name",
                **(
                    {}
                    if name == "static_rnn"
                    else {"parallel_iterations": "count or none", "swap_memory": "flag"}
                ),
            },
            names=("GRUCell", "GRU", "greater", "static_rnn", "concat", "mul", "matmul"),
        )
        for name, inputs in {
            "static_rnn": lambda: [tb.zeros([2, 5])],
            "dynamic_rnn": lambda: tb.zeros([2, 3, 5]),
        }.items()
    },
    **{
        f"nn.{name}": Call(
            lambda inputs=inputs: {
                **{f"cell_{way}": tb.nn.rnn_cell.GRUCell(4) for way in ("fw", "bw")},
                "inputs": inputs(),
            },
            sorts={
                **dict.fromkeys(("cell_fw", "cell_bw"), "object"),
                "inputs": "tensors" if name == "static_bidirectional_rnn" else "tensor",
                **dict.fromkeys(("initial_state_fw", "initial_state_bw"), "tensor or none"),
                "dtype": "nothing",
                "sequence_length": "tensor or none",
                "time_major": "flag",
                "scope": "name",
                "parallel_iterations": "count or none",
                "swap_memory": "flag",
            },
            names=("GRUCell", "GRU", "greater", "concat", "mul", "matmul"),
        )
        for name, inputs in {
            "static_bidirectional_rnn": lambda: [tb.zeros([2, 5])],
            "bidirectional_dynamic_rnn": lambda: tb.zeros([2, 3, 5]),
        }.items()
    },
    **ops(
        "nn.space_to_depth depth_to_space",
        lambda: {"input": tb.zeros([1, 2, 2, 4]), "block_size": 2},
        sorts={"block_size": "count", "data_format": "choice or none"},
        names=("expand_dims",),
    ),
    **{
        name: Call(
            lambda block=block, pairs=pairs: {
                "input": tb.zeros([4, 2, 2, 1]),
                **block,
                pairs: [[0, 0], [0, 0]],
            },
            sorts=dict.fromkeys(("block_shape", "block_size"), "extents") | {pairs: "list"},
            names=("space_to_batch", "batch_to_space"),
        )
        for name, block, pairs in (
            ("space_to_batch_nd", {"block_shape": [2, 2]}, "paddings"),
            ("batch_to_space_nd", {"block_shape": [2, 2]}, "crops"),
            ("nn.space_to_batch", {"block_size": 2}, "paddings"),
            ("batch_to_space", {"block_size": 2}, "crops"),
        )
    },
    "extract_image_patches": Call(
        lambda: {"images": images(), "ksizes": 2, "strides": 1, "rates": 1, "padding": "SAME"},
        sorts={"images": "tensor", "ksizes": "windows", "rates": "windows"},
    ),
    "nn.conv3d": Call(
        lambda: {"input": tb.zeros([1, 2, 2, 2, 1]), "filter": tb.zeros([1, 1, 1, 1, 2]), **same()},
    ),
    **ops("nn.avg_pool3d nn.max_pool3d", lambda: {"input": tb.zeros([1, 2, 2, 2, 1]), "ksize": 2, **same()}),
    "nn.separable_conv2d": Call(
        lambda: {
            "input": images(),
            "depthwise_filter": tb.zeros([2, 2, 2, 1]),
            "pointwise_filter": tb.zeros([1, 1, 2, 3]),
            **same(),
        },
        sorts={
            **dict.fromkeys(("depthwise_filter", "pointwise_filter"), "tensor"),
            "rate": "windows or none",
            "data_format": "choice or none",
        },
        names=("depthwise_conv2d", "conv2d"),
    ),
    "nn.atrous_conv2d": Call(
        lambda: {"value": images(), "filters": filters(), "rate": 1, "padding": "SAME"},
        sorts={"filters": "tensor", "rate": "count"},
        names=("conv2d",),
    ),
    "nn.local_response_normalization": Call(
        lambda: {"input": images()},
        sorts={"depth_radius": "count", **dict.fromkeys(("bias", "alpha", "beta"), "number")},
    ),
}
