"""One split of a data set in memory: uint8 pictures and labels, from which it makes batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorbow.array_likes import as_array
from tensorbow.data.augmentation import Augmentation, BatchKey
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import (
    FUNCTION,
    Kind,
    Names,
    Number,
    Positive,
    PositiveNumber,
    RefusedError,
    Text,
    check_fields,
    checked,
    refuse,
)
from tensorbow.specs import Array, TensorSpec, float32, int64

_STATISTICS_CHUNK = 1 << 20  # pixels per histogram: keeps its int64 copy at 8 MiB


def _read_array(value: Any) -> Array:
    try:
        return as_array(value)
    except InvalidArgumentError as error:
        raise RefusedError(error) from None


AsArray: TypeAlias = Annotated[Any, Kind("an array", _read_array)]
AsAugmentation: TypeAlias = Annotated[Augmentation, Kind("a function of pictures and key", FUNCTION.read)]


@checked
def pixel_statistics(images: AsArray) -> tuple[float, float]:
    """Mean and standard deviation of the pixels of `images` (uint8, any shape), scaled to 0..1.

    Computed in exact integers, so equal on every machine. Raises InvalidArgumentError for no pixels.
    """
    if images.dtype != np.uint8 or images.size == 0:
        raise InvalidArgumentError(
            f"pixel_statistics: expected images to be uint8 pixels, at least one; "
            f"got {images.dtype} of shape {images.shape}"
        )
    flat = images.reshape(-1)
    histogram = np.zeros(256, np.int64)
    for begin in range(0, flat.size, _STATISTICS_CHUNK):
        histogram += np.bincount(flat[begin : begin + _STATISTICS_CHUNK], minlength=256)
    counts = [int(count) for count in histogram]
    total = sum(value * count for value, count in enumerate(counts))
    squares = sum(value * value * count for value, count in enumerate(counts))
    variance = (flat.size * squares - total * total) / (flat.size * flat.size)
    return total / (255 * flat.size), math.sqrt(variance) / 255


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """One split of a data set, in memory, read-only.

    images: uint8 [examples, height, width, channels]; labels: int64 [examples], each in 0..classes-1.
    mean, std: of the training split's pixels, scaled to 0..1; used for both splits. augmentation: changes
    training batches at random. class_names: by class, if they have names. The arrays are kept as
    read-only views, not copied.
    Raises InvalidArgumentError for shapes, dtypes or labels that do not fit together.
    """

    name: Text
    images: AsArray
    labels: AsArray
    classes: Positive
    mean: Number
    std: PositiveNumber
    augmentation: AsAugmentation | None = None
    class_names: Names = ()
    label_scale = None  # labels are classes
    numbers = None
    unit = "images"  # what a throughput counts

    def __post_init__(self) -> None:
        def refuse(expected: str, got: object) -> None:
            raise InvalidArgumentError(f"ImageDataset {self.name!r}: expected {expected}; got {got}")

        check_fields(self)
        images, labels = self.images, self.labels
        if images.dtype != np.uint8 or images.ndim != 4 or images.size == 0:
            refuse(
                "images uint8 [examples, height, width, channels], none of them zero",
                f"{images.dtype} {list(images.shape)}",
            )
        if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
            refuse(f"labels int64 [{images.shape[0]}]", f"{labels.dtype} {list(labels.shape)}")
        if labels.min() < 0 or labels.max() >= self.classes:
            refuse(f"labels in 0..{self.classes - 1}", f"{labels.min()}..{labels.max()}")
        for field, array in (("images", images), ("labels", labels)):
            view = array.view()
            view.flags.writeable = False
            object.__setattr__(self, field, view)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.image_shape))
        return (
            f"<tb.data.ImageDataset {self.name!r}: {len(self):,} pictures of {shape}, {self.classes} classes>"
        )

    def __len__(self) -> int:
        """Number of examples."""
        return int(self.images.shape[0])

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of one picture."""
        _, height, width, channels = self.images.shape
        return height, width, channels

    @property
    def scale(self) -> np.float32:
        """Factor of the normalisation x * scale - shift of a pixel x in 0..255: 1 / (255 std)."""
        scale: np.float32 = np.float32(1 / (255 * self.std))
        return scale

    @property
    def shift(self) -> np.float32:
        """Offset of the normalisation x * scale - shift: mean / std."""
        shift: np.float32 = np.float32(self.mean / self.std)
        return shift

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Images and labels."""
        return self.images, self.labels

    @property
    def affine(self) -> tuple[float, float]:
        """Scale and shift."""
        return float(self.scale), float(self.shift)

    def batch_specs(self, count: int) -> list[TensorSpec]:
        """Specs of the images and labels of a batch of so many examples."""
        return [TensorSpec((count, *self.image_shape), float32), TensorSpec((count,), int64)]

    @property
    def specs(self) -> tuple[TensorSpec, TensorSpec]:
        """Specs of normalised images float32 [None, height, width, channels], and labels int64 [None]."""
        return TensorSpec((None, *self.image_shape), float32), TensorSpec((None,), int64)

    def prepared(self, inputs: Any) -> Any:
        """Inputs of the model from images: the images, which are normalised already."""
        return inputs

    def with_pixels(self) -> ImageDataset:
        """The same pictures, of which batches are pixels from 0 to 255, as float32, and not normalised."""
        return replace(self, mean=0.0, std=1 / 255)

    def take(self, rows: NDArray[np.int64], name: str) -> ImageDataset:
        """A data set of some of the examples, in this order, with the same statistics and augmentation."""
        return replace(self, name=name, images=self.images[rows], labels=self.labels[rows])

    def with_labels(self, labels: NDArray[np.int64], class_names: Sequence[str]) -> ImageDataset:
        """The same pictures with other labels, whose classes have these names."""
        return replace(self, labels=labels, classes=len(class_names), class_names=tuple(class_names))

    def facts(self) -> dict[str, Any]:
        """Facts by which a resumed run knows its data: number of examples, mean and standard deviation."""
        return {"examples": len(self), "mean": self.mean, "std": self.std}

    def about(self) -> dict[str, Any]:
        """Facts that a trained model must know to compute with other pictures, as JSON values."""
        return {
            "classes": self.classes,
            "image_shape": list(self.image_shape),
            "mean": self.mean,
            "std": self.std,
            **({"class_names": list(self.class_names)} if self.class_names else {}),
        }

    def scratch(self, count: int) -> NDArray[np.uint8]:
        """Memory for `write` of so many examples."""
        return np.empty((count, *self.image_shape), np.uint8)

    def write(
        self, indices: NDArray[np.int64], slot: Sequence[Array], scratch: Any, key: BatchKey | None
    ) -> None:
        """Writes examples into a slot (images, labels), see `fill`."""
        images, labels = slot
        self.fill(indices, images, labels, scratch, key)

    def made(
        self, indices: NDArray[np.int64], key: BatchKey | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """A batch, augmented by `key` if given, in new arrays; see `fill`."""
        images = np.empty((indices.size, *self.image_shape), np.float32)
        labels = np.empty(indices.size, np.int64)
        self.fill(indices, images, labels, key=key)
        return images, labels

    @checked
    def batch(self, indices: AsArray | None = None) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Examples `indices` (int64 [n]; None: all) as new arrays: float32 [n, height, width, channels]
        normalised as by `fill`, and int64 [n].
        """
        rows = np.arange(len(self)) if indices is None else indices
        images = np.empty((rows.size, *self.image_shape), np.float32)
        labels = np.empty(rows.size, np.int64)
        self.fill(rows, images, labels)
        return images, labels

    def fill(
        self,
        indices: NDArray[np.int64],
        images_out: NDArray[np.float32],
        labels_out: NDArray[np.int64],
        scratch: NDArray[np.uint8] | None = None,
        key: BatchKey | None = None,
    ) -> None:
        """Writes the examples `indices` (int64 [n]) into the caller's arrays, in place.

        images_out: float32 [n, height, width, channels], set to (x/255 - mean)/std, computed in float32 as
        x * 1/(255 std) - mean/std. labels_out: int64 [n]. scratch: uint8 of images_out's shape, allocated if
        not given. key: augments the pictures, if the data set has an augmentation. Thread-safe if each
        thread has its own arrays. Raises InvalidArgumentError, before anything is written, for a wrong shape
        or dtype or an index out of range.
        """
        rows = self._checked_rows(indices, images_out, labels_out, scratch)
        if rows.size == 0:
            return
        if scratch is None:
            scratch = np.empty(images_out.shape, np.uint8)
        # mode="clip" writes straight into `out`; "raise" would go through a copy. The range is checked above.
        np.take(self.images, rows, axis=0, out=scratch, mode="clip")
        if key is not None and self.augmentation is not None:
            self.augmentation(scratch, key)
        np.multiply(scratch, self.scale, out=images_out, dtype=np.float32)
        np.subtract(images_out, self.shift, out=images_out)
        np.take(self.labels, rows, out=labels_out, mode="clip")

    def _checked_rows(
        self,
        indices: NDArray[np.int64],
        images_out: NDArray[np.float32],
        labels_out: NDArray[np.int64],
        scratch: NDArray[np.uint8] | None,
    ) -> NDArray[np.intp]:
        for label, array in (("indices", indices), ("images_out", images_out), ("labels_out", labels_out)):
            if not isinstance(array, np.ndarray):
                raise refuse("fill", label, "a NumPy array", array)
        if scratch is not None and not isinstance(scratch, np.ndarray):
            raise refuse("fill", "scratch", "a NumPy array", scratch)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise InvalidArgumentError(
                f"fill from {self.name!r}: indices must be int64 [n]; "
                f"got {indices.dtype} {list(indices.shape)}"
            )
        shape = (indices.size, *self.image_shape)
        wanted: list[tuple[str, NDArray[Any], type[Any], tuple[int, ...]]] = [
            ("images_out", images_out, np.float32, shape),
            ("labels_out", labels_out, np.int64, shape[:1]),
        ]
        if scratch is not None:
            wanted.append(("scratch", scratch, np.uint8, shape))
        for name, array, dtype, expected in wanted:
            if array.dtype != dtype or array.shape != expected or not array.flags.writeable:
                raise InvalidArgumentError(
                    f"fill from {self.name!r}: {name} must be writeable {np.dtype(dtype)} {list(expected)}; "
                    f"got {'' if array.flags.writeable else 'read-only '}{array.dtype} {list(array.shape)}"
                )
        if indices.size and (indices.min() < 0 or indices.max() >= len(self)):
            raise InvalidArgumentError(
                f"fill from {self.name!r}: indices must be in 0..{len(self) - 1}; "
                f"got {indices.min()}..{indices.max()}"
            )
        return indices.astype(np.intp, copy=False)
