"""TensorFlow's messages, and shapes, dtypes, tensors and attribute values as messages."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph.attribute_json import strings_of
from tensorbow.graph.protobuf.message_classes import message_classes
from tensorbow.specs import Array, DType, as_dims, as_dtype

COLLECTIONS = 50001  # number of the field of GraphDef with the collections as JSON
CONTEXTS = 50002  # and with the branches and loops
LARGEST_TENSOR = 1 << 28  # bytes of a tensor of a message

_TYPES = {
    "float32": ("DT_FLOAT", 1), "float64": ("DT_DOUBLE", 2), "int32": ("DT_INT32", 3),
    "uint8": ("DT_UINT8", 4), "int16": ("DT_INT16", 5), "int8": ("DT_INT8", 6), "string": ("DT_STRING", 7),
    "complex64": ("DT_COMPLEX64", 8), "int64": ("DT_INT64", 9), "bool": ("DT_BOOL", 10),
    "bfloat16": ("DT_BFLOAT16", 14), "uint16": ("DT_UINT16", 17), "complex128": ("DT_COMPLEX128", 18),
    "float16": ("DT_HALF", 19), "uint32": ("DT_UINT32", 22), "uint64": ("DT_UINT64", 23),
}  # fmt: skip
DT_RESOURCE = 20  # of handles
NUMBERS = {name: number for name, (_, number) in _TYPES.items()}
_NAMES = {number: name for name, number in NUMBERS.items()}


@cache
def messages() -> Any:
    """Returns `message(name)`: TensorFlow's message classes, in a pool of their own.

    Raises FailedPreconditionError where protobuf is not installed.
    """
    numbers = {"DT_INVALID": 0, "DT_RESOURCE": DT_RESOURCE, **dict(_TYPES.values())}
    return message_classes("graph", _MESSAGES, {"DataType": numbers}, {"AttrValue": "value"})


_MESSAGES = {
    "TensorShapeProto": "repeated TensorShapeProto.Dim dim 2, bool unknown_rank 3",
    "TensorShapeProto.Dim": "int64 size 1, string name 2",
    "TensorProto": "DataType dtype 1, TensorShapeProto tensor_shape 2, int32 version_number 3, "
    "bytes tensor_content 4, repeated float float_val 5, repeated double double_val 6, "
    "repeated int32 int_val 7, repeated bytes string_val 8, repeated float scomplex_val 9, "
    "repeated int64 int64_val 10, repeated bool bool_val 11, repeated double dcomplex_val 12, "
    "repeated int32 half_val 13, repeated uint32 uint32_val 16, repeated uint64 uint64_val 17",
    "AttrValue": "AttrValue.ListValue list 1, bytes s 2, int64 i 3, float f 4, bool b 5, DataType type 6, "
    "TensorShapeProto shape 7, TensorProto tensor 8, string placeholder 9, NameAttrList func 10",
    "AttrValue.ListValue": "repeated bytes s 2, repeated int64 i 3, repeated float f 4, repeated bool b 5, "
    "repeated DataType type 6, repeated TensorShapeProto shape 7, repeated TensorProto tensor 8, "
    "repeated NameAttrList func 9",
    "NameAttrList": "string name 1, map:AttrValue attr 2",
    "NodeDef": "string name 1, string op 2, repeated string input 3, string device 4, map:AttrValue attr 5",
    "VersionDef": "int32 producer 1, int32 min_consumer 2, repeated int32 bad_consumers 3",
    "OpDef": "string name 1, repeated OpDef.ArgDef input_arg 2, repeated OpDef.ArgDef output_arg 3",
    "OpDef.ArgDef": "string name 1, DataType type 3, string type_attr 4",
    "FunctionDef": "OpDef signature 1, repeated NodeDef node_def 3, map:string ret 4, "
    f"repeated NodeDef tensorbow_arguments {COLLECTIONS}",
    "GradientDef": "string function_name 1, string gradient_func 2",
    "FunctionDefLibrary": "repeated FunctionDef function 1, repeated GradientDef gradient 2",
    "GraphDef": "repeated NodeDef node 1, FunctionDefLibrary library 2, int32 version 3, "
    f"VersionDef versions 4, bytes tensorbow_collections {COLLECTIONS}, bytes tensorbow_contexts {CONTEXTS}",
}


# Writing ------------------------------------------------------------------------------------------


def shape_message(dims: tuple[int | None, ...] | None) -> Any:
    """A TensorShapeProto of extents, None for unknown ones or an unknown rank."""
    shape = messages()("TensorShapeProto")()
    if dims is None:
        shape.unknown_rank = True
    for extent in dims or ():
        shape.dim.add(size=-1 if extent is None else extent)
    return shape


def attribute_message(key: str, value: Any) -> Any:
    """The attribute as a message; None if messages have no such type."""
    message = messages()("AttrValue")()
    if key == "shape" and (value is None or isinstance(value, tuple)):
        message.shape.CopyFrom(shape_message(value))
    elif type(value) is bool:
        message.b = value
    elif type(value) is int and -(1 << 63) <= value < 1 << 63:
        message.i = value
    elif type(value) is float:
        with np.errstate(over="ignore"):
            message.f = float(np.float32(value))
    elif isinstance(value, str):
        message.s = value.encode("utf-8", "surrogatepass")
    elif type(value) is bytes:
        message.s = value
    elif isinstance(value, DType) and value.name in NUMBERS:
        message.type = NUMBERS[value.name]
    elif isinstance(value, np.ndarray) and (_is_of_strings(value) or value.dtype.name in NUMBERS):
        _write_tensor(message.tensor, value)
    elif type(value) is tuple and value and all(type(item) is int for item in value):
        if not all(-(1 << 63) <= item < 1 << 63 for item in value):
            return None
        message.list.i.extend(value)
    elif type(value) is tuple and value and all(isinstance(item, DType) for item in value):
        message.list.type.extend(NUMBERS[item.name] for item in value)
    else:
        return None
    return message


def _write_tensor(message: Any, array: Array) -> None:
    """Fills a TensorProto with an array of numbers or strings."""
    message.tensor_shape.CopyFrom(shape_message(array.shape))
    if array.dtype == object:
        message.dtype = NUMBERS["string"]
        message.string_val.extend(array.ravel().tolist())
        return
    message.dtype = NUMBERS[array.dtype.name]
    ordered = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    message.tensor_content = ordered.tobytes()


def serialized_tensor(array: Array) -> bytes:
    """The bytes of TensorFlow's TensorProto with an array of numbers or strings.

    Raises FailedPreconditionError where protobuf is not installed.
    """
    message = messages()("TensorProto")()
    _write_tensor(message, array)
    blob: bytes = message.SerializeToString(deterministic=True)
    return blob


def parsed_tensor(blob: bytes) -> Array:
    """The array of a serialised TensorProto. Raises InvalidArgumentError for other bytes."""
    message = messages()("TensorProto")()
    try:
        message.ParseFromString(blob)
    except Exception as error:  # DecodeError of protobuf
        raise InvalidArgumentError(f"the bytes are truncated or no TensorProto: {error}") from None
    return array_of(message)


def _is_of_strings(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype == object
        and all(type(each) is bytes for each in value.flat)
    )


# Reading ------------------------------------------------------------------------------------------


def dtype_of(number: int) -> DType:
    """The dtype of a DataType. Raises InvalidArgumentError for one that is not supported."""
    if number not in _NAMES:
        raise InvalidArgumentError(f"DataType {number} is not supported")
    return as_dtype(_NAMES[number])


def dims_of(shape: Any) -> tuple[int | None, ...] | None:
    """The extents of a TensorShapeProto, None for an unknown rank."""
    return None if shape.unknown_rank else as_dims([None if d.size < 0 else d.size for d in shape.dim])


def attribute_of(message: Any) -> Any:
    """The value of an AttrValue. Raises InvalidArgumentError for a kind that is not supported."""
    kind = message.WhichOneof("value")
    if kind in ("i", "f", "b"):
        return getattr(message, kind)
    if kind == "s":
        try:
            return message.s.decode("utf-8")
        except UnicodeDecodeError:
            return message.s
    if kind == "type":
        return dtype_of(message.type)
    if kind == "shape":
        return dims_of(message.shape)
    if kind == "tensor":
        return array_of(message.tensor)
    if kind == "list":
        if message.list.type:
            return tuple(dtype_of(number) for number in message.list.type)
        if message.list.shape:
            return tuple(dims_of(shape) for shape in message.list.shape)
        if message.list.s:
            return tuple(item.decode("utf-8") for item in message.list.s)
        return tuple(message.list.i) or tuple(message.list.f) or tuple(message.list.b)
    raise InvalidArgumentError(f"a value of kind {kind!r} is not supported")


_FIELDS = {
    "float32": "float_val", "float64": "double_val", "int64": "int64_val", "bool": "bool_val",
    "uint32": "uint32_val", "uint64": "uint64_val",
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), "int_val"),
}  # fmt: skip


def array_of(tensor: Any) -> Array:
    """The array of a TensorProto: its content, or its list of values, of which the last one repeats."""
    dims = dims_of(tensor.tensor_shape)
    if dims is None or None in dims:
        raise InvalidArgumentError("a tensor without a known shape")
    shape = tuple(extent for extent in dims if extent is not None)
    dtype = np.dtype(dtype_of(tensor.dtype).as_numpy_dtype)
    count = math.prod(shape)
    nbytes = count * dtype.itemsize
    if nbytes > LARGEST_TENSOR or len(shape) > 32:
        raise InvalidArgumentError(f"a tensor of shape {list(shape)!r:.80}; at most {LARGEST_TENSOR:,} bytes")
    if tensor.dtype == NUMBERS["string"]:
        return _strings(tensor, shape, count)
    content, field = tensor.tensor_content, _FIELDS.get(dtype.name)
    if content or not count:
        if nbytes != len(content):
            raise InvalidArgumentError(
                f"a tensor {dtype.name}{list(shape)} has {nbytes} bytes, not {len(content)}"
            )
        if dtype == np.bool_ and content.strip(b"\0\1"):
            raise InvalidArgumentError("a tensor with a bool that is neither 0 nor 1")
        array: Array = np.frombuffer(content, dtype.newbyteorder("<")).reshape(shape).astype(dtype)
    else:
        values = list(getattr(tensor, field)) if field else []
        if field is None or len(values) > count:
            raise InvalidArgumentError(f"a tensor {dtype.name}{list(shape)} with {len(values)} values")
        array = np.zeros(count, dtype)
        if values:
            array[: len(values)] = values
            array[len(values) :] = values[-1]
        array = array.reshape(shape)
    array.flags.writeable = False
    return array


def _strings(tensor: Any, shape: tuple[int, ...], count: int) -> Array:
    elements = list(tensor.string_val)
    if tensor.tensor_content or len(elements) > count or (count and not elements):
        raise InvalidArgumentError(f"a tensor string{list(shape)} with {len(elements)} string_val")
    return strings_of(shape, [*elements, *elements[-1:] * (count - len(elements))])
