"""`explain` of steps on a GPU: CUDA graphs, what is launched by itself and why, fused and merged calls."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import CpuDevice, GpuDevice
from tensorbow.graph import Kernel
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import needs_compiler

pytestmark = [needs_compiler, pytest.mark.usefixtures("ops_of_the_test")]


@pytest.fixture
def gpu(runtime: EmulatedCuda) -> Iterator[GpuDevice]:
    with GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27) as device:
        yield device
        gc.collect()  # errors hold plans


def training() -> tuple[tb.Graph, dict[tb.Tensor, object], list[object], tb.Operation]:
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [4, 3], name="x")
        w = tb.Variable(np.ones((3, 2), np.float32), name="w")
        b = tb.Variable(np.ones(2, np.float32), name="b")
        c = tb.Variable(np.ones(2, np.float32), name="c")
        y = tb.tanh(tb.matmul(x, w) + b, name="y") * tb.exp(c, name="e")
        loss = tb.reduce_mean(tb.square(y), name="loss")
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        return graph, {x: np.ones((4, 3))}, [loss, update], tb.global_variables_initializer()


@pytest.mark.slow
def test_one_graph_with_fused_and_merged_calls(gpu: GpuDevice) -> None:
    graph, feeds, fetches, initializer = training()
    with tb.Session(graph=graph, device=gpu) as session:
        explanation = session.explain(fetches, feeds)
        session.run(initializer)
        for _ in range(3):
            session.run(fetches, feeds)
        again = session.explain(fetches, feeds)
    text = str(explanation)
    assert text == str(again)  # it was true before it ran
    (launch,) = explanation.launches[0]
    assert not launch.reason
    assert f"segment step: {len(launch.groups)} kernel calls\n" in text
    assert f"\n  calls 0 to {len(launch.groups) - 1} captured as one CUDA graph\n" in text
    assert "3 updates in one pass: " in text
    assert "fused with" in text
    assert "\nworkspace: 8,388,608 bytes for libraries, one after the other\n" in text
    with tb.Session(graph=graph) as session:
        on_cpu = str(session.explain(fetches, feeds))
    assert "workspace" not in on_cpu
    assert "captured" not in on_cpu


@pytest.mark.slow
def test_what_cannot_be_captured_says_why(runtime: EmulatedCuda, gpu: GpuDevice) -> None:
    op = tb.define_op(
        "Doubled",
        inputs=("x",),
        spec=lambda inputs, attrs: inputs[0],
        kernel=lambda call: np.add(call.inputs[0], call.inputs[0], out=call.outputs[0]),
        gradient=tb.NOT_DIFFERENTIABLE,
    )
    source = """extern "C" __global__ void doubled(const float* x, float* y, int count) {
        TB_FOR_EACH(int, i, count) y[i] = x[i] + x[i];
    }"""
    tb.register_kernel(op, "gpu", tb.CudaKernel(source, "doubled", capturable=False))
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [4, 3], name="x")
        y = tb.reduce_sum(op(op(tb.matmul(x, x, transpose_b=True), name="one"), name="two"), name="sum")
    with tb.Session(graph=graph, device=gpu) as session:
        for _ in range(3):
            assert session.run(y, {x: np.ones((4, 3))}) == 16 * 3 * 4
        text = str(session.explain(y, {x: np.ones((4, 3))}))
        plain = op.kernels["gpu"]
        tb.register_kernel(op, "gpu", Kernel(prepare=plain.prepare, capturable=False))
        with graph.as_default():
            z = tb.exp(y)
        plain_text = str(session.explain(z, {x: np.ones((4, 3))}))
    why = "it was registered with capturable=False"
    assert (
        f"""segment step: 4 kernel calls
  call 0 captured as one CUDA graph
  call 1 launched by itself: Doubled one: {why}
  call 2 launched by itself: Doubled two: {why}
  call 3 captured as one CUDA graph
"""
        in text
    )
    assert runtime.counts["launch_graph"] == 4
    assert "by itself: Doubled one: its kernel cannot be captured\n" in plain_text


@pytest.mark.slow
def test_a_capture_that_failed_is_shown(runtime: EmulatedCuda, gpu: GpuDevice) -> None:
    graph, feeds, fetches, initializer = training()
    with tb.Session(graph=graph, device=gpu) as session:
        session.run(initializer)
        session.run(fetches, feeds)
        runtime.fail_next("end_capture", "cudaErrorStreamCaptureInvalidated")
        session.run(fetches, feeds)
        text = str(session.explain(fetches, feeds))
    assert "launched one by one: its capture failed: " in text
    assert "cudaErrorStreamCaptureInvalidated" in text
    assert "captured as one" not in text


def test_the_parts_of_a_step_over_several_devices(gpu: GpuDevice) -> None:
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [3, 3], name="x")
        with tb.device("/cpu:5"):
            near = tb.tanh(x)
        y = tb.reduce_sum(tb.matmul(near, near))
    with (
        CpuDevice("/cpu:5") as cpu,
        tb.Session(graph=graph, device=gpu, devices=[cpu]) as session,
    ):
        explanation = session.explain(y, {x: np.ones((3, 3))})
    text = str(explanation.parts["/device:GPU:0"])
    assert "captured as one CUDA graph" in text
    assert "workspace: " in text
    assert "captured" not in str(explanation.parts["/device:CPU:5"])
    assert text in str(explanation)
