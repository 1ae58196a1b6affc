"""Bind: give an executable memory and a stream group, so that it can be launched."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import Any

import numpy as np

from allocators import GRANULE_NBYTES, Allocation, OutOfMemory
from tensorbow.devices import StreamGroup
from tensorbow.errors import InternalError, ResourceExhaustedError
from tensorbow.kernels.backends import backend_for
from tensorbow.program.plan import BoundPlan, Executable, Region
from tensorbow.program.stacks import HandleWord, release
from tensorbow.specs import Array

PERSISTENT = (Region.STATE, Region.CONSTANT, Region.CONTROL)  # kept from one run of a step to the next
WORKING = (Region.GRADIENTS, Region.SLAB, Region.INPUT, Region.RING)  # worthless after a step


class RegionMemory:
    """Allocations of one owner, by region; freed together."""

    def __init__(self, group: StreamGroup, owner: str):
        self.group = group
        self.owner = owner
        self.bases: dict[Region, int] = {}
        self._allocations: list[Allocation] = []

    def allocate(self, region: Region, nbytes: int, *, apart: bool = False) -> int:
        """Allocates memory for a region and returns its address; never less than one granule.

        apart: see `Scratch`. Raises ResourceExhaustedError, listing what holds the group's memory.
        """
        allocation = _allocated(self.group, self.owner, region.name, nbytes, apart)
        self._allocations.append(allocation)
        self.bases[region] = allocation.address
        return allocation.address

    def free(self) -> None:
        """Frees all allocations; idempotent. Closing the stream group frees them too."""
        if not self.group.allocator.closed:
            for allocation in self._allocations:
                self.group.allocator.free(allocation)
        self._allocations.clear()
        self.bases.clear()


def _allocated(group: StreamGroup, owner: str, what: str, nbytes: int, apart: bool = False) -> Allocation:
    try:
        allocation = group.allocator.allocate(max(nbytes, 1), owner=f"{owner} {what}", apart=apart)
    except OutOfMemory as error:
        raise ResourceExhaustedError(f"{owner} needs {nbytes} bytes for {what}: {error}") from error
    if allocation is None:
        raise InternalError(f"{owner}: no block for {what}")
    return allocation


class Scratch:
    """A block of a stream group's memory for slab, inputs and results of the steps that share it.

    The steps run one after the other, and each step's results are copied out before the next step begins, so
    the block is as large as the largest step needs.
    """

    def __init__(self, group: StreamGroup, owner: str, nbytes: int, *, apart: bool):
        """apart: give the block its own device allocation, which the next trim after `free` returns.

        Raises ResourceExhaustedError.
        """
        self.nbytes = nbytes
        self._group = group
        what = "slab, inputs and results"
        self._allocation: Allocation | None = _allocated(group, owner, what, nbytes, apart)
        self._address = self._allocation.address

    @staticmethod
    def nbytes_for(executable: Executable, shared: Collection[Region], ring: int) -> int:
        """Bytes that a step needs in the block, without the `shared` regions, which lie elsewhere."""
        return sum(_rounded(nbytes) for nbytes in _working(executable, shared, ring).values())

    def bases(self, executable: Executable, shared: Collection[Region], ring: int) -> dict[Region, int]:
        """Base address of each of a step's regions in the block; `shared` regions lie elsewhere."""
        bases, address = {}, self._address
        for region, nbytes in _working(executable, shared, ring).items():
            bases[region] = address
            address += _rounded(nbytes)
        return bases

    def free(self) -> None:
        """Frees the block once no plan is bound to it; idempotent."""
        allocation, self._allocation = self._allocation, None
        if not self._group.allocator.closed:
            self._group.allocator.free(allocation)


def _working(executable: Executable, shared: Collection[Region], ring: int) -> dict[Region, int]:
    nbytes = {**executable.region_nbytes, Region.RING: executable.ring_nbytes * ring}
    return {region: nbytes.get(region, 0) for region in WORKING if region not in shared}


def _persistent(executable: Executable, shared: Collection[Region]) -> list[Region]:
    """The regions that a binding keeps; only steps with loops have CONTROL."""
    return [
        region
        for region in PERSISTENT
        if region not in shared and (region is not Region.CONTROL or executable.region_nbytes.get(region))
    ]


