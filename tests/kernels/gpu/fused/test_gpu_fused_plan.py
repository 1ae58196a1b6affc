"""Steps of several replicas in one launch of each kernel, against a plan of each replica."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram, Synchronisation
from scheduler.averaging.synchronisers import UPDATE
from scheduler.replicas.learners import Learners
from tensorbow.devices import GpuDevice
from tensorbow.errors import UnimplementedError
from tensorbow.graph import Kernel
from tensorbow.kernels import backend_for
from tensorbow.kernels.gpu.backend import GpuBackend
from tensorbow.kernels.gpu.cupy_kernel import CupyKernel
from tensorbow.kernels.gpu.fused.plan import FusedPlan, why_not
from tensorbow.ops.definition import OPS
from tensorbow.program import Region
from tests.gpu_rig.counted import OpenedGpu
from tests.gpu_rig.fake_cupy import FakeCupy
from tests.gpu_rig.fused_steps import Trained, trained
from tests.gpu_rig.gpu_models import classifier
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model, convolutional, logistic

pytestmark = [needs_compiler, pytest.mark.usefixtures("ops_of_the_test")]


def both(
    opened: OpenedGpu, make: Callable[[], Model], replicas: int, rounds: int = 3, **options: Any
) -> tuple[Trained, Trained]:
    """Training by plans of replicas, and fused."""
    results = []
    for fused in (False, True):
        with opened() as runtime:
            results.append(trained(runtime, make(), replicas, rounds, fused=fused, **options))
    return results[0], results[1]


def assert_close(plain: Trained, fused: Trained, tolerance: float = 1e-5) -> None:
    for replica, (one, other) in enumerate(zip(plain.variables, fused.variables, strict=True)):
        for name, value in one.items():
            largest = max(np.abs(value).max(initial=0), 1e-3)
            error = np.abs(other[name] - value).max(initial=0) / largest
            assert error < tolerance, f"{name} of replica {replica}: {error}"
    for name, value in plain.central.items():
        np.testing.assert_allclose(fused.central[name], value, rtol=0, atol=tolerance * np.abs(value).max())
    for one_round, other_round in zip(plain.fetched, fused.fetched, strict=True):
        for one_replica, other_replica in zip(one_round, other_round, strict=True):
            for a, b in zip(one_replica, other_replica, strict=True):
                np.testing.assert_allclose(b, a, rtol=tolerance, atol=1e-6)


def residual() -> Model:
    """Batch norm, convolutions with strides and of one pixel, concat, a gather, pooling and RMSProp."""
    graph = tb.Graph()
    with graph.as_default():
        tb.set_random_seed(4)
        images = tb.placeholder(tb.float32, [None, 8, 7, 3], name="images")
        labels = tb.placeholder(tb.int64, [None], name="labels")
        hidden = tb.layers.conv2d(images, 8, 3, padding="same", use_bias=False, name="first")
        hidden = tb.nn.relu(tb.layers.batch_normalization(hidden, training=True, name="norm"))
        strided = tb.layers.conv2d(hidden, 6, 3, strides=2, padding="same", name="strided")
        pixels = tb.layers.conv2d(tb.nn.avg_pool(hidden, 2, 2, "SAME"), 6, 1, name="pixels")
        hidden = tb.reduce_mean(tb.concat([strided, pixels], 3), axis=[1, 2])
        table = tb.Variable(tb.truncated_normal([5, 4], seed=3), name="table")
        hidden = tb.concat([hidden, tb.nn.embedding_lookup(table, labels)], 1)
        logits = tb.layers.dense(hidden, 5, name="dense")
        losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tb.reduce_mean(losses)
        update = tb.train.RMSPropOptimizer(0.01, momentum=0.5).minimize(loss)
        update = tb.group(update, *tb.get_collection(tb.GraphKeys.UPDATE_OPS))
        program = StepProgram((images, labels), loss, update, {"losses": losses})

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        own = np.random.default_rng((23, round, replica))
        return own.normal(size=(3, 8, 7, 3)).astype(np.float32), own.integers(0, 5, size=3)

    shapes = [tb.TensorSpec((3, 8, 7, 3), tb.float32), tb.TensorSpec((3,), tb.int64)]
    return Model(program, shapes, program.initial_values(), batch)


MODELS: dict[str, Callable[[], Model]] = {
    "float64": logistic,
    "momentum": lambda: logistic(tb.float32),
    "dropout": lambda: convolutional(dropout=True),
    "batch norm": residual,
}


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("model", MODELS)
def test_fused_replicas_learn_what_plans_of_replicas_learn(opened: OpenedGpu, model, replicas) -> None:
    plain, fused = both(opened, MODELS[model], replicas)
    assert_close(plain, fused, 1e-12 if model == "float64" else 1e-5)
    if replicas > 1:  # each learned from its own batches
        first, second = fused.variables[:2]
        assert any((first[name] != second[name]).any() for name in first)


@pytest.mark.slow
def test_gradients_of_filters_in_parts_are_summed_in_the_workspaces(opened: OpenedGpu) -> None:
    """LeNet's first filter has 1152 windows, in two parts."""
    assert_close(*both(opened, lambda: classifier("lenet", batch_size=2), 2, rounds=1))


