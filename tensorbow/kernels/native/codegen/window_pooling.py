"""Pooling: maxima or means of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from tensorbow.kernels.native.codegen.arithmetic import Arithmetic
from tensorbow.kernels.native.codegen.emitter import Emitter, constant
from tensorbow.kernels.native.codegen.strips import Accumulator, Places, splat, vector_of
from tensorbow.kernels.native.codegen.window_loops import Window, for_windows
from tensorbow.ops.sliding_windows import Windows


def write_max_pool(
    emitter: Emitter, windows: Windows, sizes: tuple[int, int], source: Places, target: Places
) -> None:
    """Writes the maxima of windows of images. sizes: (images, channels)."""
    arithmetic = Arithmetic(emitter, source.dtype)

    def body(window: Window) -> None:
        best = new_accumulators(emitter, source, window.widths, -math.inf)

        def element(position: ir.Value) -> None:
            for greatest, (at, width) in zip(best, window.vectors(position), strict=True):
                greatest.set(arithmetic.maximum(greatest.get(), source.load(at, width)))

        window.elements(element)
        store_results(best, target, window)

    for_windows(emitter, windows, *sizes, source.dtype, body)


def write_average_pool(
    emitter: Emitter, windows: Windows, sizes: tuple[int, int], source: Places, target: Places
) -> None:
    """Writes the means of windows of images; see `write_max_pool`."""

    def body(window: Window) -> None:
        totals = new_accumulators(emitter, source, window.widths, 0.0)

        def element(position: ir.Value) -> None:
            for total, (at, width) in zip(totals, window.vectors(position), strict=True):
                total.set(emitter.builder.fadd(total.get(), source.load(at, width)))

        window.elements(element)
        weight = weight_of(emitter, window, source)
        for total, width in zip(totals, window.widths, strict=True):
            total.set(weighted(emitter, total.get(), weight, width))
        store_results(totals, target, window)

    for_windows(emitter, windows, *sizes, source.dtype, body)


def new_accumulators(
    emitter: Emitter, target: Places, widths: Sequence[int], value: float
) -> list[Accumulator]:
    """An accumulator with that initial value for each of a window's vectors."""
    return [Accumulator(emitter, constant(vector_of(target.kind, width), value)) for width in widths]


def store_results(results: Sequence[Accumulator], target: Places, window: Window) -> None:
    """Writes a window's results into the pooled images."""
    for result, (at, _) in zip(results, window.vectors(window.pooled), strict=True):
        target.store(result.get(), at)


def weight_of(emitter: Emitter, window: Window, like: Places) -> ir.Value:
    """One over the window's number of elements on the image, rounded from float64 as the reference is."""
    count, double, builder = window.count(), ir.DoubleType(), emitter.builder
    if isinstance(count, int):
        return constant(like.kind, float(like.dtype.as_numpy_dtype.type(1 / count)))
    weight = builder.fdiv(constant(double, 1.0), builder.sitofp(count, double))
    return weight if like.kind == double else builder.fptrunc(weight, like.kind)


def weighted(emitter: Emitter, value: ir.Value, weight: ir.Value, width: int) -> ir.Value:
    """A vector of `width` elements times the weight."""
    return emitter.builder.fmul(value, splat(emitter, weight, width))
