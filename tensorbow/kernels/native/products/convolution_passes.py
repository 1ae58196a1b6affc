"""Passes of a convolution: forward, gradient of the filter, gradient of the images.

Padded images are copied, a band of rows at a time, into a frame of zeros. The gradient of the images
uses the cheaper of two ways, chosen by shape: a convolution of the output's gradient with the rotated filter,
or tap by tap, adding each tap's product in place (for strides, and small images
whose windows exceed the border by far). All passes use `winograd` if that takes fewer cycles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter, index, type_of
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.contraction import contraction
from tensorbow.kernels.native.products.convolution import ConvolutionShape
from tensorbow.kernels.native.products.packing import copy_row, copy_rows, fill_zero, transpose
from tensorbow.kernels.native.products.winograd import WinogradPasses
from tensorbow.kernels.native.products.winograd_shape import Winograd

Pointers: TypeAlias = "Sequence[ir.Value]"


def image_at(e: Emitter, what: ConvolutionShape, base: ir.Value, number: ir.Value, size: int) -> ir.Value:
    """The pointer to an image of a batch, of `size` elements each."""
    return e.offset(base, type_of(what.dtype), e.builder.mul(number, index(size)))


def _bands(
    e: Emitter, what: ConvolutionShape, images: ir.Value, frame: ir.Value
) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
    """Loops over images and bands: frame or image under the band, image number, band number."""
    if what.is_framed:
        fill_zero(e, frame, math.prod(what.band_spec().extents), what.dtype)
    with e.loop(what.batch) as i:
        image = image_at(e, what, images, i, what.image_size)
        with e.loop(what.rows.count // what.band) as band:
            if what.is_framed:
                _copy_band(e, what, image, frame, band)
            yield (frame if what.is_framed else image), i, band


def _copy_band(e: Emitter, what: ConvolutionShape, image: ir.Value, frame: ir.Value, band: ir.Value) -> None:
    """Copies the rows of an image that a band's windows reach; zeros for rows outside of the image."""
    builder, element = e.builder, type_of(what.dtype)
    down, across = what.steps(what.channels)
    size = what.columns.extent * what.channels
    first = builder.sub(builder.mul(band, index(what.band * what.rows.stride)), index(what.rows.before))
    with e.loop(what.rows_of(what.band)) as i:
        row = builder.add(first, i)
        to = e.offset(
            frame, element, builder.add(builder.mul(i, index(down)), index(what.columns.before * across))
        )
        source = e.offset(image, element, builder.mul(row, index(size)))
        with builder.if_else(builder.icmp_unsigned("<", row, index(what.rows.extent))) as (inside, beyond):
            with inside:
                copy_row(e, to, source, size, what.dtype)
            with beyond:
                fill_zero(e, to, size, what.dtype)


def convolve(e: Emitter, what: ConvolutionShape, pointers: Pointers) -> None:
    """Emits the forward pass. pointers: to images, filter, result, and a frame, or scratch of `Winograd`."""
    fast = fast_convolution(what, e.target)
    if fast is None:
        _correlate(e, what, pointers)
    else:
        WinogradPasses(e, fast).correlate(pointers)


def _correlate(e: Emitter, what: ConvolutionShape, pointers: Pointers) -> None:
    """Emits the forward pass without Winograd. pointers: to images, filter, result, and a frame."""
    images, filters, result, frame = pointers
    product = contraction(e, what.forward())
    for source, i, band in _bands(e, what, images, frame):
        made = band_of_result(e, what, image_at(e, what, result, i, what.result_size), band)
        e.builder.call(product, [source, filters, made, index(0)])


def band_of_result(e: Emitter, what: ConvolutionShape, image: ir.Value, band: ir.Value) -> ir.Value:
    """The pointer to the windows of a band in an image of the result."""
    return image_at(e, what, image, band, what.band * what.columns.count * what.outputs)


def backprop_filter(e: Emitter, what: ConvolutionShape, pointers: Pointers) -> None:
    """Emits the filter's gradient.

    pointers: to images, flow, the gradient, and a frame, or scratch of `Winograd`.
    """
    fast = fast_gradients(what, e.target)
    if fast is not None:
        WinogradPasses(e, fast).backprop_filter(pointers)
        return
    images, gradient, result, frame = pointers
    product = contraction(e, what.filter_gradient())
    for source, i, band in _bands(e, what, images, frame):
        flow = band_of_result(e, what, image_at(e, what, gradient, i, what.result_size), band)
        e.builder.call(product, [source, flow, result, e.builder.or_(i, band)])


def backprop_input(e: Emitter, what: ConvolutionShape, pointers: Pointers) -> None:
    """Emits the images' gradient.

    pointers: to filter, flow, gradient of the images, the transposed filter, and a frame, or scratch of
    `Winograd`.
    """
    fast = fast_gradients(what, e.target)
    if fast is not None:
        WinogradPasses(e, fast).backprop_input(pointers)
        return
    filters, gradient, result, turned, frame = pointers
    turn_filter(e, what, filters, turned)
    if not what.adds_taps:
        _correlate(e, what.reversed(), (gradient, turned, result, frame))
        return
    product = contraction(e, what.tap_by_tap())
    with e.loop(what.batch) as i:
        image = image_at(e, what, result, i, what.image_size)
        target = frame if what.is_framed else image
        height = what.height if what.is_framed else what.rows.extent
        fill_zero(e, target, height * what.width * what.channels, what.dtype)
        flow = image_at(e, what, gradient, i, what.result_size)
        e.builder.call(product, [flow, turned, target, index(1)])
        if what.is_framed:
            copy_image(e, what, image, frame)


def copy_image(e: Emitter, what: ConvolutionShape, image: ir.Value, frame: ir.Value) -> None:
    """Copies the image into the middle of a frame."""
    down, across = what.steps(what.channels)
    first = what.rows.before * down + what.columns.before * across
    size = what.columns.extent * what.channels
    middle = e.offset(frame, type_of(what.dtype), first)
    copy_rows(e, image, middle, what.rows.extent, size, (size, down), what.dtype)


def turn_filter(e: Emitter, what: ConvolutionShape, filters: ir.Value, turned: ir.Value) -> None:
    """[taps, channels, outputs] to [taps, outputs, channels]; taps reversed for a correlation."""
    size = what.channels * what.outputs
    with e.loop(what.taps) as tap:
        to = tap if what.adds_taps else e.builder.sub(index(what.taps - 1), tap)
        transpose(
            e,
            image_at(e, what, turned, to, size),
            image_at(e, what, filters, tap, size),
            what.channels,
            what.outputs,
            what.dtype,
        )


def fast_convolution(what: ConvolutionShape, target: Target) -> Winograd | None:
    """The Winograd form of a convolution; None where another is faster."""
    return Winograd.of(what) if target.switches.winograd else None


def fast_gradients(what: ConvolutionShape, target: Target) -> Winograd | None:
    """The Winograd form of the gradients; None where both may be computed image by image
    (`ConvolutionGradients`).
    """
    return fast_convolution(what, target) if what.adds_taps else None
