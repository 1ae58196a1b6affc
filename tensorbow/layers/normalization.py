"""Batch normalisation, and layer and group normalisation, which do not depend on the batch."""

from __future__ import annotations

from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphKeys, Tensor, convert_to_tensor
from tensorbow.kinds import AxisNumber, Flag, Name, NonNegative, Positive, checked
from tensorbow.layers.building import Share, Training, known_extent, layer_scope
from tensorbow.ops.arrays import reshape
from tensorbow.ops.broadcasting import shape, zeros_like
from tensorbow.ops.constant import constant
from tensorbow.ops.elementwise import add, multiply, rsqrt, subtract
from tensorbow.ops.normalization import (
    cross_replica_batch_norm,
    fused_batch_norm,
    layer_norm,
    moments,
)
from tensorbow.ops.selection import select
from tensorbow.ops.slicing import strided_slice
from tensorbow.variable_scope import Reuse, Start, get_variable
from tensorbow.variables import Variable

__all__ = ["batch_normalization", "group_normalization", "layer_normalization"]


@checked
def batch_normalization(
    inputs: Any,
    axis: AxisNumber = -1,
    momentum: Share = 0.99,
    epsilon: NonNegative = 0.001,
    center: Flag = True,
    scale: Flag = True,
    beta_initializer: Start = "zeros",
    gamma_initializer: Start = "ones",
    moving_mean_initializer: Start = "zeros",
    moving_variance_initializer: Start = "ones",
    *,
    training: Training = False,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
    cross_replica: Flag = False,
) -> Tensor:
    """Batch normalisation (Ioffe and Szegedy, 2015) of `[..., channels]`, or with axis 1 of NCHW images.

    In training it uses the batch's statistics, otherwise moving averages: moving = momentum * moving +
    (1 - momentum) * batch. The ops that update the averages are in the collection UPDATE_OPS; run them with
    the training step, as in TensorFlow:

        with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss)

    gamma and beta are trained without weight decay. Each replica has its own statistics; the
    central model has their mean. With `cross_replica` the statistics in training are those of the batches of
    all replicas together (`tb.nn.cross_replica_batch_norm`).

    training: True, False or a scalar tensor of bools, such as a placeholder. With a tensor both ways are
    computed and one is chosen, which takes longer; the moving averages change in training only. The layer
    built a second time with reuse=True, and the other bool, does without.
    """
    tensor = convert_to_tensor(inputs)
    rank = tensor.shape.ndims
    last = rank is not None and axis in (-1, rank - 1)
    if rank is not None and not last and (axis not in (1, -3) or rank != 4):
        raise InvalidArgumentError(
            f"batch_normalization: axis must be the last one, or 1 of images; got {axis} for {tensor.spec}"
        )
    channels = known_extent("batch_normalization", tensor, axis)
    dtype = tensor.dtype
    with tensor.graph.as_default(), layer_scope(name, "batch_normalization", reuse) as scope:
        scope.partitioner = None  # vectors stay whole

        def vector(label: str, initializer: Any, learned: bool) -> Variable:
            how = None if learned and trainable else "mean"
            made: Variable = get_variable(
                label,
                [channels],
                dtype,
                initializer,
                trainable=learned and trainable,
                combine=how,
                decayed=False,
            )
            return made

        def factor(label: str, initializer: Any, wanted: bool, value: float) -> Any:
            return vector(label, initializer, True) if wanted else constant(value, dtype, [channels])

        gamma = factor("gamma", gamma_initializer, scale, 1.0)
        beta = factor("beta", beta_initializer, center, 0.0)
        moving = (
            vector("moving_mean", moving_mean_initializer, False),
            vector("moving_variance", moving_variance_initializer, False),
        )
        layout = "NHWC" if last else "NCHW"
        if training is False:
            return fused_batch_norm(tensor, gamma, beta, *moving, epsilon, layout, is_training=False)[0]
        normalise = cross_replica_batch_norm if cross_replica else fused_batch_norm
        result, *batch = normalise(tensor, gamma, beta, epsilon=epsilon, data_format=layout)
        for average, value in zip(moving, batch, strict=True):
            step = multiply(subtract(average.value(), value), 1.0 - momentum)
            if training is not True:
                step = select(training, step, zeros_like(step))
            tensor.graph.add_to_collection(GraphKeys.UPDATE_OPS, average.assign_sub(step))
        if training is True:
            return result
        evaluated = fused_batch_norm(tensor, gamma, beta, *moving, epsilon, layout, is_training=False)[0]
        return select(training, result, evaluated)


