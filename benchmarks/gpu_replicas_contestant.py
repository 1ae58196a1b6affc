"""What is measured by `gpu_replicas.py`: the cases, and what all contestants have in common."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorbow.data import Dataset, make_synthetic
from tensorbow.devices.cuda_runtime import CudaRuntime

EXAMPLES = 4096  # of made-up pictures, kept on the GPU by every contestant
RATE, MOMENTUM, CLASSES = 0.001, 0.9, 10
LEAST_STEPS = 4  # of a window


@dataclass(frozen=True)
class Case:
    """batch_size: of one replica."""

    model: str
    batch_size: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of a picture."""
        return (32, 32, 3) if self.model.startswith("resnet") else (28, 28, 1)

    def data(self) -> Dataset:
        height, width, channels = self.shape
        train, _ = make_synthetic(
            EXAMPLES, 16, height=height, width=width, channels=channels, classes=CLASSES
        )
        return train


CASES = (
    Case("logreg", 16),
    Case("lenet", 4),
    Case("lenet", 16),
    Case("lenet", 32),
    Case("resnet32", 32),
    Case("resnet32", 64),
)


@dataclass(frozen=True)
class Settings:
    """seconds: of a window; windows: of each contestant. emulated: peers run on the CPU."""

    runtime: CudaRuntime
    counts: list[int]
    compute: str
    seconds: float
    windows: int
    emulated: bool


@dataclass(frozen=True)
class Contestant:
    """window: trains for about so many seconds and gives images per second. facts: what else is measured."""

    name: str
    replicas: int
    window: Callable[[float], float]
    close: Callable[[], None] = lambda: None
    facts: Callable[[], dict[str, Any]] = field(default=dict)


Opening = Iterator[tuple[str, Callable[[], Contestant]]]  # of contestants by name, one after the other


def paced(run_steps: Callable[[int], object], images: int) -> Callable[[float], float]:
    """A window of as many steps as its time allows by the rate of the one before.

    run_steps(n) makes n steps and waits for them; images: of one step.
    """
    per_second = 20.0

    def window(seconds: float) -> float:
        nonlocal per_second
        steps = max(LEAST_STEPS, int(per_second * seconds))
        started = time.perf_counter()
        run_steps(steps)
        elapsed = time.perf_counter() - started
        per_second = steps / elapsed
        return steps * images / elapsed

    return window


def emulated_gpu() -> CudaRuntime:
    """The GPU of the tests, on the host."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.gpu_rig.emulated_cuda import EmulatedCuda

    return EmulatedCuda(memory_nbytes=8 << 30)
