"""Moving elements without looking at them: words as wide as extents and addresses allow, and index types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

# By bytes. A type of 16 bytes is made here, as the built-in ones are no plain C++.
WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long", 16: "Quad"}
QUAD = "struct alignas(16) Quad { unsigned int x, y, z, w; };\n"
MAXIMUM_INT = 2**30  # indices of loops are at most so far from the end of int when they pass the count


def index_type(*counts: int) -> str:
    """The C type of indices into arrays of so many elements."""
    return "int" if max(counts) < MAXIMUM_INT else "long long"


def index_array(index: str, values: Iterable[int]) -> np.ndarray[Any, np.dtype[Any]]:
    """A kernel's argument that is a struct of indices only."""
    return np.array(list(values), np.int32 if index == "int" else np.int64)


def index_value(index: str, value: int) -> np.ndarray[Any, np.dtype[Any]]:
    """A kernel's argument of the index type."""
    return np.array(value, np.int32 if index == "int" else np.int64)


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
