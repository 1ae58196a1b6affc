"""Native code of depthwise convolution and its two derivatives.

The outermost loop is over vectors of channels, whose filters, or gradients of filters, stay in registers
while the windows are walked. Windows on the image are unrolled; those on its border test each element.
With several filters for a channel the vectors have one element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from tensorbow.graph import NodeSpec
from tensorbow.kernels.native.codegen.arithmetic import Arithmetic
from tensorbow.kernels.native.codegen.emitter import Emitter, constant, index
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.strips import (
    Accumulator,
    Elements,
    elements_of,
    scaled,
    strips,
    sums,
    vector_of,
)
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.ops.depthwise import (
    DepthwiseConv2dNative,
    DepthwiseConv2dNativeBackpropFilter,
    DepthwiseConv2dNativeBackpropInput,
)
from tensorbow.ops.sliding_windows import Axis, Windows
from tensorbow.program.plan import Group, Ref
from tensorbow.specs import FLOATING

LARGEST = 49  # elements of a window that are unrolled: 7x7

Visit = Callable[[int, ir.Value], None]  # (number of the window's element, position in the images)


@dataclass(frozen=True)
class Depthwise:
    """The windows over one vector of channels. Positions count elements from an array's first.

    images, results: channels of the two arrays; they differ with several filters for a channel.
    """

    emitter: Emitter
    windows: Windows
    batch: int
    images: int
    results: int

    @classmethod
    def of(cls, emitter: Emitter, group: Group, images: Ref, filters: Ref) -> Depthwise:
        """Shapes of an op over images, with filters of these shapes."""
        attrs = group.attrs
        windows = Windows.of(
            images.shape, filters.shape, attrs["strides"], attrs["padding"], attrs["dilations"]
        )
        channels = images.shape[3]
        return cls(emitter, windows, images.shape[0], channels, channels * filters.shape[3])

    @property
    def taps(self) -> int:
        """Number of elements of a window."""
        return self.windows.rows.window * self.windows.columns.window

    def reversed(self) -> Depthwise:
        """The windows of the results that give the gradient of the images.

        For strides of 1 and one filter for each channel.
        """
        windows = Windows(self.windows.rows.reversed(), self.windows.columns.reversed())
        return Depthwise(self.emitter, windows, self.batch, self.results, self.images)

    def each_vector(self, dtype_size: int, body: Callable[[ir.Value, ir.Value, int], None]) -> None:
        """Emits body(channel of images, channel of results, width) for each vector of channels."""
        if self.images == self.results:
            lanes = self.emitter.target.lanes(dtype_size)
            strips(self.emitter, self.images, lanes, lambda start, width: body(start, start, width))
            return
        with self.emitter.loop(self.results) as result:
            body(self.emitter.builder.udiv(result, index(self.results // self.images)), result, 1)

    def each_window(
        self,
        image: ir.Value,
        channel: ir.Value,
        result: ir.Value,
        body: Callable[[ir.Value, Callable[[Visit], None]], None],
    ) -> None:
        """Emits body(position of the result, elements) for each window of an image.

        elements(visit): emits visit for each element of the window that is on the image.
        """
        e, (rows, columns) = self.emitter, (self.windows.rows, self.windows.columns)
        with e.loop(rows.count) as row, e.loop(columns.count) as column:
            top = sums(e, scaled(e, row, rows.stride), -rows.before)
            left = sums(e, scaled(e, column, columns.stride), -columns.before)
            number = sums(e, scaled(e, sums(e, scaled(e, image, rows.count), row), columns.count), column)
            place = sums(e, scaled(e, number, self.results), result)
            pixel = sums(e, scaled(e, sums(e, scaled(e, image, rows.extent), top), columns.extent), left)
            corner = sums(e, scaled(e, pixel, self.images), channel)

            def elements(visit: Visit, tested: bool) -> None:
                for tap in range(self.taps):
                    down, across = divmod(tap, columns.window)
                    y, x = down * rows.rate, across * columns.rate
                    at = sums(e, corner, (y * columns.extent + x) * self.images)
                    if not tested:
                        visit(tap, at)
                        continue
                    inside = e.builder.and_(_within(e, top, y, rows), _within(e, left, x, columns))
                    with e.builder.if_then(inside):
                        visit(tap, at)

            if not (rows.is_padded or columns.is_padded):
                body(place, lambda visit: elements(visit, False))
                return
            inner = e.builder.and_(_all_within(e, top, rows), _all_within(e, left, columns))
            with e.builder.if_else(inner, likely=True) as (then, otherwise):
                with then:
                    body(place, lambda visit: elements(visit, False))
                with otherwise:
                    body(place, lambda visit: elements(visit, True))


def _within(e: Emitter, corner: ir.Value, offset: int, axis: Axis) -> ir.Value:
    """True if an element of a window is on the image, along one axis."""
    return e.builder.icmp_unsigned("<", sums(e, corner, offset), index(axis.extent))


def _all_within(e: Emitter, corner: ir.Value, axis: Axis) -> ir.Value:
    """True if a whole window is on the image, along one axis."""
    last = axis.extent - axis.span
    if last < 0:
        return ir.Constant(ir.IntType(1), 0)
    return e.builder.icmp_unsigned("<=", corner, index(last))


def _weights(filters: Elements, windows: Depthwise, channel: ir.Value, width: int) -> list[ir.Value]:
    """The filters of a vector of channels, an element of the window each."""
    taps = (sums(windows.emitter, channel, tap * windows.results) for tap in range(windows.taps))
    return [filters.load(at, width) for at in taps]


def _emit_sums(
    windows: Depthwise, source: Elements, filters: Elements, target: Elements, turned: bool
) -> None:
    """Each result is the sum over its window of images times filters; turned: with reversed filters."""
    e, arithmetic = windows.emitter, Arithmetic(windows.emitter, target.dtype)

    def vector(channel: ir.Value, result: ir.Value, width: int) -> None:
        weights = _weights(filters, windows, result, width)
        if turned:
            weights.reverse()

        def window(place: ir.Value, elements: Callable[[Visit], None]) -> None:
            zero = constant(vector_of(target.kind, width), 0.0)
            total = Accumulator(e, zero)

            def visit(tap: int, at: ir.Value) -> None:
                total.set(arithmetic.multiply_add(source.load(at, width), weights[tap], total.get()))

            elements(visit)
            target.store(total.get(), place)

        with e.loop(windows.batch) as image:
            windows.each_window(image, channel, result, window)

    windows.each_vector(target.dtype.size, vector)


def _emit(e: Emitter, group: Group) -> None:
    images, filters = group.inputs
    source, weights, target = elements_of(e, images, filters, group.outputs[0])
    _emit_sums(Depthwise.of(e, group, images, filters), source, weights, target, turned=False)


def _emit_input(e: Emitter, group: Group) -> None:
    (_, filters, flow), (result,) = group.inputs, group.outputs
    source, weights, target = elements_of(e, flow, filters, result)
    windows = Depthwise.of(e, group, result, filters)
    if max(group.attrs["strides"]) == 1 and windows.images == windows.results:
        _emit_sums(windows.reversed(), source, weights, target, turned=True)
        return
    strips(
        *(e, math.prod(result.shape), e.target.lanes(result.dtype.size)),
        lambda at, width: target.store(constant(vector_of(target.kind, width), 0.0), at),
    )
    arithmetic = Arithmetic(e, target.dtype)

    def vector(channel: ir.Value, place_channel: ir.Value, width: int) -> None:
        factors = _weights(weights, windows, place_channel, width)

        def window(place: ir.Value, elements: Callable[[Visit], None]) -> None:
            given = source.load(place, width)

            def visit(tap: int, at: ir.Value) -> None:
                target.store(arithmetic.multiply_add(given, factors[tap], target.load(at, width)), at)

            elements(visit)

        with e.loop(windows.batch) as image:
            windows.each_window(image, channel, place_channel, window)

    windows.each_vector(target.dtype.size, vector)


def _emit_filter(e: Emitter, group: Group) -> None:
    (images, _, flow), (result,) = group.inputs, group.outputs
    source, flows, target = elements_of(e, images, flow, result)
    windows, arithmetic = Depthwise.of(e, group, images, result), Arithmetic(e, target.dtype)

    def vector(channel: ir.Value, place_channel: ir.Value, width: int) -> None:
        zero = constant(vector_of(target.kind, width), 0.0)
        places = [sums(e, place_channel, tap * windows.results) for tap in range(windows.taps)]
        for place in places:
            target.store(zero, place)
        totals = [Accumulator(e, zero) for _ in places]

        def window(place: ir.Value, elements: Callable[[Visit], None]) -> None:
            given = flows.load(place, width)

            def visit(tap: int, at: ir.Value) -> None:
                total = totals[tap]
                total.set(arithmetic.multiply_add(source.load(at, width), given, total.get()))

            elements(visit)

        with e.loop(windows.batch) as image:  # sums of one image each lose fewer digits than one long sum
            for total in totals:
                total.set(zero)
            windows.each_window(image, channel, place_channel, window)
            for total, place in zip(totals, places, strict=True):
                target.store(arithmetic.add(target.load(place, width), total.get()), place)

    windows.each_vector(target.dtype.size, vector)


def _takes(filters: Callable[[NodeSpec], Sequence[int]]) -> Callable[[NodeSpec, Target], bool]:
    def takes(node: NodeSpec, target: Target) -> bool:
        shapes = [spec.extents for spec in (*node.inputs, *node.outputs)]
        within = math.prod(filters(node)[:2]) <= LARGEST
        return node.outputs[0].dtype in FLOATING and within and all(0 not in shape for shape in shapes)

    return takes


lower(DepthwiseConv2dNative, Lowering(_emit, _takes(lambda node: node.inputs[1].extents)))
lower(DepthwiseConv2dNativeBackpropInput, Lowering(_emit_input, _takes(lambda node: node.inputs[1].extents)))
lower(
    DepthwiseConv2dNativeBackpropFilter, Lowering(_emit_filter, _takes(lambda node: node.outputs[0].extents))
)
