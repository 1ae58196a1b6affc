"""Facts of JPEGs that need none of their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, HostCall, Tensor, name_scope
from tensorbow.input_ops.picture_ops import natural_channels, opened
from tensorbow.input_ops.scalar_inputs import require_scalars
from tensorbow.kinds import AsDType, Name, checked
from tensorbow.ops.definition import define_op
from tensorbow.ops.elementwise import equal
from tensorbow.specs import Array, TensorSpec, int32, int64
from tensorbow.string_ops.elements import as_strings, scalar_of
from tensorbow.string_ops.joining import string_join
from tensorbow.string_ops.splitting import substr

__all__ = ["extract_jpeg_shape", "is_jpeg"]

_START = b"\xff\xd8\xff"  # of every JPEG


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_scalars("ExtractJpegShape", inputs, ("contents",))
    return TensorSpec((3,), attrs["output_type"])


def _extract(call: HostCall) -> Array:
    contents = scalar_of("ExtractJpegShape", "contents", call.inputs[0])
    picture = opened("ExtractJpegShape", contents, ["JPEG"])
    width, height = picture.size
    dtype = call.attrs["output_type"].as_numpy_dtype
    return np.array([height, width, natural_channels(picture)], dtype)


ExtractJpegShape = define_op(
    "ExtractJpegShape",
    spec=_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("contents",),
    attrs={"output_type": int32},
    unknown_dtypes=lambda inputs, attrs: (attrs["output_type"],),
    host=_extract,
    strings=True,
    doc="The shape of a JPEG's pixels, of its header.",
)


@checked
def extract_jpeg_shape(contents: Any, output_type: AsDType = int32, name: Name = None) -> Tensor:
    """[height, width, channels] of a JPEG, a scalar string, as int32 or int64; decodes no pixels.

    Raises InvalidArgumentError for another dtype and, when it runs, for other bytes.
    """
    if output_type not in (int32, int64):
        raise InvalidArgumentError(
            f"extract_jpeg_shape: expected output_type to be int32 or int64, got {output_type.name}"
        )
    return ExtractJpegShape.tensor(as_strings(contents), output_type=output_type, name=name)


@checked
def is_jpeg(contents: Any, name: Name = None) -> Tensor:
    """True for the bytes of a JPEG, by their first three; `contents`: strings of any shape."""
    texts = as_strings(contents)
    with texts.graph.as_default(), name_scope(name or "is_jpeg"):
        return equal(substr(string_join([texts, "..."]), 0, len(_START)), _START)  # a string may be empty
