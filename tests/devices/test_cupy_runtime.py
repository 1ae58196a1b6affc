"""The runtime over CuPy, as far as it goes without a GPU: names, compiler, libraries, what errors become."""

from __future__ import annotations

import ctypes
import gc
import inspect
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tensorbow.devices import cuda_libraries, cupy_runtime
from tensorbow.devices.cuda_libraries import load_cuda_library
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.devices.cupy_runtime import (
    CupyRuntime,
    compile_with_nvrtc,
    gpu_count,
    nvrtc_identity,
    nvrtc_target,
)
from tensorbow.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError


@pytest.fixture
def cuda():
    return pytest.importorskip("cupy.cuda", reason="CuPy is not installed")


# With stand-ins for CuPy: what the class makes of answers and errors ------------------------------


class FakeError(RuntimeError):
    """Error with the attributes of CuPy's: the number, and a text that begins with the name."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


OUT_OF_MEMORY = FakeError(2, "cudaErrorMemoryAllocation: out of memory")
ILLEGAL = FakeError(700, "cudaErrorIllegalAddress: an illegal memory access was encountered")


class FakeBindings:
    """Answers calls from a table, raises the errors in it, and keeps a list of the calls."""

    CUDARuntimeError = CUDADriverError = FakeError
    hostAllocPortable, streamNonBlocking, eventBlockingSync, eventDisableTiming = 1, 1, 1, 2  # noqa: N815
    streamCaptureModeThreadLocal = 1  # noqa: N815

    def __init__(self):
        properties = {
            "name": b"GPU",
            "major": 8,
            "minor": 6,
            "multiProcessorCount": 10,
            "totalGlobalMem": 1 << 30,
            "sharedMemPerBlock": 49152,
        }
        self.answers = {"getDeviceCount": 2, "getDeviceProperties": properties, "memGetInfo": (5, 100)}
        self.calls = []
        self.current = threading.local()  # `context`: 0 in a thread that has made no GPU current

    def ctxGetCurrent(self):  # noqa: N802
        return getattr(self.current, "context", 0)

    def setDevice(self, index):  # noqa: N802
        self.calls.append(("setDevice", index))
        self.current.context = 1000 + index

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, *arguments))
            answer = self.answers.get(name, 77)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


@pytest.fixture
def bindings(monkeypatch):
    made = FakeBindings()
    monkeypatch.setattr(cupy_runtime, "_cuda", lambda: SimpleNamespace(runtime=made, driver=made))
    return made


def test_the_device_is_made_current_once_in_a_thread(bindings):
    first, second = CupyRuntime(0), CupyRuntime(1)
    assert first.properties.architecture == 86
    bindings.calls.clear()
    first.make_stream(-1)
    first.make_event()
    second.make_event(timing=True)
    assert bindings.calls == [
        *(("setDevice", 0), ("free", 0)),
        ("streamCreateWithPriority", 1, -1),
        ("eventCreateWithFlags", 3),
        *(("setDevice", 1), ("free", 0)),
        ("eventCreateWithFlags", 1),
    ]
    bindings.calls.clear()
    thread = threading.Thread(target=second.make_event)
    thread.start()
    thread.join()
    assert ("setDevice", 1) in bindings.calls


def test_looking_for_gpus_makes_no_context_and_none_current(bindings):
    assert [CupyRuntime(index).properties.name for index in range(gpu_count())] == ["GPU", "GPU"]
    assert {call[0] for call in bindings.calls} == {
        "getDeviceCount",
        "getDeviceProperties",
        "deviceGetPCIBusId",
    }
    assert bindings.ctxGetCurrent() == 0


def test_another_library_may_make_another_gpu_current(bindings):
    runtime = CupyRuntime(0)
    runtime.make_event()
    bindings.setDevice(1)
    bindings.calls.clear()
    runtime.make_event()
    assert bindings.calls == [("setDevice", 0), ("free", 0), ("eventCreateWithFlags", 3)]


def test_a_gpu_that_is_not_there(bindings):
    with pytest.raises(NotFoundError, match="GPU 2: CUDA sees 2 GPUs; see CUDA_VISIBLE_DEVICES"):
        CupyRuntime(2)
    bindings.answers["getDeviceCount"] = FakeError(
        100, "cudaErrorNoDevice: no CUDA-capable device is detected"
    )
    assert gpu_count() == 0
    with pytest.raises(NotFoundError, match="sees 0 GPUs"):
        CupyRuntime(0)


def test_memory_that_runs_out(bindings):
    runtime = CupyRuntime(0)
    bindings.answers |= {"malloc": OUT_OF_MEMORY, "hostAlloc": OUT_OF_MEMORY}
    for call in (runtime.allocate, runtime.allocate_pinned):
        with pytest.raises(
            ResourceExhaustedError, match=r"on GPU 0: 64 bytes asked, 5 of 100 bytes .* free; use fewer"
        ):
            call(64)
    bindings.answers |= dict.fromkeys(("launchKernel", "graphInstantiate", "graphLaunch"), OUT_OF_MEMORY)
    for call, what in (
        (
            lambda: runtime.launch(1, (1, 1, 1), (1, 1, 1), 0, 2, 3),
            "cuLaunchKernel .*: a kernel's local memory",
        ),
        (lambda: runtime.launch_graph(1, 2), "cudaGraphLaunch .*: a graph's launch"),
        (lambda: (runtime.begin_capture(2), runtime.end_capture(2)), "cudaGraphInstantiate .*: a graph"),
    ):
        with pytest.raises(ResourceExhaustedError, match=f"{what} asked, 5 of 100 bytes of the GPU are free"):
            call()
    bindings.answers["malloc"] = ILLEGAL
    with pytest.raises(CudaError, match="cudaMalloc: an illegal memory access"):
        runtime.allocate(64)


@pytest.mark.parametrize(
    ("error", "sticky"),
    [
        (ILLEGAL, True),
        (
            FakeError(46, "cudaErrorDevicesUnavailable: all devices are busy or unavailable"),
            True,
        ),
        (FakeError(1, "cudaErrorInvalidValue: bad"), False),
    ],
)
def test_errors_carry_status_and_whether_they_stay(bindings, error, sticky):
    runtime = CupyRuntime(0)
    bindings.answers["streamSynchronize"] = error
    with pytest.raises(CudaError, match=r"cudaStreamSynchronize: .* \(cudaError") as caught:
        runtime.synchronize_stream(3)
    assert (caught.value.status, caught.value.sticky) == (str(error).split(":")[0], sticky)


def test_an_events_query_is_a_status(bindings):
    runtime = CupyRuntime(0)
    for status, done in ((0, True), (600, False)):
        bindings.answers["eventQuery"] = status
        assert runtime.is_done(5) is done
    bindings.answers |= {"eventQuery": 700, "check_status": ILLEGAL}
    with pytest.raises(CudaError, match="illegal memory access"):
        runtime.is_done(5)


def test_a_copy_to_another_gpu_makes_it_reachable_once(bindings):
    runtime = CupyRuntime(0)
    already = FakeError(704, "cudaErrorPeerAccessAlreadyEnabled: peer access is already enabled")
    bindings.answers |= {"deviceCanAccessPeer": 1, "deviceEnablePeerAccess": already}  # by another library
    bindings.calls.clear()
    for _ in range(2):
        runtime.copy_to_peer(1, 10, 20, 30, 4)
    copy = ("memcpyPeerAsync", 10, 1, 20, 0, 30, 4)
    made = [call for call in bindings.calls if call[0] not in ("setDevice", "free")]
    assert made == [("deviceCanAccessPeer", 0, 1), ("deviceEnablePeerAccess", 1), copy, copy]


def test_a_gpu_out_of_reach_is_copied_to_all_the_same(bindings):
    runtime = CupyRuntime(0)
    bindings.answers |= {"deviceCanAccessPeer": 0}
    bindings.calls.clear()
    runtime.copy_to_peer(1, 10, 20, 30, 4)
    assert "deviceEnablePeerAccess" not in {call[0] for call in bindings.calls}
    assert bindings.calls[-1] == ("memcpyPeerAsync", 10, 1, 20, 0, 30, 4)


def test_a_missing_kernel(bindings):
    runtime = CupyRuntime(0)
    bindings.answers["moduleGetFunction"] = FakeError(500, "CUDA_ERROR_NOT_FOUND: named symbol not found")
    with pytest.raises(NotFoundError, match='kernel f: not in the module; declare it extern "C"'):
        runtime.function(1, "f")


def test_one_capture_at_a_time_with_collection_off(bindings):
    runtime, other = CupyRuntime(0), CupyRuntime(1)
    bindings.answers |= {"streamEndCapture": 10, "graphInstantiate": 20}
    runtime.begin_capture(4)
    assert not gc.isenabled()
    waiting = threading.Thread(target=lambda: (other.begin_capture(5), other.end_capture(5)))
    waiting.start()
    waiting.join(0.05)
    assert ("streamBeginCapture", 5, 1) not in bindings.calls
    assert runtime.end_capture(4) == 20
    waiting.join(5)
    assert ("streamBeginCapture", 5, 1) in bindings.calls
    assert ("graphDestroy", 10) in bindings.calls
    assert ("graphUpload", 20, 4) in bindings.calls
    assert gc.isenabled()


@pytest.mark.parametrize(
    "failing", ["streamBeginCapture", "streamEndCapture", "graphInstantiate", "graphUpload"]
)
def test_a_capture_that_fails_gives_its_turn_back(bindings, failing):
    runtime = CupyRuntime(0)
    bindings.answers |= {
        failing: FakeError(901, "cudaErrorStreamCaptureInvalidated: invalid"),
        "streamEndCapture": 10,
    }
    if failing == "streamEndCapture":
        bindings.answers[failing] = FakeError(901, "cudaErrorStreamCaptureInvalidated: invalid")
    with pytest.raises(CudaError, match="cudaErrorStreamCaptureInvalidated"):
        runtime.end_capture(4 if runtime.begin_capture(4) is None else 0)
    assert gc.isenabled()
    assert not cupy_runtime._capturing.locked()
    if failing == "graphUpload":
        assert ("graphExecDestroy", 77) in bindings.calls


# Without a GPU, with CuPy -------------------------------------------------------------------------


@pytest.mark.slow
def test_importing_the_product_loads_no_cupy():
    program = "import sys, tensorbow, tensorbow.devices.cupy_runtime; print('cupy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_cupy_has_every_function_with_as_many_arguments(cuda):
    """The calls in the source, against the signatures in CuPy's docstrings."""
    text = Path(inspect.getfile(cupy_runtime)).read_text()
    calls = re.findall(r"self\._(runtime|driver)\.(\w+)", text) + [
        ("runtime", n) for n in re.findall(r"[^_]runtime\.(\w+)", text)
    ]
    names = sorted({call for call in calls if not call[1].endswith("Error")})
    assert len(names) > 30
    for module, name in names:
        assert hasattr(getattr(cuda, module), name), f"{module}.{name}"
    counts = {"launchKernel": 11, "memcpyAsync": 5, "memsetAsync": 4, "streamWaitEvent": 3,
              "streamBeginCapture": 2, "memcpyPeerAsync": 6, "deviceCanAccessPeer": 2,
              "streamCreateWithPriority": 2, "hostAlloc": 2, "eventCreateWithFlags": 1, "eventElapsedTime": 2,
              "graphUpload": 2, "graphLaunch": 2, "moduleGetFunction": 2, "moduleLoadData": 1}  # fmt: skip
    for name, count in counts.items():
        function = getattr(cuda.runtime, name, None) or getattr(cuda.driver, name)
        signature = re.match(rf"{name}\((.*)\)", function.__doc__)
        assert signature is not None, name
        assert len(signature.group(1).split(",")) == count, signature.group(0)


