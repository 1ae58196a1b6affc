"""A replica has the same bits alone and beside others, which train at the same time on other threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import LearningEngine, Synchronisation, build_program
from tensorbow.data import ImageDataset
from tensorbow.models import get_model
from tests.scheduler_rig.running import Prepared, cpu_devices, within

REPLICAS, ROUNDS, BATCH = 4, 6, 8


def dataset(shape: tuple[int, ...]) -> ImageDataset:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (64, *shape), np.uint8)
    return ImageDataset("noise", images, generator.integers(0, 10, 64), 10, 0.5, 0.3)


def trained(model: str, data: ImageDataset, who: list[int]) -> dict[Any, Any]:
    """The losses and the state of replicas that get the batches of these; by whose, and round or name."""

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        generator = np.random.default_rng((round, who[replica]))
        images = generator.standard_normal((BATCH, *data.image_shape)).astype(np.float32)
        return images, generator.integers(0, 10, BATCH)

    with tb.Graph().as_default():
        tb.set_random_seed(1)
        program = build_program(get_model(model), data, 0.9, 0.01, 1e-4)
    found: dict[Any, Any] = {}

    def note(results: Any) -> None:
        found.update(((who[result.replica], result.round), result.loss) for result in results)

    with LearningEngine(program, BATCH, cpu_devices(1), len(who), Synchronisation(sync="none")) as engine:
        engine.initialize()
        within(lambda: engine.run(Prepared(batch, len(who)).open, 0, ROUNDS, note))
        for name, array in engine.learners.values.state_arrays().items():
            if name.startswith("replica"):
                replica, _, rest = name.removeprefix("replica").partition("/")
                found[who[int(replica)], rest] = array.tobytes()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lenet", pytest.param("resnet8", marks=pytest.mark.slow), "logreg"])
def test_alone_and_beside(model):
    data = dataset((32, 32, 3) if model == "resnet8" else (28, 28, 1))
    beside = trained(model, data, list(range(REPLICAS)))
    for replica in range(REPLICAS):
        alone = trained(model, data, [replica])
        assert len(alone) > ROUNDS
        assert alone == {key: value for key, value in beside.items() if key[0] == replica}
