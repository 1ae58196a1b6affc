"""Spans of streams, and the file they come to."""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler.batches.sources import gathered
from scheduler.replicas import round_launcher
from scheduler.replicas.thread_choice import Threads
from tensorbow.devices import CpuDevice, NullDevice
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from tensorbow.timeline import CURRENT, StreamTrack, Timeline, TraceFile, Tracer, trace
from tests.scheduler_rig.programs import logistic
from tests.scheduler_rig.running import Prepared, engine_of, same_bits

PATIENCE_S = 60
Doubled = tb.define_op(
    "TestDoubled",  # without native code
    inputs=("x",),
    spec=lambda inputs, attrs: inputs[0],
    kernel=lambda call: np.multiply(call.inputs[0], 2, out=call.outputs[0]),
    gradient=lambda op, gradient: [gradient * 2.0],
)


@pytest.fixture
def tracer():
    made = Tracer()
    made.start()
    yield made
    made.stop()


def named(tracer: Tracer, name: str) -> Any:
    (span,) = [span for span in tracer.spans if span.name == name]
    return span


def events(path: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == kind]


def rows(path: Path) -> dict[tuple[int, int], tuple[str, str]]:
    """Names of device and stream, by process and thread."""
    named = events(path, "M")
    devices = {event["pid"]: event["args"]["name"] for event in named if event["name"] == "process_name"}
    threads = [event for event in named if event["name"] == "thread_name"]
    return {(e["pid"], e["tid"]): (devices[e["pid"]], e["args"]["name"]) for e in threads}


# Streams --------------------------------------------------------------------------------------------------


def test_work_on_two_cpu_streams_overlaps_in_the_trace(tracer):
    started = {"a": threading.Event(), "b": threading.Event()}

    def meet(mine: str, other: str) -> None:
        started[mine].set()
        assert started[other].wait(PATIENCE_S)

    with CpuDevice("/cpu:3") as device:
        first, second = device.new_stream("a"), device.new_stream("b")
        first.enqueue(lambda: meet("a", "b"), label="left")
        second.enqueue(lambda: meet("b", "a"), label="right")
        first.enqueue(lambda: None, label="after")
        first.synchronize()
        second.synchronize()
    left, right, after = (named(tracer, name) for name in ("left", "right", "after"))
    assert max(left.start_s, right.start_s) <= min(left.end_s, right.end_s)
    assert left.end_s <= after.start_s <= after.end_s
    assert (left.track.device, left.track.stream, right.track.stream) == ("/cpu:3", "a", "b")
    assert after.track is left.track
    assert {span.category for span in tracer.spans} == {"work"}


def test_a_blocked_wait_is_a_span_between_the_work_before_and_after_it(tracer):
    go = threading.Event()
    with CpuDevice() as device:
        slow, waiting = device.new_stream("slow"), device.new_stream("waiting")
        slow.enqueue(lambda: go.wait(PATIENCE_S), label="held up")
        waiting.enqueue(lambda: None, label="before")
        waiting.wait(slow.record())
        waiting.enqueue(lambda: None, label="after")
        while waiting._worker.blocked_on is None:
            time.sleep(0.001)
        go.set()
        waiting.synchronize()
        slow.synchronize()
    before, wait, after = (named(tracer, n) for n in ("before", "wait for /cpu:0 slow", "after"))
    assert wait.category == "wait"
    assert before.end_s <= wait.start_s <= wait.end_s <= after.start_s
    assert wait.end_s >= named(tracer, "held up").end_s


def test_a_null_device_gives_spans_without_time(tracer):
    with NullDevice("/null:4") as device:
        stream = device.new_stream("s")
        for label in ("one", "two"):
            stream.enqueue(lambda: None, label=label)
    assert [span.name for span in tracer.spans] == ["one", "two"]
    assert all(span.start_s == span.end_s for span in tracer.spans)
    assert tracer.spans[0].start_s <= tracer.spans[1].start_s


