"""Calls of a training step: their names, floating-point operations and bytes, from the plan."""

from __future__ import annotations

import math

from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.matmul import MatMul
from tensorbow.program.plan import Group, Ref

SHORT = {
    "FusedBatchNormGrad": "NormGrad",
    "FusedBatchNorm": "Norm",
    "Conv2DBackpropFilter": "FilterGrad",
    "Conv2DBackpropInput": "InputGrad",
}


def multiply_adds(group: Group) -> int:
    """Multiply-adds of a contraction by its definition; 0 for other calls, and those that only add taps."""
    if not group.outputs:
        return 0
    inputs, output = group.inputs, group.outputs[0]
    if group.definition is Conv2D:
        return math.prod(output.shape[:-1]) * math.prod(inputs[1].shape)
    if group.definition is Conv2DBackpropFilter:
        return math.prod(inputs[2].shape[:-1]) * math.prod(output.shape)
    if group.definition is Conv2DBackpropInput:
        return math.prod(inputs[2].shape[:-1]) * math.prod(inputs[1].shape)
    if group.definition is MatMul:
        rows = inputs[0].shape[-1 if group.attrs.get("transpose_a") else 0]
        return rows * math.prod(inputs[1].shape)
    return 0


def title(group: Group) -> str:
    """Op and shapes."""
    op = SHORT.get(group.definition.name, group.definition.name)
    shapes = [ref.shape for ref in (*group.inputs, *group.outputs) if ref.shape]
    largest = sorted(shapes, key=math.prod, reverse=True)[:2]
    return f"{op} {' '.join('x'.join(map(str, shape)) for shape in largest)}"


def touched(group: Group) -> int:
    """Bytes of a call's operands."""
    refs: set[Ref] = {*group.inputs, *group.outputs}
    return sum(ref.nbytes for ref in refs)
