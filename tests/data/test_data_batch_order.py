import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorbow.data import BatchOrder, random_words
from tensorbow.errors import InvalidArgumentError, OutOfRangeError

SEEDS = st.integers(0, 2**64 - 1)


def epoch_of(order, epoch):
    return np.concatenate([order.indices(epoch, number) for number in range(order.batches_per_epoch)])


@given(st.data(), SEEDS, st.integers(0, 2**40))
def test_batches_of_an_epoch_are_disjoint(data, seed, epoch):
    examples = data.draw(st.integers(1, 200))
    batch_size = data.draw(st.integers(1, examples))
    order = BatchOrder(examples, batch_size, seed)
    seen = epoch_of(order, epoch)
    assert seen.dtype == np.int64
    assert seen.size == order.batches_per_epoch * batch_size == examples - examples % batch_size
    assert np.unique(seen).size == seen.size
    assert seen.min() >= 0
    assert seen.max() < examples


@given(SEEDS, st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=30))
def test_indices_are_pure_whatever_was_asked_before(seed, questions):
    asked = BatchOrder(70, 7, seed)
    for epoch, number in questions:
        fresh = BatchOrder(70, 7, seed).indices(epoch, number)
        np.testing.assert_array_equal(asked.indices(epoch, number), fresh)


@settings(max_examples=30)
@given(SEEDS, SEEDS, st.integers(0, 100), st.integers(0, 100))
def test_other_seeds_and_epochs_are_other_orders(seed, other_seed, epoch, other_epoch):
    left, right = BatchOrder(300, 30, seed), BatchOrder(300, 30, other_seed)
    if (seed, epoch) != (other_seed, other_epoch):
        assert (epoch_of(left, epoch) != epoch_of(right, other_epoch)).any()


@given(SEEDS, st.integers(1, 9), st.integers(1, 9))
def test_the_batch_size_cuts_the_same_order(seed, one, other):
    left, right = epoch_of(BatchOrder(60, one, seed), 2), epoch_of(BatchOrder(60, other, seed), 2)
    shared = min(left.size, right.size)
    np.testing.assert_array_equal(left[:shared], right[:shared])


def test_the_order_is_what_checkpoints_rely_on():
    order = BatchOrder(1000, 4, seed=7)
    assert [order.indices(0, 0).tolist(), order.indices(3, 249).tolist()] == PINNED


PINNED = [[124, 496, 715, 366], [583, 459, 489, 504]]


def test_the_order_is_uniform_enough():
    hits = np.zeros((20, 20))
    for epoch in range(2000):
        hits[np.arange(20), BatchOrder(20, 20, seed=1).indices(epoch, 0)] += 1
    statistic = ((hits - 100) ** 2 / 100).sum()  # chi-squared with 19 * 19 degrees of freedom
    assert abs(statistic - 361) < 5 * (2 * 361) ** 0.5


def test_examples_dropped_at_the_end_change_from_epoch_to_epoch():
    order = BatchOrder(10, 3, seed=0)
    dropped = {next(iter(set(range(10)) - set(epoch_of(order, epoch).tolist()))) for epoch in range(300)}
    assert dropped == set(range(10))


def test_the_answer_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        BatchOrder(9, 3, 0).indices(0, 0)[0] = 1


def test_threads_share_an_order():
    order, failures = BatchOrder(500, 5, seed=4), []
    expected = {epoch: epoch_of(BatchOrder(500, 5, seed=4), epoch) for epoch in range(6)}

    def ask(thread):
        for step in range(120):
            epoch = (step + thread) % 6
            if (order.indices(epoch, step % 100) != expected[epoch][step % 100 * 5 :][:5]).any():
                failures.append((thread, step))

    threads = [threading.Thread(target=ask, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_rounds():
    order = BatchOrder(100, 10, 0)
    assert [order.rounds_per_epoch(replicas) for replicas in (1, 3, 4, 10)] == [10, 3, 2, 1]
    with pytest.raises(
        InvalidArgumentError,
        match="100 examples make 10 batches of 10, fewer than the 11 that one round of 11 replicas needs",
    ):
        order.rounds_per_epoch(11)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((3, 4, 0), "3 examples do not fill one batch of 4"),
        ((0, 1, 0), "BatchOrder: expected examples to be a whole number of at least 1, got int 0"),
        ((8, 0, 0), "expected batch_size to be a whole number of at least 1, got int 0"),
        ((8, 2, -1), "expected seed to be a whole number from 0 to 18446744073709551615, got int -1"),
        ((8, 2, 2**64), "expected seed to be"),
        ((8, 2.0, 0), "expected batch_size to be a whole number of at least 1, got float 2.0"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(InvalidArgumentError, match=words):
        BatchOrder(*arguments)


def test_batches_outside_the_epoch():
    order = BatchOrder(10, 3, 0)
    for number in (-1, 3):
        with pytest.raises(
            OutOfRangeError, match=rf"batches 0\.\.2 \(10 examples, batch_size 3\); got {number}"
        ):
            order.indices(0, number)
    with pytest.raises(InvalidArgumentError, match="expected epoch to be a whole number from 0 to"):
        order.indices(-1, 0)
    with pytest.raises(
        InvalidArgumentError, match="expected replicas to be a whole number of at least 1, got int 0"
    ):
        order.rounds_per_epoch(0)


def test_equal_words_stay_in_order(monkeypatch):
    """The order is that of a stable sort, also where words are drawn twice."""
    words = np.random.default_rng(0).integers(0, 50, 3000).astype(np.uint64)
    for drawn in (words, np.unique(words), np.arange(3000, dtype=np.uint64)[::-1] << np.uint64(50)):
        monkeypatch.setattr(random_words, "random_words", lambda *given, drawn=drawn: drawn)
        order = random_words.permutation(drawn.size, random_words.Purpose.BATCH_ORDER, (1, 2))
        assert order.dtype == np.int64
        assert order.tolist() == np.argsort(drawn, kind="stable").tolist()
