"""Data sets `words` and `words-40k`: text of made-up words, as much as the Penn Treebank, without files.

Words are numbered by falling frequency, and word k is drawn with a probability proportional to 1 / (k + 2)
(Zipf's law). After each word, three of four are one of its few successors, so that a model can learn from the
word before. It is integer arithmetic on counter-based random words: the same text on every machine.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from tensorbow.data.array_dataset import ArrayDataset
from tensorbow.data.random_words import Purpose, random_words
from tensorbow.errors import ResourceExhaustedError
from tensorbow.kinds import AsPath, Positive, checked

STEPS = 20  # words of a sequence: as many as gradients go back in Zaremba et al. (2014)
TRAINED, HELD_OUT = 900_000, 80_000  # words
SUCCESSORS = 4  # of a word, with shares of 3/8, 3/16, 3/32 and 3/32
MOST_WORDS = 1 << 27
_WHOLE = 1 << 40  # of which a word's weight is a share


def _frequencies(vocabulary: int) -> NDArray[np.int64]:
    """Cumulative weights of the words, int64 [vocabulary]."""
    cumulative: NDArray[np.int64] = np.cumsum(_WHOLE // (np.arange(vocabulary, dtype=np.int64) + 2))
    return cumulative


def _drawn(words: NDArray[np.uint64], frequencies: NDArray[np.int64]) -> NDArray[np.int64]:
    """Words of the vocabulary by their frequencies, from random words."""
    places = (words % np.uint64(frequencies[-1])).astype(np.int64)
    found: NDArray[np.int64] = np.searchsorted(frequencies, places, side="right")
    return found


def _sequences(vocabulary: int, count: int, steps: int, split: int) -> NDArray[np.int32]:
    """Texts that do not follow each other, int32 [count, steps + 1]."""
    frequencies = _frequencies(vocabulary)
    purpose = Purpose.WORD_TEXT
    chosen = random_words(vocabulary * SUCCESSORS, purpose, (vocabulary, 0))
    successors = _drawn(chosen, frequencies).reshape(vocabulary, SUCCESSORS)
    text = np.empty((steps + 1, count), np.int64)
    draws = random_words((steps + 1) * count, purpose, (vocabulary, 1 + split)).reshape(steps + 1, count)
    kinds = random_words((steps + 1) * count, purpose, (vocabulary, 3 + split)).reshape(steps + 1, count)
    text[0] = _drawn(draws[0], frequencies)
    for step in range(1, steps + 1):
        kind = (kinds[step] % np.uint64(32)).astype(np.int64)
        number = np.searchsorted([12, 18, 21, 24], kind, side="right")  # SUCCESSORS: none of them
        follows = number < SUCCESSORS
        after = successors[text[step - 1], np.minimum(number, SUCCESSORS - 1)]
        text[step] = np.where(follows, after, _drawn(draws[step], frequencies))
    return np.ascontiguousarray(text.T, dtype=np.int32)


@checked
def make_word_text(
    vocabulary: Positive = 10_000,
    train_words: Positive = TRAINED,
    test_words: Positive = HELD_OUT,
    *,
    steps: Positive = STEPS,
) -> tuple[ArrayDataset, ArrayDataset]:
    """Training and test split: sequences int32 [n, steps] of words, and as labels the words that follow.

    vocabulary: number of words, the data set's classes. The same arguments give the same text. Raises
    ResourceExhaustedError for more than 134,217,728 words, or a vocabulary of more.
    """
    if max(vocabulary * SUCCESSORS, train_words + test_words + 2 * steps) > MOST_WORDS:
        raise ResourceExhaustedError(
            f"make_word_text: at most {MOST_WORDS:,} words are made, and a vocabulary of a quarter; got "
            f"{train_words + test_words:,} words of {vocabulary:,}"
        )
    found = []
    for split, (name, words) in enumerate((("train", train_words), ("test", test_words))):
        text = _sequences(vocabulary, -(-words // steps), steps, split)
        inputs, labels = (np.ascontiguousarray(text[:, at : at + steps]) for at in (0, 1))
        found.append(ArrayDataset(inputs, labels, name=f"words/{name}", classes=vocabulary))
    return found[0], found[1]


@checked
def load_word_text(
    data_dir: AsPath | None = None, *, vocabulary: Positive = 10_000
) -> tuple[ArrayDataset, ArrayDataset]:
    """Training and test split: 900,000 and 80,000 words in sequences of 20. Ignores `data_dir`."""
    return make_word_text(vocabulary)


load_large_word_text = partial(load_word_text, vocabulary=40_000)
