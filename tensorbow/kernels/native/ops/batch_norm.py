"""Batch normalisation and its gradient: sums over all rows, then a pass that writes the result.

See `tensorbow.ops.batch_norm` for the formulas. The producer of the rows may have computed the sums already,
and an element-wise epilogue may be applied before the result is stored (`fusion.batch_norms`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from tensorbow.graph import Attrs, NodeSpec
from tensorbow.kernels.native.codegen.arithmetic import Arithmetic
from tensorbow.kernels.native.codegen.emitter import POINTER, Emitter, constant, index
from tensorbow.kernels.native.codegen.epilogue import Broadcast, Epilogue
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.strips import Places, places_of, splat
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.channels import Channels, ChannelSums, for_channels
from tensorbow.kernels.native.products.microkernel import shared_function
from tensorbow.ops.batch_norm import FusedBatchNorm, FusedBatchNormGrad
from tensorbow.program.plan import Group, Ref
from tensorbow.specs import DType, TensorSpec


def sums_of(x: Ref | TensorSpec, of_flow: bool) -> ChannelSums:
    """The sums over the rows of x, or of a gradient of its shape."""
    extents = x.shape if isinstance(x, Ref) else x.extents
    return ChannelSums(extents[-1], x.dtype, of_flow)


def write_batch_norm(
    emitter: Emitter,
    attrs: Attrs,
    inputs: Sequence[Ref],
    outputs: Sequence[Ref],
    running: Ref,
    *,
    summed: bool = False,
    epilogue: Epilogue | None = None,
    operands: Sequence[Ref] = (),
) -> None:
    """Emits the op's code, with an epilogue on its first output.

    running: place of the sums; summed: they are already computed. operands: of the epilogue.
    """
    source = inputs[0]
    x, scale, offset, mean, variance = places_of(emitter, *inputs)
    y, batch_mean, batch_variance, saved_mean, saved_inverse = places_of(emitter, *outputs)
    sums, total = sums_of(source, of_flow=False), emitter.address(running)
    (totals,) = places_of(emitter, running)
    others = places_of(emitter, *operands)
    rows = math.prod(source.shape[:-1])
    is_training = attrs["is_training"]
    a = Arithmetic(emitter, source.dtype)
    if is_training and not summed:
        sums.clear(emitter, total)
        sums.absorb(emitter, emitter.address(source), index(0), rows, total)

    def block(channels: Channels) -> None:
        if is_training:
            means = channels.scaled(channels.load(totals), rows)
            squares = channels.load(totals, sums.channels)
            variances = channels.scaled(squares, rows)
            channels.store(channels.scaled(squares, max(1, rows - 1)), batch_variance)
        else:
            means, variances = channels.load(mean), channels.load(variance)
            channels.store(variances, batch_variance)
        channels.store(means, batch_mean, saved_mean)
        inverse = [_inverse_root(emitter, a, v, attrs["epsilon"]) for v in variances]
        channels.store(inverse, saved_inverse)
        factors = [a.multiply(s, r) for s, r in zip(channels.load(scale), inverse, strict=True)]
        offsets = channels.load(offset)
        broadcasts = () if epilogue is None else epilogue.broadcasts
        common = [
            channels.load(place)
            if broadcast is Broadcast.COLUMN
            else [splat(emitter, place.load(0), width) for width in channels.widths]
            if broadcast is Broadcast.SINGLE
            else None
            for broadcast, place in zip(broadcasts, others, strict=True)
        ]

        def normalize(at: ir.Value, place: int, width: int) -> None:
            centred = a.subtract(x.load(at, width), means[place])
            value = a.multiply_add(centred, factors[place], offsets[place])
            if epilogue is not None:
                values = [
                    other.load(at, width) if vectors is None else vectors[place]
                    for other, vectors in zip(others, common, strict=True)
                ]
                value = epilogue.emit(emitter, value, values, width)
            y.store(value, at)

        channels.for_each(normalize)

    for_channels(emitter, source.dtype, (rows, sums.channels), block)


def _inverse_root(emitter: Emitter, a: Arithmetic, variance: ir.Value, epsilon: float) -> ir.Value:
    root = emitter.intrinsic("sqrt", variance.type, a.add(variance, constant(variance.type, epsilon)))
    return a.divide(constant(variance.type, 1.0), root)


def write_batch_norm_gradient(
    emitter: Emitter,
    attrs: Attrs,
    inputs: Sequence[Ref],
    outputs: Sequence[Ref],
    running: Ref,
    *,
    summed: bool = False,
) -> None:
    """Emits the op's code, which may work in place. running: place of the sums; summed: already computed.

    outputs: if there are two, only those of scale and offset.
    """
    source = inputs[1]
    *to_x, to_scale, to_offset = outputs
    sums, total = sums_of(source, of_flow=True), emitter.address(running)
    rows = math.prod(source.shape[:-1])
    if not summed:
        sums.clear(emitter, total)
        others = [emitter.address(ref) for ref in (source, inputs[3])]
        sums.absorb(emitter, emitter.address(inputs[0]), index(0), rows, total, others)
    totals, inverse, dscale, doffset = places_of(emitter, running, inputs[4], to_scale, to_offset)
    a = Arithmetic(emitter, source.dtype)

    def block(channels: Channels) -> None:
        products = channels.load(totals)
        if rows:  # without rows, mean and inverse are NaN
            products = [a.multiply(s, r) for s, r in zip(products, channels.load(inverse), strict=True)]
        channels.store(products, dscale)
        channels.store(channels.load(totals, sums.channels), doffset)

    for_channels(emitter, source.dtype, (rows, sums.channels), block)
    if to_x:
        pointers = [emitter.address(ref) for ref in (*inputs, to_scale, to_offset, *to_x)]
        back = FlowBack(sums.channels, source.dtype, rows, rows, attrs["is_training"])
        emitter.builder.call(back.function(emitter), pointers)


@dataclass(frozen=True)
class FlowBack:
    """Gradient of a normalisation for some rows of its flow, once the sums over all rows are known.

    rows: their number; count: number of all rows.
    """

    channels: int
    dtype: DType
    rows: int
    count: int
    is_training: bool

    def function(self, emitter: Emitter) -> ir.Function:
        """The function (flow, x, scale, mean, inverse, dscale, doffset, dx); dx may be the flow."""
        return shared_function(emitter, self, [POINTER] * 8, self._write)

    def _write(self, emitter: Emitter, pointers: Sequence[ir.Value]) -> None:
        flow, x, scale, mean, inverse, dscale, doffset, dx = (
            Places(emitter, pointer, self.dtype) for pointer in pointers
        )
        a = Arithmetic(emitter, self.dtype)

        def block(channels: Channels) -> None:
            means, inverses = channels.load(mean), channels.load(inverse)
            factors = [a.multiply(s, r) for s, r in zip(channels.load(scale), inverses, strict=True)]
            products = [a.multiply(s, r) for s, r in zip(channels.load(dscale), inverses, strict=True)]
            slopes = channels.scaled(products, -self.count)
            shifts = channels.scaled(channels.load(doffset), self.count)

            def flow_back(at: ir.Value, place: int, width: int) -> None:
                value = flow.load(at, width)
                if self.is_training:
                    centred = a.subtract(x.load(at, width), means[place])
                    value = a.subtract(a.multiply_add(centred, slopes[place], value), shifts[place])
                dx.store(a.multiply(value, factors[place]), at)

            channels.for_each(flow_back)

        for_channels(emitter, self.dtype, (self.rows, self.channels), block)


def _emit(emitter: Emitter, group: Group) -> None:
    write_batch_norm(emitter, group.attrs, group.inputs, group.outputs, group.scratch[0])


def _emit_grad(emitter: Emitter, group: Group) -> None:
    write_batch_norm_gradient(emitter, group.attrs, group.inputs, group.outputs, group.scratch[0])


def _scratch(node: NodeSpec, target: Target) -> list[TensorSpec]:
    """The running sums; the gradient's are as large."""
    return [sums_of(node.inputs[0], of_flow=False).spec]


lower(FusedBatchNorm, Lowering(_emit, scratch=_scratch))
lower(FusedBatchNormGrad, Lowering(_emit_grad, scratch=_scratch, inplace=((0, 0),)))
