"""A good call of each op, for the walk over odd arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call


def x23() -> Any:
    return tb.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def vector() -> Any:
    return tb.constant([1.0, 2.0])


def square() -> Any:
    return tb.constant([[1.0, 2.0], [3.0, 5.0]])


def sparse() -> Any:
    return tb.SparseTensor([[0, 1]], [1.0], [2, 3])


def truths() -> Any:
    return tb.constant([True, False])


def images() -> Any:
    return tb.constant(np.ones((1, 4, 4, 2), np.float32))


def flow() -> Any:
    return tb.constant(np.ones((1, 4, 4, 3), np.float32))


def table() -> Any:
    return tb.Variable(np.ones((3, 2), np.float32), name="table")


def graph_def() -> Any:
    graph = tb.Graph()
    with graph.as_default():
        tb.constant(1.0, name="one")
    return graph.as_graph_def()


def ops(which: str, arguments: Callable[[], Mapping[str, Any]], **more: Any) -> dict[str, Call]:
    """The same call of each of several functions; which: their names, separated by spaces."""
    return {name: Call(arguments, **more) for name in which.split()}


_OF_ONE = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc exp expm1 floor is_finite is_inf "
    "is_nan lgamma log log1p log_sigmoid neg reciprocal rint rsqrt sign sin sinh sqrt square tan"
)
_OF_TWO = (
    "add atan2 div div_no_nan divide equal floor_div floormod greater greater_equal less less_equal maximum "
    "minimum multiply not_equal pow squared_difference subtract truncatediv truncatemod"
)
_ROWS = dict.fromkeys(("inputs", "values"), frozenset({"ragged list"}))  # several tensors
_DRAWN = {
    "minval": "real",
    "maxval": "real or none",
    "mean": "real",
    "stddev": "real",
    "seed": "seed or none",
}
_SCATTERED = {"ref": "variable", "updates": "tensor", "use_locking": "flag"}

_FLIPS = "flip_left_right flip_up_down random_flip_left_right random_flip_up_down transpose_image"
_BOX = ("offset_height", "offset_width", "target_height", "target_width")
_IN_BOX = dict.fromkeys(_BOX, "count")
_METHOD = {"method": "nothing", "preserve_aspect_ratio": "flag"}
_RESIZED = {"size": "extents", "align_corners": "flag"}
_WAYS = ("area", "bicubic", "bilinear", "nearest_neighbor")
_SEEDED = {"seed": "seed or none"}
_FACTORS = {"lower": "positive", "upper": "positive"}

_CHECKED = {"data": "tensors or none", "message": "name", "summarize": "axis or none"}
_SHOWN = {"summarize": frozenset({"2**40"}), "data": frozenset({"ragged list"})}


CALLS: Mapping[str, Call] = {
    **ops(
        "reduce_max reduce_mean reduce_min reduce_prod reduce_sum",
        lambda: {"input_tensor": x23()},
        sorts={"axis": "axes or none"},
        names=("max", "mean", "min", "prod", "sum"),
    ),
    **ops(
        "reduce_all reduce_any",
        lambda: {"input_tensor": truths()},
        sorts={"axis": "axes or none"},
        names=("all", "any"),
    ),
    **ops(
        "argmax argmin",
        lambda: {"input": x23()},
        sorts={"axis": "axis or none", "output_type": "dtype"},
        names=("argmax", "neg", "sub"),
    ),
    **ops(
        "arg_max arg_min",
        lambda: {"input": x23(), "dimension": 1},
        sorts={"dimension": "axis", "output_type": "dtype"},
        takes={"dimension": frozenset({"2**40"})},  # refused as the axis
        names=("argmax", "argmin", "neg", "sub"),
    ),
    "reduce_logsumexp": Call(
        lambda: {"input_tensor": x23()}, sorts={"axis": "axes or none"}, names=("max", "squeeze", "sub")
    ),
    "count_nonzero": Call(
        lambda: {"input_tensor": x23()},
        sorts={"axis": "axes or none", "dtype": "dtype"},
        names=("sum", "NotEqual", "cast"),
    ),
    # element by element
    **ops(
        _OF_ONE, lambda: {"x": vector()}, names=("is_finite", "logical_not", "Softplus", "neg", "identity")
    ),
    **ops(_OF_TWO, lambda: {"x": vector(), "y": 2.0}, names=("RealDiv", "FloorMod", "Sub", "Mul", "abs")),
    "scalar_mul": Call(lambda: {"scalar": 2.0, "x": vector()}, sorts={"scalar": "tensor"}),
    "logical_not": Call(lambda: {"x": truths()}),
    **ops("logical_and logical_or logical_xor", lambda: {"x": truths(), "y": True}, names=("logical_or",)),
    "clip_by_value": Call(
        lambda: {"t": vector(), "clip_value_min": 0.0, "clip_value_max": 1.0},
        sorts={"clip_value_min": "real", "clip_value_max": "real"},
        names=("minimum", "maximum"),
    ),
    "add_n": Call(lambda: {"inputs": [vector(), vector()]}, sorts={"inputs": "tensors"}, takes=_ROWS),
    "accumulate_n": Call(
        lambda: {"inputs": [vector(), vector()]},
        sorts={"inputs": "tensors", "shape": "extents or none", "tensor_dtype": "object or none"},
        takes={**_ROWS, "shape": frozenset({"-1"})},
        names=("add_n",),
    ),
    "cast": Call(lambda: {"x": vector(), "dtype": tb.int32}),
    **ops(
        "where where_v2",
        lambda: {"condition": truths(), "x": 1.0, "y": vector()},
        sorts={"condition": "tensor", "x": "tensor", "y": "tensor"},
        names=("select", "where"),
    ),
    **ops(
        "nn.crelu nn.elu nn.gelu nn.hard_sigmoid nn.hard_swish nn.mish nn.relu6 nn.selu nn.silu nn.softplus "
        "nn.softsign nn.swish",
        lambda: {"features": vector()},
        sorts={"approximate": "flag", "axis": "axis"},
        names=("elu", "relu", "neg", "concat", "greater", "abs", "add", "sigmoid", "softplus"),
    ),
    "nn.leaky_relu": Call(lambda: {"features": vector()}, sorts={"alpha": "number"}),
    # shapes
    **ops("shape size", lambda: {"input": x23()}, sorts={"out_type": "dtype"}),
    "rank": Call(lambda: {"input": x23()}),
    "reshape": Call(lambda: {"tensor": x23(), "shape": [3, 2]}),
    "tuple": Call(lambda: {}, sorts={"control_inputs": "list"}, names=("tuple", "group")),
    "all_gather": Call(lambda: {"value": x23()}, takes={"value": frozenset({"empty dict"})}),
    "all_reduce": Call(
        lambda: {"value": x23()}, sorts={"op": "choice"}, takes={"value": frozenset({"empty dict"})}
    ),
    "all_sum": Call(lambda: {"value": x23()}, takes={"value": frozenset({"empty dict"})}),
    "broadcast": Call(
        lambda: {"value": x23()}, sorts={"source": "count"}, takes={"value": frozenset({"empty dict"})}
    ),
    "broadcast_to": Call(lambda: {"input": vector(), "shape": [3, 2]}),
    "expand_dims": Call(lambda: {"input": x23(), "axis": 0}),
    "squeeze": Call(lambda: {"input": [[1.0]]}, sorts={"axis": "axes or none"}),
    "transpose": Call(lambda: {"a": x23()}, sorts={"perm": "axes or none"}),
    "concat": Call(
        lambda: {"values": [x23(), x23()], "axis": 0},
        sorts={"values": "tensors"},
        takes=_ROWS,
    ),
    "stack": Call(
        lambda: {"values": [vector(), vector()]},
        sorts={"values": "tensors"},
        takes=_ROWS,
        names=("expand_dims", "concat"),
    ),
    "parallel_stack": Call(
        lambda: {"values": [vector(), vector()]},
        sorts={"values": "tensors"},
        takes=_ROWS,
        names=("stack", "expand_dims", "concat"),
    ),
    "unstack": Call(
        lambda: {"value": x23(), "num": 2}, sorts={"num": "count or none"}, names=("split", "squeeze")
    ),
    "split": Call(
        lambda: {"value": x23(), "num_or_size_splits": 2, "num": 2},
        sorts={"num_or_size_splits": "extents", "num": "count or none"},
    ),
    "tile": Call(lambda: {"input": x23(), "multiples": [2, 1]}, sorts={"multiples": "shape"}),
    "reverse": Call(lambda: {"tensor": x23(), "axis": [0]}, sorts={"axis": "axes"}),
    "slice": Call(
        lambda: {"input": x23(), "begin": [0, 1], "size": [1, -1]}, sorts={"begin": "shape", "size": "shape"}
    ),
    "strided_slice": Call(
        lambda: {"input_": x23(), "begin": [0, 1], "end": [2, 3]},
        sorts={
            "input_": "tensor",
            **dict.fromkeys(("begin", "end", "strides"), "extents"),
            "end": "extents or none",
            "strides": "extents or none",
            "var": "anything",
            **{f"{which}_mask": "count" for which in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")},
        },
    ),
    "pad": Call(
        lambda: {"tensor": x23(), "paddings": [[1, 1], [0, 2]]},
        sorts={"paddings": "tensor", "mode": "choice", "constant_values": "scalar"},
    ),
    "gather": Call(
        lambda: {"params": x23(), "indices": [1, 0]},
        sorts={"axis": "axis or none", "batch_dims": "axis", "validate_indices": "flag or none"},
    ),
    "batch_gather": Call(lambda: {"params": x23(), "indices": [[1], [0]]}, names=("gather",)),
    "ensure_shape": Call(
        lambda: {"x": x23(), "shape": [2, None]},
        sorts={"shape": "extents"},
        takes={"shape": frozenset({"none", "-1", "generator"})},
    ),
    "broadcast_static_shape": Call(
        lambda: {"shape_x": [2, 1], "shape_y": [3]},
        sorts=dict.fromkeys(("shape_x", "shape_y"), "extents"),
        takes=dict.fromkeys(("shape_x", "shape_y"), frozenset({"none", "-1", "generator"})),
    ),
    "broadcast_dynamic_shape": Call(
        lambda: {"shape_x": [2, 1], "shape_y": [3]},
        sorts=dict.fromkeys(("shape_x", "shape_y"), "shape"),
        names=("BroadcastArgs",),
    ),
    "one_hot": Call(
        lambda: {"indices": [1, 0], "depth": 3},
        sorts={
            "depth": "count",
            "on_value": "scalar or none",
            "off_value": "scalar or none",
            "axis": "axis or none",
            "dtype": "dtype or none",
        },
    ),
    **ops("cumsum cumprod", lambda: {"x": x23()}, sorts={"exclusive": "flag", "reverse": "flag"}),
    # constants and numbers
    "constant": Call(
        lambda: {"value": 1.0},
        sorts={"dtype": "dtype or none", "shape": "static shape", "value": "value"},
    ),
    **ops(
        "zeros_like ones_like",
        lambda: {"tensor": x23()},
        sorts={"dtype": "dtype or none"},
    ),
    **ops("zeros ones", lambda: {"shape": [2, 3]}, names=("fill",)),
    "fill": Call(lambda: {"dims": [2, 3], "value": 1.0}, sorts={"dims": "shape"}),
    "range": Call(
        lambda: {"start": 0, "limit": 4, "delta": 1},
        sorts={"start": "tensor", "limit": "tensor or none", "delta": "tensor", "dtype": "dtype or none"},
    ),
    **ops(
        "random_normal truncated_normal random_uniform",
        lambda: {"shape": [2]},
        sorts=_DRAWN,
        names=("mul", "add", "sub"),
    ),
    "random_shuffle": Call(lambda: {"value": x23()}, sorts={"seed": "seed or none"}),
    "placeholder": Call(sorts={"shape": "static shape"}),
    "placeholder_with_default": Call(
        lambda: {"input": x23(), "shape": [None, 3]}, sorts={"shape": "static shape"}
    ),
    "convert_to_tensor": Call(lambda: {"value": 1.0}, sorts={"dtype": "dtype or none"}),
    # steering
    "identity": Call(lambda: {"input": x23()}),
    **ops("to_float to_double to_bfloat16 to_int32 to_int64", lambda: {"x": x23()}, names=("cast",)),
    "identity_n": Call(
        lambda: {"input": [x23()]},
        sorts={"input": "tensors"},
        takes={"input": frozenset({"ragged list"})},
        names=("identity",),
    ),
    "shape_n": Call(
        lambda: {"input": [x23()]},
        sorts={"input": "tensors", "out_type": "dtype"},
        takes={"input": frozenset({"ragged list"})},
        names=("shape",),
    ),
    **ops(
        "sort argsort",
        lambda: {"values": x23()},
        sorts={"values": "tensor", "direction": "choice", "stable": "flag"},
    ),
    "clip_by_average_norm": Call(
        lambda: {"t": x23(), "clip_norm": 1.0}, sorts={"t": "tensor", "clip_norm": "number"}
    ),
    "stop_gradient": Call(lambda: {"input": x23()}),
    "no_op": Call(),
    "group": Call(),
    "step_scalar": Call(
        lambda: {"key": "warmth", "dtype": tb.float32, "default": 1.0},
        sorts={"key": "text", "default": "number"},
    ),
    "import_graph_def": Call(
        lambda: {"graph_def": graph_def()},
        sorts={"graph_def": "object", "input_map": "names", "return_elements": "elements"},
        takes={"graph_def": frozenset({"text", "bytes", "empty text", "str subclass"})},  # bytes of one
        names=("GraphDef",),
    ),
    # matrices
    "matmul": Call(
        lambda: {"a": x23(), "b": np.ones((3, 2), np.float32)},
        sorts=dict.fromkeys(("transpose_a", "transpose_b", "adjoint_a", "adjoint_b"), "flag"),
    ),
    "matrix_inverse": Call(lambda: {"input": square()}, sorts={"adjoint": "flag"}),
    "cholesky": Call(lambda: {"input": square()}),
    "cholesky_solve": Call(
        lambda: {"chol": square(), "rhs": square()},
        sorts={"chol": "tensor", "rhs": "tensor"},
        names=("MatrixTriangularSolve",),
    ),
    "logdet": Call(lambda: {"matrix": square()}, sorts={"matrix": "tensor"}, names=("Cholesky",)),
    **ops(
        "matrix_solve matrix_solve_ls matrix_triangular_solve",
        lambda: {"matrix": square(), "rhs": square()},
        sorts={
            **dict.fromkeys(("matrix", "rhs"), "tensor"),
            **dict.fromkeys(("adjoint", "lower", "fast"), "flag"),
            "l2_regularizer": "positive",
        },
        names=("MatMul", "Cholesky"),
    ),
    "qr": Call(lambda: {"input": x23()}, sorts={"full_matrices": "flag"}),
    "svd": Call(lambda: {"tensor": x23()}, sorts=dict.fromkeys(("full_matrices", "compute_uv"), "flag")),
    **ops("self_adjoint_eig self_adjoint_eigvals", lambda: {"tensor": square()}, names=("SelfAdjointEigV2",)),
    "matrix_band_part": Call(
        lambda: {"input": x23(), "num_lower": 0, "num_upper": 1},
        sorts=dict.fromkeys(("num_lower", "num_upper"), "axis"),
        takes=dict.fromkeys(("num_lower", "num_upper"), frozenset({"2**40"})),
    ),
    **ops("diag matrix_diag", lambda: {"diagonal": vector()}, sorts={"diagonal": "tensor"}),
    **ops("diag_part matrix_diag_part", lambda: {"input": square()}),
    "matrix_set_diag": Call(
        lambda: {"input": square(), "diagonal": vector()},
        sorts={"diagonal": "tensor"},
        names=("MatrixDiag", "Select"),
    ),
    "matrix_determinant": Call(lambda: {"input": square()}),
    "matrix_transpose": Call(lambda: {"a": x23()}, sorts={"conjugate": "flag"}, names=("transpose",)),
    "adjoint": Call(lambda: {"matrix": x23()}, sorts={"matrix": "tensor"}, names=("matrix_transpose",)),
    "matvec": Call(
        lambda: {"a": x23(), "b": [1.0, 2.0, 3.0]},
        sorts=dict.fromkeys(("transpose_a", "adjoint_a", "a_is_sparse", "b_is_sparse"), "flag"),
        names=("MatMul", "matmul"),
    ),
    **ops(
        "matrix_exponential matrix_logarithm matrix_square_root slogdet",
        lambda: {"input": square()},
        names=("LogMatrixDeterminant",),
    ),
    "lu": Call(lambda: {"input": square()}, sorts={"output_idx_type": "dtype"}),
    "trace": Call(lambda: {"x": square()}, names=("MatrixDiagPart", "sum")),
    "norm": Call(
        lambda: {"tensor": x23()}, sorts={"ord": "anything", "axis": "axes or none"}, names=("square", "sum")
    ),
    "eye": Call(
        lambda: {"num_rows": 2},
        sorts={"num_rows": "count", "num_columns": "count or none", "batch_shape": "extents"},
    ),
    "tensordot": Call(
        lambda: {"a": x23(), "b": x23(), "axes": [[0], [0]]}, sorts={"axes": "anything"}, names=("einsum",)
    ),
    "einsum": Call(
        lambda: {"equation": "ij->ji"},
        sorts={"equation": "choice"},
        takes={"equation": frozenset({"empty text"})},
        target=lambda: lambda equation, name=None: tb.einsum(equation, x23(), name=name),
    ),
    # images
    **{
        f"image.{name}": Call(
            lambda first=first, more=more: {first: tb.zeros([1, 4, 4, 3]), **more},
            sorts={first: "tensor", **sorts},
            names=("multiply", "Mul", "Add", "cast", "resize_images", "crop_to_bounding_box", "greater"),
        )
        for name, first, more, sorts in (
            *((name, "image", {}, {"seed": "seed or none"}) for name in _FLIPS.split()),
            ("rot90", "image", {}, {"k": "integers"}),
            ("central_crop", "image", {"central_fraction": 0.5}, {"central_fraction": "fraction"}),
            *(
                (f"{way}_to_bounding_box", "image", dict(zip(_BOX, (0, 0, 4, 4), strict=True)), _IN_BOX)
                for way in ("crop", "pad")
            ),
            ("resize_image_with_crop_or_pad", "image", {"target_height": 3, "target_width": 5}, _IN_BOX),
            (
                *("resize_image_with_pad", "image", {"target_height": 3, "target_width": 5}),
                {**_IN_BOX, "method": "nothing"},
            ),
            ("image_gradients", "image", {}, {}),
            ("sobel_edges", "image", {}, {}),
            ("resize", "images", {"size": [2, 2]}, {**_RESIZED, **_METHOD}),
            *((f"resize_{way}", "images", {"size": [2, 2]}, _RESIZED) for way in _WAYS),
            ("adjust_brightness", "image", {"delta": 0.1}, {"delta": "rate"}),
            ("adjust_hue", "image", {"delta": 0.1}, {"delta": "rate"}),
            ("adjust_contrast", "images", {"contrast_factor": 2.0}, {"contrast_factor": "rate"}),
            ("adjust_saturation", "image", {"saturation_factor": 2.0}, {"saturation_factor": "rate"}),
            ("adjust_gamma", "image", {}, {"gamma": "positive", "gain": "number"}),
            ("convert_image_dtype", "image", {"dtype": tb.uint8}, {"saturate": "flag"}),
            *(
                (f"random_{what}", "image", {"max_delta": 0.1}, {"max_delta": "positive", **_SEEDED})
                for what in ("brightness", "hue")
            ),
            *(
                (f"random_{what}", "image", {"lower": 0.5, "upper": 2.0}, {**_FACTORS, **_SEEDED})
                for what in ("contrast", "saturation")
            ),
            *((name, "images", {}, {}) for name in ("rgb_to_hsv", "hsv_to_rgb", "rgb_to_grayscale")),
            ("per_image_standardization", "image", {}, {}),
            ("total_variation", "images", {}, {}),
        )
    },
    "image.grayscale_to_rgb": Call(lambda: {"images": tb.zeros([4, 4, 1])}, sorts={"images": "tensor"}),
    "image.psnr": Call(
        lambda: {"a": tb.zeros([4, 4, 3]), "b": tb.ones([4, 4, 3]), "max_val": 1.0},
        sorts={"max_val": "number"},
        names=("mean", "sub", "cast"),
    ),
    "random_crop": Call(
        lambda: {"value": x23(), "size": [1, 2]},
        sorts={"size": "shape", "seed": "seed or none"},
        names=("subtract", "sub", "slice", "cast"),
    ),
    # positions
    "gather_nd": Call(lambda: {"params": x23(), "indices": [[1, 0]]}),
    "scatter_nd": Call(
        lambda: {"indices": [[1]], "updates": [2.0], "shape": [3]},
        sorts={"updates": "tensor"},
        names=("reshape", "strided_slice"),
    ),
    "invert_permutation": Call(lambda: {"x": [1, 0]}, names=("gather", "strided_slice", "range")),
    "sequence_mask": Call(
        lambda: {"lengths": [1, 2], "maxlen": 3}, sorts={"lengths": "tensor", "maxlen": "count or none"}
    ),
    "reverse_sequence": Call(
        lambda: {"input": x23(), "seq_lengths": [1, 2]},
        sorts={"seq_lengths": "tensor", "seq_axis": "axis", "batch_axis": "axis"},
        takes=dict.fromkeys(("seq_axis", "batch_axis"), frozenset({"2**40"})),  # refused as an axis
    ),
    "meshgrid": Call(lambda: {}, sorts={"indexing": "choice"}),
    **ops(
        "unsorted_segment_max unsorted_segment_mean unsorted_segment_min unsorted_segment_prod "
        "unsorted_segment_sqrt_n unsorted_segment_sum",
        lambda: {"data": x23(), "segment_ids": [0, 1], "num_segments": 2},
        sorts=dict.fromkeys(("data", "segment_ids", "num_segments"), "tensor"),
        names=("unsorted_segment", "add", "concat", "where", "cast", "reshape", "strided_slice"),
    ),
    **ops(
        "segment_max segment_mean segment_min segment_prod segment_sum",
        lambda: {"data": x23(), "segment_ids": [0, 1]},
        sorts=dict.fromkeys(("data", "segment_ids"), "tensor"),
        names=("unsorted_segment", "GatherV2", "Reshape"),
    ),
    "histogram_fixed_width": Call(
        lambda: {"values": x23(), "value_range": [0.0, 1.0], "nbins": 2},
        sorts={"value_range": "tensor", "nbins": "count"},
        names=("strided_slice",),
    ),
    "bincount": Call(
        lambda: {"arr": [1, 2]},
        sorts={
            "arr": "tensor",
            "weights": "tensor or none",
            **dict.fromkeys(("minlength", "maxlength"), "tensor or none"),
        },
        names=("unsorted_segment_sum", "maximum", "minimum", "Reshape", "cast"),
    ),
    # shapes that depend on data
    "boolean_mask": Call(
        lambda: {"tensor": x23(), "mask": truths()}, sorts={"mask": "tensor", "axis": "axis or none"}
    ),
    "nonzero": Call(lambda: {"x": x23()}, names=("NotEqual",)),
    **ops(
        "unique unique_with_counts",
        lambda: {"x": [1, 2]},
        sorts={"out_idx": "dtype"},
        names=("UniqueWithCounts",),
    ),
    "setdiff1d": Call(lambda: {"x": [1, 2], "y": [1]}, sorts={"index_dtype": "dtype"}, names=("ListDiff",)),
    "dynamic_partition": Call(
        lambda: {"data": x23(), "partitions": [0, 1], "num_partitions": 2},
        sorts={"data": "tensor", "partitions": "tensor", "num_partitions": "count"},
    ),
    "dynamic_stitch": Call(
        lambda: {"indices": [[0, 1]], "data": [x23()]},
        sorts={"indices": "tensors", "data": "tensors"},
        takes=dict.fromkeys(("indices", "data"), frozenset({"ragged list"})),
    ),
    # sparse tensors
    "SparseTensor": Call(
        lambda: {"indices": [[0, 1]], "values": [1.0], "dense_shape": [2, 3]},
        sorts=dict.fromkeys(("indices", "values", "dense_shape"), "tensor"),
    ),
    "sparse_placeholder": Call(sorts={"shape": "static shape"}),
    "sparse_to_dense": Call(
        lambda: {"sparse_indices": [1], "output_shape": [3], "sparse_values": [1.0]},
        sorts={
            **dict.fromkeys(("sparse_indices", "sparse_values", "default_value"), "tensor"),
            "output_shape": "shape",
            "validate_indices": "flag",
        },
        names=("ScatterNd", "reshape", "broadcast_to"),
    ),
    "sparse_tensor_to_dense": Call(
        lambda: {"sp_input": sparse()},
        sorts={"sp_input": "object", "default_value": "tensor", "validate_indices": "flag"},
    ),
    "sparse_tensor_dense_matmul": Call(
        lambda: {"sp_a": sparse(), "b": np.ones((3, 2), np.float32)},
        sorts={"sp_a": "object", "b": "tensor", "adjoint_a": "flag", "adjoint_b": "flag"},
    ),
    "sparse_reorder": Call(lambda: {"sp_input": sparse()}, sorts={"sp_input": "object"}),
    "sparse_reshape": Call(
        lambda: {"sp_input": sparse(), "shape": [6]}, sorts={"sp_input": "object", "shape": "shape"}
    ),
    "sparse_transpose": Call(
        lambda: {"sp_input": sparse()}, sorts={"sp_input": "object", "perm": "axes or none"}
    ),
    "sparse_concat": Call(
        lambda: {"axis": 0, "sp_inputs": [sparse()]},
        sorts={"sp_inputs": "list of texts", "expand_nonconcat_dims": "flag"},
    ),
    "sparse_add": Call(
        lambda: {"a": sparse(), "b": sparse()},
        sorts={"a": "tensor", "b": "tensor", "threshold": "tensor"},
        names=("Add", "greater_equal"),
    ),
    "sparse_retain": Call(
        lambda: {"sp_input": sparse(), "to_retain": [True]},
        sorts={"sp_input": "object", "to_retain": "tensor"},
        names=("boolean_mask",),
    ),
    "sparse_reduce_sum": Call(
        lambda: {"sp_input": sparse()}, sorts={"sp_input": "object", "axis": "axes or none"}
    ),
    **ops(
        "sparse_segment_mean sparse_segment_sqrt_n sparse_segment_sum",
        lambda: {"data": x23(), "indices": [0, 1], "segment_ids": [0, 0]},
        sorts={"data": "tensor", "segment_ids": "tensor", "num_segments": "count or none"},
        names=("segment_sum", "segment_mean", "Gather", "GatherV2"),
    ),
    "nn.embedding_lookup_sparse": Call(
        lambda: {"params": x23(), "sp_ids": tb.SparseTensor([[0, 0]], [1], [2, 1]), "sp_weights": None},
        sorts={
            "sp_ids": "object",
            "sp_weights": "object or none",
            **dict.fromkeys(("partition_strategy", "combiner"), "choice"),
            "max_norm": "positive or none",
        },
        names=("embedding_lookup", "Gather", "GatherV2"),
    ),
    # checks
    **ops(
        "assert_equal assert_greater assert_greater_equal assert_less assert_less_equal assert_near "
        "assert_none_equal",
        lambda: {"x": x23(), "y": tb.placeholder(tb.float32, [2, 3])},
        sorts={**_CHECKED, **dict.fromkeys(("rtol", "atol"), "tensor or none")},
        takes=_SHOWN,
        names=("Equal", "Greater", "Less", "NotEqual", "multiply", "Add", "Sub"),
    ),
    **ops(
        "assert_negative assert_non_negative assert_non_positive assert_positive",
        lambda: {"x": tb.placeholder(tb.float32, [2, 3])},
        sorts=_CHECKED,
        takes=_SHOWN,
        names=("Greater", "Less", "assert_less", "assert_greater"),
    ),
    **ops(
        "assert_rank assert_rank_at_least",
        lambda: {"x": x23(), "rank": 2},
        sorts={"rank": "count", "message": "name"},
    ),
    "assert_type": Call(
        lambda: {"tensor": x23(), "tf_type": tb.float32}, sorts={"tf_type": "dtype", "message": "name"}
    ),
    "assert_rank_in": Call(
        lambda: {"x": x23(), "ranks": [1, 2]}, sorts={"ranks": "extents", "message": "name"}
    ),
    "assert_same_float_dtype": Call(
        lambda: {"tensors": [x23()], "dtype": tb.float32},
        sorts={"tensors": "tensors or none", "dtype": "dtype or none"},
        takes={"tensors": frozenset({"ragged list"})},
    ),
    "assert_proper_iterable": Call(lambda: {"values": [1]}, sorts={"values": "anything"}),
    "is_tensor": Call(lambda: {"x": x23()}, sorts={"x": "anything"}),
    "guarantee_const": Call(lambda: {"input": x23()}, names=("identity",)),
    "get_seed": Call(lambda: {"op_seed": 1}, sorts={"op_seed": "seed or none"}),
    "is_numeric_tensor": Call(lambda: {"tensor": x23()}, sorts={"tensor": "anything"}),
    **dict.fromkeys(("is_non_decreasing", "is_strictly_increasing"), Call(lambda: {"x": vector()})),
    "assert_integer": Call(lambda: {"x": [1]}, sorts={"message": "name"}),
    "assert_scalar": Call(lambda: {"tensor": 1.0}),
    "Assert": Call(
        lambda: {"condition": truths(), "data": [x23()]},
        sorts={"condition": "tensor", "data": "tensors", "summarize": "axis or none"},
        takes=_SHOWN,
    ),
    "Print": Call(
        lambda: {"input": x23(), "data": [x23()]},
        sorts={
            "data": "tensors",
            "message": "name",
            **dict.fromkeys(("summarize", "first_n"), "axis or none"),
        },
        takes={**_SHOWN, "first_n": frozenset({"2**40"})},
    ),
    "check_numerics": Call(lambda: {"tensor": x23(), "message": "x"}, sorts={"message": "text"}),
    "verify_tensor_all_finite": Call(
        lambda: {"t": x23(), "msg": "x"}, sorts={"msg": "text"}, names=("CheckNumerics",)
    ),
    "confusion_matrix": Call(
        lambda: {"labels": [1, 0], "predictions": [0, 1], "num_classes": 2},
        sorts={"predictions": "tensor", "num_classes": "count or none", "weights": "tensor or none"},
        names=("cast", "GatherGrad", "maximum", "add", "multiply"),
    ),
    # rows of variables
    **ops(
        "scatter_add scatter_div scatter_max scatter_min scatter_mul scatter_sub scatter_update",
        lambda: {"ref": table(), "indices": [1], "updates": 1.0},
        sorts=_SCATTERED,
        names=("scatter",),
    ),
    "IndexedSlices": Call(
        lambda: {"values": x23(), "indices": [1, 0], "dense_shape": [4, 3]},
        sorts={"dense_shape": "tensor or none"},
    ),
    "convert_to_tensor_or_indexed_slices": Call(
        lambda: {"value": tb.IndexedSlices(x23(), [1, 0])}, sorts={"dtype": "dtype or none"}
    ),
    "IndexedSlices.with_values": Call(
        lambda: {"values": x23()}, target=lambda: tb.IndexedSlices(x23(), [1, 0]).with_values
    ),
}
