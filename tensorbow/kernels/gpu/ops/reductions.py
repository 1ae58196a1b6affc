"""Sums, means, products, extremes, any and all over axes, and argmax.

`reduction_plans` describes the division into blocks and the error bounds. ArgMax is always one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorbow.graph import NodeSpec, OpDef
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.program import c_type
from tensorbow.kernels.gpu.source.reduction_plans import (
    Recipe,
    highest,
    lowest,
    parts_scratch,
    prepare_reduction,
    sum_recipe,
)
from tensorbow.ops import reductions
from tensorbow.specs import TensorSpec

RecipeRule = Callable[[np.dtype[np.generic]], Recipe]

ITEM = """
struct Item { T value; I position; };
__device__ inline Item tb_shuffle(Item item, int mask) {
    return {tb_shuffle(item.value, mask), tb_shuffle(item.position, mask)};
}
// NaN is the greatest, of equals the first; a position of -1 is no element at all.
__device__ inline Item greatest_item(Item a, Item b) {
    if (a.position < 0 || b.position < 0) return a.position < 0 ? b : a;
    bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    if (a_is_nan != b_is_nan) return a_is_nan ? a : b;
    if (a_is_nan || a.value == b.value) return a.position < b.position ? a : b;
    return a.value > b.value ? a : b;
}
struct GreatestItem { __device__ Item operator()(Item a, Item b) const { return greatest_item(a, b); } };
"""


def _axes(axis: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The axes as non-negative numbers; None means all of them."""
    return tuple(range(rank)) if axis is None else tuple(a % rank for a in axis)


def _register(definition: OpDef, recipe: RecipeRule) -> None:
    def scratch(node: NodeSpec) -> list[TensorSpec]:
        (x,) = node.inputs
        return parts_scratch(x.extents, _axes(node.attrs["axis"], x.rank), x.dtype)

    def prepare(call: GpuCall) -> Enqueue:
        (x,), (result,) = call.inputs, call.outputs
        axes = _axes(call.attrs["axis"], x.ndim)
        return prepare_reduction(call.context, recipe(x.dtype), x, axes, result, call.scratch)

    gpu_kernel(definition, prepare, scratch=scratch)


_register(reductions.Sum, lambda dtype: sum_recipe("Sum"))
_register(reductions.Mean, lambda dtype: sum_recipe("Mean", finish="a / (T)count"))
_register(reductions.Max, lambda dtype: Recipe("Max", lowest(dtype), "tb_maximum(a, b)"))
_register(reductions.Min, lambda dtype: Recipe("Min", highest(dtype), "tb_minimum(a, b)"))
_register(reductions.Prod, lambda dtype: Recipe("Prod", "1", "tb_multiply(a, b)"))
_register(reductions.Any_, lambda dtype: Recipe("Any", "false", "a || b"))
_register(reductions.All, lambda dtype: Recipe("All", "true", "a && b"))


def _prepare_argmax(call: GpuCall) -> Enqueue:
    (x,), (result,) = call.inputs, call.outputs
    recipe = Recipe(
        "ArgMax",
        "Item{0, -1}",
        "greatest_item(a, b)",
        "Item{x, position}",
        f"({c_type(result.dtype)})a.position",
        "Item",
        ITEM,
    )
    axes = (call.attrs["axis"] % x.ndim,)
    return prepare_reduction(call.context, recipe, x, axes, result, in_parts=False)


gpu_kernel(reductions.ArgMax, _prepare_argmax)
