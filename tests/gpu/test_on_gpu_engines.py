"""Averaged replicas on the GPU of this machine: the tests of the emulated one, and LeNet 50 times over."""

from __future__ import annotations

import pytest

from tests.gpu_rig.counted import OpenedGpu, of_any_gpu
from tests.gpu_rig.gpu_models import classifier
from tests.gpu_rig.runtimes import is_emulated, real_runtime
from tests.scheduler.engine import test_gpu_engine as shared

RUNTIME = real_runtime()
REPLICAS, TIMES = (3, 2) if is_emulated(RUNTIME) else (8, 50)

globals().update(of_any_gpu(shared))


def test_replicas_beside_one_another_have_the_bits_of_replicas_alone(opened: OpenedGpu) -> None:
    shared.beside_has_the_bits_of_alone(opened, classifier("lenet", batch_size=4), REPLICAS, TIMES)


def test_lenet_captured_has_the_bits_of_single_launches(
    opened: OpenedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.captured_has_the_bits_of_eager(opened, classifier("lenet", batch_size=4), monkeypatch)
