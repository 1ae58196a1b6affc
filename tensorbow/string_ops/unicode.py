"""Texts in other encodings, as numbers of characters, and character by character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.call_errors import UnfitError
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall, Tensor, as_tensor, name_scope
from tensorbow.kinds import TEXT, Flag, Kind, Name, RefusedError, checked, one_of, whole
from tensorbow.ops.definition import define_op
from tensorbow.ops.sparse_dense import sparse_tensor_to_dense
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.specs import Array, TensorSpec, int32, int64, string
from tensorbow.string_ops.elements import Map, as_strings, define_map, require_strings, shown_text

__all__ = ["unicode_decode", "unicode_encode", "unicode_split", "unicode_transcode"]

UNKNOWN = 0xFFFD  # the character in place of what is none
LAST = 0x10FFFF
_CONTROLS = [*range(0x20)]


def _read_encoding(value: Any) -> str:
    name: str = TEXT.read(value).replace(" ", "-")
    try:
        b"a".decode(name, "ignore")  # the registry has codecs of other things than texts, too, as "hex"
    except (LookupError, ValueError):
        raise RefusedError from None
    return name


InputEncoding: TypeAlias = Annotated[str, Kind("the name of an encoding, as 'UTF-8'", _read_encoding)]
OutputEncoding: TypeAlias = Annotated[str, one_of("UTF-8", "UTF-16-BE", "UTF-32-BE", any_case=True)]
Errors: TypeAlias = Annotated[str, one_of("replace", "strict", "ignore")]
Character: TypeAlias = Annotated[int, whole(0, LAST)]
_ATTRIBUTES = {
    "input_encoding": REQUIRED,
    "errors": "replace",
    "replacement_char": UNKNOWN,
    "replace_control_characters": False,
}


def _text_of(op: str, value: bytes, attrs: Attrs) -> str:
    """The characters of a string in its encoding. Raises InvalidArgumentError for bytes that are none."""
    errors, other = attrs["errors"], attrs["replacement_char"]
    if errors == "replace":
        errors = f"tensorbow-replace-{other}"
        codecs.register_error(errors, lambda error: (chr(other), error.end))  # type: ignore[attr-defined]
    try:
        text = value.decode(attrs["input_encoding"], errors)
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"{op}: {shown_text(value)} is no {attrs['input_encoding']} at byte {error.start}; give "
            "errors='replace' or 'ignore'"
        ) from None
    if attrs["replace_control_characters"]:
        text = text.translate(dict.fromkeys(_CONTROLS, other))
    return text


def _bytes_of(op: str, numbers: Sequence[int], attrs: Attrs) -> bytes:
    """Characters in the output encoding. Raises InvalidArgumentError for numbers that are no characters."""
    characters = []
    for number in numbers:
        if 0 <= number <= LAST and not 0xD800 <= number < 0xE000:
            characters.append(chr(number))
        elif attrs["errors"] == "strict":
            raise InvalidArgumentError(
                f"{op}: {number} is the number of no character; give errors='replace' or 'ignore'"
            )
        elif attrs["errors"] == "replace":
            characters.append(chr(attrs["replacement_char"]))
    return "".join(characters).encode(attrs["output_encoding"], "replace")


def _transcoding(attrs: Attrs) -> Map:
    op = "UnicodeTranscode"
    return lambda value: _bytes_of(op, [*map(ord, _text_of(op, value, attrs))], attrs)


UnicodeTranscode = define_map(
    "UnicodeTranscode",
    _transcoding,
    attrs={**_ATTRIBUTES, "output_encoding": REQUIRED},
    doc="Each string in another encoding.",
)


def _rows_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    require_strings("UnicodeDecode", inputs[0])
    values = TensorSpec((None,), string if attrs["splits"] else int32)
    return [TensorSpec((None, 2), int64), values, TensorSpec((2,), int64)]


def _rows(call: HostCall) -> list[Array]:
    """The characters of each string, as a sparse matrix."""
    attrs = call.attrs
    texts = [_text_of("UnicodeDecode", value, attrs) for value in call.inputs[0].ravel().tolist()]
    indices = [(row, column) for row, text in enumerate(texts) for column in range(len(text))]
    every = "".join(texts)
    if attrs["splits"]:
        values: Array = np.empty(len(every), object)
        values[:] = [each.encode(attrs["input_encoding"], "replace") for each in every]
    else:
        values = np.array([ord(each) for each in every], np.int32)
    shape = [len(texts), max(map(len, texts), default=0)]
    return [np.array(indices, np.int64).reshape(-1, 2), values, np.array(shape, np.int64)]


UnicodeDecode = define_op(
    "UnicodeDecode",
    spec=_rows_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("input",),
    attrs={**_ATTRIBUTES, "splits": False},
    host=_rows,
    strings=True,
    doc="The characters of each string, as numbers or strings, as a sparse matrix.",
)


def _encode_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (numbers,) = inputs
    if not numbers.dtype.is_integer:
        raise InvalidArgumentError(f"UnicodeEncode: input is {numbers}, expected whole numbers of characters")
    if numbers.shape == ():
        raise InvalidArgumentError("UnicodeEncode: input is a scalar, expected [..., characters]")
    return TensorSpec(None if numbers.shape is None else numbers.shape[:-1], string)


def _encode(call: HostCall) -> Array:
    numbers = call.inputs[0]
    found: Array = np.empty(numbers.shape[:-1], object)
    for place in np.ndindex(found.shape):
        row = numbers[place].tolist()
        found[place] = _bytes_of("UnicodeEncode", [each for each in row if each != ABSENT], call.attrs)
    return found


ABSENT = -(1 << 31)  # in place of the characters that a shorter row lacks
UnicodeEncode = define_op(
    "UnicodeEncode",
    spec=_encode_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("input",),
    attrs={"output_encoding": "UTF-8", "errors": "replace", "replacement_char": UNKNOWN},
    host=_encode,
    strings=True,
    doc="The string of the characters along the last axis.",
)


def _characters(input: Any, splits: bool, name: str | None, **attrs: Any) -> Tensor | SparseTensor:
    texts = as_strings(input)
    rank = texts.shape.ndims
    if rank not in (0, 1):
        raise UnfitError(f"it is {texts.spec}, expected a scalar or a vector; use tb.reshape", input)
    with texts.graph.as_default(), name_scope(name or ("unicode_split" if splits else "unicode_decode")):
        indices, values, dense_shape = UnicodeDecode(texts, splits=splits, **attrs)
        return values if rank == 0 else SparseTensor(indices, values, dense_shape)


@checked
def unicode_decode(
    input: Any,
    input_encoding: InputEncoding,
    errors: Errors = "replace",
    replacement_char: Character = UNKNOWN,
    replace_control_characters: Flag = False,
    name: Name = None,
) -> Any:
    """The numbers of each string's characters, int32.

    Of a scalar a vector, of a vector a SparseTensor [n, most].
    errors: of bytes that are no character, which are replaced by `replacement_char`, left out, or raise
    InvalidArgumentError ("strict"). replace_control_characters: replaces those below 32, too.
    """
    options = {"errors": errors, "replacement_char": replacement_char}
    options |= {"replace_control_characters": replace_control_characters}
    return _characters(input, False, name, input_encoding=input_encoding, **options)


@checked
def unicode_split(
    input: Any,
    input_encoding: InputEncoding,
    errors: Errors = "replace",
    replacement_char: Character = UNKNOWN,
    name: Name = None,
) -> Any:
    """The characters of each string, as strings.

    Of a scalar a vector, of a vector a SparseTensor [n, most].
    errors, replacement_char: as of `unicode_decode`.
    """
    options = {"errors": errors, "replacement_char": replacement_char}
    return _characters(input, True, name, input_encoding=input_encoding, **options)


@checked
def unicode_encode(
    input: Any,
    output_encoding: OutputEncoding,
    errors: Errors = "replace",
    replacement_char: Character = UNKNOWN,
    name: Name = None,
) -> Tensor:
    """The strings of the characters whose numbers are along the last axis, or in the rows of a SparseTensor.

    errors: of numbers that are no character, as of `unicode_decode`.
    """
    is_sparse = isinstance(input, SparseTensor)
    numbers = sparse_tensor_to_dense(input, ABSENT) if is_sparse else as_tensor(input)
    options = {"errors": errors, "replacement_char": replacement_char}
    return UnicodeEncode.tensor(numbers, output_encoding=output_encoding, name=name, **options)


@checked
def unicode_transcode(
    input: Any,
    input_encoding: InputEncoding,
    output_encoding: OutputEncoding,
    errors: Errors = "replace",
    replacement_char: Character = UNKNOWN,
    replace_control_characters: Flag = False,
    name: Name = None,
) -> Tensor:
    """Each string in another encoding; the other arguments are as of `unicode_decode`."""
    return UnicodeTranscode.tensor(
        as_strings(input),
        input_encoding=input_encoding,
        output_encoding=output_encoding,
        errors=errors,
        replacement_char=replacement_char,
        replace_control_characters=replace_control_characters,
        name=name,
    )
