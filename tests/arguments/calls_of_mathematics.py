"""A good call of each function of complex numbers, transforms and positions, under odd arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call


def reals() -> Any:
    return tb.constant(np.ones((2, 3, 4), np.float32))


def complexes() -> Any:
    return tb.constant(np.ones((2, 3, 4), np.complex64))


def _calls(which: str, arguments: Callable[[], Mapping[str, Any]], **more: Any) -> dict[str, Call]:
    return {name: Call(arguments, **more) for name in which.split()}


_LENGTH = {"fft_length": "extents or none"}

CALLS: Mapping[str, Call] = {
    "complex": Call(lambda: {"real": 1.0, "imag": 2.0}, sorts={"real": "tensor", "imag": "tensor"}),
    **_calls("real imag angle", lambda: {"input": complexes()}, names=("zeros_like", "less")),
    "conj": Call(lambda: {"x": complexes()}),
    **_calls("fft fft2d fft3d ifft ifft2d ifft3d", lambda: {"input": complexes()}),
    **_calls("signal.rfft signal.rfft2d signal.rfft3d", lambda: {"input": reals()}, sorts=_LENGTH),
    **_calls("signal.irfft signal.irfft2d signal.irfft3d", lambda: {"input": complexes()}, sorts=_LENGTH),
    **_calls(
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
    **_calls(
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
}
