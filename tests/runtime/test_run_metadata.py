"""What RunMetadata and traces have of a run: spans of dynamic steps, costs by op, graphs of the devices."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tensorbow as tb

TRACED = tb.RunOptions(trace_level=tb.RunOptions.FULL_TRACE)


@pytest.fixture(autouse=True)
def session():
    with tb.Graph().as_default(), tb.Session(config=tb.ConfigProto(compiles_loops=False)) as session:
        yield session


def spans(metadata, label):
    stats = [node for device in metadata.step_stats.dev_stats for node in device.node_stats]
    return [(node.frame, node.iteration) for node in stats if node.timeline_label == label]


@pytest.mark.parametrize("parallel", [1, 10])
def test_nodes_and_regions_have_spans_with_frame_and_iteration(session, parallel):
    x = tb.placeholder(tb.float32, [])

    def outer(i, total):
        inner = tb.while_loop(lambda v: v < total, lambda v: v + i, [x], name="inner")
        found = tb.reduce_sum(tb.cast(tb.where(tb.reshape(inner, [1]) > 0.0), tb.float32))
        return i + 1.0, total + found + 2.0

    start = [tb.constant(1.0), tb.constant(3.0)]
    loop = tb.while_loop(lambda i, t: i < 3.0, outer, start, name="outer", parallel_iterations=parallel)
    plain = session.run(loop, {x: 0.0})
    metadata = tb.RunMetadata()
    assert session.run(loop, {x: 0.0}, TRACED, metadata) == plain
    assert spans(metadata, "Where outer/Where") == [("outer", (0,)), ("outer", (1,))]
    adds = spans(metadata, "Add outer/inner/Add")
    assert adds == [("outer/inner", (i, j)) for i, count in ((0, 3), (1, 3)) for j in range(count)]
    assert len(spans(metadata, "Region outer/inner/Less")) == 8
    costs = {node.name: node for node in metadata.cost_graph.node}
    assert costs["outer/inner/Add"].count == 6
    assert costs["outer/Where"].count == 2
    less = session.graph.get_operation_by_name("outer/inner/Less")
    assert costs["outer/inner/Less"].id == less.id
    assert [(i.preceding_node, i.preceding_port) for i in costs["outer/inner/Less"].input_info] == [
        (t.op.id, t.index) for t in less.inputs
    ]
    assert "Region" not in {node.op for node in metadata.cost_graph.node}
    assert str(metadata.cost_graph).count("\n") == len(costs)


def test_a_trace_around_dynamic_steps_has_their_spans(session, tmp_path):
    x = tb.placeholder(tb.float32, [None])
    loop = tb.while_loop(lambda v: tb.reduce_sum(v) < 9.0, lambda v: v * 2.0, [x])
    large = tb.while_loop(lambda v: tb.reduce_sum(v) < 9e5, lambda v: v * 2.0, [tb.tile(x, [5000])])
    with tb.profiler.trace(tmp_path / "trace.json"):
        session.run([loop, large], {x: [1.0, 2.0]})
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    where = [e["args"] for e in events if e["name"] == "Mul while/Mul"]
    assert where == [{"frame": "while", "iteration": [0]}, {"frame": "while", "iteration": [1]}]
    assert [e["args"]["iteration"] for e in events if e["name"] == "Region while_1/Sum"] == [
        [number] for number in range(7)
    ]
    rows = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    tids = {e["tid"] for e in events if e["name"] == "Mul while/Mul"}
    assert tids == {rows["dynamic steps"]}


def test_asynchronous_ops_wait_in_their_spans_and_errors_are_traced_to_their_op(session):
    gate = tb.py_func(lambda: np.float32(1.0), [], tb.float32)
    queue = tb.FIFOQueue(4, [tb.float32], [[]])
    taken, put = queue.dequeue(), queue.enqueue([gate])
    metadata = tb.RunMetadata()
    assert session.run([taken, put], None, TRACED, metadata)[0] == 1.0
    stats = {n.timeline_label: n for d in metadata.step_stats.dev_stats for n in d.node_stats}
    waits, goes, ends = (stats[f"{op.type} {op.name}"] for op in (taken.op, gate.op, put))
    ended = waits.all_start_micros + waits.all_end_rel_micros
    assert ended >= ends.all_start_micros >= goes.all_start_micros + goes.all_end_rel_micros
    x, metadata = tb.placeholder(tb.float32, [2]), tb.RunMetadata()
    bad = tb.gather(x, tb.cast(tb.where(tb.check_numerics(x, "here") > 0.0), tb.int32))
    with pytest.raises(tb.errors.InvalidArgumentError, match=r"CheckNumerics.*here"):
        session.run(bad, {x: [1.0, np.nan]}, TRACED, metadata)
    assert [label for label, _ in spans(metadata, "Region CheckNumerics")] == [""]


def test_partition_graphs_are_those_of_the_devices(session):
    x = tb.placeholder(tb.float32, [2, 3], name="x")
    with tb.device("/cpu:1"):
        there = tb.add(x, 1.0, name="there")
    with tb.control_dependencies([there]):
        here = tb.reduce_sum(tb.identity(x, name="late"), name="here")
    result = tb.add(here, there[0, 0], name="result")
    metadata, options = tb.RunMetadata(), tb.RunOptions(output_partition_graphs=True)
    session.run(result, {x: np.ones((2, 3))}, options, metadata)
    graphs = {graph.node[0].device: {n.name: n for n in graph.node} for graph in metadata.partition_graphs}
    first, second = graphs["/device:CPU:0"], graphs["/device:CPU:1"]
    assert "there" in second
    assert "there" not in first
    received = next(n for n in first.values() if n.attr.get("tensor_name") == "there:0")
    sent = next(n for n in second.values() if n.op == "_Send" and n.attr["tensor_name"] == "there:0")
    assert (received.op, sent.input) == ("_Recv", ["there:0"])
    assert received.attr == sent.attr
    assert f"^{first['late'].input[1][1:]}" == first["late"].input[1]
    assert first[first["late"].input[1][1:]].attr["tensor_name"] == "there/_token:0"
    for graph in graphs.values():
        assert all(item.lstrip("^").split(":")[0] in graph for n in graph.values() for item in n.input)
    fetched = [n for n in first.values() if n.op == "_Send" and n.attr["client_terminated"]]
    assert [n.input for n in fetched] == [["result:0"]]
    metadata = tb.RunMetadata()
    session.run(tb.where(x > 0.0), {x: np.ones((2, 3))}, options, metadata)
    assert [[n.op for n in graph.node] for graph in metadata.partition_graphs] == [
        ["Const", "_Recv", "Greater", "Where", "_Send"]
    ]
