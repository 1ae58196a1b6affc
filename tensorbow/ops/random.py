"""Random tensors: numbers are a pure function of seeds, replica, step and element.

Each random op has its own stream. Its Philox key is made from the graph's seed, the op's seed and
the replica, its counter from the step and the element (see `sampling`). So steps can be repeated and
runs resumed, and two ops, steps or replicas never draw the same numbers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    Attrs,
    Kernel,
    OpDef,
    Tensor,
    as_tensor,
    get_default_graph,
    name_scope,
)
from tensorbow.graph.definition import SpecRule
from tensorbow.kinds import AsDType, Name, Seed, checked
from tensorbow.ops import sampling
from tensorbow.ops.argument_kinds import Extents
from tensorbow.ops.broadcasting import as_shape_vector, dims_of_vector
from tensorbow.ops.broadcasting import shape as dims
from tensorbow.ops.constant import checked_array
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.elementwise import add, floor, multiply, subtract
from tensorbow.ops.indexing import gather
from tensorbow.ops.partial_extents import with_known_extents
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import (
    FLOATING,
    HALVES,
    Array,
    DType,
    TensorSpec,
    bfloat16,
    float16,
    float32,
    int32,
    int64,
)

__all__ = [
    "get_seed",
    "random_normal",
    "random_shuffle",
    "random_uniform",
    "truncated_normal",
]

DEFAULT_GRAPH_SEED = 87654321  # used with an op's seed if the graph has none, as in TensorFlow
SEEDS = {"seed": REQUIRED, "seed2": REQUIRED}  # the graph's and the op's
WORD = (1 << 32) - 1
FRACTION_BITS = {float16: 11, bfloat16: 8}  # digits of numbers in [0.5, 1)
DRAWN_ATTRS = {"dtype": float32, **SEEDS}


def seed_words(attrs: Attrs) -> Array:
    """The two seeds of a random op as four words of 32 bits each, int64 `[4]`."""
    seeds = (int(attrs[key]) for key in SEEDS)
    return np.array([part for seed in seeds for part in (seed & WORD, seed >> 32 & WORD)], np.int64)


# Public functions ---------------------------------------------------------------------------------


@checked
def random_uniform(
    shape: Extents,
    minval: Any = 0,
    maxval: Any = None,
    dtype: AsDType = float32,
    seed: Seed = None,
    name: Name = None,
) -> Tensor:
    """Uniform numbers in [minval, maxval), of any shape.

    dtype is floating, int32 or int64; maxval is 1 for floats and must be given for integers. Halves are drawn
    as float32 and cut to their digits.
    Bounds may be scalar tensors. Rounding can make a float equal to maxval, unless the bounds are 0 and 1.

    Raises InvalidArgumentError for other dtypes; for integers also if the range is empty.
    """
    graph_seed, op_seed = get_seed(seed)
    if dtype in (int32, int64):
        if maxval is None:
            raise InvalidArgumentError(f"random_uniform: {dtype.name} needs maxval")
        bounds = as_tensor(minval, dtype), as_tensor(maxval, dtype)
        return RandomUniformInt.tensor(
            as_shape_vector(shape), *bounds, seed=graph_seed, seed2=op_seed, name=name
        )
    drawn = _drawn_dtype("random_uniform", dtype)
    with name_scope(name or "random_uniform"):
        result: Tensor = RandomUniform(as_shape_vector(shape), dtype=drawn, seed=graph_seed, seed2=op_seed)
        result = with_known_extents(result, shape)
        if dtype in HALVES:  # rounded down: a half may not become 1
            steps = 2.0 ** FRACTION_BITS[dtype]
            result = cast(multiply(floor(multiply(result, steps)), 1 / steps), dtype)
        if _is(minval, 0) and (maxval is None or _is(maxval, 1)):
            return result
        high = 1.0 if maxval is None else maxval
        numbers = type(minval) in (int, float) and type(high) in (int, float)
        for bound in (minval, high) if numbers else ():
            checked_array(bound, dtype)
        extent = high - minval if numbers else subtract(as_tensor(high, dtype), as_tensor(minval, dtype))
        return add(multiply(result, extent), minval)


@checked
def random_normal(
    shape: Extents,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: AsDType = float32,
    seed: Seed = None,
    name: Name = None,
) -> Tensor:
    """Normal numbers of any shape, floating, halves drawn as float32.

    `mean` and `stddev` may be tensors that broadcast.
    """
    return _normal(RandomStandardNormal, "random_normal", shape, mean, stddev, dtype, seed, name)


@checked
def truncated_normal(
    shape: Extents,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: AsDType = float32,
    seed: Seed = None,
    name: Name = None,
) -> Tensor:
    """Normal numbers within two standard deviations of the mean, of any shape; see `random_normal`."""
    return _normal(TruncatedNormal, "truncated_normal", shape, mean, stddev, dtype, seed, name)


def _normal(
    definition: OpDef,
    op: str,
    shape: Any,
    mean: Any,
    stddev: Any,
    dtype: DType,
    seed: int | None,
    name: str | None,
) -> Tensor:
    drawn = _drawn_dtype(op, dtype)
    graph_seed, op_seed = get_seed(seed)
    with name_scope(name or op):
        result: Tensor = definition(as_shape_vector(shape), dtype=drawn, seed=graph_seed, seed2=op_seed)
        result = cast(with_known_extents(result, shape), dtype)
        if not _is(stddev, 1):
            result = multiply(result, stddev)
        return result if _is(mean, 0) else add(result, mean)


@checked
def random_shuffle(value: Any, seed: Seed = None, name: Name = None) -> Tensor:
    """The slices of `value` `[n, ...]` along its first axis in random order, different in each step.

    The order is a pure function of seeds, replica and step; gradients are permuted back. Raises
    InvalidArgumentError for a scalar.
    """
    tensor = as_tensor(value)
    if tensor.shape.ndims == 0:
        raise InvalidArgumentError(f"random_shuffle: {tensor.name} is a scalar, which has no first axis")
    with tensor.graph.as_default(), name_scope(name or "RandomShuffle"):
        graph_seed, op_seed = get_seed(seed)
        count = strided_slice(dims(tensor), slice(0, 1))
        return gather(tensor, RandomPermutation(count, seed=graph_seed, seed2=op_seed))


def dropout_mask(shape: Any, rate: Any, seed: int | None = None) -> Tensor:
    """0 with probability `rate`, else 1 / (1 - rate), of the given shape and the dtype of the scalar `rate`.

    A rate that is not in [0, 1) gives NaN.
    """
    graph_seed, op_seed = get_seed(seed)
    return DropoutMask.tensor(as_shape_vector(shape), rate, seed=graph_seed, seed2=op_seed)


@checked
def get_seed(op_seed: Seed) -> tuple[int, int]:
    """The seeds (graph's, op's) of a random op made now, by TensorFlow's rules.

    Without an op seed, the graph's seed and the number of ops so far determine it; without either,
    the operating system's entropy is drawn once, so the graph stays replayable.
    """
    graph = get_default_graph()
    if graph.seed is not None:
        return graph.seed, len(graph.get_operations()) if op_seed is None else op_seed
    if op_seed is not None:
        return DEFAULT_GRAPH_SEED, op_seed
    entropy = os.urandom(14)  # 56 bits each: exact in every number format
    return int.from_bytes(entropy[:7], "little"), int.from_bytes(entropy[7:], "little")


def _is(value: Any, number: float) -> bool:
    return type(value) in (int, float) and value == number


def _drawn_dtype(op: str, kind: DType) -> DType:
    """The dtype in which numbers of a floating dtype are drawn. Raises InvalidArgumentError for others."""
    if kind in HALVES:
        return float32
    if kind not in FLOATING:
        raise InvalidArgumentError(f"{op}: dtype {kind.name} is not supported; use float32 or float64")
    return kind


# Specs --------------------------------------------------------------------------------------------


def _drawn_spec(op: str) -> SpecRule:
    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        require_dtype(op, TensorSpec((), attrs["dtype"]), FLOATING, "dtype")
        return TensorSpec(dims_of_vector(op, inputs[0]), attrs["dtype"])

    return spec


def _scalar(op: str, spec: TensorSpec, what: str) -> None:
    if spec.shape not in ((), None):
        raise InvalidArgumentError(f"{op}: {what} is {spec}, expected a scalar")


def _integer_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    shape, low, high = inputs
    require_dtype("random_uniform", low, (int32, int64), "minval")
    dtype = require_same_dtype("random_uniform", (low, high))
    _scalar("random_uniform", low, "minval")
    _scalar("random_uniform", high, "maxval")
    if low.value is not None and high.value is not None:
        sampling.require_range(int(low.value), int(high.value))
    return TensorSpec(dims_of_vector("random_uniform", shape), dtype)


def _mask_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("dropout", inputs[1], FLOATING, "rate")
    _scalar("dropout", inputs[1], "rate")
    return TensorSpec(dims_of_vector("dropout", inputs[0], "noise_shape"), inputs[1].dtype)


def _distribution(name: str, function: str, kernel: Kernel, doc: str) -> OpDef:
    return define_op(
        name,
        spec=_drawn_spec(function),
        gradient=NOT_DIFFERENTIABLE,
        kernel=kernel,
        inputs=("shape",),
        attrs=DRAWN_ATTRS,
        shape_inputs=(0,),
        random=True,
        doc=doc,
    )


_STANDARD = "Normal numbers of mean 0 and standard deviation 1"
RandomUniform = _distribution(
    "RandomUniform", "random_uniform", sampling.UNIFORM, "Uniform numbers in [0, 1)."
)
RandomStandardNormal = _distribution(
    "RandomStandardNormal", "random_normal", sampling.NORMAL, f"{_STANDARD}."
)
TruncatedNormal = _distribution(
    "TruncatedNormal", "truncated_normal", sampling.TRUNCATED_NORMAL, f"{_STANDARD} that lie in [-2, 2]."
)


def _permutation_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    extents = dims_of_vector("random_shuffle", inputs[0])
    if extents is not None and len(extents) != 1:
        raise InvalidArgumentError(f"random_shuffle: expected the shape of a vector, got {inputs[0]}")
    return TensorSpec((None,) if extents is None else extents, int64)


RandomPermutation = define_op(
    "RandomPermutation",
    spec=_permutation_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=sampling.PERMUTATION,
    inputs=("shape",),
    attrs=SEEDS,
    shape_inputs=(0,),
    random=True,
    doc="The numbers 0 to n - 1 in random order, n being the one extent of the shape.",
)
RandomUniformInt = define_op(
    "RandomUniformInt",
    spec=_integer_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=sampling.INTEGERS,
    inputs=("shape", "minval", "maxval"),
    attrs=SEEDS,
    shape_inputs=(0,),
    random=True,
    doc="Integers in [minval, maxval).",
)
DropoutMask = define_op(
    "DropoutMask",
    spec=_mask_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=sampling.MASK,
    inputs=("shape", "rate"),
    attrs=SEEDS,
    shape_inputs=(0,),
    random=True,
    doc="0 with probability rate, else 1 / (1 - rate).",
)
