"""Launches, captures and memory that fail on a GPU, and a GPU that is lost: what is said and what is left."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import ResourceExhaustedError
from tensorbow.kernels.gpu.backend import GpuBackend
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import well
from tests.scheduler_rig.running import Prepared, engine_of, gpu_devices, within

pytestmark = needs_compiler


@contextmanager
def failing(kind: str, status: str, **how: Any) -> Iterator[tuple[Any, Any, EmulatedCuda]]:
    """An engine after three rounds whose GPU will fail in the next ones."""
    model, runtime = well(), EmulatedCuda()
    try:
        with engine_of(model, gpu_devices(runtime, 1), 2) as engine:
            engine.run(Prepared(model.batch, 2).open, 0, 3)
            engine.central_values()
            runtime.fail_next(kind, status, **how)
            yield engine, model, runtime
    finally:
        runtime.close()


def test_a_launch_that_fails_leaves_the_engine_usable() -> None:
    with failing("launch_graph", "cudaErrorLaunchOutOfResources") as (engine, model, _):
        with pytest.raises(CudaError, match=r"replica \d at step 3: .*cudaErrorLaunchOutOfResources"):
            within(lambda: engine.run(Prepared(model.batch, 2).open, 3, 6))
        within(lambda: engine.run(Prepared(model.batch, 2).open, 3, 6))


def test_a_lost_gpu_ends_the_run_and_says_which_values_survive() -> None:
    with failing("launch_graph", "cudaErrorIllegalAddress", sticky=True) as (engine, model, _):
        lost = r"stream /gpu:0 .*cudaErrorIllegalAddress.*; the last copy of .* on the host is of step 3$"
        with pytest.raises(CudaError, match=lost):
            within(lambda: engine.run(Prepared(model.batch, 2).open, 3, 40))
        with pytest.raises(CudaError, match="the last copy of the central model on the host is of step 3"):
            engine.central_values()
        round, values = engine.host_copy
        assert round == 3
        assert np.isfinite(values["w"]).all()


OUT_OF_MEMORY = "cudaErrorMemoryAllocation"


@pytest.mark.parametrize(
    ("kind", "first", "message"),
    [
        ("end_capture", 1, rf"step 1: no memory to capture a round: .*{OUT_OF_MEMORY}"),
        ("launch_graph", 3, rf"step 3: the graph of a round: .*{OUT_OF_MEMORY}"),
        ("launch", 0, rf"step 0: \w+: .*{OUT_OF_MEMORY}.* \(made at .*programs.py:\d+"),
    ],
)
@pytest.mark.sampled(1)
def test_memory_that_runs_out_names_what_asked_and_leaves_the_engine_usable(
    kind: str, first: int, message: str
) -> None:
    model = well()
    with emulated_runtime() as runtime:
        with engine_of(model, gpu_devices(runtime, 1), 2) as engine:
            engine.run(Prepared(model.batch, 2).open, 0, first)
            runtime.fail_next(kind, OUT_OF_MEMORY, after=int(kind == "launch"))  # the first is no op's
            with pytest.raises(ResourceExhaustedError, match=rf"replica \d at {message}"):
                within(lambda: engine.run(Prepared(model.batch, 2).open, first, first + 3))
            within(lambda: engine.run(Prepared(model.batch, 2).open, first, first + 3))
        gc.collect()  # the error held pinned memory


def test_a_segment_whose_capture_fails_is_launched_call_by_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model, runtime = well(), EmulatedCuda()
    monkeypatch.setattr(GpuBackend, "round_program", lambda *_: None)
    try:
        with engine_of(model, gpu_devices(runtime, 1), 2) as engine:
            runtime.fail_next("end_capture", "cudaErrorStreamCaptureInvalidated")
            within(lambda: engine.run(Prepared(model.batch, 2).open, 0, 4))  # then it runs call by call
            plans = [replica.binding.plan for replica in engine.learners.replicas]
            launches = [launch for plan in plans for number in range(2) for launch in plan.launches(number)]
            reasons = [launch.reason for launch in launches if launch.reason]
            assert len(reasons) == 1
            assert "cudaErrorStreamCaptureInvalidated" in reasons[0]
    finally:
        runtime.close()
