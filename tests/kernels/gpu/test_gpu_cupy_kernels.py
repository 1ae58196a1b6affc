"""Kernels as Python functions over CuPy arrays: on the emulated GPU a stand-in for CuPy takes its part."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from allocators import BestFitAllocator, VirtualSource
from scheduler import StepProgram
from tensorbow.devices import GpuDevice
from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from tensorbow.kernels.gpu.cupy_kernel import CupyAllocator
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.fake_cupy import FakeCupy
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of

pytestmark = [needs_compiler, pytest.mark.usefixtures("ops_of_the_test")]


@pytest.fixture
def runtime() -> Iterator[EmulatedCuda]:
    rng = random.Random(0)
    with emulated_runtime(delay=lambda: time.sleep(rng.random() * 1e-4)) as opened:
        yield opened


@pytest.fixture
def cupy(runtime: EmulatedCuda, monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    """Stands in for CuPy, whether that is installed or not."""
    fake = FakeCupy(runtime)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


@pytest.fixture
def gpu(runtime: EmulatedCuda) -> Iterator[GpuDevice]:
    with GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 26) as device:
        yield device
        gc.collect()  # errors hold plans
        assert device.memory.held_nbytes == 0


def define(function: Callable[[Any], object], **options: Any) -> Any:
    """x^4 + scale, with a CuPy function on GPUs."""
    op = tb.define_op(
        "Fourth",
        inputs=("x",),
        attrs={"scale": 1.0},
        spec=lambda inputs, attrs: inputs[0],
        kernel=lambda call: np.add(call.inputs[0] ** 4, call.attrs["scale"], out=call.outputs[0]),
        gradient=lambda op, g: [g * 4.0 * op.inputs[0] * tb.square(op.inputs[0])],
    )
    tb.register_kernel(op, "gpu", tb.CupyKernel(function, **options))
    return op


def step(op: Any) -> tuple[tb.Graph, tb.Tensor, list[tb.Tensor]]:
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [None, 5], name="x")
        y = op(tb.tanh(x), scale=2.5, name="fourth")
        loss = tb.reduce_sum(tb.square(y))
        return graph, x, [loss, *tb.gradients(loss, [x])]


def with_temporaries(cupy: FakeCupy) -> Callable[[Any], object]:
    def fourth(call: Any) -> None:
        (x,), (y,) = call.inputs, call.outputs
        square = cupy.multiply(x, x)
        fourth = cupy.multiply(square, square)
        cupy.add(fourth, np.float32(call.attrs["scale"]), out=y)

    return fourth


@pytest.mark.slow
def test_a_function_runs_in_a_plan_with_memory_of_the_partition(
    runtime: EmulatedCuda, cupy: FakeCupy, gpu: GpuDevice
) -> None:
    graph, x, results = step(define(with_temporaries(cupy)))
    rng = np.random.default_rng(4)
    values = [rng.normal(size=(6, 5)).astype(np.float32) for _ in range(5)]
    with tb.Session(graph=graph, device="/cpu:0") as session:
        wanted = [session.run(results, {x: value}) for value in values]
    with tb.Session(graph=graph, device=gpu) as session:
        found = [session.run(results, {x: value}) for value in values]
        (group,) = [g for g in session._cache.groups if g.allocator.owns(cupy.addresses[0])]
        assert all(group.allocator.owns(address) for address in cupy.addresses)
        assert not [h for h in group.allocator.holders() if "CuPy" in h.owner]  # all given back
        text = str(session.explain(results, {x: values[0]}))
    for mine, theirs in zip(found, wanted, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert cupy.allocated == [120, 120] * 5
    assert len(set(cupy.addresses)) == 2  # the same two blocks, without waiting in between
    assert runtime.counts["launch_graph"] == 2 * 4  # before it and after it
    lines = [line.strip() for line in text.splitlines()]
    place = next(number for number, line in enumerate(lines) if " launched by itself: " in line)
    assert lines[place].startswith("call 1 launched by itself: Fourth fourth: a Python function over CuPy")
    assert lines[place - 1] == "call 0 captured as one CUDA graph"
    assert lines[place + 1].endswith("captured as one CUDA graph")


@pytest.mark.slow
def test_replicas_train_with_it_each_in_its_own_partition(runtime: EmulatedCuda, cupy: FakeCupy) -> None:
    op = define(with_temporaries(cupy))
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [4, 5], name="x")
        w = tb.Variable(np.full((5, 3), 0.1, np.float32), name="w")
        loss = tb.reduce_mean(tb.square(op(tb.matmul(x, w), scale=-1.0)))
        update = tb.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    model = Model(
        StepProgram((x,), loss, update, {}),
        [tb.TensorSpec((4, 5), tb.float32)],
        {"w": np.full((5, 3), 0.1, np.float32)},
        lambda t, i: (np.random.default_rng((t, i)).normal(size=(4, 5)).astype(np.float32),),
    )
    values = []
    for devices in (cpu_devices(1), [GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27)]):
        with engine_of(model, devices, 2, tb.train.Constant(0.01)) as engine:
            engine.run(Prepared(model.batch, 2).open, 0, 8)
            values.append(engine.central_values()["w"])
            allocators = [replica.group.allocator for replica in engine.learners.replicas]
            owners = [[a.owns(address) for a in allocators] for address in cupy.addresses]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-5)
    assert sorted(map(tuple, owners)) == [(False, True)] * 16 + [(True, False)] * 16


def test_one_that_is_capturable_is_part_of_the_graph(
    runtime: EmulatedCuda, cupy: FakeCupy, gpu: GpuDevice
) -> None:
    calls: list[Any] = []

    def fourth(call: Any) -> Any:
        calls.append(call)
        (x,), (y,), (square,) = call.inputs, call.outputs, call.scratch
        cupy.multiply(x, x, out=square)
        cupy.multiply(square, square, out=y)
        return cupy.add(y, 2.5, out=y)

    graph, x, results = step(define(fourth, capturable=True, scratch=lambda node: [node.outputs[0]]))
    value = np.random.default_rng(4).normal(size=(6, 5)).astype(np.float32)
    with tb.Session(graph=graph, device=gpu) as session:
        found = [session.run(results, {x: value * (1 + turn)}) for turn in range(4)]
        assert "by itself" not in str(session.explain(results, {x: value}))
    with tb.Session(graph=graph, device="/cpu:0") as session:
        for turn, mine in enumerate(found):
            for a, b in zip(mine, session.run(results, {x: value * (1 + turn)}), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert len(calls) == 2  # the first time, and for the capture
    assert runtime.counts["launch_graph"] == 3
    assert not cupy.allocated


def test_a_capturable_one_must_not_take_memory(cupy: FakeCupy, gpu: GpuDevice) -> None:
    graph, x, results = step(define(with_temporaries(cupy), capturable=True))
    failing = pytest.raises(
        FailedPreconditionError, match=r"fourth.*asked for 60 bytes.*call.scratch by out="
    )
    with tb.Session(graph=graph, device=gpu) as session, failing:
        session.run(results, {x: np.ones((3, 5))})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("wrong", [lambda array: 3.5, lambda array: array])
def test_results_are_written_not_returned(cupy: FakeCupy, gpu: GpuDevice, wrong: Any) -> None:
    graph, x, results = step(define(lambda call: wrong(cupy.multiply(call.inputs[0], 2.0))))
    failing = pytest.raises(
        InvalidArgumentError, match=r"fourth.* returned .*; expected None: a kernel writes"
    )
    with tb.Session(graph=graph, device=gpu) as session, failing:
        session.run(results, {x: np.ones((3, 5))})


def test_errors_of_the_function_name_the_op_and_the_line(cupy: FakeCupy, gpu: GpuDevice) -> None:
    graph, x, results = step(define(lambda call: {}["nothing"]))
    failing = pytest.raises(Exception, match=r"fourth.*nothing.*test_gpu_cupy_kernels\.py")
    with tb.Session(graph=graph, device=gpu) as session, failing:
        session.run(results, {x: np.ones((3, 5))})


def test_memory_that_is_not_there_is_accounted_for(cupy: FakeCupy, gpu: GpuDevice) -> None:
    def greedy(call: Any) -> None:
        cupy.ndarray((1 << 25,), np.float32)

    graph, x, results = step(define(greedy))
    failing = pytest.raises(ResourceExhaustedError, match=r"fourth(.|\n)*128.0 MiB")
    with tb.Session(graph=graph, device=gpu) as session, failing:
        session.run(results, {x: np.ones((3, 5))})


def test_an_op_that_must_be_skipped_is_refused(runtime: EmulatedCuda, cupy: FakeCupy) -> None:
    op = define(lambda call: None)
    with GpuBench(runtime) as bench, pytest.raises(InvalidArgumentError, match="write it as a CudaKernel"):
        BoundGpuCall(bench, op, [np.ones(3, np.float32)], status=0)


def test_without_cupy_it_says_what_to_install(gpu: GpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    graph, x, results = step(define(lambda call: None))
    failing = pytest.raises(NotFoundError, match=r"fourth.*pip install 'tensorbow\[cuda12\]'")
    with tb.Session(graph=graph, device=gpu) as session, failing:
        session.run(results, {x: np.ones((3, 5))})


def test_a_kernel_is_a_function() -> None:
    with pytest.raises(InvalidArgumentError, match="expected a function of the call, got 'text'"):
        tb.CupyKernel("text")  # type: ignore[arg-type]


def test_blocks_of_cupy_itself_come_and_go_with_its_arrays() -> None:
    """Uses CuPy itself, on made-up addresses, without a GPU."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    allocator = BestFitAllocator(VirtualSource(), name="replica")
    with cupy.cuda.using_allocator(CupyAllocator(allocator, 0, "a CuPy kernel")):
        a = cupy.ndarray((30, 10), np.float32)
        view, empty = a[3:], cupy.ndarray((0, 3), np.float32)
        b = cupy.ndarray((7,), np.int64)
    assert a.data.device_id == 0
    assert empty.data.ptr == 0
    assert allocator.owns(a.data.ptr)
    assert allocator.statistics().in_use_nbytes == 1280 + 256
    assert {holder.owner for holder in allocator.holders()} == {"a CuPy kernel"}
    place = a.data.ptr
    del a
    assert allocator.statistics().in_use_nbytes == 1280 + 256  # a view holds it
    del view
    assert allocator.statistics().in_use_nbytes == 256
    with cupy.cuda.using_allocator(CupyAllocator(allocator, 0, "a CuPy kernel")):
        again = cupy.ndarray((300,), np.float32)
    assert again.data.ptr == place
    allocator.close(discard=True)
    del again, b  # late: nothing happens
