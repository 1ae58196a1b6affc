"""Passes of a convolution whose operands are rounded to bfloat16 and multiplied in pairs (`bfloat16`).

The frame into which images are copied holds pairs. They are neighbours along the sum: of channels in the
forward pass, or of columns of the window if the number of channels is odd; of windows in the gradient of the
filter, so that the frame has a pair for every pixel: with the pixel of the next window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter, index
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.contraction import Contraction, contraction
from tensorbow.kernels.native.products.convolution import ConvolutionShape
from tensorbow.kernels.native.products.convolution_passes import (
    Pointers,
    band_of_result,
    copy_image,
    image_at,
    turn_filter,
)
from tensorbow.kernels.native.products.matrix_tiles import TiledContraction
from tensorbow.kernels.native.products.microkernel import Walk
from tensorbow.kernels.native.products.packing import fill_zero, transpose
from tensorbow.kernels.native.products.pair_packing import (
    element_at,
    pack_both,
    pack_columns,
    pack_row,
    pack_rows,
    pairs_of,
)
from tensorbow.specs import TensorSpec, float32

LEAST_CHANNELS = 8  # rows of a tile for which transposing the images pays


@dataclass(frozen=True)
class PairFrame:
    """A frame of pairs around the images of a convolution.

    words: the convolution with extents and strides in pairs. shift: pixels between the halves of a pair; 0
    for neighbouring channels.
    """

    what: ConvolutionShape
    words: ConvolutionShape
    shift: int

    @classmethod
    def forward(cls, what: ConvolutionShape) -> PairFrame:
        """The frame for the forward pass."""
        if what.channels % 2 == 0:
            return cls(what, replace(what, channels=what.channels // 2, copied=True), 0)
        columns = what.columns
        halved = replace(columns, window=pairs_of(columns.window), rate=2 * columns.rate)
        return cls(what, replace(what, columns=halved, copied=True), columns.rate)

    @classmethod
    def filter_gradient(cls, what: ConvolutionShape) -> PairFrame:
        """The frame for the gradient of the filter."""
        columns = what.columns
        halved = replace(columns, count=pairs_of(columns.count), stride=2 * columns.stride)
        return cls(what, replace(what, columns=halved, copied=True), columns.stride)

    def filter_spec(self) -> TensorSpec:
        """Spec of the packed filter of a forward pass."""
        words = self.words
        return TensorSpec((words.taps * words.channels * words.outputs,), float32)

    def pack_filter(self, e: Emitter, to: ir.Value, filters: ir.Value) -> None:
        """Packs the filter [height, width, channels, outputs] of a forward pass."""
        what, words = self.what, self.words
        if not self.shift:
            pack_columns(e, to, filters, what.taps * what.channels, what.outputs)
            return
        size = what.channels * what.outputs
        with e.loop(what.rows.window) as i:
            row = element_at(e, to, i, words.columns.window * size)
            pack_columns(
                e, row, element_at(e, filters, i, what.columns.window * size), what.columns.window, size
            )

    def bands(self, e: Emitter, images: ir.Value, frame: ir.Value) -> Iterator[tuple[ir.Value, ir.Value]]:
        """Loops over images and bands, with the frame filled: number of the image, of the band."""
        what, words = self.what, self.words
        down, _ = words.steps(words.channels)
        fill_zero(e, frame, math.prod(words.band_spec().extents), float32)
        with e.loop(what.batch) as i:
            image = image_at(e, what, images, i, what.image_size)
            with e.loop(words.rows.count // words.band) as band:
                first = e.builder.mul(band, index(words.band * what.rows.stride))
                first = e.builder.sub(first, index(what.rows.before))
                with e.loop(words.rows_of(words.band)) as n:
                    row, to = e.builder.add(first, n), element_at(e, frame, n, down)
                    inside = e.builder.icmp_unsigned("<", row, index(what.rows.extent))
                    with e.builder.if_else(inside) as (on_image, beyond):
                        with on_image:
                            size = what.columns.extent * what.channels
                            self._pack_row(e, to, element_at(e, image, row, size))
                        with beyond:
                            fill_zero(e, to, down, float32)
                yield i, band

    def _pack_row(self, e: Emitter, to: ir.Value, source: ir.Value) -> None:
        """Packs a row of an image into a row of the frame."""
        what, words, shift = self.what, self.words, self.shift
        extent, before, channels = what.columns.extent, what.columns.before, what.channels
        if not shift:
            pack_row(e, element_at(e, to, before * words.channels), source, extent * channels)
            return
        end = words.width - before  # of the pixels, those of the frame in front of the image are negative
        for start, stop, halves in (
            (max(-shift, -before), min(0, extent - shift), (False, True)),
            (0, extent - shift, (True, True)),
            (max(0, extent - shift), extent, (True, False)),
        ):
            count = min(stop, end) - start
            if count > 0:
                first, second = (
                    element_at(e, source, (start + distance) * channels) if has else None
                    for has, distance in zip(halves, (0, shift), strict=True)
                )
                there = element_at(e, to, (before + start) * channels)
                pack_both(e, there, first, second, count * channels)


@dataclass(frozen=True)
class PairPlanes:
    """The frame for the gradient of the filter, [rows, columns, channels], with channels in front.

    Pairs that follow each other along the sum become neighbours, as matrix registers need them: the columns
    are divided into phases, [phases, channels, rows, columns of a phase].
    """

    frame: PairFrame

    @property
    def phases(self) -> int:
        """Columns of the frame from one pair of windows to the next."""
        return self.frame.words.columns.stride

    @property
    def row(self) -> int:
        """Pairs in a row of a phase."""
        return -(-self.frame.words.width // self.phases)

    @property
    def plane(self) -> int:
        """Pairs of a channel in a phase."""
        return self.frame.words.rows_of(self.frame.words.band) * self.row

    @property
    def size(self) -> int:
        """Pairs in all."""
        return self.phases * self.frame.what.channels * self.plane

    def product(self) -> Contraction:
        """The gradient of a column of the window, of a band."""
        words = self.frame.words
        columns, rows, size = words.columns, words.rows, words.channels * words.outputs
        return Contraction(
            words.dtype,
            (
                Walk(rows.window, rows.rate * self.row, c=columns.window * size),
                Walk(words.channels, self.plane, c=words.outputs),
            ),
            words.outputs,
            (
                Walk(words.band, rows.stride * self.row, columns.count * words.outputs),
                Walk(columns.count, 1, words.outputs),
            ),
            pairs=True,
        )

    def begin(self, column: int) -> int:
        """Position of the first pair for a column of the window."""
        across, phase = divmod(column * self.frame.words.columns.rate, self.phases)
        return phase * self.frame.what.channels * self.plane + across

    def fill(self, e: Emitter, to: ir.Value, frame: ir.Value) -> None:
        """Fills the planes from the frame."""
        words, channels = self.frame.words, self.frame.words.channels
        with e.loop(words.rows_of(words.band)) as i:
            row, there = element_at(e, frame, i, words.width * channels), element_at(e, to, i, self.row)
            for phase in range(min(self.phases, words.width)):
                count = -(-(words.width - phase) // self.phases)
                steps = self.plane, self.phases * channels
                source = element_at(e, row, phase * channels)
                plane = element_at(e, there, phase * channels * self.plane)
                transpose(e, plane, source, count, channels, words.dtype, steps)


def planes_of(what: ConvolutionShape, target: Target) -> PairPlanes | None:
    """The planes for matrix registers; None where the processor has none, or tiles would be small."""
    planes = PairPlanes(PairFrame.filter_gradient(what))
    product = planes.product()
    fits = target.tiles and what.channels >= LEAST_CHANNELS
    return planes if fits and TiledContraction.of(product) is not None else None


def _pairs(what: Contraction) -> Contraction:
    return replace(what, pairs=True)


def convolve(e: Emitter, what: ConvolutionShape, pointers: Pointers) -> None:
    """Emits the forward pass. pointers: to images, filter, result, the packed filter, a frame."""
    images, filters, result, packed, frame = pointers
    pairs = PairFrame.forward(what)
    pairs.pack_filter(e, packed, filters)
    product = contraction(e, _pairs(pairs.words.forward()))
    for i, band in pairs.bands(e, images, frame):
        made = band_of_result(e, pairs.words, image_at(e, what, result, i, what.result_size), band)
        e.builder.call(product, [frame, packed, made, index(0)])


def convolve_scratch(what: ConvolutionShape) -> list[TensorSpec]:
    """Scratch of `convolve`."""
    pairs = PairFrame.forward(what)
    return [pairs.filter_spec(), pairs.words.band_spec()]


def backprop_filter(e: Emitter, what: ConvolutionShape, pointers: Pointers) -> None:
    """Emits the filter's gradient.

    pointers: to images, flow, the gradient, a frame, the packed flow, and planes if there are any.
    """
    images, gradient, result, frame, packed, *others = pointers
    pairs, planes = PairFrame.filter_gradient(what), planes_of(what, e.target)
    words, count, outputs = pairs.words, what.columns.count, what.outputs
    product = contraction(e, _pairs(words.filter_gradient()) if planes is None else planes.product())
    for i, band in pairs.bands(e, images, frame):
        flow = image_at(e, what, gradient, i, what.result_size)
        flow = element_at(e, flow, band, words.band * count * outputs)
        if count % 2 == 0:
            pack_columns(e, packed, flow, words.band * count, outputs)
        else:
            with e.loop(words.band) as row:
                to = element_at(e, packed, row, words.columns.count * outputs)
                pack_columns(e, to, element_at(e, flow, row, count * outputs), count, outputs)
        adds = e.builder.or_(i, band)
        if planes is None:
            e.builder.call(product, [frame, packed, result, adds])
            continue
        planes.fill(e, others[0], frame)
        for column in range(what.columns.window):
            there = element_at(e, result, column * what.channels * outputs)
            e.builder.call(product, [element_at(e, others[0], planes.begin(column)), packed, there, adds])


def backprop_filter_scratch(what: ConvolutionShape, target: Target) -> list[TensorSpec]:
    """Scratch of `backprop_filter`."""
    words, planes = PairFrame.filter_gradient(what).words, planes_of(what, target)
    flow = TensorSpec((words.band, words.columns.count, words.outputs), float32)
    others = [] if planes is None else [TensorSpec((planes.size,), float32)]
    return [words.band_spec(), flow, *others]


def backprop_input(e: Emitter, what: ConvolutionShape, pointers: Pointers) -> None:
    """Emits the images' gradient.

    pointers: to filter, flow, gradient of the images, the transposed filter, the same packed, and a frame: of
    the flow, or tap by tap the packed flow and a frame of the gradient.
    """
    filters, gradient, result, turned, packed, *frames = pointers
    turn_filter(e, what, filters, turned)
    if not what.adds_taps:
        convolve(e, what.reversed(), (gradient, turned, result, packed, *frames))
        return
    words = replace(what, outputs=pairs_of(what.outputs))
    size = what.outputs * what.channels, words.outputs * what.channels
    with e.loop(what.taps) as tap:
        to, source = element_at(e, packed, tap, size[1]), element_at(e, turned, tap, size[0])
        pack_columns(e, to, source, what.outputs, what.channels)
    product = contraction(e, _pairs(words.tap_by_tap()))
    flow, frame = frames
    with e.loop(what.batch) as i:
        image = image_at(e, what, result, i, what.image_size)
        target = frame if what.is_framed else image
        height = what.height if what.is_framed else what.rows.extent
        fill_zero(e, target, height * what.width * what.channels, what.dtype)
        windows = what.rows.count * what.columns.count
        pack_rows(e, flow, image_at(e, what, gradient, i, what.result_size), windows, what.outputs)
        e.builder.call(product, [flow, packed, target, index(1)])
        if what.is_framed:
            copy_image(e, what, image, frame)


def backprop_input_scratch(what: ConvolutionShape) -> list[TensorSpec]:
    """Scratch of `backprop_input`."""
    turned = TensorSpec((what.taps, what.outputs, what.channels), float32)
    if not what.adds_taps:
        return [turned, *convolve_scratch(what.reversed())]
    outputs = pairs_of(what.outputs)
    packed = TensorSpec((what.taps, outputs, what.channels), float32)
    flow = TensorSpec((what.rows.count, what.columns.count, outputs), float32)
    return [turned, packed, flow, what.image_spec()]
