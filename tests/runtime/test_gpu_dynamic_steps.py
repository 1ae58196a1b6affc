"""Dynamic steps on a GPU: loops with gradients, queues, conds, and values that stay there between regions.

An emulated one here; what takes `opened` runs in `tests/gpu` on the GPU of the machine.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import CpuDevice, Device, GpuDevice
from tensorbow.runtime import step_cache
from tensorbow.runtime.planned_runs import PlannedRuns
from tensorbow.timeline import Tracer
from tests.gpu_rig.counted import OpenedGpu
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler
SIDE = 72  # of matrices that are too large for the host's small regions
NBYTES = SIDE * SIDE * 4
Step = tuple[list[Any], dict[Any, Any]]


def matrix(seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(SIDE, SIDE)) * 0.1).astype(np.float32)


def slow(array: np.ndarray) -> np.ndarray:
    return array * np.float32(0.5)


def on_host(tensor: tb.Tensor) -> tb.Tensor:
    result = tb.py_func(slow, [tensor], tb.float32)
    result.set_shape(tensor.shape)
    return result


def loop_with_gradient() -> Step:
    x, count = tb.placeholder(tb.float32, [SIDE, SIDE]), tb.placeholder(tb.int32, [])
    w = tb.Variable(np.eye(SIDE, dtype=np.float32) * 1.1, name="w")
    h = tb.while_loop(lambda i, h: i < count, lambda i, h: (i + 1, tb.tanh(tb.matmul(h, w) + x)), [0, x])[1]
    loss = tb.reduce_sum(h * h)
    update = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
    return [loss, tb.gradients(loss, x)[0], update], {x: matrix(), count: 3}


def condition_on_data() -> Step:
    x = tb.placeholder(tb.float32, [SIDE, SIDE])
    grown = tb.while_loop(lambda a: tb.reduce_sum(a * a) < 1e4, lambda a: tb.matmul(a, a) + a + 1.0, [x])
    return [grown], {x: matrix(1)}


def queue_between_regions() -> Step:
    x = tb.placeholder(tb.float32, [SIDE, SIDE])
    queue = tb.FIFOQueue(4, [tb.float32], [[SIDE, SIDE]])
    with tb.control_dependencies([queue.enqueue([tb.matmul(x, x)])]):
        taken = queue.dequeue()
    w = tb.Variable(np.ones((SIDE, 3), np.float32), name="w")
    loss = tb.reduce_sum(tb.square(tb.matmul(taken, w)))
    return [loss, tb.train.GradientDescentOptimizer(1e-3).minimize(loss)], {x: matrix(2)}


def cond_with_a_function() -> Step:
    x = tb.placeholder(tb.float32, [SIDE, SIDE])
    w = tb.Variable(matrix(5), name="w")
    y = tb.matmul(x, w)
    taken = tb.cond(tb.reduce_sum(x) > 0.0, lambda: tb.matmul(y, w), lambda: on_host(y))
    other = tb.cond(tb.reduce_sum(x) < 0.0, lambda: tb.assign(w, x), lambda: on_host(y))
    total = tb.reduce_sum(tb.square(tb.matmul(taken, other)))
    return [total, tb.gradients(total, x)[0]], {x: matrix(3)}


def rows_of_data() -> Step:
    x = tb.placeholder(tb.float32, [SIDE, SIDE])
    w = tb.Variable(np.ones((SIDE, 3), np.float32), name="w")
    kept = tb.boolean_mask(tb.matmul(x, x), x[:, 0] > 0.0)
    loss = tb.reduce_sum(tb.square(tb.matmul(kept, w)))
    return [loss, tb.shape(kept), tb.gradients(loss, w)[0]], {x: matrix(4)}


def arrays_of_a_loop() -> Step:
    x, count = tb.placeholder(tb.float32, [SIDE, SIDE]), tb.placeholder(tb.int32, [])
    array = tb.TensorArray(tb.float32, count, element_shape=[SIDE, SIDE])
    body = lambda i, a: (i + 1, a.write(i, tb.tanh(x * tb.cast(i + 1, tb.float32))))  # noqa: E731
    rows = tb.while_loop(lambda i, a: i < count, body, [0, array])[1]
    total = tb.reduce_sum(tb.square(rows.read(1))) + tb.reduce_sum(rows.concat())
    return [total, tb.gradients(total, x)[0]], {x: matrix(6), count: 3}


def run_three_times(device: Device | str, build: Callable[[], Step], **options: Any) -> list[Any]:
    with tb.Graph().as_default():
        fetches, feeds = build()
        with tb.Session(device=device, **options) as session:
            session.run(tb.global_variables_initializer())
            assert session.explain(fetches, feeds).mode == "dynamic"
            results = [value for _ in range(3) for value in session.run(fetches, feeds)]
            return [value for value in (*results, *session.run(tb.global_variables())) if value is not None]


@contextmanager
def gpu_of(runtime: Any) -> Iterator[GpuDevice]:
    with GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27) as gpu:
        yield gpu
    gc.collect()


@pytest.mark.parametrize(
    "build",
    [
        loop_with_gradient,
        condition_on_data,
        queue_between_regions,
        cond_with_a_function,
        rows_of_data,
        arrays_of_a_loop,
    ],
)
@pytest.mark.sampled(2)
def test_the_values_are_those_of_the_cpu(opened: OpenedGpu, build: Callable[[], Step]) -> None:
    without = tb.ConfigProto(compiles_loops=False)
    with CpuDevice("/cpu:0") as cpu:
        expected = run_three_times(cpu, build, config=without)
    with opened() as runtime, gpu_of(runtime) as gpu:
        found = run_three_times(gpu, build)
        gc.collect()
    for value, wanted in zip(found, expected, strict=True):
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(value, wanted, rtol=0, atol=1e-4 * scale)


def copies(runtime: EmulatedCuda, way: str) -> list[int]:
    """Bytes of the copies of a kind that the log has."""
    words = [call.name.split() for call in runtime.log if call.kind == "copy"]
    return [int(nbytes) for kind, nbytes in words if kind == way]


@pytest.mark.parametrize("swaps", [False, True])
def test_values_of_a_loop_stay_on_the_gpu(swaps: bool) -> None:
    with tb.Graph().as_default(), emulated_runtime() as runtime, gpu_of(runtime) as gpu:
        x, count = tb.placeholder(tb.float32, [SIDE, SIDE]), tb.placeholder(tb.int32, [])
        h = tb.while_loop(
            lambda i, h: i < count, lambda i, h: (i + 1, tb.tanh(h) * x), [0, x], swap_memory=swaps
        )[1]
        total = tb.reduce_sum(h)
        (gradient,) = tb.gradients(total, x)
        with tb.Session(device=gpu) as session:
            counts = []
            for steps in (3, 5):
                session.run([total, gradient], {x: matrix(), count: steps})
                runtime.log.clear()
                session.run([total, gradient], {x: matrix(), count: steps})
                out, back = copies(runtime, "DEVICE_TO_HOST"), copies(runtime, "HOST_TO_DEVICE")
                assert copies(runtime, "DEVICE_TO_DEVICE").count(NBYTES) > 2 * steps
                counts.append((out.count(NBYTES), sum(nbytes >= NBYTES for nbytes in back)))
            more = [after - before for before, after in zip(*counts, strict=True)]
            assert counts[0][0] >= 1  # the gradient that is fetched
            assert (more[0] >= 2) is swaps  # what each iteration keeps for the gradient
            held = gpu.memory.held_nbytes
            session.run([total, gradient], {x: matrix(), count: 5})
            assert gpu.memory.held_nbytes == held  # blocks of earlier values are used again
            session.trim()
            assert gpu.memory.held_nbytes < held
        gc.collect()


def test_values_that_a_session_keeps_stay_on_the_gpu() -> None:
    with tb.Graph().as_default(), emulated_runtime() as runtime, gpu_of(runtime) as gpu:
        x = tb.placeholder(tb.float32, [SIDE, SIDE])
        kept = tb.get_session_handle(tb.matmul(x, x))
        with tb.Session(device=gpu) as session:
            handle = session.run(kept, {x: matrix()})
            holder, data = tb.get_session_tensor(handle, tb.float32)
            total = tb.reduce_sum(data * 2.0)
            wanted = 2 * np.sum(matrix() @ matrix())
            session.run(total, {holder: handle})
            runtime.log.clear()
            np.testing.assert_allclose(session.run(total, {holder: handle}), wanted, rtol=1e-3)
            assert NBYTES not in copies(runtime, "DEVICE_TO_HOST") + copies(runtime, "HOST_TO_DEVICE")
            assert NBYTES in copies(runtime, "DEVICE_TO_DEVICE")
            np.testing.assert_allclose(handle.eval(), matrix() @ matrix(), rtol=1e-4, atol=1e-5)
        gc.collect()


def test_a_trace_has_the_same_spans_whether_values_stay_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with tb.Graph().as_default(), emulated_runtime() as runtime, gpu_of(runtime) as gpu:
        fetches, feeds = loop_with_gradient()
        counted = []
        with tb.Session(device=gpu) as session:
            session.run(tb.global_variables_initializer())
            session.run(fetches, feeds)
            for stays in (True, False):
                if not stays:
                    monkeypatch.setattr(PlannedRuns, "keep_on_devices", lambda runs: None)
                runtime.log.clear()
                tracer = Tracer()
                tracer.start()
                session.run(fetches, feeds)
                tracer.stop()
                assert (copies(runtime, "DEVICE_TO_DEVICE").count(NBYTES) > 1) is stays
                counted.append(Counter((span.track.stream, span.name) for span in tracer.spans))
        assert counted[0] == counted[1]
        assert sum(counted[0].values()) > 2
        gc.collect()


@pytest.mark.parametrize(("share", "steps"), [(12 * NBYTES / (1 << 27), 12), (0.0, 2)])
def test_values_come_to_the_host_where_the_gpu_has_no_room(
    share: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_cache, "SHARE_OF_VALUES", share)
    with tb.Graph().as_default(), emulated_runtime() as runtime, gpu_of(runtime) as gpu:
        x, count = tb.placeholder(tb.float32, [SIDE, SIDE]), tb.placeholder(tb.int32, [])
        h = tb.while_loop(lambda i, h: i < count, lambda i, h: (i + 1, tb.tanh(h) * x), [0, x])[1]
        (gradient,) = tb.gradients(tb.reduce_sum(h), x)
        feeds = {x: matrix(), count: steps}
        with CpuDevice("/cpu:0") as cpu, tb.Session(device=cpu) as session:
            wanted = session.run(gradient, feeds)
        with tb.Session(device=gpu) as session:
            found = session.run(gradient, feeds)
        assert bool(copies(runtime, "DEVICE_TO_DEVICE").count(NBYTES)) is (share > 0)
        assert sum(copies(runtime, "DEVICE_TO_HOST")) > steps * NBYTES / 2
        gc.collect()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_steps_run_side_by_side_and_one_that_fails_leaves_nothing(opened: OpenedGpu) -> None:
    with tb.Graph().as_default(), opened() as runtime, gpu_of(runtime) as gpu:
        x, count = tb.placeholder(tb.float32, [SIDE, SIDE]), tb.placeholder(tb.int32, [])
        body = lambda i, h: (i + 1, tb.check_numerics(tb.tanh(h) * x, "grown"))  # noqa: E731
        total = tb.reduce_sum(tb.while_loop(lambda i, h: i < count, body, [0, x])[1])
        wrong: list[object] = []
        with tb.Session(device=gpu) as session:
            wanted = [session.run(total, {x: matrix(seed), count: 3}) for seed in range(3)]

            def work(seed: int) -> None:
                for _ in range(3):
                    found = session.run(total, {x: matrix(seed), count: 3})
                    if found != wanted[seed]:
                        wrong.append((seed, found))

            threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
            for thread in threads:
                thread.start()
            with pytest.raises(tb.errors.InvalidArgumentError, match=r"grown.*iteration 0 of loop 'while'"):
                session.run(total, {x: np.full((SIDE, SIDE), np.nan, np.float32), count: 3})
            for thread in threads:
                thread.join(60)
            assert not wrong
            assert session.run(total, {x: matrix(1), count: 3}) == wanted[1]
        gc.collect()


def test_regions_over_cpu_and_gpu_hand_on_what_the_gpu_has() -> None:
    with tb.Graph().as_default(), emulated_runtime() as runtime, gpu_of(runtime) as gpu:
        x = tb.placeholder(tb.float32, [SIDE, SIDE])
        with tb.device("/gpu:0"):
            first = tb.tanh(x) * x
        gate = tb.reduce_sum(on_host(tb.constant([1.0])))
        with tb.device("/gpu:0"):
            second = tb.tanh(first) * gate
        with tb.device("/cpu:0"):
            third = tb.reduce_sum(first) * gate
        with CpuDevice("/cpu:0") as cpu, tb.Session(device=cpu, devices=[gpu]) as session:
            for _ in range(2):
                runtime.log.clear()
                found = session.run([tb.reduce_sum(second), third], {x: matrix()})
            a = np.tanh(matrix()) * matrix()
            np.testing.assert_allclose(found, [(np.tanh(a) * 0.5).sum(), a.sum() * 0.5], rtol=1e-4)
            assert copies(runtime, "DEVICE_TO_DEVICE").count(NBYTES) >= 2
        gc.collect()
