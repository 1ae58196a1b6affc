"""Where the scheduler's batches come from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from scheduler.device_data import keep_on_devices
from scheduler.learners import Learners
from scheduler.positions import EpochPlace, RoundPositions
from tensorbow.data import (
    Batch,
    BatchInputs,
    BatchKey,
    BatchOrder,
    BatchRun,
    Dataset,
    PinnedArrays,
    Prefetcher,
    RecipeRun,
    plain_picks,
)
from tensorbow.data.prefetch import HostSlot
from tensorbow.devices import Device

PREPARED = 32  # recipes of a replica that are written at once, where launches are of one
EPOCHS = 2  # whose picks are kept: at the border replicas ask for both


class ReadyBatch(NamedTuple):
    """The inputs of one task, or what they are made of. They stay unchanged until `release` is called.

    replica: whose batch it is; with `fcfs` its place in the round, and whoever is free takes it.
    """

    replica: int
    round: int
    inputs: BatchInputs | BatchRun
    release: Callable[[], None]


class BatchSource(Protocol):
    """Fills batches ahead of use, on threads of its own."""

    def close(self) -> None:
        """Stops it; no callback comes afterwards."""


OpenSource = Callable[[int, int, Callable[[ReadyBatch], None], Callable[[BaseException], None]], BatchSource]
"""(first round, round to stop before, on_ready, on_error) -> a source. Callbacks come from any thread."""


class DatasetBatches:
    """Batches of a data set: number r * replicas + i of an epoch goes to replica i in round r of it.

    With `fcfs` (see `Synchronisation`) that is batch i of the round, for whichever replica is free.

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
        *,
        steps_per_launch: int = 1,
    ):
        """depth: batches held ready per replica, or runs of `steps_per_launch` batches, where it is more than
        one. changes: (round, replicas), from which on there are so many.

        Raises InvalidArgumentError for too little data.
        """
        self.dataset = dataset
        self.depth = depth
        self.steps_per_launch = steps_per_launch
        self.order = BatchOrder(len(dataset), batch_size, seed)
        self.positions = RoundPositions(self.order, replicas, changes)
        self.on_devices = False  # whether the replicas make the batches, of recipes
        self._hosts: list[Device] | None = None  # in whose memory batches are filled, once that is known
        self._slots: list[list[HostSlot]] = []  # there, by replica
        self._epochs: dict[int, NDArray[Any]] = {}  # picks of whole epochs

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
        if self._hosts is not None:
            self._hosts, self._slots = _hosts(learners), []

    def keep_on_devices(self, learners: Learners, when: str = "auto") -> str:
        """Has replicas make their batches themselves, of data kept on their devices; the bits stay the same.

        when: `auto` on GPUs where there is room, and on CPU devices with native code, which keep nothing but
        read the data where it is; `always` on all CPU devices; or `never`. Says in a line why
        it is not done where it could have been expected. The learners own the data, until they close.
        Where it is not done, batches are filled in memory that the devices copy from; one source at a time is
        to be open then.
        Raises ResourceExhaustedError, or InvalidArgumentError, where it is to be `always` and cannot be.
        """
        self.on_devices, notice = keep_on_devices(learners, self.dataset, when)
        self._hosts, self._slots = None if self.on_devices else _hosts(learners), []
        return notice

    def _host_slots(self) -> list[list[HostSlot]] | None:
        """Slots for the batches of replicas, in host memory that the devices reach, if these are known."""
        count = self.depth * self.steps_per_launch
        if self._hosts is None:
            return None
        if not self._slots or len(self._slots[0]) != count:
            images, labels = (self.order.batch_size, *self.dataset.image_shape), (self.order.batch_size,)
            self._slots = [
                [
                    (device.host_array(images, np.float32), device.host_array(labels, np.int64))
                    for _ in range(count)
                ]
                for device in self._hosts
            ]
        return self._slots

    def recipes(self, replica: int, rounds: range) -> RecipeRun:
        """What a replica's batches of some rounds are made of."""
        parts: list[NDArray[np.int64]] = []
        picks: list[NDArray[Any]] = []
        begins: list[tuple[int, EpochPlace]] = []  # of parts, by their first place in the run
        round, stride = rounds.start, self.replicas
        while round < rounds.stop:
            place = self.positions.place(round)
            left = (self.order.batches_per_epoch - place.number) // stride
            count = min(left, rounds.stop - round)
            begins.append((round - rounds.start, place))
            first = place.number + replica
            parts.append(self.order.run(place.epoch, first, stride, count))
            if self.dataset.augmentation is None:
                picks.append(self._picks_of(place.epoch)[first : first + stride * count : stride])
            round += count

        def key_of(place: int) -> BatchKey:
            part = len(begins) - 1
            while begins[part][0] > place:
                part -= 1
            first, (epoch, number) = begins[part]
            return BatchKey(self.order.seed, epoch, number + (place - first) * stride + replica)

        return RecipeRun(self.dataset, _joined(parts), key_of, _joined(picks) if picks else None)

    def _picks_of(self, epoch: int) -> NDArray[Any]:
        """The picks of all batches of an epoch, where nothing is drawn for them: `PICK` [batches, batch]."""
        picks = self._epochs.get(epoch)
        if picks is None:
            while len(self._epochs) >= EPOCHS:
                del self._epochs[min(self._epochs)]
            picks = self._epochs[epoch] = plain_picks(self.order.batches(epoch))
        return picks

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
        if self.steps_per_launch > 1:
            return gathered(self._open_filled, self.steps_per_launch)(start, stop, on_ready, on_error)
        return self._open_filled(start, stop, on_ready, on_error)

    def _open_filled(
        self,
        start: int,
        stop: int,
        on_ready: Callable[[ReadyBatch], None],
        on_error: Callable[[BaseException], None],
    ) -> BatchSource:
        """Batches in arrays, one by one."""
        holder: list[Prefetcher] = []
        slots = self._host_slots()
        place = self.positions.place(start)

        def ready(replica: int, batch: Batch) -> None:
            round = start + batch.claim.step
            arrays = batch.images, batch.labels
            inputs = arrays if slots is None else PinnedArrays(arrays)
            on_ready(ReadyBatch(replica, round, inputs, lambda: holder[0].release(batch)))

        prefetcher = Prefetcher(
            self.dataset,
            self.order,
            self.replicas,
            self.depth * self.steps_per_launch,
            start=(place.epoch, 0),
            on_ready=ready,
            on_error=on_error,
            max_rounds=stop - start,
            slots=slots,
            skipped=place.number,
        )
        holder.append(prefetcher)
        return prefetcher


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _hosts(learners: Learners) -> list[Device]:
    """By place in a round, the device whose host memory its batches are filled in.

    Where any replica may take them, that is one that all devices can copy from.
    """
    devices = [replica.device for replica in learners.replicas]
    if not learners.options.first_come:
        return devices
    pinning = next((device for device in devices if device.kind != "cpu"), devices[0])
    return [pinning] * len(devices)


