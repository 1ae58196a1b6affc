"""Where the scheduler's batches come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from scheduler.device_data import keep_on_devices
from scheduler.learners import Learners
from scheduler.positions import RoundPositions
from tensorbow.data import (
    Batch,
    BatchInputs,
    BatchKey,
    BatchOrder,
    BatchRecipe,
    Dataset,
    PinnedArrays,
    Prefetcher,
)
from tensorbow.data.prefetch import HostSlot
from tensorbow.devices import Device


@dataclass(frozen=True, slots=True)
class ReadyBatch:
    """The inputs of one task, or what they are made of. They stay unchanged until `release` is called."""

    replica: int
    round: int
    inputs: BatchInputs
    release: Callable[[], None]


class BatchSource(Protocol):
    """Fills batches ahead of use, on threads of its own."""

    def close(self) -> None:
        """Stops it; no callback comes afterwards."""


OpenSource = Callable[[int, int, Callable[[ReadyBatch], None], Callable[[BaseException], None]], BatchSource]
"""(first round, round to stop before, on_ready, on_error) -> a source. Callbacks come from any thread."""


class DatasetBatches:
    """Batches of a data set: number r * replicas + i of an epoch goes to replica i in round r of it.

    Where the number of replicas changes, see `RoundPositions`.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        replicas: int,
        seed: int,
        depth: int = 3,
        changes: Sequence[tuple[int, int]] = (),
    ):
        """depth: batches held ready per replica. changes: (round, replicas), from which on there are so many.

        Raises InvalidArgumentError for too little data.
        """
        self.dataset = dataset
        self.depth = depth
        self.order = BatchOrder(len(dataset), batch_size, seed)
        self.positions = RoundPositions(self.order, replicas, changes)
        self.on_devices = False  # whether the replicas make the batches, of recipes
        self._slots: list[list[HostSlot]] | None = None  # in memory that the devices copy from, once known

    @property
    def replicas(self) -> int:
        """How many each round has batches for."""
        return self.positions.replicas

    @property
    def rounds_per_epoch(self) -> int:
        """Complete rounds in an epoch with so many replicas."""
        return self.positions.rounds_per_epoch

    def resize(self, round: int, learners: Learners) -> None:
        """Has rounds from this one on give batches to these replicas, of another number.

        Raises InvalidArgumentError when an epoch does not fill one round; nothing has changed then.
        """
        self.positions = self.positions.resized(round, learners.count)
        if self._slots is not None:
            self._slots = self._slots_on([replica.device for replica in learners.replicas])

    def keep_on_devices(self, learners: Learners, when: str = "auto") -> str:
        """Has replicas make their batches themselves, of data kept on their devices; the bits stay the same.

        when: `auto` on GPUs where there is room, `always` on CPU devices too, or `never`. Says in a line why
        it is not done where it could have been expected. The learners own the data, until they close.
        Where it is not done, batches are filled in memory that the devices copy from; one source at a time is
        to be open then.
        Raises ResourceExhaustedError, or InvalidArgumentError, where it is to be `always` and cannot be.
        """
        self.on_devices, notice = keep_on_devices(learners, self.dataset, when)
        self._slots = None if self.on_devices else self._slots_on([r.device for r in learners.replicas])
        return notice

    def _slots_on(self, devices: Sequence[Device]) -> list[list[HostSlot]]:
        """Slots for the batches of replicas, each in host memory that its device reaches."""
        images, labels = (self.order.batch_size, *self.dataset.image_shape), (self.order.batch_size,)
        return [
            [
                (device.host_array(images, np.float32), device.host_array(labels, np.int64))
                for _ in range(self.depth)
            ]
            for device in devices
        ]

    def open(
        self,
        start: int,
        stop: int,
        on_ready: Callable[[ReadyBatch], None],
        on_error: Callable[[BaseException], None],
    ) -> BatchSource:
        """Starts filling rounds `start` to `stop` - 1, counted over all epochs."""
        if self.on_devices:
            return _Recipes(self, start, stop, on_ready)
        holder: list[Prefetcher] = []
        place = self.positions.place(start)

        def ready(replica: int, batch: Batch) -> None:
            round = start + batch.claim.step
            arrays = batch.images, batch.labels
            inputs = arrays if self._slots is None else PinnedArrays(arrays)
            on_ready(ReadyBatch(replica, round, inputs, lambda: holder[0].release(batch)))

        prefetcher = Prefetcher(
            self.dataset,
            self.order,
            self.replicas,
            self.depth,
            start=(place.epoch, 0),
            on_ready=ready,
            on_error=on_error,
            max_rounds=stop - start,
            slots=self._slots,
            skipped=place.number,
        )
        holder.append(prefetcher)
        return prefetcher


class _Recipes:
    """Hands out the recipes of `depth` rounds, and for each that is released the replica's next one.

    They are so little work that they are written in the caller's thread.
    """

    def __init__(
        self, batches: DatasetBatches, start: int, stop: int, on_ready: Callable[[ReadyBatch], None]
    ):
        self._batches, self._stop, self._on_ready = batches, stop, on_ready
        self._closed = False
        for round in range(start, min(stop, start + batches.depth)):
            for replica in range(batches.replicas):
                self._hand_out(replica, round)

    def _hand_out(self, replica: int, round: int) -> None:
        if round >= self._stop or self._closed:
            return
        batches = self._batches
        epoch, first = batches.positions.place(round)
        number = first + replica
        key = BatchKey(batches.order.seed, epoch, number)
        recipe = BatchRecipe(batches.dataset, batches.order.indices(epoch, number), key)
        next_round = round + batches.depth
        self._on_ready(ReadyBatch(replica, round, recipe, lambda: self._hand_out(replica, next_round)))

    def close(self) -> None:
        """Hands out no more."""
        self._closed = True
