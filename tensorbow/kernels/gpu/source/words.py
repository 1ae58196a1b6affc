"""Moving elements without looking at them: words as wide as extents and addresses allow."""

from __future__ import annotations

from collections.abc import Iterable

# By bytes. A type of 16 bytes is made here, as the built-in ones are no plain C++.
WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long", 16: "Quad"}
QUAD = "struct alignas(16) Quad { unsigned int x, y, z, w; };\n"


def elements_per_word(itemsize: int, addresses: Iterable[int], counts: Iterable[int]) -> int:
    """Elements that can be moved as one: all counts (extents, strides, offsets) are multiples of it.

    The addresses are aligned to the word then.
    """
    addresses, counts = list(addresses), list(counts)
    elements = 16 // itemsize
    while elements > 1 and (
        any(address % (elements * itemsize) for address in addresses)
        or any(count % elements for count in counts)
    ):
        elements //= 2
    return elements
