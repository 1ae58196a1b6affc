"""Fills batches ahead of use, in a background thread."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.data.array_dataset import AsTrainingData
from tensorbow.data.augmentation import BatchKey
from tensorbow.data.batch_order import BatchOrder
from tensorbow.data.prefetch_slots import Claim, SlotRing
from tensorbow.errors import (
    AbortedError,
    CancelledError,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
)
from tensorbow.kinds import (
    ITEMS,
    Count,
    Function,
    Kind,
    Positive,
    RefusedError,
    checked,
    instance,
    number,
    read_as,
    sequence,
    whole,
)
from tensorbow.specs import Array

HostSlot = tuple[Array, ...]
"""Memory of one batch: an array for each of a data set, as images [batch_size, ...] and labels."""

Depth: TypeAlias = Annotated[int, whole(1, 4096)]
Seconds: TypeAlias = Annotated[float, number(0, 1e9)]


def _read_slots(value: Any) -> list[list[HostSlot]]:
    lanes = [ITEMS.read(lane) for lane in ITEMS.read(value)]
    for slot in (slot for lane in lanes for slot in lane):
        if not all(isinstance(array, np.ndarray) for array in ITEMS.read(slot)):
            raise RefusedError
    return lanes


Slots: TypeAlias = Annotated[
    list[list[HostSlot]],
    Kind("by replica a list of tuples of arrays to fill, as (images, labels)", _read_slots),
]
_NUMBERS = sequence(whole(0), "")


def _read_start(value: Any) -> tuple[int, int]:
    numbers = _NUMBERS.read(value)
    if len(numbers) != 2:
        raise RefusedError
    return numbers[0], numbers[1]


Start: TypeAlias = Annotated[
    tuple[int, int], Kind("an epoch and a round of it, whole numbers of at least 0", _read_start)
]


@dataclass(frozen=True, eq=False)
class Batch:
    """One batch of one replica, in slot `slot` of its replica until it is released.

    number: within the epoch (see BatchOrder). round: within the epoch.
    arrays: of a data set of pictures the images, float32 [batch_size, height, width, channels], normalised,
        and the labels, int64 [batch_size].
    """

    replica: int
    epoch: int
    round: int
    number: int
    arrays: tuple[Array, ...]
    slot: int
    claim: Claim

    @property
    def images(self) -> Array:
        """The first array."""
        return self.arrays[0]

    @property
    def labels(self) -> Array:
        """The last array."""
        return self.arrays[-1]


AsBatch: TypeAlias = Annotated[Batch, instance(Batch, expected="a batch of this prefetcher")]


class Prefetcher:
    """Keeps up to `depth` batches per replica filled ahead of use, in one background thread.

    The batches of a replica and their order are a pure function of (dataset, order, replicas, start),
    independent of timing and depth: round by round, across epochs. The replica furthest behind is served
    first; one that does not release its slots does not delay the others. A batch's arrays are the memory of
    its slot: valid until `release`, overwritten some time afterwards.

    Without `on_ready`, consumers call `take`. With it, each batch is passed to `on_ready(replica, batch)`
    in the background thread, with no lock held; it may be called before this constructor has returned,
    never after `close` has. `on_error(error)` is called once if the thread fails. Callbacks should return
    quickly: nothing is filled while they run.

    Use it in a `with` statement, or call `close`. All methods are safe from any thread.
    """

    @checked
    def __init__(
        self,
        dataset: AsTrainingData,
        order: Annotated[BatchOrder, instance(BatchOrder, expected="a tb.data.BatchOrder")],
        replicas: Positive,
        depth: Depth = 2,
        start: Start = (0, 0),
        on_ready: Function | None = None,
        *,
        on_error: Function | None = None,
        max_rounds: Count | None = None,
        epochs: Count | None = None,
        slots: Slots | None = None,
        skipped: Count = 0,
        share: Start | None = None,
    ) -> None:
        """Starts the thread at round start[1] of epoch start[0].

        skipped: number of batches left out at the beginning of that epoch, before its round 0.
        max_rounds, epochs: stop after `max_rounds` rounds, or before epoch number `epochs`, whichever is
            first; without both, never.
        slots: `slots[replica][slot]` are the arrays to fill (such as pinned memory); replaces `depth`. The
            caller keeps them alive until `close`; they must not overlap.

        share: (first, batches) of each round where other processes have the others: the first one that these
            replicas take, and how many there are in a round. By default a round has one for each replica.

        Raises InvalidArgumentError for arguments that do not fit together.
        """
        self.replicas = replicas
        self._first, self._batches = share or (0, replicas)
        if self._first + replicas > self._batches:
            raise InvalidArgumentError(
                f"prefetch: expected a share of {replicas} batches in a round, got {share}: (first, batches)"
            )
        self.rounds_per_epoch = order.rounds_per_epoch(self._batches)
        if order.examples != len(dataset):
            raise InvalidArgumentError(
                f"prefetch: the order is over {order.examples} examples, "
                f"but data set {dataset.name!r} has {len(dataset)}"
            )
        self._epoch = start[0]
        self._skipped = read_as(whole(0, order.batches_per_epoch), skipped, "Prefetcher", "skipped")
        rounds = (order.batches_per_epoch - self._skipped) // self._batches
        self._round = read_as(whole(0, rounds), start[1], "Prefetcher", "the round of start")
        self._left = rounds - self._round  # rounds of the first epoch
        limits = []
        if max_rounds is not None:
            limits.append(max_rounds)
        if epochs is not None:
            further = epochs - self._epoch - 1
            limits.append(max(0, self._left + further * self.rounds_per_epoch))
        self._dataset, self._order = dataset, order
        self._on_ready, self._on_error = on_ready, on_error
        self._slots = self._allocated(depth) if slots is None else slots
        self._check_slots()
        self._ring = SlotRing([len(lane) for lane in self._slots], min(limits, default=None))

        # One lock guards the ring and the fields below; the thread waits on _room, consumers on _filled.
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._filled = threading.Condition(self._lock)
        self._closed = False
        self._failure: tuple[str, BaseException] | None = None
        self._lent: dict[Claim, Batch] = {}
        self._thread = threading.Thread(target=self._run, name="tensorbow-prefetch", daemon=True)
        self._thread.start()

    @checked
    def take(self, replica: Any, timeout: Seconds | None = None) -> Batch:
        """Returns the replica's next batch; waits for it, at most `timeout` seconds.

        Raises FailedPreconditionError after the timeout or if batches go to `on_ready`; OutOfRangeError
        after the last batch; AbortedError if the background thread has failed and no filled batch is left;
        CancelledError when the prefetcher is closed, also while waiting.
        """
        replica = read_as(whole(0, self.replicas - 1), replica, "Prefetcher.take", "replica")
        if self._on_ready is not None:
            raise FailedPreconditionError(
                "this prefetcher hands its batches to on_ready: there is none to take"
            )
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while True:
                if self._closed:
                    raise CancelledError(f"the prefetcher is closed: replica {replica} gets no more batches")
                claim = self._ring.lend(replica)
                if claim is not None:
                    batch = self._lent[claim] = self._batch(claim)
                    return batch
                if self._failure is not None:
                    raise self._aborted()
                if self._ring.finished(replica):
                    raise OutOfRangeError(
                        f"replica {replica} has had its last batch, round {self._ring.steps} from the start"
                    )
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    lent, depth = self._ring.lent_count(replica), len(self._slots[replica])
                    raise FailedPreconditionError(
                        f"no batch for replica {replica} within {timeout} s; "
                        f"{lent} of its {depth} slots wait for their release"
                    )
                self._filled.wait(left)

    @checked
    def release(self, batch: AsBatch) -> None:
        """Returns the batch's slot, to be filled again; no effect after `close`.

        Raises FailedPreconditionError if it is not lent, as for a second release.
        """
        with self._lock:
            if self._closed:
                return
            if self._lent.get(batch.claim) is not batch:
                raise FailedPreconditionError(
                    f"batch {batch.number} of epoch {batch.epoch} (replica {batch.replica}, slot "
                    f"{batch.slot}) is not lent: a batch is released once, to the prefetcher it came from"
                )
            del self._lent[batch.claim]
            self._ring.give_back(batch.claim)
            self._room.notify()

    @checked
    def close(self, timeout: Seconds = 10.0) -> None:
        """Ends the thread and waits for it; waiting consumers get CancelledError. Idempotent.

        From a callback it only requests the end. Raises AbortedError if the thread is still busy after
        `timeout` seconds, because a callback or the data set's `fill` does not return.
        """
        with self._lock:
            self._closed = True
            self._room.notify_all()
            self._filled.notify_all()
        if threading.current_thread() is self._thread:
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise AbortedError(
                f"the prefetch thread did not end within {timeout} s: "
                "a callback or the data set's fill does not return"
            )
        self._on_ready = self._on_error = None  # they may reference this object, and keep its slots alive

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self) -> None:
        claim: Claim | None = None
        try:
            scratch = self._dataset.scratch(self._order.batch_size)
            while (claim := self._next_claim()) is not None:
                self._fill(claim, scratch)
                batch = self._publish(claim)
                if batch is not None and self._on_ready is not None:
                    self._on_ready(claim.replica, batch)
        except BaseException as error:
            self._fail(claim, error)

    def _next_claim(self) -> Claim | None:
        """Waits for a free slot and claims it; None when nothing is left to fill."""
        with self._lock:
            while not self._closed and not self._ring.all_claimed:
                claim = self._ring.claim()
                if claim is not None:
                    return claim
                self._room.wait()
            return None

    def _fill(self, claim: Claim, scratch: Any) -> None:
        epoch, _, number = self._position(claim)
        slot = self._slots[claim.replica][claim.slot]
        indices, key = self._order.indices(epoch, number), BatchKey(self._order.seed, epoch, number)
        self._dataset.write(indices, slot, scratch, key)

    def _publish(self, claim: Claim) -> Batch | None:
        """Marks a batch as ready; returns it if it goes to `on_ready`."""
        with self._lock:
            self._ring.filled(claim)
            if self._closed:
                return None
            if self._on_ready is None:
                self._filled.notify_all()
                return None
            lent = self._ring.lend(claim.replica)
            if lent is None:
                return None
            batch = self._lent[lent] = self._batch(lent)
            return batch

    def _fail(self, claim: Claim | None, error: BaseException) -> None:
        where = ""
        if claim is not None:
            epoch, round_, _ = self._position(claim)
            where = f" at epoch {epoch}, round {round_}, replica {claim.replica}"
        text = " ".join(str(error).split())
        with self._lock:
            self._failure = f"the prefetch thread failed{where}: {type(error).__name__}: {text}", error
            self._filled.notify_all()
            closed = self._closed
        if self._on_error is not None and not closed:
            self._on_error(self._aborted())

    def _aborted(self) -> AbortedError:
        message, cause = self._failure or ("the prefetch thread failed", None)
        aborted = AbortedError(message)
        aborted.__cause__ = cause
        return aborted

    def _position(self, claim: Claim) -> tuple[int, int, int]:
        """(epoch, round, number) of a claim's batch."""
        own = self._first + claim.replica
        if claim.step < self._left:
            round_ = self._round + claim.step
            return self._epoch, round_, self._skipped + round_ * self._batches + own
        epochs, round_ = divmod(claim.step - self._left, self.rounds_per_epoch)
        return self._epoch + 1 + epochs, round_, round_ * self._batches + own

    def _batch(self, claim: Claim) -> Batch:
        epoch, round_, number = self._position(claim)
        arrays = self._slots[claim.replica][claim.slot]
        return Batch(claim.replica, epoch, round_, number, tuple(arrays), claim.slot, claim)

    def _allocated(self, depth: int) -> list[list[HostSlot]]:
        specs = self._dataset.batch_specs(self._order.batch_size)
        return [
            [tuple(np.zeros(spec.extents, spec.dtype.as_numpy_dtype) for spec in specs) for _ in range(depth)]
            for _ in range(self.replicas)
        ]

    def _check_slots(self) -> None:
        specs = self._dataset.batch_specs(self._order.batch_size)
        wanted = [(spec.dtype.as_numpy_dtype, spec.extents) for spec in specs]
        if len(self._slots) != self.replicas or not all(self._slots):
            raise InvalidArgumentError(
                f"prefetch: slots must hold at least one for each of {self.replicas} replicas; "
                f"got {[len(lane) for lane in self._slots]}"
            )
        for replica, lane in enumerate(self._slots):
            for slot in lane:
                if [(array.dtype, array.shape) for array in slot] != wanted:
                    expected = " and ".join(f"{np.dtype(dtype)} {list(dims)}" for dtype, dims in wanted)
                    got = " and ".join(f"{array.dtype} {list(array.shape)}" for array in slot)
                    raise InvalidArgumentError(
                        f"prefetch: slots of replica {replica} must be {expected}; got {got or 'none'}"
                    )
