"""An update and the averaging around it as one launch; see `kernels.averaged_updates`."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tensorbow.graph import Kernel, KernelCall
from tensorbow.kernels.averaged_updates import KEYS, AveragedUpdate
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall
from tensorbow.kernels.gpu.source.maps import prepare_map


def averaged_kernel(averaged: AveragedUpdate) -> Kernel:
    """The GPU kernel of the pass."""

    def prepare(call: GpuCall) -> Enqueue:
        arrays = (*call.inputs, *(call.state[key] for key in KEYS))
        targets = (*call.outputs, *(call.inputs[number] for number in averaged.written))
        return prepare_map(call.context, f"averaged {averaged.name}", averaged.results, arrays, targets)

    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare), pointwise=True)
