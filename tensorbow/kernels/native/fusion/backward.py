"""Fused backward pass of a convolution and the normalisation after it, image by image.

    normalisation's gradient -> the filter's gradient
                             -> the images' gradient, the sums of the normalisation before

The gradient of a normalisation first needs its sums over all images; its result for one image is then
read only by the two gradients of the convolution. So it is computed for one image at a time, in
scratch that stays in the second-level cache, and never stored for all. The bits are the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter, index, type_of
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.fusion.batch_norms import JoinedBatchNormGradient
from tensorbow.kernels.native.ops.batch_norm import FlowBack
from tensorbow.kernels.native.products.contraction_fusion import (
    NO_SUMS,
    FusedContraction,
    contraction_of,
    is_written,
    kernel_of,
)
from tensorbow.kernels.native.products.convolution_passes import ConvolutionGradients
from tensorbow.ops.batch_norm import FusedBatchNormGrad
from tensorbow.ops.conv import Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.program.nodes import Node, Unit, Value, storage_of
from tensorbow.program.plan import Group, Ref
from tensorbow.specs import TensorSpec

FLOW = 2  # index of the flow (the output's gradient) in a convolution gradient's inputs


@dataclass(frozen=True)
class JoinedGradients:
    """Code of a fused call. after: the images' gradient with its fused successors.

    Inputs: flow, x, scale, mean, inverse, dscale, doffset; the images; those of `after` without the flow.
    Outputs: the filter's gradient; those of `after`. Scratch: that of `gradients`; the running sums of
    `after`, if it has any.
    """

    node: Node  # the normalisation's gradient
    gradients: ConvolutionGradients
    after: FusedContraction | JoinedBatchNormGradient

    def __call__(self, e: Emitter, group: Group) -> None:
        """Emits the code."""
        norm, images, rest = group.inputs[:7], group.inputs[7], group.inputs[8:]
        count = len(self.gradients.scratch())
        scratch, running = group.scratch[:count], group.scratch[count:]
        filters = rest[1]
        to_filter, *outputs = group.outputs
        own = (*rest[:FLOW], norm[0], *rest[FLOW:])  # stands for the flow: only the shapes of others count
        result, sums = outputs[0], NO_SUMS
        if isinstance(self.after, JoinedBatchNormGradient):
            sums = self.after.sums(own, running[0])
            result = outputs[-1] if self.after.stays else outputs[0]
        self.gradients.write(e, self._maker(e, norm), (images, filters), (to_filter, result), scratch, sums)
        if isinstance(self.after, JoinedBatchNormGradient):
            self.after.finish(e, result, own, outputs, running[0])

    def _maker(self, e: Emitter, norm: Sequence[Ref]) -> _Maker:
        flow = norm[0]
        channels = flow.shape[-1]
        rows, count = self.gradients.windows, flow.nbytes // (flow.dtype.size * channels)
        back = FlowBack(channels, flow.dtype, rows, count, self.node.attrs["is_training"])
        return _Maker(e, back, [e.address(ref) for ref in norm])

    def scratch(self, target: Target) -> list[TensorSpec]:
        """The scratch arrays of the call."""
        after = self.after
        sums = after.scratch(target)[:1] if isinstance(after, JoinedBatchNormGradient) else []
        return [*self.gradients.scratch(), *sums]

    @property
    def form(self) -> Hashable:
        """A key that is equal for equal code."""
        training = bool(self.node.attrs["is_training"])
        return ("gradients of normalised convolution", training, repr(self.gradients), self.after.form)


@dataclass(frozen=True)
class _Maker:
    """Emits the computation of one image's flow."""

    e: Emitter
    back: FlowBack
    norm: Sequence[ir.Value]

    def __call__(self, number: ir.Value, place: ir.Value) -> None:
        e, element = self.e, type_of(self.back.dtype)
        first = e.builder.mul(number, index(self.back.rows * self.back.channels))
        flow, x = (e.offset(pointer, element, first) for pointer in self.norm[:2])
        e.builder.call(self.back.function(e), [flow, x, *self.norm[2:], place])


