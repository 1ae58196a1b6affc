"""Optimisers, schedules, clipping and the frequency of evaluations by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import TrainingConfig, TrainingResult
from scheduler.batches.positions import RoundPositions
from scheduler.training.configuration.optimizer_choice import OPTIMIZERS, default_rate, minimize
from scheduler.training.configuration.schedule_choice import build_schedule
from scheduler.training.running.notices import ignored_options
from tensorbow.data import BatchOrder
from tensorbow.models import Defaults

Options = Callable[..., TrainingConfig]
Run = Callable[..., TrainingResult]
Metrics = Callable[[Path], list[dict[str, Any]]]
BATCHES = 12


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser_learns_at_its_default_rate(
    name: str, tmp_path: Path, run: Run, metrics: Metrics
) -> None:
    run(output=tmp_path / "run", optimizer=name, epochs=4)
    losses = [record["loss"] for record in metrics(tmp_path / "run")]
    assert losses[-1] < 0.8 * losses[0] < 0.8 * 3
    with_momentum, with_adam = (Defaults(0.1, optimizer=own) for own in ("momentum", "adam"))
    assert default_rate("sgd", 0.1, with_momentum, 4, 16) == pytest.approx(1.0)
    assert default_rate("adam", 0.1, with_momentum, 4, 64) == pytest.approx(0.004)
    assert default_rate("adam", 0.1, with_adam, 4, 64) == 0.1  # the model's own
    assert default_rate("nesterov", 0.1, with_adam, 4, 64) == pytest.approx(0.08)


def test_models_have_their_own_optimiser_and_schedule() -> None:
    config = TrainingConfig(model="char-rnn")
    assert (config.optimizer, config.schedule, config.dataset) == ("adam", "cosine", "text")
    positions = RoundPositions(BatchOrder(64, 16, 0), 4)
    assert build_schedule(config, 4, positions)(0) == pytest.approx(2 * 3e-3)
    other = TrainingConfig(model="char-rnn", optimizer="momentum", learning_rate_drops=((1, 0.5),))
    assert (other.optimizer, other.schedule) == ("momentum", "piecewise")
    assert build_schedule(other, 4, positions)(0) == pytest.approx(0.02)
    assert (TrainingConfig().optimizer, TrainingConfig().schedule) == ("momentum", "piecewise")


CURVES: dict[str, tuple[dict[str, Any], Callable[[float], float]]] = {
    "constant": ({"learning_rate_drops": ((1, 0.5),)}, lambda t: 1.0),
    "cosine": ({"final_rate": 0.2}, lambda t: 0.2 + 0.4 * (1 + math.cos(math.pi * t))),
    "exponential": ({}, lambda t: 0.01**t),
    "polynomial": ({"warmup_epochs": 0.5}, lambda t: (0.01 + 0.99 * (1 - t)) * min(1, 6 * t + 1 / 6)),
    "one_cycle": (
        {"warmup_epochs": 1},
        lambda t: (
            1 - 0.96 * (1 + math.cos(math.pi * t / 0.3)) / 2
            if t < 0.3
            else 0.01 + 0.99 * (1 + math.cos(math.pi * (t - 0.3) / 0.7)) / 2
        ),
    ),
}


@pytest.mark.parametrize("name", CURVES)
def test_a_smooth_schedule_is_of_the_data_that_was_seen(options: Options, name: str) -> None:
    """It is the same curve for any number of replicas, also where that changes; averaging never restarts."""
    more, curve = CURVES[name]
    config = options(schedule=name, epochs=3, learning_rate=0.25, **more)
    order = BatchOrder(BATCHES * 16, 16, 0)
    for replicas, changes in ((1, []), (3, []), (1, [(2, 2), (9, 4)])):
        positions = RoundPositions(order, replicas, changes)
        schedule = build_schedule(config, replicas, positions)
        for round in range(positions.first_round(3)):
            epoch, number = positions.at(round)
            assert not schedule.restarts(round)
            share = (epoch + number / BATCHES) / 3
            assert schedule(round) == pytest.approx(0.25 * curve(share)), (replicas, round)
        assert schedule.scaled(2.0)(4) == 2 * schedule(4)
    plain = options(schedule=name)
    warned = ["--warmup-epochs"] * (name == "one_cycle")
    assert [line.split()[0] for line in ignored_options(config) if "warmup" in line] == warned
    assert ignored_options(plain) == []


def test_warm_up_keeps_the_restarts_of_drops(options: Options) -> None:
    config = options(learning_rate=1.0, learning_rate_drops=((1, 0.1),), epochs=2, warmup_epochs=0.5)
    schedule = build_schedule(config, 2, RoundPositions(BatchOrder(BATCHES * 16, 16, 0), 2))
    rates = [schedule(round) for round in range(12)]
    assert rates == pytest.approx([1 / 6, 3 / 6, 5 / 6, 1, 1, 1, *[0.1] * 6])
    assert [round for round in range(12) if schedule.restarts(round)] == [6]


def test_gradients_are_clipped_by_element_and_then_together() -> None:
    with tb.Graph().as_default(), tb.Session() as session:
        a, b = tb.Variable([0.0, 0.0]), tb.Variable(0.0)
        tb.Variable([0.0], name="without_gradient")
        loss = tb.reduce_sum(a * [3.0, 0.5]) - 8.0 * b
        steps = [
            minimize(tb.train.GradientDescentOptimizer(1.0), loss, *by) for by in ((1.5, 2.0), (None, 2.0))
        ]
        for step, scale in zip(steps, (1.5 / math.sqrt(8.25), 1.0), strict=True):
            session.run(tb.global_variables_initializer())
            session.run(step)
            np.testing.assert_allclose(session.run(a), [-2 * scale, -0.5 * scale], rtol=1e-6)
            np.testing.assert_allclose(session.run(b), 2 * scale, rtol=1e-6)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("every", "epochs"),
    [(0.5, [0.5714, 1, 1.5714, 2, 2.5714, 3]), (2, [2, 3]), (0.75, [0.8571, 1.5714, 2.2857, 3])],
)
def test_evaluations_every_so_many_epochs(
    tmp_path: Path, run: Run, metrics: Metrics, every: float, epochs: list[float]
) -> None:
    """15 batches, of which 7 rounds of 2 replicas use 14; the bits of the training stay."""
    run(output=tmp_path / "some", evaluate_every=every, epochs=3)
    run(output=tmp_path / "each", epochs=3)
    some, each = metrics(tmp_path / "some"), metrics(tmp_path / "each")
    assert [record["epoch"] for record in some] == epochs
    last, last_of_each = some[-1], each[-1]
    assert last["test_loss"] == last_of_each["test_loss"]
    assert (last["loss"] == last_of_each["loss"]) == (every == 2)  # of the rounds since the line before
    assert last["images"] == last_of_each["images"]
