"""Windows of images as matrices ("im2col"), made piece by piece so that each piece stays in the cache.

A convolution is then one matrix product per piece, used by the reference kernels of `conv`.
All views are made when a kernel is bound; a step only copies and multiplies.
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

ROW_BYTES = 1 << 20  # bytes of a piece with one window per row: fits a core's second-level cache
COLUMN_BYTES = 1 << 17  # bytes of a piece with one window per column
OFFSET_BYTES = 1 << 18  # bytes of one element of each window, in `scatter`
FEW_CHANNELS = 4  # up to here one window per column is faster: it copies longer runs


@dataclass(frozen=True)
class Pieces:
    """Division of windows into pieces: whole images, or bands of window rows of one image."""

    batch: int
    rows: Axis
    columns: Axis
    images: int  # per piece, at most
    band: int  # window rows per piece, at most

    @classmethod
    def of(cls, batch: int, rows: Axis, columns: Axis, row_nbytes: int, limit_nbytes: int) -> Pieces:
        """Pieces of at most `limit_nbytes`; a row of windows takes `row_nbytes`."""
        fitting = max(1, limit_nbytes // max(1, row_nbytes))  # window rows per piece
        images = min(batch, max(1, fitting // max(1, rows.count)))
        return cls(batch, rows, columns, images, min(rows.count, fitting))

    @property
    def windows(self) -> int:
        """Maximum number of windows in a piece."""
        return self.images * self.band * self.columns.count

    @property
    def count(self) -> int:
        """Number of pieces."""
        return -(-self.batch // self.images) * -(-self.rows.count // self.band) if self.windows else 0

    def slices(self) -> Iterator[tuple[slice, slice]]:
        """Images and window rows of each piece; bands of one image follow each other."""
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
    """One piece: its windows as `matrix` [windows, height * width * channels], valid after `copies`."""

    images: slice
    band: slice
    copies: tuple[Copy, ...]
    matrix: Array


@dataclass(frozen=True)
class Unrolling:
    """Images [batch, height, width, channels] and their windows."""

    batch: int
    rows: Axis
    columns: Axis
    channels: int
    dtype: DType

    @property
    def is_pointwise(self) -> bool:
        """True if the images are the matrix already: windows of one element, one per element."""
        return self.rows.is_pointwise and self.columns.is_pointwise

    @property
    def is_padded(self) -> bool:
        """True if the images are first copied into a frame of zeros."""
        return self.rows.is_padded or self.columns.is_padded

    @property
    def depth(self) -> int:
        """Number of elements of a window."""
        return self.rows.window * self.columns.window * self.channels

    @property
    def has_window_rows(self) -> bool:
        """True if the matrix stores one window per row; otherwise one per column."""
        return self.channels > FEW_CHANNELS

    @property
    def pieces(self) -> Pieces:
        """Division of the windows into pieces."""
        if self.is_pointwise:
            return Pieces(self.batch, self.rows, self.columns, self.batch, self.rows.count)
        limit = ROW_BYTES if self.has_window_rows else COLUMN_BYTES
        row_nbytes = self.columns.count * self.depth * self.dtype.size
        return Pieces.of(self.batch, self.rows, self.columns, row_nbytes, limit)

    def scratch(self) -> list[TensorSpec]:
        """Scratch of `prepare`: the matrix of a piece, and its images framed with zeros."""
        if self.is_pointwise:
            return [TensorSpec((0,), self.dtype)] * 2
        framed = (self.pieces.images, self.rows.covered, self.columns.covered, self.channels)
        return [
            TensorSpec((self.pieces.windows * self.depth,), self.dtype),
            TensorSpec(framed if self.is_padded else (0, 0, 0, 0), self.dtype),
        ]

    def reversed(self, outputs: int) -> Unrolling:
        """Windows over the gradients of `outputs` channels that give the images' gradient (stride 1)."""
        return Unrolling(self.batch, self.rows.reversed(), self.columns.reversed(), outputs, self.dtype)

    @property
    def offset_pieces(self) -> Pieces:
        """Division of the windows into pieces for `scatter`."""
        row_nbytes = self.columns.count * self.channels * self.dtype.size
        return Pieces.of(self.batch, self.rows, self.columns, row_nbytes, OFFSET_BYTES)

    def scatter_scratch(self) -> list[TensorSpec]:
        """Scratch of `scatter`: one element of each window of a piece."""
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
    """Prepares output [batch, rows, columns, filters] = windows @ matrix [depth, filters]."""
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
    """Prepares adding gradient @ (a filter element's matrix) to the images at the element's positions."""
    plan: list[tuple[Array, Array, Array, Array, Array]] = []  # left, right, product, its part, destination
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
