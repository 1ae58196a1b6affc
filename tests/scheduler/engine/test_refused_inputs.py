"""Inputs that native code of whole rounds refuses: all replicas return to the round before, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import LearningEngine, Stepper, StepProgram
from scheduler.batches.sources import DatasetBatches, gathered
from scheduler.engine.rollback import Rollback, rollback_for
from scheduler.engine.undoing import ANEW, APART
from tensorbow.errors import InvalidArgumentError
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, same_bits, within

SIZE = 7
BAD = 99  # an index that is out of range

pytestmark = pytest.mark.usefixtures("native_kernels")


def looked_up(computed: bool = False) -> Model:
    """loss = sum((w - x[index])^2) / 2; each step counts itself, before it looks up anything.

    computed: the index is computed from what is fed.
    """
    initial = {"w": np.linspace(-1, 1, SIZE).astype(np.float32), "count": np.float32(0)}
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [SIZE], name="x")
        index = tb.placeholder(tb.int64, [SIZE], name="index")
        w = tb.Variable(initial["w"], name="w")
        count = tb.Variable(initial["count"], trainable=False, name="count")
        with tb.control_dependencies([tb.assign_add(count, 1.0)]):
            found = tb.gather(tb.identity(x), index * 1 if computed else index, name="the_look")
        loss = tb.reduce_sum(tb.square(w - found)) * 0.5
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        own = np.random.default_rng((13, round, replica))
        return own.normal(size=SIZE).astype(np.float32), own.integers(0, SIZE, SIZE)

    shapes = [tb.TensorSpec((SIZE,), tb.float32), tb.TensorSpec((SIZE,), tb.int64)]
    return Model(StepProgram((x, index), loss, update, {}), shapes, initial, batch)


def refused(model: Model, bad: set[tuple[int, int]]) -> Any:
    """The model's batches, some of which, by (round, replica), hold an index that is out of range."""

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        x, index = model.batch(round, replica)
        if (round, replica) in bad:
            index[-1] = BAD
        return x, index

    return batch


def run(
    engine: LearningEngine, batch: Any, start: int, stop: int, given: list[int] | None = None, steps: int = 1
) -> None:
    source = Prepared(batch, engine.learners.count)
    opened = source.open if steps == 1 else gathered(source.open, steps)
    within(lambda: engine.run(opened, start, stop, lambda results: (given or []).extend(results.rounds)))


OPTIONS = [{}, {"tau": 3}, {"sync": "none"}, {"sync": "ssgd"}, {"staleness": 1, "mu": 0.5}]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda o: "-".join(f"{k}={v}" for k, v in o.items()) or "sma"
)
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("failing", [0, 7])
@pytest.mark.parametrize("layout", [(1, 1), (1, 4), (2, 2)])
def test_after_a_refused_input_all_replicas_are_before_its_round(
    options: dict[str, Any],
    steps: int,
    failing: int,
    layout: tuple[int, int],
) -> None:
    devices, per_device = layout
    k = devices * per_device
    if k == 1:
        options = {}
    model, states, given = looked_up(), [], [-1]
    with engine_of(
        model, cpu_devices(devices, delays=3), per_device, launch_ahead=3, steps_per_launch=steps, **options
    ) as engine:
        batch = refused(model, {(failing, k - 1), (failing + 1, 0)})
        with pytest.raises(
            InvalidArgumentError, match=f"replica {k - 1} at step {failing}: .*the_look.*{BAD}"
        ):
            run(engine, batch, 0, 50, given, steps)
        assert engine.round == failing
        assert given == [*range(-1, failing)]
        states.append(engine.learners.values.state_arrays())
        run(engine, model.batch, failing, 10, steps=steps)
        states.append(engine.learners.values.state_arrays())
    with engine_of(model, cpu_devices(devices), per_device, **options) as engine:
        for state, (start, stop) in zip(states, [(0, failing), (failing, 10)], strict=True):
            run(engine, model.batch, start, stop)
            assert same_bits(state, engine.learners.values.state_arrays())


