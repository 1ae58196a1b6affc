"""Windows of images as matrices ("im2col"), made piece by piece so that a piece stays in the cache.

A convolution is then one matrix product per piece. The reference kernels of `conv` are made of this;
all views are made when a kernel is bound, a step only copies and multiplies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tensorbow.ops.array_views import Copy, as_matrix, packed
from tensorbow.ops.sliding_windows import Axis
from tensorbow.specs import Array, DType, TensorSpec

ROW_BYTES = 1 << 20  # of a piece with one window per row: fits a core's second-level cache
COLUMN_BYTES = 1 << 17  # of a piece with one window per column
OFFSET_BYTES = 1 << 18  # of one element of each window, in `scatter`
FEW_CHANNELS = 4  # up to here one window per column is faster: its copies are longer than the window's rows


@dataclass(frozen=True)
class Pieces:
    """How windows are cut into pieces: whole images, or bands of window rows of one image."""

    batch: int
    rows: Axis
    columns: Axis
    images: int  # per piece, at most
    band: int  # window rows per piece, at most

    @classmethod
    def of(cls, batch: int, rows: Axis, columns: Axis, row_nbytes: int, limit_nbytes: int) -> Pieces:
        """Pieces of at most `limit_nbytes` where a row of windows takes `row_nbytes`."""
        fitting = max(1, limit_nbytes // max(1, row_nbytes))  # rows of windows
        images = min(batch, max(1, fitting // max(1, rows.count)))
        return cls(batch, rows, columns, images, min(rows.count, fitting))

    @property
    def windows(self) -> int:
        """Windows of a piece, at most."""
        return self.images * self.band * self.columns.count

    @property
    def count(self) -> int:
        """How many pieces there are."""
        return -(-self.batch // self.images) * -(-self.rows.count // self.band) if self.windows else 0

    def slices(self) -> Iterator[tuple[slice, slice]]:
        """The images and window rows of each piece; images first, so that bands of one follow each other."""
        if not self.windows:
            return
        for image in range(0, self.batch, self.images):
            for row in range(0, self.rows.count, self.band):
                yield (
                    slice(image, min(image + self.images, self.batch)),
                    slice(row, min(row + self.band, self.rows.count)),
                )


@dataclass(frozen=True)
class Piece:
    """The windows of one piece as `matrix`, [windows, height * width * channels], once `copies` are done."""

    images: slice
    band: slice
    copies: tuple[Copy, ...]
    matrix: Array


@dataclass(frozen=True)
class Unrolling:
    """Images [batch, height, width, channels] and the windows that are taken of them."""

    batch: int
    rows: Axis
    columns: Axis
    channels: int
    dtype: DType

    @property
    def is_pointwise(self) -> bool:
        """Whether the images are the matrix: windows of one element, at each of them."""
        return self.rows.is_pointwise and self.columns.is_pointwise

    @property
    def is_padded(self) -> bool:
        """Whether the images are copied into a frame of zeros first."""
        return self.rows.is_padded or self.columns.is_padded

    @property
    def depth(self) -> int:
        """Elements of a window."""
        return self.rows.window * self.columns.window * self.channels

    @property
    def has_window_rows(self) -> bool:
        """Whether the matrix is stored with one window per row; else one per column."""
        return self.channels > FEW_CHANNELS

    @property
    def pieces(self) -> Pieces:
        """How the windows are cut into pieces."""
        if self.is_pointwise:
            return Pieces(self.batch, self.rows, self.columns, self.batch, self.rows.count)
        limit = ROW_BYTES if self.has_window_rows else COLUMN_BYTES
        row_nbytes = self.columns.count * self.depth * self.dtype.size
        return Pieces.of(self.batch, self.rows, self.columns, row_nbytes, limit)

    def scratch(self) -> list[TensorSpec]:
        """What `prepare` wants: the matrix of a piece, and its images framed with zeros."""
        if self.is_pointwise:
            return [TensorSpec((0,), self.dtype)] * 2
        framed = (self.pieces.images, self.rows.covered, self.columns.covered, self.channels)
        return [
            TensorSpec((self.pieces.windows * self.depth,), self.dtype),
            TensorSpec(framed if self.is_padded else (0, 0, 0, 0), self.dtype),
        ]

    def reversed(self, outputs: int) -> Unrolling:
        """The windows over gradients of `outputs` channels that give the images' gradient (stride 1)."""
        return Unrolling(self.batch, self.rows.reversed(), self.columns.reversed(), outputs, self.dtype)

    @property
    def offset_pieces(self) -> Pieces:
        """How `scatter` cuts the windows into pieces."""
        row_nbytes = self.columns.count * self.channels * self.dtype.size
        return Pieces.of(self.batch, self.rows, self.columns, row_nbytes, OFFSET_BYTES)

    def scatter_scratch(self) -> list[TensorSpec]:
        """What `scatter` wants: one element of each window of a piece."""
        return [TensorSpec((self.offset_pieces.windows * self.channels,), self.dtype)]

    def prepare(self, images: Array, scratch: Sequence[Array]) -> list[Piece]:
        """All pieces, over `images` of any strides. The frame (scratch[1]) must be zeroed in every step."""
        if self.is_pointwise:
            copies: list[Copy] = []
            matrix = as_matrix(packed(images, copies))
            return [Piece(i, b, tuple(copies), matrix) for i, b in self.pieces.slices()]
        return list(self._pieces(images, scratch[0], scratch[1]))

    def _pieces(self, images: Array, buffer: Array, frame: Array) -> Iterator[Piece]:
        (to_rows, from_rows), (to_columns, from_columns) = self.rows.interior(), self.columns.interior()
        for chosen, band in self.pieces.slices():
            source, copies = images[chosen], []
            if self.is_padded:
                framed = frame[: len(source)]
                if band.start == 0:
                    copies.append((framed[:, to_rows, to_columns], source[:, from_rows, from_columns]))
                source = framed
            windows = self._windows(source, band)
            if self.has_window_rows:
                target = buffer[: windows.size].reshape(windows.shape)
                matrix = target.reshape(math.prod(windows.shape[:3]), self.depth)
            else:
                windows = windows.transpose(3, 4, 5, 0, 1, 2)
                target = buffer[: windows.size].reshape(windows.shape)
                matrix = target.reshape(self.depth, math.prod(windows.shape[3:])).T
            copies.append((target, windows))
            yield Piece(chosen, band, tuple(copies), matrix)

    def _windows(self, images: Array, band: slice) -> Array:
        """A view [images, window rows, window columns, height, width, channels]."""
        batch, row, column, channel = images.strides
        extents = (len(images), band.stop - band.start, self.columns.count)
        return as_strided(
            images[:, band.start * self.rows.stride :],
            (*extents, self.rows.window, self.columns.window, self.channels),
            (
                batch,
                row * self.rows.stride,
                column * self.columns.stride,
                row * self.rows.rate,
                column * self.columns.rate,
                channel,
            ),
            writeable=False,
        )


