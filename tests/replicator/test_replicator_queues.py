"""Queues, readers and tables in the graph of a Replicator: who fills them, and what happens at their ends."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensorbow as tb
from scheduler.replicas import endless_loops
from tensorbow.errors import DataLossError, DeadlineExceededError, OutOfRangeError

pytestmark = pytest.mark.usefixtures("graph")


def numbers_of(values, epochs=None, batch=2):
    """A batch of numbers that go through two queues, each filled by a thread."""
    (number,) = tb.train.slice_input_producer([np.float32(values)], num_epochs=epochs, shuffle=False)
    return tb.train.batch([number], batch)


def summing(replicator):
    """A step that adds its inputs to a weight; returns them and what the weight was."""
    optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(1.0))

    def step(numbers):
        w = tb.get_variable("w", [], initializer=tb.zeros_initializer())
        before = tb.identity(w)
        with tb.control_dependencies([before]):
            update = optimizer.minimize(-w * tb.reduce_sum(numbers))
        return numbers, before, update

    return step


def test_replicas_draw_in_turn_from_one_input_and_the_step_stays_planned():
    replicator = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none")
    with replicator, tb.Session() as session:
        numbers, before, _ = replicator.run(summing(replicator), lambda: numbers_of(range(1, 100)))
        replicator.init(session)
        assert session.explain(numbers).mode == "planned"
        assert session.run([numbers, before])[0].tolist() == [[1, 2], [3, 4]]
        found, sums = session.run([numbers, before])
    assert found.tolist() == [[5, 6], [7, 8]]
    assert sums.tolist() == [3, 7]


def test_each_replica_has_an_input_of_its_own_whose_end_ends_training():
    replicator = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none")
    found = [
        numbers.tolist()
        for numbers, _, _ in replicator.train(
            summing(replicator), lambda replica_id: numbers_of([1 + 10 * replica_id, 2 + 10 * replica_id], 2)
        )
    ]
    assert found == [[[1, 2], [11, 12]]] * 2
    assert not [thread.name for thread in threading.enumerate() if "queue" in thread.name]


def test_an_input_of_a_worker_is_drawn_once_and_split():
    replicator = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none")
    loop = replicator.train(
        summing(replicator), lambda: numbers_of(range(8), 1, 4), input_replication=tb.PER_WORKER
    )
    assert [numbers.tolist() for numbers, _, _ in loop] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_queues_and_tables_in_a_step_are_filled_from_init_on():
    replicator = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none")

    def step():
        table = tb.lookup.index_table_from_tensor(["7", "8", "9"])
        numbers = numbers_of([9, 8, 7, 8])
        return tb.cast(table.lookup(tb.as_string(tb.cast(numbers, tb.int32))), tb.int32)

    with replicator, tb.Session() as session:
        found = replicator.run(step)
        for _ in range(2):
            replicator.init(session)
            assert session.run(found).tolist() == [[2, 1], [0, 1]]
            replicator.shutdown()


def test_a_table_with_two_initializers_is_filled():
    def step(words):
        values = tb.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
        table = tb.lookup.HashTable(values, -1)
        tb.add_to_collection(tb.GraphKeys.TABLE_INITIALIZERS, values.initialize(table))
        return table.lookup(words)

    with tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none") as replicator:
        (found,) = replicator.train(step, lambda replica_id: iter([np.array(["b", "c"])]))
    assert found.tolist() == [[2, -1], [2, -1]]


def test_a_session_on_the_graph_shares_its_queues(monkeypatch):
    monkeypatch.setattr(endless_loops, "GRACE_S", 0.01)
    replicator = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none")
    with replicator.context():
        queue = tb.FIFOQueue(4, tb.float32, [[]])
        value = tb.placeholder(tb.float32, [None])
        enqueue = queue.enqueue_many([value])
    with replicator, tb.Session() as session:
        numbers, _, _ = replicator.run(lambda: summing(replicator)(queue.dequeue()))
        replicator.init(session)
        with tb.Session(graph=replicator.graph) as filling:
            filling.run(enqueue, {value: [1, 2, 3]})
        assert session.run(numbers).tolist() == [1, 2]
        with pytest.raises(DeadlineExceededError, match=r"waited for QueueDequeue in replica 1"):
            session.run(numbers, options=tb.RunOptions(timeout_in_ms=20))
        with tb.Session(graph=replicator.graph) as filling:
            filling.run(enqueue, {value: [4, 5]})
        assert session.run(numbers).tolist() == [4, 5]


@pytest.mark.parametrize("within", [False, True])
def test_an_error_of_a_thread_is_raised_by_the_step(tmp_path, within):
    good, bad = str(tmp_path / "good"), str(tmp_path / "bad")
    with tb.python_io.TFRecordWriter(good) as writer:
        writer.write(np.float32([1, 2]).tobytes())
    with open(bad, "wb") as file:
        file.write(b"no record at all")

    def records():
        files = tb.train.string_input_producer([good, bad], shuffle=False)
        numbers = tb.decode_raw(tb.TFRecordReader().read(files)[1], tb.float32)
        numbers.set_shape([2])
        return tb.train.batch([numbers], 1)

    replicator = tb.NonReplicator()
    step = summing(replicator)
    loop = replicator.train(lambda: step(records())) if within else replicator.train(step, records)
    with pytest.raises(DataLossError, match="bad' is damaged"):
        assert [numbers.tolist() for numbers, _, _ in loop] == [[[1, 2]]]


def test_a_limit_ends_the_wait_of_a_session_of_replicas(monkeypatch):
    monkeypatch.setattr(endless_loops, "GRACE_S", 0.01)
    queue = tb.FIFOQueue(4, tb.float32, [[2]])
    w = tb.Variable([1.0, 1.0])
    update = tb.train.GradientDescentOptimizer(0.5).minimize(tb.reduce_sum(w * queue.dequeue()))
    enqueue = queue.enqueue([[1.0, 2.0]])
    with tb.Session(target="tensorbow", replicas_per_device=2) as session:
        session.run(tb.global_variables_initializer())
        with pytest.raises(DeadlineExceededError, match=r"waited for QueueDequeue in replica 0"):
            session.run(update, options=tb.RunOptions(timeout_in_ms=20))
        session.run(enqueue)
        session.run(enqueue)
        session.run(update)


def test_the_end_of_a_queue_in_a_step_is_an_error_of_run():
    replicator = tb.NonReplicator()
    with replicator, tb.Session() as session:
        numbers, _, _ = replicator.run(lambda: summing(replicator)(numbers_of([1, 2], 1)))
        replicator.init(session)
        assert session.run(numbers).tolist() == [[1, 2]]
        with pytest.raises(OutOfRangeError, match="closed"):
            session.run(numbers)
