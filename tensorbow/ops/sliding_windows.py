"""Sliding windows over height and width of NHWC images, for convolution and pooling.

The arithmetic is TensorFlow's: `VALID` takes the windows that lie on the image, `SAME` takes
ceil(extent / stride) windows and pads; an odd row or column of padding is at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs
from tensorbow.ops.broadcasting import INDEX
from tensorbow.ops.definition import require_dtype
from tensorbow.specs import Dims, TensorSpec, compatible

Extents4 = tuple[int, int, int, int]


@dataclass(frozen=True)
class Axis:
    """One spatial axis: window i covers the elements i * stride - before + rate * [0, window)."""

    extent: int  # of the image
    window: int
    stride: int
    count: int  # windows
    before: int  # elements of padding in front of the image
    rate: int = 1  # distance of a window's elements: the dilation

    @property
    def span(self) -> int:
        """Distance from a window's first element to its last, inclusive."""
        return span(self.window, self.rate)

    @property
    def covered(self) -> int:
        """Number of elements of the padded axis that the windows cover."""
        return (self.count - 1) * self.stride + self.span if self.count else 0

    @property
    def is_padded(self) -> bool:
        """True if a window exceeds the image."""
        return self.before > 0 or self.covered > self.extent

    @property
    def is_pointwise(self) -> bool:
        """True if the windows are the elements themselves."""
        return self.window == self.stride == 1 and not self.is_padded and self.count == self.extent

    def interior(self) -> tuple[slice, slice]:
        """The image's slice of the padded axis, and the covered slice of the image."""
        length = max(0, min(self.extent, self.covered - self.before))
        return slice(self.before, self.before + length), slice(0, length)

    def reach(self, element: int, start: int = 0, stop: int | None = None) -> tuple[slice, slice]:
        """Windows among [start, stop) whose element of that number is on the image, and its positions."""
        stop = self.count if stop is None else stop
        offset = element * self.rate
        first = max(start, -((offset - self.before) // self.stride))
        end = min(stop, (self.extent - 1 - offset + self.before) // self.stride + 1)
        if end <= first:
            return slice(0, 0), slice(0, 0)
        origin = first * self.stride + offset - self.before
        return slice(first, end), slice(origin, origin + (end - first - 1) * self.stride + 1, self.stride)

    def reversed(self) -> Axis:
        """Axis of the windows, over which the same window slides to give the image's gradient (stride 1)."""
        return Axis(self.count, self.window, 1, self.extent, self.span - 1 - self.before, self.rate)


@dataclass(frozen=True)
class Windows:
    """The windows over images of known extents."""

    rows: Axis
    columns: Axis

    @classmethod
    def of(
        cls,
        images: Sequence[int],
        window: Sequence[int],
        strides: Sequence[int],
        padding: str,
        dilations: Sequence[int] = (1, 1, 1, 1),
    ) -> Windows:
        """Windows [height, width] over images [batch, height, width, channels].

        Strides and dilations are [1, h, w, 1].
        """
        return cls(
            make_axis(images[1], window[0], strides[1], padding, dilations[1]),
            make_axis(images[2], window[1], strides[2], padding, dilations[2]),
        )

    @classmethod
    def of_pool(cls, images: Sequence[int], attrs: Attrs) -> Windows:
        """Windows over images [batch, height, width, channels] for pooling, whose padding is not counted.

        A window that covers the image at every position is reduced to the smallest that does, by as much in
        front as behind, since kernels loop over the elements of windows.
        """
        rows, columns = (
            max(1, min(window, 2 * extent + window % 2))
            for window, extent in zip(attrs["ksize"][1:3], images[1:3], strict=True)
        )
        return cls.of(images, (rows, columns), attrs["strides"], attrs["padding"])

    @property
    def overlap(self) -> bool:
        """True if windows share elements of the image."""
        return self.rows.stride < self.rows.span or self.columns.stride < self.columns.span

    def elements(self) -> Iterator[tuple[tuple[int, int], tuple[slice, ...], tuple[slice, ...]]]:
        """Elements of a window in row-major order: the position in the window, the windows that have the
        element on the image, and its pixels there. Elements outside the image in all windows are skipped.
        """
        for row in range(self.rows.window):
            windows, image_rows = self.rows.reach(row)
            for column in range(self.columns.window):
                across, image_columns = self.columns.reach(column)
                if windows.stop > windows.start and across.stop > across.start:
                    pixels = slice(None), image_rows, image_columns
                    yield (row, column), (slice(None), windows, across), pixels


def span(window: int, rate: int) -> int:
    """Number of elements from the first to the last of a window that takes every `rate`-th."""
    return (window - 1) * rate + 1


def make_axis(extent: int, window: int, stride: int, padding: str, rate: int = 1) -> Axis:
    """The windows along an axis of known extent.

    With only one window, a stride beyond the image is reduced to the image's extent: kernels multiply by it.
    """
    count = count_windows("window", extent, window, stride, padding, rate)
    if count is None:
        raise InvalidArgumentError("an axis needs a known extent")
    stride = min(stride, max(1, extent))
    if padding == "VALID":
        return Axis(extent, window, stride, count, 0, rate)
    missing = max(0, (count - 1) * stride + span(window, rate) - extent)
    return Axis(extent, window, stride, count, missing // 2, rate)


def count_windows(
    op: str, extent: int | None, window: int | None, stride: int, padding: str, rate: int = 1
) -> int | None:
    """The number of windows, or None if it is unknown.

    Raises InvalidArgumentError if a VALID window is larger than the image.
    """
    if extent is None:
        return None
    if padding == "SAME":
        return -(-extent // stride)
    if window is None:
        return None
    reach = span(window, rate)
    if reach > extent:
        dilated = f", {reach} with its dilation of {rate}," if rate > 1 else ""
        raise InvalidArgumentError(
            f"{op}: a window of {window}{dilated} does not fit an image extent of {extent}; "
            "use padding='SAME' or a smaller window"
        )
    return (extent - reach) // stride + 1


def spatial_pair(op: str, value: tuple[int, ...] | None, what: str, data_format: str | None) -> Extents4:
    """Strides, dilations or window extents in TensorFlow's forms: n, [h, w] or [1, h, w, 1]; None is 1.

    With data format NCHW the last form is [1, 1, h, w]. Returns `(1, h, w, 1)`. Raises
    InvalidArgumentError for anything else.
    """
    numbers = (1,) if value is None else value
    if data_format == "NCHW" and len(numbers) == 4:
        numbers = (numbers[0], numbers[2], numbers[3], numbers[1])
    if len(numbers) == 1:
        return 1, numbers[0], numbers[0], 1
    if len(numbers) == 2:
        return 1, numbers[0], numbers[1], 1
    if len(numbers) == 4 and numbers[0] == numbers[3] == 1:
        return 1, numbers[1], numbers[2], 1
    raise InvalidArgumentError(
        f"{op}: {what} {list(numbers)} must be an integer, [height, width] or [1, height, width, 1]: "
        "windows do not move over batch and channels"
    )


def pool_attrs(
    op: str, ksize: tuple[int, ...], strides: tuple[int, ...], padding: str, data_format: str | None
) -> dict[str, object]:
    """Attributes of the ops that pool. Raises InvalidArgumentError as `spatial_pair`."""
    return {
        "ksize": spatial_pair(op, ksize, "ksize", data_format),
        "strides": spatial_pair(op, strides, "strides", data_format),
        "padding": padding,
    }


def pooled_dims(op: str, images: Sequence[int | None], attrs: Attrs) -> Dims:
    """Dimensions of pooled images. Raises InvalidArgumentError as `count_windows`."""
    batch, height, width, channels = images
    _, rows, columns, _ = attrs["ksize"]
    _, down, across, _ = attrs["strides"]
    return (
        batch,
        count_windows(op, height, rows, down, attrs["padding"]),
        count_windows(op, width, columns, across, attrs["padding"]),
        channels,
    )


def image_dims(op: str, spec: TensorSpec, what: str) -> Sequence[int | None]:
    """The four dimensions of an image or filter tensor, None if unknown.

    Raises InvalidArgumentError if the rank is known and not 4.
    """
    dims: Dims = (None,) * 4 if spec.shape is None else spec.shape
    if len(dims) != 4:
        raise InvalidArgumentError(f"{op}: {what} is {spec}, expected rank 4")
    return dims


def sizes_of(op: str, vector: TensorSpec, what: str) -> Dims:
    """The four extents in a vector of sizes, None if its value is not known yet.

    Raises InvalidArgumentError unless it is an integer vector of 4 non-negative extents.
    """
    require_dtype(op, vector, INDEX, what)
    if not compatible(vector.shape, (4,)):
        raise InvalidArgumentError(f"{op}: {what} is {vector}, expected a vector of 4")
    if vector.value is None:
        return (None,) * 4
    sizes = tuple(int(size) for size in vector.value)
    if min(sizes) < 0:
        raise InvalidArgumentError(f"{op}: {what} is {list(sizes)}, expected 4 extents of at least 0")
    return sizes
