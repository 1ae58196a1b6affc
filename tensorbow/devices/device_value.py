"""An array in a device's memory, which a dynamic step keeps there from one of its regions to the next."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorbow.devices.device import Device
from tensorbow.devices.stream import Access


class DeviceValue:
    """An array, in C order, in a block of a device's memory that is free once nothing refers to the value.

    Written once, by the work that computes it; whoever reads it holds a reference until that has ended.
    """

    __slots__ = ("__weakref__", "_host", "address", "device", "dtype", "nbytes", "shape")

    def __init__(
        self,
        device: Device,
        address: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        release: Callable[[], None],
    ) -> None:
        """release: called when the value is garbage, in any thread, so it must take no lock."""
        self.device, self.address, self.shape = device, address, shape
        self.dtype = np.dtype(dtype)
        self.nbytes = math.prod(shape) * self.dtype.itemsize
        self._host: npt.NDArray[Any] | None = None
        weakref.finalize(self, release).atexit = False

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def access(self) -> Access:
        """Its memory, for the race checker."""
        return Access(self.address, self.nbytes, str(self.device.name))

    def host(self) -> npt.NDArray[Any]:
        """The array in host memory, where it is copied once; not to be written."""
        if self._host is None:
            self._host = self.device.read(self.address, self.shape, self.dtype)
        return self._host

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        array = self.host().astype(self.dtype if dtype is None else dtype, copy=False)
        return array.copy() if copy else array

    def __repr__(self) -> str:
        return f"<DeviceValue {self.dtype.name}{list(self.shape)} on {self.device.name.short}>"
