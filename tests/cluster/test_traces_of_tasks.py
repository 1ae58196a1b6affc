"""Runs over tasks that are traced: spans, costs and graphs of all tasks come back to the session."""

from __future__ import annotations

import json
from time import time

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.cluster.run_spans import MOST_SPANS, TaskSpans, TracesOfTasks
from tensorbow.timeline import OP, Tracer
from tests.cluster.servers import servers_here

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
TRACED = tb.RunOptions(trace_level=tb.RunOptions.FULL_TRACE, output_partition_graphs=True)


@pytest.fixture
def servers():
    with servers_here(ps=1, worker=1) as servers:
        yield servers


@pytest.fixture(params=["worker0", "ps0"])
def session(servers, request):
    with tb.Graph().as_default(), tb.Session(servers[request.param].target) as session:
        yield session


def spans(metadata):
    """Label, frame and iteration of each span, by task."""
    found = {}
    for device in metadata.step_stats.dev_stats:
        rows = [(node.timeline_label, node.frame, node.iteration) for node in device.node_stats]
        found.setdefault(device.device.partition("/device")[0], []).extend(rows)
    return found


def test_the_ops_of_a_planned_step_have_spans_on_their_tasks(session):
    x = tb.placeholder(tb.float32, [4, 4])
    with tb.device(PS):
        there = tb.matmul(x, x, name="there")
    with tb.device(WORKER):
        result = tb.reduce_sum(there, name="result")
    feeds, metadata = {x: np.eye(4)}, tb.RunMetadata()
    assert session.run(result, feeds) == 4.0
    before = time()
    assert session.run(result, feeds, TRACED, metadata) == 4.0
    after = time()
    found = spans(metadata)
    assert ("MatMul there", "", ()) in found[PS]
    assert ("Sum result", "", ()) in found[WORKER]
    assert any(label.startswith(f"wait for {PS}") for label, _, _ in found[WORKER])
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            assert before - 0.01 <= node.all_start_micros / 1e6 <= after
    costs = {node.name: node for node in metadata.cost_graph.node}
    assert costs["there"].device.startswith(PS)
    assert costs["there"].id == there.op.id
    graphs = {graph.node[0].device: [n.op for n in graph.node] for graph in metadata.partition_graphs}
    assert {"MatMul", "_Send"} < set(graphs[f"{PS}/device:CPU:0"])
    assert {"Sum", "_Recv"} < set(graphs[f"{WORKER}/device:CPU:0"])


def test_loops_over_tasks_have_spans_with_frame_and_iteration(session, tmp_path):
    def body(total, v):
        with tb.device(PS):
            half = tb.multiply(v, 0.5, name="half")
        with tb.device(WORKER):
            return total + half, half

    v = tb.placeholder(tb.float32, [])
    with tb.device(WORKER):
        start = tb.constant(0.0)
        total, _ = tb.while_loop(lambda total, v: v > 1.0, body, [start, v])
    metadata = tb.RunMetadata()
    with tb.profiler.trace(tmp_path / "trace.json"):
        assert session.run(total, {v: 8.0}, TRACED, metadata) == 7.0
    found = spans(metadata)
    halves = [iteration for label, _, iteration in found[PS] if label == "Mul while/half"]
    assert halves == [(0,), (1,), (2,)]
    assert any(label.startswith("ReceiveFromTask") for label, _, _ in found[WORKER])
    assert {node.name: node.count for node in metadata.cost_graph.node}["while/half"] == 3
    sends = [[n.op for n in graph.node].count("SendToTask") for graph in metadata.partition_graphs]
    assert len(sends) == 2
    assert all(sends)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    rows = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    where = [rows[e["pid"]] for e in events if e["name"] == "Mul while/half"]
    assert where == [f"{PS}/device:CPU:0"] * 3


def test_runs_without_options_send_no_spans(session):
    with tb.device(PS):
        there = tb.placeholder(tb.float32, []) + 1.0
    metadata = tb.RunMetadata()
    assert session.run(there, {there.op.inputs[0]: 1.0}, None, metadata) == 2.0
    assert metadata.step_stats.dev_stats == []


def test_spans_in_messages():
    spans, tracer, traces = TaskSpans(), Tracer(), TracesOfTasks()
    track = spans.track("/job:a/task:0/device:CPU:0", "stream 1")
    spans.tracer.add(track, "Add x", OP, spans.began_s + 1.0, spans.began_s + 1.5)
    spans.tracer.add(track, "Add x", OP, spans.began_s + 2.0, spans.began_s + 2.5, "while", (3, 0))
    spans.tracer.dropped = 7
    for _ in range(2):
        traces.add([tracer], spans.to_arrays(), 100.0)
    assert [(s.name, s.category, s.frame, s.iteration) for s in tracer.spans[:2]] == [
        ("Add x", OP, "", ()),
        ("Add x", OP, "while", (3, 0)),
    ]
    times = [(span.start_s, span.end_s) for span in tracer.spans[:2]]
    np.testing.assert_allclose(times, [(101.0, 101.5), (102.0, 102.5)])
    assert len({span.track for span in tracer.spans}) == 1
    assert tracer.dropped == 14
    assert spans.tracer.limit == MOST_SPANS
    text, *columns = spans.to_arrays()
    for wrong in ([text], [text[:-1], *columns], [text, columns[0] + 1, *columns[1:]], columns):
        with pytest.raises(tb.errors.DataLossError, match="no spans of a task"):
            traces.add([tracer], wrong, 0.0)