@pytest.mark.parametrize("computed", [False, True])
def test_a_stepper_goes_on_without_a_refused_batch(computed: bool) -> None:
    """computed: the step computes the index, so that a replica finds it in the middle of its round."""
    model, states = looked_up(computed), []
    for bad in (None, 5):
        with engine_of(model, cpu_devices(2), 2) as engine, Stepper(engine) as stepper:
            for round in range(8):
                if round == bad:
                    batch = refused(model, {(round, 2)})
                    before = stepper.state() if computed else None
                    with pytest.raises(InvalidArgumentError, match="the_look") as caught:
                        stepper.step([batch(round, replica) for replica in range(4)])
                    assert str(caught.value).endswith(ANEW) == computed
                    if before is not None:
                        stepper.set_state(before)
                stepper.step([model.batch(round, replica) for replica in range(4)])
            states.append(stepper.state().arrays)
    assert same_bits(*states)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("options", OPTIONS[:1] + OPTIONS[3:], ids=str)
def test_replicas_that_are_apart_begin_anew_from_z(options: dict[str, Any], steps: int) -> None:
    """The step computes the index that is refused, so that other replicas have done the round."""
    model, failing = looked_up(computed=True), 6
    with engine_of(model, cpu_devices(2, delays=3), 2, steps_per_launch=steps, **options) as engine:
        with pytest.raises(InvalidArgumentError, match=f"replica 3 at step {failing}: .*the_look.*; {ANEW}"):
            run(engine, refused(model, {(failing, 3)}), 0, 50, steps=steps)
        assert engine.round == failing
        after = engine.learners.values.state_arrays()
        first, *others = (engine.learners.values.replica_values(replica) for replica in range(4))
        assert all(same_bits(first, other) for other in others)
        within(lambda: run(engine, model.batch, failing, 8, steps=steps))
    with engine_of(model, cpu_devices(2), 2, **options) as engine:
        run(engine, model.batch, 0, failing)
        z = engine.central_values()["w"]
        velocity = engine.learners.values.replica_values(0)["w/Momentum"]
    assert np.array_equal(first["w"], z)
    kept = velocity if options.get("sync") == "ssgd" else np.zeros_like(velocity)
    assert np.array_equal(first["w/Momentum"], kept)
    assert all(np.array_equal(own, z) for name, own in after.items() if name.startswith("central"))
    assert not any(own.any() for name, own in after.items() if name.startswith("velocity"))


def test_independent_replicas_may_be_apart() -> None:
    model = looked_up(computed=True)
    with (
        engine_of(model, cpu_devices(1), 3, sync="none") as engine,
        pytest.raises(InvalidArgumentError, match=f"the_look.*; {APART}"),
    ):
        run(engine, refused(model, {(1, 2)}), 0, 5)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_replica_alone_is_before_the_round_whose_index_it_computes(steps: int) -> None:
    model, failing = looked_up(computed=True), 6
    with engine_of(model, cpu_devices(1), 1, steps_per_launch=steps) as engine:
        with pytest.raises(InvalidArgumentError, match=f"step {failing}: .*the_look") as caught:
            run(engine, refused(model, {(failing, 0)}), 0, 50, steps=steps)
        assert APART not in str(caught.value)
        assert engine.round == failing
        state = engine.learners.values.state_arrays()
    with engine_of(model, cpu_devices(1), 1) as engine:
        run(engine, model.batch, 0, failing)
        assert same_bits(state, engine.learners.values.state_arrays())


class Rows:
    """A source of a data set that the devices keep, one of whose examples may have a label out of range."""

    def __init__(self, engine: LearningEngine, steps: int, bad: int = BAD):
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 3, 96)
        labels[50] = bad
        data = tb.data.ArrayDataset(rng.normal(size=(96, 5)).astype(np.float32), labels, classes=BAD + 1)
        self.batches = DatasetBatches(data, 4, engine.learners.count, 5, steps_per_launch=steps)
        self.batches.keep_on_devices(engine.learners, "always")
        every = self.batches.recipes(range(self.batches.rounds_per_epoch)).picks_drawn_to(0)
        ((self.round, self.replica, _),) = np.argwhere(every == 50).tolist()


