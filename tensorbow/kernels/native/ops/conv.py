"""Native code of convolution and its two derivatives: choice of the pass, and its scratch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorbow.graph import NodeSpec
from tensorbow.kernels.native.codegen.emitter import POINTER, Emitter
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products import pair_convolution
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
from tensorbow.program.plan import Group, Ref
from tensorbow.specs import FLOATING, TensorSpec

Shapes = tuple[Sequence[int], Sequence[int]]
Write = Callable[[Emitter, ConvolutionShape, Pointers], None]


def _template(
    direct: Write, in_pairs: Write, shapes: Callable[[Sequence[Ref], Ref], Shapes]
) -> Callable[[Emitter, Group], None]:
    """A template of writers, which get pointers to the floating inputs, the output and scratch.

    in_pairs: the writer for operands in bfloat16. shapes: gives the shapes of images and filters from the
    inputs and the output.
    """

    def emit(e: Emitter, group: Group) -> None:
        inputs, (output,) = group.inputs, group.outputs
        what = ConvolutionShape.of(*shapes(inputs, output), group.attrs, output.dtype)
        floating = (ref for ref in inputs if ref.dtype == output.dtype)
        pointers = [e.address(ref) for ref in (*floating, output, *group.scratch)]
        write = in_pairs if e.target.rounds(output.dtype) else direct
        function = shared_function(
            e,
            (write.__module__, write.__name__, what),
            [POINTER] * len(pointers),
            lambda inner, given: write(inner, what, given),
        )
        e.builder.call(function, pointers)

    return emit


def _takes(node: NodeSpec, target: Target) -> bool:
    return node.outputs[0].dtype in FLOATING and all(
        0 not in spec.extents for spec in (*node.inputs, *node.outputs)
    )


def _conv2d_scratch(node: NodeSpec, target: Target) -> list[TensorSpec]:
    images, filters = node.inputs
    what = ConvolutionShape.of(images.extents, filters.extents, node.attrs, images.dtype)
    if target.rounds(what.dtype):
        return pair_convolution.convolve_scratch(what)
    fast = fast_convolution(what, target)
    return [what.band_spec() if fast is None else fast.scratch()]


def _backprop_filter_scratch(node: NodeSpec, target: Target) -> list[TensorSpec]:
    images, filters = node.inputs[0], node.outputs[0]
    what = ConvolutionShape.of(images.extents, filters.extents, node.attrs, images.dtype)
    if target.rounds(what.dtype):
        return pair_convolution.backprop_filter_scratch(what, target)
    fast = fast_gradients(what, target)
    return [what.band_spec() if fast is None else fast.scratch()]


def _backprop_input_scratch(node: NodeSpec, target: Target) -> list[TensorSpec]:
    filters = node.inputs[1]
    what = ConvolutionShape.of(node.outputs[0].extents, filters.extents, node.attrs, filters.dtype)
    if target.rounds(what.dtype):
        return pair_convolution.backprop_input_scratch(what)
    fast = fast_gradients(what, target)
    if fast is not None:
        others = fast.scratch()
    else:
        others = what.image_spec() if what.adds_taps else what.reversed().band_spec()
    return [TensorSpec((what.taps, what.outputs, what.channels), what.dtype), others]


lower(
    Conv2D,
    Lowering(
        _template(
            convolve, pair_convolution.convolve, lambda inputs, output: (inputs[0].shape, inputs[1].shape)
        ),
        _takes,
        _conv2d_scratch,
    ),
)
lower(
    Conv2DBackpropFilter,
    Lowering(
        _template(
            backprop_filter,
            pair_convolution.backprop_filter,
            lambda inputs, output: (inputs[0].shape, output.shape),
        ),
        _takes,
        _backprop_filter_scratch,
    ),
)
lower(
    Conv2DBackpropInput,
    Lowering(
        _template(
            backprop_input,
            pair_convolution.backprop_input,
            lambda inputs, output: (output.shape, inputs[1].shape),
        ),
        _takes,
        _backprop_input_scratch,
    ),
)
