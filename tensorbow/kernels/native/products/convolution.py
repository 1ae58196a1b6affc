"""Convolutions as contractions: walks through images, framed with zeros where windows exceed them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorbow.graph import Attrs
from tensorbow.kernels.native.products.contraction import NEAR, Contraction, divisors
from tensorbow.kernels.native.products.microkernel import Walk
from tensorbow.ops.sliding_windows import Axis, Windows
from tensorbow.specs import DType, TensorSpec

BAND_WINDOWS = 64  # fewest windows in a band: the filter's gradient is read and written once per band
TAP_COST = 6  # steps of the sum that equal reading and writing a tile of the images' gradient


@dataclass(frozen=True)
class ConvolutionShape:
    """One convolution. filters: [height, width, channels, outputs]; images: [batch, ..., channels].

    copied: images are always copied into a frame, as it changes their elements.
    """

    batch: int
    rows: Axis
    columns: Axis
    channels: int
    outputs: int
    dtype: DType
    copied: bool = False

    @classmethod
    def of(
        cls, images: Sequence[int], filters: Sequence[int], attrs: Attrs, dtype: DType
    ) -> ConvolutionShape:
        """The convolution of images and filters of these shapes."""
        windows = Windows.of(images, filters, attrs["strides"], attrs["padding"], attrs["dilations"])
        return cls(images[0], windows.rows, windows.columns, filters[2], filters[3], dtype)

    @property
    def is_framed(self) -> bool:
        """True if the image is copied into a frame, as where windows exceed it."""
        return self.copied or self.rows.is_padded or self.columns.is_padded

    @property
    def width(self) -> int:
        """Columns of the image, or of its frame."""
        columns = self.columns
        return max(columns.covered, columns.before + columns.extent) if self.is_framed else columns.extent

    @property
    def height(self) -> int:
        """Rows of a frame for the whole image."""
        return max(self.rows.covered, self.rows.before + self.rows.extent)

    @property
    def band(self) -> int:
        """Rows of windows that one frame holds: as many as keep it in the first-level cache, if that is worth
        copying the rows shared by two frames twice.
        """
        count, (down, _) = self.rows.count, self.steps(self.channels)
        if not self.is_framed:
            return count
        fitting = [
            n
            for n in divisors(count)
            if self.rows_of(n) * down * self.dtype.size <= NEAR
            and n * self.rows.stride >= self.rows.span
            and n * self.columns.count >= BAND_WINDOWS
        ]
        return max(fitting, default=count)

    def rows_of(self, windows: int) -> int:
        """Rows of a frame for that many rows of windows."""
        return (windows - 1) * self.rows.stride + self.rows.span

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return self.rows.window * self.columns.window

    @property
    def image_size(self) -> int:
        """Elements of one image."""
        return self.rows.extent * self.columns.extent * self.channels

    @property
    def result_size(self) -> int:
        """Elements of one image's result."""
        return self.rows.count * self.columns.count * self.outputs

    def band_spec(self) -> TensorSpec:
        """Spec of the frame of a band."""
        shape = (self.rows_of(self.band), self.width, self.channels) if self.is_framed else (0,)
        return TensorSpec(shape, self.dtype)

    def image_spec(self) -> TensorSpec:
        """Spec of a frame around the whole image."""
        return TensorSpec((self.height, self.width, self.channels) if self.is_framed else (0,), self.dtype)

    def steps(self, channels: int) -> tuple[int, int]:
        """Strides of rows and columns in the image or frame, in elements."""
        return self.width * channels, channels

    def reversed(self) -> ConvolutionShape:
        """The convolution with the rotated filter that gives the gradient of the images (stride 1)."""
        return ConvolutionShape(
            self.batch, self.rows.reversed(), self.columns.reversed(), self.outputs, self.channels, self.dtype
        )

    def forward(self) -> Contraction:
        """One band: rows are windows, the sum is over a window's elements."""
        (down, across), (rows, columns) = self.steps(self.channels), (self.rows, self.columns)
        step = self.channels * self.outputs
        return Contraction(
            self.dtype,
            (
                Walk(self.band, rows.stride * down, c=columns.count * self.outputs),
                Walk(columns.count, columns.stride * across, c=self.outputs),
            ),
            self.outputs,
            (
                Walk(rows.window, rows.rate * down, columns.window * step),
                Walk(columns.window, columns.rate * across, step),
                Walk(self.channels, 1, self.outputs),
            ),
        )

    def filter_gradient(self) -> Contraction:
        """One band: rows are elements of the filter, the sum is over windows."""
        (down, across), (rows, columns) = self.steps(self.channels), (self.rows, self.columns)
        step = self.channels * self.outputs
        return Contraction(
            self.dtype,
            (
                Walk(rows.window, rows.rate * down, c=columns.window * step),
                Walk(columns.window, columns.rate * across, c=step),
                Walk(self.channels, 1, c=self.outputs),
            ),
            self.outputs,
            (
                Walk(self.band, rows.stride * down, columns.count * self.outputs),
                Walk(columns.count, columns.stride * across, self.outputs),
            ),
        )

    def tap_by_tap(self) -> Contraction:
        """One image's gradient: rows are windows, the sum is over outputs, added at each tap."""
        (down, across), (rows, columns) = self.steps(self.channels), (self.rows, self.columns)
        step = self.channels * self.outputs
        return Contraction(
            self.dtype,
            (
                Walk(rows.count, columns.count * self.outputs, c=rows.stride * down),
                Walk(columns.count, self.outputs, c=columns.stride * across),
            ),
            self.channels,
            (Walk(self.outputs, 1, self.channels),),
            (
                Walk(rows.window, b=columns.window * step, c=rows.rate * down),
                Walk(columns.window, b=step, c=columns.rate * across),
            ),
        )

    @property
    def adds_taps(self) -> bool:
        """True if the images' gradient is cheaper tap by tap."""
        if self.rows.stride > 1 or self.columns.stride > 1:
            return True
        windows = self.rows.count * self.columns.count
        return windows * (1 + TAP_COST / self.outputs) < self.rows.extent * self.columns.extent
