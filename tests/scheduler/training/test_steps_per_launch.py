"""Training runs whose launches have several steps: the bits, checkpoints and epochs of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow.data.registry as registry
from scheduler import DatasetBatches, RoundResults, Trainer, TrainingConfig
from scheduler.training.configuration.schedule_choice import build_schedule
from scheduler.training.models.classifier_step import build_engine
from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import Array
from tests.scheduler_rig.running import same_bits, within

Options = Callable[..., TrainingConfig]


pytestmark = pytest.mark.usefixtures("native_kernels")


@pytest.mark.slow
def test_a_run_and_its_resumption_have_the_same_bits(
    tmp_path: Path, options: Options, model: Callable[[Path], dict[str, Array]], metrics: Any
) -> None:
    given: dict[str, Any] = {"epochs": 4, "learning_rate_drops": [(2, 0.5)]}
    for steps in (1, 3, 16):
        folder = tmp_path / str(steps)
        with Trainer(options(output=folder, steps_per_launch=steps, **given)) as trainer:
            trainer.train()
    with Trainer(options(output=tmp_path / "cut", steps_per_launch=5, **{**given, "epochs": 2})) as trainer:
        trainer.train()
    more = options(output=tmp_path / "cut", steps_per_launch=4, resume="auto", **given)
    with Trainer(more) as trainer:
        trainer.train()
    expected = model(tmp_path / "1")
    for folder in ("3", "16", "cut"):
        found = model(tmp_path / folder)
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
        losses = [record["loss"] for record in metrics(tmp_path / folder)]
        assert losses == [record["loss"] for record in metrics(tmp_path / "1")]


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["auto", "never"])
def test_the_number_is_found_while_training(
    tmp_path: Path, options: Options, model: Callable[[Path], dict[str, Array]], kept: str
) -> None:
    """Also where batches are filled in memory of the host, which then needs more slots."""
    for steps in (1, None):
        folder = tmp_path / str(steps)
        given = options(output=folder, epochs=9, steps_per_launch=steps, data_on_device=kept)
        with Trainer(given) as trainer:
            within(trainer.train)
            assert (trainer.engine.steps_per_launch > 1) is (steps is None)
    assert same_bits(model(tmp_path / "1"), model(tmp_path / "None"))


@pytest.mark.slow
def test_a_run_may_be_asked_for_more_than_it_will_ever_train(options: Options) -> None:
    """Also behind the last boundary of the schedule."""
    config = options(steps_per_launch=4, learning_rate_drops=[(1, 0.5)])
    data, _ = registry.DATASETS["synthetic"](None)
    batches = DatasetBatches(data, config.batch_size, config.replicas, config.seed, steps_per_launch=4)
    schedule = build_schedule(config, config.replicas, batches.positions)
    with build_engine(config, data, schedule, config.synchronisation) as engine:
        engine.initialize()

        def on_results(results: RoundResults) -> None:
            if results.rounds[-1] >= 50:
                engine.request_stop()

        ended = within(lambda: engine.run(batches.open, 0, 1 << 40, on_results))
    assert 50 < ended < 100


def test_what_it_does_not_go_with(options: Options) -> None:
    with pytest.raises(InvalidArgumentError, match="steps_per_launch: expected a whole number"):
        options(steps_per_launch=0)
    with pytest.raises(InvalidArgumentError, match=r"steps_per_launch=2: .* native code"):
        Trainer(options(steps_per_launch=2, dispatch="fcfs"))
