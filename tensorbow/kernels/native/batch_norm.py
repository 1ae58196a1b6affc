"""Batch normalisation and its gradient: blocks of channels, for each all passes over its rows.

See `tensorbow.ops.batch_norm` for the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from llvmlite import ir

from tensorbow.kernels.native.arithmetic import Arithmetic
from tensorbow.kernels.native.emitter import Emitter, constant, index
from tensorbow.kernels.native.lowering import Lowering, lower
from tensorbow.kernels.native.reduction_plans import Reducer, WalkedAxis
from tensorbow.kernels.native.strips import Places, blocks, places_of, vector_of
from tensorbow.kernels.plan import Group, Ref
from tensorbow.ops.batch_norm import FusedBatchNorm, FusedBatchNormGrad
from tensorbow.specs import DType

Vectors = list[ir.Value]  # of the channels of a block


class Channels:
    """A block of neighbouring channels of [rows, channels]."""

    def __init__(
        self,
        emitter: Emitter,
        dtype: DType,
        shape: tuple[int, int],
        start: ir.Value,
        widths: Sequence[int],
    ):
        self._emitter = emitter
        self._arithmetic = Arithmetic(emitter, dtype)
        self._shape = shape
        self.start = start
        self.widths = widths
        self._offsets = [sum(widths[:place]) for place in range(len(widths))]

    def load(self, vector: Places) -> Vectors:
        """The block's elements of a vector of channels."""
        return [
            vector.load(self._emitter.builder.add(self.start, index(offset)), width)
            for offset, width in zip(self._offsets, self.widths, strict=True)
        ]

    def store(self, values: Vectors, *vectors: Places) -> None:
        """The reverse, into one or several vectors of channels."""
        for value, offset in zip(values, self._offsets, strict=True):
            for vector in vectors:
                vector.store(value, self._emitter.builder.add(self.start, index(offset)))

    def sums(self, count: int, terms: Callable[[ir.Value, int, int], Sequence[ir.Value]]) -> list[Vectors]:
        """Over the rows, of each of `count` terms."""
        rows, channels = self._shape
        if not rows:
            return [[self._constant(0.0, width) for width in self.widths]] * count
        reducer = Reducer(
            self._emitter,
            max(self.widths),
            lambda width: self._constant(0.0, width),
            self._arithmetic.add,
            terms,
            count,
        )
        found = reducer.columns([WalkedAxis(rows, channels, True)], self.start, self.widths)
        return [[values[term] for values in found] for term in range(count)]

    def for_each(self, body: Callable[[ir.Value, int, int], None]) -> None:
        """Emits body(position, place, width) for all rows."""
        rows, channels = self._shape
        with self._emitter.loop(rows) as row:
            begin = self._emitter.builder.add(self._emitter.builder.mul(row, index(channels)), self.start)
            for place, (offset, width) in enumerate(zip(self._offsets, self.widths, strict=True)):
                body(self._emitter.builder.add(begin, index(offset)), place, width)

    def scaled(self, values: Vectors, factor: float) -> Vectors:
        """Divided by a number."""
        return [self._arithmetic.divide(v, constant(v.type, factor)) for v in values]

    def _constant(self, value: float, width: int) -> ir.Constant:
        return constant(vector_of(self._arithmetic.kind, width), value)


def _for_channels(emitter: Emitter, x: Ref, body: Callable[[Channels], None]) -> None:
    channels = x.shape[-1]
    shape = (math.prod(x.shape[:-1]), channels)
    blocks(
        emitter,
        channels,
        emitter.target.lanes(x.dtype.size),
        lambda start, widths: body(Channels(emitter, x.dtype, shape, start, widths)),
    )


def _emit(emitter: Emitter, group: Group) -> None:
    x, scale, offset, mean, variance = places_of(emitter, *group.inputs)
    y, batch_mean, batch_variance, saved_mean, saved_inverse = places_of(emitter, *group.outputs)
    source = group.inputs[0]
    rows = math.prod(source.shape[:-1])
    epsilon, is_training = group.attrs["epsilon"], group.attrs["is_training"]
    a = Arithmetic(emitter, source.dtype)

    def block(channels: Channels) -> None:
        if is_training:
            (total,) = channels.sums(1, lambda at, place, width: [x.load(at, width)])
            means = channels.scaled(total, rows)

            def square(at: ir.Value, place: int, width: int) -> list[ir.Value]:
                centred = a.subtract(x.load(at, width), means[place])
                return [a.multiply(centred, centred)]

            (squares,) = channels.sums(1, square)
            variances = channels.scaled(squares, rows)
            channels.store(channels.scaled(squares, max(1, rows - 1)), batch_variance)
        else:
            means, variances = channels.load(mean), channels.load(variance)
            channels.store(variances, batch_variance)
        channels.store(means, batch_mean, saved_mean)
        inverse = [_inverse_root(emitter, a, v, epsilon) for v in variances]
        channels.store(inverse, saved_inverse)
        factors = [a.multiply(s, r) for s, r in zip(channels.load(scale), inverse, strict=True)]
        offsets = channels.load(offset)

        def normalize(at: ir.Value, place: int, width: int) -> None:
            centred = a.subtract(x.load(at, width), means[place])
            y.store(a.multiply_add(centred, factors[place], offsets[place]), at)

        channels.for_each(normalize)

    _for_channels(emitter, source, block)


def _inverse_root(emitter: Emitter, a: Arithmetic, variance: ir.Value, epsilon: float) -> ir.Value:
    root = emitter.intrinsic("sqrt", variance.type, a.add(variance, constant(variance.type, epsilon)))
    return a.divide(constant(variance.type, 1.0), root)


def _emit_grad(emitter: Emitter, group: Group) -> None:
    dy, x, scale, mean, inverse, dx, dscale, doffset = places_of(emitter, *group.inputs, *group.outputs)
    source, is_training = group.inputs[1], group.attrs["is_training"]
    rows = math.prod(source.shape[:-1])
    a = Arithmetic(emitter, source.dtype)

    def block(channels: Channels) -> None:
        means, inverses = channels.load(mean), channels.load(inverse)

        def products(at: ir.Value, place: int, width: int) -> list[ir.Value]:
            flow = dy.load(at, width)
            return [a.multiply(a.subtract(x.load(at, width), means[place]), flow), flow]

        to_scale, to_offset = channels.sums(2, products)
        if rows:  # else mean and inverse are NaN
            to_scale = [a.multiply(s, r) for s, r in zip(to_scale, inverses, strict=True)]
        channels.store(to_scale, dscale)
        channels.store(to_offset, doffset)
        factors = [a.multiply(s, r) for s, r in zip(channels.load(scale), inverses, strict=True)]
        slopes = channels.scaled([a.multiply(s, r) for s, r in zip(to_scale, inverses, strict=True)], -rows)
        shifts = channels.scaled(to_offset, rows)

        def flow_back(at: ir.Value, place: int, width: int) -> None:
            flow = dy.load(at, width)
            if is_training:
                centred = a.subtract(x.load(at, width), means[place])
                flow = a.subtract(a.multiply_add(centred, slopes[place], flow), shifts[place])
            dx.store(a.multiply(flow, factors[place]), at)

        channels.for_each(flow_back)

    _for_channels(emitter, source, block)


lower(FusedBatchNorm, Lowering(_emit))
lower(FusedBatchNormGrad, Lowering(_emit_grad, inplace=((0, 0),)))
