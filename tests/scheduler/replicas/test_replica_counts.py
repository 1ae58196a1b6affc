"""Counts of replicas that no machine has: refused by their number, wherever they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler import LearningEngine, TensorBowSession, TrainingConfig, TuningOptions
from scheduler.replicas.replica_counts import MOST_REPLICAS, replica_counts
from tensorbow.errors import InvalidArgumentError
from tests.memory_rig.peak import growing_by_less_than
from tests.scheduler_rig.programs import logistic
from tests.scheduler_rig.running import cpu_devices

DEVICES = ("cpu:0", "cpu:1")


def engine(counts: Any) -> None:
    model = logistic()
    LearningEngine(model.program, model.shapes, cpu_devices(2), counts)


GIVEN: dict[str, Callable[[Any], object]] = {
    "engine": engine,
    "session": lambda counts: TensorBowSession(devices=DEVICES, replicas_per_device=counts),
    "run": lambda counts: TrainingConfig(devices=DEVICES, replicas_per_device=counts),
}


@pytest.mark.parametrize("counts", [(1, 10**6), 10**6, (MOST_REPLICAS + 1, 1), 1 << 40])
@pytest.mark.parametrize("given", GIVEN)
def test_more_replicas_than_a_device_has_are_a_line(given: str, counts: Any) -> None:
    """Nothing is made for them: a million took 40 s for the calls that average them alone."""
    with (
        growing_by_less_than(1 << 26),
        pytest.raises(InvalidArgumentError, match=f"replicas.per.device: expected .* {MOST_REPLICAS}, "),
    ):
        GIVEN[given](counts)


def test_counts_without_end() -> None:
    assert replica_counts(MOST_REPLICAS, 1) == (MOST_REPLICAS,)
    with (
        growing_by_less_than(1 << 26),
        pytest.raises(InvalidArgumentError, match=r"one for each device, got range range\(1, 1000000000\)"),
    ):
        replica_counts(range(1, 10**9), 2)
    with pytest.raises(InvalidArgumentError, match=r"for each of 2 devices, got 9 \(1, .*, 8, ...\); give 2"):
        replica_counts(range(1, 10), 2)
    with pytest.raises(InvalidArgumentError, match=r"got 1 \(1\); give 2 counts"):
        replica_counts([1], 2)


@pytest.mark.parametrize("name", ["max_replicas", "windows"])
def test_tunings_without_end(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name}: expected a whole number from 1 to"):
        TuningOptions(**{name: 10**9})
