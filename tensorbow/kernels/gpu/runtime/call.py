"""Interface of GPU kernels: arrays in device memory, and a context that prepares launches.

A GPU kernel is a `Kernel(prepare=...)` registered under `gpu`. Its `prepare(call)` runs once, when a plan is
bound, and returns a function that enqueues the work on the stream, during capture or in each step.
That function must only enqueue, and always the same work.
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
    from tensorbow.program.plan import Group, Ref

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
        """The same memory under another shape with the same number of elements."""
        return DeviceArray(self.address, shape, self.dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Zero-copy view for CuPy and other libraries."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None,
        }


def in_order(*launches: Enqueue) -> Enqueue:
    """Combines several launches into one."""
    if len(launches) == 1:
        return launches[0]

    def enqueue() -> None:
        for launch in launches:
            launch()

    return enqueue


@dataclass(frozen=True)
class GpuCall:
    """One bound call of a GPU kernel: a `KernelCall` with arrays in device memory.

    state: step scalars in device memory, 0-d. predicate: the sticky status, 0-d int64: the call changes
    nothing while it is set; None for a call that always runs.
    """

    attrs: Attrs
    inputs: tuple[DeviceArray, ...]
    outputs: tuple[DeviceArray, ...]
    context: GpuContext
    scratch: tuple[DeviceArray, ...] = ()
    state: Mapping[str, DeviceArray] = field(default_factory=dict)
    predicate: DeviceArray | None = None


def call_of(
    group: Group, array: Callable[[Ref], DeviceArray], context: GpuContext, status: Ref | None
) -> GpuCall:
    """The bound call of a group. array: of a place in the plan's memory. status: of a predicated call."""
    return GpuCall(
        attrs=group.attrs,
        inputs=tuple(map(array, group.inputs)),
        outputs=tuple(map(array, group.outputs)),
        context=context,
        scratch=tuple(map(array, group.scratch)),
        state={key: array(ref) for key, ref in group.state},
        predicate=None if status is None else array(status),
    )


def gpu_kernel(
    definition: OpDef,
    prepare: Callable[[GpuCall], Enqueue],
    *,
    scratch: Callable[[NodeSpec], Sequence[TensorSpec]] | None = None,
    inplace: tuple[tuple[int, int], ...] = (),
    pointwise: bool = False,
) -> Kernel:
    """Registers the GPU kernel of an op; the arguments are the fields of `Kernel`."""
    kernel = Kernel(
        prepare=cast("Callable[[KernelCall], Enqueue]", prepare),
        scratch=scratch,
        inplace=inplace,
        pointwise=pointwise,
    )
    register_kernel(definition, "gpu", kernel)
    return kernel