def test_nothing_is_kept_while_nobody_traces():
    tracer = Tracer()
    with CpuDevice() as device:
        stream = device.new_stream("s")
        stream.enqueue(lambda: None, label="before")
        stream.synchronize()
        tracer.start()
        stream.enqueue(lambda: None, label="traced")
        stream.synchronize()
        tracer.stop()
        assert CURRENT.tracer is None
        stream.enqueue(lambda: None, label="after")
        stream.synchronize()
    assert [span.name for span in tracer.spans] == ["traced"]


def test_one_trace_at_a_time(tracer, tmp_path):
    with (
        pytest.raises(FailedPreconditionError, match="no other trace to be going on"),
        trace(tmp_path / "second.json"),
    ):
        pass
    assert CURRENT.tracer is tracer
    assert list(tmp_path.iterdir()) == []


# The file -------------------------------------------------------------------------------------------------


def test_the_file_has_a_row_for_each_stream_and_valid_events(tmp_path):
    path = tmp_path / "trace.json"
    with trace(path) as tracer:
        for device, stream in (("/gpu:10", "z"), ("/gpu:2", "replica 10"), ("/gpu:2", "replica 9")):
            at_s = tracer.began_s + 0.5
            tracer.add(StreamTrack(device, stream), f"work of {stream}", "work", at_s, at_s + 0.25)
        tracer.count("images/s", tracer.began_s + 1, 800.0)
    whole = json.loads(path.read_text())
    assert whole["displayTimeUnit"] == "ms"
    assert whole["otherData"]["spans_left_out"] == 0
    order = {
        (e["pid"], e["tid"]): e["args"]["sort_index"] for e in events(path, "M") if "sort_index" in e["name"]
    }
    found = rows(path)
    assert [found[key] for key in sorted(found, key=lambda key: (order[key[0], 0], order[key]))] == [
        ("/gpu:2", "replica 9"),
        ("/gpu:2", "replica 10"),
        ("/gpu:10", "z"),
    ]
    spans = events(path, "X")
    for span in spans:
        assert set(span) == {"name", "cat", "ph", "ts", "dur", "pid", "tid"}
        assert span["ts"] == pytest.approx(500_000, abs=0.01)
        assert span["dur"] == pytest.approx(250_000, abs=0.01)
        assert span["name"] == f"work of {found[span['pid'], span['tid']][1]}"
    (counter,) = events(path, "C")
    assert counter["args"] == {"images/s": 800.0}
    assert counter["ts"] == pytest.approx(1e6, abs=0.01)
    assert counter["pid"] not in {span["pid"] for span in spans}


def test_two_streams_of_one_name_are_two_rows():
    tracer = Tracer()
    for _ in range(2):
        tracer.add(StreamTrack("/cpu:0", "s"), "work", "work", 1.0, 2.0)
    text = Timeline(tracer).generate_chrome_trace_format()
    spans = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
    assert spans[0]["tid"] != spans[1]["tid"]
    assert spans[0]["pid"] == spans[1]["pid"]


def test_a_name_that_ends_in_gz_is_compressed(tmp_path):
    with trace(tmp_path / "trace.json.gz") as tracer:
        tracer.add(StreamTrack("/cpu:0", "s"), "größer", "work", 1.0, 2.0)
    with gzip.open(tmp_path / "trace.json.gz", "rt", encoding="utf-8") as file:
        assert [e["name"] for e in json.load(file)["traceEvents"] if e["ph"] == "X"] == ["größer"]
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json.gz"]


def test_it_is_written_when_the_block_raises(tmp_path):
    path = tmp_path / "trace.json"

    def interrupted() -> None:
        with trace(path) as tracer:
            tracer.add(StreamTrack("/cpu:0", "s"), "work", "work", 1.0, 2.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(events(path, "X")) == 1
    assert CURRENT.tracer is None


def test_a_limit_bounds_what_is_kept_and_one_warning_says_so(tmp_path):
    path, track = tmp_path / "trace.json", StreamTrack("/cpu:0", "s")

    def seven_spans() -> None:
        with trace(path, limit=3) as tracer:
            for number in range(7):
                tracer.add(track, f"work {number}", "work", number, number + 1)

    with pytest.warns(RuntimeWarning, match="3 spans are kept, 4 are not; trace fewer steps") as warned:
        seven_spans()
    assert len(warned) == 1
    assert [event["name"] for event in events(path, "X")] == ["work 0", "work 1", "work 2"]
    assert json.loads(path.read_text())["otherData"]["spans_left_out"] == 4


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "expected a regular file, got a folder"),
        ("no/such/trace.json", "No such file or directory; choose a path in a folder that is there"),
        ("a\0b", "expected path to be a path, got str"),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_anything_runs(tmp_path, name, reason):
    ran = []
    with (
        pytest.raises(InvalidArgumentError, match=rf"trace: .*{reason}"),
        trace(f"{tmp_path}/{name}"),
    ):
        ran.append(1)
    assert not ran
    assert CURRENT.tracer is None