class _Recipes:
    """Hands out the recipes of `depth` launches, and for each that is released the replica's next one.

    They are so little work that they are written in the caller's thread.
    """

    def __init__(
        self, batches: DatasetBatches, start: int, stop: int, on_ready: Callable[[ReadyBatch], None]
    ):
        self._batches, self._start, self._stop, self._on_ready = batches, start, stop, on_ready
        self._steps = batches.steps_per_launch
        self._closed = False
        self._prepared: dict[int, tuple[int, RecipeRun]] = {}  # by replica, with the first round
        for launch in range(start, start + batches.depth):
            for replica in range(batches.replicas):
                self._hand_out(replica, launch)

    def _hand_out(self, replica: int, launch: int) -> None:
        first = self._start + (launch - self._start) * self._steps
        if first >= self._stop or self._closed:
            return
        batches, following = self._batches, launch + self._batches.depth
        inputs = (
            self._recipe(replica, first)
            if self._steps == 1
            else batches.recipes(replica, range(first, min(first + self._steps, self._stop)))
        )
        self._on_ready(ReadyBatch(replica, launch, inputs, lambda: self._hand_out(replica, following)))

    def _recipe(self, replica: int, round: int) -> BatchInputs:
        begin, run = self._prepared.get(replica, (round, ()))
        if round - begin >= len(run):
            run = self._batches.recipes(replica, range(round, min(round + PREPARED, self._stop)))
            begin = round
            self._prepared[replica] = begin, run
        return run[round - begin]

    def close(self) -> None:
        """Hands out no more."""
        self._closed = True


def gathered(open_source: OpenSource, steps_per_launch: int) -> OpenSource:
    """A source of batches as one of `BatchRun`s, for an engine with so many steps in a launch.

    The source must hold that many batches ready for each replica, before any is released.
    """

    def open_runs(
        start: int,
        stop: int,
        on_ready: Callable[[ReadyBatch], None],
        on_error: Callable[[BaseException], None],
    ) -> BatchSource:
        waiting: dict[int, dict[int, ReadyBatch]] = {}  # by replica and round
        lock = threading.Lock()  # owns `waiting`

        def ready(batch: ReadyBatch) -> None:
            launch = (batch.round - start) // steps_per_launch
            first = start + launch * steps_per_launch
            rounds = range(first, min(first + steps_per_launch, stop))
            with lock:
                found = waiting.setdefault(batch.replica, {})
                found[batch.round] = batch
                if any(round not in found for round in rounds):
                    return
                run = [found.pop(round) for round in rounds]

            def release() -> None:
                for each in run:
                    each.release()

            batches = [each.inputs for each in run if not isinstance(each.inputs, BatchRun)]
            on_ready(ReadyBatch(batch.replica, start + launch, BatchRun(batches), release))

        return open_source(start, stop, ready, on_error)

    return open_runs
