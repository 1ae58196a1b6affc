"""Index types: what elements are counted in, by a kernel's loops and by its arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

LARGE = 1 << 30  # elements from which on an int does not hold every index of a grid's loop


class IndexType(NamedTuple):
    """The C type, and the NumPy type of an argument."""

    name: str
    make: type[np.signedinteger[Any]]

    def array(self, values: Iterable[int]) -> np.ndarray[Any, np.dtype[Any]]:
        """A kernel's argument that is a struct of indices only."""
        return np.array(list(values), self.make)


def index_for(*counts: int) -> IndexType:
    """The type for arrays of so many elements, and a loop's step beyond."""
    return IndexType("int", np.int32) if max(counts) < LARGE else IndexType("long long", np.int64)
