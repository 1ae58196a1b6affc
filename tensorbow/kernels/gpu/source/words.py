"""Copies in words as wide as extents and addresses allow."""

from __future__ import annotations

from collections.abc import Iterable

# C types by bytes. The 16-byte type is declared here, as the built-in ones are not plain C++.
WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long", 16: "Quad"}
QUAD = "struct alignas(16) Quad { unsigned int x, y, z, w; };\n"


def elements_per_word(itemsize: int, addresses: Iterable[int], counts: Iterable[int]) -> int:
    """Elements per word such that all counts (extents, strides, offsets) are multiples of it.

    The addresses are then aligned to the word.
    """
    addresses, counts = list(addresses), list(counts)
    elements = 16 // itemsize
    while elements > 1 and (
        any(address % (elements * itemsize) for address in addresses)
        or any(count % elements for count in counts)
    ):
        elements //= 2
    return elements
