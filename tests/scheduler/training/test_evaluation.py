from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from scheduler import Evaluator
from tensorbow.data import ImageDataset, make_synthetic
from tensorbow.devices import CpuDevice
from tensorbow.models import get_model
from tensorbow.specs import Array


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    with CpuDevice() as opened:
        yield opened


@pytest.fixture(scope="module")
def dataset() -> ImageDataset:
    return make_synthetic(train_examples=10, test_examples=1013)[1]  # four whole batches and a rest of 13


@pytest.fixture(scope="module")
def values() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        "weights": rng.normal(size=(784, 10)).astype(np.float32),
        "biases": rng.normal(size=10).astype(np.float32),
    }


def reference(dataset: ImageDataset, values: dict[str, Array]) -> tuple[float, float]:
    pixels = (dataset.images.reshape(len(dataset), -1) / 255 - dataset.mean) / dataset.std
    logits = pixels @ values["weights"].astype(np.float64) + values["biases"]
    shifted = logits - logits.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    loss = -logs[np.arange(len(dataset)), dataset.labels].mean()
    return float(loss), float((logits.argmax(1) == dataset.labels).mean())


@pytest.mark.slow
def test_loss_and_accuracy_are_means_over_all_examples(
    device: CpuDevice, dataset: ImageDataset, values: dict[str, Array]
) -> None:
    evaluator = Evaluator(get_model("logreg"), dataset, device, threads=1)
    result = evaluator.evaluate(values)
    assert result is not None
    loss, accuracy = reference(dataset, values)
    assert result.accuracy == pytest.approx(accuracy, abs=1.5 / len(dataset))
    assert result.loss == pytest.approx(loss, rel=1e-4)
    evaluator.close()


def test_the_number_of_threads_changes_no_bit(
    device: CpuDevice, dataset: ImageDataset, values: dict[str, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    results = []
    for threads in (1, 2, 3, 8):
        evaluator = Evaluator(get_model("logreg"), dataset, device, threads)
        results.append(evaluator.evaluate(values))
        results.append(evaluator.evaluate(values))
        evaluator.close()
    assert len(set(map(str, results))) == 1


def test_a_stop_gives_no_result(device: CpuDevice, dataset: ImageDataset, values: dict[str, Array]) -> None:
    evaluator = Evaluator(get_model("logreg"), dataset, device, threads=2)
    asked = iter([False, False, True, True, True, True])
    assert evaluator.evaluate(values, lambda: next(asked)) is None
    result = evaluator.evaluate(values)
    assert result is not None
    assert math.isfinite(result.loss)
    evaluator.close()


def test_closing_gives_the_memory_back(
    device: CpuDevice, dataset: ImageDataset, values: dict[str, Array]
) -> None:
    evaluator = Evaluator(get_model("logreg"), dataset, device, threads=2)
    evaluator.evaluate(values)
    assert device.memory.held_nbytes > 0
    evaluator.close()
    assert device.memory.held_nbytes == 0
