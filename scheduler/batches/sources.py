"""Sources that fill the replicas' batches ahead of use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.batches.keep_on_devices import keep_on_devices
from scheduler.batches.positions import EpochPosition, RoundPositions
from scheduler.replicas.parted_learners import AnyLearners
from tensorbow.data import (
    Batch,
    BatchInputs,
    BatchKey,
    BatchOrder,
    BatchRun,
    LaunchRecipes,
    PinnedArrays,
    Prefetcher,
    RoundRecipes,
    pick_columns,
    plain_picks,
)
from tensorbow.data.array_dataset import AsTrainingData
from tensorbow.data.prefetch import HostSlot
from tensorbow.devices import Device
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import Kind, Positive, RefusedError, Word, checked, sequence, whole

PREPARED = 64  # rounds whose recipes are made at once, if launches have one round
KEPT_GROUPS = 3  # groups of PREPARED rounds kept: replicas may be several rounds apart
EPOCHS = 2  # epochs whose picks are kept: at the end of an epoch, replicas ask for two of them


class ReadyBatch(NamedTuple):
    """Inputs of a replica's tasks in a launch, or recipes for them; unchanged until `release` is called.

    batch_number: number of the batch in its round; in lockstep that of its replica. launch: the number of the
    launch, counted on from the first round; with one round a launch it is the round's.
    """

    batch_number: int
    launch: int
    inputs: BatchInputs | BatchRun
    release: Callable[[], None]


class ReadyLaunch(NamedTuple):
    """Inputs of all tasks of a launch, by its number. They stay unchanged until `release` is called."""

    launch: int
    inputs: Sequence[BatchInputs | BatchRun]  # by replica
    release: Callable[[], None]


class BatchSource(Protocol):
    """Open source that fills batches ahead of use, on its own threads."""

    def close(self) -> None:
        """Stops filling batches; no callback is called afterwards."""


OnReady: TypeAlias = Callable[["ReadyBatch | ReadyLaunch"], None]

OpenSource = Callable[[int, int, OnReady, Callable[[BaseException], None]], BatchSource]
"""(first round, round to stop before, on_ready, on_error) -> BatchSource. Callbacks come from any thread.

