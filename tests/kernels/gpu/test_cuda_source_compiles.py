"""Every CUDA source of the op kernels compiles to machine code; NVRTC needs neither GPU nor driver."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tensorbow.devices.cupy_runtime import compile_with_nvrtc
from tensorbow.errors import InvalidArgumentError
from tensorbow.kernels.gpu.runtime.program import PRELUDE, CudaSource
from tensorbow.kernels.gpu.runtime.sums import ADD, HALVES
from tests.gpu_rig.nvrtc_usage import ARCHITECTURES, require_nvrtc, usages
from tests.gpu_rig.recording import every_source, for_all_replicas, sources_of_networks

MOST_REGISTERS = 128  # of 65,536 of a multiprocessor: for 512 threads


@pytest.fixture(params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> int:
    return require_nvrtc(request.param)


def check(sources: Mapping[str, str], architecture: int, *, spills: bool = False) -> None:
    """All compile, by default without spilling registers; prints the kernels that need the most."""
    found, logs = usages(sources, architecture)
    assert not logs, f"{len(logs)} of {len(sources)}:\n" + "\n\n".join(logs[:5])
    kernels = [(usage, sources[text]) for text, each in found.items() for usage in each]
    most = sorted(kernels, key=lambda kernel: -kernel[0].registers)[:5]
    print(f"\nsm_{architecture}: {len(sources)} sources, {len(kernels)} kernels; most registers:")
    for usage, name in most:
        print(f"  {name} {usage.kernel}: {usage.registers}, {usage.stack_nbytes} bytes of stack")
    if not spills:
        assert not [(name, usage) for usage, name in kernels if usage.spilled_nbytes]
        assert not [(name, usage) for usage, name in kernels if usage.registers > MOST_REGISTERS]


def test_every_source_compiles_without_spills(architecture: int) -> None:
    assert len(every_source()) > 200
    check(every_source(), architecture)


def test_sums_outside_of_plans_compile(architecture: int) -> None:
    sources = [CudaSource.of("add", ADD, T=kind) for kind in ("float", "double", "long long")]
    check({each.text: each.name for each in (*sources, CudaSource.of("halves", HALVES))}, architecture)


@pytest.mark.slow
def test_every_source_compiles_in_float64(architecture: int) -> None:
    """With 64 registers, FusedBatchNormGrad spills 8 bytes."""
    assert len(every_source(float64=True)) > 200
    check(every_source(float64=True), architecture, spills=True)


def test_every_source_compiles_for_fused_replicas(architecture: int) -> None:
    check(for_all_replicas(every_source()), architecture)


@pytest.mark.parametrize("compute", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize(("model", "batch_size", "at_least"), [("lenet", 16, 35), ("resnet32", 32, 55)])
def test_a_networks_fused_kernels_compile_without_spills(
    architecture: int, model: str, batch_size: int, at_least: int, compute: str
) -> None:
    sources = sources_of_networks(model, batch_size, compute)
    assert len(sources) >= at_least
    check(sources, architecture)


def test_a_kernel_that_spills_is_found(architecture: int) -> None:
    text = """extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* y, int n) {
        float kept[64], carried = 0;
        #pragma unroll
        for (int i = 0; i < 64; ++i) kept[i] = y[i * n + threadIdx.x];
        for (int k = 0; k < n; ++k)
            #pragma unroll
            for (int i = 0; i < 64; ++i) kept[i] += carried = sinf(carried * kept[i]);
        #pragma unroll
        for (int i = 0; i < 64; ++i) y[i * 7 + threadIdx.x] = kept[i];
    }"""
    with pytest.raises(AssertionError, match="spilling"):
        check({text: "spills"}, architecture)


def test_a_source_that_does_not_compile(architecture: int) -> None:
    text = PRELUDE + 'extern "C" __global__ void f(int* y) { *y = nonsense; }'
    with pytest.raises(
        InvalidArgumentError,
        match=rf"CUDA source bad does not compile(.|\n)*sm_{architecture}(.|\n)*nonsense",
    ):
        compile_with_nvrtc(text, "bad", architecture)
    with pytest.raises(AssertionError, match=r"1 of 1:\n *bad: (.|\n)*nonsense"):
        check({text: "bad"}, architecture)
