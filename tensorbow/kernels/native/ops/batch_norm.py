"""Batch normalisation and its gradient: sums over all rows, then a pass that writes the result.

See `tensorbow.ops.batch_norm` for the formulas. The producer of the rows may have computed the sums already,
and an element-wise epilogue may be applied before the result is stored (`fusion.batch_norms`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from tensorbow.graph import Attrs, NodeSpec
from tensorbow.kernels.native.codegen.arithmetic import Arithmetic
from tensorbow.kernels.native.codegen.emitter import Emitter, constant, index
from tensorbow.kernels.native.codegen.epilogue import Broadcast, Epilogue
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.strips import places_of, splat
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.channels import Channels, ChannelSums, for_channels
from tensorbow.ops.batch_norm import FusedBatchNorm, FusedBatchNormGrad
from tensorbow.program.plan import Group, Ref
from tensorbow.specs import TensorSpec


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


def _emit_grad(emitter: Emitter, group: Group) -> None:
    """Emits the gradient's code, which may work in place."""
    gradient, source, _, mean, _ = group.inputs
    sums, total = sums_of(source, of_flow=True), emitter.address(group.scratch[0])
    count = math.prod(source.shape[:-1])
    sums.clear(emitter, total)
    others = [emitter.address(ref) for ref in (source, mean)]
    sums.absorb(emitter, emitter.address(gradient), index(0), count, total, others)
    flow, x, scales, means, inverses = places_of(emitter, *group.inputs)
    (totals,), (dx, dscale, doffset) = places_of(emitter, *group.scratch), places_of(emitter, *group.outputs)
    a = Arithmetic(emitter, source.dtype)

    def block(channels: Channels) -> None:
        mean, inverse = channels.load(means), channels.load(inverses)
        scaled, shifted = channels.load(totals), channels.load(totals, sums.channels)
        if count:  # without rows, mean and inverse are NaN
            scaled = [a.multiply(s, r) for s, r in zip(scaled, inverse, strict=True)]
        channels.store(scaled, dscale)
        channels.store(shifted, doffset)
        factors = [a.multiply(s, r) for s, r in zip(channels.load(scales), inverse, strict=True)]
        products = [a.multiply(s, r) for s, r in zip(scaled, inverse, strict=True)]
        slopes, shifts = channels.scaled(products, -count), channels.scaled(shifted, count)

        def flow_back(at: ir.Value, place: int, width: int) -> None:
            value = flow.load(at, width)
            if group.attrs["is_training"]:
                centred = a.subtract(x.load(at, width), mean[place])
                value = a.subtract(a.multiply_add(centred, slopes[place], value), shifts[place])
            dx.store(a.multiply(value, factors[place]), at)

        channels.for_each(flow_back)

    for_channels(emitter, source.dtype, (count, sums.channels), block)


def _emit(emitter: Emitter, group: Group) -> None:
    write_batch_norm(emitter, group.attrs, group.inputs, group.outputs, group.scratch[0])


def _scratch(node: NodeSpec, target: Target) -> list[TensorSpec]:
    """The running sums; the gradient's are as large."""
    return [sums_of(node.inputs[0], of_flow=False).spec]


lower(FusedBatchNorm, Lowering(_emit, scratch=_scratch))
lower(FusedBatchNormGrad, Lowering(_emit_grad, scratch=_scratch, inplace=((0, 0),)))
