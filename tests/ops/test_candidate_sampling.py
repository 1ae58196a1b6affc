"""Candidate samplers: classes, expected counts, accidental hits, and the losses made of them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")

TRUE = [[2, 0], [5, 1]]


SHARES = {
    "log_uniform": np.log((np.arange(6) + 2) / (np.arange(6) + 1)) / np.log(7),
    "uniform": np.full(6, 1 / 6),
    "fixed_unigram": np.array([2, 1, 3, 1, 4, 1]) / 12,
}


def _in_samples(p: Any) -> Any:
    """How often each class is among three that are drawn until they differ, from all orders of three."""
    total = np.zeros(len(p))
    for a, b, c in itertools.permutations(range(len(p)), 3):
        total[[a, b, c]] += p[a] * p[b] / (1 - p[a]) * p[c] / (1 - p[a] - p[b])
    return total


@pytest.mark.parametrize("kind", sorted(SHARES))
def test_different_classes_and_their_expected_counts(session: tb.Session, kind: str) -> None:
    more = {"unigrams": [4.0, 1.0, 9.0, 1.0, 16.0, 1.0], "distortion": 0.5} if kind == "fixed_unigram" else {}
    p = SHARES[kind]
    sampler = getattr(tb.nn, f"{kind}_candidate_sampler")
    sampled = sampler([[i] for i in range(6)], 1, 3, True, 6, seed=3, **more)
    runs = [session.run(sampled) for _ in range(800)]
    found = np.mean([np.bincount(run[0], minlength=6) for run in runs], 0)
    np.testing.assert_allclose(found, _in_samples(p), atol=0.05)
    of_draws: set[int] = set()
    for classes, expected, of_sampled in runs:
        assert len(set(classes)) == 3
        draws = 3
        if abs(expected[0, 0] - 3 * p[0]) > 1e-5:
            draws = round(np.log1p(-expected[0, 0]) / np.log1p(-p[0]))
            assert draws > 3
        of_draws.add(draws)
        counts = 3 * p if draws == 3 else 1 - (1 - p) ** draws
        np.testing.assert_allclose(expected[:, 0], counts, rtol=1e-4)
        np.testing.assert_allclose(of_sampled, counts[classes], rtol=1e-4)
    assert {3, 4, 5} <= of_draws


def test_independent_draws_count_by_probability(session: tb.Session) -> None:
    classes, of_true, of_sampled = session.run(tb.nn.uniform_candidate_sampler(TRUE, 2, 60_000, False, 6))
    np.testing.assert_allclose(np.bincount(classes) / 60_000, 1 / 6, atol=0.01)
    np.testing.assert_allclose(of_true, np.full((2, 2), 10_000))
    np.testing.assert_allclose(of_sampled, 10_000)
    unigrams = tb.nn.fixed_unigram_candidate_sampler(
        TRUE, 2, 40_000, False, 6, num_reserved_ids=2, unigrams=[1, 2, 3, 4]
    )
    classes, of_true, _ = session.run(unigrams)
    np.testing.assert_allclose(np.bincount(classes) / 40_000, [0, 0, 0.1, 0.2, 0.3, 0.4], atol=0.02)
    np.testing.assert_allclose(of_true, [[4000, 0], [16000, 0]])


def test_a_vocabulary_of_a_file_in_shards(session: tb.Session, tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("the,8\nof,4\nand,2\nto,1\n")
    path = str(tmp_path / "words.csv")
    arguments = (TRUE, 2, 4000, False)
    whole = tb.nn.fixed_unigram_candidate_sampler([[3]], 1, 4000, False, 4, vocab_file=path)
    second = tb.nn.fixed_unigram_candidate_sampler(
        [[0]], 1, 4000, False, 2, vocab_file=path, num_shards=2, shard=1
    )
    assert session.run(whole.true_expected_count) == pytest.approx(4000 / 15)
    assert session.run(second.true_expected_count) == pytest.approx(4000 * 4 / 5)
    (tmp_path / "words.csv").write_text("the,many")
    for more, words in (
        ({"vocab_file": path}, "expected each line to end in a comma and a count"),
        ({}, "give either vocab_file or unigrams"),
        ({"unigrams": [1, 2]}, "got counts of 2 classes, 2 of them above 0; expected those of all 4"),
        ({"unigrams": [1, 2], "num_shards": 2, "shard": 2}, "shard is 2, expected less than num_shards, 2"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            tb.nn.fixed_unigram_candidate_sampler(*arguments, 4, **more)  # type: ignore[arg-type]


def test_a_learned_sampler_follows_the_true_classes(session: tb.Session) -> None:
    true = tb.placeholder(tb.int64, [None, 1])
    sampled = tb.nn.learned_unigram_candidate_sampler(true, 1, 2, True, 4, seed=1)
    first = session.run(sampled, {true: [[3]] * 36})
    assert first.true_expected_count[0, 0] <= 0.68  # all are equal: at most 1 - (3/4)^draws of few draws
    classes, of_true, _ = session.run(sampled, {true: [[3]]})
    assert 3 in classes  # 37 of 40 draws
    assert of_true[0, 0] > 0.99
    again = tb.Session()
    assert again.run(sampled, {true: [[3]]}).true_expected_count[0, 0] == first.true_expected_count[0, 0]
    with pytest.raises(InvalidArgumentError, match="true classes from 4 to 4, expected numbers from 0 to 3"):
        session.run(sampled, {true: [[4]]})


def test_all_classes_and_accidental_hits(session: tb.Session) -> None:
    every = tb.nn.all_candidate_sampler(TRUE, 2, 5, True)
    hits = tb.nn.compute_accidental_hits(TRUE, [5, 3, 2, 0, 2], 2)
    (classes, of_true, of_sampled), (rows, columns, weights) = session.run([every, hits])
    assert classes.tolist() == [0, 1, 2, 3, 4]
    assert (of_true.tolist(), of_sampled.tolist()) == ([[1, 1], [1, 1]], [1] * 5)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 2), (0, 3), (0, 4), (1, 0)]
    assert (rows.dtype, columns.dtype) == (np.int32, np.int64)
    assert (weights == np.finfo(np.float32).min).all()


def test_losses_draw_different_classes_and_drop_hits(session: tb.Session) -> None:
    """With every class drawn once and hits removed, the sampled softmax is the full one up to counts."""
    rng = np.random.default_rng(0)
    weights, biases, inputs = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=(4, 3))
    labels = np.array([[1], [0], [4], [1]])
    arguments = tb.constant(weights), tb.constant(biases), labels, tb.constant(inputs), 5, 5
    kinds = {op.type for op in _made(lambda: tb.nn.sampled_softmax_loss(*arguments, seed=1))}
    assert "LogUniformCandidateSampler" in kinds
    sampled = tb.nn.log_uniform_candidate_sampler(labels, 1, 5, True, 5, seed=2)
    loss = tb.nn.sampled_softmax_loss(*arguments, sampled_values=sampled)
    got, (classes, of_true, of_sampled) = session.run([loss, sampled])
    logits = inputs @ weights.T + biases
    expected = logits[:, classes] - np.log(of_sampled)
    hits = classes[None] == labels
    true = (logits[np.arange(4), labels[:, 0]] - np.log(of_true[:, 0]))[:, None]
    total = np.exp(true).sum(1) + np.where(hits, 0, np.exp(expected)).sum(1)
    np.testing.assert_allclose(got, np.log(total) - true[:, 0], rtol=1e-5)


def _made(build: Any) -> list[Any]:
    graph = tb.get_default_graph()
    before = len(graph.get_operations())
    build()
    return graph.get_operations()[before:]


def test_more_different_classes_than_there_are() -> None:
    with pytest.raises(InvalidArgumentError, match="num_sampled is 7, expected at most the 6 classes, as"):
        tb.nn.uniform_candidate_sampler(TRUE, 2, 7, True, 6)
    with pytest.raises(InvalidArgumentError, match="num_sampled is 3, expected at most the 2 classes, as"):
        tb.nn.fixed_unigram_candidate_sampler(TRUE, 2, 3, True, 6, unigrams=[1, 0, 2, 0, 0, 0])


@pytest.mark.parametrize("name", ["nce_loss", "sampled_softmax_loss"])
@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.usefixtures("reference_kernels")
def test_weights_and_biases_in_parts(session: tb.Session, name: str, strategy: str) -> None:
    """The losses of three parts are those of the whole tables, by either way to cut them."""
    weights = np.linspace(-1, 1, 14, dtype=np.float32).reshape(7, 2)
    biases = np.array([3, -1, 4, 1, -5, 9, 2], np.float32)
    rows = [np.arange(part, 7, 3) for part in range(3)]
    if strategy == "div":
        rows = np.array_split(np.arange(7), 3)
    labels, inputs = np.array([[6], [1]]), np.array([[0.5, -1], [2, 0.25]], np.float32)
    sampled = (np.array([0, 5, 3]), np.full((2, 1), 0.4, np.float32), np.float32([0.7, 0.2, 0.3]))

    def loss(weights: Any, biases: Any, **more: Any) -> tb.Tensor:
        found: tb.Tensor = getattr(tb.nn, name)(
            weights, biases, labels, inputs, 3, 7, sampled_values=sampled, **more
        )
        return found

    tables = [[table[each] for each in rows] for table in (weights, biases)]
    more = {} if strategy == "mod" else {"partition_strategy": strategy}  # "mod" is the default
    whole, cut, numbers = loss(weights, biases), loss(*tables, **more), loss(weights, biases.tolist())
    found, expected, same = session.run([cut, whole, numbers])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(same, expected, rtol=1e-6)


def test_partitioned_variables_as_weights_and_biases(session: tb.Session) -> None:
    cut = tb.fixed_size_partitioner(2)
    weights = tb.get_variable("weights", initializer=np.eye(5, dtype=np.float32), partitioner=cut)
    biases = tb.get_variable("biases", initializer=np.arange(5, dtype=np.float32), partitioner=cut)
    sampled = (np.array([1, 4]), np.ones((1, 1), np.float32), np.ones(2, np.float32))
    inputs = np.float32([[0, 1, 2, 3, 4]])
    loss = tb.nn.sampled_softmax_loss(
        weights, biases, [[3]], inputs, 2, 5, sampled_values=sampled, partition_strategy="div"
    )
    gradients = map(tb.convert_to_tensor, tb.gradients(loss, [*biases]))
    session.run(tb.global_variables_initializer())
    scores = np.array([6.0, 2.0, 8.0])  # of 3, 1 and 4: the bias and the input
    chances = np.exp(scores) / np.exp(scores).sum()
    value, first, second = session.run([loss, *gradients])
    np.testing.assert_allclose(value, -np.log(chances[:1]), rtol=1e-5)
    np.testing.assert_allclose([*first, *second], [0, chances[1], 0, chances[0] - 1, chances[2]], atol=1e-6)
