"""Philox 4x32-10, the counter-based generator of Salmon et al. (SC 2011, section 3.3), exactly.

A block of four 32-bit words is a pure function of a counter (four words) and a key (two words).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensorbow.specs import Array

WORD = (1 << 32) - 1
ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key after each round

_MULTIPLIER_COLUMN = np.array(MULTIPLIERS, np.uint64).reshape(2, 1)
_MULTIPLIER_COLUMN.flags.writeable = False
_LOW = np.uint64(WORD)
_HALF = np.uint64(32)


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """One block in plain integers: the reference definition."""
    first, second, third, fourth = counter
    for round_key in key_schedule(key):
        left, right = MULTIPLIERS[0] * first, MULTIPLIERS[1] * third
        first, second = (right >> 32) ^ second ^ round_key[0], right & WORD
        third, fourth = (left >> 32) ^ fourth ^ round_key[1], left & WORD
    return first, second, third, fourth


def key_schedule(key: tuple[int, int]) -> list[tuple[int, int]]:
    """The key of each round."""
    return [((key[0] + i * WEYL[0]) & WORD, (key[1] + i * WEYL[1]) & WORD) for i in range(ROUNDS)]


def stream_key(seed: int, op_seed: int, random_stream: int) -> tuple[int, int]:
    """The key of one op in one random stream: two words that depend on all bits of the three numbers.

    They are the first words of the block whose counter is the two seeds (64 bits each) and whose
    key is the stream's number, so streams of different seeds or numbers are independent.
    """
    counter = (seed & WORD, seed >> 32 & WORD, op_seed & WORD, op_seed >> 32 & WORD)
    words = philox(counter, (random_stream & WORD, random_stream >> 32 & WORD))
    return words[0], words[1]


@dataclass(frozen=True)
class PhiloxBlocks:
    """Many blocks at once, in given buffers uint64 [2, blocks]; words are in the elements' lower halves."""

    even: Array  # first and third words
    odd: Array  # second and fourth words
    product: Array
    index: Array  # 0, 1, 2, ...: uint64 [blocks]
    schedule: Array  # the key of each round: uint64 [rounds, 2, 1]

    @classmethod
    def over(cls, even: Array, odd: Array, product: Array) -> PhiloxBlocks:
        """Blocks that use three given buffers."""
        index = np.arange(even.shape[1], dtype=np.uint64)
        return cls(even, odd, product, index, np.zeros((ROUNDS, 2, 1), np.uint64))

    def set_key(self, key: tuple[int, int]) -> None:
        """Sets the key of the blocks filled from now on."""
        self.schedule[..., 0] = key_schedule(key)

    def fill(self, start: int, count: int, attempt: int, step: int) -> tuple[Array, Array, Array, Array]:
        """Blocks start, start + 1, ... of a step: their first, second, third and fourth words, each [count].

        Block i has the counter (i, attempt, low word of step, high word of step).
        """
        even, odd, product = self.even[:, :count], self.odd[:, :count], self.product[:, :count]
        np.add(self.index[:count], np.uint64(start), out=even[0])
        odd[0].fill(attempt)
        even[1].fill(step & WORD)
        odd[1].fill(step >> 32 & WORD)
        crossed = product[::-1]
        for round_key in self.schedule:
            np.multiply(even, _MULTIPLIER_COLUMN, out=product)
            np.right_shift(crossed, _HALF, out=even)
            np.bitwise_xor(even, odd, out=even)
            np.bitwise_xor(even, round_key, out=even)
            np.bitwise_and(crossed, _LOW, out=odd)
        return even[0], odd[0], even[1], odd[1]
