"""Regions of the dynamic part of a replica that spans several devices: steps as a session over them has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from scheduler.replicas.dynamic.executor_part import COMPILED, ExecutorPart
from scheduler.replicas.dynamic.replica_regions import RegionState
from tensorbow.compiler import MultiDeviceExecutable
from tensorbow.devices import Device, StreamGroup
from tensorbow.errors import InternalError
from tensorbow.executor import StaticRegion
from tensorbow.graph import Tensor
from tensorbow.program import Executable, Ref, Region
from tensorbow.runtime.single_device_step import SingleDeviceStep
from tensorbow.runtime.step_cache import Run, Step, StepCache
from tensorbow.specs import Array


class PartedRegions:
    """See RegionRunner; regions run on stream groups of their own, several of them at a time."""

    def __init__(
        self,
        part: ExecutorPart[Executable | MultiDeviceExecutable],
        home: StreamGroup,
        names: Sequence[str],
        devices: Sequence[Device],
        bases: Sequence[Mapping[Region, int]],
        owner: str,
    ):
        """home: of the stream that runs the dynamic part. names: full names of the devices for which regions
        are compiled, by part. devices: the replica's. bases: addresses of the variables of each part.
        """
        self._part, self._home = part, home
        self._devices = dict(zip(names, devices, strict=True))
        self._bases = {str(device.name): own for device, own in zip(devices, bases, strict=True)}
        self._cache = StepCache(devices[0], f"{owner} regions", COMPILED)

    def begin(self) -> None:
        """See RegionRunner: updates of the step before may not have ended, but on CPUs."""
        if self._home.device.kind != "cpu":
            self._home.compute.synchronize()

    def leave(self, tensor: Tensor, gradient: Ref, value: Array) -> None:
        """Raises InternalError: gradients are handed to the parts, as other values are."""
        raise InternalError(f"{tensor.name} was to be left in memory of one device")

    def move_to(self, bases: Mapping[Region, int]) -> None:
        """Does nothing: regions know the addresses of variables alone, which stay."""

    def run(self, state: RegionState, region: StaticRegion, arrays: Sequence[Array]) -> Sequence[Array]:
        """See RegionRunner."""
        step = self._cache.get(
            (region, region.key(arrays)), lambda: Step(self._on_devices(region, arrays), layout_version=0)
        )
        keys = [key for part in step.parts for key in part.state]
        scalars = state.of(region, keys, step.executable.counters)
        written = zip(region.inputs, arrays, strict=True)
        inputs: dict[str, Any] = {t.name: a for t, a in written if t.name not in region.baked_names}
        run = Run()
        try:
            bound = self._cache.take(step, self._bases.get, run)
            stoppable: AbstractContextManager[None] = nullcontext()
            if isinstance(bound, SingleDeviceStep) and bound.executable.may_not_end:
                stoppable = state.stop.running(bound)  # over several devices no loop is compiled
            with stoppable:
                return [*map(np.asarray, bound.run(inputs, scalars)[: len(region.outputs)])]
        finally:
            self._cache.give(run)

    def _on_devices(
        self, region: StaticRegion, arrays: Sequence[Array]
    ) -> Executable | MultiDeviceExecutable:
        """A compiled region, on the replica's own devices."""
        executable = self._part.compiled(region, arrays, None)
        if isinstance(executable, Executable):
            return executable
        return replace(executable, devices={name: self._devices[name] for name in executable.parts})

    def close(self) -> None:
        """See RegionRunner."""
        self._cache.close()
