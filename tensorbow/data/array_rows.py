"""Arrays in memory whose rows make batches: what devices can keep of a pipeline of `from_tensor_slices`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorbow.data.augmentation import BatchKey
from tensorbow.data.image_dataset import ImageDataset
from tensorbow.specs import Array, TensorSpec, as_dtype


class ArrayRows:
    """Arrays [rows, ...], of which a batch has some rows, as they are.

    It has what recipes and devices use of an `ImageDataset`: name, arrays, affine, batch_specs, made.
    """

    affine = None  # rows are copied
    augmentation = None

    def __init__(self, arrays: Sequence[Array]):
        self.arrays = tuple(arrays)
        self.name = f"of {len(arrays)} arrays of {len(arrays[0]):,} rows"

    def batch_specs(self, count: int) -> list[TensorSpec]:
        """Specs of the arrays of a batch of so many rows."""
        return [TensorSpec((count, *each.shape[1:]), as_dtype(each.dtype)) for each in self.arrays]

    def made(self, indices: NDArray[np.int64], key: BatchKey | None = None) -> tuple[NDArray[Any], ...]:
        """A batch, in new arrays."""
        return tuple(each[indices] for each in self.arrays)


KeptData = ImageDataset | ArrayRows
"""Data sets that devices can keep, to make batches of them."""
