"""Kernels on the emulated runtime: arguments, blocks, barriers, lanes, faults, and how they are compiled."""

from __future__ import annotations

import ctypes
import shutil
import time

import numpy as np
import pytest

from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.kernels.gpu.program import CudaSource
from tests.gpu_rig import cuda_compiler
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.rig_kernels import KERNELS, array, broken, launch
from tests.gpu_rig.runtimes import needs_compiler

pytestmark = needs_compiler


def test_arguments_are_read_before_launch_returns(runtime):
    runtime.delay = lambda: time.sleep(0.01)
    with GpuBench(runtime) as bench:
        x, y = array(bench, 4, values=[1, 2, 3, 4]), array(bench, 4)
        module = runtime.load_module(runtime.compile(KERNELS.text, "rig"))
        function = runtime.function(module, "scale")
        values = [ctypes.c_void_p(y.address), ctypes.c_void_p(x.address), ctypes.c_float(3), ctypes.c_int(4)]
        pointers = (ctypes.c_void_p * 4)(*[ctypes.addressof(v) for v in values])
        runtime.launch(function, (1, 1, 1), (32, 1, 1), 0, bench.stream, ctypes.addressof(pointers))
        for value in values:
            ctypes.memset(ctypes.addressof(value), 0, ctypes.sizeof(value))
        np.testing.assert_array_equal(bench.download(y), [3, 6, 9, 12])
        runtime.unload_module(module)
        with pytest.raises(CudaError, match="no function of a loaded module"):
            runtime.launch(function, (1, 1, 1), (32, 1, 1), 0, bench.stream, ctypes.addressof(pointers))


def test_arguments_of_all_sizes(bench):
    y = array(bench, dtype=np.float64)
    vector = np.array((1, 2, 3, 4), "f4,f4,f4,f4")
    launch(bench, "wide", 1, 1, y, vector, np.int64(2**40), np.bool_(True), np.uint8(200))
    assert bench.download(y) == 10 + 2**40 + 1 + 200


def test_a_sum_by_shuffles_and_shared_memory(bench):
    values = np.arange(1000, dtype=np.float32)
    x, y = array(bench, 1000, values=values), array(bench, 1)
    for block in (32, 64, 256, 1024):
        launch(bench, "total", 1, block, y, x, np.int32(1000))
        assert bench.download(y)[0] == values.sum()


def test_threads_meet_at_barriers_in_every_block(bench):
    y = array(bench, 2, 3, 64, dtype=np.int32)
    launch(bench, "reversed", 3, (16, 4), y, shared_nbytes=256)
    kept, first = bench.download(y)
    np.testing.assert_array_equal(kept, np.arange(64)[::-1] + 100 * np.arange(3)[:, None])
    assert (first == -1).all()  # shared memory holds garbage at first


def test_static_shared_memory_holds_garbage_at_first(bench):
    y = array(bench, 3, dtype=np.int32)
    launch(bench, "stale", 3, 1, y)
    assert (bench.download(y) == -1).all()


def test_what_lanes_see_of_each_other(bench):
    y = array(bench, 6, 64, dtype=np.int32)
    launch(bench, "lanes", 1, 40, y)
    down, up, broadcast, ballot, count, across = bench.download(y)[:, :40].astype(np.int64) & 0xFFFFFFFF
    t = np.arange(40)
    expected = np.where(t == 31, 31, t + 1)
    expected[39] = 0xFFFFFFFF  # there is no lane: undefined
    np.testing.assert_array_equal(down, expected)
    np.testing.assert_array_equal(up, np.where(t % 32 < 2, t, t - 2))
    np.testing.assert_array_equal(broadcast, t // 8 * 8 + 3)
    full, rest = (sum(1 << i for i in range(32) if n * 32 + i < 40 and (n * 32 + i) % 3 == 0) for n in (0, 1))
    np.testing.assert_array_equal(ballot, np.where(t < 32, full, rest))
    assert (count == 20).all()
    np.testing.assert_array_equal(across, np.where(t < 32, t ^ 8, 0xFFFFFFFF))


@pytest.mark.parametrize(("name", "line"), [("divergent", "__syncthreads"), ("two_lines", "__syncthreads")])
def test_waiting_in_vain_is_an_error(name, line):
    runtime, bench = broken()
    y = array(bench, 1, dtype=np.int32)
    launch(bench, name, 1, 64, y)
    with pytest.raises(CudaError, match=f"{name}: threads wait for each other in vain: thread 0 at {line}"):
        runtime.synchronize_stream(bench.stream)
    runtime.close()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", r"illegal access to memory at .* by thread \(3, 0, 0\) of block \(0, 0, 0\)"),
        ("divide", r"an integer was divided by zero .* by thread \(0, 0, 0\)"),
    ],
)
def test_a_kernel_that_faults_does_not_take_the_tests_with_it(name, words):
    for _ in range(2):
        runtime, bench = broken()
        y = array(bench, 1, dtype=np.int32, values=[0])
        launch(bench, name, 2, (4, 2), y)
        with pytest.raises(CudaError, match=f"kernel {name}: {words}") as caught:
            runtime.synchronize_stream(bench.stream)
        assert (caught.value.status, caught.value.sticky) == ("cudaErrorIllegalAddress", True)
        runtime.close()


