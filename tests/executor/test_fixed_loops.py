"""Dynamic loops on fixed arrays: the values of loops in Python, in every way in which variables move."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import TensorBowError
from tensorbow.executor import simple_loop
from tensorbow.executor.simple_loop import FixedLoop


@pytest.fixture(autouse=True)
def session() -> Iterator[tb.Session]:
    with tb.Graph().as_default(), tb.Session(config=tb.ConfigProto(compiles_loops=False)) as made:
        yield made


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> list[FixedLoop | None]:
    """The forms that are made meanwhile."""
    made: list[FixedLoop | None] = []
    make = simple_loop.fixed_loop

    def noted(*args: Any) -> FixedLoop | None:
        made.append(make(*args))
        return made[-1]

    monkeypatch.setattr(simple_loop, "fixed_loop", noted)
    return made


BODIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "swapped": (lambda x, y: (y, x + 1.0), lambda x, y: (y, x + 1)),
    "rotated": (lambda x, y: (y, x), lambda x, y: (y, x)),
    "kept": (lambda x, y: (x, y * 2.0), lambda x, y: (x, y * 2)),
    "one for both": (lambda x, y: 2 * [x + y], lambda x, y: (x + y, x + y)),
    "a view": (lambda x, y: (tb.reshape(y, [2]), x - y), lambda x, y: (y, x - y)),
    "a constant": (lambda x, y: (tb.constant([1.0, 2.0]), x + y), lambda x, y: (np.float32([1, 2]), x + y)),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("limit", [0, 1, 5])
def test_variables_move_as_in_python(
    session: tb.Session, forms: list[FixedLoop | None], name: str, limit: int
) -> None:
    body, plain = BODIES[name]
    n = tb.placeholder(tb.float32, [])
    x, y = (tb.placeholder(tb.float32, [2]) for _ in range(2))
    found = tb.while_loop(lambda i, *_: i < n, lambda i, *v: (i + 1.0, *body(*v)), [tb.constant(0.0), x, y])[
        1:
    ]
    values = [np.float32([1, 2]), np.float32([3, 5])]
    for _ in range(2):
        got = session.run(found, {n: limit, x: values[0], y: values[1]})
        expected = values
        for _ in range(limit):
            expected = [*plain(*expected)]
        np.testing.assert_array_equal(got, expected)
    assert len(forms) == 1
    assert forms[0] is not None


def test_shapes_that_change_take_the_other_way(session: tb.Session, forms: list[FixedLoop | None]) -> None:
    n = tb.placeholder(tb.float32, [])
    rows = tb.while_loop(
        lambda i, x: i < n,
        lambda i, x: (i + 1.0, tb.concat([x, x], 0)),
        [tb.constant(0.0), tb.constant([1.0])],
        shape_invariants=[tb.TensorShape([]), tb.TensorShape([None])],
    )[1]
    assert session.run(rows, {n: 3}).tolist() == [1.0] * 8
    assert session.run(rows, {n: 0}).tolist() == [1.0]
    assert forms in ([], [None])


def test_fed_shapes_have_forms_of_their_own(session: tb.Session, forms: list[FixedLoop | None]) -> None:
    n, x = tb.placeholder(tb.float32, []), tb.placeholder(tb.float32, [None])
    last = tb.while_loop(lambda i, v: i < n, lambda i, v: (i + 1.0, v + 1.0), [tb.constant(0.0), x])[1]
    for extent in (1, 3, 1, 2, 3):
        assert session.run(last, {n: 4, x: np.zeros(extent)}).tolist() == [4.0] * extent
    assert len(forms) == 3


def test_an_error_in_an_iteration_names_the_op_and_its_line(session: tb.Session) -> None:
    n, x = tb.placeholder(tb.float32, []), tb.placeholder(tb.int32, [])
    last = tb.while_loop(
        lambda i, v: i < n, lambda i, v: (i + 1.0, tb.gather(tb.constant([1, 2, 0, 7]), v, name="picked")),
        [tb.constant(0.0), x],
    )[1]  # fmt: skip
    for _ in range(2):
        assert session.run(last, {n: 2, x: 1}) == 0
        with pytest.raises(TensorBowError, match=r"picked.*made at .*test_fixed_loops"):
            session.run(last, {n: 2, x: 3})


def test_steps_at_the_same_time_have_arrays_of_their_own(session: tb.Session) -> None:
    n, x = tb.placeholder(tb.float32, []), tb.placeholder(tb.float32, [3])
    last = tb.while_loop(
        lambda i, v: i < n, lambda i, v: (i + 1.0, v * 2.0 - v + 1.0), [tb.constant(0.0), x]
    )[1]
    wrong: list[Any] = []

    def run(start: int) -> None:
        for _ in range(30):
            got = session.run(last, {n: 50, x: np.full(3, start)})
            if got.tolist() != [start + 50.0] * 3:
                wrong.append(got)

    threads = [threading.Thread(target=run, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