def _rounded(nbytes: int) -> int:
    """Bytes rounded up to whole granules, at least one, so that every region has its own address."""
    return max(1, -(-nbytes // GRANULE_NBYTES)) * GRANULE_NBYTES


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
        scratch: Scratch | None = None,
    ):
        """shared: base addresses of regions owned by others: variables, z, corrections.
        scratch: block for the working regions, large enough, owned by the caller; by default a new one.

        Raises ResourceExhaustedError; nothing stays allocated then.
        """
        self.executable = executable
        self.group = group
        self._shared = shared
        self._ring = ring
        self._kept = RegionMemory(group, owner)
        self._own_scratch: Scratch | None = None
        self._host: dict[Region, Array] = {}  # regions in pinned host memory
        try:
            if nbytes := executable.region_nbytes.get(Region.SWAPPED):
                self._host[Region.SWAPPED] = group.device.host_array((nbytes,), np.uint8)
            if scratch is None:
                nbytes = Scratch.nbytes_for(executable, shared, ring)
                scratch = self._own_scratch = Scratch(group, owner, nbytes, apart=False)
            for region in _persistent(executable, shared):
                self._kept.allocate(region, executable.region_nbytes.get(region, 0))
            bases = self._bases_in(scratch)
            device = group.device
            if executable.constants:
                device.write(bases[Region.CONSTANT], np.frombuffer(executable.constants, np.uint8))
            for region in (Region.STATE, Region.CONTROL):
                if region in bases:
                    device.clear(bases[region], executable.region_nbytes.get(region, 0))
            self._place_stacks(bases)
            self.plan, self.bases = self._bound_to(bases), bases
            groups = (group for segment in executable.segments for group in segment.groups)
            self.waits = any(group.kernel.waits for group in groups)  # for other streams, see Kernel
            self.is_whole = self.plan.is_one_call or not executable.writes  # no half-written variables
            self.duration_s = inf  # of the last step, if the caller measures it
            self.scalars: dict[str, Any] = {}  # the step scalars as last written, defaults included
            self.write({}, executable.scalars)
        except BaseException:
            self._free()
            raise

    def _bases_in(self, scratch: Scratch) -> dict[Region, int]:
        working = scratch.bases(self.executable, self._shared, self._ring)
        host = {region: array.ctypes.data for region, array in self._host.items()}
        return {**self._kept.bases, **working, **host, **self._shared}

    def _bound_to(self, bases: Mapping[Region, int]) -> BoundPlan:
        return backend_for(self.group.device).bind(self.executable, bases, self.group, self._ring)

    @staticmethod
    def blocks(executable: Executable, shared: Collection[Region], ring: int) -> list[int]:
        """Bytes of each allocation of a binding with its own scratch, in order, for dry runs."""
        kept = [executable.region_nbytes.get(region, 0) for region in _persistent(executable, shared)]
        return [Scratch.nbytes_for(executable, shared, ring), *kept]

    def write(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Copies feeds to INPUT and step scalars to STATE; called on the stream, before the launch."""
        self.plan.write(inputs, state)
        self.scalars.update(state)

    def move_to(self, scratch: Scratch) -> None:
        """Rebinds the plan to another scratch block while no step runs; step scalars keep their values.

        If rebinding raises, the binding stays on its old block.
        """
        before, bases = self.plan, self._bases_in(scratch)
        self.plan, self.bases = self._bound_to(bases), bases
        self._place_stacks(bases)
        before.close()

    def _place_stacks(self, bases: Mapping[Region, int]) -> None:
        """Writes into the words of stacks where their memory in the slab lies."""
        for words, memory in self.executable.stacks:
            handle = np.zeros(HandleWord.WORDS, np.int64)
            handle[HandleWord.ADDRESS] = bases[memory.region] + memory.offset
            handle[HandleWord.NBYTES] = memory.nbytes
            self.group.device.write(bases[words.region] + words.offset, handle)

    def _free(self) -> None:
        if Region.CONTROL in self._kept.bases:
            release(self._kept.bases[Region.CONTROL], self.executable.region_nbytes[Region.CONTROL])
        self._kept.free()
        self._host.clear()
        if self._own_scratch is not None:
            self._own_scratch.free()

    def close(self) -> None:
        """Gives the memory back; idempotent."""
        self.plan.close()
        self._free()
