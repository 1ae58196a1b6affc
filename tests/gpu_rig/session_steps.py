"""Steps on an emulated GPU against the CPU, and the kernels that they launch."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorbow as tb
from tensorbow.devices import CpuDevice, Device, GpuDevice
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime

Build = Callable[[], list[Any]]  # builds a step in the default graph: what to fetch
KINDS = ("launch", "gemm", "convolution", "copy", "fill")


def launched_as_on_cpu(build: Build, *, rtol: float = 1e-5, nhwc: bool = True) -> Counter[str]:
    """Runs a step twice on both kinds of devices; returns what the GPU enqueued in one run.

    Asserts that the second run fetches the CPU's values and leaves its variables, up to `rtol` of the
    greatest element of each, and that blocks and threads in another order give the same bits.
    """
    expected, _ = _run(CpuDevice("/cpu:0"), build)
    results = []
    for backwards in (False, True):
        with (
            emulated_runtime(nhwc=nhwc, backwards=backwards) as runtime,
            GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27) as gpu,
        ):
            results.append(_run(gpu, build, runtime))
    (found, names), (again, _) = results
    assert [array.tobytes() for array in found] == [array.tobytes() for array in again]
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected, strict=True):
        assert got.dtype == wanted.dtype
        scale = np.abs(np.nan_to_num(wanted.astype(np.float64))).max(initial=1e-3)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=rtol * scale)
    return names


def _run(
    device: Device, build: Build, runtime: EmulatedCuda | None = None
) -> tuple[list[np.ndarray], Counter[str]]:
    graph, names = tb.Graph(), Counter[str]()
    with graph.as_default():
        tb.set_random_seed(7)
        fetched = build()
        with tb.Session(graph=graph, device=device) as session:
            session.run(tb.global_variables_initializer())
            if runtime is not None:
                runtime.log.clear()
            session.run(fetched)
            for call in runtime.log if runtime is not None else ():
                if call.kind in KINDS:
                    names[call.name if call.kind == "launch" else call.kind] += 1
            found = [value for value in session.run(fetched) if value is not None]
            found += session.run(tb.global_variables())
    gc.collect()
    return [np.asarray(value) for value in found], names
