"""C types of element indices, in a kernel's loops and in its arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

LARGE = 1 << 30  # elements from which on int overflows in a grid's loop


class IndexType(NamedTuple):
    """The C type, and the NumPy type of an argument."""

    name: str
    make: type[np.signedinteger[Any]]

    def array(self, values: Iterable[int]) -> np.ndarray[Any, np.dtype[Any]]:
        """A kernel argument: a struct of indices only."""
        return np.array(list(values), self.make)


def index_for(*counts: int) -> IndexType:
    """The index type for arrays of that many elements; a grid loop's overshoot fits too."""
    return IndexType("int", np.int32) if max(counts) < LARGE else IndexType("long long", np.int64)
