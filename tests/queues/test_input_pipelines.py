"""Coordinator, queue runners and input pipelines: producers, batches, ends of epochs, errors of threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, OutOfRangeError


def all_of(session, fetches):
    """Values of the fetches until the input ends; no thread is left."""
    found = []
    coordinator = tb.train.Coordinator()
    threads = tb.train.start_queue_runners(session, coordinator)
    try:
        while True:
            found.append(session.run(fetches))
    except OutOfRangeError:
        pass
    coordinator.request_stop()
    coordinator.join(threads)
    assert not any(thread.is_alive() for thread in threads)
    return found


def test_slices_of_two_tensors_belong_together_in_each_epoch(session):
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    row, label = tb.train.slice_input_producer([x, np.arange(5)], num_epochs=2, seed=1)
    batch = tb.train.batch([row, label], 5, name="pairs")
    epochs = all_of(session, batch)
    assert len(epochs) == 2
    for rows, labels in epochs:
        np.testing.assert_array_equal(np.sort(labels), np.arange(5))
        np.testing.assert_array_equal(rows, x[labels])
    assert list(epochs[0][1]) != list(epochs[1][1])


@pytest.mark.parametrize("smaller", [False, True])
def test_the_last_batch_is_dropped_or_smaller(session, smaller):
    number = tb.train.range_input_producer(7, num_epochs=1, shuffle=False).dequeue()
    batch = tb.train.batch({"n": number}, 3, allow_smaller_final_batch=smaller)
    found = [list(each["n"]) for each in all_of(session, batch)]
    assert found == [[0, 1, 2], [3, 4, 5], [6]][: 3 if smaller else 2]


def test_shuffled_batches_have_every_example_once(session):
    number = tb.train.range_input_producer(60, num_epochs=1, shuffle=False).dequeue()
    batch = tb.train.shuffle_batch([number], 10, 50, 20, num_threads=3, seed=2)
    found = np.concatenate(all_of(session, batch))
    assert sorted(found) == list(range(60))
    assert list(found) != sorted(found)


def test_batches_of_several_sources_and_padding(session):
    one = tb.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
    two = tb.train.range_input_producer(6, num_epochs=1, shuffle=False).dequeue()
    joined = tb.train.shuffle_batch_join([[one], [two + 10]], 5, 20, 0)
    assert sorted(np.concatenate(all_of(session, joined))) == [
        *range(4), *range(10, 16),
    ]  # fmt: skip
    with tb.Graph().as_default(), tb.Session() as other:
        count = tb.train.range_input_producer(3, num_epochs=1, shuffle=False).dequeue()
        padded = tb.train.batch_join([[tb.fill([count], count)]], 3, dynamic_pad=True)
        (rows,) = all_of(other, padded)
        np.testing.assert_array_equal(rows, [[0, 0], [1, 0], [2, 2]])


def test_an_error_of_a_thread_is_raised_by_join(session):
    queue = tb.FIFOQueue(3, tb.int32)
    numbers = tb.placeholder(tb.int32, [], name="numbers")
    runner = tb.train.QueueRunner(queue, [queue.enqueue(numbers)])
    tb.train.add_queue_runner(runner)
    coordinator = tb.train.Coordinator()
    threads = tb.train.start_queue_runners(coord=coordinator)
    with pytest.raises(InvalidArgumentError, match="numbers"):
        coordinator.join(threads)
    assert coordinator.should_stop()
    alone = runner.create_threads(session, start=True)
    for thread in alone:
        thread.join(20)
    assert len(runner.exceptions_raised) == 1


def test_a_coordinator_stops_all_threads_and_raises_the_first_error():
    with tb.train.Coordinator() as coordinator:
        seen = []

        def work(number):
            with coordinator.stop_on_exception():
                while not coordinator.wait_for_stop(0.005):
                    if number == 1:
                        raise OutOfRangeError("the end")
                seen.append(number)

        for number in range(3):
            thread = threading.Thread(target=work, args=(number,))
            coordinator.register_thread(thread)
            thread.start()
        coordinator.wait_for_stop(20)
    assert sorted(seen) == [0, 2]
    assert coordinator.joined
    coordinator.clear_stop()
    assert not coordinator.should_stop()
    coordinator.request_stop(ValueError("first"))
    coordinator.request_stop(ValueError("second"))
    with pytest.raises(ValueError, match="first"):
        coordinator.raise_requested_exception()
    with pytest.raises(ValueError, match="first"):
        coordinator.join()


def test_join_names_threads_that_do_not_stop():
    coordinator, free = tb.train.Coordinator(), threading.Event()
    thread = threading.Thread(target=free.wait, name="deaf")
    thread.start()
    coordinator.request_stop()
    with pytest.raises(RuntimeError, match="threads deaf are alive"):
        coordinator.join([thread], stop_grace_period_secs=0.01)
    coordinator.join([thread], stop_grace_period_secs=0.01, ignore_live_threads=True)
    free.set()
    thread.join()
    with pytest.raises(InvalidArgumentError, match="expected ex to be an exception"):
        coordinator.request_stop("stop")


@pytest.mark.slow
def test_a_pipeline_feeds_training(session):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype(np.float32)
    y = x @ np.float32([1, -2, 3])
    features, target = tb.train.shuffle_batch(
        tb.train.slice_input_producer([x, y], num_epochs=12, seed=1), 20, 100, 40, seed=3
    )
    w = tb.Variable(tb.zeros([3, 1]))
    error = tb.matmul(features, w) - tb.reshape(target, [-1, 1])
    train = tb.train.GradientDescentOptimizer(0.2).minimize(tb.reduce_mean(error * error))
    session.run(tb.global_variables_initializer())
    all_of(session, train)
    np.testing.assert_allclose(session.run(w)[:, 0], [1, -2, 3], atol=1e-3)


def test_only_examples_that_are_kept_come_into_batches(session):
    number = tb.train.range_input_producer(10, num_epochs=1, shuffle=False).dequeue()
    even = tb.equal(number % 2, 0)
    ordered = tb.train.maybe_batch([number], even, 2, allow_smaller_final_batch=True)
    assert [list(each) for each in all_of(session, ordered)] == [[0, 2], [4, 6], [8]]


@pytest.mark.parametrize("vector", [False, True])
def test_parts_of_several_examples_are_kept(session, vector):
    rows = tb.train.input_producer(np.arange(12).reshape(3, 4), num_epochs=1, shuffle=False).dequeue()
    keep = tb.greater(rows, 2) if vector else tb.reduce_any(tb.greater(rows, 6))
    batch = tb.train.maybe_shuffle_batch({"n": rows}, 1, 50, 0, keep, enqueue_many=True, seed=1)
    found = sorted(int(each["n"][0]) for each in all_of(session, batch))
    assert found == list(range(3 if vector else 4, 12))


def test_kept_examples_of_several_sources(session):
    numbers = [tb.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue() for _ in range(2)]
    lists = [[tb.identity(number)] for number in numbers]
    batch = tb.train.maybe_batch_join(lists, tb.constant(True), 2)
    found = np.concatenate(all_of(session, batch))
    assert sorted(found) == [0, 0, 1, 1, 2, 2, 3, 3]
    shuffled = tb.train.maybe_shuffle_batch_join(lists, 2, 9, 0, tb.constant(False))
    assert all_of(session, shuffled) == []


def test_what_says_which_examples_are_kept_is_a_bool():
    with tb.Graph().as_default():
        for keep, many, words in (
            (1, False, r"keep_input is int32\[\], expected a bool"),
            ([True], False, r"keep_input is bool\[1\], expected a bool"),
            ([[True]], True, r"keep_input is bool\[1, 1\], expected a bool, or a vector"),
        ):
            with pytest.raises(InvalidArgumentError, match=f"maybe_batch: {words}"):
                tb.train.maybe_batch([tb.constant([1])], keep, 2, enqueue_many=many)
