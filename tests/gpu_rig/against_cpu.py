"""One call of an op on an emulated GPU, compared with the reference kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.specs import Array
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench, GpuResult, every_gpu_kernel
from tests.gpu_rig.runtimes import emulated_runtime
from tests.ops_contract.harness import Call


def on_cpu(op: OpDef, inputs: Sequence[Any], attrs: Mapping[str, Any] | None = None) -> GpuResult:
    """Result of the reference kernel for the arguments of `on_gpu`."""
    arrays = [np.array(a) if i in op.writes else np.asarray(a) for i, a in enumerate(inputs)]
    call = Call(op, arrays, {**op.attrs, **(attrs or {})}, {})
    call.run()
    return GpuResult(call.outputs, tuple(arrays[i] for i in op.writes), {})


def on_gpu(
    op: OpDef,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    status: int | None = None,
    shared: Mapping[int, int] | None = None,
    runtime: EmulatedCuda | None = None,
) -> GpuResult:
    """Result of the GPU kernel; shared: outputs that lie in an input's memory."""
    if runtime is None:
        with emulated_runtime() as fresh:
            return on_gpu(op, inputs, attrs, status=status, shared=shared, runtime=fresh)
    every_gpu_kernel()
    with GpuBench(runtime) as bench:
        call = BoundGpuCall(bench, op, inputs, attrs, status=status, shared=shared)
        if not shared:
            return call.run()
        call.reset()
        call.enqueue()
        return GpuResult(tuple(bench.download(memory) for memory in call.outputs), (), {})


def assert_as_on_cpu(
    op: OpDef,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    **more: Any,
) -> GpuResult:
    """Compares integers and bools exactly, floats by tolerance, NaN as equal. Returns the GPU's result."""
    expected, actual = on_cpu(op, inputs, attrs), on_gpu(op, inputs, attrs, **more)
    wanted = (*expected.outputs, *expected.written)
    for place, (got, want) in enumerate(zip((*actual.outputs, *actual.written), wanted, strict=False)):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol, atol, err_msg=f"result {place}")
        else:
            np.testing.assert_array_equal(got, want, err_msg=f"result {place}")
    return actual


def same_everywhere(op: OpDef, inputs: Sequence[Array], attrs: Mapping[str, Any] | None = None) -> bool:
    """True if GPUs of other sizes, whose blocks and threads run in another order, give the same bits."""
    results = []
    for multiprocessors, backwards in ((4, False), (4, True), (1, False), (132, True)):
        with emulated_runtime(multiprocessors=multiprocessors, backwards=backwards) as runtime:
            got = on_gpu(op, inputs, attrs, runtime=runtime)
        results.append([array.tobytes() for array in (*got.outputs, *got.written)])
    return all(other == results[0] for other in results[1:])