@pytest.mark.parametrize("path", [5, None], ids=["number", "none"])
def test_what_is_no_path_is_refused_before_anything_runs(path):
    with pytest.raises(InvalidArgumentError, match="trace: expected path to be a path, got"):
        trace(path)
    assert CURRENT.tracer is None


def test_a_file_that_cannot_be_written_at_the_end_leaves_the_earlier_one(tmp_path):
    path = tmp_path / "folder" / "trace.json"
    path.parent.mkdir()
    path.write_text("earlier")
    file = TraceFile(path)
    (claimed,) = set(path.parent.iterdir()) - {path}
    claimed.unlink()
    claimed.mkdir()
    with pytest.raises(ResourceExhaustedError, match=r"cannot write '.*trace\.json'"):
        file.save(Tracer())
    assert path.read_text() == "earlier"


# Sessions, engines ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("reference_kernels")  # whose tasks are several launches
def test_a_session_and_an_engine_are_traced(tmp_path):
    train, _ = tb.data.load("digits")
    with tb.Graph().as_default():
        images, labels = tb.placeholder(tb.float32, [None, 28, 28, 1]), tb.placeholder(tb.int64, [None])
        weights = tb.Variable(np.zeros([784, 10], np.float32), name="weights")
        logits = tb.matmul(tb.reshape(images, [-1, 784]), weights)
        loss = tb.reduce_mean(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        update = tb.train.MomentumOptimizer(0.01, momentum=0.9).minimize(loss)
        program = tb.StepProgram((images, labels), loss, update)
        with tb.Session() as session, tb.profiler.trace(tmp_path / "session.json"):
            session.run(tb.constant(1.0) + tb.random_uniform([2]))
    assert [event["cat"] for event in events(tmp_path / "session.json", "X")] == ["work", "op", "op"]
    batches = tb.DatasetBatches(train, batch_size=16, replicas=3, seed=0)
    with tb.LearningEngine(program, 16, ["/cpu:0", "/cpu:1"], (1, 2)) as engine:
        engine.initialize()
        with tb.profiler.trace(tmp_path / "engine.json"):
            engine.run(batches.open, 0, 4)
    path = tmp_path / "engine.json"
    found = rows(path)
    work: dict[tuple[str, str], list[str]] = {}
    for event in events(path, "X"):
        device, stream = found[event["pid"], event["tid"]]
        if event["cat"] == "work":
            work.setdefault((device, stream.partition(" ")[2]), []).append(event["name"])
    assert set(work) == {
        ("/cpu:0", "replica 0"),
        ("/cpu:1", "replica 1"),
        ("/cpu:1", "replica 2"),
        ("/cpu:0", "z"),
        ("/cpu:1", "z"),
        ("/cpu:0", "exchanges"),
    }
    assert work["/cpu:1", "replica 2"][::2] == ["replica 2 gradient"] * 4
    assert work["/cpu:0", "exchanges"] == ["exchange between devices"] * 4
    averaging = "update, averaging 0"
    kinds = ("exchange", "mirrored")
    assert work["/cpu:1", "z"] == [f"{averaging}: {kind} of /cpu:1" for kind in kinds] * 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("devices", [("/cpu:0",), ("/cpu:0", "/cpu:1")])
def test_a_run_of_a_session_has_a_span_for_each_op(tmp_path, devices):
    """Within the span of the run; values are those of a run that is not traced."""
    values = []
    for traced in (False, True):
        with tb.Graph().as_default(), tb.Session() as session:
            x, w = tb.placeholder(tb.float32, [None, 3], name="x"), tb.Variable(np.ones((3, 2), np.float32))
            with tb.device(devices[-1]):
                y = Doubled(tb.matmul(x, w, name="product"))
            loss = tb.reduce_mean(tb.square(y))
            train = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
            row = tb.gather(w, tb.cast(tb.reduce_sum(x), tb.int32))
            session.run(tb.global_variables_initializer())
            feeds = {x: np.arange(12.0).reshape(4, 3)}
            with tb.profiler.trace(tmp_path / "session.json") if traced else nullcontext():
                for _ in range(2):
                    values.append(session.run([loss, train], feeds)[0])
                with pytest.raises(InvalidArgumentError, match=r"GatherV2: .*made at .*test_timeline"):
                    session.run(row, feeds)
            values.append(session.run([w, loss], feeds)[0].tolist())
    assert values[:3] == values[3:]
    spans = events(tmp_path / "session.json", "X")
    work, ops = ([span for span in spans if span["cat"] == kind] for kind in ("work", "op"))
    assert [op["name"] for op in ops].count("MatMul product") == 2
    assert any(op["name"].startswith("TestDoubled ") for op in ops)
    for op in ops:
        holders = [s for s in work if (s["pid"], s["tid"]) == (op["pid"], op["tid"]) and s["ts"] <= op["ts"]]
        assert any(op["ts"] + op["dur"] <= span["ts"] + span["dur"] + 0.01 for span in holders)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="native code reads the clock under Linux")
