"""Feature columns in steps of replicas: raw columns come from input_fn, with words as strings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

fc: Any = tb.feature_column
WORDS = np.array(["red", "blue", "green", ""])


def batches(count: int, rows: int = 16) -> Iterator[Any]:
    random = np.random.default_rng(5)
    for _ in range(count):
        colours, sizes = WORDS[random.integers(0, 4, (rows, 2))], random.normal(size=rows).astype(np.float32)
        labels = ((colours[:, 0] == "red") == (sizes > 0)).astype(np.float32)
        yield {"colour": colours, "size": sizes}, labels[:, None]


def model(features: Any, labels: Any, start: Any = None) -> tb.Tensor:
    """The loss of a wide and deep model."""
    colour = fc.categorical_column_with_vocabulary_list("colour", WORDS[:3], num_oov_buckets=1)
    size = fc.numeric_column("size")
    crossed = fc.crossed_column(["colour", fc.bucketized_column(size, [0.0])], 40)
    logits = fc.linear_model(features, [crossed, fc.categorical_column_with_hash_bucket("colour", 10)])
    with tb.variable_scope("deep", initializer=start, partitioner=tb.fixed_size_partitioner(2)):
        deep = fc.input_layer(features, [size, fc.embedding_column(colour, 4, initializer=start)])
        hidden = tb.layers.dense(deep, 8, activation=tb.nn.relu)
        return tb.losses.sigmoid_cross_entropy(labels, logits + tb.layers.dense(hidden, 1))


def test_wide_and_deep_in_replicas() -> None:
    replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2)

    def step_fn(features: Any, labels: Any) -> Any:
        loss = model(features, labels)
        optimizer = replicator.wrap_optimizer(tb.train.AdagradOptimizer(0.3))
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    with replicator.context():
        rounds = replicator.train(step_fn, lambda: batches(50, 32), input_replication=tb.PER_WORKER)
        losses = [np.mean(loss) for loss in rounds]
        names = {v.op.name for v in tb.global_variables()}
    assert np.mean(losses[-5:]) < 0.75 * losses[0]
    assert "deep/input_layer/colour_embedding/embedding_weights/part_1" in names


@pytest.mark.slow
@pytest.mark.parametrize("smaller", ["pad", "drop"])
def test_a_replica_computes_what_a_session_computes(smaller: str) -> None:
    def update(features: Any, labels: Any, wrapped: Any) -> Any:
        loss = model(features, labels, tb.constant_initializer(0.1))
        with tb.control_dependencies([wrapped(tb.train.GradientDescentOptimizer(0.1)).minimize(loss)]):
            return tb.identity(loss)

    replicator = tb.MultiGpuReplicator(["/cpu:0"])

    def step_fn(features: Any, labels: Any) -> Any:
        return update(features, labels, replicator.wrap_optimizer)

    given = list(batches(4, 6))
    features, labels = given[2]
    given[2] = {key: value[:4] for key, value in features.items()}, labels[:4]
    with replicator.context():
        rounds = replicator.train(step_fn, lambda: iter(given), smaller_batch=smaller)
        losses = np.concatenate([np.ravel(loss) for loss in rounds])
    again = [0, 1, 2, 3, 0, 1]
    given[2] = {key: value[again] for key, value in given[2][0].items()}, labels[again]
    if smaller == "drop":
        del given[2]
    with tb.Graph().as_default(), tb.Session() as session:
        colour, size = tb.placeholder(tb.string, [None, 2]), tb.placeholder(tb.float32, [None])
        wanted = tb.placeholder(tb.float32, [None, 1])
        loss = update({"colour": colour, "size": size}, wanted, lambda optimizer: optimizer)
        session.run([tb.global_variables_initializer(), tb.tables_initializer()])
        feeds = [{colour: f["colour"], size: f["size"], wanted: labels} for f, labels in given]
        expected = [session.run(loss, each) for each in feeds]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_strings_of_replicas_are_those_that_are_given() -> None:
    """Whole strings come, with zeros and any bytes, in every part of the batch."""
    given = np.array([b"", b"a\0", b"\0\0", "\u00e4\u4e16".encode(), b"x" * 62, bytes(range(60))], object)
    replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2)

    def step_fn(inputs: Any) -> Any:
        assert inputs["texts"].shape == [3]
        return tb.string_length(inputs["texts"]), tb.string_to_hash_bucket_fast(inputs["texts"], 1 << 40)

    def input_fn() -> Iterator[Any]:
        yield {"texts": given}
        yield {"texts": np.append(given[1:], [b"x" * 63])}

    with replicator.context():
        rounds = replicator.train(step_fn, input_fn, input_replication=tb.PER_WORKER)
        lengths, hashes = next(rounds)
        with pytest.raises(
            InvalidArgumentError, match=r"'texts'\] of .* at most 62 bytes, got one of 63; put"
        ):
            next(rounds)
    assert np.ravel(lengths).tolist() == [len(text) for text in given]
    with tb.Graph().as_default(), tb.Session() as session:
        expected = session.run(tb.string_to_hash_bucket_fast(tb.constant(given), 1 << 40))
    np.testing.assert_array_equal(np.ravel(hashes), expected)
