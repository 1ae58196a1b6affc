"""Layers that connect everything, drop, flatten and embed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import AsDType, Flag, Function, Name, Positive, Seed, checked
from tensorbow.layers.building import (
    Activation,
    NoiseShape,
    Rate,
    Training,
    completed,
    known_extent,
    layer_scope,
)
from tensorbow.ops.arrays import reshape
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.control import identity
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import dropout as drop
from tensorbow.ops.nn import embedding_lookup
from tensorbow.ops.reductions import reduce_prod
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import float32, int32, uint8
from tensorbow.variable_scope import Reuse, Start, get_variable

__all__ = ["dense", "dropout", "embedding", "flatten"]


@checked
def dense(
    inputs: Any,
    units: Positive,
    activation: Activation = None,
    use_bias: Flag = True,
    kernel_initializer: Start | None = None,
    bias_initializer: Start = "zeros",
    *,
    kernel_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """activation(inputs x kernel + bias): `[..., features]` to `[..., units]`.

    Raises InvalidArgumentError if the number of features is unknown.
    """
    tensor = convert_to_tensor(inputs)
    features = known_extent("dense", tensor, -1)
    with tensor.graph.as_default(), layer_scope(name, "dense", reuse):
        extents = [features, units]
        kernel = get_variable(
            "kernel", extents, tensor.dtype, kernel_initializer, kernel_regularizer, trainable=trainable
        )
        result = matmul(tensor, kernel)
        bias = use_bias, bias_initializer, bias_regularizer, trainable
        return completed(result, units, *bias, activation)


@checked
def dropout(
    inputs: Any,
    rate: Rate = 0.5,
    noise_shape: NoiseShape | None = None,
    seed: Seed = None,
    training: Training = False,
    name: Name = None,
) -> Tensor:
    """Dropout with probability `rate` in training, see `tb.nn.dropout`; otherwise the inputs.

    training: True, False or, for one graph that serves both, a scalar tensor of bools, such as a placeholder.
    """
    tensor = convert_to_tensor(inputs)
    if isinstance(training, Tensor):
        rate = select(training, convert_to_tensor(rate, tensor.dtype), 0.0)
    elif not training:
        return identity(tensor, name=name or "dropout")
    return drop(tensor, noise_shape=noise_shape, seed=seed, name=name, rate=rate)


@checked
def flatten(inputs: Any) -> Tensor:
    """Reshapes `[batch, ...]` to `[batch, product of the rest]`."""
    tensor = convert_to_tensor(inputs)
    dims = tensor.spec.shape
    rest = [] if dims is None else [extent for extent in dims[1:] if extent is not None]
    if dims is not None and len(rest) == len(dims[1:]):
        return reshape(tensor, [-1, math.prod(rest)])
    extents = shape(tensor)
    return reshape(tensor, [strided_slice(extents, 0), reduce_prod(strided_slice(extents, np.s_[1:]))])


@checked
def embedding(
    inputs: Any,
    input_dim: Positive,
    output_dim: Positive,
    embeddings_initializer: Start = "random_uniform",
    *,
    trainable: Flag = True,
    dtype: AsDType = float32,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Rows of a new variable `[input_dim, output_dim]`: from `[...]` whole numbers to `[..., output_dim]`.

    The inputs are int32, int64 or uint8, from 0 to input_dim - 1; others raise InvalidArgumentError at run
    time. The gradient is sparse (`tb.IndexedSlices`).
    """
    ids = convert_to_tensor(inputs)
    with ids.graph.as_default(), layer_scope(name, "embedding", reuse):
        table = get_variable(
            "embeddings", [input_dim, output_dim], dtype, embeddings_initializer, trainable=trainable
        )
        return embedding_lookup(table, cast(ids, int32) if ids.dtype == uint8 else ids, "div")
