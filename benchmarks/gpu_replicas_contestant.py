"""Cases of `gpu_replicas.py`, and the interface of its contestants."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ours import made_up_data
from replica_modes import Ways, ways_here

from tensorbow.data import ImageDataset
from tensorbow.devices.cuda_runtime import CudaRuntime


@dataclass(frozen=True)
class Case:
    """Model and batch size. batch_size: per replica."""

    model: str
    batch_size: int

    def data(self) -> ImageDataset:
        return made_up_data(self.model)


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
    """Settings of a run. seconds: per window; windows: per contestant. emulated: peers run on the CPU.

    ways: in which our replicas run.
    """

    runtime: CudaRuntime
    counts: list[int]
    compute: str
    seconds: float
    windows: int
    emulated: bool
    ways: Sequence[Ways] = field(default_factory=lambda: ways_here([1]))


@dataclass(frozen=True)
class Contestant:
    """window: trains for about so many seconds, returns images per second. facts: further measurements.

    way: in which our replicas run; empty for peers.
    """

    name: str
    replicas: int
    window: Callable[[float], float]
    close: Callable[[], None] = lambda: None
    facts: Callable[[], dict[str, Any]] = field(default=dict)
    way: str = ""


Opening = Iterator[tuple[str, Callable[[], Contestant]]]  # of contestants by name, one after the other


def emulated_gpu() -> CudaRuntime:
    """Registers the tests' GPU, which is emulated on the host."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.gpu_rig.emulated_cuda import EmulatedCuda

    return EmulatedCuda(memory_nbytes=8 << 30)
