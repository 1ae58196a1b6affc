"""Batches filled ahead: their order, slots, augmentation, ends and errors.

As long as the list of its cases.
"""

import random
import threading
import time

import numpy as np
import pytest

from tensorbow.data import BatchOrder, ImageDataset, Prefetcher, make_synthetic
from tensorbow.errors import (
    AbortedError,
    CancelledError,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
)

EXAMPLES, BATCH_SIZE, SEED = 47, 3, 11


class SlowDataset(ImageDataset):
    """Waits at random before it fills, and once more in the middle."""

    delays = random.Random(0)
    longest_s = 0.002

    def fill(self, indices, images_out, labels_out, scratch=None, key=None):
        time.sleep(self.delays.random() * self.longest_s)
        images_out[...] = np.nan
        labels_out[...] = -1
        time.sleep(self.delays.random() * self.longest_s)
        super().fill(indices, images_out, labels_out, scratch)


class FailingDataset(ImageDataset):
    """Fails when asked for the batch whose first example is `poison`."""

    poison = -1

    def fill(self, indices, images_out, labels_out, scratch=None, key=None):
        if indices[0] == self.poison:
            raise OSError(5, "the disk\nis gone")
        super().fill(indices, images_out, labels_out, scratch)


def dataset_of(kind=ImageDataset):
    made, _ = make_synthetic(EXAMPLES, 1, height=4, width=5, channels=2, classes=6)
    return kind(made.name, made.images, made.labels, made.classes, made.mean, made.std)


DATA = dataset_of()
ORDER = BatchOrder(EXAMPLES, BATCH_SIZE, SEED)  # 15 batches per epoch


def expected_batch(epoch, number):
    images, labels = np.empty((BATCH_SIZE, 4, 5, 2), np.float32), np.empty(BATCH_SIZE, np.int64)
    DATA.fill(BatchOrder(EXAMPLES, BATCH_SIZE, SEED).indices(epoch, number), images, labels)
    return images, labels


def assert_is_batch(batch, replica, replicas, step, start=(0, 0)):
    """Asserts that `batch` is batch number `step` of replica `replica`."""
    rounds = 15 // replicas
    epoch, round_ = divmod(start[0] * rounds + start[1] + step, rounds)
    number = round_ * replicas + replica
    assert (batch.replica, batch.epoch, batch.round, batch.number) == (replica, epoch, round_, number)
    images, labels = expected_batch(epoch, number)
    np.testing.assert_array_equal(batch.images, images)
    np.testing.assert_array_equal(batch.labels, labels)


