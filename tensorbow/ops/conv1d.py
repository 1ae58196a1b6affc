"""One-dimensional convolution, as a convolution of images of height 1."""

from __future__ import annotations

from typing import Annotated, Any

from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Name, Positive, checked, one_of
from tensorbow.ops.argument_kinds import Padding
from tensorbow.ops.arrays import expand_dims, squeeze, transpose
from tensorbow.ops.conv import conv2d

__all__ = ["conv1d"]


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