def classifier() -> Model:
    initial = {"w": np.zeros((5, 3), np.float32)}
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [None, 5], name="x")
        y = tb.placeholder(tb.int64, [None], name="y")
        logits = tb.matmul(x, tb.Variable(initial["w"], name="w"))
        losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits, name="the_loss")
        loss = tb.reduce_mean(losses)
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    shapes = [tb.TensorSpec((4, 5), tb.float32), tb.TensorSpec((4,), tb.int64)]
    return Model(StepProgram((x, y), loss, update, {}), shapes, initial, lambda *_: ())


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("copies_s", [0.0, 1e9])
@pytest.mark.parametrize("options", [{}, {"sync": "none"}])
def test_a_label_out_of_range_in_a_data_set_on_the_devices(
    steps: int, copies_s: float, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """copies_s: seconds between copies of the state: one before each launch, or one for the run."""
    monkeypatch.setattr("scheduler.engine.rollback.LEAST_S", copies_s)
    monkeypatch.setattr("scheduler.engine.rollback.COPIES", 0)
    monkeypatch.setattr("scheduler.engine.rollback.COPIES_OF_WHOLE_ROUNDS", 0)
    states, given = [], list[int]()
    for fails in (True, False):
        with engine_of(classifier(), cpu_devices(2), 2, steps_per_launch=steps, **options) as engine:
            rows = Rows(engine, steps)
            stop, bad = rows.batches.rounds_per_epoch, rows.round
            assert 0 < bad < stop - 1
            if fails:
                message = f"replica {rows.replica} at step {bad}: .*the_loss.*{BAD}"
                with pytest.raises(InvalidArgumentError, match=message):
                    engine.run(rows.batches.open, 0, stop, lambda own: given.extend(own.rounds))
                assert engine.round == bad
                assert given == [*range(bad)]
            else:
                engine.run(rows.batches.open, 0, bad)
            states.append(engine.learners.values.state_arrays())
            engine.run(rows.batches.open, bad + 1, stop)
            states.append(engine.learners.values.state_arrays())
    assert same_bits(states[0], states[2])
    assert same_bits(states[1], states[3])


def test_a_large_state_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.engine.rollback.STATE_NBYTES", 100)
    with engine_of(classifier(), cpu_devices(1), 3) as engine:
        rows = Rows(engine, 1)
        with pytest.raises(InvalidArgumentError, match=f"the_loss.*; {ANEW}"):
            engine.run(rows.batches.open, 0, rows.batches.rounds_per_epoch)
        engine.learners.values.initialize(classifier().initial)
        engine.run(rows.batches.open, 0, rows.round)


def test_many_picks_do_not_have_the_state_copied_before_each_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipes of an epoch are in memory anyway."""
    monkeypatch.setattr("scheduler.engine.rollback.INPUTS_NBYTES", 1)
    monkeypatch.setattr("scheduler.engine.rollback.LEAST_S", 1e9)
    copied, copy = list[int](), Rollback.copy
    monkeypatch.setattr(Rollback, "copy", lambda self, round: [copied.append(round), copy(self, round)])
    with engine_of(classifier(), cpu_devices(1), 3) as engine:
        rows = Rows(engine, 1)
        engine.run(rows.batches.open, 0, rows.round)
    assert copied == [0]


def new_rollback(engine: LearningEngine) -> Rollback | None:
    return rollback_for(engine.learners, engine.outcomes, has_workers=False)


@pytest.mark.parametrize("bad", [-1, 2, 3])
def test_only_labels_out_of_range_have_the_state_copied(bad: int) -> None:
    """The labels of a data set are looked through once, before the first round."""
    with engine_of(classifier(), cpu_devices(1), 3) as engine:
        assert new_rollback(engine) is None
        Rows(engine, 1, bad)
        assert (new_rollback(engine) is None) == (bad == 2)


@pytest.mark.parametrize("computed", [False, True])
def test_numbers_that_a_step_computes_have_the_state_copied(computed: bool) -> None:
    with engine_of(looked_up(computed), cpu_devices(1), 3) as engine:
        assert (new_rollback(engine) is not None) == computed


def test_labels_that_change_while_replicas_train_are_refused() -> None:
    with engine_of(classifier(), cpu_devices(1), 3) as engine:
        rows = Rows(engine, 1, 0)
        engine.run(rows.batches.open, 0, 2)
        rows.batches.dataset.arrays[1][:] = BAD
        with pytest.raises(InvalidArgumentError, match=f"step 2: .*the_loss.*{BAD}.*; {ANEW}"):
            engine.run(rows.batches.open, 2, 8)
