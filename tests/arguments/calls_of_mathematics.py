"""A good call of each function of complex numbers, transforms and positions, under odd arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.calls_of_ops import ops
from tests.arguments.public_calls import Call


def reals() -> Any:
    return tb.constant(np.ones((2, 3, 4), np.float32))


def complexes() -> Any:
    return tb.constant(np.ones((2, 3, 4), np.complex64))


def sparse() -> Any:
    return tb.SparseTensor([[0, 1]], [1.0], [2, 3])


def ids() -> Any:
    return tb.SparseTensor([[0, 1]], tb.constant([2], tb.int64), [2, 3])


def _finished(*_: Any) -> Any:
    """The first and last call of a loop that ends at once."""
    step = tb.zeros([1, 2])
    return tb.fill([1], True), step, step, None, None


_ONE, _TWO = {"sp_input": "object"}, {"sp_a": "object", "sp_b": "object"}


_LENGTH = {"fft_length": "extents or none"}

CALLS: Mapping[str, Call] = {
    "complex": Call(lambda: {"real": 1.0, "imag": 2.0}, sorts={"real": "tensor", "imag": "tensor"}),
    **ops("real imag angle", lambda: {"input": complexes()}, names=("zeros_like", "less")),
    "conj": Call(lambda: {"x": complexes()}),
    **ops("fft fft2d fft3d ifft ifft2d ifft3d", lambda: {"input": complexes()}),
    **ops("signal.rfft signal.rfft2d signal.rfft3d", lambda: {"input": reals()}, sorts=_LENGTH),
    **ops("signal.irfft signal.irfft2d signal.irfft3d", lambda: {"input": complexes()}, sorts=_LENGTH),
    **ops(
        "signal.fftshift signal.ifftshift",
        lambda: {"x": complexes()},
        sorts={"axes": "axes or none"},
        names=("fftshift",),
    ),
    "nn.ctc_loss": Call(
        lambda: {
            "labels": tb.SparseTensor([[0, 0]], tb.constant([1], tb.int32), [1, 1]),
            "inputs": np.ones((2, 1, 3), np.float32),
            "sequence_length": [2],
        },
        sorts={
            "labels": "object",
            **dict.fromkeys(("inputs", "sequence_length"), "tensor"),
            **dict.fromkeys(
                (
                    *("preprocess_collapse_repeated", "ctc_merge_repeated", "time_major"),
                    "ignore_longer_outputs_than_inputs",
                ),
                "flag",
            ),
        },
        names=("cast", "transpose"),
    ),
    **ops(
        "nn.ctc_greedy_decoder nn.ctc_beam_search_decoder",
        lambda: {"inputs": np.ones((2, 1, 3), np.float32), "sequence_length": [2]},
        sorts={
            **dict.fromkeys(("inputs", "sequence_length"), "tensor"),
            "merge_repeated": "flag",
            "beam_width": "count",
            "top_paths": "count",
        },
        names=("cast",),
    ),
    "roll": Call(
        lambda: {"input": reals(), "shift": 1, "axis": 1}, sorts={"shift": "tensor", "axis": "axes or none"}
    ),
    "unravel_index": Call(
        lambda: {"indices": [3, 4], "dims": [2, 3]}, sorts={"dims": "tensor"}, names=("strided_slice",)
    ),
    "searchsorted": Call(
        lambda: {"sorted_sequence": [1.0, 2.0], "values": [1.5]},
        sorts={"sorted_sequence": "tensor", "side": "choice", "out_type": "dtype"},
    ),
    # functions of statistics
    **ops("igamma igammac", lambda: {"a": 1.0, "x": 2.0}),
    "betainc": Call(lambda: {"a": 1.0, "b": 2.0, "x": 0.5}),
    "zeta": Call(lambda: {"x": 2.0, "q": 1.0}, sorts={"q": "tensor"}),
    "polygamma": Call(lambda: {"a": 1.0, "x": 1.0}),
    **dict.fromkeys(
        ("bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e"),
        Call(lambda: {"x": [1.0, 2.0]}, names=("Abs", "BesselI0e", "BesselI1e")),
    ),
    "tridiagonal_solve": Call(
        lambda: {"diagonals": np.ones((3, 2), np.float32), "rhs": np.ones((2, 2), np.float32)},
        sorts={
            "diagonals": "tensor",
            "rhs": "tensor",
            "diagonals_format": "choice",
            "transpose_rhs": "flag",
            "conjugate_rhs": "flag",
        },
        names=("TridiagonalSolve",),
    ),
    "tridiagonal_matmul": Call(
        lambda: {"diagonals": np.ones((3, 2), np.float32), "rhs": np.ones((2, 2), np.float32)},
        sorts={"diagonals": "tensor", "rhs": "tensor", "diagonals_format": "choice"},
        names=("Mul",),
    ),
    "lbeta": Call(lambda: {"x": [1.0, 2.0]}, names=("Lgamma", "sum")),
    "random_gamma": Call(
        lambda: {"shape": [2], "alpha": 1.0},
        sorts={"alpha": "tensor", "beta": "tensor or none", "seed": "seed or none"},
        names=("mul", "add", "RealDiv"),
    ),
    "random_poisson": Call(
        lambda: {"lam": 1.0, "shape": [2]}, sorts={"lam": "tensor", "seed": "seed or none"}, names=("cast",)
    ),
    "multinomial": Call(
        lambda: {"logits": [[1.0, 2.0]], "num_samples": 2},
        sorts={"num_samples": "count", "seed": "seed or none", "output_dtype": "dtype"},
        names=("cast",),
    ),
    "random.categorical": Call(
        lambda: {"logits": [[1.0, 2.0]], "num_samples": 2},
        sorts={"num_samples": "count", "seed": "seed or none"},
        names=("multinomial", "cast"),
    ),
    **ops("math.xlogy math.xdivy math.multiply_no_nan", lambda: {"x": [1.0, 2.0], "y": 2.0}),
    "math.polyval": Call(
        lambda: {"coeffs": [1.0, 2.0], "x": [1.0]},
        sorts={"coeffs": "tensors"},
        takes={"coeffs": frozenset({"ragged list"})},
    ),
    **ops(
        "math.reduce_std math.reduce_variance",
        lambda: {"input_tensor": reals()},
        sorts={"axis": "axes or none"},
    ),
    **ops(
        "bitwise.bitwise_and bitwise.bitwise_or bitwise.bitwise_xor bitwise.left_shift bitwise.right_shift",
        lambda: {"x": [1, 2], "y": 2},
    ),
    "bitwise.invert": Call(lambda: {"x": [1, 2]}),
    # conversions and writes
    "bitcast": Call(lambda: {"input": [1.0], "type": tb.int32}, sorts={"type": "dtype"}),
    "saturate_cast": Call(lambda: {"value": [1.0], "dtype": tb.uint8}),
    "cross": Call(lambda: {"a": [1.0, 0.0, 0.0], "b": [0.0, 1.0, 0.0]}),
    "reduce_euclidean_norm": Call(
        lambda: {"input_tensor": reals()}, sorts={"axis": "axes or none"}, names=("square", "sum")
    ),
    "histogram_fixed_width_bins": Call(
        lambda: {"values": [1.0], "value_range": [0.0, 1.0], "nbins": 2},
        sorts={"value_range": "tensor", "nbins": "count"},
        names=("strided_slice", "cast"),
    ),
    **ops(
        "scatter_nd_add scatter_nd_sub scatter_nd_update",
        lambda: {"ref": tb.Variable([1.0, 2.0], name="written"), "indices": [[1]], "updates": [1.0]},
        sorts={"ref": "variable", "updates": "tensor", "use_locking": "flag"},
        names=("scatter_nd",),
    ),
    "batch_scatter_update": Call(
        lambda: {"ref": tb.Variable([[1.0], [2.0]]), "indices": [[0], [0]], "updates": [[1.0], [2.0]]},
        sorts={"ref": "variable", "updates": "tensor", "use_locking": "flag"},
        names=("scatter_nd", "scatter_nd_update"),
    ),
    **ops(
        "tensor_scatter_add tensor_scatter_sub tensor_scatter_update",
        lambda: {"tensor": [1.0, 2.0], "indices": [[1]], "updates": [1.0]},
        sorts={"updates": "tensor"},
        names=("scatter_nd", "reshape", "strided_slice", "add", "sub"),
    ),
    # sparse tensors
    "edit_distance": Call(
        lambda: {"hypothesis": ids(), "truth": ids()},
        sorts={"hypothesis": "object", "truth": "object", "normalize": "flag"},
    ),
    **ops(
        "sets.difference sets.intersection sets.set_union",
        lambda: {"a": [[1, 2]], "b": [[1, 3]]},
        sorts={"validate_indices": "flag", "aminusb": "flag"},
        names=("set operation",),
    ),
    "sets.set_size": Call(lambda: {"a": [[1, 2]]}, sorts={"validate_indices": "flag"}),
    **ops("sparse_maximum sparse_minimum", lambda: {"sp_a": sparse(), "sp_b": sparse()}, sorts=_TWO),
    **ops("sparse_softmax", lambda: {"sp_input": sparse()}, sorts=_ONE),
    "sparse_slice": Call(
        lambda: {"sp_input": sparse(), "start": [0, 1], "size": [1, 2]},
        sorts={**_ONE, "start": "tensor", "size": "tensor"},
        names=("add",),
    ),
    "sparse_split": Call(
        lambda: {"sp_input": sparse(), "num_split": 1, "axis": 0}, sorts={**_ONE, "num_split": "count"}
    ),
    "sparse_expand_dims": Call(lambda: {"sp_input": sparse()}, sorts={**_ONE, "axis": "axis or none"}),
    "sparse_reset_shape": Call(lambda: {"sp_input": sparse()}, sorts={**_ONE, "new_shape": "shape or none"}),
    "sparse_fill_empty_rows": Call(
        lambda: {"sp_input": sparse(), "default_value": 1.0},
        sorts={**_ONE, "default_value": "tensor"},
        names=("fill",),
    ),
    **ops(
        "sparse_reduce_max sparse_reduce_max_sparse sparse_reduce_sum_sparse",
        lambda: {"sp_input": sparse()},
        sorts={**_ONE, "axis": "axes or none"},
    ),
    "sparse_merge": Call(
        lambda: {"sp_ids": ids(), "sp_values": sparse(), "vocab_size": 4},
        sorts={"sp_ids": "object", "sp_values": "object", "vocab_size": "count", "already_sorted": "flag"},
        names=("SparseTensor",),
    ),
    "sparse_to_indicator": Call(
        lambda: {"sp_input": ids(), "vocab_size": 4}, sorts={**_ONE, "vocab_size": "count"}
    ),
    "sparse_eye": Call(lambda: {"num_rows": 2}, sorts={"num_rows": "count", "num_columns": "count or none"}),
    "sparse_from_dense": Call(lambda: {"tensor": [[1, 0]]}, names=("reshape", "not_equal")),
    **ops("serialize_sparse serialize_many_sparse", lambda: {"sp_input": sparse()}, sorts=_ONE),
    "deserialize_many_sparse": Call(
        lambda: {"serialized_sparse": [["a", "b", "c"]], "dtype": tb.float32},
        sorts={"serialized_sparse": "strings", "rank": "count or none"},
    ),
    "nn.safe_embedding_lookup_sparse": Call(
        lambda: {"embedding_weights": [[1.0, 2.0]], "sparse_ids": ids()},
        sorts={
            "embedding_weights": "tensor",
            "sparse_ids": "object",
            "sparse_weights": "object or none",
            "default_id": "count or none",
            **dict.fromkeys(("partition_strategy", "combiner"), "choice"),
            "max_norm": "positive or none",
        },
        names=("embedding_lookup", "embedding_lookup_sparse", "Gather", "GatherV2"),
    ),
    "sparse_mask": Call(
        lambda: {"a": tb.IndexedSlices(tb.constant([1.0]), [0], [2]), "mask_indices": [1]},
        sorts={"a": "object", "mask_indices": "tensor"},
        names=("cast", "ListDiff", "setdiff1d"),
    ),
    "sparse_matmul": Call(
        lambda: {"a": [[1.0]], "b": [[1.0]]},
        sorts=dict.fromkeys(("transpose_a", "transpose_b", "a_is_sparse", "b_is_sparse"), "flag"),
        names=("matmul", "mul"),
    ),
    "nn.raw_rnn": Call(
        lambda: {"cell": tb.nn.rnn_cell.GRUCell(2), "loop_fn": _finished},
        sorts={
            "cell": "object",
            "loop_fn": "function",
            "parallel_iterations": "count or none",
            "swap_memory": "flag",
            "scope": "name",
        },
        names=("rnn",),
    ),
}
