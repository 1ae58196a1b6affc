"""Staging areas and critical sections: order, waiting, exclusion, and that a failed step leaves a section."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import CancelledError, DeadlineExceededError, InvalidArgumentError
from tests.queues.test_queues import SOON, Running

pytestmark = pytest.mark.usefixtures("session")


def test_put_peek_get_clear(session: tb.Session) -> None:
    area = tb.StagingArea([tb.float32, tb.int64], shapes=[[2], []], names=["x", "n"])
    n = tb.placeholder(tb.int64, [])
    put = area.put({"x": [1.0, 2.0], "n": n})
    index = tb.placeholder(tb.int32, [])
    peeked, taken, size = area.peek(index), area.get(), area.size()
    for number in range(3):
        session.run(put, {n: number})
    assert session.run([peeked["n"], size], {index: 2}) == [2, 3]
    first = session.run(taken)
    np.testing.assert_array_equal(first["x"], [1, 2])
    assert (first["n"], session.run(size)) == (0, 2)
    assert session.run(peeked["n"], {index: 0}) == 1
    session.run(area.clear())
    assert session.run(size) == 0
    assert (area.dtypes, area.names) == ([tb.float32, tb.int64], ["x", "n"])
    assert [shape.as_list() for shape in area.shapes] == [[2], []]


def test_a_peek_waits_for_its_element_and_a_put_for_room(session: tb.Session) -> None:
    area = tb.StagingArea(tb.float32, shapes=[[]], capacity=2)
    x = tb.placeholder(tb.float32, [])
    put, peeked = area.put(x), area.peek(1)
    with pytest.raises(DeadlineExceededError):
        session.run(peeked, options=SOON)
    waiting = Running(session, peeked)
    session.run(put, {x: 5})
    session.run(put, {x: 6})
    assert waiting.result() == 6
    with pytest.raises(DeadlineExceededError):
        session.run(put, {x: 7}, options=SOON)
    full = Running(session, put, {x: 8})
    session.run(area.clear())
    full.result()
    assert session.run(area.get()) == 8


def test_a_closed_session_ends_a_peek(session: tb.Session) -> None:
    area = tb.StagingArea(tb.float32, shapes=[[]])
    other = tb.Session()
    waiting = Running(other, area.peek(0))
    while not other._dynamic.running:
        threading.Event().wait(0.002)
    other.close()
    with pytest.raises((CancelledError, tb.errors.OutOfRangeError)):
        waiting.result()


def test_misuse() -> None:
    area = tb.StagingArea(tb.float32)
    with pytest.raises(InvalidArgumentError, match=r"peek: index is float32\[\], expected an integer scalar"):
        area.peek(1.0)
    section = tb.CriticalSection(name="alone")
    with pytest.raises(InvalidArgumentError, match="section alone is within itself"):
        section.execute(lambda: section.execute(lambda: tb.constant(1.0)))
    with pytest.raises(InvalidArgumentError, match="expected fn to be a function, got int 3"):
        section.execute(3)
    with (
        pytest.raises(InvalidArgumentError, match="index is -1, expected at least 0"),
        tb.Session() as session,
    ):
        session.run(area.peek(-1))


def counting(section: tb.CriticalSection) -> tuple[Any, list[int], Any]:
    """A step that notes how many are in the section at once; the notes; a value that makes it fail."""
    inside, most, guard = [0], [0], threading.Lock()

    def enter(fails: Any) -> Any:
        with guard:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        threading.Event().wait(0.001)
        with guard:
            inside[0] -= 1
        if fails:
            raise ValueError("as asked")
        return np.float32(1)

    fails = tb.placeholder(tb.bool, [])
    total = tb.Variable(np.float32(0), name="total")

    def body() -> Any:
        before = total.read_value()
        with tb.control_dependencies([before]):
            one = tb.py_func(enter, [fails], tb.float32)
        one.set_shape([])
        return {"total": total.assign(before + one), "before": before}

    return section.execute(body), most, fails


def test_one_step_at_a_time(session: tb.Session) -> None:
    """Reading and adding in four threads loses no addition; steps that fail leave the section."""
    step, most, fails = counting(tb.CriticalSection())
    session.run(tb.global_variables_initializer())
    failed: list[str] = []

    def run() -> None:
        for number in range(12):
            try:
                found = session.run(step, {fails: number % 4 == 3})
                assert found["total"] == found["before"] + 1
            except Exception as error:
                failed.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert len(failed) == 12
    assert all("as asked" in text for text in failed)
    assert session.run(tb.global_variables()[0]) == 36


@pytest.mark.parametrize("shared", [False, True])
def test_several_executions_in_one_step_run_in_program_order(session: tb.Session, shared: bool) -> None:
    """None holds the section while it waits for the write of another one; a branch may be left out."""
    total, found = tb.Variable(1.0), []
    sections = [tb.CriticalSection(shared_name="one" if shared else None) for _ in range(2)]
    chosen = tb.placeholder(tb.bool, [])
    for number in range(6):
        section = sections[number % 2 if shared else 0]

        def body(number: int = number) -> tb.Tensor:
            return tb.assign(total, total.read_value() * 2.0 + number)

        if number == 3:
            found.append(tb.cond(chosen, lambda s=section, b=body: s.execute(b), lambda: tb.constant(-1.0)))
        else:
            found.append(section.execute(body))
    limited = tb.RunOptions(timeout_in_ms=20000)
    for takes, values in ((True, [2, 5, 12, 27, 58, 121]), (False, [2, 5, 12, -1, 28, 61])):
        session.run(total.initializer)
        assert session.run(found, {chosen: takes}, options=limited) == values


def test_sessions_share_a_section_by_name() -> None:
    first, second = (tb.CriticalSection(name, shared_name="shared") for name in ("first", "second"))
    waits = tb.FIFOQueue(1, tb.float32, shapes=[[]], shared_name="of the section")
    held = first.execute(waits.dequeue)
    through = second.execute(lambda: tb.constant(2.0) + 1.0)
    with tb.Session() as one, tb.Session() as two:
        inside = Running(one, held)
        while not one._dynamic.running:
            threading.Event().wait(0.002)

        def until_it_waits() -> None:
            while True:  # until the other step is in the section
                two.run(through, options=SOON)

        with pytest.raises(DeadlineExceededError):
            until_it_waits()
        two.run(waits.enqueue(7.0))
        assert inside.result() == 7
        assert two.run(through) == 3
    tb.Session.reset("")


def test_a_closed_session_ends_the_wait_for_a_section() -> None:
    waits = tb.FIFOQueue(1, tb.float32, shapes=[[]])
    section = tb.CriticalSection()
    held, none = section.execute(waits.dequeue), section.execute(lambda: None)
    session = tb.Session()
    assert session.run(none) is None
    running = [Running(session, held), Running(session, none)]
    while len(session._dynamic.running) < 2:
        threading.Event().wait(0.002)
    session.close()
    for each in running:
        with pytest.raises((CancelledError, tb.errors.OutOfRangeError)):
            each.result()
