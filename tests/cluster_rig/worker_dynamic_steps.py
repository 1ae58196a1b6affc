"""Two workers whose replicas run their steps by the dynamic executor; the program of a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler import LearningEngine, Synchronisation
from scheduler.workers.find import worker_group
from tensorbow.errors import AbortedError, InvalidArgumentError
from tests.scheduler.replicas.test_divided_steps import dynamic, masked
from tests.scheduler_rig.programs import Model, well
from tests.scheduler_rig.running import Prepared, cpu_devices, same_bits

workers = worker_group()
ROUNDS = 5


def engine_of(model: Model, **options: Any) -> LearningEngine:
    engine = LearningEngine(
        model.program, model.shapes, cpu_devices(1), 2, Synchronisation(**options), workers=workers
    )
    engine.initialize(model.initial)
    return engine


def left(model: Model, **options: Any) -> dict[str, Any]:
    """The state after some rounds."""
    with engine_of(model, **options) as engine:
        engine.run(Prepared(lambda t, i: model.batch(t, 2 * workers.rank + i), 2).open, 0, ROUNDS)
        return dict(engine.learners.values.state_arrays())


def main() -> None:
    for options in ({"mu": 0.5}, {"sync": "ssgd"}, {"sync": "diloco", "tau": 2}):
        assert same_bits(left(well(), **options), left(dynamic(well()), **options))

    def weigh(errors: Any) -> Any:
        if workers.rank == 1:
            raise ValueError("no luck")
        return np.ones_like(errors)

    model = masked(weigh)
    with engine_of(model) as engine:
        expected = InvalidArgumentError if workers.rank == 1 else AbortedError
        with pytest.raises(expected, match=r"replica 2 at step 0: PyFunc weigh: ValueError: no luck"):
            engine.run(Prepared(model.batch, 2).open, 0, ROUNDS)
    print(f"worker {workers.rank} is done")


if __name__ == "__main__":
    main()
