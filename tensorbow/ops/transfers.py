"""Ops around a lossy transfer: float32 as its upper 16 bits (TensorFlow's white paper, section 5.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, Kernel, KernelCall
from tensorbow.ops.definition import define_op
from tensorbow.specs import DType, TensorSpec, float32, uint8, uint32

HALF = 2  # bytes that are sent of each element


def _narrow_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (value,) = inputs
    if value.dtype is not float32:
        raise InvalidArgumentError(f"Narrow16: expected float32, got {value}; send it whole")
    return TensorSpec((*value.dims, HALF), uint8)


def _narrow_dtypes(inputs: Sequence[TensorSpec], attrs: Attrs) -> Sequence[DType]:
    return (uint8,)


def _widen_dtypes(inputs: Sequence[TensorSpec], attrs: Attrs) -> Sequence[DType]:
    return (float32,)


def _widen_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (halves,) = inputs
    if halves.dtype is not uint8 or not halves.dims or halves.dims[-1] not in (HALF, None):
        raise InvalidArgumentError(f"Widen16: expected uint8 [..., {HALF}] of Narrow16, got {halves}")
    return TensorSpec(halves.dims[:-1], float32)


def _prepare_narrow(call: KernelCall) -> Callable[[], None]:
    (value,), (halves,), (shifted,) = call.inputs, call.outputs, call.scratch
    bits, low, high = value.view(np.uint32), halves[..., 0], halves[..., 1]

    def run() -> None:
        np.right_shift(bits, 16, out=shifted)
        np.copyto(low, shifted, casting="unsafe")  # the lowest byte of what is shifted
        np.right_shift(bits, 24, out=shifted)
        np.copyto(high, shifted, casting="unsafe")

    return run


def _prepare_widen(call: KernelCall) -> Callable[[], None]:
    (halves,), (value,) = call.inputs, call.outputs
    bits, low, high = value.view(np.uint32), halves[..., 0], halves[..., 1]

    def run() -> None:
        np.copyto(bits, high)
        np.left_shift(bits, 8, out=bits)
        np.bitwise_or(bits, low, out=bits)
        np.left_shift(bits, 16, out=bits)

    return run


Narrow16 = define_op(
    "Narrow16",
    spec=_narrow_spec,
    unknown_dtypes=_narrow_dtypes,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("value",),
    kernel=Kernel(prepare=_prepare_narrow, scratch=lambda node: [TensorSpec(node.inputs[0].shape, uint32)]),
    doc="The upper 16 bits of each float32, the lower byte first: uint8 [..., 2].",
)
Widen16 = define_op(
    "Widen16",
    spec=_widen_spec,
    unknown_dtypes=_widen_dtypes,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("halves",),
    kernel=Kernel(prepare=_prepare_widen),
    doc="float32 of the upper 16 bits that Narrow16 gives, with zeros below.",
)
