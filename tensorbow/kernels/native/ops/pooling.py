"""Native code of max and average pooling of NHWC images, and their gradients: channel vectors per window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from llvmlite import ir

from tensorbow.graph import Attrs
from tensorbow.kernels.native.codegen.arithmetic import Arithmetic
from tensorbow.kernels.native.codegen.emitter import Emitter, constant
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.strips import (
    Accumulator,
    Elements,
    elements_of,
    splat,
    strips,
    vector_of,
)
from tensorbow.kernels.native.codegen.window_loops import Window, covers, for_windows
from tensorbow.ops.average_pooling import AvgPool, AvgPoolGrad
from tensorbow.ops.pooling import MaxPool, MaxPoolGrad, MaxPoolGradGrad
from tensorbow.ops.sliding_windows import Windows
from tensorbow.program.plan import Group, Ref


def _windows(images: Ref, attrs: Attrs) -> Windows:
    return Windows.of_pool(images.shape, attrs)


def _for_windows(emitter: Emitter, images: Ref, group: Group, body: Callable[[Window], None]) -> None:
    windows = _windows(images, group.attrs)
    for_windows(emitter, windows, images.shape[0], images.shape[3], images.dtype, body)


def _clear(emitter: Emitter, target: Elements, ref: Ref) -> None:
    """Sets an array to zero."""

    def clear(position: ir.Value, width: int) -> None:
        target.store(constant(vector_of(target.kind, width), 0.0), position)

    strips(emitter, math.prod(ref.shape), emitter.target.lanes(ref.dtype.size), clear)


def _new_accumulators(
    emitter: Emitter, target: Elements, widths: Sequence[int], value: float
) -> list[Accumulator]:
    """An accumulator with that initial value for each of a window's vectors."""
    return [Accumulator(emitter, constant(vector_of(target.kind, width), value)) for width in widths]


def _store_results(results: Sequence[Accumulator], target: Elements, window: Window) -> None:
    """Writes a window's results into the pooled images."""
    for result, (at, _) in zip(results, window.vectors(window.pooled), strict=True):
        target.store(result.get(), at)


# Maximum ------------------------------------------------------------------------------------------


def _emit_max_pool(emitter: Emitter, group: Group) -> None:
    (images,), (pooled,) = group.inputs, group.outputs
    source, target = elements_of(emitter, images, pooled)
    arithmetic = Arithmetic(emitter, source.dtype)
    least = -math.inf if source.dtype.is_floating else 0  # of uint8

    def body(window: Window) -> None:
        best = _new_accumulators(emitter, source, window.widths, least)

        def element(position: ir.Value) -> None:
            for greatest, (at, width) in zip(best, window.vectors(position), strict=True):
                greatest.set(arithmetic.maximum(greatest.get(), source.load(at, width)))

        window.elements(element)
        _store_results(best, target, window)

    _for_windows(emitter, images, group, body)


def _for_maxima(
    emitter: Emitter,
    window: Window,
    arrays: Sequence[Elements],
    visit: Callable[[int, ir.Value, ir.Value], None],
) -> None:
    """Emits visit(number, position, chosen) per element; chosen: it is its window's first maximum.

    number: of the vector in the window's block of channels. arrays: images, and pooled images.

    "Not less than the maximum" instead of "equal to it": a window with NaN has one such element, too.
    """
    images, pooled = arrays
    builder, arithmetic = emitter.builder, Arithmetic(emitter, images.dtype)
    greatest = [pooled.load(at, width) for at, width in window.vectors(window.pooled)]
    waiting = [Accumulator(emitter, constant(vector_of(ir.IntType(1), width), 1)) for width in window.widths]

    def element(position: ir.Value) -> None:
        for number, (at, width) in enumerate(window.vectors(position)):
            less = arithmetic.less(images.load(at, width), greatest[number])
            chosen = builder.and_(waiting[number].get(), builder.not_(less))
            waiting[number].set(builder.and_(waiting[number].get(), less))
            visit(number, at, chosen)

    window.elements(element)