def test_a_missing_driver_is_said(cuda):
    if cuda.runtime.driverGetVersion() > 0:
        pytest.skip("there is a driver")
    with pytest.raises(
        CudaError, match=r"getDeviceCount: .*driver.*cudaErrorInsufficientDriver|cudaErrorNoDevice"
    ) as caught:
        CupyRuntime(0)
    assert caught.value.status in ("cudaErrorInsufficientDriver", "cudaErrorNoDevice")


def test_a_missing_cupy_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy.cuda", None)
    cupy_runtime._cuda.cache_clear()
    with pytest.raises(NotFoundError, match=r"GPU devices need CuPy .*pip install 'tensorbow\[cuda12\]'"):
        gpu_count()
    cupy_runtime._cuda.cache_clear()


def test_what_nvrtc_compiles_for():
    supported = (75, 80, 86, 90, 100)
    assert [nvrtc_target(a, supported) for a in (80, 87, 90, 75)] == ["sm_80", "sm_86", "sm_90", "sm_75"]
    assert nvrtc_target(120, supported) == "compute_100"
    with pytest.raises(NotFoundError, match=r"from 7\.5 on, the GPU has 6\.1; install an older CuPy"):
        nvrtc_target(61, supported)


def test_nvrtc_compiles_and_says_why_not(cuda):
    source = 'extern "C" __global__ void f(float* y) { *y = 1; }'
    for architecture in (80, 90):
        assert compile_with_nvrtc(source, "f", architecture).startswith(b"\x7fELF")
    assert b".target" in compile_with_nvrtc(source, "f", 990)
    assert re.fullmatch(r"nvrtc \d+\.\d+ -arch=sm_90 -std=c\+\+17", nvrtc_identity(90))
    with pytest.raises(
        InvalidArgumentError, match=r"CUDA source g does not compile(.|\n)*g\(2\): error(.|\n)*nonsense"
    ):
        compile_with_nvrtc("\n__device__ int f() { return nonsense; }", "g", 80)


def test_libraries_load_without_a_driver(cuda):
    blas, dnn = load_cuda_library("cublas"), load_cuda_library("cudnn")
    assert hasattr(blas, "cublasSgemm_v2")
    dnn.cudnnGetVersion.restype = ctypes.c_size_t
    assert dnn.cudnnGetVersion() > 90000
    for name in ("cublas", "cudnn"):
        assert Path(cuda_libraries._wheel_library(name)).exists()


def test_libraries_that_are_not_there():
    with pytest.raises(NotFoundError, match="expected one of cublas, cudnn"):
        load_cuda_library("cufft")
    with pytest.raises(NotFoundError, match="CUDA library nothing is not installed: pip install"):
        cuda_libraries._wheel_library("nothing")
