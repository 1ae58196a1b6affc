"""Kernels for all replicas compile to machine code without spills; NVRTC needs neither GPU nor driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tensorbow.kernels.gpu.fused.replicated_source import replicated
from tensorbow.kernels.gpu.runtime.call import DeviceArray
from tensorbow.kernels.gpu.runtime.context import GpuContext, GpuOptions
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.kernels.gpu.source.direct_convolution import Convolution
from tensorbow.kernels.gpu.source.implicit_gemm import THREADS, Pass, implicit_gemm
from tests.gpu_rig.fused_calls import fused_bench, run_fused
from tests.gpu_rig.nvrtc_usage import ARCHITECTURES, require_nvrtc, usages
from tests.gpu_rig.recording import RecordingCuda, gpu_samples

LAYERS = {  # LeNet's and ResNet-32's
    "5x5 of 1": ((16, 28, 28, 1), (5, 5, 1, 32), 1, "VALID"),
    "5x5 of 32": ((16, 12, 12, 32), (5, 5, 32, 64), 1, "VALID"),
    "3x3 of 3": ((32, 32, 32, 3), (3, 3, 3, 16), 1, "SAME"),
    "3x3 of 16": ((32, 32, 32, 16), (3, 3, 16, 16), 1, "SAME"),
    "3x3 of 16, stride 2": ((32, 32, 32, 16), (3, 3, 16, 32), 2, "SAME"),
    "3x3 of 64": ((32, 8, 8, 64), (3, 3, 64, 64), 1, "SAME"),
}


REGISTERS = 1 << 16  # of a multiprocessor


@pytest.fixture(params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> int:
    return require_nvrtc(request.param)


def check(sources: Mapping[str, str], architecture: int, most_registers: int) -> None:
    found, logs = usages(sources, architecture)
    assert not logs, f"{len(logs)} of {len(sources)}:\n" + "\n\n".join(logs[:5])
    kernels = [(usage, sources[text]) for text, each in found.items() for usage in each]
    print(
        f"\nsm_{architecture}: {len(kernels)} kernels; most registers: {max(u.registers for u, _ in kernels)}"
    )
    assert not [(name, usage) for usage, name in kernels if usage.spilled_nbytes]
    assert not [(name, usage) for usage, name in kernels if usage.registers > most_registers]


class Silent(RecordingCuda):
    """Runtime that keeps the sources of kernels, and launches none."""

    def launch(self, *arguments: object) -> None:
        pass


@cache
def fused_sources() -> dict[str, str]:
    """Sources that fused plans prepare for the contract samples: text -> name."""
    runtime = Silent()
    try:
        with fused_bench(runtime, 2) as bench:
            for sample in gpu_samples():
                if sample.op.exchange is False and not sample.large:
                    inputs = [np.asarray(array) for array in sample.inputs]
                    run_fused(bench, sample.op, [inputs] * 2, sample.complete_attrs, sample.state)
    finally:
        runtime.close()
    return runtime.sources


@pytest.mark.slow
def test_every_source_compiles_for_all_replicas(architecture: int) -> None:
    sources = fused_sources()
    assert len(sources) > 200
    assert any("__grid_constant__" in text for text in sources)
    products = {text: name for text, name in sources.items() if "implicit_gemm(" in text}
    check({text: name for text, name in sources.items() if text not in products}, architecture, 64)
    check(products, architecture, REGISTERS // (4 * THREADS))  # four blocks of a multiprocessor


class Recorded:
    """A context that keeps the sources of launches."""

    def __init__(self, compute: str, multiprocessors: int) -> None:
        self.options, self.sources = GpuOptions(compute), list[CudaSource]()
        self.runtime = SimpleNamespace(properties=SimpleNamespace(multiprocessors=multiprocessors))

    def launch(self, source: CudaSource, *arguments: object) -> Callable[[], None]:
        self.sources.append(source)
        return lambda: None

    def blocks(self, count: int) -> int:
        return count


def array(shape: Any, offset: int = 0) -> DeviceArray:
    return DeviceArray((1 << 40) + offset, tuple(shape), np.dtype(np.float32))


@pytest.mark.parametrize(
    "layer",
    [pytest.param(name, marks=[] if name == "5x5 of 32" else [pytest.mark.slow], id=name) for name in LAYERS],
)
@pytest.mark.parametrize("compute", ["fp32", "tf32", "bf16"])
def test_convolutions_of_all_replicas(architecture: int, compute: str, layer: str) -> None:
    images, filters, stride, padding = LAYERS[layer]
    attrs = {"strides": (1, stride, stride, 1), "padding": padding, "dilations": (1, 1, 1, 1)}
    what = Convolution.of(images, filters, attrs)
    x, w = array(images), array(filters, 4)  # variables lie one behind the other
    y = array((images[0], what.rows.count, what.columns.count, filters[3]))
    sources = {}
    for multiprocessors in (1, 132):  # large tiles, and small ones
        recorded = Recorded(compute, multiprocessors)
        context = cast(GpuContext, recorded)
        implicit_gemm(context, "forward", Pass.FORWARD, what, x, w, y)
        implicit_gemm(context, "to images", Pass.TO_IMAGES, what, y, w, x)
        implicit_gemm(context, "to filters", Pass.TO_FILTERS, what, x, y, w, array((40, w.size)))
        sources |= {replicated(source, 1).text: source.name for source in recorded.sources}
    check(sources, architecture, REGISTERS // (4 * THREADS))  # four blocks of a multiprocessor at least
