"""Queues: TensorFlow 1's cases of FIFO queues, most of which hold for others, and of the other queues."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    TensorBowError,
)
from tests.tensorflow_cases.in_threads import InThread, together, until


def fifo(capacity, dtypes, shapes=None, **options):
    return tb.FIFOQueue(capacity, dtypes, shapes=shapes, **options)


def padding(capacity, dtypes, shapes=None, **options):
    count = len(dtypes) if isinstance(dtypes, (list, tuple)) else 1
    return tb.PaddingFIFOQueue(capacity, dtypes, shapes=[[]] * count if shapes is None else shapes, **options)


def shuffling(capacity, dtypes, shapes=None, **options):
    return tb.RandomShuffleQueue(capacity, 0, dtypes, shapes=shapes, seed=3, **options)


KINDS = {"fifo": fifo, "padding": padding, "shuffle": shuffling}
any_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
in_order = pytest.mark.parametrize("make", [fifo, padding], ids=["fifo", "padding"])
SOON = tb.RunOptions(timeout_in_ms=40)


def numbers(make, capacity=10, dtype=tb.float32, **options):
    """A queue of scalars."""
    return make(capacity, dtype, [[]], **options)


def waits(session):
    """A condition: a step of the session waits in a queue."""
    return lambda: bool(session._dynamic.running)


def waiting(session, fetches, **options):
    """A run in a thread that waits in a queue."""
    running = InThread(session.run, fetches, **options)
    until(waits(session))
    return running


# Constructors -------------------------------------------------------------------------------------------


@any_kind
def test_what_a_queue_is_made_of(
    graph, make
):  # testConstructor, testMultiQueueConstructor, testConstructorWithShapes
    one = make(10, tb.float32, name="Q")
    assert (one.name, one.dtypes) == ("Q", [tb.float32])
    assert one.queue_ref.op.attrs["capacity"] == 10
    two = make(5, (tb.int32, tb.float32), [[1, 2], [3]], shared_name="foo", name="Q")
    assert two.name == "Q_1"
    assert [shape.as_list() for shape in two.shapes] == [[1, 2], [3]]
    assert two.queue_ref.op.attrs["shared_name"] == "foo"


@pytest.mark.parametrize("capacity", ["many", None, 2.5, [3]], ids=str)
def test_capacities_that_are_refused(graph, capacity):
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.FIFOQueue(capacity, tb.float32)


def test_names_of_components(session):  # FIFOQueueDictTest
    queue = tb.FIFOQueue(5, [tb.int32, tb.float32], [[], [2]], names=["i", "j"])
    assert queue.names == ["i", "j"]
    session.run(queue.enqueue({"i": 3, "j": [1.0, 2.0]}))
    session.run(queue.enqueue_many({"i": [4, 5], "j": [[3.0, 4.0], [5.0, 6.0]]}))
    got = session.run(queue.dequeue())
    assert got["i"] == 3
    got = session.run(queue.dequeue_many(2))
    np.testing.assert_array_equal(got["i"], [4, 5])
    np.testing.assert_array_equal(got["j"], [[3, 4], [5, 6]])
    for wrong in (3, [3, [1.0, 2.0]], {"i": 3}, {"i": 3, "j": [1.0, 2.0], "k": 1}):
        with pytest.raises((TensorBowError, ValueError)):
            queue.enqueue(wrong)
        with pytest.raises((TensorBowError, ValueError)):
            queue.enqueue_many(wrong)


def test_a_dictionary_without_names_is_refused(graph):  # testEnqueueDictWithoutNames
    queue = tb.FIFOQueue(10, tb.int32)
    for call in (queue.enqueue, queue.enqueue_many):
        with pytest.raises((TensorBowError, ValueError), match="names"):
            call({"a": [12.0, 13.0]})


@pytest.mark.parametrize("names", [["i"], ["i", "j", "k"], ["i", "i"], [1, 2]], ids=str)
def test_names_that_do_not_fit(graph, names):
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.FIFOQueue(5, [tb.int32, tb.float32], [[], [2]], names=names)


# Enqueue and dequeue ------------------------------------------------------------------------------------


@any_kind
def test_enqueue_returns_an_operation(session, make):  # testEnqueue
    put = make(10, tb.float32).enqueue(tb.constant(10.0))
    assert isinstance(put, tb.Operation)
    assert session.run(put) is None


@in_order
@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "int32", "int64", "uint8", "int8", "int16", "bool", "complex64", "float16"],
)
def test_dtypes_keep_their_values(session, make, dtype):  # testDtypes, testEnqueueHalf
    queue = numbers(make, 10, dtype)
    value = (np.arange(5) % 2).astype(tb.as_dtype(dtype).as_numpy_dtype)
    session.run(queue.enqueue_many([value]))
    got = session.run(queue.dequeue_many(5))
    np.testing.assert_array_equal(got, value)
    assert got.dtype == value.dtype


@in_order
def test_elements_come_back_in_order(session, make):  # testDequeue
    queue, x = numbers(make), tb.placeholder(tb.float32, [])
    put, take = queue.enqueue(x), queue.dequeue()
    for value in (10.0, 20.0, 30.0):
        session.run(put, {x: value})
    assert [session.run(take) for _ in range(3)] == [10.0, 20.0, 30.0]


@in_order
def test_elements_of_two_components(session, make):  # testMultiEnqueueAndDequeue
    queue = make(10, (tb.int32, tb.float32))
    session.run(queue.enqueue((5, 10.0)))
    session.run(queue.enqueue((6, 11.0)))
    a, b = queue.dequeue()
    assert session.run([a, b]) == [5, 10.0]
    assert session.run([a, b]) == [6, 11.0]


@any_kind
def test_sizes(session, make):  # testQueueSizeEmpty, testQueueSizeAfterEnqueueAndDequeue
    queue = numbers(make)
    size, put, take = queue.size(), queue.enqueue(1.0), queue.dequeue()
    assert size.shape.as_list() == []
    found = [session.run(size)]
    for step in (put, put, take, take):
        session.run(step)
        found.append(session.run(size))
    assert found == [0, 1, 2, 1, 0]


@any_kind
def test_many_at_once(session, make):  # testEnqueueMany, testDequeueMany
    queue = numbers(make, 20)
    put = queue.enqueue_many([[1.0, 2.0, 3.0, 4.0]])
    session.run(put)
    session.run(put)
    many = queue.dequeue_many(5)
    assert many.shape.as_list() == [5]
    found = [*session.run(many), *session.run(queue.dequeue_many(3))]
    assert sorted(found) == [1, 1, 2, 2, 3, 3, 4, 4]
    if make is not shuffling:
        assert found == [1, 2, 3, 4] * 2


@in_order
def test_many_of_two_components(session, make):  # testMultiEnqueueMany, testMultiDequeueMany
    queue = make(10, (tb.float32, tb.int32), [[], [2]])
    ints = np.arange(20).reshape(10, 2)
    session.run(queue.enqueue_many([np.arange(10, dtype=np.float32), ints.astype(np.int32)]))
    many, one = queue.dequeue_many(4), queue.dequeue()
    floats, pairs = session.run(many)
    np.testing.assert_array_equal(floats, np.arange(4))
    np.testing.assert_array_equal(pairs, ints[:4])
    assert session.run(one)[0] == 4
    assert [t.shape.as_list() for t in (*many, *one)] == [[4], [4, 2], [], [2]]
    upto = queue.dequeue_up_to(4)
    assert [t.shape.as_list() for t in upto] == [[None], [None, 2]]
    np.testing.assert_array_equal(session.run(upto)[1], ints[5:9])


@any_kind
def test_many_of_none(session, make):  # testEmptyEnqueueMany, testEmptyDequeueMany, testEmptyDequeueUpTo
    queue = make(10, tb.float32, [[3]])
    session.run(queue.enqueue_many([np.zeros((0, 3), np.float32)]))
    assert session.run(queue.size()) == 0
    for call in (queue.dequeue_many, queue.dequeue_up_to):
        assert session.run(call(0)).shape == (0, 3)
    session.run(queue.enqueue(np.ones(3, np.float32)))
    assert session.run(queue.dequeue_many(0)).shape == (0, 3)
    assert session.run(queue.size()) == 1


def test_many_without_shapes_are_refused(graph):  # testEmptyDequeueManyWithNoShape
    queue = tb.FIFOQueue(10, tb.float32)
    for call in (queue.dequeue_many, queue.dequeue_up_to):
        with pytest.raises((TensorBowError, ValueError), match="shape"):
            call(0)


@any_kind
def test_a_number_that_is_a_tensor(session, make):  # testDequeueManyWithTensorParameter
    queue, n = numbers(make, 20, tb.int32), tb.placeholder(tb.int32, [])
    session.run(queue.enqueue_many([np.arange(9, dtype=np.int32)]))
    many = queue.dequeue_many(n)
    assert many.shape.as_list() == [None]
    found = [session.run(many, {n: count}) for count in (2, 0, 7)]
    assert [len(each) for each in found] == [2, 0, 7]
    assert sorted(np.concatenate(found)) == list(range(9))


@any_kind
def test_a_number_from_another_queue(session, make):  # testDequeueManyWithTensorParameter
    counts, queue = tb.FIFOQueue(5, tb.int32, [[]]), numbers(make, 20)
    session.run(counts.enqueue_many([[1, 3]]))
    session.run(queue.enqueue_many([[1.0, 2.0, 3.0, 4.0]]))
    many = queue.dequeue_many(counts.dequeue())
    assert [len(session.run(many)) for _ in range(2)] == [1, 3]


def test_elements_of_high_rank(session):  # testHighDimension
    queue = tb.FIFOQueue(10, tb.int32, [[2] * 6])
    elems = np.arange(10 * 64, dtype=np.int32).reshape(10, *[2] * 6)
    session.run(queue.enqueue_many([elems]))
    np.testing.assert_array_equal(session.run(queue.dequeue_many(10)), elems)


@any_kind
def test_wrong_shapes_dtypes_and_numbers(session, make):  # testEnqueueWrong*, testBatchSizeMismatch, ...
    queue = make(10, (tb.int32, tb.float32), ([], [2]))
    for wrong in (
        ([1, 2], [2.0, 2.0]),
        (1, [3.0]),
        (1,),
        (1, [1.0, 2.0], 3),
        (1.5, [1.0, 2.0]),
        (1, [True, False]),
    ):
        with pytest.raises((TensorBowError, TypeError, ValueError)):
            queue.enqueue(wrong)
    for wrong in (([1, 2], [[1.0, 1.0]]), (7, [[1.0, 1.0]]), ([7], [1.0, 1.0]), ([7, 8], [[1.0], [1.0]])):
        with pytest.raises((TensorBowError, TypeError, ValueError)):
            session.run(queue.enqueue_many(wrong))
    i, x = tb.placeholder(tb.int32), tb.placeholder(tb.float32)
    put, put_many = queue.enqueue((i, x)), queue.enqueue_many((i, x))
    with pytest.raises(InvalidArgumentError):
        session.run(put, {i: 3, x: np.ones(3)})
    with pytest.raises(InvalidArgumentError):
        session.run(put_many, {i: [3, 4], x: np.ones((3, 2))})
    with pytest.raises(InvalidArgumentError):
        session.run(put_many, {i: [3, 4], x: np.ones((2, 3))})
    assert session.run(queue.size()) == 0


@pytest.mark.parametrize("n", [-1, 2.5, [2], "two"], ids=str)
def test_numbers_that_are_none(graph, n):
    queue = numbers(fifo)
    for call in (queue.dequeue_many, queue.dequeue_up_to):
        with pytest.raises((TensorBowError, TypeError, ValueError)):
            call(n)


def test_a_negative_number_while_running(session):
    queue, n = numbers(fifo), tb.placeholder(tb.int32, [])
    with pytest.raises(InvalidArgumentError):
        session.run(queue.dequeue_many(n), {n: -1})


@any_kind
def test_more_than_the_capacity_at_once(session, make):  # testBigEnqueueMany, testBigDequeueMany
    queue = numbers(make, 5, tb.int32)
    putting = InThread(session.run, queue.enqueue_many([np.arange(30, dtype=np.int32)]))
    got = session.run(queue.dequeue_many(30))
    putting.result()
    assert sorted(got) == list(range(30))


# Threads: testParallel*, testBlocking* ------------------------------------------------------------------


@any_kind
def test_parallel_enqueues(session, make):  # testParallelEnqueue
    queue, values = numbers(make), [float(n) for n in range(10)]
    steps = [queue.enqueue(value) for value in values]
    together([lambda step=step: session.run(step) for step in steps])
    take = queue.dequeue()
    assert sorted(session.run(take) for _ in values) == values


@any_kind
def test_parallel_dequeues(session, make):  # testParallelDequeue
    queue, values = numbers(make), [float(n) for n in range(10)]
    session.run(queue.enqueue_many([values]))
    take = queue.dequeue()
    assert sorted(together([lambda: session.run(take).item()] * 10)) == values


@any_kind
def test_parallel_many(session, make):  # testParallelEnqueueMany, testParallelDequeueMany, ...UpTo
    queue = numbers(make, 1000)
    put = queue.enqueue_many([[10.0 * n for n in range(10)]])
    together([lambda: session.run(put)] * 8)
    many, upto = queue.dequeue_many(5), queue.dequeue_up_to(5)
    found = together([lambda: session.run(many)] * 8 + [lambda: session.run(upto)] * 8)
    assert sorted(np.concatenate(found)) == sorted([10.0 * n for n in range(10)] * 8)


@any_kind
def test_parallel_enqueues_and_dequeues(session, make):  # testParallelEnqueueAndDequeue
    queue = numbers(make, 50)
    session.run(queue.enqueue_many([[10.0] * 20]))
    put, take = queue.enqueue(20.0), queue.dequeue()
    found = together(
        [lambda: [session.run(put) for _ in range(20)]] * 3
        + [lambda: [session.run(take).item() for _ in range(20)]] * 3
    )
    assert set(np.concatenate([np.float64(each) for each in found[3:]])) <= {10.0, 20.0}
    assert session.run(queue.size()) == 20


@any_kind
def test_a_dequeue_waits_for_an_enqueue(session, make):  # testEnqueueAndBlockingDequeue
    queue, values = numbers(make, 3), [10.0, 20.0, 30.0]
    put, take = [queue.enqueue(v) for v in values], queue.dequeue()
    taking = waiting(session, [take, queue.size()])
    for each in put:
        session.run(each)
    found = [taking.result()[0], session.run(take), session.run(take)]
    assert sorted(found) == values


@any_kind
@pytest.mark.parametrize("upto", [False, True], ids=["many", "up_to"])
def test_many_wait_for_enough(session, make, upto):  # testBlockingDequeueMany, testBlockingDequeueUpTo
    queue = numbers(make)
    put = queue.enqueue_many([[10.0, 20.0]])
    taking = waiting(session, (queue.dequeue_up_to if upto else queue.dequeue_many)(4))
    session.run(put)
    session.run(put)
    assert sorted(taking.result()) == [10, 10, 20, 20]


@any_kind
def test_an_enqueue_waits_for_room(session, make):  # testBlockingEnqueueToFullQueue
    queue = numbers(make, 4)
    session.run(queue.enqueue_many([[10.0, 20.0, 30.0, 40.0]]))
    take, size = queue.dequeue(), queue.size()
    putting = waiting(session, queue.enqueue(50.0))
    found = [session.run(take)]
    putting.result()
    found += [session.run(take) for _ in range(4)]
    assert sorted(found) == [10, 20, 30, 40, 50]
    assert session.run(size) == 0


@any_kind
def test_many_enqueues_wait_for_room(session, make):  # testBlockingEnqueueManyToFullQueue
    queue = numbers(make, 4)
    session.run(queue.enqueue_many([[10.0, 20.0, 30.0, 40.0]]))
    take = queue.dequeue()
    putting = waiting(session, queue.enqueue_many([[50.0, 60.0]]))
    found = [session.run(take) for _ in range(6)]
    putting.result()
    assert sorted(found) == [10, 20, 30, 40, 50, 60]


def test_a_large_enqueue_and_a_large_dequeue(
    session,
):  # testEnqueueManyLargerThanCapacityWithConcurrentDequeueMany
    queue = numbers(fifo, 4)
    put = queue.enqueue_many([[10.0, 20.0, 30.0, 40.0]])
    large = queue.enqueue_many([[50.0, 60.0, 70.0]])
    session.run(put)
    size, three, one = queue.size(), queue.dequeue_many(3), queue.dequeue()
    putting = waiting(session, large)
    np.testing.assert_array_equal(session.run(three), [10, 20, 30])
    putting.result()
    assert session.run(size) == 4
    np.testing.assert_array_equal(session.run(three), [40, 50, 60])
    assert session.run(one) == 70


# Closing: test*ClosedQueue, testBlocking*BeforeClose ----------------------------------------------------


@any_kind
def test_dequeues_from_a_closed_queue(session, make):  # testDequeueFromClosedQueue
    queue, values = numbers(make), [10.0, 20.0, 30.0, 40.0]
    session.run(queue.enqueue_many([values]))
    assert not session.run(queue.is_closed())
    session.run(queue.close())
    assert session.run(queue.is_closed())
    take = queue.dequeue()
    assert sorted(session.run(take) for _ in values) == values
    with pytest.raises(OutOfRangeError, match="is closed and has insufficient"):
        session.run(take)


@any_kind
@pytest.mark.parametrize("call", ["dequeue", "dequeue_many", "dequeue_up_to"])
def test_a_dequeue_that_waits_when_an_empty_queue_closes(session, make, call):  # test*FromClosedEmptyQueue
    queue = numbers(make)
    taking = waiting(session, getattr(queue, call)(*[] if call == "dequeue" else [4]))
    session.run(queue.close())
    with pytest.raises(OutOfRangeError, match="is closed and has insufficient"):
        taking.result()


@any_kind
def test_many_that_wait_when_a_queue_closes(session, make):  # testBlockingDequeueManyButNotAllFromClosedQueue
    queue = numbers(make)
    session.run(queue.enqueue_many([[10.0, 20.0, 30.0, 40.0]]))
    three = queue.dequeue_many(3)
    assert len(session.run(three)) == 3
    taking = waiting(session, three)
    session.run(queue.close())
    with pytest.raises(OutOfRangeError):
        taking.result()
    assert session.run(queue.size()) == 1  # what it would have got is still there
    assert len(session.run(queue.dequeue_many(1))) == 1


@any_kind
def test_up_to_gives_the_remainder_when_a_queue_closes(
    session, make
):  # ...UpToFromClosedQueueReturnsRemainder
    queue = numbers(make)
    session.run(queue.enqueue_many([[10.0, 20.0, 30.0, 40.0]]))
    upto = queue.dequeue_up_to(3)
    first = session.run(upto)
    taking = waiting(session, upto)
    session.run(queue.close())
    assert sorted([*first, *taking.result()]) == [10, 20, 30, 40]


def test_part_of_a_batch_is_put_back_when_a_queue_closes(
    session,
):  # testClosedBlockingDequeueManyRestoresPartialBatch
    queue = tb.FIFOQueue(4, (tb.float32, tb.float32), [[], []])
    session.run(queue.enqueue_many([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]))
    taking = waiting(session, queue.dequeue_many(4))
    session.run(queue.close())
    with pytest.raises(OutOfRangeError):
        taking.result()
    a, b = queue.dequeue()
    assert [session.run([a, b]) for _ in range(3)] == [[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]
    assert session.run(queue.size()) == 0


@any_kind
def test_enqueues_to_a_closed_queue(session, make):  # testEnqueueToClosedQueue, testEnqueueManyToClosedQueue
    queue = numbers(make)
    session.run(queue.enqueue(10.0))
    session.run(queue.close())
    for put in (queue.enqueue(10.0), queue.enqueue_many([[10.0, 20.0]])):
        with pytest.raises(CancelledError, match="is closed"):
            session.run(put)


@any_kind
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_an_enqueue_that_waits_before_close(session, make, many):  # testBlockingEnqueue(Many)BeforeClose
    queue = numbers(make, 4)
    session.run(queue.enqueue_many([[10.0, 20.0, 30.0, 40.0]]))
    take, closed = queue.dequeue(), queue.is_closed()
    more = [50.0, 60.0] if many else [50.0]
    putting = waiting(session, queue.enqueue_many([more]) if many else queue.enqueue(50.0))
    closing = InThread(session.run, queue.close())
    until(lambda: session.run(closed))
    found = [session.run(take) for _ in range(4 + len(more))]
    putting.result()
    closing.result()
    assert sorted(found) == [10, 20, 30, 40, *more]
    with pytest.raises(OutOfRangeError):
        session.run(take)


@any_kind
def test_close_may_cancel_enqueues_that_wait(session, make):
    queue = numbers(make, 2)
    session.run(queue.enqueue_many([[1.0, 2.0]]))
    putting = waiting(session, queue.enqueue(3.0))
    session.run(queue.close(cancel_pending_enqueues=True))
    with pytest.raises(CancelledError):
        putting.result()
    assert len(session.run(queue.dequeue_many(2))) == 2


def test_closing_twice(session):
    queue = numbers(fifo)
    session.run(queue.close())
    session.run(queue.close())
    session.run(queue.close(cancel_pending_enqueues=True))
    assert session.run(queue.is_closed())


@any_kind
@pytest.mark.parametrize("call", ["enqueue", "enqueue_many", "dequeue", "dequeue_many", "dequeue_up_to"])
def test_blocked_calls_end_with_the_session(graph, make, call):  # testResetOfBlockingOperation
    session = tb.Session()
    empty, full = numbers(make, 5), numbers(make, 2)
    session.run(full.enqueue_many([[1.0, 2.0]]))
    step = {
        "enqueue": lambda: full.enqueue(9.0),
        "enqueue_many": lambda: full.enqueue_many([[9.0, 9.0]]),
        "dequeue": empty.dequeue,
        "dequeue_many": lambda: empty.dequeue_many(2),
        "dequeue_up_to": lambda: empty.dequeue_up_to(2),
    }[call]()
    running = waiting(session, step)
    session.close()
    with pytest.raises(CancelledError):
        running.result()


# Time limits: FIFOQueueWithTimeoutTest ------------------------------------------------------------------


@any_kind
def test_a_dequeue_with_a_time_limit(session, make):  # testDequeueWithTimeout, testReusableAfterTimeout
    queue = numbers(make)
    take, put = queue.dequeue(), queue.enqueue(37.0)
    for _ in range(2):
        with pytest.raises(DeadlineExceededError):
            session.run(take, options=SOON)
    session.run(put)
    assert session.run(take) == 37


def test_no_value_is_lost_at_a_time_limit(session):
    queue = numbers(fifo)
    session.run(queue.enqueue_many([[1.0, 2.0]]))
    with pytest.raises(DeadlineExceededError):
        session.run(queue.dequeue_many(3), options=SOON)
    np.testing.assert_array_equal(session.run(queue.dequeue_many(2)), [1, 2])


# Sharing and choosing: testSharedQueueSameSession, testIncompatibleSharedQueueErrors, testSelectQueue


@any_kind
def test_two_queues_of_a_shared_name_are_one(session, make):
    one, two = (numbers(make, 1, shared_name="shared") for _ in range(2))
    session.run(one.enqueue(10.0))
    assert session.run([one.size(), two.size()]) == [1, 1]
    assert session.run(two.dequeue()) == 10.0
    session.run(two.enqueue(20.0))
    assert session.run([one.size(), two.size()]) == [1, 1]
    assert session.run(one.dequeue()) == 20.0
    tb.Session.reset()


@pytest.mark.parametrize(
    "other",
    [
        lambda: tb.FIFOQueue(15, tb.float32, [[]], shared_name="q"),
        lambda: tb.FIFOQueue(10, tb.int32, [[]], shared_name="q"),
        lambda: tb.FIFOQueue(10, tb.float32, shared_name="q"),
        lambda: tb.FIFOQueue(10, tb.float32, [[1, 1]], shared_name="q"),
        lambda: tb.FIFOQueue(10, (tb.float32, tb.int32), [[], []], shared_name="q"),
        lambda: tb.RandomShuffleQueue(10, 5, tb.float32, [[]], shared_name="q"),
        lambda: tb.PaddingFIFOQueue(10, tb.float32, [[]], shared_name="q"),
    ],
    ids=["capacity", "dtype", "no shape", "shape", "components", "kind", "padding"],
)
def test_queues_of_one_name_must_agree(session, other):
    session.run(tb.FIFOQueue(10, tb.float32, [[]], shared_name="q").size())
    with pytest.raises(TensorBowError, match="q"):
        session.run(other().size())
    tb.Session.reset()


def test_shuffle_queues_of_one_name_must_agree(session):
    def made(least, seed):
        return tb.RandomShuffleQueue(10, least, tb.float32, shapes=[[]], seed=seed, shared_name="r").size()

    session.run(made(5, 1))
    with pytest.raises(TensorBowError, match="r"):
        session.run(made(4, 1))
    assert session.run(made(5, 2)) == 0  # the seed of the first one holds; TensorFlow refuses this
    tb.Session.reset()


@any_kind
def test_a_queue_is_selected_while_running(session, make):
    queues, index = [numbers(make) for _ in range(5)], tb.placeholder(tb.int32, [])
    chosen = tb.QueueBase.from_list(index, queues)
    take = chosen.dequeue()
    for number, queue in enumerate(queues):
        session.run(queue.enqueue(10.0 * number))
    assert [session.run(take, {index: n}) for n in (3, 0, 4)] == [30.0, 0.0, 40.0]


def test_an_index_out_of_range_selects_no_queue(session):  # testSelectQueueOutOfRange
    queues = [numbers(fifo), tb.FIFOQueue(15, tb.float32)]
    size = tb.QueueBase.from_list(tb.constant(7), queues).size()
    with pytest.raises(TensorBowError):
        session.run(size)


@pytest.mark.parametrize("queues", [[], 3, [3]], ids=str)
def test_what_is_no_list_of_queues(graph, queues):
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.QueueBase.from_list(tb.constant(0), queues)


def test_queues_of_containers_keep_apart(session):  # QueueContainerTest.testContainer
    with tb.container("here"):
        one = numbers(fifo, shared_name="name")
    with tb.container("there"):
        two = numbers(fifo, shared_name="name")
    assert one.queue_ref.op.attrs["container"] == "here"
    session.run(one.enqueue(1.0))
    assert session.run([one.size(), two.size()]) == [1, 0]
    tb.Session.reset(containers=["here"])
    tb.Session.reset(containers=["there"])


def test_a_value_is_not_lost_between_steps(session):  # testDoesNotLoseValue
    queue, x = tb.FIFOQueue(1, tb.float32, [[]]), tb.placeholder(tb.float32, [])
    session.run(queue.enqueue(x), {x: 10.0})
    size = queue.size()
    assert [session.run(size) for _ in range(20)] == [1] * 20


def test_an_unknown_handle(session):
    queue = numbers(fifo)
    with pytest.raises((NotFoundError, InvalidArgumentError)):
        session.run(queue.size(), {queue.queue_ref: 12345})


def test_a_failing_enqueue_leaves_the_queue_usable(session):  # testDequeueEnqueueFail
    queue, x = numbers(fifo), tb.placeholder(tb.float32, [])
    bad = queue.enqueue(tb.check_numerics(x, "bad"))
    with pytest.raises(InvalidArgumentError, match="bad"):
        session.run(bad, {x: np.inf})
    session.run(bad, {x: 3.0})
    assert session.run(queue.dequeue()) == 3.0


def test_what_is_dequeued_and_enqueued_again(session):  # testDequeueEnqueue
    queue = numbers(fifo, 3)
    session.run(queue.enqueue_many([[1.0, 2.0, 3.0]]))
    step = queue.enqueue(queue.dequeue())
    for _ in range(4):
        session.run(step)
    np.testing.assert_array_equal(session.run(queue.dequeue_many(3)), [2, 3, 1])


# Padding: padding_fifo_queue_test -----------------------------------------------------------------------


def test_elements_of_other_extents_are_padded(session):  # testMultiDequeueManyWithPartiallyKnownShapes...
    queue = tb.PaddingFIFOQueue(10, (tb.int32, tb.float32), shapes=((4, None), (None,)))
    i, x = tb.placeholder(tb.int32, [4, None]), tb.placeholder(tb.float32, [None])
    put, many = queue.enqueue((i, x)), queue.dequeue_many(3)
    assert [t.shape.as_list() for t in many] == [[3, 4, None], [3, None]]
    for extent in (1, 3, 2):
        session.run(put, {i: np.full((4, extent), extent), x: np.full(extent, extent)})
    ints, floats = session.run(many)
    assert ints.shape == (3, 4, 3)
    np.testing.assert_array_equal(ints[:, 0], [[1, 0, 0], [3, 3, 3], [2, 2, 0]])
    np.testing.assert_array_equal(floats, [[1, 0, 0], [3, 3, 3], [2, 2, 0]])


def test_one_element_keeps_its_extents(session):
    queue = tb.PaddingFIFOQueue(10, tb.int32, shapes=[[None, 2]])
    session.run(queue.enqueue(np.ones((3, 2), np.int32)))
    session.run(queue.enqueue(np.ones((1, 2), np.int32)))
    assert [session.run(queue.dequeue()).shape for _ in range(2)] == [(3, 2), (1, 2)]


def test_the_remainder_is_padded(session):  # testMultiDequeueUpToPartiallyKnownShapesAndVariableRemainder
    queue = tb.PaddingFIFOQueue(10, tb.float32, shapes=[[None]])
    for extent in (1, 4, 2):
        session.run(queue.enqueue(np.ones(extent, np.float32)))
    session.run(queue.close())
    upto = queue.dequeue_up_to(2)
    assert [session.run(upto).shape for _ in range(2)] == [(2, 4), (1, 2)]


def test_ranks_have_to_fit(
    graph,
):  # testConstructPaddingFIFOQueueWithUnknown*, testEnqueueWrongPartiallyKnownShape*
    with pytest.raises((TensorBowError, ValueError)):
        tb.PaddingFIFOQueue(10, tb.float32, shapes=[tb.TensorShape(None)])
    with pytest.raises((TensorBowError, ValueError)):
        tb.PaddingFIFOQueue(10, (tb.float32, tb.int32), shapes=[[None]])
    queue = tb.PaddingFIFOQueue(10, (tb.int32, tb.int32), shapes=([None, 2], [None]))
    for wrong in (([1, 2], [3]), ([[1, 2, 3]], [3]), ([[1, 2]], [[3]])):
        with pytest.raises((TensorBowError, ValueError)):
            queue.enqueue(wrong)


def test_many_rows_of_one_extent_enter_a_padding_queue(session):
    queue = tb.PaddingFIFOQueue(10, tb.int32, shapes=[[None]])
    session.run(queue.enqueue_many([np.arange(6, dtype=np.int32).reshape(2, 3)]))
    session.run(queue.enqueue([[9]]))
    np.testing.assert_array_equal(session.run(queue.dequeue_many(3)), [[0, 1, 2], [3, 4, 5], [9, 0, 0]])


# Priorities: priority_queue_test ------------------------------------------------------------------------


def by_priority(capacity=200, **options):
    return tb.PriorityQueue(capacity, (tb.int32,), shapes=[[]], **options)


def test_elements_are_sorted_by_priority(session):  # testRoundTripInsertOnceReadOnceSorts
    queue = by_priority()
    keys = np.random.default_rng(0).integers(-50, 50, 60)
    session.run(queue.enqueue_many([keys, np.arange(60, dtype=np.int32)]))
    priorities, values = session.run(queue.dequeue_many(60))
    np.testing.assert_array_equal(priorities, np.sort(keys))
    np.testing.assert_array_equal(keys[values], priorities)


def test_elements_are_sorted_one_by_one_too(session):  # testRoundTripInsertReadOnceSorts, ...ReadManySorts
    queue = by_priority()
    key, value = tb.placeholder(tb.int64, []), tb.placeholder(tb.int32, [])
    put, take = queue.enqueue((key, value)), queue.dequeue()
    for each in (5, -1, 3, 9):
        session.run(put, {key: each, value: each})
    assert [session.run(take)[1] for _ in range(4)] == [-1, 3, 5, 9]


def test_threads_insert_and_one_reads_sorted(session):  # testRoundTripInsertManyMultiThreadedReadOnceSorts
    queue = by_priority()
    keys = np.random.default_rng(1).permutation(80).reshape(8, 10)
    steps = [queue.enqueue_many([each, each.astype(np.int32)]) for each in keys]
    together([lambda step=step: session.run(step) for step in steps])
    np.testing.assert_array_equal(session.run(queue.dequeue_many(80))[0], np.arange(80))


def test_threads_insert_into_a_small_queue_and_threads_read(
    session,
):  # testRoundTripFillsCapacityMultiThreaded...
    queue = by_priority(4)
    put = queue.enqueue_many([np.arange(10), np.arange(10, dtype=np.int32)])
    take = queue.dequeue()
    found = together(
        [lambda: session.run(put)] * 4 + [lambda: [session.run(take)[1].item() for _ in range(10)]] * 4
    )
    assert sorted(np.concatenate(found[4:])) == sorted([*range(10)] * 4)


@pytest.mark.parametrize(
    "key", [np.float32(1), np.int32(1), np.int64([1, 2])], ids=["float", "int32", "vector"]
)
def test_priorities_are_int64_scalars(graph, key):  # testInsertingNonInt64Fails, testInsertingNonScalarFails
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        by_priority().enqueue((tb.constant(key), 1))


# Shuffling: random_shuffle_queue_test -------------------------------------------------------------------


@pytest.mark.parametrize("how", ["dequeue", "dequeue_many", "dequeue_up_to"])
def test_two_queues_give_other_orders(session, how):  # testDequeue(Many|UpTo)InDifferentOrder
    found = []
    for seed in (23456, 98765):
        queue = tb.RandomShuffleQueue(20, 5, tb.int32, shapes=[[]], seed=seed)
        session.run(queue.enqueue_many([np.arange(20, dtype=np.int32)]))
        session.run(queue.close())
        if how == "dequeue":
            take = queue.dequeue()
            found.append([session.run(take).item() for _ in range(20)])
        else:
            found.append(list(session.run(getattr(queue, how)(20))))
    assert sorted(found[0]) == sorted(found[1]) == list(range(20))
    assert found[0] != found[1]
    assert list(range(20)) not in found


def test_some_elements_stay_behind(session):  # testBlockingDequeue... with min_after_dequeue
    queue = tb.RandomShuffleQueue(20, 5, tb.float32, shapes=[[]])
    session.run(queue.enqueue_many([[float(n) for n in range(8)]]))
    assert len(session.run(queue.dequeue_many(3))) == 3
    with pytest.raises(DeadlineExceededError):
        session.run(queue.dequeue(), options=SOON)
    taking = waiting(session, queue.dequeue_many(5))
    session.run(queue.close())
    assert len(taking.result()) == 5


def test_one_seed_gives_one_order(graph):
    orders = []
    for _ in range(2):
        with tb.Graph().as_default(), tb.Session() as session:
            queue = tb.RandomShuffleQueue(20, 0, tb.int32, shapes=[[]], seed=7)
            session.run(queue.enqueue_many([np.arange(20, dtype=np.int32)]))
            orders.append(list(session.run(queue.dequeue_many(20))))
    assert orders[0] == orders[1]


def test_a_minimum_that_leaves_nothing(graph):
    for capacity, least in ((5, 5), (5, 6)):
        with pytest.raises((TensorBowError, ValueError)):
            tb.RandomShuffleQueue(capacity, least, tb.float32)
    with pytest.raises((TensorBowError, ValueError)):
        tb.RandomShuffleQueue(5, -1, tb.float32)
