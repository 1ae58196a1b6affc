"""Input pipelines: TensorFlow 1's cases of `input_test`, `queue_runner_test` and `coordinator_test`."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import CancelledError, InvalidArgumentError, OutOfRangeError, TensorBowError
from tests.tensorflow_cases.in_threads import InThread, until


def rows_until_the_end(session, fetches):
    """All values until the input ends; then every thread has ended."""
    coordinator = tb.train.Coordinator()
    threads = tb.train.start_queue_runners(session, coordinator)
    found = []
    with coordinator.stop_on_exception():
        while not coordinator.should_stop():
            found.append(session.run(fetches))
    coordinator.request_stop()
    coordinator.join(threads)
    assert not any(thread.is_alive() for thread in threads)
    return found


def counter(limit, dtype=tb.int64):
    """The numbers from 0 on, one in each run, and then the end of the input."""
    return tb.cast(tb.train.range_input_producer(limit, num_epochs=1, shuffle=False).dequeue(), dtype)


# Producers: LimitEpochsTest, InputProducerTest, RangeInputProducerTest, SliceInputProducerTest ----------


def test_no_limit_of_epochs(session):
    seven = tb.constant(7)
    assert session.run([tb.train.limit_epochs(seven)] * 3) == [7] * 3


def test_a_limit_of_epochs(session):
    limited = tb.train.limit_epochs(tb.constant([1, 2]), num_epochs=2)
    session.run(tb.local_variables_initializer())
    for _ in range(2):
        np.testing.assert_array_equal(session.run(limited), [1, 2])
    with pytest.raises(OutOfRangeError):
        session.run(limited)


@pytest.mark.parametrize("epochs", [0, -1, 2.5, "all"], ids=str)
def test_epochs_that_are_none(graph, epochs):
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.train.limit_epochs(tb.constant(7), num_epochs=epochs)


def test_rows_in_order(session):  # InputProducerTest.testNoShuffle
    rows = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    queue = tb.train.input_producer(tb.constant(rows), num_epochs=2, shuffle=False)
    taken = queue.dequeue()
    assert taken.shape.as_list() == [4]
    found = rows_until_the_end(session, taken)
    np.testing.assert_array_equal(found, rows * 2)


def test_a_shape_that_is_not_known(graph):  # testNoShapeInference, testShapeError
    x = tb.placeholder_with_default(tb.constant([[1, 2], [3, 4]]), None)
    with pytest.raises((TensorBowError, ValueError), match="known rows"):
        tb.train.input_producer(x)
    x.set_shape([None, 2])  # TensorFlow's element_shape
    assert tb.train.input_producer(x).dequeue().shape.as_list() == [2]


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_range_in_order(session, epochs):  # RangeInputProducerTest.testNoShuffle
    found = rows_until_the_end(
        session, tb.train.range_input_producer(4, num_epochs=epochs, shuffle=False).dequeue()
    )
    assert found == [0, 1, 2, 3] * epochs


def test_a_shuffled_range(session):  # RangeInputProducerTest.testShuffle
    queue = tb.train.range_input_producer(10, num_epochs=4, shuffle=True, seed=314159)
    found = np.reshape(rows_until_the_end(session, queue.dequeue()), (4, 10))
    assert all(sorted(epoch) == list(range(10)) for epoch in found)
    assert len({tuple(epoch) for epoch in found}) > 1


def test_a_range_without_end(session):
    queue = tb.train.range_input_producer(2, shuffle=False)
    coordinator = tb.train.Coordinator()
    threads = tb.train.start_queue_runners(session, coordinator)
    take = queue.dequeue()
    assert [session.run(take) for _ in range(70)] == [0, 1] * 35
    coordinator.request_stop()
    coordinator.join(threads)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_range_of_nothing(session, limit):
    queue = tb.train.range_input_producer(limit, shuffle=False, num_epochs=1)
    assert rows_until_the_end(session, queue.dequeue()) == []


@pytest.mark.parametrize("shuffle", [False, True])
def test_slices_of_several_tensors(session, shuffle):  # SliceInputProducerTest.testNoShuffle, testShuffle
    source = [tb.constant([10, 11, 12]), tb.constant([2.0, 3.0, 5.0])]
    found = rows_until_the_end(
        session, tb.train.slice_input_producer(source, num_epochs=2, shuffle=shuffle, seed=5)
    )
    pairs = [(10, 2.0), (11, 3.0), (12, 5.0)]
    assert sorted((a.item(), b.item()) for a, b in found) == sorted(pairs * 2)
    if not shuffle:
        assert [(a, b) for a, b in found] == pairs * 2


def test_slices_of_no_tensor(graph):
    with pytest.raises((TensorBowError, ValueError)):
        tb.train.slice_input_producer([])


def test_a_runner_is_added_to_the_collection(graph):
    tb.train.range_input_producer(3)
    (runner,) = tb.get_collection(tb.GraphKeys.QUEUE_RUNNERS)
    assert isinstance(runner, tb.train.QueueRunner)


# batch: BatchTest ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("smaller", [False, True], ids=["dropped", "smaller"])
def test_batches(session, threads, smaller):  # testOneThread, testManyThreads, test*SmallerBatch
    number = counter(23)
    batch = tb.train.batch(
        [number, tb.cast(number, tb.float32) * 2.0], 5, num_threads=threads, allow_smaller_final_batch=smaller
    )
    assert batch[0].shape.as_list() == [None if smaller else 5]
    found = rows_until_the_end(session, batch)
    assert [len(ints) for ints, _ in found] == [5, 5, 5, 5, *([3] if smaller else [])]
    ints = np.concatenate([ints for ints, _ in found])
    assert set(ints) <= set(range(23))
    assert len(set(ints)) == len(ints)
    if threads == 1:
        np.testing.assert_array_equal(ints, np.arange(len(ints)))
    for ints, doubles in found:
        np.testing.assert_array_equal(doubles, 2 * ints)


def test_batches_of_a_dictionary(session):  # testOneThreadDict, testSingleElementDict
    batch = tb.train.batch({"c": counter(6)}, 3)
    assert list(batch) == ["c"]
    found = rows_until_the_end(session, batch)
    np.testing.assert_array_equal([each["c"] for each in found], [[0, 1, 2], [3, 4, 5]])


def test_batches_with_padding(session):  # testOneThreadDynamicPad
    number = counter(4, tb.int32)
    batch = tb.train.batch([number, tb.fill([number], number)], 2, dynamic_pad=True)
    assert batch[1].shape.as_list() == [2, None]
    found = rows_until_the_end(session, batch)
    np.testing.assert_array_equal(found[0][1], [[0], [1]])
    np.testing.assert_array_equal(found[1][1], [[2, 2, 0], [3, 3, 3]])


def test_batches_of_several_examples_at_once(session):  # testOneThreadEnqueueMany
    number = counter(4)
    batch = tb.train.batch([tb.stack([number * 2, number * 2 + 1])], 3, enqueue_many=True)
    found = rows_until_the_end(session, batch)
    np.testing.assert_array_equal(found, [[0, 1, 2], [3, 4, 5]])


def test_a_list_of_one_tensor_gives_a_tensor(graph):  # as the documentation of batch says
    one, sparse = tb.constant(1), tb.SparseTensor([[0]], [1.0], [3])
    for made in (
        tb.train.batch([one], 2),
        tb.train.batch_join([[one], [one]], 2),
        tb.train.shuffle_batch([one], 2, 9, 1),
        tb.train.shuffle_batch_join([[one]], 2, 9, 1),
        tb.train.maybe_batch([one], True, 2),
    ):
        assert isinstance(made, tb.Tensor)
        assert made.shape.as_list() == [2]
    assert isinstance(tb.train.batch([sparse], 2), tb.SparseTensor)
    (row,) = tb.train.slice_input_producer([[1, 2]])
    assert row.shape.as_list() == []


def test_a_name_and_a_shared_name(graph):  # testSharedName
    batch = tb.train.batch([tb.constant(1)], 5, shared_name="SHARED_NAME_XYZ", name="Q")
    queue = next(op for op in graph.get_operations() if op.type == "FIFOQueue")
    assert queue.attrs["shared_name"] == "SHARED_NAME_XYZ"
    assert batch.op.name.startswith("Q/")


def test_what_has_no_shape_has_no_batches(graph):  # testCannotInferRankError
    with pytest.raises((TensorBowError, ValueError), match=r"shape|rank"):
        tb.train.batch([tb.placeholder(tb.int64, None)], 2)
    with pytest.raises((TensorBowError, ValueError), match=r"shape|rank"):
        tb.train.batch([tb.placeholder(tb.int64, None)], 2, dynamic_pad=True)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": -3},
        {"batch_size": 2, "num_threads": 0},
        {"batch_size": 2, "capacity": 0},
    ],
    ids=str,
)
def test_arguments_of_batch_that_are_refused(graph, options):
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.train.batch([tb.constant(1)], **options)
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.train.batch([], 2)


# batch_join: BatchJoinTest ------------------------------------------------------------------------------


@pytest.mark.parametrize("smaller", [False, True], ids=["dropped", "smaller"])
def test_batches_of_two_sources(session, smaller):  # testTwoThreads, testTwoThreadsSmallerBatch
    batch = tb.train.batch_join(
        [[counter(11), tb.constant(0)], [counter(7) + 100, tb.constant(1)]],
        4,
        allow_smaller_final_batch=smaller,
    )
    found = rows_until_the_end(session, batch)
    pairs = [(a, b) for ints, marks in found for a, b in zip(ints, marks, strict=True)]
    assert len(pairs) == (18 if smaller else 16)
    assert all((a >= 100) == b for a, b in pairs)
    assert [a for a, b in pairs if b == 0] == sorted(a for a, b in pairs if b == 0)


def test_batches_of_two_dictionaries(session):
    batch = tb.train.batch_join([{"c": counter(3)}, {"c": counter(3) + 10}], 3)
    found = rows_until_the_end(session, batch)
    assert sorted(np.concatenate([each["c"] for each in found])) == [0, 1, 2, 10, 11, 12]


def test_sources_have_to_be_alike(graph):  # testMismatchedDictKeys
    for sources in (
        [{"c": tb.constant(1)}, {"d": tb.constant(1)}],
        [[tb.constant(1)], [tb.constant(1.0)]],
        [[tb.constant(1)], [tb.constant(1), tb.constant(2)]],
        [],
        3,
    ):
        for join in (tb.train.batch_join, lambda s, n: tb.train.shuffle_batch_join(s, n, 10, 2)):
            with pytest.raises((TensorBowError, TypeError, ValueError)):
                join(sources, 2)


def test_batches_of_two_sources_with_padding(session):  # testTwoThreadsDynamicPad
    a, b = counter(3, tb.int32), counter(3, tb.int32)
    batch = tb.train.batch_join([[tb.fill([a], 1)], [tb.fill([b + 3], 2)]], 6, dynamic_pad=True)
    (found,) = rows_until_the_end(session, batch)
    assert found.shape == (6, 5)
    assert sorted(np.sum(found > 0, 1)) == [0, 1, 2, 3, 4, 5]


# shuffle_batch: ShuffleBatchTest, ShuffleBatchJoinTest --------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("smaller", [False, True], ids=["dropped", "smaller"])
def test_shuffled_batches(session, threads, smaller):  # testOneThread, testManyThreads, ...SmallerBatch
    number = counter(33)
    batch = tb.train.shuffle_batch(
        [number, -number], 5, 32, 16, num_threads=threads, seed=141421, allow_smaller_final_batch=smaller
    )
    found = rows_until_the_end(session, batch)
    ints = np.concatenate([a for a, _ in found])
    assert len(ints) == (33 if smaller else 30)
    assert len(set(ints)) == len(ints)
    assert list(ints) != sorted(ints)
    assert all((a == -b).all() for a, b in found)


def test_shuffled_batches_of_several_examples_at_once(session):
    number = counter(6)
    batch = tb.train.shuffle_batch([tb.stack([number, number + 10])], 4, 20, 3, enqueue_many=True, seed=2)
    found = rows_until_the_end(session, batch)
    assert sorted(np.concatenate(found)) == [*range(6), *range(10, 16)]


def test_shuffled_batches_of_two_sources(session):  # ShuffleBatchJoinTest.testTwoThreads
    batch = tb.train.shuffle_batch_join([{"c": counter(9)}, {"c": counter(9) + 50}], 6, 20, 4, seed=3)
    found = rows_until_the_end(session, batch)
    assert sorted(np.concatenate([each["c"] for each in found])) == [*range(9), *range(50, 59)]


# QueueRunner: queue_runner_test -------------------------------------------------------------------------


def counting(times):
    """A variable, an operation that adds 1, and one that raises OutOfRangeError after so many runs."""
    v = tb.Variable(0)
    limited = tb.train.limit_epochs(v.assign_add(1), times)
    return v, limited


def plain_runner(ops, **options):
    return tb.train.QueueRunner(tb.FIFOQueue(10, tb.float32), ops, **options)


def finished(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_a_runner_runs_its_operation_until_the_end(session):  # testBasic
    v, step = counting(3)
    runner = plain_runner([step])
    session.run([tb.global_variables_initializer(), tb.local_variables_initializer()])
    finished(runner.create_threads(session))
    assert not runner.exceptions_raised
    assert session.run(v) == 4  # the run that finds the end has added, too


def test_a_runner_of_two_operations(session):  # testTwoOps
    (a, one), (b, two) = counting(3), counting(30)
    runner = plain_runner([one, two])
    session.run([tb.global_variables_initializer(), tb.local_variables_initializer()])
    threads = runner.create_threads(session)
    assert len(threads) == 2
    assert len({thread.name for thread in threads}) == 2
    finished(threads)
    assert session.run([a, b]) == [4, 31]


def test_errors_of_threads_are_kept(session):  # testExceptionsCaptured
    runner = plain_runner(
        [tb.check_numerics(tb.constant(np.inf), "wrong"), tb.check_numerics(tb.constant(np.nan), "wrong")]
    )
    finished(runner.create_threads(session))
    assert len(runner.exceptions_raised) == 2
    assert all("wrong" in str(each) for each in runner.exceptions_raised)


def test_a_queue_fills_another(session):  # testRealDequeueEnqueue
    first, second = tb.FIFOQueue(3, tb.float32), tb.FIFOQueue(30, tb.float32)
    session.run(first.enqueue(10.0))
    session.run(first.enqueue(20.0))
    session.run(first.close())
    finished(tb.train.QueueRunner(second, [second.enqueue(first.dequeue())]).create_threads(session))
    take = second.dequeue()
    assert [session.run(take), session.run(take)] == [10.0, 20.0]
    with pytest.raises(OutOfRangeError):
        session.run(take)


def test_a_runner_respects_a_stop(session):  # testRespectCoordShouldStop
    v, step = counting(3)
    runner = plain_runner([step])
    session.run([tb.global_variables_initializer(), tb.local_variables_initializer()])
    coordinator = tb.train.Coordinator()
    coordinator.request_stop()
    threads = runner.create_threads(session, coordinator)
    finished(threads)
    coordinator.join()
    assert not runner.exceptions_raised
    assert session.run(v) == 0


def test_an_error_requests_a_stop(session):  # testRequestStopOnException
    runner = plain_runner([tb.check_numerics(tb.constant(np.inf), "not an op")])
    coordinator = tb.train.Coordinator()
    runner.create_threads(session, coordinator, start=True)
    with pytest.raises(InvalidArgumentError, match="not an op"):
        coordinator.join()


def test_threads_that_wait_end_within_the_grace_period(session):  # testGracePeriod
    queue = tb.FIFOQueue(2, tb.float32)
    runner = tb.train.QueueRunner(queue, [queue.enqueue(1.0)])  # full after two
    coordinator = tb.train.Coordinator()
    threads = runner.create_threads(session, coordinator, start=True)
    until(lambda: session.run(queue.size()) == 2)
    coordinator.request_stop()
    coordinator.join(stop_grace_period_secs=20.0)
    assert not any(thread.is_alive() for thread in threads)


def test_a_runner_serves_several_sessions(graph):  # testMultipleSessions
    v, step = counting(3)
    runner = plain_runner([step])
    start = tb.group(tb.global_variables_initializer(), tb.local_variables_initializer())
    with tb.Session() as one, tb.Session() as two:
        for session in (one, two):
            session.run(start)
        coordinator = tb.train.Coordinator()
        finished([*runner.create_threads(one), *runner.create_threads(two)])
        coordinator.request_stop()
        assert (one.run(v), two.run(v)) == (4, 4)


def test_a_second_start_makes_no_threads(session):  # testIgnoreMultiStarts
    queue = tb.FIFOQueue(1, tb.float32)
    runner = tb.train.QueueRunner(queue, [queue.enqueue(1.0)])
    coordinator = tb.train.Coordinator()
    threads = runner.create_threads(session, coordinator, start=True)
    assert threads
    assert runner.create_threads(session, coordinator) == []
    coordinator.request_stop()
    coordinator.join()


def test_threads_may_be_started_again_after_their_end(session):  # testThreads
    v, step = counting(3)
    runner = plain_runner([step])
    session.run([tb.global_variables_initializer(), tb.local_variables_initializer()])
    finished(runner.create_threads(session))
    finished(runner.create_threads(session))
    assert not runner.exceptions_raised
    assert session.run(v) == 5


def test_names_of_runners(graph):  # testName
    with tb.name_scope("scope"):
        queue = tb.FIFOQueue(10, tb.float32, name="queue")
    runner = tb.train.QueueRunner(queue, [tb.no_op()])
    assert runner.name == "scope/queue"
    assert runner.queue is queue


def test_other_errors_may_say_that_a_queue_is_closed(session):  # queue_closed_exception_types
    runner = plain_runner(
        [tb.check_numerics(tb.constant(np.inf), "end")], queue_closed_exception_types=(InvalidArgumentError,)
    )
    finished(runner.create_threads(session))
    assert not runner.exceptions_raised


def test_starting_all_runners(session):  # testStartQueueRunners
    v, step = counting(3)
    tb.train.add_queue_runner(plain_runner([step]))
    session.run([tb.global_variables_initializer(), tb.local_variables_initializer()])
    for thread in tb.train.start_queue_runners(session):
        thread.join(30)
    assert session.run(v) == 4


def test_starting_runners_without_a_session(graph):  # testStartQueueRunnersRaisesIfNotASession
    for session in (None, "session", tb.Graph()):
        with pytest.raises((TensorBowError, TypeError, ValueError)):
            tb.train.start_queue_runners(session)


def test_runners_of_a_graph_that_is_not_the_default_one(
    kernels_of_cases,
):  # testStartQueueRunnersNonDefaultGraph
    with tb.Graph().as_default() as own:
        v, step = counting(3)
        tb.train.add_queue_runner(plain_runner([step]))
        start = tb.group(tb.global_variables_initializer(), tb.local_variables_initializer())
    with tb.Session(graph=own) as session:
        session.run(start)
        with tb.Graph().as_default():
            for thread in tb.train.start_queue_runners(session):
                thread.join(30)
        assert session.run(v) == 4


@pytest.mark.parametrize("ops", [None, [], 3], ids=str)
def test_runners_without_operations_are_refused(graph, ops):
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        plain_runner(ops)
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.train.QueueRunner(None, [tb.no_op()])


def test_a_closed_session_ends_its_runners(graph):
    queue = tb.FIFOQueue(1, tb.float32)
    session = tb.Session()
    runner = tb.train.QueueRunner(queue, [queue.enqueue(1.0)])
    threads = runner.create_threads(session, start=True)
    until(lambda: session.run(queue.size()) == 1)
    session.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not runner.exceptions_raised


# Coordinator: coordinator_test --------------------------------------------------------------------------


def in_thread(function, *arguments):
    return threading.Thread(target=function, args=arguments, daemon=True)


def test_a_stop_is_requested(kernels_of_cases):  # testStopAPI
    coordinator = tb.train.Coordinator()
    assert not coordinator.should_stop()
    assert not coordinator.wait_for_stop(0.01)
    coordinator.request_stop()
    assert coordinator.should_stop()
    assert coordinator.wait_for_stop(0.01)


def test_a_stop_is_requested_by_another_thread(kernels_of_cases):  # testStopAsync
    coordinator = tb.train.Coordinator()
    in_thread(coordinator.request_stop).start()
    assert coordinator.wait_for_stop(30)
    assert coordinator.should_stop()


@pytest.mark.parametrize("registered", [0, 1, 3])
def test_join_waits_for_given_and_registered_threads(kernels_of_cases, registered):  # testJoin*
    coordinator, done = tb.train.Coordinator(), []
    threads = [in_thread(lambda: (coordinator.wait_for_stop(30), done.append(1))) for _ in range(3)]
    for thread in threads[:registered]:
        coordinator.register_thread(thread)
    for thread in [*threads, in_thread(coordinator.request_stop)]:
        thread.start()
    coordinator.join(threads[registered:])
    assert not any(thread.is_alive() for thread in threads)
    assert len(done) == 3
    assert coordinator.joined


@pytest.mark.parametrize("ignores", [False, True])
def test_join_when_the_grace_expires(kernels_of_cases, ignores):  # testJoinGraceExpires
    coordinator, go_on = tb.train.Coordinator(), threading.Event()
    threads = [in_thread(go_on.wait, 30), in_thread(coordinator.request_stop)]
    for thread in threads:
        thread.start()
    if ignores:
        coordinator.join(threads, stop_grace_period_secs=0.03, ignore_live_threads=True)
    else:
        with pytest.raises(RuntimeError, match="alive"):
            coordinator.join(threads, stop_grace_period_secs=0.03)
    go_on.set()
    threads[0].join(30)


def test_join_without_a_stop_waits_for_the_ends(kernels_of_cases):  # testJoinWithoutGraceExpires
    coordinator = tb.train.Coordinator()
    threads = [in_thread(time.sleep, 0.02) for _ in range(3)]
    for thread in threads:
        thread.start()
    coordinator.join(threads, stop_grace_period_secs=0.0)
    assert not any(thread.is_alive() for thread in threads)
    assert not coordinator.should_stop()


def raising(coordinator, error, as_info):
    """A thread that asks for a stop because of an error."""

    def work():
        try:
            raise error
        except Exception as raised:
            coordinator.request_stop(sys.exc_info() if as_info else raised)

    return in_thread(work)


@pytest.mark.parametrize("as_info", [False, True], ids=["exception", "exc_info"])
def test_join_raises_the_error_of_a_thread(
    kernels_of_cases, as_info
):  # testJoinRaiseReportExcInfo, ...Exception
    coordinator = tb.train.Coordinator()
    threads = [raising(coordinator, RuntimeError("First"), as_info)]
    for thread in threads:
        thread.start()
    with pytest.raises(RuntimeError, match="First"):
        coordinator.join(threads)


def test_join_raises_the_first_error(kernels_of_cases):
    coordinator = tb.train.Coordinator()
    coordinator.request_stop(RuntimeError("First"))
    coordinator.request_stop(RuntimeError("Too late"))
    with pytest.raises(RuntimeError, match="First"):
        coordinator.join([])


def test_the_end_of_the_input_is_no_error(kernels_of_cases):  # testJoinIgnoresOutOfRange
    coordinator = tb.train.Coordinator()
    thread = raising(coordinator, OutOfRangeError("First"), True)
    thread.start()
    coordinator.join([thread])


def test_other_errors_may_end_cleanly(kernels_of_cases):  # testJoinIgnoresMyExceptionType
    coordinator = tb.train.Coordinator(clean_stop_exception_types=(ValueError,))
    thread = raising(coordinator, ValueError("Clean stop"), True)
    thread.start()
    coordinator.join([thread])
    coordinator = tb.train.Coordinator(clean_stop_exception_types=(ValueError,))
    coordinator.request_stop(OutOfRangeError("now an error"))
    with pytest.raises(OutOfRangeError):
        coordinator.join([])


def test_an_error_of_a_block(kernels_of_cases):  # testJoinRaiseReportExceptionUsingHandler
    coordinator = tb.train.Coordinator()

    def work():
        with coordinator.stop_on_exception():
            raise RuntimeError("Usual case")

    thread = in_thread(work)
    thread.start()
    with pytest.raises(RuntimeError, match="Usual case"):
        coordinator.join([thread])


def test_clear_stop_forgets_the_error(kernels_of_cases):  # testClearStopClearsExceptionToo
    coordinator = tb.train.Coordinator()
    coordinator.request_stop(RuntimeError("First"))
    with pytest.raises(RuntimeError, match="First"):
        coordinator.join([])
    coordinator.clear_stop()
    assert not coordinator.should_stop()
    coordinator.request_stop(RuntimeError("Second"))
    with pytest.raises(RuntimeError, match="Second"):
        coordinator.join([])


@pytest.mark.parametrize("as_info", [False, True], ids=["exception", "exc_info"])
def test_an_error_after_join_is_raised_at_once(
    kernels_of_cases, as_info
):  # testRequestStopRaisesIfJoined(_ExcInfo)
    coordinator = tb.train.Coordinator()
    thread = in_thread(lambda: None)
    thread.start()
    coordinator.join([thread])
    try:
        raise ValueError("too late")
    except ValueError as error:
        reason = sys.exc_info() if as_info else error
    with pytest.raises(ValueError, match="too late"):
        coordinator.request_stop(reason)
    coordinator.clear_stop()
    coordinator.request_stop()


def test_raise_requested_exception(kernels_of_cases):
    coordinator = tb.train.Coordinator()
    coordinator.raise_requested_exception()
    coordinator.request_stop(RuntimeError("reason"))
    with pytest.raises(RuntimeError, match="reason"):
        coordinator.raise_requested_exception()


def test_training_ends_with_the_input(session):
    row, label = tb.train.slice_input_producer(
        [np.eye(4, dtype=np.float32), np.arange(4)], num_epochs=3, seed=1
    )
    rows, labels = tb.train.batch([row, label], 4)
    w = tb.Variable(tb.zeros([4, 4]))
    loss = tb.reduce_mean(
        tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tb.matmul(rows, w))
    )
    train = tb.train.GradientDescentOptimizer(1.0).minimize(loss)
    session.run([tb.global_variables_initializer(), tb.local_variables_initializer()])
    coordinator = tb.train.Coordinator()
    threads = tb.train.start_queue_runners(session, coordinator)
    losses = []
    with coordinator.stop_on_exception():
        while not coordinator.should_stop():
            losses.append(session.run([loss, train])[0])
    coordinator.join(threads)
    assert len(losses) == 3
    assert losses[2] < losses[1] < losses[0]


def test_a_cancelled_producer_is_no_error_of_the_program(session):
    queue = tb.FIFOQueue(1, tb.int32, [[]])
    session.run(queue.enqueue(1))
    putting = InThread(session.run, queue.enqueue(2))
    until(lambda: bool(session._dynamic.running))
    session.run(queue.close(cancel_pending_enqueues=True))
    with pytest.raises(CancelledError):
        putting.result()
