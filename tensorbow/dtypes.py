"""`tb.dtypes`: element types and conversions between them, under TensorFlow's names."""

from tensorbow.ops.complex_numbers import complex
from tensorbow.ops.conversions import saturate_cast
from tensorbow.ops.selection import cast
from tensorbow.specs import (
    DType,
    as_dtype,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tensorbow.specs import bool_ as bool
from tensorbow.string_ops import as_string

__all__ = [
    "DType",
    "as_dtype",
    "as_string",
    "bfloat16",
    "bool",
    "cast",
    "complex",
    "complex64",
    "complex128",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "saturate_cast",
    "string",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
