"""Checks of the inputs of host functions that read files: scalar strings, paths."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import Array, TensorSpec
from tensorbow.string_ops.elements import require_strings, scalar_of


def require_scalars(op: str, inputs: Sequence[TensorSpec], names: Sequence[str]) -> None:
    """Raises InvalidArgumentError unless the specs are of scalar strings."""
    for spec, what in zip(inputs, names, strict=True):
        require_strings(op, spec, what)
        if spec.shape not in ((), None):
            raise InvalidArgumentError(f"{op}: {what} is {spec}, expected a scalar")


def path_of(op: str, what: str, array: Array) -> str:
    """The path that a scalar string spells. Raises InvalidArgumentError."""
    text: bytes = scalar_of(op, what, array)
    if b"\0" in text or not text:
        raise InvalidArgumentError(f"{op}: {what} is {text!r:.80}, expected a path")
    return os.fsdecode(text)
