"""Methods of variables for some of their rows or positions, under TensorFlow 1's names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeAlias

from tensorbow.graph import OpDef, Tensor, as_tensor
from tensorbow.kinds import Flag, Name, checked, instance
from tensorbow.ops.indexed_slices import IndexedSlices, IndexedSlicesValue

AsSlices: TypeAlias = Annotated[
    IndexedSlices | IndexedSlicesValue,
    instance(IndexedSlices, IndexedSlicesValue, expected="rows as tb.IndexedSlices(values, indices)"),
]


def of_slices(name: str, write: Callable[..., Tensor], text: str) -> Callable[..., Tensor]:
    """A method that calls `write(variable, indices, rows, name=...)` with the rows of an IndexedSlices.

    text: begins its docstring, as "Adds to".
    """

    def method(self: Any, sparse_delta: AsSlices, use_locking: Flag = False, name: Name = None) -> Tensor:
        return write(self, sparse_delta.indices, sparse_delta.values, name=name)

    return _method(
        method,
        name,
        f"{text} the rows of a `tb.IndexedSlices`, see `tb.{name}`; gives the variable's new value.\n\n"
        "Arrays, and indices of several axes, are given as a `tb.IndexedSlicesValue`.",
    )


def of_positions(name: str, write: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A method that calls `write(variable, indices, updates, name=...)`."""

    def method(self: Any, indices: Any, updates: Any, name: Name = None) -> Tensor:
        return write(self, indices, updates, name=name)

    return _method(method, name, f"`tb.{name}` of this variable.")


def reading(name: str, read: Callable[..., Tensor], text: str) -> Callable[..., Tensor]:
    """A method that calls `read(variable, indices, name=...)`; text: its docstring."""

    def method(self: Any, indices: Any, name: Name = None) -> Tensor:
        return read(self, indices, name=name)

    return _method(method, name, text)


def skipping_unused(definition: OpDef) -> Callable[..., Tensor]:
    """Writer of the rows of an IndexedSlices, of which those with the index -1 stand for none."""
    return partial(_write_used, definition)


def _write_used(definition: OpDef, ref: Any, indices: Any, rows: Any, name: str | None) -> Tensor:
    with ref.graph.as_default():
        return definition.tensor(ref, indices, as_tensor(rows, ref.dtype), name=name, allow_unused=True)


def _method(function: Callable[..., Tensor], name: str, doc: str) -> Callable[..., Tensor]:
    function.__name__, function.__qualname__, function.__doc__ = name, f"Variable.{name}", doc
    return checked(function)