def clipped() -> Model:
    """Gradients of filters that are scaled before the update lie in memory that others use before."""
    graph = tb.Graph()
    with graph.as_default():
        tb.set_random_seed(4)
        images = tb.placeholder(tb.float32, [None, 8, 6, 3], name="images")
        hidden = tb.layers.conv2d(images, 8, 3, padding="same", name="first")
        hidden = tb.nn.relu(tb.layers.conv2d(hidden, 6, 3, strides=2, padding="same", name="second"))
        loss = tb.reduce_mean(tb.square(tb.layers.dense(tb.layers.flatten(hidden), 5, name="dense")))
        optimizer = tb.train.AdamWOptimizer(0.01, weight_decay=0.1)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        clipped, _ = tb.clip_by_global_norm(gradients, 0.1)
        update = optimizer.apply_gradients(zip(clipped, variables, strict=True))
        program = StepProgram((images,), loss, update)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        return (np.random.default_rng((29, round, replica)).normal(size=(3, 8, 6, 3)).astype(np.float32),)

    return Model(program, [tb.TensorSpec((3, 8, 6, 3), tb.float32)], program.initial_values(), batch)


@pytest.mark.slow
def test_clipped_gradients_of_filters(opened: OpenedGpu) -> None:
    assert_close(*both(opened, clipped, 2, rounds=2), 1e-4)


@pytest.mark.slow
def test_captured_replicas_convolve_in_bf16_as_fused_ones_do(opened: OpenedGpu) -> None:
    plain, fused = both(opened, residual, 2, rounds=1, compute="bf16")
    assert_close(plain, fused)
    assert plain.work["convolution"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["ssgd", "easgd", "none"])
def test_other_synchronisers(opened: OpenedGpu, sync) -> None:
    assert_close(*both(opened, lambda: logistic(tb.float32), 2, sync=sync))


@pytest.mark.slow
def test_the_same_bits_run_after_run_captured_or_not_in_any_order(opened: OpenedGpu) -> None:
    results = []
    for options in ({}, {}, {"captured": True}):
        with opened(backwards=len(results) == 1) as runtime:
            results.append(trained(runtime, residual(), 3, 2, fused=True, **options).bits)
    assert results[0] == results[1] == results[2]


def enqueued(model: Model, replicas: int, architecture: int = 80) -> dict[str, int]:
    """Kernels and products of the replicas' segments of a round, recorded by a capture that never runs."""
    with emulated_runtime(architecture=architecture) as runtime, GpuDevice("/gpu:0", runtime) as device:
        learners = Learners(
            model.program, model.shapes, [device], replicas, Synchronisation(), results=2, by_segment=True
        )
        group = device.stream_group("fused")
        backend = backend_for(device)
        assert isinstance(backend, GpuBackend)
        step = learners.replicas[0].step
        assert why_not(step) == ""
        plan = FusedPlan(
            step, [each.binding.bases for each in learners.replicas], group, backend.context_of(group)
        )
        before, stream = runtime.counts.copy(), backend.context_of(group).stream
        runtime.begin_capture(stream)
        for number in step.variants[UPDATE]:
            plan.enqueue(number)
        runtime.destroy_graph(runtime.end_capture(stream))
        counts = runtime.counts - before
        plan.close()
        learners.close()
        return {kind: counts[kind] for kind in ("launch", "gemm", "convolution", "copy", "fill")}


@pytest.mark.slow
def test_sixteen_replicas_take_as_many_kernels_as_one():
    one, many = (enqueued(classifier("lenet", batch_size=4), replicas) for replicas in (1, 16))
    assert one == many
    assert one["convolution"] == one["copy"] == one["fill"] == 0
    assert one["launch"] + one["gemm"] < 30


# What cannot be fused -------------------------------------------------------------------------------


def define(kernel: Any) -> Any:
    twice = tb.define_op(
        "Twice",
        inputs=("x",),
        spec=lambda inputs, attrs: inputs[0],
        kernel=lambda call: np.multiply(call.inputs[0], 2, out=call.outputs[0]),
        gradient=lambda op, g: [g * 2.0],
    )
    tb.register_kernel(twice, "gpu", kernel)
    return twice


