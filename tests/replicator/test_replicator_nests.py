"""Any nest of inputs and outputs, and what an `input_fn` is called with."""

from __future__ import annotations

import functools
from collections import namedtuple
from dataclasses import dataclass, make_dataclass
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")


Pair = namedtuple("Pair", ["first", "second"])


def test_any_nest_in_and_out():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)

    def batches(context):
        n = context.replica_id
        assert (context.num_replicas, context.num_input_pipelines) == (2, 2)
        yield {"a": [np.full(2, n, np.float32), 1.5], "b": Pair(np.int64(n), (np.array([True, n > 0]),))}
        yield {"b": (np.int64(n + 4), [np.array([False, True])]), "a": (np.full(2, 9, np.float32), 0.5)}

    def step(inputs):
        assert isinstance(inputs["b"], Pair)
        (vector, number), second = inputs["a"], inputs["b"].second
        return Pair([vector * number, inputs["b"].first], {"flags": second[0], "id": tb.replica_id()})

    first, second = list(repl.train(step, batches))
    assert isinstance(first, Pair)
    assert first.first[0].tolist() == [[0, 0], [1.5, 1.5]]
    assert first.first[1].tolist() == [0, 1]
    assert first.second["flags"].tolist() == [[True, False], [True, True]]
    assert first.second["id"].tolist() == [0, 1]
    assert second.first[0].tolist() == [[4.5, 4.5], [4.5, 4.5]]
    assert second.first[1].tolist() == [4, 5]


@dataclass(frozen=True)
class Example:
    image: Any
    labels: Any

    def __post_init__(self):
        assert self.image is not None


def test_data_classes_in_and_out():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
    whole = Example(np.arange(4, dtype=np.float32), [np.array([1, 2]), {"of": np.array([True, False])}])
    out = repl.run(
        lambda e: Example(e.image * 2.0, (e, tb.replica_id())), lambda: iter([whole] * 2), tb.PER_WORKER
    )
    with repl, tb.Session() as session:
        repl.init(session)
        result = session.run(out)
        assert isinstance(result, Example)
        assert result.image.tolist() == [[0, 2], [4, 6]]
        (same, number) = result.labels
        assert isinstance(same, Example)
        assert same.labels[0].tolist() == [[1], [2]]
        assert same.labels[1]["of"].tolist() == [[True], [False]]
        assert number.tolist() == [0, 1]


def test_a_data_class_that_differs():
    other = make_dataclass("Other", ["image", "labels"])
    for bad, message in (
        (other(1.0, 2), r"inputs: expected Example as in the first batch, got Other"),
        ({"image": 1.0}, r"inputs: expected Example .*got a dictionary"),
        (Example(1.0, Example(2, 3)), r"inputs\.labels: expected an array .*got Example"),
        (Example(1.0, np.ones(2, np.int32)), r"inputs\.labels of replica 0, batch 1: expected int32\[\]"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            list(tb.NonReplicator().train(lambda e: e.image, lambda bad=bad: iter([Example(1.0, 2), bad])))


def test_keys_of_any_kind():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
    nest = {"größe / 1": np.float32(1), 3: np.float32(2), ("a", None): np.float32(3)}
    (out,) = repl.train(lambda given: {"summe": sum(given.values()), 3: given[3]}, lambda: nest, 1)
    assert out["summe"].tolist() == [6, 6]
    assert out[3].tolist() == [2, 2]


def test_a_step_may_return_nothing_or_none():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
    with repl.context():
        count = tb.Variable(0, trainable=False, combine="sum", name="count")
    calls = []

    def step(x):
        calls.append(x)
        update = count.assign_add(1)
        return {"nothing": None, "both": (None, update), "op": update.op}

    out = repl.run(step, lambda: np.ones(2, np.float32))
    nothing = repl.run(lambda x: None, lambda: np.ones(2, np.float32))
    with repl, tb.Session() as session:
        repl.init(session)
        first = session.run(out)
        assert first["nothing"] is first["both"][0] is first["op"] is None
        assert first["both"][1].tolist() == [1, 1]
        assert session.run(nothing) is None
        assert session.run(out["nothing"]) is None  # the whole step
        assert repl.central_values()["count"] == 4
    assert len(calls) == 1
    assert list(tb.NonReplicator().train(lambda: None, steps=3)) == [None] * 3


@pytest.mark.parametrize(
    "input_fn",
    [
        lambda replica_id: np.int32(replica_id),
        lambda replica_id=7: np.int32(replica_id),
        lambda *, replica_id: np.int32(replica_id),
        lambda anything: np.int32(anything.replica_id),
        lambda ctx=None: np.int32(ctx.replica_id),
        lambda *, context: np.int32(context.replica_id),
        functools.partial(lambda factor, input_context: np.int32(factor * input_context.replica_id), 1),
    ],
)
def test_what_an_input_fn_is_called_with(input_fn):
    (out,) = tb.MultiGpuReplicator(["/cpu:0"], 3).train(lambda x: x, input_fn, 1)
    assert out.tolist() == [0, 1, 2]


@pytest.mark.parametrize("labels", [(8, 1), (8,)])
def test_a_tuple_is_not_used_as_one_tensor_by_mistake(labels):
    """Tensors of one shape would be stacked without a word."""
    batch = np.ones((8, 1), np.float32), np.zeros(labels, np.float32)

    def step(images, labels=None):
        return tb.reduce_mean(tb.layers.dense(images, 1))

    with pytest.raises(InvalidArgumentError) as caught:
        tb.NonReplicator().run(step, lambda: batch)
    words = r"step\(images, labels=None\) uses the tuple of 2 .* a parameter for each, .* \(made at .*dense\("
    assert caught.match(words)


def test_a_tuple_may_be_taken_apart_or_stacked():
    batch = np.ones(3, np.float32), np.zeros(3, np.float32)

    def step(inputs):
        images, labels = inputs
        return tb.reduce_sum(tb.stack(inputs)) + tb.reduce_sum([images, labels, images])

    assert next(tb.NonReplicator().train(step, lambda: batch)).tolist() == [9.0]
