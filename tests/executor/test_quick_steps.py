"""Steps whose nodes run one after the other: in the caller's thread, without counts and pool."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import CancelledError, FailedPreconditionError, InvalidArgumentError, OutOfRangeError

pytestmark = pytest.mark.usefixtures("graph")


def chain_of(session):
    """Nodes of the chain of the plan that was made last; None if it is no chain."""
    chain = [*session._dynamic.plans.values()][-1].chain
    return None if chain is None else len(chain)


def test_ops_that_wait_in_turn_are_a_chain_with_what_is_between_them():
    first, second = (tb.FIFOQueue(8, [tb.float32], [[2]]) for _ in range(2))
    x = tb.placeholder(tb.float32, [None, 2])
    put = first.enqueue_many(x)
    row = first.dequeue()
    doubled = tb.boolean_mask(row, row > 0.0) * 2.0
    with tb.control_dependencies([second.enqueue(row + 1.0)]):
        size = second.size()
    with tb.Session() as session:
        session.run(put, {x: [[1, -1], [2, 3], [-4, 5]]})
        assert chain_of(session) == 2
        assert [session.run([doubled, tb.constant(7.0)])[0].tolist() for _ in range(2)] == [[2], [4, 6]]
        assert chain_of(session) == 3
        assert session.run([size, x], {x: [[9, 9]]})[0] == 1
        assert session.run(second.dequeue()).tolist() == [-3, 6]


def test_ops_that_wait_side_by_side_are_none():
    queues = [tb.FIFOQueue(8, [tb.float32], [[]]) for _ in range(2)]
    with tb.Session() as session:
        session.run([queue.enqueue(2.0) for queue in queues])
        assert chain_of(session) is None
        assert session.run([queue.dequeue() for queue in queues]) == [2.0, 2.0]
        assert chain_of(session) is None


def test_errors_name_the_op_and_leave_the_session_usable():
    queue = tb.FIFOQueue(2, [tb.float32], [[2]])
    x = tb.placeholder(tb.float32, [None])
    put, take = queue.enqueue(x), queue.dequeue()
    with tb.Session() as session:
        with pytest.raises(InvalidArgumentError, match=r"QueueEnqueue.*component 0 is .*test_quick_steps"):
            session.run(put, {x: [1, 2, 3]})
        session.run(put, {x: [1, 2]})
        assert session.run(take).tolist() == [1, 2]
        session.run(queue.close())
        with pytest.raises(OutOfRangeError, match=r"QueueDequeue.*is closed.*test_quick_steps"):
            session.run(take)
        assert chain_of(session) == 2


def test_what_waits_is_answered_by_another_thread_or_ended_with_the_session():
    queue = tb.FIFOQueue(2, [tb.float32], [[]])
    take, put = queue.dequeue(), queue.enqueue(4.0)
    session, found = tb.Session(), []

    def wait():
        try:
            while True:
                found.append(session.run(take))
        except (CancelledError, FailedPreconditionError) as error:
            found.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    for count in range(1, 4):
        session.run(put)
        while len(found) < count:
            thread.join(0.001)
    while not session._dynamic.running:
        thread.join(0.001)
    session.close()
    thread.join(30)
    assert found[:3] == [4.0] * 3
    assert found[3:] in (
        ["the session was closed while the step ran"],
        ["the session is closed; make a new one"],
    )


def test_what_a_loop_takes_from_outside_is_not_kept_for_its_gradient():
    """Its weights, for example, which would take memory for each iteration."""
    x, w = tb.placeholder(tb.float32, [3]), tb.placeholder(tb.float32, [3])

    def body(i, h):
        return i + 1, tb.while_loop(lambda j, g: j < 2, lambda j, g: (j + 1, tb.sin(g * w)), [0, h * x])[1]

    _, h = tb.while_loop(lambda i, h: i < 3, body, [0, x])
    slopes = tb.gradients(tb.reduce_sum(h), [x, w])
    second = tb.gradients(tb.reduce_sum(slopes[1]), [x])[0]
    kept = [op.inputs[0].op for op in h.graph.get_operations() if op.type == "StackPush"]
    assert kept
    assert not any(op.type == "Enter" and op.attrs["is_constant"] for op in kept)
    values = np.array([[0.3, -0.5, 0.9], [0.7, 0.2, -0.4]], np.float32)

    def unrolled(x, w):
        h = x
        for _ in range(3):
            h = h * x
            for _ in range(2):
                h = tb.sin(h * w)
        return h

    expected = tb.gradients(tb.reduce_sum(unrolled(x, w)), [x, w])
    expected.append(tb.gradients(tb.reduce_sum(expected[1]), [x])[0])
    for compiles in (True, False):
        with tb.Session(config=tb.ConfigProto(compiles_loops=compiles)) as session:
            found, wanted = session.run([[*slopes, second], expected], {x: values[0], w: values[1]})
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
