"""CTC: losses from sparse labels, decoders against all paths, a model that learns, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.sample import normal
from tests.ops_contract.samples_ctc import labels_of_path, probabilities

pytestmark = pytest.mark.usefixtures("session")

SCORES = 2 * normal(5, 3, 4, seed=7)
LENGTHS = [5, 3, 0]


def rows(sparse: tb.SparseTensor, batch: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(batch)]
    for (b, i), value in zip(sparse.indices.tolist(), sparse.values.tolist(), strict=True):
        assert i == len(found[b])
        found[b].append(value)
    assert sparse.dense_shape.tolist() == [batch, max(map(len, found))]
    return found


def test_the_greedy_decoder_takes_the_best_class_of_each_step(session: tb.Session) -> None:
    for merges in (True, False):
        (decoded,), sums = tb.nn.ctc_greedy_decoder(SCORES, LENGTHS, merges)
        assert (decoded.dtype, decoded.shape.as_list(), sums.shape.as_list()) == (
            tb.int64,
            [None, None],
            [3, 1],
        )
        found, minus_scores = session.run([decoded, sums])
        paths = [tuple(SCORES[:n, b].argmax(1)) for b, n in enumerate(LENGTHS)]
        assert rows(found, 3) == [list(labels_of_path(path, 3, merges)) for path in paths]
        np.testing.assert_allclose(minus_scores[0, 0], -SCORES[:, 0].max(1).sum(), rtol=1e-5)
        assert minus_scores[2, 0] == 0


def test_a_wide_beam_finds_the_most_probable_labels(session: tb.Session) -> None:
    decoded, logs = tb.nn.ctc_beam_search_decoder(SCORES, LENGTHS, 2000, 4, merge_repeated=False)
    found, log_probabilities = session.run([decoded, logs])
    for b, steps in enumerate(LENGTHS[:2]):
        every = sorted(probabilities(SCORES[:steps, b]).items(), key=lambda item: -item[1])
        for number in range(4):
            assert rows(found[number], 3)[b] == list(every[number][0])
            assert np.exp(log_probabilities[b, number]) == pytest.approx(every[number][1], rel=1e-4)
    assert log_probabilities[2].tolist() == [0, -np.inf, -np.inf, -np.inf]


def test_a_narrow_beam_and_merged_results(session: tb.Session) -> None:
    scores = np.full((3, 1, 3), -9.0, np.float32)
    scores[[0, 2], 0, 1] = scores[1, 0, 2] = 0  # label, blank, label
    for merges, labels in ((False, [1, 1]), (True, [1])):
        decoded, _ = tb.nn.ctc_beam_search_decoder(scores, [3], 2, 1, merge_repeated=merges)
        assert rows(session.run(decoded[0]), 1) == [labels]


def test_a_model_learns_labels_without_alignment(session: tb.Session) -> None:
    w = tb.Variable(tb.zeros([6, 3, 4]))
    labels = tb.sparse_placeholder(tb.int32)
    loss = tb.reduce_mean(tb.nn.ctc_loss(labels, w, [6, 6, 4]))
    by_batch = tb.reduce_mean(tb.nn.ctc_loss(labels, tb.transpose(w, [1, 0, 2]), [6, 6, 4], time_major=False))
    train = tb.train.GradientDescentOptimizer(3.0).minimize(loss)
    decoded, _ = tb.nn.ctc_greedy_decoder(w, [6, 6, 4])
    feeds = {labels: tb.SparseTensorValue([[0, 0], [0, 1], [1, 0], [2, 0], [2, 1]], [2, 2, 0, 1, 0], [3, 2])}
    session.run(tb.global_variables_initializer())
    for _ in range(60):
        session.run(train, feeds)
    both = session.run([loss, by_batch], feeds)
    assert both[0] == both[1] < 0.2
    assert rows(session.run(decoded[0]), 3) == [[2, 2], [0], [1, 0]]


def test_refusals(session: tb.Session) -> None:
    def labels(values: list[int]) -> tb.SparseTensor:
        return tb.SparseTensor([[0, i] for i in range(len(values))], tb.constant(values, tb.int32), [3, 9])

    for given, lengths, words in (
        ([3], LENGTHS, "labels from 3 to 3, expected numbers from 0 to 2; class 3 is the blank"),
        ([0] * 6, LENGTHS, "example 0 has 6 labels and 5 steps"),
        ([0], [6, 0, 0], r"sequence_length \[6, 0, 0\], expected numbers from 0 to 5"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            session.run(tb.nn.ctc_loss(labels(given), SCORES, lengths))
    assert session.run(tb.nn.ctc_loss(labels([0, 0, 0]), SCORES, [4, 0, 0]))[0] == np.inf
    with pytest.raises(InvalidArgumentError, match="top_paths is 3, expected at most beam_width, 2"):
        tb.nn.ctc_beam_search_decoder(SCORES, LENGTHS, 2, 3)
    loss = tb.nn.ctc_loss(labels([0]), tb.Variable(SCORES), LENGTHS)
    (slope,) = tb.gradients(loss, tb.trainable_variables())
    with pytest.raises(tb.errors.UnimplementedError, match="CTCLoss has no second derivative"):
        tb.gradients(slope, tb.trainable_variables())
