"""Queues: order, blocking, back-pressure, closing, sharing, padding, as TensorFlow documents them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)
from tensorbow.queues.element_queue import ElementQueue
from tensorbow.queues.element_stores import FirstInFirstOut, RandomOrder

SOON = tb.RunOptions(timeout_in_ms=80)


class Running:
    """A run of a session in a thread; `result` waits for it and raises its error."""

    def __init__(self, session, fetches, feeds=None):
        self._values, self._errors = [], []

        def run():
            try:
                self._values.append(session.run(fetches, feeds))
            except Exception as error:
                self._errors.append(error)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def result(self):
        self.thread.join(20)
        assert not self.thread.is_alive()
        if self._errors:
            raise self._errors[0]
        return self._values[0]


def until(condition):
    for _ in range(4000):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("the condition has not come")


def test_elements_of_several_components_come_back_in_order(session):
    queue = tb.FIFOQueue(10, [tb.float32, tb.int64], shapes=[[2], []])
    x = tb.placeholder(tb.float32, [None, 2])
    put = queue.enqueue_many([x, tb.constant([1, 2, 3], tb.int64)])
    fed = np.arange(6, dtype=np.float32).reshape(3, 2)
    session.run(put, {x: fed})
    fed[:] = -1  # the queue keeps its own copy
    one, many = queue.dequeue(), queue.dequeue_many(2)
    assert many[0].shape == (2, 2)
    assert one[1].shape == ()
    values, number = session.run(one)
    np.testing.assert_array_equal(values, [0, 1])
    assert number == 1
    assert number.dtype == np.int64
    values, numbers = session.run(many)
    np.testing.assert_array_equal(values, [[2, 3], [4, 5]])
    np.testing.assert_array_equal(numbers, [2, 3])
    assert session.run(queue.size()) == 0


def test_a_full_queue_holds_back_enqueues_and_large_ones_pass_in_parts(session):
    queue = tb.FIFOQueue(2, tb.int32, shapes=[[]])
    size = queue.size()
    putting = Running(session, queue.enqueue_many([[1, 2, 3, 4, 5]]))
    until(lambda: session.run(size) == 2)
    assert putting.thread.is_alive()
    np.testing.assert_array_equal(session.run(queue.dequeue_many(4)), [1, 2, 3, 4])  # over the capacity
    putting.result()
    assert session.run(queue.dequeue()) == 5


def test_a_dequeue_waits_for_elements_of_another_step(session):
    queue = tb.FIFOQueue(5, tb.float32, shapes=[[]])
    taking = Running(session, queue.dequeue_many(3) * 2)
    session.run(queue.enqueue(1.0))
    session.run(queue.enqueue_many([[2.0, 3.0]]))
    np.testing.assert_array_equal(taking.result(), [2, 4, 6])


def test_a_time_limit_ends_the_wait_and_returns_what_was_taken(session):
    queue = tb.FIFOQueue(5, tb.int32, shapes=[[]])
    session.run(queue.enqueue_many([[7, 8]]))
    with pytest.raises(DeadlineExceededError, match="timeout_in_ms=80"):
        session.run(queue.dequeue_many(3), options=SOON)
    np.testing.assert_array_equal(session.run(queue.dequeue_many(2)), [7, 8])


def test_a_closed_queue_gives_what_is_left_and_then_ends(session):
    queue = tb.FIFOQueue(5, tb.int32, shapes=[[]], name="numbers")
    session.run(queue.enqueue_many([[1, 2, 3]]))
    waiting = Running(session, queue.dequeue_many(5))
    session.run(queue.close())
    assert session.run(queue.is_closed())
    with pytest.raises(
        OutOfRangeError, match=r"'numbers' is closed and has insufficient elements \(requ.* 5"
    ):
        waiting.result()
    np.testing.assert_array_equal(session.run(queue.dequeue_up_to(2)), [1, 2])
    np.testing.assert_array_equal(session.run(queue.dequeue_up_to(2)), [3])
    with pytest.raises(OutOfRangeError, match="requested 2, current size 0"):
        session.run(queue.dequeue_up_to(2))
    with pytest.raises(CancelledError, match=r"^QueueEnqueue .*'numbers' is closed.*\(made at .*test_queues"):
        session.run(queue.enqueue(4))


@pytest.mark.parametrize("cancels", [False, True])
def test_closing_completes_or_cancels_enqueues_that_wait(session, cancels):
    queue = tb.FIFOQueue(1, tb.int32, shapes=[[]])
    size, closed = queue.size(), queue.is_closed()
    putting = Running(session, queue.enqueue_many([[1, 2]]))
    until(lambda: session.run(size) == 1)
    closing = Running(session, queue.close(cancel_pending_enqueues=cancels))
    until(lambda: session.run(closed))
    if cancels:
        with pytest.raises(CancelledError):
            putting.result()
        closing.result()
        np.testing.assert_array_equal(session.run(queue.dequeue_up_to(9)), [1])
    else:
        assert closing.thread.is_alive()
        np.testing.assert_array_equal(session.run(queue.dequeue_many(2)), [1, 2])
        putting.result()
        closing.result()


def test_closing_the_session_wakes_those_that_wait():
    with tb.Graph().as_default():
        session = tb.Session()
        queue = tb.FIFOQueue(1, tb.int32)
        taking = Running(session, queue.dequeue())
        until(lambda: session._dynamic.running)
        session.close()
        with pytest.raises(CancelledError, match="the session was closed"):
            taking.result()


def test_a_shuffle_queue_mixes_all_elements_and_keeps_some_until_closed(session):
    queue = tb.RandomShuffleQueue(200, 20, tb.int64, shapes=[[]], seed=5)
    session.run(queue.enqueue_many([np.arange(100)]))
    first = session.run(queue.dequeue_many(80))
    with pytest.raises(DeadlineExceededError):
        session.run(queue.dequeue(), options=SOON)
    session.run(queue.close())
    rest = session.run(queue.dequeue_up_to(50))
    assert sorted([*first, *rest]) == list(range(100))
    assert list(first) != sorted(first)


def test_shuffle_queues_of_one_seed_give_one_order_and_every_place_is_as_likely():
    counts = np.zeros((4, 4))
    for seed in range(400):
        taken = []
        for _ in range(2):
            store = RandomOrder((seed, 1))
            store.put([(number,) for number in range(4)])
            taken.append([number for (number,) in store.take(4)])
        assert taken[0] == taken[1]
        counts[np.arange(4), taken[0]] += 1
    assert counts.min() > 60
    assert counts.max() < 140


def test_a_priority_queue_gives_the_smallest_first_and_equal_ones_in_order(session):
    queue = tb.PriorityQueue(10, [tb.float32], [[]], names=["priority", "value"])
    put = queue.enqueue_many({"priority": np.int64([2, -1, 2, 0]), "value": np.float32([1, 2, 3, 4])})
    session.run(put)
    taken = session.run(queue.dequeue_many(4))
    np.testing.assert_array_equal(taken["priority"], [-1, 0, 2, 2])
    np.testing.assert_array_equal(taken["value"], [2, 4, 1, 3])


def test_a_padding_queue_pads_to_the_largest_of_the_batch(session):
    queue = tb.PaddingFIFOQueue(10, [tb.int32, tb.float32], [[None], [2, None]])
    x, y = tb.placeholder(tb.int32, [None]), tb.placeholder(tb.float32, [2, None])
    put = queue.enqueue([x, y])
    session.run(put, {x: [1, 2, 3], y: np.ones((2, 1))})
    session.run(put, {x: [4], y: np.full((2, 2), 5)})
    numbers, rows = session.run(queue.dequeue_many(2))
    np.testing.assert_array_equal(numbers, [[1, 2, 3], [4, 0, 0]])
    np.testing.assert_array_equal(rows, [[[1, 0], [1, 0]], [[5, 5], [5, 5]]])


@pytest.mark.parametrize(("shapes", "dims"), [([], []), ((), []), ([2], [2]), ((2, 3), [2, 3])], ids=str)
def test_one_shape_needs_no_list(shapes, dims):
    with tb.Graph().as_default():
        for queue in (tb.FIFOQueue(3, tb.int32, shapes), tb.RandomShuffleQueue(3, 0, tb.int32, shapes)):
            assert queue.dequeue_many(2).shape.as_list() == [2, *dims]


def test_elements_of_a_queue_without_shapes_may_differ(session):
    queue = tb.FIFOQueue(10, tb.int32)
    session.run(queue.enqueue([[1, 2]]))
    session.run(queue.enqueue([[[3]]]))
    np.testing.assert_array_equal(session.run(queue.dequeue()), [1, 2])
    np.testing.assert_array_equal(session.run(queue.dequeue()), [[3]])
    with pytest.raises(InvalidArgumentError, match="has no fixed shapes"):
        queue.dequeue_many(2)


def test_sessions_share_a_queue_by_name_and_reset_closes_it():
    def make():
        return tb.FIFOQueue(4, tb.int32, shapes=[[]], shared_name="common")

    with tb.Graph().as_default(), tb.container("queues"):
        one, put = tb.Session(), make().enqueue(3)
    with tb.Graph().as_default(), tb.container("queues"):
        two, take = tb.Session(), make().dequeue()
        other = tb.FIFOQueue(9, tb.int32, shapes=[[]], shared_name="common").size()
    waiting = Running(two, take)
    one.run(put)
    assert waiting.result() == 3
    with pytest.raises(InvalidArgumentError, match="'common' belongs to an object made with other settings"):
        two.run(other)
    one.run(put)
    one.close()  # the queue is the process's
    assert two.run(take) == 3
    tb.Session.reset(containers=["queues"])
    assert two.run(take.op.inputs[0]) > 0
    two.close()


def test_a_queue_is_chosen_by_an_index_while_running(session):
    queues = [tb.FIFOQueue(5, tb.int32, shapes=[[]]) for _ in range(2)]
    for number, queue in enumerate(queues):
        session.run(queue.enqueue(number * 10))
    index = tb.placeholder(tb.int32, [])
    chosen = tb.QueueBase.from_list(index, queues).dequeue()
    assert [session.run(chosen, {index: i}) for i in (1, 0)] == [10, 0]


def test_a_loop_takes_elements_one_by_one(session):
    queue = tb.FIFOQueue(10, tb.int32, shapes=[[]])
    session.run(queue.enqueue_many([[1, 2, 3, 4]]))
    total = tb.while_loop(lambda i, s: tb.less(i, 3), lambda i, s: (i + 1, s + queue.dequeue()), [0, 0])
    assert session.run(total)[1] == 6
    assert session.run(queue.size()) == 1


def test_many_threads_lose_and_repeat_nothing():
    queue = ElementQueue("numbers", FirstInFirstOut(), 7)
    taken, lock, failures = [], threading.Lock(), []
    done = threading.Semaphore(0)

    def took(elements):
        with lock:
            taken.extend(elements)
        done.release()

    def put(start):
        for number in range(start, start + 300, 3):
            placed = threading.Event()
            queue.put([(number + i,) for i in range(3)], placed.set, failures.append)
            placed.wait(20)

    threads = [threading.Thread(target=put, args=(300 * k,)) for k in range(4)]
    for _ in range(240):
        queue.take(5, False, took, failures.append)
    for thread in threads:
        thread.start()
    for _ in range(240):
        assert done.acquire(timeout=20)
    assert sorted(number for (number,) in taken) == list(range(1200))
    assert not failures
    assert queue.size() == 0


def test_mistakes_are_named(session):
    with pytest.raises(InvalidArgumentError, match="got 2 shapes for 1 dtypes"):
        tb.FIFOQueue(1, tb.int32, shapes=[[], []])
    with pytest.raises(InvalidArgumentError, match="PaddingFIFOQueue"):
        tb.FIFOQueue(1, tb.int32, shapes=[[None]])
    with pytest.raises(InvalidArgumentError, match="leaves no element"):
        tb.RandomShuffleQueue(5, 5, tb.int32)
    queue = tb.FIFOQueue(1, [tb.int32, tb.float32], shapes=[[2], []])
    with pytest.raises(InvalidArgumentError, match="got 1 components, expected 2"):
        queue.enqueue([1])
    with pytest.raises(InvalidArgumentError, match=r"component 0 is int32\[3\], expected \[2\]"):
        queue.enqueue([[1, 2, 3], 1.0])
    with pytest.raises(InvalidArgumentError, match="n is -1"):
        queue.dequeue_many(-1)
    x = tb.placeholder(tb.int32, None)
    with pytest.raises(InvalidArgumentError, match=r"component 0 is int32\[5\], expected \[2\]"):
        session.run(queue.enqueue([x, 1.0]), {x: np.ones(5, np.int32)})
    with pytest.raises(NotFoundError, match="is no handle of a queue that this session has made"):
        session.run(queue.size(), {queue.queue_ref: 123456789})
