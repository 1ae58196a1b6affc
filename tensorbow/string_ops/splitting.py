"""Ops that take strings apart: split, substrings, length, and those that strip or change letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.call_errors import UnfitError
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, HostCall, Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import Flag, Name, checked, one_of
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.specs import Array, TensorSpec, int32, int64, string
from tensorbow.string_ops.elements import (
    Map,
    as_strings,
    define_map,
    joint_dims,
    require_strings,
    scalar_of,
    shown_text,
)

__all__ = ["string_length", "string_lower", "string_split", "string_strip", "string_upper", "substr"]

LengthUnit: TypeAlias = Annotated[str, one_of("BYTE", "UTF8_CHAR", any_case=True)]
Encoding: TypeAlias = Annotated[str, one_of("", "utf-8", any_case=True)]


def _decoded(op: str, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"{op}: {shown_text(value)} is no UTF-8 at byte {error.start}; count in unit BYTE"
        ) from None


# Split --------------------------------------------------------------------------------------------


def _split_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    source, delimiter = inputs
    require_strings("StringSplit", source, "source")
    require_strings("StringSplit", delimiter, "delimiter")
    if source.shape is not None and len(source.shape) != 1:
        raise InvalidArgumentError(f"StringSplit: source is {source}, expected a vector; use tb.reshape")
    return [TensorSpec((None, 2), int64), TensorSpec((None,), string), TensorSpec((2,), int64)]


def _parts(text: bytes, delimiter: bytes) -> list[bytes]:
    """The parts between any of the delimiter's bytes; each byte, if it has none."""
    if not delimiter:
        return [text[at : at + 1] for at in range(len(text))]
    for other in delimiter[1:]:
        text = text.replace(bytes([other]), delimiter[:1])
    return text.split(delimiter[:1])


def _split(call: HostCall) -> list[Array]:
    source, delimiter = call.inputs[0], scalar_of("StringSplit", "delimiter", call.inputs[1])
    indices, values, most = [], [], 0
    for row, text in enumerate(source.tolist()):
        parts = _parts(text, delimiter)
        if call.attrs["skip_empty"]:
            parts = [part for part in parts if part]
        indices += [(row, column) for column in range(len(parts))]
        values += parts
        most = max(most, len(parts))
    found: Array = np.empty(len(values), object)
    found[:] = values
    return [np.array(indices, np.int64).reshape(-1, 2), found, np.array([len(source), most], np.int64)]


StringSplit = define_op(
    "StringSplit",
    spec=_split_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("source", "delimiter"),
    attrs={"skip_empty": True},
    host=_split,
    strings=True,
    doc="The parts of each string of a vector, as a sparse matrix.",
)


@checked
def string_split(
    source: Any, delimiter: Any = " ", skip_empty: Flag = True, name: Name = None
) -> SparseTensor:
    """The parts of each string of a vector, as a SparseTensor [n, most parts].

    delimiter: a scalar; each of its bytes divides strings. An empty one gives the bytes of each string.
    skip_empty: leaves empty parts out.
    """
    with graph_of([source, delimiter]).as_default(), name_scope(name or "StringSplit"):
        parts = StringSplit(as_strings(source), as_strings(delimiter), skip_empty=skip_empty)
        return SparseTensor(*parts)


# Substrings and length ----------------------------------------------------------------------------


def _substr_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_strings("Substr", inputs[0])
    for spec, what in zip(inputs[1:], ("pos", "len"), strict=True):
        require_dtype("Substr", spec, (int32, int64), what)
    require_same_dtype("Substr", inputs[1:])
    return TensorSpec(joint_dims(inputs), string)


def _substr(call: HostCall) -> Array:
    texts, starts, lengths = np.broadcast_arrays(*call.inputs)
    counts_bytes = call.attrs["unit"] == "BYTE"
    found: Array = np.empty(texts.size, object)
    rows = zip(*(each.ravel().tolist() for each in (texts, starts, lengths)), strict=True)
    for index, (text, start, length) in enumerate(rows):
        whole: Any = text if counts_bytes else _decoded("Substr", text)
        first = start + len(whole) if start < 0 else start
        if not 0 <= first <= len(whole) or length < 0:
            raise InvalidArgumentError(
                f"Substr: pos {start}, len {length} is not in {shown_text(text)} of length {len(whole)}"
            )
        part = whole[first : first + length]
        found[index] = part if counts_bytes else part.encode()
    return found.reshape(texts.shape)


Substr = define_op(
    "Substr",
    spec=_substr_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("input", "pos", "len"),
    attrs={"unit": "BYTE"},
    host=_substr,
    strings=True,
    doc="A part of each string.",
)


@checked
def substr(input: Any, pos: Any, len: Any, name: Name = None, unit: LengthUnit = "BYTE") -> Tensor:
    """The part of each string that begins at `pos` and has at most `len` bytes, or characters of UTF-8.

    pos, len: int32 or int64, of one dtype; the shapes broadcast. A negative `pos` counts from the end.

    Raises InvalidArgumentError, when it runs, for a position that is not in the string.
    """
    with graph_of([input, pos, len]).as_default():
        first = as_tensor(pos)
        if first.dtype not in (int32, int64):
            raise UnfitError(f"it is {first.spec}, expected int32 or int64", pos)
        result: Tensor = Substr(as_strings(input), first, as_tensor(len, first.dtype), unit=unit, name=name)
    return result


def _length_of(attrs: Attrs) -> Map:
    return len if attrs["unit"] == "BYTE" else lambda text: len(_decoded("StringLength", text))


StringLength = define_map(
    "StringLength", _length_of, result=int32, attrs={"unit": "BYTE"}, doc="The length of each string."
)


@checked
def string_length(input: Any, name: Name = None, unit: LengthUnit = "BYTE") -> Tensor:
    """The length of each string, int32, in bytes or characters of UTF-8 (unit UTF8_CHAR)."""
    return StringLength.tensor(as_strings(input), unit=unit, name=name)


# Letters ------------------------------------------------------------------------------------------


def _changed(op: str, of_bytes: Map, of_text: Callable[[str], str]) -> Callable[[Attrs], Map]:
    def function(attrs: Attrs) -> Map:
        return of_bytes if not attrs["encoding"] else lambda text: of_text(_decoded(op, text)).encode()

    return function


StringLower = define_map(
    "StringLower", _changed("StringLower", bytes.lower, str.lower), attrs={"encoding": ""}
)
StringUpper = define_map(
    "StringUpper", _changed("StringUpper", bytes.upper, str.upper), attrs={"encoding": ""}
)
StringStrip = define_map("StringStrip", lambda attrs: bytes.strip)


@checked
def string_lower(input: Any, encoding: Encoding = "", name: Name = None) -> Tensor:
    """Each string in lower case: the letters of ASCII, with encoding "utf-8" those of Unicode."""
    return StringLower.tensor(as_strings(input), encoding=encoding, name=name)


@checked
def string_upper(input: Any, encoding: Encoding = "", name: Name = None) -> Tensor:
    """Each string in upper case: the letters of ASCII, with encoding "utf-8" those of Unicode."""
    return StringUpper.tensor(as_strings(input), encoding=encoding, name=name)


@checked
def string_strip(input: Any, name: Name = None) -> Tensor:
    """Each string without spaces, tabs and line ends before and after it."""
    return StringStrip.tensor(as_strings(input), name=name)