def with_op(twice: Any) -> Model:
    """loss = mean((twice(x) w)^2)"""
    initial = {"w": np.ones((5, 3), np.float32)}
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [None, 5], name="x")
        w = tb.Variable(initial["w"], name="w")
        loss = tb.reduce_mean(tb.square(tb.matmul(twice(x), w)))
        update = tb.train.GradientDescentOptimizer(0.1).minimize(loss)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        return (np.random.default_rng((5, round, replica)).normal(size=(4, 5)).astype(np.float32),)

    return Model(StepProgram((x,), loss, update), [tb.TensorSpec((4, 5), tb.float32)], initial, batch)


TWICE = """
extern "C" __global__ void twice(const float* x, float* y, int count) {
    const int step = gridDim.z * blockDim.x;
    for (int i = blockIdx.z * blockDim.x + threadIdx.x; i < count; i += step) y[i] = 2 * x[i];
}
"""


@pytest.mark.slow
def test_users_kernels_are_fused_whatever_their_grid(opened: OpenedGpu) -> None:
    def make() -> Model:
        OPS.pop("Twice", None)
        kernel = tb.CudaKernel(
            TWICE, "twice", grid=lambda call: (1, 1, 3), block=2, scalars=lambda call: (call.inputs[0].size,)
        )
        return with_op(define(kernel))

    assert_close(*both(opened, make, 3))


def refused(model: Model) -> str:
    with emulated_runtime() as runtime, pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", FakeCupy(runtime))
        with pytest.raises(UnimplementedError) as error:
            trained(runtime, model, 2, 1, fused=True)
    return str(error.value)


def test_functions_over_cupy_arrays_are_refused():
    kernel = CupyKernel(lambda call: None, capturable=True)
    assert "cannot be fused: Twice" in (text := refused(with_op(define(kernel))))
    assert "a Python function over CuPy arrays works on one replica at a time" in text


def test_kernels_that_cannot_be_captured_are_refused():
    kernel = tb.CudaKernel(TWICE, "twice", capturable=False)
    assert "it was registered with capturable=False" in refused(with_op(define(kernel)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("before", "depth", "reason"),
    [
        ("", 40000, "80000 layers of blocks for 2 replicas: at most 65535"),
        (
            "__device__ unsigned int count;",
            1,
            r"no __device__ variables, .* got '__device__ unsigned int count'",
        ),
        (
            "static __global__ void other(float* x) {}",
            1,
            "rewritten for several replicas: .* does not compile",
        ),
    ],
)
def test_kernels_that_only_run_for_one_replica_are_refused(before: str, depth: int, reason: str):
    kernel = tb.CudaKernel(
        before + TWICE, "twice", grid=lambda call: (1, 1, depth), scalars=lambda call: (call.inputs[0].size,)
    )
    assert re.search(f"cannot be fused: Twice.*{reason}", refused(with_op(define(kernel))), re.DOTALL)


def test_kernels_that_reach_the_memory_by_themselves_are_refused():
    def by_copy(call: Any) -> Any:
        runtime, (x,), (y,) = call.context.runtime, call.inputs, call.outputs
        return lambda: runtime.copy(y.address, x.address, x.nbytes, 3, call.context.stream)

    text = refused(with_op(define(Kernel(prepare=lambda call: lambda: None))))
    assert "Twice" in text
    assert "fills its outputs without a launch of its context" in text

    OPS.pop("Twice")
    twice = define(Kernel(prepare=lambda call: by_copy(call) if call.context.runtime.copy else None))
    assert "it calls copy of the CUDA runtime itself" in refused(with_op(twice))


@pytest.mark.slow
def test_steps_that_write_shared_memory_or_receive_are_refused():
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime) as device:
        model = logistic(tb.float32)
        learners = Learners(
            model.program, model.shapes, [device], 2, Synchronisation(), results=2, by_segment=True
        )
        step = learners.replicas[0].step
        learners.close()
    segment, *others = step.segments
    z = replace(segment.groups[0].inputs[0], region=Region.CENTRAL)
    group = replace(segment.groups[0], writes=(z,))
    shared = replace(step, segments=(replace(segment, groups=(group,)), *others))
    assert "every replica writes CENTRAL, which they share" in why_not(shared)
    mail = replace(step, segments=(replace(segment, receives=("x",)), *others))
    assert "receives from other parts of the replica" in why_not(mail)
    assert why_not(step) == ""
