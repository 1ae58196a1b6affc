"""Native code of convolution and its two derivatives: choice of the pass, and its scratch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from tensorbow.graph import Attrs, NodeSpec
from tensorbow.kernels.native.codegen.emitter import POINTER, Emitter
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.channels import BandSums
from tensorbow.kernels.native.products.contraction_fusion import (
    NO_SUMS,
    WriteContraction,
    lower_contraction,
)
from tensorbow.kernels.native.products.convolution import ConvolutionShape
from tensorbow.kernels.native.products.convolution_passes import (
    Pointers,
    backprop_filter,
    backprop_input,
    convolve,
    fast_convolution,
    fast_gradients,
)
from tensorbow.kernels.native.products.microkernel import shared_function
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.program.plan import Ref
from tensorbow.specs import FLOATING, TensorSpec

Shapes = tuple[Sequence[int], Sequence[int]]


Write = Callable[[Emitter, ConvolutionShape, Pointers, BandSums[ir.Value]], None]


def _writer(write: Write, shapes: Callable[[Sequence[Ref], Ref], Shapes]) -> WriteContraction:
    """A template: `write` gets the places of floating inputs, the output and scratch.

    shapes: gives the shapes of images and filters from the inputs and the output.
    """

    def written(
        e: Emitter,
        attrs: Attrs,
        inputs: Sequence[Ref],
        output: Ref,
        scratch: Sequence[Ref],
        sums: BandSums[Ref] = NO_SUMS,
    ) -> None:
        what = ConvolutionShape.of(*shapes(inputs, output), attrs, output.dtype)
        own = [*(ref for ref in inputs if ref.dtype == output.dtype), output, *scratch]
        places = [e.address(ref) for ref in (*own, *sums.places)]
        count = len(own)
        function = shared_function(
            e,
            (write.__name__, what, sums.sums),
            [POINTER] * len(places),
            lambda inner, given: write(inner, what, given[:count], sums.at(given[count:])),
        )
        e.builder.call(function, places)

    return written


def _takes(node: NodeSpec, target: Target) -> bool:
    return node.outputs[0].dtype in FLOATING and all(
        0 not in spec.extents for spec in (*node.inputs, *node.outputs)
    )


def _conv2d_scratch(node: NodeSpec, target: Target) -> list[TensorSpec]:
    images, filters = node.inputs
    what = ConvolutionShape.of(images.extents, filters.extents, node.attrs, images.dtype)
    fast = fast_convolution(what, target)
    return [what.band_spec() if fast is None else fast.scratch()]


def _backprop_filter_scratch(node: NodeSpec, target: Target) -> list[TensorSpec]:
    images, filters = node.inputs[0], node.outputs[0]
    what = ConvolutionShape.of(images.extents, filters.extents, node.attrs, images.dtype)
    fast = fast_gradients(what, target)
    return [what.band_spec() if fast is None else fast.scratch()]


def _backprop_input_scratch(node: NodeSpec, target: Target) -> list[TensorSpec]:
    filters = node.inputs[1]
    what = ConvolutionShape.of(node.outputs[0].extents, filters.extents, node.attrs, filters.dtype)
    fast = fast_gradients(what, target)
    if fast is not None:
        others = fast.scratch()
    else:
        others = what.image_spec() if what.adds_taps else what.reversed().band_spec()
    return [TensorSpec((what.taps, what.outputs, what.channels), what.dtype), others]


def _rows_of_images(node: NodeSpec, target: Target) -> int:
    """Rows of the images' gradient, as a matrix, that are computed together."""
    shapes = node.outputs[0].extents, node.inputs[1].extents
    what = ConvolutionShape.of(*shapes, node.attrs, node.outputs[0].dtype)
    reverse = what.reversed()
    return 0 if what.adds_taps else reverse.band * reverse.columns.count


def _rows_of_result(node: NodeSpec, target: Target) -> int:
    images, filters = node.inputs
    what = ConvolutionShape.of(images.extents, filters.extents, node.attrs, images.dtype)
    fast = fast_convolution(what, target)
    return what.band * what.columns.count if fast is None else fast.rows_at_once


lower_contraction(
    Conv2D,
    _writer(convolve, lambda inputs, output: (inputs[0].shape, inputs[1].shape)),
    _takes,
    _conv2d_scratch,
    _rows_of_result,
)
lower_contraction(
    Conv2DBackpropFilter,
    _writer(backprop_filter, lambda inputs, output: (inputs[0].shape, output.shape)),
    _takes,
    _backprop_filter_scratch,
)
lower_contraction(
    Conv2DBackpropInput,
    _writer(backprop_input, lambda inputs, output: (output.shape, inputs[1].shape)),
    _takes,
    _backprop_input_scratch,
    _rows_of_images,
)
