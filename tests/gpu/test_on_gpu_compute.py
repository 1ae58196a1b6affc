"""Products and convolutions in fp32, TF32 and bf16, within the bounds of their inputs' and sums' rounding.

A result is a sum of n products. Each input read with p bits of mantissa, cut or rounded, is off by at most
2^-p relatively, so a product by 2 * 2^-p; a float32 sum of n terms adds n * 2^-22, the hardware's cut partial
sums counted in. Both are relative to the sum of the products' absolute values.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu_rig.against_cpu import on_cpu
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench
from tests.gpu_rig.recording import gpu_samples
from tests.gpu_rig.runtimes import real_runtime

RUNTIME = real_runtime()
PRODUCTS = ("MatMul", "BatchMatMulV2")
CONVOLUTIONS = ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")
BITS = {"fp32": 23, "tf32": 10, "bf16": 7}
SAMPLES = [
    sample
    for sample in gpu_samples()
    if sample.op.name in PRODUCTS + CONVOLUTIONS and all(a.dtype != np.float64 for a in sample.inputs)
]


def in_double(inputs, of=lambda array: array):
    return [of(a.astype(np.float64)) if a.dtype.kind == "f" else a for a in inputs]


@pytest.mark.parametrize("compute", BITS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_is_within_the_bound_of_its_rounding(sample, compute):
    with GpuBench(RUNTIME, compute) as bench:
        (got,) = (
            BoundGpuCall(bench, sample.op, sample.inputs, sample.complete_attrs, sample.state).run().outputs
        )
    (exact,) = on_cpu(sample.op, in_double(sample.inputs), sample.complete_attrs).outputs
    (absolute,) = on_cpu(sample.op, in_double(sample.inputs, np.abs), sample.complete_attrs).outputs
    terms = max(a.size for a in sample.inputs)
    bound = (2 * 2.0 ** -BITS[compute] + terms * 2.0**-22) * absolute
    assert (np.abs(got - exact) <= bound + 1e-30).all()


def test_tf32_and_bf16_read_fewer_bits():
    """Prints the bits of mantissa that the hardware reads, on GPUs with these types."""
    sample = next(s for s in SAMPLES if s.op.name == "MatMul" and min(a.size for a in s.inputs) > 8)
    (exact,) = on_cpu(sample.op, in_double(sample.inputs), sample.complete_attrs).outputs
    (absolute,) = on_cpu(sample.op, in_double(sample.inputs, np.abs), sample.complete_attrs).outputs
    errors = {}
    for compute in BITS:
        with GpuBench(RUNTIME, compute) as bench:
            (got,) = BoundGpuCall(bench, sample.op, sample.inputs, sample.complete_attrs).run().outputs
        errors[compute] = float((np.abs(got - exact) / absolute).max())
    print(f"\n{sample.id} on {RUNTIME.properties.name}, relative errors:", errors)
    assert errors["fp32"] <= 2.0**-20
