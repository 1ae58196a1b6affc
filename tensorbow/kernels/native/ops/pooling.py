"""Native code of max and average pooling of NHWC images, and their gradients: channel vectors per window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from llvmlite import ir

from tensorbow.graph import Attrs
from tensorbow.kernels.native.codegen.arithmetic import Arithmetic
from tensorbow.kernels.native.codegen.emitter import Emitter, constant
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.strips import Accumulator, Places, places_of, strips, vector_of
from tensorbow.kernels.native.codegen.window_loops import Window, covers, for_windows
from tensorbow.kernels.native.codegen.window_pooling import (
    new_accumulators,
    store_results,
    weight_of,
    weighted,
    write_average_pool,
    write_max_pool,
)
from tensorbow.ops.average_pooling import AvgPool, AvgPoolGrad
from tensorbow.ops.pooling import MaxPool, MaxPoolGrad, MaxPoolGradGrad
from tensorbow.ops.sliding_windows import Windows
from tensorbow.program.plan import Group, Ref

WritePool: TypeAlias = Callable[[Emitter, Windows, "tuple[int, int]", Places, Places], None]


def _windows(images: Ref, attrs: Attrs) -> Windows:
    return Windows.of_pool(images.shape, attrs)


def _for_windows(emitter: Emitter, images: Ref, group: Group, body: Callable[[Window], None]) -> None:
    windows = _windows(images, group.attrs)
    for_windows(emitter, windows, images.shape[0], images.shape[3], images.dtype, body)


def _clear(emitter: Emitter, target: Places, ref: Ref) -> None:
    """Sets an array to zero."""

    def clear(position: ir.Value, width: int) -> None:
        target.store(constant(vector_of(target.kind, width), 0.0), position)

    strips(emitter, math.prod(ref.shape), emitter.target.lanes(ref.dtype.size), clear)


# Maximum ------------------------------------------------------------------------------------------


def _emit_pool(write: WritePool) -> Callable[[Emitter, Group], None]:
    def emit(emitter: Emitter, group: Group) -> None:
        (images,), (pooled,) = group.inputs, group.outputs
        source, target = places_of(emitter, images, pooled)
        write(emitter, _windows(images, group.attrs), (images.shape[0], images.shape[3]), source, target)

    return emit


def _for_maxima(
    emitter: Emitter,
    window: Window,
    places: Sequence[Places],
    visit: Callable[[int, ir.Value, ir.Value, ir.Value], None],
) -> None:
    """Emits visit(place, position, value, chosen) per element; chosen: it is its window's first maximum.

    "Not less than the maximum" instead of "equal to it": a window with NaN has one such element, too.
    """
    images, pooled = places
    builder, arithmetic = emitter.builder, Arithmetic(emitter, images.dtype)
    greatest = [pooled.load(at, width) for at, width in window.vectors(window.pooled)]
    waiting = [Accumulator(emitter, constant(vector_of(ir.IntType(1), width), 1)) for width in window.widths]

    def element(position: ir.Value) -> None:
        for place, (at, width) in enumerate(window.vectors(position)):
            value = images.load(at, width)
            less = arithmetic.less(value, greatest[place])
            chosen = builder.and_(waiting[place].get(), builder.not_(less))
            waiting[place].set(builder.and_(waiting[place].get(), less))
            visit(place, at, value, chosen)

    window.elements(element)


def _emit_max_pool_grad(emitter: Emitter, group: Group) -> None:
    emit_max_pool_grad(emitter, group.attrs, group.inputs, group.outputs[0])


def emit_max_pool_grad(
    emitter: Emitter, attrs: Attrs, inputs: Sequence[Ref], result: Ref, *, rectified: bool = False
) -> None:
    """The gradient of the images, from images, maxima and the maxima's gradient.

    rectified: also applies ReLU's gradient; the images are the ReLU's results.
    """
    images = inputs[0]
    builder, arithmetic = emitter.builder, Arithmetic(emitter, images.dtype)
    source, pooled, flow, target = places_of(emitter, *inputs, result)
    windows = _windows(images, attrs)
    if windows.overlap or not covers(windows):
        _clear(emitter, target, result)

    def body(window: Window) -> None:
        flows = [flow.load(at, width) for at, width in window.vectors(window.pooled)]

        def visit(place: int, at: ir.Value, image: ir.Value, chosen: ir.Value) -> None:
            value, none = flows[place], constant(flows[place].type, 0.0)
            if rectified:
                chosen = builder.and_(chosen, arithmetic.less(none, image))
            value = builder.select(chosen, value, none)
            if windows.overlap:
                value = arithmetic.add(target.load(at, window.widths[place]), value)
            target.store(value, at)

        _for_maxima(emitter, window, (source, pooled), visit)

    for_windows(emitter, windows, images.shape[0], images.shape[3], images.dtype, body)


def _emit_max_pool_grad_grad(emitter: Emitter, group: Group) -> None:
    images, (result,) = group.inputs[0], group.outputs
    source, pooled, flow, target = places_of(emitter, *group.inputs, result)

    def body(window: Window) -> None:
        found = new_accumulators(emitter, target, window.widths, 0.0)

        def visit(place: int, at: ir.Value, image: ir.Value, chosen: ir.Value) -> None:
            value = flow.load(at, window.widths[place])
            found[place].set(emitter.builder.select(chosen, value, found[place].get()))

        _for_maxima(emitter, window, (source, pooled), visit)
        store_results(found, target, window)

    _for_windows(emitter, images, group, body)


# Average ------------------------------------------------------------------------------------------


def _emit_average_pool_grad(emitter: Emitter, group: Group) -> None:
    (_, gradient), (result,) = group.inputs, group.outputs
    flow, target = places_of(emitter, gradient, result)
    windows = _windows(result, group.attrs)
    if windows.overlap or not covers(windows):
        _clear(emitter, target, result)

    def body(window: Window) -> None:
        weight = weight_of(emitter, window, flow)
        shares = [
            weighted(emitter, flow.load(at, width), weight, width)
            for at, width in window.vectors(window.pooled)
        ]

        def element(position: ir.Value) -> None:
            for share, (at, width) in zip(shares, window.vectors(position), strict=True):
                present = target.load(at, width) if windows.overlap else None
                target.store(share if present is None else emitter.builder.fadd(present, share), at)

        window.elements(element)

    _for_windows(emitter, result, group, body)


lower(MaxPool, Lowering(_emit_pool(write_max_pool)))
lower(MaxPoolGrad, Lowering(_emit_max_pool_grad))
lower(MaxPoolGradGrad, Lowering(_emit_max_pool_grad_grad))
lower(AvgPool, Lowering(_emit_pool(write_average_pool)))
lower(AvgPoolGrad, Lowering(_emit_average_pool_grad))