@pytest.mark.usefixtures("native_kernels")
def test_averaging_has_spans_within_those_of_the_launches(tmp_path, monkeypatch):
    monkeypatch.setattr(round_launcher.ThreadChoice, "choose", lambda choice, rounds: Threads.EACH)
    monkeypatch.setattr(round_launcher, "usable_cores", lambda: 2)
    model, values = logistic(), []
    for traced in (False, True):
        with engine_of(model, [CpuDevice("/cpu:0")], 2, tau=2, steps_per_launch=4) as engine:
            with tb.profiler.trace(tmp_path / "rounds.json") if traced else nullcontext():
                engine.run(gathered(Prepared(model.batch, 2).open, 4), 0, 8)
            values.append(engine.learners.values.state_arrays())
    assert same_bits(*values)
    spans = events(tmp_path / "rounds.json", "X")
    launches, waits, averaging = ([s for s in spans if s["cat"] == kind] for kind in ("work", "wait", "op"))
    assert len(launches) == 4
    rounds = sorted(span["name"] for span in averaging)
    assert rounds == sorted([f"averaging 0: exchange, round {n}" for n in (1, 3, 5, 7)] * 2)
    assert sorted(span["name"] for span in waits) == [f"wait before {name}" for name in rounds]
    for span in (*waits, *averaging):
        (launch,) = (
            each
            for each in launches
            if each["tid"] == span["tid"] and each["ts"] <= span["ts"] < each["ts"] + each["dur"]
        )
        assert span["ts"] + span["dur"] <= launch["ts"] + launch["dur"]
    for wait, span in zip(
        *(sorted(s, key=lambda e: (e["tid"], e["ts"])) for s in (waits, averaging)), strict=True
    ):
        assert wait["ts"] + wait["dur"] == pytest.approx(span["ts"], abs=0.01)


@pytest.mark.usefixtures("reference_kernels")  # whose tasks are several launches
def test_a_replicator_is_traced(tmp_path):
    def input_fn(replica_id):
        while True:
            yield np.full(3, replica_id, np.float32)

    def step_fn(values):
        weights = tb.get_variable("weights", [3])
        loss = tb.reduce_mean(tb.square(weights - values))
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2)
    optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))
    with tb.profiler.trace(tmp_path / "trace.json"):
        for _ in replicator.train(step_fn, input_fn, 3):
            pass
    names = [event["name"] for event in events(tmp_path / "trace.json", "X")]
    assert names.count("replica 0 gradient") == names.count("replica 1 gradient") == 3
