"""The same bits whatever the timing: random delays, launch_ahead, stops, resumed and plain runs."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import LearningEngine
from scheduler.engine.round_run import RoundRun
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tests.scheduler_rig.programs import Model, convolutional, logistic, well
from tests.scheduler_rig.reference import Sma, well_gradient
from tests.scheduler_rig.running import Hesitant, Prepared, cpu_devices, engine_of, same_bits, within

FLOAT32 = logistic(tb.float32)
DROPS = tb.train.PiecewiseConstant([6], [0.4, 0.2])


def state_after(
    devices: int,
    per_device: int,
    rounds: int,
    delays: int | None = None,
    model: Model = FLOAT32,
    **options: Any,
) -> dict[str, Any]:
    k = devices * per_device
    with engine_of(model, cpu_devices(devices, delays), per_device, DROPS, **options) as engine:
        source: Any = Prepared(model.batch, k) if delays is None else Hesitant(model.batch, k, seed=delays)
        results: list[tuple[int, int]] = []
        engine.run(
            source.open,
            0,
            rounds,
            lambda told: results.extend((result.round, result.replica) for result in told),
        )
        assert results == [(t, i) for t in range(rounds) for i in range(k)]
        return engine.learners.values.state_arrays()


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize(("devices", "per_device"), [(1, 4), (2, 2)])
def test_twenty_concurrent_runs_with_random_delays(devices: int, per_device: int, staleness: int) -> None:
    options = {"mu": 0.5, "staleness": staleness}
    expected = state_after(devices, per_device, 12, **options)
    results: dict[int, dict[str, Any]] = {}

    def one(number: int) -> None:
        options["launch_ahead"] = 1 + number % 4
        results[number] = state_after(devices, per_device, 12, delays=number, **options)

    for first in range(0, 20, 5):
        threads = [threading.Thread(target=one, args=(first + n,)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(results) == 20
    assert all(same_bits(result, expected) for result in results.values())


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["sma", "none"])
def test_the_bits_do_not_depend_on_launch_ahead(sync: str) -> None:
    states = [state_after(1, 3, 9, sync=sync, tau=2, launch_ahead=ahead) for ahead in (1, 2, 3, 4)]
    assert all(same_bits(state, states[0]) for state in states[1:])


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("sync", ["sma", "none"])
def test_one_replica_is_a_plain_session(dropout: bool, sync: str) -> None:
    model = convolutional(dropout=dropout)
    program = model.program
    with engine_of(model, cpu_devices(1), 1, tb.train.Constant(0.05), sync=sync) as engine:
        losses: list[float] = []
        engine.run(Prepared(model.batch, 1).open, 0, 20, lambda results: losses.extend(results.losses))
        values = engine.learners.values.replica_values(0)
        z = engine.learners.values.central_values(20)
    with tb.Session(graph=program.graph) as session:
        session.load_variables(model.initial)
        plain: list[float] = []
        for round in range(20):
            feeds = dict(zip(program.inputs, model.batch(round, 0), strict=True))
            plain.append(float(session.run([program.loss, program.update], feeds)[0]))
        variables = {v.op.name: session.run(v) for v in program.graph.get_collection("variables")}
    assert losses == plain
    assert len(set(losses)) == 20
    assert same_bits(values, {name: np.asarray(value) for name, value in variables.items()})
    assert z.keys() == {"filters", "dense", "bias"}
    assert all(z[name].tobytes() == values[name].tobytes() for name in z)


def test_replicas_draw_different_dropout_masks() -> None:
    model = convolutional(dropout=True)
    same = Model(model.program, model.shapes, model.initial, lambda t, i: model.batch(t, 0))
    with engine_of(same, cpu_devices(1), 2, sync="none") as engine:
        losses: list[float] = []
        engine.run(Prepared(same.batch, 2).open, 0, 1, lambda results: losses.extend(results.losses))
    assert losses[0] != losses[1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("devices", "tau", "staleness", "sync"),
    [(1, 1, 0, "sma"), (1, 4, 0, "sma"), (2, 3, 2, "sma"), (1, 1, 1, "sma"), (1, 1, 0, "none")],
)
@pytest.mark.parametrize("cut", [1, 5, 6, 7, 10])
def test_a_checkpoint_goes_on_bit_for_bit(
    devices: int, tau: int, staleness: int, sync: str, cut: int
) -> None:
    model = convolutional(dropout=True) if cut == 5 else FLOAT32
    options = {"tau": tau, "staleness": staleness, "sync": sync, "mu": 0.4 if sync == "sma" else 0.0}
    whole = state_after(devices, 2, 12, model=model, **options)
    source = Prepared(model.batch, 2 * devices)
    with engine_of(model, cpu_devices(devices), 2, DROPS, **options) as engine:
        engine.run(source.open, 0, cut)
        saved = engine.learners.values.state_arrays()
        z = engine.learners.values.central_values(cut)
    with engine_of(model, cpu_devices(devices), 2, DROPS, **options) as engine:
        engine.learners.values.load_state_arrays(saved)
        assert same_bits(engine.learners.values.central_values(cut), z)
        engine.run(source.open, cut, 12)
        assert same_bits(engine.learners.values.state_arrays(), whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("central0/w"), "missing central0/w"),
        (lambda a: a.update({"replica9/w": a["replica0/w"]}), "unexpected replica9/w"),
        (lambda a: a.update({"velocity/w": a["velocity/w"][:2]}), r"velocity/w is float32\[2, 3\], expected"),
        (lambda a: a.update({"replica1/b": a["replica1/b"].astype(np.float64)}), "replica1/b is float64"),
    ],
)
def test_a_checkpoint_that_does_not_fit_changes_nothing(change: Any, message: str) -> None:
    with engine_of(FLOAT32, cpu_devices(1), 2) as engine:
        before = engine.learners.values.state_arrays()
        wrong = {name: array + 1 for name, array in before.items()}
        change(wrong)
        with pytest.raises(InvalidArgumentError, match=message):
            engine.learners.values.load_state_arrays(wrong)
        assert same_bits(engine.learners.values.state_arrays(), before)


@pytest.mark.slow
def test_a_checkpoint_of_other_options_is_refused() -> None:
    with engine_of(FLOAT32, cpu_devices(1), 2, staleness=1) as engine:
        saved = engine.learners.values.state_arrays()
    for options in ({"per_device": 3, "staleness": 1}, {"per_device": 2}, {"per_device": 2, "sync": "none"}):
        with (
            engine_of(FLOAT32, cpu_devices(1), **options) as engine,  # type: ignore[arg-type]
            pytest.raises(InvalidArgumentError, match="resume with the options it was written with"),
        ):
            engine.learners.values.load_state_arrays(saved)


# Stops ----------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("devices", "tau", "staleness"), [(1, 1, 0), (1, 3, 1), (2, 1, 2)])
@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.01, 0.03])
def test_a_stop_at_any_moment_leaves_all_replicas_at_one_round(
    devices: int, tau: int, staleness: int, after_s: float
) -> None:
    model, k = well(), 2 * devices
    options = {"tau": tau, "staleness": staleness}
    with engine_of(model, cpu_devices(devices, delays=3), 2, launch_ahead=3, **options) as engine:
        timer = threading.Timer(after_s, engine.request_stop)
        timer.start()
        reached = within(lambda: engine.run(Hesitant(model.batch, k, pause_s=1e-3).open, 0, 4000))
        timer.join()
        assert 0 <= reached < 4000
        reference = Sma(model.initial["w"], k, well_gradient, lambda t: 0.1, devices=devices, **options)
        reference.run(model.batch, 0, reached)
        for index in range(k):
            assert engine.learners.values.replica_values(index)["w"].tobytes() == reference.w[index].tobytes()
        assert engine.learners.values.central_values(reached)["w"].tobytes() == reference.z.tobytes()


def test_a_stop_between_two_runs_ends_the_next_one_and_only_that() -> None:
    model = well()
    with engine_of(model, cpu_devices(1), 2) as engine:
        source = Prepared(model.batch, 2)
        assert engine.run(source.open, 0, 3) == 3
        engine.request_stop()
        assert engine.run(source.open, 3, 6) == 3
        assert engine.run(source.open, 3, 6) == 6


def test_a_stop_from_a_callback_takes_launch_ahead_rounds_at_most() -> None:
    model = well()
    with engine_of(model, cpu_devices(1), 2, tau=50, launch_ahead=3) as engine:

        def stop(results: Any) -> None:
            if 10 in results.rounds:
                engine.request_stop()

        assert 11 <= engine.run(Prepared(model.batch, 2).open, 0, 500, stop) <= 10 + 2 * 3 + 1


@pytest.mark.slow
def test_one_run_at_a_time() -> None:
    model = well()
    with engine_of(model, cpu_devices(1, delays=1), 2) as engine:
        entered = threading.Event()
        runner = threading.Thread(
            target=lambda: engine.run(Prepared(model.batch, 2).open, 0, 9999, lambda result: entered.set())
        )
        runner.start()
        assert entered.wait(20)
        for forbidden in (
            lambda: engine.run(Prepared(model.batch, 2).open, 0, 1),
            lambda: engine.restart(0),
            engine.close,
        ):
            with pytest.raises(FailedPreconditionError, match="going on"):
                forbidden()
        engine.request_stop()
        runner.join(20)
        assert not runner.is_alive()


def test_results_carry_the_loss_and_when_it_was_there() -> None:
    model = well()
    with engine_of(model, cpu_devices(1), 1) as engine:
        results: list[Any] = []
        before = time.perf_counter()
        engine.run(Prepared(model.batch, 1).open, 0, 1, results.extend)
    x, w = model.batch(0, 0)[0], model.initial["w"]
    assert results[0].loss == pytest.approx(float(np.square(w - x).sum() / 2), rel=1e-6)
    assert before <= results[0].time_s <= time.perf_counter()
    assert isinstance(engine, LearningEngine)


def test_a_stop_that_is_asked_for_where_averaging_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within `run`, after its last look at requests before the restart."""
    advance = RoundRun.advance
    with engine_of(FLOAT32, cpu_devices(1), 2, DROPS) as engine:

        def advance_and_ask(self: RoundRun) -> None:
            advance(self)
            if self.finished_at is not None:
                engine.request_stop()

        monkeypatch.setattr(RoundRun, "advance", advance_and_ask)
        assert engine.run(Prepared(FLOAT32.batch, 2).open, 0, 12) == 7  # after round 6
        monkeypatch.undo()
        assert engine.run(Prepared(FLOAT32.batch, 2).open, 7, 12) == 12