@pytest.mark.parametrize("replicas", [1, 2, 4, 15])
@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("start", [(0, 0), (2, 1)])
def test_batches_come_in_order_and_over_the_borders_of_epochs(replicas, depth, start):
    with Prefetcher(DATA, ORDER, replicas, depth, start) as prefetcher:
        for step in range(2 * (15 // replicas) + 1):
            for replica in range(replicas):
                batch = prefetcher.take(replica, timeout=10)
                assert_is_batch(batch, replica, replicas, step, start)
                prefetcher.release(batch)


@pytest.mark.parametrize("attempt", range(12))
@pytest.mark.sampled(5)
def test_contents_are_the_same_whatever_the_timing(attempt):
    delays = random.Random(attempt)
    slow = dataset_of(SlowDataset)
    replicas, depth, steps = delays.choice([1, 2, 3, 5]), delays.choice([1, 2, 3]), 12
    failures = []

    def consume(replica, prefetcher, pauses):
        held = []
        try:
            for step in range(steps):
                held.append((prefetcher.take(replica, timeout=20), step))
                time.sleep(pauses.random() * 0.003)
                while held and (len(held) == depth or pauses.random() < 0.5):
                    batch, of_step = held.pop(0)
                    assert_is_batch(batch, replica, replicas, of_step)  # not overwritten while it was held
                    prefetcher.release(batch)
            with pytest.raises(OutOfRangeError, match=f"last batch, round {steps}"):
                prefetcher.take(replica, timeout=20)
        except BaseException as error:
            failures.append(error)

    with Prefetcher(slow, ORDER, replicas, depth, max_rounds=steps) as prefetcher:
        threads = [
            threading.Thread(
                target=consume, args=(replica, prefetcher, random.Random(100 * attempt + replica))
            )
            for replica in range(replicas)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_nothing_is_overwritten_before_its_release():
    with Prefetcher(DATA, ORDER, replicas=2, depth=3) as prefetcher:
        held = [prefetcher.take(0, timeout=10) for _ in range(3)]
        for step in range(10):  # the other replica goes on meanwhile
            batch = prefetcher.take(1, timeout=10)
            assert_is_batch(batch, 1, 2, step)
            prefetcher.release(batch)
        assert len({batch.slot for batch in held}) == 3
        for step, batch in enumerate(held):
            assert_is_batch(batch, 0, 2, step)
        with pytest.raises(
            FailedPreconditionError, match=r"within 0.05 s; 3 of its 3 slots wait for their release"
        ):
            prefetcher.take(0, timeout=0.05)
        prefetcher.release(held[1])
        fourth = prefetcher.take(0, timeout=10)
        assert fourth.slot == held[1].slot
        assert_is_batch(fourth, 0, 2, 3)
        assert_is_batch(held[0], 0, 2, 0)
        assert_is_batch(held[2], 0, 2, 2)


def test_batches_are_filled_ahead_of_use():
    filled = threading.Semaphore(0)

    class Counting(ImageDataset):
        def fill(self, *arguments):
            super().fill(*arguments)
            filled.release()

    with Prefetcher(dataset_of(Counting), ORDER, replicas=2, depth=3):
        for _ in range(6):
            assert filled.acquire(timeout=10)
        assert not filled.acquire(timeout=0.05)  # all slots are full: it waits


def test_callbacks_get_every_batch_in_order():
    arrived, done, box = [], threading.Event(), []
    ready = threading.Event()

    def on_ready(replica, batch):
        assert ready.wait(10)
        assert batch.replica == replica
        arrived.append(replica)
        assert_is_batch(batch, replica, 3, arrived.count(replica) - 1)
        box[0].release(batch)
        if len(arrived) == 3 * 12:
            done.set()

    with Prefetcher(DATA, ORDER, 3, on_ready=on_ready, max_rounds=12) as prefetcher:
        box.append(prefetcher)
        ready.set()
        assert done.wait(10)
        with pytest.raises(FailedPreconditionError, match="hands its batches to on_ready"):
            prefetcher.take(0)
    assert arrived == [0, 1, 2] * 12


def test_released_from_another_thread_and_out_of_order():
    batches, errors = [], []
    changed = threading.Condition()

    def on_ready(replica, batch):
        with changed:
            batches.append(batch)
            changed.notify()

    counts = [0, 0]
    with Prefetcher(
        DATA, ORDER, 2, depth=2, on_ready=on_ready, on_error=errors.append, epochs=3
    ) as prefetcher:
        while counts != [21, 21]:
            with changed:
                assert changed.wait_for(lambda: batches, timeout=10)
                batch = batches.pop()
            steps = (batch.epoch * 7) + batch.round
            assert_is_batch(batch, batch.replica, 2, steps)
            counts[batch.replica] += 1
            prefetcher.release(batch)
    assert not errors


@pytest.mark.parametrize(
    ("start", "limits", "rounds"),
    [
        ((0, 0), {"max_rounds": 0}, 0),
        ((0, 0), {"max_rounds": 9}, 9),
        ((0, 0), {"epochs": 2}, 14),
        ((1, 3), {"epochs": 2}, 4),
        ((1, 7), {"epochs": 2}, 0),  # the end of an epoch is the start of the next
        ((4, 0), {"epochs": 2}, 0),
        ((1, 3), {"epochs": 2, "max_rounds": 2}, 2),
        ((1, 3), {"epochs": 2, "max_rounds": 20}, 4),
    ],
)
def test_the_end(start, limits, rounds):
    with Prefetcher(DATA, ORDER, 2, start=start, **limits) as prefetcher:
        for step in range(rounds):
            for replica in range(2):
                batch = prefetcher.take(replica, timeout=10)
                assert_is_batch(batch, replica, 2, step, start)
                prefetcher.release(batch)
        for replica in range(2):
            with pytest.raises(OutOfRangeError, match=f"replica {replica} has had its last batch"):
                prefetcher.take(replica, timeout=10)


def failing_at(epoch, number):
    failing = dataset_of(FailingDataset)
    object.__setattr__(failing, "poison", ORDER.indices(epoch, number)[0])
    return failing


def test_a_failure_reaches_every_consumer_after_what_was_filled_before():
    number = 5  # round 2 of replica 1; each example is the first of one batch of an epoch at most
    with Prefetcher(failing_at(0, number), ORDER, 2, depth=4) as prefetcher:
        for step in range(2):
            assert_is_batch(prefetcher.take(0, timeout=10), 0, 2, step)
            assert_is_batch(prefetcher.take(1, timeout=10), 1, 2, step)
        for _ in range(2):
            with pytest.raises(
                AbortedError, match=r"failed at epoch 0, round 2, replica 1: OSError: .*the disk is gone"
            ) as raised:
                prefetcher.take(1, timeout=10)
            assert isinstance(raised.value.__cause__, OSError)
            assert "\n" not in str(raised.value)
        assert_is_batch(prefetcher.take(0, timeout=10), 0, 2, 2)
        with pytest.raises(AbortedError, match="the disk is gone"):
            prefetcher.take(0, timeout=10)


def test_a_failure_wakes_a_waiting_consumer():
    class Late(ImageDataset):
        def fill(self, *arguments):
            time.sleep(0.05)
            raise RuntimeError("too late")

    with Prefetcher(dataset_of(Late), ORDER, 1) as prefetcher, pytest.raises(AbortedError, match="too late"):
        prefetcher.take(0, timeout=10)


def test_a_failure_is_told_to_on_error_once():
    errors, told = [], threading.Event()

    def on_error(error):
        errors.append(error)
        told.set()

    def on_ready(replica, batch):
        raise KeyError("callback")

    with Prefetcher(DATA, ORDER, 2, on_ready=on_ready, on_error=on_error):
        assert told.wait(10)
    assert [type(error) for error in errors] == [AbortedError]
    assert "epoch 0, round 0, replica 0: KeyError: 'callback'" in str(errors[0])
    assert isinstance(errors[0].__cause__, KeyError)


def test_close_wakes_consumers_that_wait():
    caught, waiting = [], threading.Barrier(3)
    prefetcher = Prefetcher(DATA, ORDER, 2, depth=1)
    for replica in range(2):
        prefetcher.take(replica, timeout=10)  # and never released: the next take waits for ever

    def wait(replica):
        waiting.wait(10)
        try:
            prefetcher.take(replica)
        except CancelledError as error:
            caught.append(str(error))

    threads = [threading.Thread(target=wait, args=(replica,)) for replica in range(2)]
    for thread in threads:
        thread.start()
    waiting.wait(10)
    time.sleep(0.02)
    prefetcher.close()
    for thread in threads:
        thread.join(60)
    assert len(caught) == 2
    assert all("the prefetcher is closed" in message for message in caught)


def test_close_at_any_moment_ends_the_thread():
    slow = dataset_of(SlowDataset)
    pauses = random.Random(5)
    before = threading.active_count()
    for _ in range(40):
        delivered_after_close, closed = [], threading.Event()

        def on_ready(replica, batch, closed=closed, late=delivered_after_close):
            if closed.is_set():
                late.append(batch)

        with_callback = pauses.random() < 0.5
        prefetcher = Prefetcher(slow, ORDER, 3, 2, on_ready=on_ready if with_callback else None)
        time.sleep(pauses.random() * 0.01)
        prefetcher.close()
        closed.set()
        prefetcher.close()
        assert not delivered_after_close
        assert threading.active_count() == before


def test_close_from_a_callback_does_not_wait_for_itself():
    box, ready, ended = [], threading.Event(), threading.Event()

    def on_ready(replica, batch):
        assert ready.wait(10)
        box[0].close()
        ended.set()

    prefetcher = Prefetcher(DATA, ORDER, 2, on_ready=on_ready)
    box.append(prefetcher)
    ready.set()
    assert ended.wait(10)
    prefetcher.close()


def test_close_does_not_hang_on_a_callback_that_does():
    entered, stuck = threading.Event(), threading.Event()

    def on_ready(replica, batch):
        entered.set()
        stuck.wait(10)

    prefetcher = Prefetcher(DATA, ORDER, 1, on_ready=on_ready)
    assert entered.wait(10)
    with pytest.raises(AbortedError, match=r"did not end within 0\.05 s: a callback"):
        prefetcher.close(timeout=0.05)
    stuck.set()
    prefetcher.close()


def test_a_batch_is_released_once_and_at_home():
    with Prefetcher(DATA, ORDER, 1) as prefetcher, Prefetcher(DATA, ORDER, 1) as other:
        batch = prefetcher.take(0, timeout=10)
        prefetcher.release(batch)
        with pytest.raises(FailedPreconditionError, match=r"batch 0 of epoch 0 .* is not lent"):
            prefetcher.release(batch)
        other.take(0, timeout=10)
        with pytest.raises(FailedPreconditionError, match="to the prefetcher it came from"):
            other.release(batch)
        last = prefetcher.take(0, timeout=10)
    prefetcher.release(last)  # after close: nothing to do
    with pytest.raises(CancelledError, match="replica 0 gets no more batches"):
        prefetcher.take(0)
    assert_is_batch(last, 0, 1, 1)


def test_slots_of_the_caller_are_filled():
    memory = np.zeros((2, 3, BATCH_SIZE, 4, 5, 2), np.float32)
    labels = np.zeros((2, 3, BATCH_SIZE), np.int64)
    slots = [[(memory[replica, slot], labels[replica, slot]) for slot in range(3)] for replica in range(2)]
    with Prefetcher(DATA, ORDER, 2, slots=slots) as prefetcher:
        for step in range(8):
            batch = prefetcher.take(1, timeout=10)
            assert_is_batch(batch, 1, 2, step)
            assert batch.images is slots[1][batch.slot][0]
            prefetcher.release(batch)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"replicas": 0}, "Prefetcher: expected replicas to be a whole number of at least 1, got int 0"),
        ({"replicas": 16}, "47 examples make 15 batches of 3, fewer than the 16"),
        ({"depth": 0}, "expected depth to be a whole number from 1 to 4096, got int 0"),
        ({"start": (-1, 0)}, "expected start to be an epoch and a round of it"),
        ({"start": (0, 8)}, "expected the round of start to be a whole number from 0 to 7, got int 8"),
        ({"max_rounds": -1}, "expected max_rounds to be a whole number of at least 0 or None, got int -1"),
        ({"order": BatchOrder(46, 3, 0)}, "order is over 46 examples, but data set 'synthetic/train' has 47"),
        ({"slots": []}, r"at least one for each of 2 replicas; got \[\]"),
        ({"slots": [[], []]}, r"got \[0, 0\]"),
        (
            {"slots": [[(np.zeros((3, 5, 4, 2), np.float32), np.zeros(3, np.int64))]] * 2},
            r"slots of replica 0 must be float32 \[3, 4, 5, 2\] and int64 \[3\]; got float32 \[3, 5, 4, 2\]",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(InvalidArgumentError, match=words):
        Prefetcher(**{"dataset": DATA, "order": ORDER, "replicas": 2, **arguments})
    with (
        Prefetcher(DATA, ORDER, 2) as prefetcher,
        pytest.raises(
            InvalidArgumentError, match="expected replica to be a whole number from 0 to 1, got int 2"
        ),
    ):
        prefetcher.take(2)


def test_batches_at_the_start_can_be_left_out() -> None:
    """The rest of an epoch in rounds of another size: the last batch of it makes no round."""
    per_epoch = ORDER.batches_per_epoch
    skipped = per_epoch - 3
    with Prefetcher(DATA, ORDER, 2, start=(4, 0), skipped=skipped, epochs=6) as prefetcher:
        taken = []
        for _ in range(1 + per_epoch // 2):
            for replica in range(2):
                batch = prefetcher.take(replica, timeout=30)
                taken.append((batch.epoch, batch.number))
                prefetcher.release(batch)
        with pytest.raises(OutOfRangeError):
            prefetcher.take(0, timeout=30)
    whole = per_epoch // 2 * 2
    assert taken == [(4, skipped), (4, skipped + 1), *((5, number) for number in range(whole))]
    with pytest.raises(InvalidArgumentError, match="expected skipped to be a whole number from 0 to"):
        Prefetcher(DATA, ORDER, 2, skipped=per_epoch + 1)
