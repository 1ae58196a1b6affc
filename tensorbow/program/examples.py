"""A data set kept in a device's memory, and the batches that the device makes of it by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorbow.devices import StreamGroup

PICK = np.dtype([("row", "<i8"), ("down", "<i4"), ("right", "<i4"), ("mirrored", "<i4"), ("reserved", "<i4")])
"""One example of a batch: which it is, how far its picture is moved, in pixels, and whether it is mirrored
before that (0 or 1). Where it is moved away from lie zeros.
"""

MakeBatch = Callable[[NDArray[Any]], None]
"""Takes the picks of a batch, `PICK` [batch_size], and enqueues its making; they may change afterwards."""


@dataclass(frozen=True, eq=False)
class ExampleArrays:
    """All examples: images uint8 [examples, height, width, channels] and labels int64 [examples].

    A pixel x is in the batch as x * scale - shift, both steps rounded to float32.
    """

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    scale: np.float32
    shift: np.float32

    @property
    def blocks(self) -> tuple[int, int]:
        """Bytes of each allocation that keeps them."""
        return self.images.nbytes, self.labels.nbytes


class KeptExamples(ABC):
    """Examples in one device's memory, in a partition of their own."""

    @abstractmethod
    def batches(self, group: StreamGroup, batch_size: int, images: int, labels: int) -> MakeBatch:
        """Prepares the making of batches on a group's compute stream, to be called from its work.

        images, labels: addresses of float32 [batch_size, height, width, channels] and int64 [batch_size].
        """

    @abstractmethod
    def close(self) -> None:
        """Gives the memory back, when no batch is being made any more; idempotent."""
