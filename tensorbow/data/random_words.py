"""Counter-based random words, a pure function of a key: the source of all shuffles and augmentation here.

Only the raw words of NumPy's Philox4x64 are used. NumPy guarantees that these never change, unlike
`Generator.permutation` and the like, so a resumed run has the same order with any version of NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

BLOCK = 4  # words of a step of Philox's counter
STREAM_BITS = 128  # of the counter, below the number of the stream


class Purpose(IntEnum):
    """Purpose of random words: the highest word of the counter, so that purposes never share words."""

    BATCH_ORDER = 1
    DIGITS_SPLIT = 2
    SYNTHETIC_PATTERN = 3
    SYNTHETIC_EXAMPLES = 4
    AUGMENTATION = 5
    SPLIT = 6
    MORE_AUGMENTATION = 7
    WORD_TEXT = 8


def random_words(count: int, purpose: Purpose, key: tuple[int, int], stream: int = 0) -> NDArray[np.uint64]:
    """First `count` words, uint64 [count], of (purpose, key, stream); each part is in 0..2**64-1."""
    words: NDArray[np.uint64] = _generator(purpose, key, stream).random_raw(count)
    return words


def _generator(purpose: Purpose, key: tuple[int, int], stream: int) -> np.random.Philox:
    return np.random.Philox(
        counter=np.array([0, 0, stream, purpose], np.uint64), key=np.array(key, dtype=np.uint64)
    )


def random_words_of_streams(
    count: int, purpose: Purpose, streams: Iterable[tuple[tuple[int, int], int]]
) -> NDArray[np.uint64]:
    """`random_words` of many (key, stream), uint64 [streams, count]: faster where they share a key."""
    blocks = -(-count // BLOCK)
    generators: dict[tuple[int, int], tuple[np.random.Philox, int]] = {}  # by key, with the stream drawn last
    rows: list[NDArray[np.uint64]] = []
    for key, stream in streams:
        if key in generators:
            generator, last = generators[key]
            generator.advance(((stream - last) << STREAM_BITS) - blocks)
        else:
            generator = _generator(purpose, key, stream)
        generators[key] = generator, stream
        rows.append(generator.random_raw(count))
    return np.array(rows, np.uint64).reshape(-1, count)


def random_bytes(count: int, purpose: Purpose, key: tuple[int, int]) -> NDArray[np.uint8]:
    """Random words of stream 0 as bytes, uint8 [count], in little-endian order on every machine."""
    words = random_words(-(-count // 8), purpose, key)
    return words.astype("<u8", copy=False).view(np.uint8)[:count]


def permutation(count: int, purpose: Purpose, key: tuple[int, int]) -> NDArray[np.int64]:
    """Uniform random permutation of 0..count-1, int64 [count]: the order that sorts `count` random words."""
    words = random_words(count, purpose, key)
    order = np.argsort(words)  # ten times as fast as a stable sort, and the same if no words are equal
    ordered = words[order]
    if (ordered[1:] == ordered[:-1]).any():
        order = np.argsort(words, kind="stable")
    return order.astype(np.int64, copy=False)