def test_threads_that_have_ended_are_not_waited_for(bench):
    y = array(bench, 1, dtype=np.int32, values=[0])
    launch(bench, "early", 2, 64, y)
    assert bench.download(y)[0] == 80


def test_blocks_and_threads_run_backwards(runtime):
    with GpuBench(runtime) as bench:
        for backwards in (False, True):
            runtime.backwards = backwards
            y, following = array(bench, 6, dtype=np.int32), array(bench, 1, dtype=np.int32, values=[0])
            launch(bench, "order", 2, 3, y, following)
            np.testing.assert_array_equal(bench.download(y), np.arange(6)[:: -1 if backwards else 1])


def test_launches_that_no_gpu_takes(bench):
    y = array(bench, 1, dtype=np.int32)
    for grid, block in (((1, 65536, 1), 1), (1, (1, 1, 65)), (1, 1025)):
        with pytest.raises((CudaError, InvalidArgumentError, Exception), match=r"grid|too large"):
            launch(bench, "early", grid, block, y)
    with pytest.raises(CudaError, match="bytes of shared memory"):
        launch(bench, "reversed", 1, 1, y, shared_nbytes=50_000)


def test_a_source_that_does_not_compile(runtime):
    with pytest.raises(
        InvalidArgumentError, match=r"CUDA source bad does not compile(.|\n)*bad:3:.*nonsense"
    ):
        runtime.compile('\n\nextern "C" __global__ void f(int* y) { *y = nonsense; }', "bad")
    with pytest.raises(InvalidArgumentError, match="no `extern"):
        runtime.compile("__device__ int f() { return 1; }", "empty")
    module = runtime.load_module(runtime.compile(KERNELS.text, "rig"))
    with pytest.raises(NotFoundError, match=r"kernel missing: .*it has: scale, add_one"):
        runtime.function(module, "missing")


def test_atomics_on_floats_do_not_exist(runtime):
    with pytest.raises(InvalidArgumentError, match="atomicAdd"):
        runtime.compile('extern "C" __global__ void f(float* y) { atomicAdd(y, 1.0f); }', "sum")


def test_the_cache_folder_may_go_away(runtime, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOW_TEST_CACHE", str(tmp_path / "cache"))
    source = 'extern "C" __global__ void f(int* y) { *y = 41; }'
    binary = runtime.compile(source, "f")
    assert list((tmp_path / "cache").iterdir())
    shutil.rmtree(tmp_path / "cache")
    assert runtime.compile(source, "f") == binary
    with GpuBench(runtime) as bench:
        shutil.rmtree(tmp_path / "cache")
        y = array(bench, 1, dtype=np.int32)
        bench.context.launch(CudaSource("f", source), "f", 1, 1, y)()
        assert bench.download(y)[0] == 41


def test_a_cache_folder_that_cannot_be_made(runtime, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TENSORBOW_TEST_CACHE", str(tmp_path / "file" / "cache"))
    assert runtime.compile('extern "C" __global__ void f(int* y) { *y = 43; }', "f")


def test_what_was_compiled_is_taken_from_the_cache(runtime, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOW_TEST_CACHE", str(tmp_path))
    source = 'extern "C" __global__ void f(int* y) { *y = 42; }'
    binary = runtime.compile(source, "f")
    monkeypatch.setattr(cuda_compiler.subprocess, "run", None)
    assert runtime.compile(source, "f") == binary
