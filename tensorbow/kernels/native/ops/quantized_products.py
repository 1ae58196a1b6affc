"""Native code of quantised convolutions and matrix products. A product is a convolution of one column."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorbow.graph import Attrs, NodeSpec
from tensorbow.kernels.native.codegen.emitter import POINTER, Emitter
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.microkernel import shared_function
from tensorbow.kernels.native.products.quad_convolution import QuadConvolution
from tensorbow.ops.quantized_products import QuantizedConv2D, QuantizedMatMul
from tensorbow.program.plan import Group
from tensorbow.specs import TensorSpec

Shape = Callable[[Sequence[int], Sequence[int], Attrs], QuadConvolution]


def _convolution(images: Sequence[int], words: Sequence[int], attrs: Attrs) -> QuadConvolution:
    return QuadConvolution.of(images, attrs["window"], words[2], attrs)


def _product(left: Sequence[int], words: Sequence[int], attrs: Attrs) -> QuadConvolution:
    """The rows of the left matrix as pixels of one image."""
    rows, inner = left
    whole = {**QuantizedConv2D.attrs, **attrs}
    return QuadConvolution.of((1, rows, 1, inner), (1, 1, inner), words[2], whole)


def _lowering(shape: Shape) -> Lowering:
    def emit(e: Emitter, group: Group) -> None:
        left, words, *others = group.inputs
        what = shape(left.shape, words.shape, group.attrs)
        refs = (left, words, *others, *group.outputs, *group.scratch)
        function = shared_function(e, what, [POINTER] * len(refs), what.write)
        e.builder.call(function, [e.address(ref) for ref in refs])

    def takes(node: NodeSpec, target: Target) -> bool:
        return all(0 not in spec.extents for spec in (*node.inputs, *node.outputs))

    def scratch(node: NodeSpec, target: Target) -> Sequence[TensorSpec]:
        left, words = (spec.extents for spec in node.inputs[:2])
        return shape(left, words, node.attrs).scratch()

    return Lowering(emit, takes, scratch)


lower(QuantizedConv2D, _lowering(_convolution))
lower(QuantizedMatMul, _lowering(_product))