@checked
def layer_normalization(
    inputs: Any,
    axis: AxisNumber = -1,
    epsilon: NonNegative = 0.001,
    center: Flag = True,
    scale: Flag = True,
    beta_initializer: Start = "zeros",
    gamma_initializer: Start = "ones",
    *,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Normalisation of each example by its moments over the axes from `axis` on (Ba et al., 2016).

    gamma and beta have the shape of these axes, and are trained without weight decay.
    Raises InvalidArgumentError if their extents are unknown.
    """
    tensor = convert_to_tensor(inputs)
    rank = tensor.shape.ndims or 0
    first = axis if axis < 0 else axis - rank
    extents = [known_extent("layer_normalization", tensor, number) for number in range(min(first, -1), 0)]
    with tensor.graph.as_default(), layer_scope(name, "layer_normalization", reuse) as scope:
        scope.partitioner = None  # vectors stay whole
        gamma = _factor("gamma", scale, extents, tensor, gamma_initializer, trainable)
        beta = _factor("beta", center, extents, tensor, beta_initializer, trainable)
        return layer_norm(tensor, gamma, beta, epsilon, axis)


@checked
def group_normalization(
    inputs: Any,
    groups: Positive = 32,
    axis: AxisNumber = -1,
    epsilon: NonNegative = 0.001,
    center: Flag = True,
    scale: Flag = True,
    beta_initializer: Start = "zeros",
    gamma_initializer: Start = "ones",
    *,
    trainable: Flag = True,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Normalisation of each example's groups of channels by their moments (Wu and He, 2018).

    inputs `[batch, ..., channels]`, or with axis 1 `[batch, channels, ...]`. groups = channels is instance
    normalisation (Ulyanov et al., 2016). gamma and beta, `[channels]`, are trained without weight decay.
    Raises InvalidArgumentError for another axis, groups that do not divide the channels, and an unknown rank
    or number of channels.
    """
    tensor = convert_to_tensor(inputs)
    rank = tensor.shape.ndims
    if rank is None or rank < 2 or axis not in (-1, rank - 1, 1):
        raise InvalidArgumentError(
            f"group_normalization: axis must be the last one, or 1; got {axis} for {tensor.spec}"
        )
    last = axis in (-1, rank - 1)
    channels = known_extent("group_normalization", tensor, axis)
    if channels % groups:
        raise InvalidArgumentError(
            f"group_normalization: expected groups that divide {channels} channels, got {groups}"
        )
    per_group = channels // groups
    with tensor.graph.as_default(), layer_scope(name, "group_normalization", reuse) as scope:
        scope.partitioner = None  # vectors stay whole
        batch = strided_slice(shape(tensor), 0) if tensor.shape[0] is None else tensor.shape[0]
        parts = [batch, -1, groups, per_group] if last else [batch, groups, -1]
        split = reshape(tensor, parts)
        mean, variance = moments(split, [1, 3] if last else [2], keep_dims=True)
        plain = multiply(subtract(split, mean), rsqrt(add(variance, epsilon)))
        result = reshape(plain, shape(tensor))
        result.set_shape(tensor.shape)
        gamma = _factor("gamma", scale, [channels], tensor, gamma_initializer, trainable)
        beta = _factor("beta", center, [channels], tensor, beta_initializer, trainable)
        aligned = [channels] if last else [channels, *[1] * (rank - 2)]
        if gamma is not None:
            result = multiply(result, reshape(gamma, aligned))
        return result if beta is None else add(result, reshape(beta, aligned))


def _factor(
    label: str, wanted: bool, extents: list[int], like: Tensor, initializer: Any, trainable: bool
) -> Variable | None:
    """A variable that weight decay leaves out, or None."""
    if not wanted:
        return None
    made: Variable = get_variable(label, extents, like.dtype, initializer, trainable=trainable, decayed=False)
    return made
