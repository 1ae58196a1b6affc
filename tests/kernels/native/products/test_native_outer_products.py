"""The two factors of a weight gradient as they are kept: panels, and the matrices made of them again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.target import host_target
from tensorbow.kernels.native.products.outer_products import PANEL, ROWS, emit_factors, unpacked
from tensorbow.ops.matmul import MatMul
from tensorbow.program.plan import Group, Ref, Region
from tensorbow.specs import as_dtype
from tests.native_rig.emitted_code import call_emitted
from tests.native_rig.targets import narrow_target
from tests.ops_contract.sample import normal
from tests.program_rig.examples import given_few

TARGETS = {"host": host_target, "narrow": narrow_target}


def packed(arrays, target):
    """Result of `emit_factors` for two matrices."""
    results = [np.full_like(array, np.nan) for array in arrays]
    every = [*arrays, *results]
    refs = [Ref(Region.SLAB, number, x.shape, as_dtype(x.dtype)) for number, x in enumerate(every)]
    group = Group("product", MatMul, NativeKernel(emit=emit_factors), {}, tuple(refs[:2]), tuple(refs[2:]))
    slots = {(Region.SLAB, number): number for number in range(len(every))}

    def write(e, _):
        emit_factors(Emitter(e.target, e.builder, e.builder.function.args[0], slots), group)

    call_emitted(write, every, target)
    return results


@pytest.mark.slow
@given_few(
    15,
    40,
    st.sampled_from([1, 2, 5, 16]),
    st.sampled_from([1, 3, 4, 5, 8, 11, 64]),
    st.sampled_from([1, 7, 63, 64, 65, 100, 128, 130]),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from(sorted(TARGETS)),
)
def test_factors_are_panels_of_all_rows(rows, m, n, dtype, target):
    left, right = normal(rows, m, dtype=dtype), normal(rows, n, dtype=dtype, seed=1)
    kept = packed((left, right), TARGETS[target]())
    for panels, matrix, width in zip(kept, (left, right), (ROWS, PANEL), strict=True):
        last = (matrix.shape[1] - 1) // width * width
        np.testing.assert_array_equal(panels.ravel()[rows * last :], matrix[:, last:].ravel())
    for ours, matrix in zip(unpacked(*kept), (left, right), strict=True):
        np.testing.assert_array_equal(ours, matrix)