def correlate(
    unrolling: Unrolling, images: Array, matrix: Array, output: Array, scratch: Sequence[Array]
) -> Callable[[], None]:
    """A function that sets output [batch, rows, columns, filters] = windows @ matrix [depth, filters]."""
    frame = scratch[1]
    plan = [
        (piece.copies, piece.matrix, as_matrix(output[piece.images, piece.band]))
        for piece in unrolling.prepare(images, scratch)
    ]

    def step() -> None:
        frame.fill(0)
        for copies, windows, result in plan:
            for to, source in copies:
                np.copyto(to, source)
            np.matmul(windows, matrix, out=result)

    return step


def scatter(
    unrolling: Unrolling, gradient: Array, filters: Array, result: Array, buffer: Array
) -> Callable[[], None]:
    """For each element of the filter, adds gradient @ (that element's matrix) where the element lay."""
    plan: list[tuple[Array, Array, Array, Array, Array]] = []  # left, right, product, its part, where it goes
    for images, band in unrolling.offset_pieces.slices():
        part = gradient[images, band]
        product = buffer[: math.prod(part.shape[:3]) * unrolling.channels].reshape(
            *part.shape[:3], unrolling.channels
        )
        for row in range(filters.shape[0]):
            windows, to_rows = unrolling.rows.reach(row, band.start, band.stop)
            for column in range(filters.shape[1]):
                across, to_columns = unrolling.columns.reach(column)
                inside = product[:, windows.start - band.start : windows.stop - band.start, across]
                target = result[images, to_rows, to_columns]
                if target.size:
                    plan.append((as_matrix(part), filters[row, column].T, as_matrix(product), inside, target))

    def step() -> None:
        result.fill(0)
        for left, right, product, inside, target in plan:
            np.matmul(left, right, out=product)
            np.add(target, inside, out=target)

    return step
