"""Bind: give an executable memory and a stream group, so that it can be launched."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

from allocators import Allocation, OutOfMemory
from tensorbow.devices import StreamGroup
from tensorbow.errors import InternalError, ResourceExhaustedError
from tensorbow.kernels.backends import backend_for
from tensorbow.kernels.plan import BoundPlan, Executable, Region

OWN = (Region.GRADIENTS, Region.SLAB, Region.INPUT, Region.STATE, Region.CONSTANT)


class RegionMemory:
    """Allocations of one owner, by region; freed together."""

    def __init__(self, group: StreamGroup, owner: str):
        self.group = group
        self.owner = owner
        self.bases: dict[Region, int] = {}
        self._allocations: list[Allocation] = []

    def allocate(self, region: Region, nbytes: int) -> int:
        """The address of new memory for a region (at least one granule, so that it has an address).

        Raises ResourceExhaustedError with the allocator's account of who holds what.
        """
        try:
            allocation = self.group.allocator.allocate(max(nbytes, 1), owner=f"{self.owner} {region.name}")
        except OutOfMemory as error:
            raise ResourceExhaustedError(
                f"{self.owner} needs {nbytes} bytes for {region.name}: {error}"
            ) from error
        if allocation is None:
            raise InternalError(f"{self.owner}: no block for {region.name}")
        self._allocations.append(allocation)
        self.bases[region] = allocation.address
        return allocation.address

    def free(self) -> None:
        """Gives everything back; idempotent. A group that was closed before has done so itself."""
        if not self.group.allocator.closed:
            for allocation in self._allocations:
                self.group.allocator.free(allocation)
        self._allocations.clear()
        self.bases.clear()


class Binding:
    """A bound plan with the memory it owns. One step at a time runs on it."""

    def __init__(
        self,
        executable: Executable,
        group: StreamGroup,
        shared: Mapping[Region, int],
        *,
        ring: int = 2,
        owner: str = "step",
    ):
        """`shared` gives the bases of memory owned by others: variables, z, corrections."""
        self.executable = executable
        self.group = group
        self.memory = RegionMemory(group, owner)
        try:
            for region in OWN:
                if region not in shared:
                    self.memory.allocate(region, executable.region_nbytes.get(region, 0))
            self.memory.allocate(Region.RING, executable.ring_nbytes * ring)
            bases = {**self.memory.bases, **shared}
            device = group.device
            if executable.constants:
                device.write(bases[Region.CONSTANT], np.frombuffer(executable.constants, np.uint8))
            self.bases: dict[Region, int] = bases
            device.clear(bases[Region.STATE], executable.region_nbytes.get(Region.STATE, 0))
            groups = (group for segment in executable.segments for group in segment.groups)
            self.waits = any(group.kernel.waits for group in groups)  # see Kernel
            self.plan: BoundPlan = backend_for(device).bind(executable, bases, group, ring)
            self.is_whole = self.plan.is_one_call or not executable.writes  # whatever an interrupt cuts off
            self.duration_s = inf  # of the last step, if who runs it takes the time
            self.scalars: dict[str, Any] = {}  # the step scalars as last written, defaults included
            self.write({}, executable.scalars)
        except BaseException:
            self.memory.free()
            raise

    def write(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Copies feeds and step scalars into place; called on the stream, before the launch."""
        self.plan.write(inputs, state)
        self.scalars.update(state)

    def close(self) -> None:
        """Gives the memory back; idempotent."""
        self.plan.close()
        self.memory.free()