The source passes on_ready one ReadyBatch per replica and launch, or one ReadyLaunch per launch.
"""


_NUMBERS = sequence(whole(0), "")
_CHANGES = sequence(sequence(whole(0), ""), "")


def _read_changes(value: Any) -> tuple[tuple[int, int], ...]:
    pairs = _CHANGES.read(value)
    if any(len(pair) != 2 for pair in pairs):
        raise RefusedError
    return tuple((round, count) for round, count in pairs)


def _read_share(value: Any) -> tuple[int, int]:
    numbers = _NUMBERS.read(value)
    if len(numbers) != 2 or not numbers[1]:
        raise RefusedError
    return numbers[0], numbers[1]


def _read_earlier(value: Any) -> tuple[RoundPositions, int]:
    if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[0], RoundPositions):
        raise RefusedError
    return value[0], whole(0).read(value[1])


Earlier: TypeAlias = Annotated[
    tuple[RoundPositions, int], Kind("(positions, the round they end before)", _read_earlier)
]
Share: TypeAlias = Annotated[tuple[int, int], Kind("(first, count) of this process's replicas", _read_share)]
Changes: TypeAlias = Annotated[Sequence[tuple[int, int]], Kind("a list of (round, replicas)", _read_changes)]


class DatasetBatches:
    """Batches of a data set: batch r * replicas + i of an epoch goes to replica i in the epoch's round r.

    Replicas are those of all workers of a job; each has a share of the batches.

    With `fcfs` (see `Synchronisation`) any free replica takes it. `RoundPositions` handles changes of the
    number of replicas.
    """

    @checked
    def __init__(
        self,
        dataset: AsTrainingData,
        batch_size: Positive,
        replicas: Positive,
        seed: Word,
        depth: Positive = 3,
        changes: Changes = (),
        *,
        steps_per_launch: Positive = 1,
        earlier: Earlier | None = None,
        share: Share | None = None,
    ):
        """depth: launches (of `steps_per_launch` batches each) held ready per replica.

        seed: of the order of examples. changes, earlier: see RoundPositions.
        share: (first, count) of the replicas, after all changes, that are this process's; by default all.
        Raises InvalidArgumentError if an epoch does not fill one round.
        """
        self._share = share
        self.dataset = dataset
        self.depth = depth
        self.steps_per_launch = steps_per_launch
        self.order = BatchOrder(len(dataset), batch_size, seed)
        self.positions = RoundPositions(self.order, replicas, changes, earlier)
        self.on_devices = False  # whether the replicas make the batches, from recipes
        self._in_lockstep = False  # whether one ReadyLaunch comes for all replicas: not with fcfs
        # By number of a batch in its round: the device whose host memory holds it, and slots in that memory.
        self._hosts: list[Device] | None = None
        self._slots: list[list[HostSlot]] = []
        self._epochs: dict[int, NDArray[Any]] = {}  # by epoch: picks of all its batches

    @property
    def replicas(self) -> int:
        """Current number of replicas of this process: of the batches of a round that they take."""
        return self.positions.replicas if self._share is None else self._share[1]

    @property
    def rounds_per_epoch(self) -> int:
        """Complete rounds in an epoch with the current number of replicas."""
        return self.positions.rounds_per_epoch

    def resize(self, round: int, learners: AnyLearners) -> None:
        """Changes the number of replicas to that of `learners`, of all workers, from a round on.

        Raises InvalidArgumentError, without effect, when an epoch does not fill one round.
        """
        self.positions = self.positions.resized(round, learners.total)
        if self._share is not None:
            self._share = learners.numbers.start, learners.count
        if self._hosts is not None:
            self._hosts, self._slots = _hosts(learners), []
        self._in_lockstep = learners.options.in_lockstep

    def keep_on_devices(self, learners: AnyLearners, when: str = "auto") -> str:
        """Lets replicas make their batches from a data set kept on their devices; the bits stay the same.

        when: `auto` does so where the data set takes at most half of the free memory (CPU devices read it
        in place), `always` wherever it fits, `never`. Returns the reason if `auto` tried and failed, or "".
        The learners own the copies until they close.
        Otherwise batches are filled in host memory that the devices copy from; only one source may be open
        at a time then.
        Raises ResourceExhaustedError or InvalidArgumentError if `always` is impossible, and
        FailedPreconditionError while a run is going on.
        """
        self.on_devices, notice = keep_on_devices(learners, self.dataset, when)
        self._hosts, self._slots = None if self.on_devices else _hosts(learners), []
        self._in_lockstep = learners.options.in_lockstep
        return notice

    def _host_slots(self) -> list[list[HostSlot]] | None:
        """Slots for batches in host memory of the devices, by batch number; None if no devices are known."""
        count = self.depth * self.steps_per_launch
        if self._hosts is None:
            return None
        if not self._slots or len(self._slots[0]) != count:
            specs = self.dataset.batch_specs(self.order.batch_size)
            self._slots = [
                [
                    tuple(device.host_array(spec.extents, spec.dtype.as_numpy_dtype) for spec in specs)
                    for _ in range(count)
                ]
                for device in self._hosts
            ]
        return self._slots

    def recipes(self, rounds: range) -> RoundRecipes:
        """Recipes of the batches of some rounds, which may span several epochs."""
        parts: list[NDArray[Any]] = []
        begins: list[tuple[int, EpochPosition]] = []  # per part: index and position of its first round
        round, count = rounds.start, self.positions.replicas
        first_own, own = self._share or (0, count)
        while round < rounds.stop:
            position = self.positions.at(round)
            left = (self.order.batches_per_epoch - position.number) // count
            taken = min(left, rounds.stop - round)
            begins.append((round - rounds.start, position))
            picks = self._picks_of(position.epoch)[position.number : position.number + count * taken]
            shared = picks.reshape(taken, count, *picks.shape[1:])
            parts.append(np.ascontiguousarray(shared[:, first_own : first_own + own]))
            round += taken

        def key_of(index: int, replica: int) -> BatchKey:
            first, (epoch, number) = next(part for part in reversed(begins) if part[0] <= index)
            return BatchKey(self.order.seed, epoch, number + (index - first) * count + first_own + replica)

        return RoundRecipes(self.dataset, parts[0] if len(parts) == 1 else np.concatenate(parts), key_of)

    def _picks_of(self, epoch: int) -> NDArray[Any]:
        """Picks of all batches of an epoch, without augmentation: int64 [batches, batch_size, columns]; of
        arrays their rows, int64 [batches, batch_size].
        """
        picks = self._epochs.get(epoch)
        if picks is None:
            while len(self._epochs) >= EPOCHS:
                del self._epochs[min(self._epochs)]
            picks = self._epochs[epoch] = self._plain_picks(epoch)
        return picks

    def _plain_picks(self, epoch: int) -> NDArray[Any]:
        rows = self.order.batches(epoch)
        return rows if self.dataset.affine is None else plain_picks(rows, pick_columns(self.dataset))

    def open(
        self,
        start: int,
        stop: int,
        on_ready: OnReady,
        on_error: Callable[[BaseException], None],
    ) -> BatchSource:
        """Opens a source of rounds `start` to `stop` - 1, counted from the start of the run."""
        if self.on_devices:
            return (WholeRounds if self._in_lockstep else _Recipes)(self, start, stop, on_ready)
        if self.steps_per_launch > 1:
            return gathered(self._open_filled, self.steps_per_launch)(start, stop, on_ready, on_error)
        return self._open_filled(start, stop, on_ready, on_error)

    def _open_filled(
        self,
        start: int,
        stop: int,
        on_ready: OnReady,
        on_error: Callable[[BaseException], None],
    ) -> BatchSource:
        """Opens a source that fills each batch into host arrays."""
        holder: list[Prefetcher] = []
        slots = self._host_slots()
        position = self.positions.at(start)

        def ready(replica: int, batch: Batch) -> None:
            round = start + batch.claim.step
            inputs = batch.arrays if slots is None else PinnedArrays(batch.arrays)
            on_ready(ReadyBatch(replica, round, inputs, lambda: holder[0].release(batch)))

        prefetcher = Prefetcher(
            self.dataset,
            self.order,
            self.replicas,
            self.depth * self.steps_per_launch,
            start=(position.epoch, 0),
            on_ready=ready,
            on_error=on_error,
            max_rounds=stop - start,
            slots=slots,
            skipped=position.number,
            share=None if self._share is None else (self._share[0], self.positions.replicas),
        )
        holder.append(prefetcher)
        return prefetcher


def _hosts(learners: AnyLearners) -> list[Device]:
    """Devices in whose host memory the batches of a round are filled, by the batch's number in its round.

    With `fcfs` any replica may take a batch: then all use one memory from which every device can copy.
    """
    devices = [replica.device for replica in learners.replicas]
    if not learners.options.first_come:
        return devices
    pinning = next((device for device in devices if device.kind != "cpu"), devices[0])
    return [pinning] * len(devices)


class HasRecipes(Protocol):
    """Batches by round, of all replicas, as recipes."""

    depth: int  # launches held ready
    steps_per_launch: int

    @property
    def replicas(self) -> int:
        """Their number."""

    def recipes(self, rounds: range) -> RoundRecipes:
        """Recipes of some rounds."""


class _Recipes:
    """Source of recipes: passes on `depth` launches ahead, and another launch for each that is released.

    Making a recipe is cheap and happens in the caller's thread.
    """

    def __init__(self, batches: HasRecipes, start: int, stop: int, on_ready: OnReady):
        self._batches, self._start, self._stop, self._on_ready = batches, start, stop, on_ready
        self._steps = batches.steps_per_launch
        self._closed = False
        self._prepared: dict[int, RoundRecipes] = {}  # by group number, the last KEPT_GROUPS
        for launch in range(start, start + batches.depth):
            self._begin(launch)

    def _begin(self, launch: int) -> None:
        for batch_number in range(self._batches.replicas):
            self._hand_out(batch_number, launch)

    def _hand_out(self, batch_number: int, launch: int) -> None:
        inputs = self._inputs(launch)
        if inputs is not None:
            following = partial(self._hand_out, batch_number, launch + self._batches.depth)
            self._on_ready(ReadyBatch(batch_number, launch, inputs[batch_number], following))

    def _inputs(self, launch: int) -> LaunchRecipes | None:
        """Inputs of all replicas in a launch; None after the last launch."""
        start, steps, batches = self._start, self._steps, self._batches
        first = start + (launch - start) * steps
        if first >= self._stop or self._closed:
            return None
        group, index = divmod(launch - start, PREPARED if steps == 1 else 1)
        recipes = self._prepared.get(group)
        if recipes is None:
            rounds = range(
                first - index, min(first - index + (PREPARED if steps == 1 else steps), self._stop)
            )
            recipes = self._prepared[group] = batches.recipes(rounds)
            self._prepared.pop(group - KEPT_GROUPS, None)
        return LaunchRecipes(recipes, index if steps == 1 else None)

    def close(self) -> None:
        """Stops passing on recipes."""
        self._closed = True


class WholeRounds(_Recipes):
    """Source of recipes that passes on one ReadyLaunch per launch, for all replicas."""

    def _begin(self, launch: int) -> None:
        inputs = self._inputs(launch)
        if inputs is not None:
            self._on_ready(ReadyLaunch(launch, inputs, partial(self._begin, launch + self._batches.depth)))


def gathered(open_source: OpenSource, steps_per_launch: int) -> OpenSource:
    """Wraps a source of batches into a source of `BatchRun`s of `steps_per_launch` batches each.

    The wrapped source must fill that many batches per replica before one is released.
    """

    def open_runs(
        start: int,
        stop: int,
        on_ready: OnReady,
        on_error: Callable[[BaseException], None],
    ) -> BatchSource:
        waiting: dict[int, dict[int, ReadyBatch]] = {}  # by batch number and round
        lock = threading.Lock()  # owns `waiting`

        def ready(batch: ReadyBatch | ReadyLaunch) -> None:
            if isinstance(batch, ReadyLaunch):
                raise InvalidArgumentError(
                    "gathered: expected a source of each replica's batches, got one of whole rounds; make it "
                    "with steps_per_launch, as DatasetBatches(steps_per_launch=...)"
                )
            launch = (batch.launch - start) // steps_per_launch  # it is a round as yet
            first = start + launch * steps_per_launch
            rounds = range(first, min(first + steps_per_launch, stop))
            with lock:
                found = waiting.setdefault(batch.batch_number, {})
                found[batch.launch] = batch
                if any(round not in found for round in rounds):
                    return
                run = [found.pop(round) for round in rounds]

            def release() -> None:
                for each in run:
                    each.release()

            batches = [each.inputs for each in run if not isinstance(each.inputs, BatchRun)]
            on_ready(ReadyBatch(batch.batch_number, start + launch, BatchRun(batches), release))

        return open_source(start, stop, ready, on_error)

    return open_runs
