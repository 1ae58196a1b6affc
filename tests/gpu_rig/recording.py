"""CUDA sources that the op kernels prepare for the contract samples: collected, not compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from scheduler import Synchronisation
from scheduler.replicas.learners import Learners
from tensorbow.devices import GpuDevice
from tensorbow.kernels import backend_for
from tensorbow.kernels.gpu.backend import GpuBackend
from tensorbow.kernels.gpu.fused.plan import FusedPlan
from tensorbow.kernels.gpu.fused.replicated_source import replicated
from tensorbow.kernels.gpu.rounds.source import ROUNDS
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.specs import DType, as_dtype, uncompiled
from tests.gpu_rig.cuda_compiler import compile_cuda
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench, every_gpu_kernel
from tests.gpu_rig.gpu_models import classifier
from tests.ops_contract.collection import all_samples
from tests.ops_contract.sample import Sample


class RecordingCuda(EmulatedCuda):
    """Runtime that keeps the sources it is asked to load; its results cannot be launched."""

    compiler = "none: the source is the binary"

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[str, str] = {}  # text -> name

    def compile(self, source: str, name: str) -> bytes:
        return f"{name}\n{source}".encode()

    def load_module(self, binary: bytes) -> int:
        name, _, source = binary.decode().partition("\n")
        self.sources[source] = name
        return 1

    def unload_module(self, module: int) -> None:
        pass

    def function(self, module: int, name: str) -> int:
        return 1


@cache
def gpu_samples() -> tuple[Sample, ...]:
    """Contract samples of all ops with a GPU kernel."""
    ops = every_gpu_kernel()
    return tuple(
        sample for sample in all_samples() if sample.op.name in ops and not uncompiled(_dtypes(sample))
    )


def _dtypes(sample: Sample) -> list[DType]:
    """Dtypes of the inputs, and those that attributes name, as that of a cast."""
    named = [value for value in sample.complete_attrs.values() if isinstance(value, DType)]
    return [*(as_dtype(array.dtype) for array in sample.inputs), *named]


def in_float64(sample: Sample) -> tuple[np.ndarray, ...]:
    """Inputs with float64 in place of float32."""
    return tuple(a.astype(np.float64) if a.dtype == np.float32 else a for a in sample.inputs)


def sources_of(samples: Sequence[Sample], float64: bool) -> dict[str, str]:
    """Sources compiled to prepare the samples, or the same in float64: text -> name."""
    runtime = RecordingCuda()
    try:
        bench = GpuBench(runtime)
        for sample in samples:
            inputs = in_float64(sample) if float64 else sample.inputs
            BoundGpuCall(bench, sample.op, inputs, sample.complete_attrs, sample.state)
            bench.free_arrays()
    finally:
        runtime.close()
    return runtime.sources


@cache
def every_source(float64: bool = False) -> dict[str, str]:
    """Sources of all contract samples, or of all samples with floats in float64: text -> name."""
    floating = [s for s in gpu_samples() if any(a.dtype == np.float32 for a in s.inputs)]
    return sources_of(floating if float64 else gpu_samples(), float64)


@cache
def sources_of_networks(model: str, batch_size: int, compute: str = "fp32") -> dict[str, str]:
    """Sources of averaging replicas of a `tensorbow.models` model: text -> name.

    Of two replicas' own plans, of two replicas in each kernel, and of rounds.
    """
    runtime = RecordingCuda()
    made = classifier(model, batch_size)
    try:
        device = GpuDevice("/gpu:0", runtime, compute=compute)
        averaging = Synchronisation("sma")
        learners = Learners(made.program, made.shapes, [device], 2, averaging, results=2, by_segment=True)
        learners.values.initialize(made.initial)
        learners.prepare()
        backend, group = backend_for(device), device.stream_group("fused")
        assert isinstance(backend, GpuBackend)
        bases = [replica.binding.bases for replica in learners.replicas]
        FusedPlan(learners.replicas[0].step, bases, group, backend.context_of(group)).close()
        learners.close()
        device.close()
        return {**runtime.sources, ROUNDS.text: ROUNDS.name}
    finally:
        runtime.close()


def for_all_replicas(sources: Mapping[str, str]) -> dict[str, str]:
    """The same kernels with the replica as a grid axis, as fused replicas run them: text -> name."""
    made = [replicated(CudaSource(name, text), depth=2) for text, name in sources.items()]
    return {source.text: source.name for source in made}


def compile_ahead(sources: dict[str, str]) -> None:
    """Compiles for the host on all cores, into the cache."""
    with ThreadPoolExecutor() as pool:
        for _ in pool.map(compile_cuda, sources.keys(), sources.values()):
            pass
