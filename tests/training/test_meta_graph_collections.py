"""Collections of meta graphs: queue runners, savers, nested lists; TensorFlow's messages of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.training.collection_messages import read_collections
from tensorbow.training.meta_graph_def import MetaGraphDef, _messages

pytestmark = pytest.mark.usefixtures("graph")


def _moved(as_text: bool, tmp_path: Path) -> None:
    """The default graph through a file, under a scope of another graph."""
    tb.train.export_meta_graph(tmp_path / "g.meta", as_text=as_text)


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("scope", ["", "again"])
def test_queue_runners_fill_the_queues_of_an_imported_graph(
    tmp_path: Path, as_text: bool, scope: str
) -> None:
    number = tb.train.range_input_producer(6, num_epochs=1, shuffle=False).dequeue()
    batch = tb.train.batch({"n": number, "square": number * number}, 2)
    tb.add_to_collection("batch", batch)
    tb.add_to_collection("batch", [number, ("text", {"n": number}), 3])
    _moved(as_text, tmp_path)
    with tb.Graph().as_default(), tb.Session() as session:
        tb.train.import_meta_graph(tmp_path / "g.meta", import_scope=scope)
        again, nested = tb.get_collection("batch")
        assert (nested[1][0], nested[2], nested[0] is nested[1][1]["n"]) == ("text", 3, True)
        runners = tb.get_collection(tb.GraphKeys.QUEUE_RUNNERS)
        assert [runner.name.startswith(scope) for runner in runners] == [True, True]
        assert sorted(runner.queue.names or [] for runner in runners) == [[], ["n", "square"]]
        session.run(tb.local_variables_initializer())
        coordinator, found = tb.train.Coordinator(), []
        threads = tb.train.start_queue_runners(session, coordinator)
        try:
            while True:
                found.append(session.run(again))
        except tb.errors.OutOfRangeError:
            coordinator.request_stop()
        coordinator.join(threads)
    assert [each["square"].tolist() for each in found] == [[0, 1], [4, 9], [16, 25]]


def test_savers_come_back_from_their_collection(tmp_path: Path) -> None:
    v = tb.Variable([1.0, 2.0], name="v")
    tb.add_to_collection(tb.GraphKeys.SAVERS, tb.train.Saver({"other": v}, max_to_keep=3))
    _moved(False, tmp_path)
    with tb.Graph().as_default(), tb.Session() as session:
        assert tb.train.import_meta_graph(tmp_path / "g.meta", import_scope="new") is None
        (saver,) = tb.get_collection(tb.GraphKeys.SAVERS)
        (variable,) = tb.global_variables()
        assert saver.saver_def.variables == {"other": "new/v"}
        assert saver.saver_def.max_to_keep == 3
        session.run(variable.assign([5.0, 6.0]))
        path = saver.save(session, tmp_path / "m")
        session.run(variable.initializer)
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(variable), [5, 6])


def test_messages_of_tensorflow() -> None:
    w = tb.Variable(1.0, name="w")
    y = tb.identity(w * 2.0, name="y")
    queue = tb.FIFOQueue(3, [tb.float32], [[]], name="queue")
    tb.train.add_queue_runner(tb.train.QueueRunner(queue, [queue.enqueue([y])] * 2))
    items = {
        "names": [y, y.op],
        "numbers": [1, 2],
        "fractions": [0.5, 2.0],
        "texts": ["a", "b"],
        "mixed": [1, "a"],
        "others": [(1, 2)],
        "large": [1 << 70],
    }
    for name, values in items.items():
        for each in values:
            tb.add_to_collection(name, each)
    message = _messages()("MetaGraphDef")()
    message.ParseFromString(tb.train.export_meta_graph().SerializeToString())
    found = message.collection_def
    assert {"mixed", "others", "large"}.isdisjoint(found)
    assert list(found["names"].node_list.value) == ["y:0", "y"]
    assert list(found["numbers"].int64_list.value) == [1, 2]
    assert list(found["fractions"].float_list.value) == [0.5, 2.0]
    assert list(found["texts"].bytes_list.value) == [b"a", b"b"]
    variable, runner = _messages()("VariableDef")(), _messages()("QueueRunnerDef")()
    variable.ParseFromString(found["trainable_variables"].bytes_list.value[0])
    assert (variable.variable_name, variable.initializer_name, variable.snapshot_name) == (
        "w:0",
        "w/Assign",
        "w/read:0",
    )
    assert variable.trainable
    runner.ParseFromString(found["queue_runners"].bytes_list.value[0])
    assert runner.queue_name == "queue"
    assert len(set(runner.enqueue_op_name)) == 1
    assert list(runner.queue_closed_exception_types) == [11, 1]
    # without the graph's own JSON, as of TensorFlow
    read = read_collections(found, {"y"})
    assert {name: read[name] for name in ("names", "numbers", "texts")} == {
        "names": [{"tensor": "y:0"}, {"operation": "y"}],
        "numbers": [{"value": 1}, {"value": 2}],
        "texts": [{"value": "a"}, {"value": "b"}],
    }
    assert "trainable_variables" not in read
    assert "names" not in read_collections(found, {"x"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"queue": "w:0"}, "w:0 is no handle of a queue"),
        ({"names": ["a", "b"]}, "has 1 components, got 2 names"),
        ({"ended": ["Exception"]}, "a queue runner of another queue"),
        ({"ended": []}, "a queue runner of another queue"),
        ({"enqueue": "queue"}, "a queue runner of another queue"),
        ({"enqueue": []}, "enqueue_ops"),
        ({"more": 1}, "a queue runner is cancel, close"),
        ({"close": "none"}, "none"),
    ],
)
def test_damaged_queue_runners_are_refused(change: dict[str, Any], words: str) -> None:
    tb.constant(1.0, name="w")
    queue = tb.FIFOQueue(3, [tb.float32], [[]], name="queue")
    tb.train.add_queue_runner(tb.train.QueueRunner(queue, [queue.enqueue([1.0])]))
    meta = json.loads(tb.train.export_meta_graph().to_json())
    meta["graph_def"]["collection"]["queue_runners"][0]["queue_runner"].update(change)
    damaged = MetaGraphDef.from_file_content(json.dumps(meta).encode())
    with tb.Graph().as_default(), pytest.raises((InvalidArgumentError, tb.errors.NotFoundError), match=words):
        tb.train.import_meta_graph(damaged)
