"""Choice of the threads that run the steps of all replicas; results do not depend on it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest

import scheduler.replicas.learners
import tensorbow as tb
from scheduler import Stepper, gathered
from scheduler.replicas.round_launcher import ProgramLaunch
from scheduler.replicas.thread_choice import BRIEF, MEASURED, WARM_UP, WINDOW, WINDOW_S, ThreadChoice, Threads
from tensorbow.errors import InvalidArgumentError, NumericsError
from tensorbow.kernels import backends
from tests.scheduler_rig.programs import convolutional, well
from tests.scheduler_rig.round_engines import engine_of, labelled, spoilt, trained
from tests.scheduler_rig.running import Prepared, within

EACH, ONE, CALLER = Threads


def launches_of(seconds: float) -> int:
    """Most launches of this duration that are measured: the last may end after the window."""
    return (WARM_UP + MEASURED) * (max(WINDOW, math.ceil(WINDOW_S / seconds)) + 1)


LAUNCHES = launches_of(20e-6)


class Clock:
    """Launches that take as long as their threads need."""

    def __init__(self, each: float, one: float, caller: float, alone: bool = False):
        self.choice = ThreadChoice(lambda: self.now, alone=alone)
        self.seconds = {EACH: each, ONE: one, CALLER: caller}
        self.now = 0.0

    def launch(self, rounds: int = 1) -> Threads:
        threads = self.choice.choose(rounds)
        self.now += self.seconds[threads] * rounds
        self.choice.ended(rounds, threads, self.now)
        return threads


@pytest.mark.parametrize(
    ("each", "one", "caller", "chosen", "tried"),
    [
        (50e-6, 30e-6, 20e-6, CALLER, [EACH, ONE, CALLER]),
        (50e-6, 30e-6, 29e-6, ONE, [EACH, ONE, CALLER]),
        (50e-6, 49e-6, 40e-6, CALLER, [EACH, ONE, CALLER]),
        (50e-6, 80e-6, 49e-6, EACH, [EACH, ONE, CALLER]),
        (280e-6, 200e-6, 20e-6, ONE, [EACH, ONE]),
        (500e-6, 100e-6, 20e-6, EACH, [EACH]),
    ],
)
def test_the_fastest_threads_are_chosen_once_all_that_may_be_are_measured(
    each: float, one: float, caller: float, chosen: Threads, tried: list[Threads]
) -> None:
    clock = Clock(each, one, caller)
    choices = [clock.launch() for _ in range(5 * LAUNCHES)]
    assert choices[-LAUNCHES:] == [chosen] * LAUNCHES
    assert list(dict.fromkeys(choices)) == tried
    for threads in {*tried} - {chosen}:
        most = launches_of(clock.seconds[threads]) + 1
        assert WINDOW * (WARM_UP + MEASURED) <= choices.count(threads) <= most


def test_of_one_replica_the_own_thread_is_tried_once() -> None:
    clock = Clock(50e-6, 1e-6, 40e-6, alone=True)
    choices = [clock.launch() for _ in range(5 * LAUNCHES)]
    assert list(dict.fromkeys(choices)) == [EACH, CALLER]
    assert choices[-1] is CALLER


def test_of_long_rounds_one_window_tells() -> None:
    clock = Clock(2e-3, 1e-3, 1e-3)
    for _ in range(WINDOW + 2):
        assert clock.launch() is EACH
    assert clock.choice.settled


@pytest.mark.parametrize("rounds", [2, 3, 4, 64])
def test_long_launches_are_not_the_callers(rounds: int) -> None:
    """With many rounds in a launch a stop would have to wait for them."""
    clock = Clock(50e-6, 40e-6, 20e-6)
    choices = {clock.launch(rounds) for _ in range(5 * LAUNCHES)}
    assert (CALLER in choices) is (40e-6 * rounds <= BRIEF)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("before", [2e-3, 280e-6, 50e-6])
def test_after_a_while_it_is_measured_anew(before: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine was busy while the threads were timed, or is now."""
    monkeypatch.setattr("scheduler.replicas.thread_choice.AGAIN_S", 0.5)
    clock = Clock(before, 100e-6, 30e-6)
    choices = [clock.launch() for _ in range(2 * LAUNCHES)]
    chosen = choices[-1]
    assert chosen is (EACH if before > 300e-6 else CALLER)
    clock.seconds.update({EACH: 50e-6, ONE: 40e-6, CALLER: 60e-6})
    since = clock.now
    choices = []
    while clock.now < since + 2.0:
        choices.append(clock.launch())
    later = choices[-len(choices) // 4 :]
    assert later.count(ONE) > 0.8 * len(later)  # the rest are trials


@pytest.mark.parametrize("launches", [1, 3])
def test_short_runs_of_long_launches_are_measured_too(launches: int) -> None:
    """Epochs of a few launches each, with long pauses between them."""
    clock = Clock(200e-6, 50e-6, 20e-6)
    for _ in range(60):
        for _ in range(launches):
            clock.launch(44)
        clock.choice.pause()
        clock.now += 5.0
        clock.choice.pause()
    assert clock.choice.choose(44) is ONE


def test_an_interruption_is_not_all_that_is_measured() -> None:
    """Another process has the core for some milliseconds, just when the fastest threads are tried."""
    clock = Clock(50e-6, 30e-6, 40e-6)
    until: float | None = None
    for _ in range(5 * LAUNCHES):
        if until is None and clock.choice.choose(1) is ONE:
            until = clock.now + 8e-3
        clock.seconds[ONE] = 3e-4 if until is not None and clock.now < until else 30e-6
        clock.launch()
    assert clock.launch() is ONE


def test_ends_in_bursts_are_counted_as_what_they_are() -> None:
    """Launches that are done two at a time: the first of a burst takes the time of both."""
    choice, now = ThreadChoice(lambda: 0.0), 0.0
    for number in range(4 * LAUNCHES):
        threads = choice.choose(1)
        seconds = {EACH: 50e-6, ONE: 60e-6, CALLER: 70e-6}[threads]
        now += 2 * seconds - 1e-6 if number % 2 else 1e-6
        choice.ended(1, threads, now)
    assert choice.choose(1) is EACH


def test_pauses_are_not_counted_and_numbers_of_rounds_have_their_own_choice() -> None:
    clock = Clock(50e-6, 30e-6, 40e-6)
    choice = clock.choice
    for _ in range(20 * LAUNCHES):
        clock.launch(1)
        choice.pause()
        clock.now += 1.0
    assert choice.choose(1) is EACH  # single rounds alone: what the handing over takes would be measured
    choice.pause()
    assert [clock.launch(1) for _ in range(4 * LAUNCHES)][-1] is ONE
    clock.seconds = {EACH: 20e-6, ONE: 30e-6, CALLER: 40e-6}
    assert [clock.launch(4) for _ in range(4 * LAUNCHES)][-1] is EACH
    assert choice.choose(1) is ONE


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llvmlite")
    from tensorbow.kernels.native.backend import NativeBackend

    monkeypatch.setitem(backends._backends, "cpu", NativeBackend())


ORDERS = {
    "one": [ONE],
    "caller": [CALLER],
    "in turn": [ONE, ONE, EACH, CALLER, EACH, EACH, CALLER, CALLER, ONE, CALLER],
}


@pytest.fixture(params=ORDERS)
def forced(native: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches by one thread, or by the caller's, or now by these and now by each replica's."""
    choices = cycle(ORDERS[request.param])
    monkeypatch.setattr(ThreadChoice, "choose", lambda self, rounds: next(choices))


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize(
    ("replicas", "size", "options"),
    [
        (2, 5000, {}),
        (5, 300, {"mu": 0.7}),
        (3, 7, {"sync": "easgd"}),
        (3, 40, {"tau": 3, "mu": 0.7}),
        (2, 5000, {"sync": "none"}),
        (1, 40, {}),
    ],
    ids=str,
)
def test_the_bits_of_tasks_apart(
    monkeypatch: pytest.MonkeyPatch, replicas: int, size: int, options: dict[str, Any]
) -> None:
    model = well(size)
    joint = [trained(model, replicas, steps, 23, True, **options) for steps in (1, 4)]
    monkeypatch.setattr(scheduler.replicas.learners, "round_launcher", lambda *given: None)
    expected = trained(model, replicas, 1, 23, False, **options)
    assert all(each == expected for each in joint)


@pytest.mark.slow
@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("steps", [1, 4])
def test_restarts_and_random_ops(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    model, schedule = (
        convolutional(dropout=True),
        tb.train.PiecewiseConstant([5, 6, 13], [0.1, 0.05, 0.02, 0.01]),
    )
    joint = trained(model, 2, steps, 17, True, schedule=schedule, mu=0.9)
    monkeypatch.setattr(scheduler.replicas.learners, "round_launcher", lambda *given: None)
    assert joint == trained(model, 2, 1, 17, False, schedule=schedule, mu=0.9)


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize(
    ("tasks", "options"),
    [
        ([(6, 1)], {}),
        ([(6, 0), (6, 1), (6, 2)], {}),
        ([(7, 2), (8, 0)], {}),
        ([(7, 2), (8, 0)], {"tau": 5}),
        ([(6, 0), (6, 1)], {"sync": "none"}),
    ],
)
def test_a_nan_ends_the_launch_with_its_step(tasks: list[tuple[int, int]], options: dict[str, Any]) -> None:
    model = well()
    first = [min(tasks)] if not options else tasks  # else one may come to its own before another does
    bad = "|".join(f"{replica} is not finite at step {round}" for round, replica in first)
    source = partial(Prepared, spoilt(model, *tasks), 3)
    for steps in (1, 4):
        with engine_of(model, 3, steps, **options) as engine:
            with pytest.raises(NumericsError, match=f"replica ({bad})"):
                within(partial(engine.run, opened(source().open, steps), 0, 40))
            assert all(np.isfinite(a).all() for a in engine.learners.values.state_arrays().values())
            engine.learners.values.initialize(model.initial)
            assert within(partial(engine.run, opened(Prepared(model.batch, 3).open, steps), 0, 6)) == 6


def opened(source: Callable[..., Any], steps: int) -> Callable[..., Any]:
    return source if steps == 1 else gathered(source, steps)


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("steps", [1, 4])
def test_input_that_an_op_refuses_names_its_replica(steps: int) -> None:
    model = labelled()
    with engine_of(model, 3, steps) as engine:
        message = r"replica 1 at step 6: SparseSoftmax.* 9.*round_engines"
        with pytest.raises(InvalidArgumentError, match=message):
            within(lambda: engine.run(opened(Prepared(model.batch, 3).open, steps), 0, 20))


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("launch_ahead", [1, 2, 5])
def test_a_stop_comes_after_what_is_launched(launch_ahead: int) -> None:
    model = well()
    with engine_of(model, 3, launch_ahead=launch_ahead) as engine:

        def stop(results: Any) -> None:
            if 5 in results.rounds:
                engine.request_stop()

        ended = within(lambda: engine.run(Prepared(model.batch, 3).open, 0, 400, stop))
        assert 6 <= ended <= 6 + 2 * launch_ahead
        assert within(lambda: engine.run(Prepared(model.batch, 3).open, ended, 40)) == 40


@pytest.mark.usefixtures("native")
def test_an_interrupt_while_the_caller_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    model, run_part = well(), ProgramLaunch.run
    monkeypatch.setattr(ThreadChoice, "choose", lambda self, rounds: CALLER)

    def interrupted(tasks: ProgramLaunch, thread: int) -> None:
        run_part(tasks, thread)
        if tasks.number == 7:
            raise KeyboardInterrupt

    with engine_of(model, 3) as engine:
        monkeypatch.setattr(ProgramLaunch, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            within(lambda: engine.run(Prepared(model.batch, 3).open, 0, 30))
        monkeypatch.setattr(ProgramLaunch, "run", run_part)
        engine.learners.values.initialize(model.initial)
        assert within(lambda: engine.run(Prepared(model.batch, 3).open, 0, 9)) == 9


@pytest.mark.usefixtures("native")
def test_the_callers_launches_run_in_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    model, run_part, threads = well(), ProgramLaunch.run, list[int]()
    choices = cycle([CALLER] * 4 + [ONE] * 2)
    monkeypatch.setattr(ThreadChoice, "choose", lambda self, rounds: next(choices))

    def looked_at(tasks: ProgramLaunch, thread: int) -> None:
        threads.append(threading.get_ident())
        run_part(tasks, thread)

    monkeypatch.setattr(ProgramLaunch, "run", looked_at)
    with engine_of(model, 2) as engine:
        caller = within(lambda: engine.run(Prepared(model.batch, 2).open, 0, 12) and threading.get_ident())
    assert [thread == caller for thread in threads] == [True] * 4 + [False] * 2 + [True] * 4 + [False] * 2


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("forced")
def test_a_stepper() -> None:
    model, states = well(), list[dict[str, bytes]]()
    for stepwise in (True, False):
        with engine_of(model, 3, mu=0.5) as engine:
            if stepwise:
                with Stepper(engine) as stepper:
                    for round in range(9):
                        results = stepper.step([model.batch(round, i) for i in range(3)])
                        assert [(r.round, r.replica) for r in results] == [(round, i) for i in range(3)]
                        if round == 4:
                            stepper.settle()
            else:
                within(lambda: engine.run(Prepared(model.batch, 3).open, 0, 9))
            states.append({name: a.tobytes() for name, a in engine.learners.values.state_arrays().items()})
    assert states[0] == states[1]
