"""A data set that a device keeps, and the step that makes batches of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from scheduler.replicas.memory import planned_nbytes
from tensorbow.compiler import PICKS, RegionMemory, compile_batch
from tensorbow.data import KeptData, pick_columns
from tensorbow.devices import Device, StreamGroup
from tensorbow.errors import InternalError
from tensorbow.kernels import backend_for
from tensorbow.program import DATA, BoundPlan, Executable, Region
from tensorbow.specs import Array, TensorSpec, as_dtype

BatchSteps = WeakKeyDictionary[Executable, Executable]
"""Compiled batch steps, by the training step whose inputs they write."""

_numbers = itertools.count()


class DeviceDataset:
    """Arrays of a data set in the memory of one device; on a CPU the arrays themselves."""

    def __init__(self, device: Device, dataset: KeptData, compiled: BatchSteps | None = None):
        """compiled: cache shared by devices of one kind.

        Raises ResourceExhaustedError, or InvalidArgumentError if other partitions leave too little memory.
        """
        self.device, self.dataset = device, dataset
        self._compiled = BatchSteps() if compiled is None else compiled
        self._group: StreamGroup | None = None
        self._lent: list[NDArray[Any]] = []
        self.bases: dict[Region, int] = {}
        self._limits: dict[int, tuple[int, int]] = {}  # by array: its least and its largest integer
        try:
            for region, array in zip(DATA, dataset.arrays, strict=False):
                self._keep(region, array)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def blocks(device: Device, dataset: KeptData) -> list[int]:
        """Bytes of each allocation on a device; none where the arrays are read in place."""
        return [] if device.kind == "cpu" else [array.nbytes for array in dataset.arrays]

    def _keep(self, region: Region, array: NDArray[Any]) -> None:
        array = np.require(array, requirements=["C", "A"])
        address = self.device.lend(array)
        if address is not None:
            self._lent.append(array)
        else:
            address = self._copy(array, region.name.lower())
        self.bases[region] = address

    def _copy(self, array: NDArray[Any], what: str) -> int:
        name = self.dataset.name
        if self._group is None:
            nbytes = planned_nbytes(self.blocks(self.device, self.dataset))
            self._group = self.device.stream_group(f"{name} {next(_numbers)}", planned_nbytes=nbytes)
        block = self._group.allocate(array.nbytes, owner=f"{name} {what}")
        if block is None:
            raise InternalError(f"{name} {what}: the array is empty")
        self.device.write(block.address, array)
        return block.address

    def holds(self, number: int, wanted: range) -> bool:
        """True if all integers of an array of the data set, by number, are in a range; looked up once."""
        if number not in self._limits:
            array = self.dataset.arrays[number]
            self._limits[number] = int(array.min()), int(array.max())
        return all(limit in wanted for limit in self._limits[number])

    def batch_step(self, step: Executable) -> Executable:
        """Compiled batch step for a training step; its inputs must have the data set's shapes."""
        made = self._compiled.get(step)
        if made is None:
            arrays = [TensorSpec(each.shape, as_dtype(each.dtype)) for each in self.dataset.arrays]
            inputs, status = [*step.inputs.values()], step.state["status"]
            backend, columns = backend_for(self.device), pick_columns(self.dataset)
            made = compile_batch(inputs, status, arrays, self.dataset.affine, backend, columns)
            self._compiled[step] = made
        return made

    def close(self) -> None:
        """Gives the memory back, when no batch is being made any more; idempotent."""
        while self._lent:
            with suppress(KeyError):  # the device is closed
                self.device.take_back(self._lent.pop())
        if self._group is not None:
            self._group.close()


class BatchMaker:
    """The bound step that makes a replica's batches, and the memory of its picks."""

    def __init__(
        self,
        data: DeviceDataset,
        group: StreamGroup,
        step: Executable,
        bases: Mapping[Region, int],
        ring: int,
        owner: str,
    ):
        """step: the training step. bases: its base addresses. Raises ResourceExhaustedError."""
        executable = data.batch_step(step)
        self._memory = RegionMemory(group, f"{owner} batches")
        try:
            self._memory.allocate(Region.PICKS, executable.region_nbytes[Region.PICKS], apart=True)
            own = {**bases, **data.bases, **self._memory.bases}
            self.plan: BoundPlan = backend_for(group.device).bind(executable, own, group, ring)
        except BaseException:
            self._memory.free()
            raise

    def make(self, picks: Array, result_number: int) -> None:
        """Makes the batch of a task; called on the replica's stream. picks: see BatchRecipe.picks.

        result_number: see Replica.launch.
        """
        self.plan.write({PICKS: picks}, {})
        self.plan.launch(0, result_number)

    def close(self) -> None:
        """Gives the memory back; idempotent."""
        self.plan.close()
        self._memory.free()
        if not self._memory.group.allocator.closed:
            self._memory.group.allocator.trim()
