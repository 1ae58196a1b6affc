"""Parameters of a kernel, parsed from its CUDA source and checked against the arguments.

A launch passes untyped bytes, so nothing else would detect a `double*` for float32 memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.kernels.gpu.runtime.call import DeviceArray
from tensorbow.kernels.gpu.runtime.program import C_TYPES

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^()]*\)\s*)?void\s+"
    r"(?:__launch_bounds__\s*\([^()]*\)\s*)?(\w+)\s*\(([^()]*)\)"
)
_QUALIFIERS = {"const", "volatile", "__restrict__", "__restrict", "restrict"}

# NumPy types of parameters passed by value.
SCALARS: dict[str, type[np.generic]] = {
    "bool": np.bool_,
    "unsigned char": np.uint8,
    "int": np.int32,
    "unsigned": np.uint32,
    "unsigned int": np.uint32,
    "long": np.int64,
    "long long": np.int64,
    "unsigned long": np.uint64,
    "unsigned long long": np.uint64,
    "size_t": np.uint64,
    "float": np.float32,
    "double": np.float64,
}
# Vector types (`float4`) that are other views of the same memory.
_VECTORS = {
    "float": "float",
    "double": "double",
    "int": "int",
    "long long": "longlong",
    "unsigned char": "uchar",
}


@dataclass(frozen=True)
class Parameter:
    """One parameter. type: without qualifiers, `*` and name; is_const: pointer to const."""

    name: str
    type: str
    is_pointer: bool
    is_const: bool

    def __str__(self) -> str:
        return f"{'const ' * self.is_const}{self.type}{'*' * self.is_pointer} {self.name}"


@dataclass(frozen=True)
class DeclaredKernel:
    """A kernel in a source without comments: its parameter list, and the text after it."""

    parameters: str
    rest: str


def kernels_of(source: str) -> dict[str, DeclaredKernel]:
    """The kernels of a CUDA source, by name."""
    text = _COMMENT.sub(" ", source)
    return {
        found.group(1): DeclaredKernel(found.group(2), text[found.end() :])
        for found in _KERNEL.finditer(text)
    }


def parameters_of(listed: str, types: Mapping[str, str]) -> tuple[Parameter, ...]:
    """Parses a parameter list. types: meaning of type names.

    Raises InvalidArgumentError for anything but plain types, pointers and names.
    """
    parts = [part.strip() for part in listed.split(",")]
    return tuple(_parameter(part, types) for part in parts if part and part != "void")


def _parameter(text: str, types: Mapping[str, str]) -> Parameter:
    words = re.findall(r"\w+|\S", text)
    kept = [word for word in words if word not in _QUALIFIERS]
    stars = kept.count("*")
    named = [word for word in kept if word != "*"]
    if len(named) < 2 or stars > 1 or not all(re.fullmatch(r"\w+", word) for word in named):
        raise InvalidArgumentError(
            f"parameter {text!r}: expected a type and a name, as 'const float* x' or 'int count'; "
            "references, arrays, templates and pointers to pointers cannot be passed"
        )
    if "*" in kept[kept.index(named[-1]) :]:
        raise InvalidArgumentError(f"parameter {text!r}: expected '*' before the name, as 'const float* x'")
    base = " ".join(types.get(word, word) for word in named[:-1])
    before = words[: words.index("*")] if stars else []
    return Parameter(named[-1], base.removesuffix(" int") or base, bool(stars), "const" in before)


def check_array(parameter: Parameter, what: str, array: DeviceArray, may_write: bool) -> None:
    """Raises InvalidArgumentError unless the parameter is a pointer to the array's dtype.

    what: name of the array in the message; may_write: if False, it must be a pointer to const.
    """
    wanted = C_TYPES[array.dtype.name]
    vector = _VECTORS.get(wanted)
    fits = parameter.type == wanted or bool(vector and re.fullmatch(rf"{vector}[234]", parameter.type))
    if not parameter.is_pointer or not fits:
        const = "" if may_write else "const "
        raise InvalidArgumentError(
            f"parameter '{parameter}': expected '{const}{wanted}* {parameter.name}' for {what}, which is "
            f"{array.dtype.name}{list(array.shape)}"
        )
    if not (may_write or parameter.is_const):
        raise InvalidArgumentError(
            f"parameter '{parameter}': expected 'const {parameter.type}* {parameter.name}' for {what}, which "
            "the op does not write; an op that writes variables takes 'const long long* status' first"
        )


def packed_scalar(parameter: Parameter, value: object) -> np.generic:
    """A value converted to a parameter's type. Raises InvalidArgumentError if it does not fit."""
    kind: Any = SCALARS.get(parameter.type)
    if parameter.is_pointer or kind is None:
        raise InvalidArgumentError(
            f"parameter '{parameter}': expected one of {', '.join(SCALARS)} for the scalar {value!r:.40}"
        )
    if kind is np.bool_:
        fits = isinstance(value, (bool, np.bool_))
    elif issubclass(kind, np.floating):
        fits = isinstance(value, Real)
    else:
        bounds = np.iinfo(kind)
        fits = isinstance(value, Integral) and bounds.min <= int(value) <= bounds.max
    if not fits:
        raise InvalidArgumentError(
            f"parameter '{parameter}': expected a value that {parameter.type} holds, got {value!r:.40}"
        )
    packed: np.generic = kind(value)
    return packed
