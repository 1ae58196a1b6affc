"""`tb.layers`: layers that make their own variables, with TensorFlow 1's names, arguments and defaults.

A layer called without a name gets one of its own in the variable scope around it (`dense`, `dense_1`, ...).
In a scope that is entered again with `reuse` the layers find their variables again, in the same order. With
`reuse` of its own a layer shares the variables of the layer of its name, by default the first (`dense`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphKeys, Tensor, convert_to_tensor
from tensorbow.ops.arrays import reshape
from tensorbow.ops.average_pooling import avg_pool2d
from tensorbow.ops.constant import constant
from tensorbow.ops.control import identity
from tensorbow.ops.conv import conv2d as convolve
from tensorbow.ops.elementwise import multiply, subtract
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import bias_add
from tensorbow.ops.nn import dropout as drop
from tensorbow.ops.normalization import fused_batch_norm
from tensorbow.ops.pooling import max_pool2d
from tensorbow.variable_scope import VariableScope, get_variable, variable_scope
from tensorbow.variables import Variable

Activation: TypeAlias = "Callable[[Tensor], Tensor] | None"
FORMATS = {"channels_last": "NHWC", "channels_first": "NCHW"}


def dense(
    inputs: Any,
    units: int,
    activation: Activation = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = "zeros",
    trainable: bool = True,
    name: str | None = None,
    reuse: bool | None = None,
) -> Tensor:
    """activation(inputs x kernel + bias): `[..., features]` to `[..., units]`.

    Raises InvalidArgumentError where the number of features is not known.
    """
    tensor = convert_to_tensor(inputs)
    features = _extent("dense", tensor, -1)
    with tensor.graph.as_default(), _scope(name, "dense", reuse):
        kernel = get_variable("kernel", [features, units], tensor.dtype, kernel_initializer, trainable)
        result = matmul(tensor, kernel)
        if use_bias:
            result = bias_add(
                result, get_variable("bias", [units], tensor.dtype, bias_initializer, trainable)
            )
        return _activated(result, activation)


def conv2d(
    inputs: Any,
    filters: int,
    kernel_size: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: str = "valid",
    data_format: str = "channels_last",
    activation: Activation = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = "zeros",
    trainable: bool = True,
    name: str | None = None,
    reuse: bool | None = None,
) -> Tensor:
    """A convolution of images `[batch, height, width, channels]`, or channels_first, and a bias.

    Raises InvalidArgumentError where the number of channels is not known.
    """
    images = convert_to_tensor(inputs)
    layout = _format("conv2d", data_format)
    channels = _extent("conv2d", images, -1 if layout == "NHWC" else 1)
    height, width = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    steps = [strides, strides] if isinstance(strides, int) else list(strides)
    if layout == "NCHW":
        steps = [1, 1, *steps]
    with images.graph.as_default(), _scope(name, "conv2d", reuse):
        shape = [height, width, channels, filters]
        kernel = get_variable("kernel", shape, images.dtype, kernel_initializer, trainable)
        result = convolve(images, kernel, steps, padding.upper(), layout)
        if use_bias:
            bias = get_variable("bias", [filters], images.dtype, bias_initializer, trainable)
            result = bias_add(result, bias, layout)
        return _activated(result, activation)


def max_pooling2d(
    inputs: Any,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Tensor:
    """The maximum of each window of images `[batch, height, width, channels]`, or channels_first.

    pool_size and strides: an integer, or (height, width). Raises InvalidArgumentError as `tb.nn.max_pool2d`.
    """
    layout = _format("max_pooling2d", data_format)
    return max_pool2d(inputs, pool_size, strides, padding.upper(), layout, name)


def average_pooling2d(
    inputs: Any,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Tensor:
    """The mean of each window of images `[batch, height, width, channels]`, or channels_first.

    pool_size and strides: an integer, or (height, width). Raises InvalidArgumentError as `tb.nn.avg_pool2d`.
    """
    layout = _format("average_pooling2d", data_format)
    return avg_pool2d(inputs, pool_size, strides, padding.upper(), layout, name)


def dropout(
    inputs: Any,
    rate: Any = 0.5,
    noise_shape: Any = None,
    seed: int | None = None,
    training: bool = False,
    name: str | None = None,
) -> Tensor:
    """In training `tb.nn.dropout` with probability `rate`; else the inputs, as TensorFlow 1 has it.

    `training` is a Python bool: raises InvalidArgumentError for a tensor. With a `rate` that is fed, one
    graph does both: `training=True`, and 0 is fed to evaluate.
    """
    if isinstance(training, (Tensor, Variable)):
        raise InvalidArgumentError(
            "dropout: training must be True or False when the graph is built; for both, give training=True "
            "and a placeholder as rate, and feed it 0 to evaluate"
        )
    tensor = convert_to_tensor(inputs)
    if not training:
        return identity(tensor, name=name or "dropout")
    return drop(tensor, noise_shape=noise_shape, seed=seed, name=name, rate=rate)


def flatten(inputs: Any) -> Tensor:
    """`[batch, ...]` to `[batch, all the rest]`."""
    tensor = convert_to_tensor(inputs)
    size = 1
    for axis in range(1, tensor.shape.ndims or 0):
        size *= _extent("flatten", tensor, axis)
    return reshape(tensor, [-1, size])


def batch_normalization(
    inputs: Any,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 0.001,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = "zeros",
    gamma_initializer: Any = "ones",
    moving_mean_initializer: Any = "zeros",
    moving_variance_initializer: Any = "ones",
    training: bool = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: bool | None = None,
) -> Tensor:
    """Batch normalisation (Ioffe and Szegedy, 2015) of `[..., channels]`, or with axis 1 of NCHW images.

    In training by the statistics of the batch, else by moving averages: moving = momentum * moving +
    (1 - momentum) * batch. The ops that move them are put in the collection UPDATE_OPS; run them with the
    training step, as TensorFlow wants it:

        with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss)

    gamma and beta are trained without weight decay. Replicas each have statistics of their own, and the
    central model their mean. `training` is a Python bool: build the graph of evaluation apart, or the layer
    a second time with reuse=True.
    """
    if isinstance(training, (Tensor, Variable)):
        raise InvalidArgumentError(
            "batch_normalization: training must be True or False when the graph is built; for both, "
            "build the layer twice, the second time with reuse=True"
        )
    tensor = convert_to_tensor(inputs)
    rank = tensor.shape.ndims
    last = rank is not None and axis in (-1, rank - 1)
    if not last and (axis not in (1, -3) or rank != 4):
        raise InvalidArgumentError(
            f"batch_normalization: axis must be the last one, or 1 of images; got {axis} for {tensor.spec}"
        )
    channels = _extent("batch_normalization", tensor, axis)
    dtype = tensor.dtype
    with tensor.graph.as_default(), _scope(name, "batch_normalization", reuse):

        def vector(label: str, initializer: Any, learned: bool) -> Variable:
            how = None if learned and trainable else "mean"
            return get_variable(
                label, [channels], dtype, initializer, learned and trainable, combine=how, decayed=False
            )

        def factor(label: str, initializer: Any, wanted: bool, value: float) -> Any:
            return vector(label, initializer, True) if wanted else constant(value, dtype, [channels])

        gamma = factor("gamma", gamma_initializer, scale, 1.0)
        beta = factor("beta", beta_initializer, center, 0.0)
        moving = (
            vector("moving_mean", moving_mean_initializer, False),
            vector("moving_variance", moving_variance_initializer, False),
        )
        layout = "NHWC" if last else "NCHW"
        if not training:
            return fused_batch_norm(tensor, gamma, beta, *moving, epsilon, layout, is_training=False)[0]
        result, *batch = fused_batch_norm(tensor, gamma, beta, epsilon=epsilon, data_format=layout)
        for average, value in zip(moving, batch, strict=True):
            step = multiply(subtract(average.value(), value), 1.0 - momentum)
            tensor.graph.add_to_collection(GraphKeys.UPDATE_OPS, average.assign_sub(step))
        return result


def _scope(name: str | None, default: str, reuse: bool | None) -> AbstractContextManager[VariableScope]:
    return variable_scope(name or (default if reuse else None), default, reuse=reuse)


def _format(layer: str, data_format: str) -> str:
    if data_format not in FORMATS:
        raise InvalidArgumentError(
            f"{layer}: data_format must be {' or '.join(FORMATS)}, got {data_format!r}"
        )
    return FORMATS[data_format]


def _extent(layer: str, tensor: Tensor, axis: int) -> int:
    dims = tensor.spec.shape
    extent = dims[axis] if dims is not None and -len(dims) <= axis < len(dims) else None
    if extent is None:
        raise InvalidArgumentError(f"{layer}: axis {axis} of {tensor.spec} must be known; use set_shape")
    return extent


def _activated(tensor: Tensor, activation: Activation) -> Tensor:
    if activation is not None and not callable(activation):
        raise InvalidArgumentError(
            f"activation: expected a function such as tb.nn.relu, or None, got {activation!r}"
        )
    return tensor if activation is None else activation(tensor)
