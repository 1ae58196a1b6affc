"""Convolutions and matrix products of bytes, summed in quads (`quads`), and the conversion of their sums.

Images are read as they are: a run of neighbouring bytes in a window is a row of quads, whatever the number of
channels. The last quad of a run may have bytes of the next pixels, whose weights are 0; then images are
copied into a frame that ends later, as they are where windows exceed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llvmlite import ir

from tensorbow.graph import Attrs
from tensorbow.kernels.native.codegen.emitter import Emitter, constant, index
from tensorbow.kernels.native.codegen.strips import Elements, blocks, strips, vector_of
from tensorbow.kernels.native.products.contraction import NEAR, Contraction, contraction, divisors
from tensorbow.kernels.native.products.convolution import ConvolutionShape
from tensorbow.kernels.native.products.microkernel import Walk
from tensorbow.kernels.native.products.quads import BYTE, WORD
from tensorbow.ops.quantized_products import WORD as QUAD
from tensorbow.ops.quantized_products import runs_of
from tensorbow.specs import DType, TensorSpec, float32, int32, uint8

SUMS_NBYTES = 64 << 10  # bytes of sums that are converted at a time, while they are in a near cache
SLACK = QUAD - 1  # bytes that the last quad of a frame may reach beyond it


@dataclass(frozen=True)
class QuadConvolution:
    """One convolution of bytes. length: bytes of a run; padding: value around images; dtype: the result's."""

    what: ConvolutionShape
    runs: int
    length: int
    padding: int
    zero_point: int
    dtype: DType

    @classmethod
    def of(cls, images: Sequence[int], window: Sequence[int], outputs: int, attrs: Attrs) -> QuadConvolution:
        """The convolution of `QuantizedConv2D` for images and a window [height, width, in]."""
        what = ConvolutionShape.of(images, (*window, outputs), attrs, uint8)
        runs, length = runs_of(window, attrs["dilations"])
        if length % QUAD:
            what = ConvolutionShape(
                what.batch, what.rows, what.columns, what.channels, outputs, uint8, copied=True
            )
        return cls(what, runs, length, attrs["padding_value"], attrs["zero_point"], attrs["dtype"])

    @property
    def words(self) -> int:
        """Quads of a run."""
        return -(-self.length // QUAD)

    @property
    def band(self) -> int:
        """Rows of windows that are summed and converted at a time.

        Where the weights exceed a near cache, sums may be as large as they are: they are read once per band.
        """
        what = self.what
        most = max(SUMS_NBYTES, self.runs * self.words * what.outputs * QUAD)
        fitting = [
            n
            for n in divisors(what.rows.count)
            if n * what.columns.count * what.outputs * QUAD <= most
            and (not what.is_framed or self.frame_nbytes(n) <= max(NEAR, most // 4))
        ]
        return max(fitting, default=1)

    def frame_nbytes(self, band: int) -> int:
        """Bytes of the frame of a band, without the slack."""
        return self.what.rows_of(band) * self.what.width * self.what.channels

    def scratch(self) -> list[TensorSpec]:
        """The sums of a band, and its frame."""
        what = self.what
        framed = self.frame_nbytes(self.band) + SLACK if what.is_framed else 0
        return [
            TensorSpec((self.band * what.columns.count, what.outputs), int32),
            TensorSpec((framed,), uint8),
        ]

    def product(self) -> Contraction:
        """The sums of a band; strides in images count bytes."""
        what, (down, across) = self.what, self.what.steps(self.what.channels)
        rows, columns = what.rows, what.columns
        step = self.words * what.outputs
        taps = (
            (Walk(rows.window, rows.rate * down, step),)
            if self.runs == rows.window
            else (
                Walk(rows.window, rows.rate * down, columns.window * step),
                Walk(columns.window, columns.rate * across, step),
            )
        )
        return Contraction(
            int32,
            (
                Walk(self.band, rows.stride * down, c=columns.count * what.outputs),
                Walk(columns.count, columns.stride * across, c=what.outputs),
            ),
            what.outputs,
            (*taps, Walk(self.words, QUAD, what.outputs)),
            quads=True,
        )

    def write(self, e: Emitter, pointers: Sequence[ir.Value]) -> None:
        """Emits the convolution. pointers: to images, words, bias, multiplier, result, sums, a frame."""
        images, words, bias, multiplier, result, sums, frame = pointers
        what, product = self.what, contraction(e, self.product())
        windows = self.band * what.columns.count
        for source, i, band in self._bands(e, images, frame):
            e.builder.call(product, [source, words, sums, index(0)])
            first = e.builder.add(
                e.builder.mul(i, index(what.result_size)),
                e.builder.mul(band, index(windows * what.outputs)),
            )
            self._finish(
                e, Elements(e, sums, int32), (bias, multiplier), Elements(e, result, self.dtype), first
            )

    def _bands(
        self, e: Emitter, images: ir.Value, frame: ir.Value
    ) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
        """Loops over images and bands: bytes under the band, number of the image, of the band."""
        what, builder = self.what, e.builder
        down, _ = what.steps(what.channels)
        if what.is_framed:
            _fill(e, frame, self.frame_nbytes(self.band) + SLACK, self.padding)
        with e.loop(what.batch) as i:
            image = e.offset(images, BYTE, builder.mul(i, index(what.image_size)))
            with e.loop(what.rows.count // self.band) as band:
                start = builder.mul(band, index(self.band * what.rows.stride))
                if what.is_framed:
                    self._fill_frame(e, frame, image, builder.sub(start, index(what.rows.before)))
                    yield frame, i, band
                else:
                    yield e.offset(image, BYTE, builder.mul(start, index(down))), i, band

    def _fill_frame(self, e: Emitter, frame: ir.Value, image: ir.Value, first: ir.Value) -> None:
        """Copies the rows of an image from `first` on, which a band's windows reach; padding outside."""
        what, builder = self.what, e.builder
        down, across = what.steps(what.channels)
        size = what.columns.extent * what.channels
        with e.loop(what.rows_of(self.band)) as n:
            row = builder.add(first, n)
            to = e.offset(frame, BYTE, builder.mul(n, index(down)))
            to = e.offset(to, BYTE, what.columns.before * across)
            inside = builder.icmp_unsigned("<", row, index(what.rows.extent))
            with builder.if_else(inside) as (on_image, beyond):
                with on_image:
                    _copy(e, to, e.offset(image, BYTE, builder.mul(row, index(size))), size)
                with beyond:
                    _fill(e, to, size, self.padding)

    def _finish(
        self,
        e: Emitter,
        sums: Elements,
        of_channels: tuple[ir.Value, ir.Value],
        result: Elements,
        first: ir.Value,
    ) -> None:
        """Converts the sums of a band; `first`: position of its result."""
        what, builder = self.what, e.builder
        bias, multiplier = Elements(e, of_channels[0], int32), Elements(e, of_channels[1], float32)

        def columns(start: ir.Value, widths: Sequence[int]) -> None:
            places = [builder.add(start, index(sum(widths[:n]))) for n in range(len(widths))]
            shifts = [bias.load(at, width) for at, width in zip(places, widths, strict=True)]
            factors = [multiplier.load(at, width) for at, width in zip(places, widths, strict=True)]
            with e.loop(self.band * what.columns.count) as row:
                begin = builder.mul(row, index(what.outputs))
                for at, width, shift, factor in zip(places, widths, shifts, factors, strict=True):
                    here = builder.add(begin, at)
                    total = builder.add(sums.load(here, width), shift)
                    result.store(self._converted(e, total, factor, width), builder.add(first, here))

        blocks(e, what.outputs, e.target.lanes(QUAD), columns)

    def _converted(self, e: Emitter, total: ir.Value, factor: ir.Value, width: int) -> ir.Value:
        """Sums int32 as elements of the result."""
        if self.dtype == int32:
            return total
        builder, kind = e.builder, factor.type
        value = builder.fmul(builder.sitofp(total, kind), factor)
        if self.dtype == float32:
            return value
        value = builder.fadd(e.intrinsic("rint", kind, value), constant(kind, float(self.zero_point)))
        low, high = constant(kind, 0.0), constant(kind, 255.0)
        value = builder.select(builder.fcmp_ordered(">", value, low), value, low)  # NaN is the least
        value = builder.select(builder.fcmp_ordered("<", value, high), value, high)
        return builder.trunc(builder.fptosi(value, vector_of(WORD, width)), vector_of(BYTE, width))


def _copy(e: Emitter, to: ir.Value, source: ir.Value, count: int) -> None:
    """Copies bytes."""
    target, read = Elements(e, to, uint8), Elements(e, source, uint8)
    strips(e, count, e.target.lanes(1), lambda at, width: target.store(read.load(at, width), at))


def _fill(e: Emitter, to: ir.Value, count: int, value: int) -> None:
    """Writes a byte `count` times."""
    target = Elements(e, to, uint8)
    strips(
        e,
        count,
        e.target.lanes(1),
        lambda at, width: target.store(constant(vector_of(BYTE, width), value), at),
    )