def fuse_gradients(units: Sequence[Unit], target: Target) -> list[Unit]:
    """Fuses both gradients of each convolution with the normalisation's gradient that makes their flow."""
    result: list[Unit | None] = list(units)
    homes = {node: place for place, unit in enumerate(units) for node in unit.nodes}
    for place, unit in enumerate(units):
        node = unit.head if isinstance(unit.kernel, NativeKernel) else None
        if node is None or node.definition is not FusedBatchNormGrad:
            continue
        found = _readers(node, homes, result, place)
        current = result[place]  # may have been fused since
        if found is None or current is None:
            continue
        to_filter, to_images = found
        split = _without_first(current, node, target)
        joined = _joined(node, result[to_filter], result[to_images], target)
        between = [other for other in result[place + 1 : to_images] if other is not None]
        if split is None or joined is None or is_written(joined, between):
            continue
        result[place], result[to_filter], result[to_images] = split, None, joined
    return [unit for unit in result if unit is not None]


def _readers(
    node: Node, homes: dict[Node, int], units: Sequence[Unit | None], place: int
) -> tuple[int, int] | None:
    """Indices of the gradients of filter and images, if only they read the normalisation's gradient."""
    value = node.outputs[0]
    if value.is_fetched or len(value.readers) != 2:
        return None
    by_op = {reader.definition: reader for reader in value.readers}
    nodes = [by_op.get(op) for op in (Conv2DBackpropFilter, Conv2DBackpropInput)]
    found = [homes[n] for n in nodes if n in homes and n.inputs[FLOW] is value]
    if len(found) < 2 or not place < found[0] < found[1]:
        return None
    to_filter, to_images = found
    made = units[to_filter]
    between = [unit for unit in units[to_filter + 1 : to_images] if unit is not None]
    if made is None or any(storage_of(v) is made.outputs[0] for unit in between for v in unit.inputs):
        return None
    return to_filter, to_images


def _without_first(unit: Unit, node: Node, target: Target) -> Unit | None:
    """A unit for the gradient of a normalisation that computes its sums only."""
    code: object = unit.kernel.emit if isinstance(unit.kernel, NativeKernel) else None
    flow = node.inputs[0]
    before = 0
    outer: JoinedGradients | None = None
    if isinstance(code, JoinedGradients):
        outer, code, before = code, code.after, 1
    if not isinstance(code, JoinedBatchNormGradient):
        if len(unit.nodes) > 1:
            return None
        code = JoinedBatchNormGradient(node, None, stays=False)
    outputs = [*unit.outputs[:before], *unit.outputs[before + 1 :]]
    if code.contraction is not None and not code.stays:
        outputs.append(flow)
    code = replace(code, applies=False, stays=code.contraction is not None)
    kernel = kernel_of(code if outer is None else replace(outer, after=code), target)
    return Unit(unit.nodes, kernel, unit.inputs, outputs)


def _joined(node: Node, to_filter: Unit | None, to_images: Unit | None, target: Target) -> Unit | None:
    """One unit for both gradients of a convolution; None if they cannot be fused."""
    if to_filter is None or to_images is None or not isinstance(to_images.kernel, NativeKernel):
        return None
    if len(to_filter.nodes) > 1 or not isinstance(to_filter.kernel, NativeKernel):
        return None
    emit = to_images.kernel.emit
    after = emit if isinstance(emit, JoinedBatchNormGradient) else contraction_of(to_images)
    contraction = after.contraction if isinstance(after, JoinedBatchNormGradient) else after
    if after is None or contraction is None or contraction.node.definition is not Conv2DBackpropInput:
        return None
    first, second = to_filter.head, contraction.node
    gradients = ConvolutionGradients(
        first.inputs[0].spec.extents,
        first.outputs[0].spec.extents,
        tuple(sorted(second.attrs.items())),
        first.outputs[0].spec.dtype,
    )
    shapes = second.outputs[0].spec.extents, second.inputs[1].spec.extents
    if shapes != (gradients.images, gradients.filters) or first.attrs != second.attrs or not gradients.takes:
        return None
    dx, dscale, doffset = node.outputs
    inputs: list[Value] = [*node.inputs, dscale, doffset, first.inputs[0]]
    rest = [*to_images.inputs[:FLOW], *to_images.inputs[FLOW + 1 :]]
    if any(storage_of(value) is dx for value in rest):
        return None
    code = JoinedGradients(node, gradients, after)
    nodes = (node, first, *to_images.nodes)
    outputs = [*to_filter.outputs, *to_images.outputs]
    return Unit(nodes, kernel_of(code, target), [*inputs, *rest], outputs)
