from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler import TrainingConfig
from scheduler.batches.positions import RoundPositions
from scheduler.training.measures.tally import Tally
from scheduler.training.running.milestones import Milestones
from tensorbow.data import BatchOrder

Options = Callable[..., TrainingConfig]


def milestones_of(config: TrainingConfig, tally: Tally) -> Milestones:
    """Of a run on 15 batches, in 7 rounds of two replicas."""
    positions = RoundPositions(BatchOrder(240, 16, 0), 2)
    return Milestones(config, lambda: positions, tally)


@pytest.mark.parametrize(
    ("tally", "said"),
    [
        (Tally(round=13), None),
        (Tally(round=14), "already at epoch 2; --epochs 2 asks for no more"),
        (Tally(round=36), "already at epoch 5.14; --epochs 2 asks for no more"),
        (Tally(round=3, seconds=9.0), "already at epoch 0.43, after 9.0 s; --max-seconds 5 asks for no more"),
        (Tally(round=7, seconds_to_target=1.0), "already at epoch 1; --target-accuracy 0.9 is reached"),
    ],
    ids=["not yet", "just", "far beyond", "seconds", "target"],
)
def test_when_nothing_is_left(options: Options, tally: Tally, said: str | None) -> None:
    milestones = milestones_of(options(max_seconds=5, target_accuracy=0.9), tally)
    assert milestones.nothing_left == said
    tally.evaluated_at = 3
    assert milestones.is_complete == (said is not None and tally.round == 3)


@pytest.mark.parametrize(
    ("evaluate_every", "checkpoint_rounds", "stops"),
    [
        (None, None, [7, 14]),
        (None, 3, [3, 6, 7, 10, 13, 14]),
        (0.5, None, [4, 7, 11, 14]),
        (2, None, [14]),
    ],
)
def test_rounds_at_which_a_run_stops(
    options: Options, evaluate_every: float | None, checkpoint_rounds: int | None, stops: list[int]
) -> None:
    tally = Tally()
    config = options(evaluate_every=evaluate_every, checkpoint_rounds=checkpoint_rounds)
    milestones, found = milestones_of(config, tally), []
    while milestones.nothing_left is None:
        since = tally.round
        tally.round = milestones.next_stop(since)
        found.append(tally.round)
        if milestones.evaluation_is_due:
            tally.evaluated_at = tally.round
    assert found == stops
    assert milestones.is_complete


def test_the_share_that_is_done_is_that_of_epochs_or_of_seconds(options: Options) -> None:
    tally = Tally(round=7, seconds=4.0)
    assert milestones_of(options(), tally).share_done(7, 4.0, 14, 0.0) == 1
    assert milestones_of(options(epochs=3), tally).share_done(7, 4.0, 14, 1.0) == 0.5
    assert milestones_of(options(epochs=3, max_seconds=5), tally).share_done(7, 4.0, 14, 0.75) == 0.75
