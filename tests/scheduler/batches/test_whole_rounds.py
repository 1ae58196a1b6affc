"""Sources that give whole rounds: the batches of sources that give each replica's, and what they refuse."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import (
    DatasetBatches,
    LearningEngine,
    ReadyBatch,
    ReadyLaunch,
    Synchronisation,
    build_program,
    gathered,
)
from scheduler.batches import sources
from scheduler.replicas.thread_choice import ThreadChoice, Threads
from tensorbow.data import CropAndFlip, ImageDataset, PictureChanges, make_synthetic, plain_picks
from tensorbow.errors import InternalError, InvalidArgumentError, NumericsError
from tensorbow.models import get_model
from tests.scheduler_rig.programs import well
from tests.scheduler_rig.round_engines import engine_of
from tests.scheduler_rig.running import Prepared, cpu_devices, within

pytestmark = pytest.mark.usefixtures("native_kernels")

ALL_CHANGES = PictureChanges(CropAndFlip(1), True, 30, 0.3, erase=0.5)


def pictures(augmentation: CropAndFlip | PictureChanges | None = None) -> ImageDataset:
    made, _ = make_synthetic(37, 8, height=9, width=7, channels=2, classes=3)
    return ImageDataset("made", made.images, made.labels, 3, 0.5, 0.25, augmentation)


def engine_on(data: ImageDataset, replicas: int, steps: int = 1, **options: Any) -> LearningEngine:
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        program = build_program(get_model("logreg"), data, 0.9, 0.1, 1e-4)
    engine = LearningEngine(
        program, 4, cpu_devices(1), replicas, Synchronisation(**options), steps_per_launch=steps
    )
    engine.initialize()
    return engine


def trained_on(data: ImageDataset, replicas: int, steps: int, kept: str, **options: Any) -> Any:
    """State and results after three epochs and a half, and what came from the source."""
    told: list[Any] = []
    kinds: set[type] = set()
    with engine_on(data, replicas, steps, **options) as engine:
        batches = DatasetBatches(data, 4, replicas, seed=1, steps_per_launch=steps)
        batches.keep_on_devices(engine.learners, kept)
        rounds = batches.rounds_per_epoch * 7 // 2

        def opened(start: int, stop: int, on_ready: Any, on_error: Any) -> Any:
            def ready(message: Any) -> None:
                kinds.add(type(message))
                on_ready(message)

            return batches.open(start, stop, ready, on_error)

        within(
            lambda: engine.run(
                opened, 0, rounds, lambda results: told.extend((r.round, r.replica, r.loss) for r in results)
            )
        )
        return {n: a.tobytes() for n, a in engine.learners.values.state_arrays().items()}, told, kinds


@pytest.mark.slow
@pytest.mark.parametrize("augmentation", [None, CropAndFlip(2), ALL_CHANGES])
@pytest.mark.parametrize("options", [{}, {"tau": 3}, {"sync": "none"}], ids=str)
def test_the_batches_of_a_source_of_each_replicas(
    augmentation: CropAndFlip | PictureChanges | None, options: dict[str, Any]
) -> None:
    data = pictures(augmentation)
    for replicas in (1, 3):
        *expected, kinds = trained_on(data, replicas, 1, "never", **options)
        assert kinds == {ReadyBatch}
        for steps in (1, 5):
            *whole, kinds = trained_on(data, replicas, steps, "auto", **options)
            assert whole == expected
            assert kinds == {ReadyLaunch}


@pytest.mark.slow
@pytest.mark.parametrize("choices", [[Threads.ONE], [Threads.CALLER], [*Threads, Threads.ONE]], ids=len)
def test_by_every_thread(monkeypatch: pytest.MonkeyPatch, choices: list[Threads]) -> None:
    data, order = pictures(CropAndFlip(2)), cycle(choices)
    *expected, _ = trained_on(data, 2, 1, "never", mu=0.5)
    monkeypatch.setattr(ThreadChoice, "choose", lambda self, rounds: next(order))
    for steps in (1, 4):
        *whole, kinds = trained_on(data, 2, steps, "auto", mu=0.5)
        assert whole == expected
        assert kinds == {ReadyLaunch}


@pytest.mark.slow
def test_a_step_of_which_the_loss_is_not_finite_is_done_again_on_its_batch() -> None:
    data = pictures()
    for steps in (1, 4):
        with engine_on(data, 2, steps) as engine:
            batches = DatasetBatches(data, 4, 2, seed=1, steps_per_launch=steps)
            batches.keep_on_devices(engine.learners)
            values = engine.central_values(0)
            engine.learners.values.initialize({name: np.full_like(a, np.inf) for name, a in values.items()})
            with pytest.raises(NumericsError, match=r"replica 0 is not finite at step 0; first NaN.* logits"):
                within(partial(engine.run, batches.open, 0, 8))


@pytest.mark.slow
def test_rounds_for_an_engine_of_other_replicas_or_another_kind() -> None:
    data = pictures()
    with engine_on(data, 2) as engine, engine_on(data, 3) as other:
        batches = DatasetBatches(data, 4, 2, seed=1)
        batches.keep_on_devices(engine.learners)
        with pytest.raises(InvalidArgumentError, match="came for 2 replicas, but the engine has 3; give the"):
            within(partial(other.run, partial(batches.open), 0, 4))  # a source that is not known for its own
        with pytest.raises(
            InvalidArgumentError, match="gathered: expected a source of each replica's batches"
        ):
            within(partial(engine.run, gathered(batches.open, 4), 0, 8))
        with engine_on(data, 2, dispatch="fcfs") as first_come:
            with pytest.raises(InvalidArgumentError, match=r"gave a whole round.* keep_on_devices"):
                within(partial(first_come.run, batches.open, 0, 4))
            batches.keep_on_devices(first_come.learners, "always")
            assert within(partial(first_come.run, batches.open, 0, 150)) == 150


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of_engine", "of_source", "message"), [(1, 4, "got a BatchRun of 4"), (4, 1, "of 4 b")]
)
def test_rounds_that_do_not_fit_the_launches(of_engine: int, of_source: int, message: str) -> None:
    data = pictures()
    with engine_on(data, 2, of_engine) as engine:
        batches = DatasetBatches(data, 4, 2, seed=1, steps_per_launch=of_source)
        batches.keep_on_devices(engine.learners)
        with pytest.raises(InvalidArgumentError, match=f"steps_per_launch={of_engine}: expected .*{message}"):
            within(partial(engine.run, batches.open, 0, 8))


def test_a_batch_that_comes_twice() -> None:
    model = well()

    def twice(start: int, stop: int, on_ready: Any, on_error: Any) -> Any:
        def ready(batch: ReadyBatch) -> None:
            on_ready(batch)
            on_ready(batch)

        return Prepared(model.batch, 2).open(start, stop, ready, on_error)

    with (
        engine_of(model, 2) as engine,
        pytest.raises(InternalError, match="batch of replica 0 came again, for the launch at step 0"),
    ):
        within(partial(engine.run, twice, 0, 4))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{}, {"dispatch": "fcfs"}], ids=str)
def test_a_row_that_the_data_set_has_not_names_the_op(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(indices: Any, columns: int) -> Any:
        picks = plain_picks(indices, columns)
        picks[5, 2, 0] = 99
        return picks

    data = pictures()
    monkeypatch.setattr(sources, "plain_picks", wrong)
    for steps in (1,) if options else (1, 3):
        with engine_on(data, 2, steps, **options) as engine:
            batches = DatasetBatches(data, 4, 2, seed=1, steps_per_launch=steps)
            batches.keep_on_devices(engine.learners)
            with pytest.raises(
                InvalidArgumentError, match=r"step 2: MakeBatch .*indices\[2\] = 99 is not in \[0, 37\)"
            ):
                within(partial(engine.run, batches.open, 0, 4))


@pytest.mark.slow
def test_batches_of_the_device_after_a_larger_step_moved_their_inputs() -> None:
    """A further step with more examples needs more room, so that the first one's inputs move."""
    data, losses = pictures(CropAndFlip(2)), []
    for kept in ("never", "always"):
        with engine_on(data, 2) as engine:
            told: list[float] = []
            small = DatasetBatches(data, 4, 2, seed=1)
            small.keep_on_devices(engine.learners, kept)

            def note(results: Any, told: list[float] = told) -> None:
                told.extend(results.losses)

            def run(batches: DatasetBatches, start: int, note: Any = note) -> None:
                within(partial(engine.run, batches.open, start, start + 3, note))

            run(small, 0)
            program = engine._steps[0][0]
            larger = engine.add_program(program, program.specs(16))
            run(small, 3)
            engine.select(larger)
            large = DatasetBatches(data, 16, 2, seed=2)
            large.on_devices, large._in_lockstep = small.on_devices, small._in_lockstep
            run(large, 0)
            engine.select(0)
            run(small, 6)
            losses.append(told)
    assert losses[0] == losses[1]
    assert len(losses[0]) == 24
