"""Checkpoints whose content is whole and cannot be: the run goes on, or ends in a line, in little memory."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorbow.training import load_arrays, save_arrays
from tests.memory_rig.peak import growing_by_less_than

Call = Callable[..., Any]
VALUES: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        1,
        2,
        10**6,
        1 << 40,
        1 << 63,
        10**300,
        0.5,
        1e300,
        -1e300,
        "",
        "x",
        "logreg",
        "auto",
    ),
    *(
        "\x00",
        "a\nb",
        "9" * 5000,
        [],
        {},
        [1] * 1000,
        {"a": {"b": [1]}},
        ["cpu:0"] * 3,
        [[1, 1e300]],
        [[2, 2]],
    ),
]
Change = Callable[[dict[str, Any], dict[str, Any]], None]


def checkpoint(call: Call) -> Path:
    assert call("train", "logreg", "--dataset", "synthetic", "--epochs", 1, "--output", "run").status == 0
    return max(Path("run").glob("checkpoint-*"))


def resumed(call: Call, path: Path, change: Change, output: str) -> Any:
    """Outcome of resuming from the changed checkpoint; the file is restored afterwards."""
    whole = path.read_bytes()
    arrays, metadata = load_arrays(path)
    arrays, metadata = dict(arrays), json.loads(json.dumps(metadata))
    change(arrays, metadata)
    save_arrays(path, arrays, metadata)
    ended = call("train", "--resume", path, "--output", output, "--max-seconds", 0.05, "--epochs", 2)
    path.write_bytes(whole)
    return ended


@pytest.mark.slow
def test_a_target_that_was_reached_though_there_is_none(call: Call, tmp_path: Path) -> None:
    def change(arrays: dict[str, Any], metadata: dict[str, Any]) -> None:
        metadata["seconds_to_target"] = 0.5

    ended = resumed(call, checkpoint(call), change, "other")
    assert (ended.status, ended.err) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "dtype", "said"),
    [
        ({}, np.int64, "expected float32"),
        (
            {"learning_rate": 1e-30, "learning_rate_drops": [[1, 1e-37]]},
            np.float32,
            "cannot hold a learning rate",
        ),
    ],
)
def test_momentum_of_an_earlier_version_that_cannot_be_divided(
    call: Call, tmp_path: Path, options: dict[str, Any], dtype: Any, said: str
) -> None:
    """Such momentum includes the rate: dividing zeros by a rate that rounds to 0 gave a warning, and NaN."""

    def change(arrays: dict[str, Any], metadata: dict[str, Any]) -> None:
        del metadata["momentum"]
        metadata["config"].update(options)
        for name in arrays:
            if name.endswith("/Momentum"):
                arrays[name] = np.zeros(arrays[name].shape, dtype)
        if options:
            metadata["round"] = 129  # the last round is of the second epoch

    path = checkpoint(call)
    if options:
        path = path.rename(path.with_name("checkpoint-000000129.safetensors"))
    assert said in resumed(call, path, change, "other").line


def attack(call: Call, rounds: int, seed: int) -> int:
    """Odd metadata and arrays: how many of the checkpoints are gone on from."""
    rng, path, gone_on = random.Random(seed), checkpoint(call), 0

    def change(arrays: dict[str, Any], metadata: dict[str, Any]) -> None:
        for _ in range(rng.randint(1, 2)):
            config = metadata.get("config")
            target = config if rng.random() < 0.6 and isinstance(config, dict) else metadata
            key = rng.choice([*target, "more"])
            if rng.random() < 0.1:
                target.pop(key, None)
            else:
                target[key] = rng.choice(VALUES)
        if rng.random() < 0.3:
            shape, dtype = rng.choice([(), (0,), (3,), (784, 10)]), rng.choice(["f4", "f8", "i8"])
            arrays[rng.choice(list(arrays))] = np.zeros(shape, dtype)

    with growing_by_less_than(256 << 20):
        for number in range(rounds):
            ended = resumed(call, path, change, f"o{number}")
            assert ended.status in (0, 1, 2), ended.err
            assert "internal error" not in ended.err, ended.err
            assert all(line.startswith("tensorbow: ") for line in ended.err.splitlines()), ended.err
            assert len(ended.err) < 3000
            gone_on += ended.status == 0
    return gone_on


@pytest.mark.slow
def test_odd_checkpoints(call: Call) -> None:
    assert attack(call, 12, 1) < 12


@pytest.mark.slow
def test_many_odd_checkpoints(call: Call) -> None:
    assert attack(call, 300, 2) > 10
