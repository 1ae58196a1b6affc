"""Partial runs: the parts give what one run gives, each operation runs once, misuse is refused."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")


def placeholders(names: str) -> list[tb.Tensor]:
    return [tb.placeholder(tb.float32, [], name=name) for name in names]


def test_a_later_feed_depends_on_an_earlier_result(session: tb.Session) -> None:
    a, b, c = placeholders("abc")
    total = a + b
    product = total * c
    for _ in range(2):
        handle = session.partial_run_setup([total, product], [a, b, c])
        first = session.partial_run(handle, total, {a: 1, b: 2})
        assert first == 3
        assert session.partial_run(handle, [product], {"c:0": 17 * first}) == [153]
        with pytest.raises(
            InvalidArgumentError, match="expected the handle of a partial run with values left"
        ):
            session.partial_run(handle, product)


def test_feeds_may_come_before_the_fetch_that_needs_them(session: tb.Session) -> None:
    a, b = placeholders("ab")
    handle = session.partial_run_setup({"sum": a + b, "fed": a}, [a, b])
    assert session.partial_run(handle, [], {a: 1}) == []
    assert session.partial_run(handle, {"fed": a}) == {"fed": 1}
    assert session.partial_run(handle, ["Add:0"], {b: 2}) == [3]


def test_many_at_a_time(session: tb.Session) -> None:
    a, b, c = placeholders("abc")
    total, product = a + b, (a + b) * c
    handles = [session.partial_run_setup([total, product], [a, b, c]) for _ in range(3)]
    sums = [session.partial_run(h, total, {a: i, b: 2}) for i, h in enumerate(handles)]
    assert session.run(product, {a: 5, b: 5, c: 5}) == 50
    assert [session.partial_run(h, product, {c: s}) for h, s in zip(handles, sums, strict=True)] == [4, 9, 16]


def test_from_threads(session: tb.Session) -> None:
    a, c = placeholders("ac")
    total, product = a + 1.0, (a + 1.0) * c
    found: dict[int, float] = {}

    def run(number: int) -> None:
        for _ in range(20):
            handle = session.partial_run_setup([total, product], [a, c])
            first = session.partial_run(handle, total, {a: number})
            found[number] = session.partial_run(handle, product, {c: first})

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: 1, 1: 4, 2: 9, 3: 16}


def test_each_operation_runs_once(session: tb.Session) -> None:
    a, b = placeholders("ab")
    w = tb.Variable(np.float32(1), name="w")
    update = tb.assign_add(w, a)
    drawn = tb.random_uniform([3])
    with tb.control_dependencies([update]):
        behind = b * 2.0
    first, second = drawn + a, drawn + b
    session.run(tb.global_variables_initializer())
    handle = session.partial_run_setup([first, second, behind, update.op, w], [a, b])
    early = session.partial_run(handle, first, {a: 10})
    assert session.partial_run(handle, update.op) is None
    assert session.partial_run(handle, [behind, second], {b: 20})[0] == 40
    assert session.partial_run(handle, w) == 11
    handle = session.partial_run_setup([first, second], [a, b])
    early = session.partial_run(handle, first, {a: 10})
    np.testing.assert_array_equal(session.partial_run(handle, second, {b: 10}), early)


def test_loops_branches_and_queues(session: tb.Session) -> None:
    """A loop runs whole, even if one of its results is fetched later."""
    a, b = placeholders("ab")
    n = tb.placeholder(tb.int32, [], name="n")
    count, doubled = tb.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * 2.0), [tb.constant(0), a])
    chosen = tb.cond(a > 0.0, lambda: b * 2.0, lambda: b * 3.0)
    queue = tb.FIFOQueue(3, tb.float32, [[]])
    put, taken = queue.enqueue(doubled), queue.dequeue()
    fetches = [count, doubled, chosen, chosen + doubled, put, taken, taken + 1.0]
    handle = session.partial_run_setup(fetches, [a, b, n])
    assert session.partial_run(handle, count, {a: 3, n: 4}) == 4
    assert session.partial_run(handle, put) is None
    assert session.partial_run(handle, fetches[6]) == 49
    assert session.partial_run(handle, fetches[3], {b: 1}) == 50
    assert session.partial_run(handle, [doubled, chosen, taken]) == [48, 2, 48]


def test_over_two_devices(session: tb.Session) -> None:
    a, b = placeholders("ab")
    with tb.device("/cpu:1"):
        doubled = a * 2.0
    total = doubled + b
    with tb.Session(devices=["/cpu:1"]) as two:
        handle = two.partial_run_setup([doubled, total], [a, b])
        assert two.partial_run(handle, doubled, {a: 2}) == 4
        assert two.partial_run(handle, total, {b: 3}) == 7


@given(st.data())
def test_parts_give_the_values_of_one_run(data: st.DataObject) -> None:
    """Random graphs, fetched in random parts; each feed comes as late as it can."""
    with tb.Graph().as_default(), tb.Session() as session:
        fed = placeholders("abc")
        tensors: list[tb.Tensor] = list(fed)
        for _ in range(data.draw(st.integers(1, 8))):
            x, y = (data.draw(st.sampled_from(tensors)) for _ in range(2))
            tensors.append(data.draw(st.sampled_from([tb.add, tb.maximum, tb.subtract]))(x, y))
        values = {tensor: float(number) for number, tensor in enumerate(fed, 1)}
        fetches = data.draw(st.lists(st.sampled_from(tensors), min_size=1, unique=True))
        expected = dict(zip(fetches, session.run(fetches, values), strict=True))
        handle = session.partial_run_setup(fetches, fed)
        needs = {t: inputs_of(t) & set(fed) for t in fetches}
        found: dict[Any, Any] = {}
        while left := [t for t in fetches if t not in found]:
            now = data.draw(st.lists(st.sampled_from(left), min_size=1, unique=True))
            late = set().union(*(needs[t] for t in now)) - found.keys() & set(fed)
            late -= {t for t in fed if t not in values}
            feeds = {t: values.pop(t) for t in late}
            found.update(zip(now, session.partial_run(handle, now, feeds), strict=True))
        assert found == expected


def inputs_of(tensor: tb.Tensor) -> set[tb.Tensor]:
    """The tensor and all that it is computed from."""
    return {tensor}.union(*(inputs_of(t) for t in tensor.op.inputs))


def test_misuse(session: tb.Session) -> None:
    a, b, c = placeholders("abc")
    total, product = a + b, (a + b) * c
    handle = session.partial_run_setup([total, product], [a, b, c])
    for fetches, feeds, message in (
        (product, {a: 1, b: 2}, r"the fetches need c:0, which no part has fed yet; feed it .*made at"),
        (a, {}, "a:0 is not among the fetches of the setup"),
        (total, {total: 1}, "Add:0 is not among the feeds of the setup"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            session.partial_run(handle, fetches, feeds)
    assert session.partial_run(handle, total, {a: 1, b: 2}) == 3
    with pytest.raises(InvalidArgumentError, match="Add:0 was fetched by an earlier part"):
        session.partial_run(handle, total)
    with pytest.raises(InvalidArgumentError, match="a:0 was fed by an earlier part"):
        session.partial_run(handle, product, {a: 1, c: 1})
    assert session.partial_run(handle, product, {c: 2}) == 6
    with pytest.raises(InvalidArgumentError, match="expected at least one fetch"):
        session.partial_run_setup([])


def test_an_operation_that_fails_ends_it(session: tb.Session) -> None:
    (a,) = placeholders("a")
    checked = tb.check_numerics(a, "bad")
    handle = session.partial_run_setup([checked, checked + 1.0], [a])
    with pytest.raises(InvalidArgumentError, match="bad"):
        session.partial_run(handle, checked, {a: np.nan})
    with pytest.raises(InvalidArgumentError, match="expected the handle"):
        session.partial_run(handle, checked)


def test_a_session_that_closes_or_trains_replicas(session: tb.Session) -> None:
    (a,) = placeholders("a")
    closing = tb.Session()
    handle = closing.partial_run_setup([a + 1.0], [a])
    closing.close()
    with pytest.raises(InvalidArgumentError, match="expected the handle"):
        closing.partial_run(handle, "Add:0", {a: 1})
    with pytest.raises(FailedPreconditionError, match="closed"):
        closing.partial_run_setup([a], [a])
    with (
        tb.TensorBowSession() as replicas,
        pytest.raises(InvalidArgumentError, match=r"expected a plain tb\.Session, got TensorBowSession"),
    ):
        replicas.partial_run_setup([a + 1.0], [a])
