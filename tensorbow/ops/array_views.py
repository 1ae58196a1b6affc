"""Views of arrays for reference kernels, made when a kernel is bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InternalError
from tensorbow.specs import Array

Copy = tuple[Array, Array]  # (to, from), copied at the begin of every step


def as_vector(array: Array) -> Array:
    """A view [elements]. Raises InternalError for an array that is not contiguous."""
    return _require_contiguous(array).reshape(-1)


def as_matrix(array: Array) -> Array:
    """A view [rows, last extent]. Raises InternalError for an array that is not contiguous."""
    return _require_contiguous(array).reshape(math.prod(array.shape[:-1]), array.shape[-1])


def _require_contiguous(array: Array) -> Array:
    if not array.flags.c_contiguous:
        raise InternalError(f"an array of shape {list(array.shape)} is not contiguous in memory")
    return array


def packed(array: Array, copies: list[Copy]) -> Array:
    """The array if it is contiguous; else a new buffer, whose copy is added to `copies`.

    Plans lay tensors out contiguously, so steps copy nothing; arrays of users may be strided.
    """
    if array.flags.c_contiguous:
        return array
    buffer = np.empty(array.shape, array.dtype)
    copies.append((buffer, array))
    return buffer


def after(copies: Sequence[Copy], step: Callable[[], Any]) -> Callable[[], None]:
    """A step that first makes the copies."""
    if not copies:
        return step

    def both() -> None:
        for to, source in copies:
            np.copyto(to, source)
        step()

    return both
