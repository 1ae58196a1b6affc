"""A step of a replica with several parts that no plan can run: a part of the executor, and planned ones.

One executor runs the forward and backward pass, over all devices of the replica, as a session does. The
planned parts get its gradients and reported values as inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scheduler.replicas.dynamic.divided_step import Divided, divide_and_compile
from scheduler.replicas.dynamic.executor_part import ExecutorPart
from tensorbow.compiler import (
    DeviceSet,
    MultiDeviceExecutable,
    NeedsDynamicModeError,
    PartedExecutable,
    VariableLayout,
)
from tensorbow.devices import Device
from tensorbow.executor import StaticRegion
from tensorbow.graph import Operation, Resources, Tensor
from tensorbow.program import Executable, Ref
from tensorbow.runtime.compilation import compile_on_devices
from tensorbow.specs import Array, TensorSpec


@dataclass(frozen=True, kw_only=True)
class DividedParts(PartedExecutable):
    """The planned parts of a step, and the part that the dynamic executor runs before them.

    `counters`, `scalars`, `reads_first` and `writes` are those of all.
    """

    part: ExecutorPart[Executable | MultiDeviceExecutable]

    @cached_property
    def reads_first(self) -> frozenset[str]:
        """See PartedExecutable."""
        return super().reads_first | self.part.reads

    @cached_property
    def writes(self) -> frozenset[str]:
        """See PartedExecutable."""
        return super().writes | self.part.writes

    @cached_property
    def scalars(self) -> dict[str, float]:
        """See PartedExecutable."""
        return {**self.part.scalars, **super().scalars}

    @cached_property
    def counters(self) -> tuple[str, ...]:
        """See PartedExecutable."""
        return tuple(dict.fromkeys((*super().counters, *self.part.counters)))


@dataclass(frozen=True)
class PartVariables:
    """Variables of the parts of a replica: the device of each, and layouts by the device's full name."""

    placement: Mapping[Operation, Device]
    layouts: Mapping[str, VariableLayout]
    notes: Mapping[Operation, str]


def compile_divided_parts(
    fetches: Sequence[Tensor],
    operations: Sequence[Operation],
    feeds: Mapping[Tensor, TensorSpec],
    devices: DeviceSet,
    variables: PartVariables,
    compile_planned: Callable[[Divided], PartedExecutable],
    resources: Resources,
    error: NeedsDynamicModeError,
) -> DividedParts:
    """Divides and compiles a step that cannot be planned; arguments as of `compile_divided`.

    devices: of the first replica. Raises InvalidArgumentError as `compile_divided`, and for an operation that
    requests another device.
    """

    def compile_region(
        region: StaticRegion, arrays: Sequence[Array], placed: Mapping[Tensor, Ref]
    ) -> Executable | MultiDeviceExecutable:
        given = region.feeds(arrays)
        return compile_on_devices(
            region.elements, given, devices, variables, soft=False, within=region.within
        )[0]

    found, planned = divide_and_compile(fetches, operations, feeds, None, compile_planned)
    part = found.executor_part(error.why or str(error), compile_region, resources)
    notes = (f"dynamic: {part.reason}", *planned.notes)
    return DividedParts(planned.parts, planned.fetches, notes, part=part)
