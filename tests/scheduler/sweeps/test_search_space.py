from __future__ import annotations

import numpy as np
import pytest

from scheduler.sweeps.members import grouped, members_of
from scheduler.sweeps.search_space import Range, configurations, read_range, read_values
from tensorbow.errors import InvalidArgumentError


def test_a_grid_has_all_combinations():
    grid = {"learning_rate": np.array([0.1, 0.2]), "batch_size": (8, 16)}
    found = configurations(grid, {}, None, 0)
    assert found == [{"learning_rate": r, "batch_size": b} for r in (0.1, 0.2) for b in (8, 16)]
    assert {type(value) for each in found for value in each.values()} == {int, float}


def test_draws_lie_in_their_ranges_and_depend_on_the_seed():
    ranges = {
        "learning_rate": Range(1e-4, 1e-1, log=True),
        "momentum": Range(0.5, 0.99),
        "batch_size": Range(8, 11),
        "optimizer": ["adam", "sgd"],
    }
    drawn = configurations({}, ranges, 400, 3)
    assert drawn == configurations({}, ranges, 400, 3) != configurations({}, ranges, 400, 4)
    rates = np.array([each["learning_rate"] for each in drawn])
    assert 1e-4 <= rates.min() < 2e-4
    assert 0.05 < rates.max() <= 1e-1
    assert 0.4 < (rates < 10**-2.5).mean() < 0.6  # half of them in the lower half of the logarithms
    assert all(0.5 <= each["momentum"] <= 0.99 for each in drawn)
    assert {each["batch_size"] for each in drawn} == {8, 9, 10, 11}
    assert {each["optimizer"] for each in drawn} == {"adam", "sgd"}


def test_draws_stand_beside_each_point_of_a_grid():
    found = configurations({"batch_size": [8, 16]}, {"momentum": Range(0.1, 0.9)}, 3, 0)
    assert [each["batch_size"] for each in found] == [8, 16] * 3
    assert len({each["momentum"] for each in found}) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("learning-rate=1e-3,3e-3", ("learning_rate", [0.001, 0.003])),
        ("batch_size=8,16", ("batch_size", [8, 16])),
        ("optimizer=adam,sgd", ("optimizer", ["adam", "sgd"])),
        ("decay_all=true,false", ("decay_all", [True, False])),
        ("model.width=64,128", ("model.width", [64, 128])),
    ],
)
def test_values_are_read_from_text(text, expected):
    assert read_values(text) == expected


def test_ranges_are_read_from_text():
    assert read_range("learning_rate=log:1e-4:1e-1") == ("learning_rate", Range(1e-4, 1e-1, log=True))
    assert read_range("batch_size=8:64") == ("batch_size", Range(8, 64))
    assert read_range("optimizer=adam,sgd") == ("optimizer", ["adam", "sgd"])
    name, own = read_range("momentum=0.123456789:0.987654321")
    assert read_range(f"{name}={own}") == (name, own)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: read_values("learning_rate"), "grid: expected NAME=VALUES"),
        (lambda: read_range("momentum=1:2:3"), "range momentum: expected LOW:HIGH"),
        (lambda: Range(2, 1), "that rise"),
        (lambda: Range(-1, 1, log=True), "positive numbers with log"),
        (lambda: configurations({"learning_rates": [1]}, {}, None, 0), "did you mean 'learning_rate'"),
        (lambda: configurations({"seed": [1]}, {}, None, 0), "vary it by seeds"),
        (lambda: configurations({"dataset": ["mnist"]}, {}, None, 0), "one value for all members"),
        (lambda: configurations({"tau": [1]}, {}, None, 0), "in which members can differ"),
        (lambda: configurations({"momentum": []}, {}, None, 0), "expected a list of values"),
        (lambda: configurations({"momentum": 0.9}, {}, None, 0), "expected a list of values"),
        (lambda: configurations({}, {"momentum": Range(0, 1)}, None, 0), "number of draws"),
        (lambda: configurations({}, {}, 5, 0), "number of draws"),
        (
            lambda: configurations({"momentum": [0.1]}, {"momentum": Range(0.1, 0.2)}, 5, 0),
            "in the grid or as a range",
        ),
    ],
)
def test_wrong_spaces_say_what_is_expected(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call()


@pytest.mark.slow
def test_members_that_one_compiled_step_can_train_are_together():
    base = {"model": "logreg", "dataset": "synthetic", "epochs": 2}
    choices = configurations(
        {"learning_rate": [0.1, 0.2], "momentum": [0.5, 0.9], "batch_size": [8, 16], "epochs": [1, 2]},
        {},
        None,
        0,
    )
    groups = grouped(members_of(base, choices, 3))
    assert [{member.config.batch_size for member in group} for group in groups] == [{8}, {16}]
    decays = grouped(members_of(base, [{"weight_decay": d} for d in (0.0, 0.1, 0.2)], 1))
    assert [len(group) for group in decays] == [1, 2]
    decoupled = [{"optimizer": "adamw", "weight_decay": d} for d in (0.1, 0.2)]
    assert [len(group) for group in grouped(members_of(base, decoupled, 1))] == [1, 1]
