"""One-dimensional convolution and its transpose, as those of images of height 1."""

from __future__ import annotations

from typing import Annotated, Any

from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Name, Positive, checked, is_tensor, one_of
from tensorbow.ops.argument_kinds import Extents, Padding
from tensorbow.ops.arrays import concat, expand_dims, squeeze, transpose
from tensorbow.ops.conv import conv2d, conv2d_transpose

__all__ = ["conv1d", "conv1d_transpose"]


@checked
def conv1d(
    value: Any,
    filters: Any,
    stride: Positive = 1,
    padding: Padding = "VALID",
    data_format: Annotated[str, one_of("NWC", "NCW", any_case=True)] = "NWC",
    dilations: Positive = 1,
    name: Name = None,
) -> Tensor:
    """Convolution of sequences [batch, steps, in] with filters [size, in, out]: [batch, windows, out].

    With data format NCW the channels of sequences and result are second. stride, padding and dilations are as
    in `conv2d`, whose errors it raises.
    """
    sequences = as_tensor(value)
    with sequences.graph.as_default(), name_scope(name or "conv1d"):
        if data_format == "NCW":
            sequences = transpose(sequences, (0, 2, 1))
        images, kernel = expand_dims(sequences, 1), expand_dims(filters, 0)
        rows = conv2d(images, kernel, (1, stride), padding, dilations=(1, dilations))
        result = squeeze(rows, 1)
        return transpose(result, (0, 2, 1)) if data_format == "NCW" else result


@checked
def conv1d_transpose(
    input: Any,
    filters: Any,
    output_shape: Extents,
    strides: Positive = 1,
    padding: Padding = "SAME",
    data_format: Annotated[str, one_of("NWC", "NCW", any_case=True)] = "NWC",
    dilations: Positive = 1,
    name: Name = None,
) -> Tensor:
    """The transpose of `conv1d`: from sequences [batch, windows, in] to `output_shape`, [batch, steps, out].

    The filters are [size, out, in]. With data format NCW the channels of all three are second. Raises the
    errors of `conv2d_transpose`.
    """
    sequences, axis = as_tensor(input), 1 if data_format == "NWC" else 2
    layout = "NHWC" if data_format == "NWC" else "NCHW"
    with sequences.graph.as_default(), name_scope(name or "conv1d_transpose"):
        if is_tensor(output_shape):
            sizes = as_tensor(output_shape)
            extents: Any = concat([sizes[:axis], [1], sizes[axis:]], 0)
        else:
            extents = [*output_shape[:axis], 1, *output_shape[axis:]]
        images, kernel = expand_dims(sequences, axis), expand_dims(filters, 0)
        steps, rates = (1, strides), (1, dilations)
        rows = conv2d_transpose(images, kernel, extents, steps, padding, layout, dilations=rates)
        return squeeze(rows, axis)
