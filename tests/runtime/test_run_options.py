"""Time limits of runs, and the times of their ops."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import DeadlineExceededError

started, go_on = threading.Event(), threading.Event()


def _held(call) -> None:
    started.set()
    assert go_on.wait(30)
    np.copyto(call.outputs[0], call.inputs[0])


Held = tb.define_op(
    "TestHeldUntilToldSo",
    spec=lambda inputs, attrs: inputs[0],
    gradient=tb.NOT_DIFFERENTIABLE,
    inputs=("x",),
    kernel=_held,
    stateful=True,
)


@pytest.fixture(autouse=True)
def graph():
    started.clear()
    go_on.clear()
    with tb.Graph().as_default() as graph:
        yield graph


def go_on_after_the_limit():
    """Ends the op 450 ms after it began, which is after the run's clock began."""
    assert started.wait(30)
    time.sleep(0.45)
    go_on.set()


@pytest.mark.slow
@pytest.mark.parametrize("devices", [("/cpu:0",), ("/cpu:0", "/cpu:1")])
def test_a_run_past_its_limit_ends_after_the_op_that_it_is_in(devices):
    w = tb.Variable(np.float32(1.0))
    slow = Held(w + 1.0, name="slow")
    with tb.control_dependencies([slow]), tb.device(devices[-1]):
        late = tb.identity(w.assign(5.0) if len(devices) == 1 else tb.constant(np.ones(3, np.float32)) * slow)
    options = tb.RunOptions(timeout_in_ms=400)  # `slow` is reached long before
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        release = threading.Thread(target=go_on_after_the_limit)
        release.start()
        said = ("slow.* " if len(devices) == 1 else "") + "longer than timeout_in_ms=400"
        with pytest.raises(DeadlineExceededError, match=said):
            session.run(late, options=options)
        started.set()  # on two busy devices the limit may pass before the op begins
        release.join()
        assert session.run(w) == 1
        session.run(late, options=tb.RunOptions(timeout_in_ms=60_000))
        assert session.run(w) == (5 if len(devices) == 1 else 1)


def test_a_run_that_waits_for_another_gives_up_at_its_limit():
    w = tb.Variable(np.float32(1.0))
    writes = w.assign(Held(w + 1.0))
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        thread = threading.Thread(target=session.run, args=(writes,))
        thread.start()
        assert started.wait(30)
        with pytest.raises(DeadlineExceededError, match="is given up"):
            session.run(w, options=tb.RunOptions(timeout_in_ms=20))
        go_on.set()
        thread.join()
        assert session.run(w, options=tb.RunOptions(timeout_in_ms=60_000)) == 2


@pytest.mark.parametrize("devices", [("/cpu:0",), ("/cpu:0", "/cpu:1")])
def test_metadata_has_the_times_of_the_ops(devices):
    x = tb.placeholder(tb.float32, [None, 3])
    product = tb.matmul(x, tb.ones([3, 2]), name="product")
    with tb.device(devices[-1]):
        total = tb.reduce_sum(tb.tanh(product), name="total")
    metadata = tb.RunMetadata()
    before = time.time() * 1e6
    with tb.Session() as session:
        feeds = {x: np.ones((4, 3))}
        plain = session.run(total, feeds)
        options = tb.RunOptions(trace_level=tb.RunOptions.FULL_TRACE)
        assert session.run(total, feeds, options, metadata) == plain
    stats = metadata.step_stats.dev_stats
    assert [device.device for device in stats] == list(devices)
    nodes = {node.node_name: node for device in stats for node in device.node_stats}
    assert {"product", "total"} <= nodes.keys()
    assert nodes["product"].timeline_label == "MatMul product"
    for node in nodes.values():
        assert before - 1e6 < node.all_start_micros < time.time() * 1e6 + 1e6
        assert 0 <= node.op_end_rel_micros == node.all_end_rel_micros
    trace = json.loads(tb.profiler.Timeline(metadata.step_stats).generate_chrome_trace_format())
    assert "MatMul product" in {event["name"] for event in trace["traceEvents"]}
    assert tb.RunMetadata().step_stats.dev_stats == []


def test_a_learning_run_of_replicas_says_that_traces_have_no_effect():
    x = tb.placeholder(tb.float32, [None])
    w = tb.Variable(np.float32(1.0))
    update = tb.train.GradientDescentOptimizer(0.1).minimize(tb.reduce_mean(w * x))
    with tb.Session("tensorbow", replicas_per_device=2) as session:
        session.run(tb.global_variables_initializer())
        with pytest.warns(UserWarning, match=r"TensorBowSession that .*trains replicas"):
            session.run(update, {x: [1.0, 2.0]}, tb.RunOptions(trace_level=tb.RunOptions.FULL_TRACE))
        session.run(update, {x: [1.0, 2.0]}, tb.RunOptions(timeout_in_ms=60_000))
