"""Ops that decode strings: bytes of numbers, comma-separated values, IDX and serialised tensors."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall, Tensor, as_tensor
from tensorbow.graph.protobuf.values import messages, parsed_tensor, serialized_tensor
from tensorbow.input_ops.file_ops import string_scalar
from tensorbow.input_ops.scalar_inputs import require_scalars
from tensorbow.kinds import AsDType, Flag, Name, checked, one_of, refuse
from tensorbow.ops.argument_kinds import StaticShape
from tensorbow.ops.constant import to_array
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, TensorSpec, as_dtype, string, uint8
from tensorbow.string_ops.elements import as_strings, require_strings, scalar_of

__all__ = [
    "decode_compressed",
    "decode_idx",
    "decode_raw",
    "make_ndarray",
    "make_tensor_proto",
    "parse_tensor",
    "serialize_tensor",
]

IDX_TYPES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
"""Dtypes of an IDX file's values, by the code in its header."""


# Raw bytes ----------------------------------------------------------------------------------------


def _raw_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (x,) = inputs
    require_strings("DecodeRaw", x, "bytes")
    return TensorSpec((*x.dims, None), attrs["out_type"])


def _raw(call: HostCall) -> Array:
    (x,), dtype = call.inputs, call.attrs["out_type"].as_numpy_dtype
    texts = x.ravel().tolist()
    length = len(texts[0]) if texts else 0
    for index, text in enumerate(texts):
        if len(text) != length:
            raise InvalidArgumentError(
                f"DecodeRaw: string {index} has {len(text)} bytes, expected {length}, as the first one"
            )
    if length % dtype.itemsize:
        raise InvalidArgumentError(
            f"DecodeRaw: {length} bytes are no multiple of the {dtype.itemsize} of {dtype.name}"
        )
    order = dtype.newbyteorder("<" if call.attrs["little_endian"] else ">")
    joined = b"".join(texts)
    numbers = np.frombuffer(joined, np.uint8) != 0 if dtype == np.bool_ else np.frombuffer(joined, order)
    numbers = numbers.astype(dtype)
    return numbers.reshape(*x.shape, length // dtype.itemsize)


DecodeRaw = define_op(
    "DecodeRaw",
    spec=_raw_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("bytes",),
    attrs={"out_type": REQUIRED, "little_endian": True},
    unknown_dtypes=lambda inputs, attrs: (attrs["out_type"],),
    host=_raw,
    strings=True,
    doc="The numbers whose bytes the strings are.",
)


@checked
def decode_raw(bytes: Any, out_type: AsDType, little_endian: Flag = True, name: Name = None) -> Tensor:
    """The numbers whose bytes each string is, along a new last axis: [...] gives [..., n].

    Raises InvalidArgumentError for strings as numbers and, when it runs, for strings of different lengths and
    a length that is no multiple of the dtype's.
    """
    if out_type.is_string:
        raise InvalidArgumentError("decode_raw: expected out_type to be a dtype of numbers, got string")
    return DecodeRaw.tensor(as_strings(bytes), out_type=out_type, little_endian=little_endian, name=name)


# Compressed bytes ---------------------------------------------------------------------------------

COMPRESSIONS = {"ZLIB": zlib.MAX_WBITS, "GZIP": zlib.MAX_WBITS | 16}  # window bits, by name
Compression: TypeAlias = Annotated[str, one_of("", *COMPRESSIONS)]


def _compressed_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_strings("DecodeCompressed", inputs[0], "bytes")
    return inputs[0]


def _decompress(call: HostCall) -> Array:
    (x,), kind = call.inputs, call.attrs["format"]
    out = np.empty(x.shape, object)
    for index, text in enumerate(x.ravel().tolist()):
        try:
            out.flat[index] = zlib.decompress(text, COMPRESSIONS[kind]) if kind else text
        except zlib.error as error:
            raise InvalidArgumentError(
                f"DecodeCompressed: string {index} of {len(text):,} bytes is no {kind}: {error}"
            ) from None
    return out


DecodeCompressed = define_op(
    "DecodeCompressed",
    spec=_compressed_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("bytes",),
    attrs={"format": ""},
    host=_decompress,
    slow=True,
    strings=True,
    doc="The strings, decompressed.",
)


@checked
def decode_compressed(bytes: Any, compression_type: Compression = "", name: Name = None) -> Tensor:
    """The strings whose ZLIB or GZIP each string of `bytes` is, of the same shape; "": the same strings.

    Raises InvalidArgumentError, when it runs, for other bytes.
    """
    return DecodeCompressed.tensor(as_strings(bytes), format=compression_type, name=name)


# IDX ----------------------------------------------------------------------------------------------


def _idx_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_scalars("DecodeIdx", inputs, ("contents",))
    return TensorSpec(None, attrs["out_type"])


def _idx(call: HostCall) -> Array:
    contents: bytes = scalar_of("DecodeIdx", "contents", call.inputs[0])
    rank = contents[3] if len(contents) >= 4 else 0
    start = 4 + 4 * rank
    if contents[:2] != b"\0\0" or len(contents) < start or contents[2] not in IDX_TYPES:
        raise InvalidArgumentError(
            f"DecodeIdx: the header is {contents[:4].hex(' ')!r}, expected 00 00, a type, a rank, the extents"
        )
    dtype, shape = np.dtype(IDX_TYPES[contents[2]]), struct.unpack(f">{rank}I", contents[4:start])
    if dtype != call.attrs["out_type"].as_numpy_dtype:
        raise InvalidArgumentError(
            f"DecodeIdx: it holds {dtype.name}, expected that as out_type, got {call.attrs['out_type'].name}"
        )
    nbytes = math.prod(shape) * dtype.itemsize
    if rank > 32 or nbytes != len(contents) - start:
        raise InvalidArgumentError(
            f"DecodeIdx: the header declares {list(shape)}, {nbytes} bytes, but has {len(contents) - start}"
        )
    return np.frombuffer(contents, dtype.newbyteorder(">"), offset=start).astype(dtype).reshape(shape)


DecodeIdx = define_op(
    "DecodeIdx",
    spec=_idx_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("contents",),
    attrs={"out_type": uint8},
    host=_idx,
    strings=True,
    doc="The array of an IDX file's content.",
)


@checked
def decode_idx(contents: Any, out_type: AsDType = uint8, name: Name = None) -> Tensor:
    """The array that the content of an IDX file is, as those of MNIST; of unknown shape.

    contents: a scalar string, not compressed. out_type: the dtype of its values. Raises InvalidArgumentError,
    when it runs, for another content.
    """
    return DecodeIdx.tensor(as_strings(contents), out_type=out_type, name=name)


# Serialised tensors -------------------------------------------------------------------------------


def _serialized_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec((), string)


SerializeTensor = define_op(
    "SerializeTensor",
    spec=_serialized_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("tensor",),
    host=lambda call: string_scalar(serialized_tensor(call.inputs[0])),
    strings=True,
    doc="A tensor as bytes of a TensorProto.",
)


@checked
def serialize_tensor(tensor: Any, name: Name = None) -> Tensor:
    """A tensor of any dtype as one string, the bytes of TensorFlow's TensorProto; for `parse_tensor`.

    Needs `pip install 'tensorbow[protobuf]'`.
    """
    return SerializeTensor.tensor(as_tensor(tensor), name=name)


@checked
def make_tensor_proto(values: Any, dtype: AsDType | None = None, shape: StaticShape = None) -> Any:
    """TensorFlow's message TensorProto of an array, a number, a text or a nested list.

    shape: of the message; one value fills it. Needs `pip install 'tensorbow[protobuf]'`.
    """
    array = to_array(values, dtype)
    if shape is not None:
        fits = array.size in (1, math.prod(n or 0 for n in shape)) and None not in shape
        if not fits:
            raise refuse("make_tensor_proto", "shape", f"one of {array.size} elements", shape)
        array = np.broadcast_to(array.reshape(()), shape) if array.size == 1 else array.reshape(shape)
    message = messages()("TensorProto")()
    message.ParseFromString(serialized_tensor(array))
    return message


@checked
def make_ndarray(tensor: Any) -> Array:
    """The array of a message TensorProto, of this library or of TensorFlow; strings as `bytes`."""
    if not hasattr(tensor, "SerializeToString"):
        raise refuse("make_ndarray", "tensor", "a TensorProto", tensor)
    return parsed_tensor(tensor.SerializeToString())


def _parse_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_scalars("ParseTensor", inputs, ("serialized",))
    return TensorSpec(None, attrs["out_type"])


def _parse(call: HostCall) -> Array:
    array, wanted = (
        parsed_tensor(scalar_of("ParseTensor", "serialized", call.inputs[0])),
        call.attrs["out_type"],
    )
    if as_dtype(array.dtype) != wanted:
        raise InvalidArgumentError(
            f"ParseTensor: the string holds {as_dtype(array.dtype).name}, expected out_type to be that, got "
            f"{wanted.name}"
        )
    return array


ParseTensor = define_op(
    "ParseTensor",
    spec=_parse_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("serialized",),
    attrs={"out_type": REQUIRED},
    host=_parse,
    strings=True,
    doc="The tensor of the bytes of a TensorProto.",
)


@checked
def parse_tensor(serialized: Any, out_type: AsDType, name: Name = None) -> Tensor:
    """The tensor that a string of `serialize_tensor` holds; of unknown shape. out_type: its dtype.

    Raises InvalidArgumentError, when it runs, for other bytes and another dtype.
    """
    return ParseTensor.tensor(as_strings(serialized), out_type=out_type, name=name)
