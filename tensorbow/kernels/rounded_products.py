"""Products of float32 whose operands are rounded to bfloat16: the ops, and their reference kernels.

Sums, results, and all other ops stay float32 (Kalamkar et al., 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tensorbow.graph import Attrs, Kernel, KernelCall, NodeSpec
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.matmul import BatchMatMulV2, MatMul
from tensorbow.program.nodes import Node
from tensorbow.specs import Array, TensorSpec, float32

FULL, ROUNDED = "fp32", "bf16"  # values of `Device.compute` that differ on CPUs
TITLE = "operands of matmuls and convolutions in bfloat16"
PRODUCTS = (MatMul, BatchMatMulV2, Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput)


def rounds(node: Node) -> bool:
    """True if an op is a product of float32."""
    return node.definition in PRODUCTS and node.outputs[0].spec.dtype == float32


def rounds_inside(node: Node) -> bool:
    """True if an op is a product of float32, or a loop or cond with one."""
    program = node.attrs.get("loop") or node.attrs.get("branches")
    return rounds(node) or any(map(rounds_inside, getattr(program, "nodes", ())))


def explain_rounding(attrs: Attrs) -> Sequence[str]:
    """Lines of an explanation for such a call."""
    return ("operands rounded to bfloat16, sums and result in float32",)


def rounding_kernel(kernel: Kernel) -> Kernel:
    """A reference kernel that reads rounded copies of its float32 inputs."""

    def scratch(node: NodeSpec) -> Sequence[TensorSpec]:
        return [*_rounded(node.inputs), *kernel.scratch_specs(node)]

    def prepare(call: KernelCall) -> Callable[[], None]:
        given = [array for array in call.inputs if array.dtype == np.float32]
        copies = call.scratch[: len(given)]
        others = iter(copies)
        inputs = tuple(next(others) if array.dtype == np.float32 else array for array in call.inputs)
        step = kernel.bind(replace(call, inputs=inputs, scratch=call.scratch[len(given) :]))

        def run() -> None:
            for array, copy in zip(given, copies, strict=True):
                round_to_bfloat16(array, copy)
            step()

        return run

    return Kernel(prepare=prepare, scratch=scratch, explain=explain_rounding)


def _rounded(inputs: Sequence[TensorSpec]) -> list[TensorSpec]:
    return [spec for spec in inputs if spec.dtype == float32]


def round_to_bfloat16(source: Array, target: Array) -> None:
    """Rounds float32 to the nearest bfloat16, ties to even, as float32; NaN stays NaN."""
    bits = np.ascontiguousarray(source).view(np.uint32)
    up = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    bits = np.where(np.isnan(source), bits | np.uint32(0x400000), up)
    target[...] = (bits & np.uint32(0xFFFF0000)).view(np.float32)
