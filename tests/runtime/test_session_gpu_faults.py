"""Sessions on a GPU without memory left, whose calls fail, or that is lost: what is said and still works."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import GpuDevice
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import ResourceExhaustedError
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler
LIMIT_NBYTES = 32 << 20


@pytest.fixture
def runtime() -> Iterator[EmulatedCuda]:
    with emulated_runtime() as opened:
        yield opened
        gc.collect()  # errors hold pinned memory


def product() -> tuple[tb.Graph, tb.Tensor, tb.Tensor]:
    """A square matrix of any size, and the sum of its product with itself."""
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [None, None], name="x")
        return graph, x, tb.reduce_sum(tb.matmul(tb.exp(x), x, name="squared"), name="total")


@pytest.mark.slow
def test_a_plan_that_does_not_fit_names_what_asked_and_what_is_free(runtime: EmulatedCuda) -> None:
    graph, x, y = product()
    with (
        GpuDevice("/gpu:0", runtime, limit_nbytes=LIMIT_NBYTES) as device,
        tb.Session(graph=graph, device=device) as session,
    ):
        small, large = np.ones((64, 64), np.float32), np.ones((2000, 2000), np.float32)
        expected = np.e * 64**3
        assert session.run(y, {x: small}) == pytest.approx(expected, rel=1e-5)
        held = device.memory.held_nbytes
        for _ in range(2):
            asked = r"steps needs 48\d{6} bytes for slab, .*'/gpu:0 .*limit 32.0 MiB.* largest free block"
            with pytest.raises(ResourceExhaustedError, match=asked):
                session.run(y, {x: large})
            gc.collect()
            assert device.memory.held_nbytes <= held
        assert session.run(y, {x: small}) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "status", "error", "message"),
    [
        ("launch", "cudaErrorLaunchOutOfResources", CudaError, r"Exp\w*: .*cudaErrorLaunchOutOfResources"),
        ("launch", "cudaErrorMemoryAllocation", ResourceExhaustedError, r"Exp\w*: .*MemoryAllocation"),
        ("copy", "cudaErrorInvalidValue", CudaError, "copy: cudaErrorInvalidValue"),
    ],
)
@pytest.mark.sampled(2)
def test_a_call_that_fails_names_the_op_and_the_session_goes_on(
    runtime: EmulatedCuda, kind: str, status: str, error: type[Exception], message: str
) -> None:
    graph, x, y = product()
    value = np.ones((8, 8), np.float32)
    with GpuDevice("/gpu:0", runtime) as device, tb.Session(graph=graph, device=device) as session:
        session.run(y, {x: np.ones((4, 4), np.float32)})  # compiles
        runtime.fail_next(kind, status)
        with pytest.raises(error, match=message) as caught:
            session.run(y, {x: value})
        if kind == "launch":
            assert "test_session_gpu_faults.py" in str(caught.value)  # the user's line
        del caught
        for _ in range(3):
            assert session.run(y, {x: value}) == pytest.approx(np.e * 8**3, rel=1e-5)


def test_a_lost_gpu_fails_every_run_from_then_on_and_the_session_closes() -> None:
    graph, x, y = product()
    runtime = EmulatedCuda()
    try:
        with GpuDevice("/gpu:0", runtime) as device, tb.Session(graph=graph, device=device) as session:
            value = np.ones((8, 8), np.float32)
            session.run(y, {x: value})
            runtime.fail_next("launch_graph", "cudaErrorIllegalAddress", sticky=True)
            for where in (r"stream /gpu:0 session-\d.*", ""):
                with pytest.raises(CudaError, match=f"{where}cudaErrorIllegalAddress") as caught:
                    session.run(y, {x: value})
                assert caught.value.sticky
        with tb.Session(graph=graph, device="/cpu:0") as session:  # the process goes on without it
            assert session.run(y, {x: value}) == pytest.approx(np.e * 8**3, rel=1e-5)
    finally:
        runtime.close()
