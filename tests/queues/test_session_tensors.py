"""Values that stay with a session, by handle: reads in later runs, deletion, feeds, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import Resources


def test_a_value_is_read_in_later_runs(session: tb.Session) -> None:
    x = tb.placeholder(tb.float32, [None])
    kept = tb.get_session_handle(x * 2.0)
    given = np.array([1.0, 2.0], np.float32)
    handle = session.run(kept, {x: given})
    given[:] = 0
    holder, data = tb.get_session_tensor(handle, tb.float32)
    total = tb.reduce_sum(data)
    assert session.run(total, {holder: handle}) == 6
    assert session.run(total, {holder: handle.handle}) == 6
    other, value = session.run([kept, x], {x: [5.0]})
    assert str(other) == other.to_raw_string() == other.handle != handle.handle
    assert session.run(total, {holder: other}) == 2 * value[0]
    assert handle.eval().tolist() == [2, 4]
    assert session.run(tb.get_session_handle(tb.constant(3))).eval() == 3


def test_what_eval_gives_is_ones_own(session: tb.Session) -> None:
    handle = session.run(tb.get_session_handle(tb.constant([1.0, 2.0])))
    handle.eval()[:] = 9
    holder, data = tb.get_session_tensor(handle, tb.float32)
    session.run(data, {holder: handle})[:] = 9
    assert handle.eval().tolist() == [1, 2]


def test_words_stay_too(session: tb.Session) -> None:
    handle = session.run(tb.get_session_handle(tb.constant(["a", "b"])))
    holder, data = tb.get_session_tensor(handle, tb.string)
    assert session.run(tb.string_upper(data), {holder: handle}).tolist() == [b"A", b"B"]
    words = tb.placeholder(tb.string, [None])
    assert session.run(tb.string_upper(words), {words: handle}).tolist() == [b"A", b"B"]


@pytest.mark.parametrize("by", ["operation", "handle"])
def test_a_deleted_value_is_gone(session: tb.Session, by: str) -> None:
    handle = session.run(tb.get_session_handle(tb.constant([1.0])))
    holder, data = tb.get_session_tensor(handle, tb.float32)
    which, deletion = tb.delete_session_tensor(handle)
    if by == "handle":
        handle.delete()
    else:
        session.run(deletion, {which: handle})
    with pytest.raises(InvalidArgumentError, match=r"GetSessionTensor.*: expected the handle of.*keeps"):
        session.run(data, {holder: handle})
    with pytest.raises(InvalidArgumentError, match=r"DeleteSessionTensor.*: expected the handle"):
        session.run(deletion, {which: handle})
    with pytest.raises(InvalidArgumentError, match=r"TensorHandle.eval: expected the handle"):
        handle.eval()


def test_handles_are_fed_in_place_of_values(session: tb.Session) -> None:
    a, v = tb.constant(10.0), tb.Variable([1.0, 2.0])
    session.run(tb.global_variables_initializer())
    product = a * 5.0
    handle = session.run(tb.get_session_handle(product))
    assert session.run(product * product, {product: handle}) == 2500
    rows = session.run(tb.get_session_handle(v + 1.0))
    assert session.run(v * 2.0, {v.value(): rows}).tolist() == [4, 6]


def test_a_loop_outside_of_the_graph(session: tb.Session) -> None:
    """Each run takes the handle of the one before, as in TensorFlow's cases."""
    handle = session.run(tb.get_session_handle(tb.constant(0)))
    holder, count = tb.get_session_tensor(handle, tb.int32)
    following = tb.get_session_handle(count + 1)
    for _ in range(5):
        before, handle = handle, session.run(following, {holder: handle})
        before.delete()
    assert handle.eval() == 5


def test_a_branch_reads_a_value(session: tb.Session) -> None:
    one, two = session.run([tb.get_session_handle(tb.constant(each)) for each in ([1.0], [2.0])])
    (first, a), (second, b) = tb.get_session_tensor(one, tb.float32), tb.get_session_tensor(two, tb.float32)
    chosen = tb.cond(tb.reduce_sum(a) < tb.reduce_sum(b), lambda: a * 10.0, lambda: b * 100.0)
    assert session.run(chosen, {first: one, second: two}).tolist() == [10]
    assert session.run(chosen, {first: two, second: one}).tolist() == [100]


@pytest.mark.parametrize("shares", [False, True], ids=["plain", "replicator"])
def test_values_belong_to_a_session(shares: bool) -> None:
    """Sessions on a Replicator's graph share queues, but no values."""
    with tb.Graph().as_default() as graph:
        graph.host_objects = Resources() if shares else None
        kept = tb.get_session_handle(tb.constant([1.0]))
        with tb.Session() as first, tb.Session() as second:
            handle = first.run(kept)
            holder, data = tb.get_session_tensor(handle, tb.float32)
            with pytest.raises(InvalidArgumentError, match="that this session keeps"):
                second.run(data, {holder: handle})
            wrong = tb.get_session_tensor(handle, tb.int32)
            with pytest.raises(InvalidArgumentError, match=r"handle of int32, got one of float32"):
                first.run(wrong[1], {wrong[0]: handle})
        with pytest.raises(FailedPreconditionError, match="is closed"):
            handle.eval()
        with pytest.raises(InvalidArgumentError, match=r"expected handle to be a handle, fetched"):
            tb.get_session_tensor(1, tb.float32)
