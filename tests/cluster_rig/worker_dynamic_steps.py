"""Two workers whose replicas run their steps by the dynamic executor; the program of a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler import LearningEngine, Synchronisation, gathered
from scheduler.workers.find import worker_group
from tensorbow.errors import AbortedError, InvalidArgumentError, NumericsError
from tests.scheduler.replicas.test_divided_steps import dynamic, masked
from tests.scheduler_rig.programs import Model, well
from tests.scheduler_rig.running import Prepared, cpu_devices, same_bits

workers = worker_group()
ROUNDS = 7


def engine_of(model: Model, steps: int = 1, **options: Any) -> LearningEngine:
    engine = LearningEngine(
        model.program,
        model.shapes,
        cpu_devices(1),
        2,
        Synchronisation(**options),
        workers=workers,
        steps_per_launch=steps,
    )
    engine.initialize(model.initial)
    return engine


def source_of(model: Model, steps: int) -> Any:
    source = Prepared(lambda t, i: model.batch(t, 2 * workers.rank + i), 2).open
    return source if steps == 1 else gathered(source, steps)


def left(model: Model, steps: int = 1, **options: Any) -> dict[str, Any]:
    """The state after some rounds."""
    with engine_of(model, steps, **options) as engine:
        assert engine.learners.launches_rounds
        engine.run(source_of(model, steps), 0, ROUNDS)
        return dict(engine.learners.values.state_arrays())


def fails(model: Model, steps: int, expected: type[Exception], words: str, **options: Any) -> None:
    """A run that an error ends, and another one after it."""
    with engine_of(model, steps, **options) as engine:
        with pytest.raises(expected, match=words):
            engine.run(source_of(model, steps), 0, ROUNDS)
        engine.initialize(model.initial)
        good = masked(np.ones_like)
        assert engine.run(source_of(good, steps), 0, 1) == 1


def main() -> None:
    for options in ({"mu": 0.5}, {"sync": "ssgd"}, {"sync": "diloco", "tau": 2}):
        planned = left(well(), **options)
        for steps in (1, 3):
            assert same_bits(planned, left(dynamic(well()), steps, **options))

    calls: list[int] = []

    def weigh(errors: Any) -> Any:
        calls.append(0)
        if workers.rank == 1 and len(calls) == 3:
            raise ValueError("no luck")
        return np.ones_like(errors)

    error = InvalidArgumentError if workers.rank == 1 else AbortedError
    for steps, tau in ((1, 1), (3, 1), (3, 4)):
        calls.clear()
        fails(masked(weigh), steps, error, "replica 2 at step 1: PyFunc weigh: ValueError: no luck", tau=tau)

    def spoil(errors: Any) -> Any:
        calls.append(0)
        return np.full_like(errors, np.nan if workers.rank == 1 and len(calls) == 4 else 1)

    kind = NumericsError if workers.rank == 1 else AbortedError
    for steps, tau in ((1, 1), (3, 1), (3, 4)):  # in rounds with and without an exchange
        calls.clear()
        fails(masked(spoil), steps, kind, "not finite at step 1", tau=tau)
    print(f"worker {workers.rank} is done")


if __name__ == "__main__":
    main()
