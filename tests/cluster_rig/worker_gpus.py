"""Replicas on the emulated GPUs of two workers beside those of one process; the program of a test."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorbow as tb
from scheduler import LearningEngine, Synchronisation
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.scheduler_rig.programs import logistic
from tests.scheduler_rig.running import Prepared, gpu_devices

workers, model = tb.worker_group(), logistic(tb.float32)


def trained(first: int, gpus: int, **options: Any) -> dict[str, Any]:
    engine = LearningEngine(model.program, model.shapes, gpu_devices(EmulatedCuda(), gpus), 1, **options)
    with engine:
        engine.initialize(model.initial)
        source = Prepared(lambda round, replica: model.batch(round, first + replica), gpus)
        engine.run(source.open, 0, 4)
        return {**engine.central_values(), **engine.learners.values.state_arrays()}


for sync in ("sma", "ssgd"):
    options = Synchronisation(sync)
    alone = trained(0, 2 * workers.size, synchronisation=options)
    together = trained(2 * workers.rank, 2, synchronisation=options, workers=workers)
    for name, value in together.items():
        np.testing.assert_allclose(value, alone[name], rtol=2e-6, atol=2e-6, err_msg=f"{sync} {name}")
print(f"worker {workers.rank} is done")
