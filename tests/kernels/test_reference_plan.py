"""Bound plans of the reference backend: what a launch does, allocates, and says when it fails."""

import tracemalloc

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import Binding, VariableLayout, compile_step
from tensorbow.devices import get_device
from tensorbow.errors import InternalError, InvalidArgumentError, OutOfRangeError, ResourceExhaustedError
from tensorbow.kernels import backend_for, register_backend
from tensorbow.models import get_model
from tensorbow.program import Region
from tensorbow.runtime import Container
from tests.program_rig.poisoned import PoisonedStep, update_only

pytestmark = pytest.mark.usefixtures("graph")


def training_step(batch_size):
    images = tb.placeholder(tb.float32, [None, 28, 28, 1])
    labels = tb.placeholder(tb.int64, [None])
    outputs = get_model("lenet")(images, labels, classes=10)
    update = tb.train.MomentumOptimizer(0.01, 0.9, weight_decay=1e-4).minimize(outputs.loss)
    random = np.random.default_rng(0)
    feeds = {
        images: random.random((batch_size, 28, 28, 1), np.float32),
        labels: random.integers(0, 10, batch_size),
    }
    return [outputs.loss, outputs.metrics["accuracy"], update], feeds


@pytest.mark.slow
def test_a_step_allocates_no_tensor_memory():
    """A launch allocates only NumPy's loop buffers, 8192 elements whatever the size."""
    fetches, feeds = training_step(32)
    with PoisonedStep(fetches, feeds, rewriting=update_only, guard=fetches[0]) as step:
        plan = step.binding.plan
        step.binding.write({t.name: v for t, v in feeds.items()}, {})

        def launch():
            for segment in range(2):
                plan.launch(segment)

        launch()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            for _ in range(3):
                launch()
            after, peak = tracemalloc.get_traced_memory()
            numpy_blocks = tracemalloc.take_snapshot().filter_traces(
                [tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)]
            )
        finally:
            tracemalloc.stop()
        smallest_activation = 32 * 12 * 12 * 32 * 4
        assert peak - before < 2 * 8192 * 4 + 10_000 < smallest_activation / 4
        assert after - before < 5_000
        assert sum(trace.size for trace in numpy_blocks.traces) < 1_000


@pytest.mark.slow
def test_a_launch_gives_the_same_bits_each_time():
    fetches, feeds = training_step(4)
    with PoisonedStep(fetches[:2], feeds) as step:
        start = {
            name: np.random.default_rng(1).normal(size=r.shape) * 0.05
            for name, r in step.layout.refs().items()
        }
        step.container.load(start)
        first = step.run()
        assert all(np.array_equal(a, b) for a, b in zip(first, step.run(), strict=True))
        assert np.isfinite(first[0])


def failing(error):
    def fail(call):
        raise error

    return tb.define_op(
        "TestFailing",
        spec=lambda i, a: tb.TensorSpec(i[0].shape, i[0].dtype),
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=fail,
        replace=True,
    )


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OutOfRangeError("TestFailing: the end"), OutOfRangeError),
        (ZeroDivisionError("by\nzero"), InvalidArgumentError),
        (MemoryError(), ResourceExhaustedError),
    ],
)
def test_a_failing_kernel_names_op_and_line(error, raised):
    x = tb.placeholder(tb.float32, [2])
    y = failing(error)(x, name="bad")
    with PoisonedStep([y], {x: np.zeros(2, np.float32)}) as step, pytest.raises(raised) as caught:
        step.run()
    text = str(caught.value)
    named = "ZeroDivisionError: by zero" if isinstance(error, ZeroDivisionError) else ""
    assert text.startswith(f"TestFailing bad: {named}")
    assert text.count("TestFailing") == 1 + 'failing(error)(x, name="bad")'.count("TestFailing")
    assert 'y = failing(error)(x, name="bad")' in text
    assert "\n" not in text
    assert caught.value.__cause__ is error


def test_results_rotate_through_the_ring():
    x = tb.placeholder(tb.float32, [3])
    with PoisonedStep([x * 2.0], {x: np.zeros(3, np.float32)}) as step:
        plan = step.binding.plan
        for number in range(4):
            step.binding.write({x.name: np.full(3, number)}, {})
            plan.launch(0, number)
            if number:
                np.testing.assert_array_equal(
                    plan.fetch_arrays(number - 1)[0], np.full(3, 2.0 * (number - 1))
                )
        assert len(plan.fetch_arrays(0)) == 1


def test_feeds_and_copies_land_in_the_bound_memory():
    x = tb.placeholder(tb.float32, [2, 3])
    with PoisonedStep([tb.tanh(x)], {x: np.zeros((2, 3), np.float32)}) as step:
        ref = step.executable.inputs[x.name]
        view = step.device.view(step.binding.bases[Region.INPUT] + ref.offset, (2, 3), np.float32)
        step.binding.write({x.name: np.full((2, 3), 7.0, np.float32)}, {})
        np.testing.assert_array_equal(view, np.full((2, 3), 7.0))
        step.binding.plan.copy_in(x.name, np.full((2, 3), 8.0, np.float32))
        out = np.zeros((2, 3), np.float32)
        step.binding.plan.copy_out(ref, out)
        np.testing.assert_array_equal(out, view)
        np.testing.assert_array_equal(out, np.full((2, 3), 8.0))


@pytest.mark.usefixtures("reference_kernels")
def test_the_first_result_that_is_not_finite_is_named():
    x = tb.placeholder(tb.float32, [2])
    bad = tb.log(x - 1.0, name="bad")
    with PoisonedStep([tb.reduce_sum(tb.exp(bad))], {x: np.array([1.0, 3.0], np.float32)}) as step:
        step.run()
        assert step.binding.plan.find_nonfinite(0).startswith("Log bad (made at ")
        step.binding.write({x.name: np.array([2.0, 3.0])}, {})
        assert step.binding.plan.find_nonfinite(0) is None


def test_a_backend_is_found_by_the_devices_kind():
    device = get_device("/cpu:0")
    assert backend_for(device).kernel_kind == "cpu"

    class Strange:
        kind, compute = "strange", "fp32"

    with pytest.raises(InternalError, match="no backend is registered for strange devices"):
        backend_for(Strange())
    register_backend("strange", backend_for(device))
    assert backend_for(Strange()) is backend_for(device)


def test_memory_of_a_binding_that_fails_is_given_back():
    def refuse(call):
        raise RuntimeError("at bind time")

    op = tb.define_op(
        "TestRefuseToBind",
        spec=lambda i, a: i[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=tb.Kernel(prepare=refuse),
        replace=True,
    )
    x = tb.placeholder(tb.float32, [1000])
    y = op(x)
    device = get_device("/cpu:0")
    executable = compile_step([y], {x: x.spec}, VariableLayout([]), backend_for(device))
    group = device.stream_group("refused")
    try:
        container = Container(group)
        container.grow([])
        before = group.allocator.statistics().in_use_nbytes
        with pytest.raises(InvalidArgumentError, match=r"^TestRefuseToBind: RuntimeError: at bind.*test_ref"):
            Binding(executable, group, container.bases)
        assert group.allocator.statistics().in_use_nbytes == before
    finally:
        group.close()
