"""Ops that make strings of numbers and numbers of strings, and those of base64."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, HostCall, Tensor, as_tensor
from tensorbow.kinds import AsDType, Flag, Name, checked, one_of, whole
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, DType, TensorSpec, as_dtype, float32, float64, int32, int64, string
from tensorbow.string_ops.elements import Map, as_strings, define_map, mapped, shown_text

__all__ = ["as_string", "decode_base64", "encode_base64", "string_to_number"]

Digits: TypeAlias = Annotated[int, whole(-1, 1000)]
NUMBERS = (float32, float64, int32, int64)
_FLOAT = re.compile(rb"[-+]?((\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?|inf(inity)?|nan)", re.IGNORECASE)
_INTEGER = re.compile(rb"[-+]?\d{1,20}")
_SPACE = b" \t\n\r\v\f"


# Numbers to strings -------------------------------------------------------------------------------


def _string_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (x,) = inputs
    is_real = x.dtype.is_floating or x.dtype.is_complex
    if x.dtype.is_string:
        raise InvalidArgumentError(f"AsString: input is {x}, of strings already; leave as_string out")
    if not is_real and (attrs["precision"] >= 0 or attrs["scientific"] or attrs["shortest"]):
        raise InvalidArgumentError(
            f"AsString: precision, scientific and shortest are for floating numbers, the input is {x}"
        )
    if attrs["scientific"] and attrs["shortest"]:
        raise InvalidArgumentError("AsString: expected scientific or shortest, got both")
    return TensorSpec(x.shape, string)


def _formatting(attrs: Attrs, dtype: DType) -> Callable[[Any], bytes]:
    """The function that writes a number as C's printf does."""
    width = "" if attrs["width"] < 0 else str(attrs["width"])
    if dtype.name == "bool":
        form = f"%{'-' if attrs['fill'] == '-' else ''}{width}s"
        return lambda value: (form % ("true" if value else "false")).encode()
    if not (dtype.is_floating or dtype.is_complex):
        form = f"%{attrs['fill']}{width}d"
        return lambda value: (form % value).encode()
    digits = "" if attrs["precision"] < 0 else f".{attrs['precision']}"
    kind = "e" if attrs["scientific"] else "g" if attrs["shortest"] else "f"
    form = f"%{attrs['fill']}{width}{digits}{kind}"
    if dtype.is_complex:
        return lambda value: f"({form % value.real},{form % value.imag})".encode()
    return lambda value: (form % value).encode()


def _as_string(call: HostCall) -> Array:
    (x,) = call.inputs
    dtype = as_dtype(x.dtype)
    return mapped(x.astype("float64") if dtype.is_floating else x, _formatting(call.attrs, dtype), string)


AsString = define_op(
    "AsString",
    spec=_string_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("input",),
    attrs={"precision": -1, "scientific": False, "shortest": False, "width": -1, "fill": ""},
    host=_as_string,
    strings=True,
    doc="The digits of each number.",
)


@checked
def as_string(
    input: Any,
    precision: Digits = -1,
    scientific: Flag = False,
    shortest: Flag = False,
    width: Digits = -1,
    fill: Annotated[str, one_of("", " ", "0", "-", "+", "#")] = "",
    name: Name = None,
) -> Tensor:
    """Each number as a string, in the form of C's printf; True and False as `true` and `false`.

    precision: digits after the point, by default 6; scientific, shortest: the forms %e and %g. width: least
    length; fill: what comes before the digits ("0", " " or "+"), or "-" for numbers at the left.

    Raises InvalidArgumentError for a tensor of strings, and for options of floating numbers with others.
    """
    options = {"precision": precision, "scientific": scientific, "shortest": shortest}
    return AsString.tensor(as_tensor(input), **options, width=width, fill=fill, name=name)


# Strings to numbers -------------------------------------------------------------------------------


def number_of(op: str, text: bytes, dtype: DType) -> float:
    """The number that a string spells, with spaces around it. Raises InvalidArgumentError."""
    stripped = text.strip(_SPACE)
    if dtype.is_floating:
        if _FLOAT.fullmatch(stripped):
            return float(stripped)
    elif _INTEGER.fullmatch(stripped) and dtype.min <= int(stripped) <= dtype.max:
        return int(stripped)
    raise InvalidArgumentError(f"{op}: {shown_text(text)} is no {dtype.name}")


StringToNumber = define_map(
    "StringToNumber",
    lambda attrs: lambda text: number_of("StringToNumber", text, attrs["out_type"]),
    result="out_type",
    attrs={"out_type": float32},
    doc="The number that each string spells.",
)


@checked
def string_to_number(string_tensor: Any, out_type: AsDType = float32, name: Name = None) -> Tensor:
    """The number that each string spells in decimal digits; out_type: float32, float64, int32 or int64.

    Raises InvalidArgumentError for another dtype and, when it runs, for a string that spells none.
    """
    if out_type not in NUMBERS:
        raise InvalidArgumentError(
            f"string_to_number: expected out_type to be float32, float64, int32 or int64, got {out_type.name}"
        )
    return StringToNumber.tensor(as_strings(string_tensor), out_type=out_type, name=name)


# Base64 -------------------------------------------------------------------------------------------


def _encoded(attrs: Attrs) -> Map:
    def encode(text: bytes) -> bytes:
        made = base64.urlsafe_b64encode(text)
        return made if attrs["pad"] else made.rstrip(b"=")

    return encode


def _decode(text: bytes) -> bytes:
    try:
        if re.fullmatch(rb"[-\w]*={0,2}", text):
            bare = text.rstrip(b"=")
            return base64.urlsafe_b64decode(bare + b"=" * (-len(bare) % 4))
    except binascii.Error:
        pass
    raise InvalidArgumentError(f"DecodeBase64: {shown_text(text)} is no web-safe base64")


EncodeBase64 = define_map("EncodeBase64", _encoded, attrs={"pad": False})
DecodeBase64 = define_map("DecodeBase64", lambda attrs: _decode)


@checked
def encode_base64(input: Any, pad: Flag = False, name: Name = None) -> Tensor:
    """Each string in web-safe base64 (`-` and `_` for `+` and `/`); pad: with `=` to a multiple of 4."""
    return EncodeBase64.tensor(as_strings(input), pad=pad, name=name)


@checked
def decode_base64(input: Any, name: Name = None) -> Tensor:
    """The bytes that web-safe base64 stands for, with padding or without.

    Raises InvalidArgumentError, when it runs, for strings that are none.
    """
    return DecodeBase64.tensor(as_strings(input), name=name)
