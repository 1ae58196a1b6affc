"""What a GPU kernel is given: places in device memory, and a context to prepare launches with.

A GPU kernel is a `Kernel(prepare=...)` registered under `gpu`. Its `prepare(call)` runs once, when a plan is
bound; what it returns is called to enqueue the work on the stream, while the segment is captured or each time
anew. It must do nothing but enqueue, always the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tensorbow.graph import Attrs, Kernel, KernelCall, NodeSpec, OpDef
from tensorbow.ops.definition import register_kernel
from tensorbow.specs import TensorSpec

if TYPE_CHECKING:
    from tensorbow.kernels.gpu.runtime.context import GpuContext

Enqueue = Callable[[], None]


@dataclass(frozen=True)
class DeviceArray:
    """A contiguous array in device memory, in row-major order. The host cannot read it."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    def reshape(self, *shape: int) -> DeviceArray:
        """The same memory under another shape of as many elements."""
        return DeviceArray(self.address, shape, self.dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For CuPy and others: the array without a copy."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None,
        }


def in_order(*launches: Enqueue) -> Enqueue:
    """Several launches as one."""
    if len(launches) == 1:
        return launches[0]

    def enqueue() -> None:
        for launch in launches:
            launch()

    return enqueue


@dataclass(frozen=True)
class GpuCall:
    """One bound call of a GPU kernel; as `KernelCall`, with device memory.

    state: step scalars in device memory, 0-d. predicate: the sticky status, 0-d int64, for a call that must
    change nothing while it is set; None for a call that always runs.
    """

    attrs: Attrs
    inputs: tuple[DeviceArray, ...]
    outputs: tuple[DeviceArray, ...]
    context: GpuContext
    scratch: tuple[DeviceArray, ...] = ()
    state: Mapping[str, DeviceArray] = field(default_factory=dict)
    predicate: DeviceArray | None = None


def gpu_kernel(
    definition: OpDef,
    prepare: Callable[[GpuCall], Enqueue],
    *,
    scratch: Callable[[NodeSpec], Sequence[TensorSpec]] | None = None,
    inplace: tuple[tuple[int, int], ...] = (),
    pointwise: bool = False,
    capturable: bool = True,
) -> Kernel:
    """Registers the GPU kernel of an op; the arguments are the fields of `Kernel`."""
    kernel = Kernel(
        prepare=cast("Callable[[KernelCall], Enqueue]", prepare),
        scratch=scratch,
        inplace=inplace,
        pointwise=pointwise,
        capturable=capturable,
    )
    register_kernel(definition, "gpu", kernel)
    return kernel