def _emit_max_pool_grad(emitter: Emitter, group: Group) -> None:
    images, (result,) = group.inputs[0], group.outputs
    source, pooled, flow, target = elements_of(emitter, *group.inputs, result)
    windows, arithmetic = _windows(images, group.attrs), Arithmetic(emitter, images.dtype)
    if windows.overlap or not covers(windows):
        _clear(emitter, target, result)

    def body(window: Window) -> None:
        flows = [flow.load(at, width) for at, width in window.vectors(window.pooled)]

        def visit(number: int, at: ir.Value, chosen: ir.Value) -> None:
            value = emitter.builder.select(chosen, flows[number], constant(flows[number].type, 0.0))
            if windows.overlap:
                value = arithmetic.add(target.load(at, window.widths[number]), value)
            target.store(value, at)

        _for_maxima(emitter, window, (source, pooled), visit)

    _for_windows(emitter, images, group, body)


def _emit_max_pool_grad_grad(emitter: Emitter, group: Group) -> None:
    images, (result,) = group.inputs[0], group.outputs
    source, pooled, flow, target = elements_of(emitter, *group.inputs, result)

    def body(window: Window) -> None:
        found = _new_accumulators(emitter, target, window.widths, 0.0)

        def visit(number: int, at: ir.Value, chosen: ir.Value) -> None:
            value = flow.load(at, window.widths[number])
            found[number].set(emitter.builder.select(chosen, value, found[number].get()))

        _for_maxima(emitter, window, (source, pooled), visit)
        _store_results(found, target, window)

    _for_windows(emitter, images, group, body)


# Average ------------------------------------------------------------------------------------------


def _weight_of(emitter: Emitter, window: Window, like: Elements) -> ir.Value:
    """One over the window's number of elements on the image, rounded from float64 as the reference is."""
    count, double, builder = window.count(), ir.DoubleType(), emitter.builder
    if isinstance(count, int):
        return constant(like.kind, float(like.dtype.as_numpy_dtype.type(1 / count)))
    weight = builder.fdiv(constant(double, 1.0), builder.sitofp(count, double))
    return weight if like.kind == double else builder.fptrunc(weight, like.kind)


def _weighted(emitter: Emitter, value: ir.Value, weight: ir.Value, width: int) -> ir.Value:
    """A vector of `width` elements times the weight."""
    return emitter.builder.fmul(value, splat(emitter, weight, width))


def _emit_average_pool(emitter: Emitter, group: Group) -> None:
    (images,), (pooled,) = group.inputs, group.outputs
    source, target = elements_of(emitter, images, pooled)

    def body(window: Window) -> None:
        totals = _new_accumulators(emitter, source, window.widths, 0.0)

        def element(position: ir.Value) -> None:
            for total, (at, width) in zip(totals, window.vectors(position), strict=True):
                total.set(emitter.builder.fadd(total.get(), source.load(at, width)))

        window.elements(element)
        weight = _weight_of(emitter, window, source)
        for total, width in zip(totals, window.widths, strict=True):
            total.set(_weighted(emitter, total.get(), weight, width))
        _store_results(totals, target, window)

    _for_windows(emitter, images, group, body)


def _emit_average_pool_grad(emitter: Emitter, group: Group) -> None:
    (_, gradient), (result,) = group.inputs, group.outputs
    flow, target = elements_of(emitter, gradient, result)
    windows = _windows(result, group.attrs)
    if windows.overlap or not covers(windows):
        _clear(emitter, target, result)

    def body(window: Window) -> None:
        weight = _weight_of(emitter, window, flow)
        shares = [
            _weighted(emitter, flow.load(at, width), weight, width)
            for at, width in window.vectors(window.pooled)
        ]

        def element(position: ir.Value) -> None:
            for share, (at, width) in zip(shares, window.vectors(position), strict=True):
                present = target.load(at, width) if windows.overlap else None
                target.store(share if present is None else emitter.builder.fadd(present, share), at)

        window.elements(element)

    _for_windows(emitter, result, group, body)


lower(MaxPool, Lowering(_emit_max_pool))
lower(MaxPoolGrad, Lowering(_emit_max_pool_grad))
lower(MaxPoolGradGrad, Lowering(_emit_max_pool_grad_grad))
lower(AvgPool, Lowering(_emit_average_pool))
lower(AvgPoolGrad, Lowering(_emit_average_pool_grad))
