"""Passes of a convolution: forward, gradient of the filter, gradient of the images, and both at once.

Padded images are copied, a band of rows at a time, into a frame of zeros. The gradient of the images
uses the cheaper of two ways, chosen by shape: a convolution of the output's gradient with the rotated filter,
or tap by tap, adding each tap's product in place (for strides, and small images
whose windows exceed the border by far). All passes use `winograd` if that takes fewer cycles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter, index, type_of
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.channels import BandSums
from tensorbow.kernels.native.products.contraction import contraction
from tensorbow.kernels.native.products.convolution import ConvolutionShape
from tensorbow.kernels.native.products.packing import copy_row, copy_rows, fill_zero, transpose
from tensorbow.kernels.native.products.winograd import WinogradPasses
from tensorbow.kernels.native.products.winograd_shape import Winograd
from tensorbow.program.plan import Ref
from tensorbow.specs import DType, TensorSpec

Pointers: TypeAlias = "Sequence[ir.Value]"


def _image(e: Emitter, what: ConvolutionShape, base: ir.Value, number: ir.Value, size: int) -> ir.Value:
    return e.offset(base, type_of(what.dtype), e.builder.mul(number, index(size)))


def _bands(
    e: Emitter, what: ConvolutionShape, images: ir.Value, frame: ir.Value
) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
    """Loops over images and bands: frame or image under the band, image number, band number."""
    _clear(e, what, frame)
    with e.loop(what.batch) as i:
        for source, band in _bands_of(e, what, _image(e, what, images, i, what.image_size), frame):
            yield source, i, band


def _clear(e: Emitter, what: ConvolutionShape, frame: ir.Value) -> None:
    """Zeros the border of a frame."""
    if what.is_framed:
        fill_zero(e, frame, math.prod(what.band_spec().extents), what.dtype)


def _bands_of(
    e: Emitter, what: ConvolutionShape, image: ir.Value, frame: ir.Value
) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Loop over the bands of an image: the frame or image under the band's windows, number of the band."""
    with e.loop(what.rows.count // what.band) as band:
        if what.is_framed:
            _copy_band(e, what, image, frame, band)
        yield (frame if what.is_framed else image), band


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


def convolve(e: Emitter, what: ConvolutionShape, places: Pointers, sums: BandSums[ir.Value]) -> None:
    """Emits the forward pass. places: images, filter, result, and a frame, or scratch of `Winograd`."""
    fast = fast_convolution(what, e.target)
    if fast is None:
        _correlate(e, what, places, sums)
    else:
        WinogradPasses(e, fast).correlate(places, sums)


def _correlate(e: Emitter, what: ConvolutionShape, places: Pointers, sums: BandSums[ir.Value]) -> None:
    """Emits the forward pass without Winograd. places: images, filter, result, and a frame."""
    images, filters, result, frame = places
    correlate = _correlation(e, what, sums)
    for source, i, band in _bands(e, what, images, frame):
        correlate(source, filters, result, i, band)


def _correlation(
    e: Emitter, what: ConvolutionShape, sums: BandSums[ir.Value]
) -> Callable[[ir.Value, ir.Value, ir.Value, ir.Value, ir.Value], None]:
    """A function that emits one band and its sums: (frame or image, filter, result, two numbers)."""
    builder, product = e.builder, contraction(e, what.forward())
    windows = what.band * what.columns.count
    sums.begin(e)

    def correlate(source: ir.Value, filters: ir.Value, result: ir.Value, i: ir.Value, band: ir.Value) -> None:
        number = builder.mul(index(what.rows.count // what.band), i)
        first = builder.mul(builder.add(number, band), index(windows))
        made = _image(e, what, result, first, what.outputs)
        builder.call(product, [source, filters, made, index(0)])
        sums.absorb(e, made, first, windows)

    return correlate


def backprop_filter(e: Emitter, what: ConvolutionShape, places: Pointers, sums: BandSums[ir.Value]) -> None:
    """Emits the filter's gradient. places: images, flow, the gradient, and a frame or Winograd scratch."""
    fast = fast_gradients(what, e.target)
    if fast is not None:
        WinogradPasses(e, fast).backprop_filter(places)
        return
    images, gradient, result, frame = places
    product = contraction(e, what.filter_gradient())
    for source, i, band in _bands(e, what, images, frame):
        flow = _band_of_result(e, what, _image(e, what, gradient, i, what.result_size), band)
        e.builder.call(product, [source, flow, result, e.builder.or_(i, band)])


def _band_of_result(e: Emitter, what: ConvolutionShape, image: ir.Value, band: ir.Value) -> ir.Value:
    return _image(e, what, image, band, what.band * what.columns.count * what.outputs)


def backprop_input(e: Emitter, what: ConvolutionShape, places: Pointers, sums: BandSums[ir.Value]) -> None:
    """Emits the images' gradient. places: filter, flow, gradient of the images, the transposed filter, and a
    frame, or scratch of `Winograd`.
    """
    fast = fast_gradients(what, e.target)
    if fast is not None:
        WinogradPasses(e, fast).backprop_input(places)
        return
    filters, gradient, result, turned, frame = places
    _turn(e, what, filters, turned)
    if not what.adds_taps:
        _correlate(e, what.reversed(), (gradient, turned, result, frame), sums)
        return
    product = contraction(e, what.tap_by_tap())
    with e.loop(what.batch) as i:
        image = _image(e, what, result, i, what.image_size)
        target = frame if what.is_framed else image
        height = what.height if what.is_framed else what.rows.extent
        fill_zero(e, target, height * what.width * what.channels, what.dtype)
        flow = _image(e, what, gradient, i, what.result_size)
        e.builder.call(product, [flow, turned, target, index(1)])
        if what.is_framed:
            _copy_image(e, what, image, frame)


def _copy_image(e: Emitter, what: ConvolutionShape, image: ir.Value, frame: ir.Value) -> None:
    """Copies the image into the middle of a frame."""
    down, across = what.steps(what.channels)
    first = what.rows.before * down + what.columns.before * across
    size = what.columns.extent * what.channels
    middle = e.offset(frame, type_of(what.dtype), first)
    copy_rows(e, image, middle, what.rows.extent, size, (size, down), what.dtype)


@dataclass(frozen=True)
class ConvolutionGradients:
    """Both gradients of a convolution of stride 1, with the flow computed for one image at a time.

    An image and its flow stay in the second-level cache for both. images, filters: shapes.
    """

    images: tuple[int, ...]
    filters: tuple[int, ...]
    attrs: tuple[tuple[str, object], ...]
    dtype: DType

    @property
    def _what(self) -> ConvolutionShape:
        return ConvolutionShape.of(self.images, self.filters, dict(self.attrs), self.dtype)

    @property
    def takes(self) -> bool:
        """True if the images' gradient is computed window by window."""
        return not self._what.adds_taps

    @property
    def windows(self) -> int:
        """Rows of one image's flow."""
        return self._what.rows.count * self._what.columns.count

    def scratch(self) -> list[TensorSpec]:
        """One image's flow, the rotated filter, the frames of images and of flows."""
        what = self._what
        flow = TensorSpec((self.windows, what.outputs), what.dtype)
        turned = TensorSpec((what.taps, what.outputs, what.channels), what.dtype)
        return [flow, turned, what.band_spec(), what.reversed().band_spec()]

    def write(
        self,
        e: Emitter,
        make: Callable[[ir.Value, ir.Value], None],
        inputs: Sequence[Ref],
        outputs: Sequence[Ref],
        scratch: Sequence[Ref],
        sums: BandSums[Ref],
    ) -> None:
        """Emits both gradients. make(number, place): emits the flow of an image. inputs: images, filter;
        outputs: gradients of the filter and of the images. sums: of the latter.
        """
        what = self._what
        back = what.reversed()
        images, filters, to_filter, to_images = (e.address(ref) for ref in (*inputs, *outputs))
        flow, turned, frame, flow_frame = (e.address(ref) for ref in scratch)
        _turn(e, what, filters, turned)
        _clear(e, what, frame)
        _clear(e, back, flow_frame)
        product = contraction(e, what.filter_gradient())
        correlate = _correlation(e, back, sums.at([e.address(ref) for ref in sums.places]))
        with e.loop(what.batch) as i:
            make(i, flow)
            for source, band in _bands_of(e, what, _image(e, what, images, i, what.image_size), frame):
                part = _band_of_result(e, what, flow, band)
                e.builder.call(product, [source, part, to_filter, e.builder.or_(i, band)])
            for source, band in _bands_of(e, back, flow, flow_frame):
                correlate(source, turned, to_images, i, band)


def _turn(e: Emitter, what: ConvolutionShape, filters: ir.Value, turned: ir.Value) -> None:
    """[taps, channels, outputs] to [taps, outputs, channels]; taps reversed for a correlation."""
    size = what.channels * what.outputs
    with e.loop(what.taps) as tap:
        to = tap if what.adds_taps else e.builder.sub(index(what.taps - 1), tap)
        transpose(
            e,
            _image(e, what, turned, to, size),
            _image(e, what, filters, tap, size),
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
