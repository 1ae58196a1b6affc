"""Accumulators, barriers, staging areas with keys and with limits of memory: values, waiting, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    OutOfRangeError,
    ResourceExhaustedError,
)
from tests.queues.test_queues import SOON, Running

pytestmark = pytest.mark.usefixtures("session")


@pytest.mark.parametrize("kind", ["MEAN", "SUM"])
def test_an_accumulator_of_dense_gradients(session: tb.Session, kind: str) -> None:
    accumulator = tb.ConditionalAccumulator(tb.float32, [2], reduction_type=kind)
    gradient, step = tb.placeholder(tb.float32, [2]), tb.placeholder(tb.int64, [])
    add, taken, count = (
        accumulator.apply_grad(gradient, step),
        accumulator.take_grad(2),
        accumulator.num_accumulated(),
    )
    assert taken.shape == [2]
    session.run(add, {gradient: [1, 2], step: 0})
    with pytest.raises(DeadlineExceededError):
        session.run(taken, options=SOON)
    waiting = Running(session, taken)
    session.run(add, {gradient: [3, 6], step: 0})
    assert waiting.result().tolist() == ([2, 4] if kind == "MEAN" else [4, 8])
    session.run(add, {gradient: [9, 9], step: 0})  # of the step before: dropped
    assert session.run(count) == 0
    session.run(accumulator.set_global_step(5))
    session.run(add, {gradient: [9, 9], step: 4})
    for number in (5, 6, 7):
        session.run(add, {gradient: [number, 0], step: number})
    assert session.run(count) == 3
    assert session.run(taken)[0] == pytest.approx(6 if kind == "MEAN" else 18)


def test_an_accumulator_of_rows(session: tb.Session) -> None:
    accumulator = tb.SparseConditionalAccumulator(tb.float64, [None, 2])
    add = accumulator.apply_indexed_slices_grad(
        tb.IndexedSlices(tb.constant([[1.0, 2], [3, 4], [5, 6]], tb.float64), [4, 1, 4], [7, 2])
    )
    more = accumulator.apply_grad([1, 0], [[10.0, 20], [30, 40]])
    session.run([add, more])
    indices, values, shape = session.run(accumulator.take_grad(2))
    assert indices.tolist() == [0, 1, 4]
    assert values.tolist() == [[30, 40], [6.5, 12], [6, 8]]  # each the mean of the gradients that have it
    assert shape.tolist() == [7, 2]
    total = tb.SparseConditionalAccumulator(tb.float64, [7, 2], reduction_type="SUM")
    session.run([total.apply_grad([1], [[1.0, 2]]), total.apply_grad([1, 3], [[1.0, 1], [5, 5]])])
    slices = total.take_indexed_slices_grad(1)
    dense = np.zeros((7, 2))
    dense[1], dense[3] = [2, 3], [5, 5]
    assert session.run(tb.convert_to_tensor(slices)).tolist() == dense.tolist()


def test_backup_workers_by_an_accumulator(session: tb.Session) -> None:
    """Two of three gradients make a step; the late one belongs to a step that is over."""
    w = tb.Variable(8.0)
    accumulator = tb.ConditionalAccumulator(tb.float32, [])
    step, scale = tb.placeholder(tb.int64, []), tb.placeholder(tb.float32, [])
    add = accumulator.apply_grad(tb.gradients(scale * w * w, w)[0], step)
    update = w.assign_sub(0.25 * accumulator.take_grad(2))
    session.run(tb.global_variables_initializer())
    for number in range(2):
        for factor in (0.5, 1.5):
            session.run(add, {step: number, scale: factor})
        session.run(update)
        session.run(add, {step: number, scale: 100.0})
    assert session.run(w) == 2


def test_a_barrier_joins_components_by_key(session: tb.Session) -> None:
    barrier = tb.Barrier([tb.float32, tb.int32], shapes=[[2], []])
    keys, rows, numbers = tb.placeholder(tb.int64), tb.placeholder(tb.float32), tb.placeholder(tb.int32)
    first, second = barrier.insert_many(0, keys, rows), barrier.insert_many(1, keys, numbers)
    indices, found, values = barrier.take_many(2)
    assert [v.shape.as_list() for v in values] == [[None, 2], [None]]
    session.run(first, {keys: [7, 5, 9], rows: [[7, 7], [5, 5], [9, 9]]})
    sizes = [barrier.ready_size(), barrier.incomplete_size()]
    assert session.run(sizes) == [0, 3]
    waiting = Running(session, [indices, found, *values])
    session.run(second, {keys: [5], numbers: [50]})
    session.run(second, {keys: [7], numbers: [70]})
    positions, names, first_values, second_values = waiting.result()
    assert (positions.tolist(), names.tolist()) == ([-(2**63), -(2**63) + 1], [7, 5])
    assert (first_values.tolist(), second_values.tolist()) == ([[7, 7], [5, 5]], [70, 50])
    with pytest.raises(InvalidArgumentError, match="a key has component 0 already; give each once"):
        session.run(first, {keys: [9], rows: [[1, 1]]})
    session.run(barrier.close())
    with pytest.raises(CancelledError, match="is closed: nothing new can be inserted"):
        session.run(first, {keys: [1], rows: [[1, 1]]})
    with pytest.raises(DeadlineExceededError):  # key 9 may still be completed
        session.run(found, options=SOON)
    session.run(second, {keys: [9], numbers: [90]})
    assert session.run(sizes) == [1, 0]
    with pytest.raises(OutOfRangeError, match=r"closed and has insufficient elements \(requested 2, current"):
        session.run(found)
    assert session.run(barrier.take_many(2, allow_small_batch=True)[1]).tolist() == [9]
    with pytest.raises(OutOfRangeError):
        session.run(barrier.take_many(1, allow_small_batch=True)[1])


def test_a_cancelled_barrier_drops_what_is_incomplete(session: tb.Session) -> None:
    barrier = tb.Barrier([tb.int32, tb.int32])
    session.run(barrier.insert_many(0, [1], [1]))
    waiting = Running(session, barrier.take_many(1)[1])
    session.run(barrier.close(cancel_pending_enqueues=True))
    with pytest.raises(OutOfRangeError):
        waiting.result()
    with pytest.raises(CancelledError):
        session.run(barrier.insert_many(1, [1], [1]))


@pytest.mark.parametrize("ordered", [True, False])
def test_a_staging_area_with_keys(session: tb.Session, ordered: bool) -> None:
    area = tb.MapStagingArea([tb.float32, tb.int32], [[], []], names=["x", "n"], ordered=ordered)
    key, x = tb.placeholder(tb.int64, []), tb.placeholder(tb.float32, [])
    put = area.put(key, {"x": x, "n": 3})
    wanted = Running(session, area.get(5))
    for number in (8, 5, 2):
        session.run(put, {key: number, x: number / 2})
    assert wanted.result() == {"x": 2.5, "n": 3}
    assert session.run(area.peek(8)["x"]) == 4
    found, element = session.run(area.get())
    assert found in ([2] if ordered else [2, 8])
    assert element["x"] == found / 2
    session.run(area.put(4, {"n": 1}))
    assert session.run([area.size(), area.incomplete_size()]) == [1, 1]
    with pytest.raises(InvalidArgumentError, match="key 4 has these components already"):
        session.run(area.put(4, {"n": 1}))
    session.run(area.put(4, [2.0], indices=["x"]))
    assert session.run(area.get(4, indices=["x"])) == {"x": 2}
    assert session.run(area.get(4, indices=[1])) == {"n": 1}
    session.run(area.clear())
    assert session.run(area.size()) == 0


def test_limits_of_elements_and_memory(session: tb.Session) -> None:
    x = tb.placeholder(tb.float32, [None])
    for area in (tb.MapStagingArea(tb.float32, memory_limit=40), tb.StagingArea(tb.float32, memory_limit=40)):
        keyed = isinstance(area, tb.MapStagingArea)
        puts = [area.put(k, x) if keyed else area.put(x) for k in range(3)]  # type: ignore[call-arg, arg-type]
        session.run(puts[0], {x: np.ones(6)})
        with pytest.raises(DeadlineExceededError):
            session.run(puts[1], {x: np.ones(5)}, options=SOON)
        session.run(puts[1], {x: np.ones(4)})
        waiting = Running(session, puts[2], {x: np.ones(6)})
        session.run(area.get(0) if keyed else area.get())  # type: ignore[arg-type]
        waiting.result()
        assert session.run(area.size()) == 2
        with pytest.raises(
            ResourceExhaustedError, match="an element of 44 bytes, more than the memory_limit of"
        ):
            session.run(puts[0], {x: np.ones(11)})
        session.run(area.clear())
        session.run(puts[0], {x: np.ones(10)})
    few = tb.MapStagingArea(tb.float32, capacity=1)
    session.run(few.put(1, 1.0))
    with pytest.raises(DeadlineExceededError):
        session.run(few.put(2, 1.0), options=SOON)


def test_sessions_share_by_name_and_closing_ends_what_waits() -> None:
    accumulator = tb.ConditionalAccumulator(tb.float32, [], shared_name="gradients of all")
    taken = accumulator.take_grad(1)
    one, two = tb.Session(), tb.Session()
    waiting = Running(one, taken)
    two.run(accumulator.apply_grad(4.0))
    assert waiting.result() == 4
    own = tb.Barrier(tb.int32)
    waiting = Running(one, own.take_many(1)[1])
    while not one._dynamic.running:
        pass
    one.close()
    with pytest.raises(CancelledError):
        waiting.result()
    tb.Session.reset("")
    two.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tb.Barrier([]), "got 0 types and 0 shapes"),
        (lambda: tb.Barrier(tb.int32).insert_many(1, [1], [1]), "component_index is 1, expected less than 1"),
        (lambda: tb.Barrier(tb.int32, [[2]]).insert_many(0, [1], [1]), r"expected \[n\] and \[n\] \+ \[2\]"),
        (lambda: tb.Barrier(tb.int32).take_many(1, timeout=3), "timeout has no effect; give session.run"),
        (lambda: tb.ConditionalAccumulator(tb.bool), "an accumulator of dtype bool"),
        (lambda: tb.ConditionalAccumulator(tb.float32, [2]).apply_grad([1.0]), r"expected \[2\]"),
        (lambda: tb.MapStagingArea([tb.int32], names=["a"]).put(1, 2), "give a dictionary of"),
        (lambda: tb.MapStagingArea([tb.int32]).get(1, [3]), "expected different components of"),
        (lambda: tb.MapStagingArea([tb.int32]).put(1.5, 2), "key is float32"),
    ],
)  # fmt: skip
def test_refusals(make: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        make()
