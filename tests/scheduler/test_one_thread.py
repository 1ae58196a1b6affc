"""One thread that does the steps of all replicas: when it is chosen, and that nothing else changes by it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest

import scheduler.learners
import tensorbow as tb
from scheduler import gathered
from scheduler.one_thread import MEASURED, SHORT, WARM_UP, OneThread
from tensorbow.errors import InvalidArgumentError, NumericsError
from tensorbow.kernels import backends
from tests.scheduler_rig.joint_engines import engine_of, labelled, spoilt, trained
from tests.scheduler_rig.programs import convolutional, well
from tests.scheduler_rig.running import Prepared, within

LAUNCHES = WARM_UP + MEASURED


class Clock:
    """Launches that take what their way takes."""

    def __init__(self, one_thread: OneThread, apart: float, together: float):
        self.one_thread, self.seconds = one_thread, {False: apart, True: together}
        self.now = 0.0

    def launch(self, rounds: int = 1) -> bool:
        together = self.one_thread.is_better(rounds)
        self.now += self.seconds[together] * rounds
        self.one_thread.ended(rounds, together, self.now)
        return together


@pytest.mark.parametrize(
    ("apart", "together", "chosen"),
    [(50e-6, 30e-6, True), (50e-6, 49e-6, False), (50e-6, 80e-6, False), (500e-6, 100e-6, False)],
)
@pytest.mark.parametrize("rounds", [1, 64])
def test_the_faster_way_is_chosen_once_both_are_measured(
    apart: float, together: float, chosen: bool, rounds: int
) -> None:
    clock = Clock(OneThread(), apart, together)
    ways = [clock.launch(rounds) for _ in range(4 * LAUNCHES)]
    assert ways[-LAUNCHES:] == [chosen] * LAUNCHES
    assert not any(ways[:LAUNCHES])
    tried = sum(ways[: 3 * LAUNCHES])
    assert (tried > 0) is (apart < SHORT)  # long rounds are not tried on one thread
    assert chosen or tried <= LAUNCHES + 2


def test_pauses_are_not_counted_and_numbers_of_rounds_have_their_own_choice() -> None:
    one_thread = OneThread()
    clock = Clock(one_thread, 50e-6, 30e-6)
    for _ in range(20 * LAUNCHES):
        clock.launch(1)
        one_thread.pause()
        clock.now += 1.0
    assert not one_thread.is_better(1)  # never two launches in a row
    assert [clock.launch(1) for _ in range(4 * LAUNCHES)][-1]
    clock.seconds = {False: 20e-6, True: 30e-6}
    assert not [clock.launch(4) for _ in range(4 * LAUNCHES)][-1]
    assert one_thread.is_better(1)


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llvmlite")
    from tensorbow.kernels.native.backend import NativeBackend

    monkeypatch.setitem(backends._backends, "cpu", NativeBackend())


@pytest.fixture(params=["one", "in turn"])
def forced(native: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches by one thread, or now by one, now by each replica's."""
    ways = cycle([True] if request.param == "one" else [True, True, False, True, False, False])
    monkeypatch.setattr(OneThread, "is_better", lambda self, rounds: next(ways))


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("options", [{}, {"mu": 0.7}, {"sync": "easgd"}], ids=str)
@pytest.mark.parametrize(("replicas", "size"), [(2, 5000), (5, 300), (3, 7)])
def test_the_bits_of_tasks_apart(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], replicas: int, size: int
) -> None:
    model = well(size)
    joint = [trained(model, replicas, steps, 23, True, **options) for steps in (1, 4)]
    monkeypatch.setattr(scheduler.learners, "joint_tasks", lambda *given: None)
    expected = trained(model, replicas, 1, 23, False, **options)
    assert all(each == expected for each in joint)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("steps", [1, 4])
def test_restarts_and_random_ops(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    model, schedule = (
        convolutional(dropout=True),
        tb.train.PiecewiseConstant([5, 6, 13], [0.1, 0.05, 0.02, 0.01]),
    )
    joint = trained(model, 2, steps, 17, True, schedule=schedule, mu=0.9)
    monkeypatch.setattr(scheduler.learners, "joint_tasks", lambda *given: None)
    assert joint == trained(model, 2, 1, 17, False, schedule=schedule, mu=0.9)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("places", [[(6, 1)], [(6, 0), (6, 1), (6, 2)], [(7, 2), (8, 0)]])
def test_a_nan_ends_the_launch_with_its_step(places: list[tuple[int, int]]) -> None:
    model = well()
    round, replica = min(places)
    source = partial(Prepared, spoilt(model, *places), 3)
    for steps in (1, 4):
        with engine_of(model, 3, steps) as engine:
            with pytest.raises(NumericsError, match=f"replica {replica} is not finite at step {round}"):
                within(partial(engine.run, opened(source().open, steps), 0, 40))
            assert all(np.isfinite(a).all() for a in engine.learners.state_arrays().values())
            engine.learners.initialize(model.initial)
            assert within(partial(engine.run, opened(Prepared(model.batch, 3).open, steps), 0, 6)) == 6


def opened(source: Callable[..., Any], steps: int) -> Callable[..., Any]:
    return source if steps == 1 else gathered(source, steps)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("steps", [1, 4])
def test_input_that_an_op_refuses_names_its_replica(steps: int) -> None:
    model = labelled()
    with engine_of(model, 3, steps) as engine:
        message = r"replica 1, step 6: SparseSoftmax.* 9.*joint_engines"
        with pytest.raises(InvalidArgumentError, match=message):
            within(lambda: engine.run(opened(Prepared(model.batch, 3).open, steps), 0, 20))


@pytest.mark.usefixtures("native")
def test_where_it_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where some rounds do not average, or there is nobody to average with."""
    monkeypatch.setattr(OneThread, "is_better", lambda self, rounds: pytest.fail("asked for"))
    model = well()
    ways: list[tuple[int, dict[str, Any]]] = [(2, {"tau": 2}), (2, {"sync": "none"}), (1, {})]
    for replicas, options in ways:
        with engine_of(model, replicas, **options) as engine:
            assert within(lambda: engine.run(Prepared(model.batch, replicas).open, 0, 6)) == 6  # noqa: B023
