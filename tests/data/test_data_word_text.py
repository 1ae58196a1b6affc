"""Data sets of made-up words: sizes, frequencies, what follows what, and the same text everywhere."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.data.word_text import SUCCESSORS
from tensorbow.errors import ResourceExhaustedError


def test_sequences_and_their_next_words():
    train, test = tb.data.make_word_text(300, 30_000, 3_000, steps=15)
    assert (len(train), len(test), train.classes) == (2000, 200, 300)
    assert train.inputs.shape == train.labels.shape == (2000, 15)
    np.testing.assert_array_equal(train.inputs[:, 1:], train.labels[:, :-1])
    assert not {*map(bytes, train.inputs)} & {*map(bytes, test.inputs)}
    first = np.bincount(train.inputs[:, 0], minlength=300)
    expected = 1 / (np.arange(300) + 2)
    expected *= 2000 / expected.sum()
    assert np.abs(first[:5] - expected[:5]).max() < 5 * np.sqrt(expected[0])


def test_three_of_four_words_are_successors_of_the_one_before():
    train, _ = tb.data.make_word_text(300, 60_000, 20)
    after = np.zeros((300, 300))
    np.add.at(after, (train.inputs.ravel(), train.labels.ravel()), 1)
    often = after[after.sum(1) > 500]
    most = np.sort(often, axis=1)[:, ::-1]
    shares = most[:, :SUCCESSORS].sum() / often.sum()
    assert 0.74 < shares < 0.9  # and those of the others that happen to be the same words


def test_the_bytes_are_fixed():
    train, test = tb.data.make_word_text(1000, 2000, 400)
    found = [zlib.crc32(each.astype("<i4").tobytes()) for each in (train.inputs, test.labels)]
    assert found == [0x5B0FF8C2, 0x8ED55E61]
    with pytest.raises(ResourceExhaustedError, match="at most 134,217,728 words"):
        tb.data.make_word_text(1 << 30)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "classes"), [("words", 10_000), ("words-40k", 40_000)])
def test_the_data_sets(name, classes):
    train, test = tb.data.load(name)
    assert (len(train), len(test), train.classes) == (45_000, 4_000, classes)
    assert train.inputs.max() < classes
