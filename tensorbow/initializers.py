"""Initialisers of variables, with TensorFlow's names and formulas: `tb.initializers`.

An initialiser is called with a shape and a dtype, and returns a tensor. Random ones follow the graph's seed
like all random ops.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np

from tensorbow.array_likes import as_array
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import (
    AsDType,
    AsShape,
    Flag,
    Kind,
    Number,
    NumberOrTensor,
    PositiveNumber,
    RefusedError,
    Seed,
    checked,
    instance,
    one_of,
    refuse,
    sequence,
    whole,
)
from tensorbow.missing_names import no_attribute
from tensorbow.ops import random as drawn
from tensorbow.ops.arrays import reshape, transpose
from tensorbow.ops.constant import filled, to_array
from tensorbow.ops.elementwise import multiply
from tensorbow.ops.filling import fill
from tensorbow.ops.orthogonal import Orthonormal
from tensorbow.ops.slicing import slice as slice_tensor
from tensorbow.specs import Array, DType, SaveSliceInfo, TensorShape, bool_, float32

__all__ = [
    "ConstantInitializer",
    "Initializer",
    "Ones",
    "Orthogonal",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "VarianceScaling",
    "Zeros",
    "constant",
    "fans",
    "get",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "ones",
    "orthogonal",
    "random_normal",
    "random_uniform",
    "truncated_normal",
    "variance_scaling",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]

MODES = ("fan_in", "fan_out", "fan_avg")
DISTRIBUTIONS = ("normal", "truncated_normal", "untruncated_normal", "uniform")

_LARGEST = (1 << 31) - 1  # limit of extents in random ops
_TRUNCATED_DEVIATION = 0.87962566103423978  # of a standard normal truncated at two deviations


Slice: TypeAlias = Annotated[Any, instance(SaveSliceInfo, expected="the slice_info of a part")]


class Initializer(ABC):
    """Base of all initialisers. `dtype` is that of calls without one, such as `get_variable` never makes."""

    dtype: DType = float32
    _draws_elements = False  # independent ones, whose distribution does not depend on the shape

    @checked
    def __call__(
        self, shape: AsShape, dtype: AsDType | None = None, partition_info: Slice | None = None
    ) -> Tensor:
        """An initial value of that shape. partition_info: it is this slice of a partitioned variable.

        Raises InvalidArgumentError for a shape it does not support.
        """
        dtype, extents = dtype or self.dtype, _extents(shape)
        if partition_info is not None:
            return self._make_slice(partition_info, dtype)
        return self._make(extents, dtype)

    def _make_slice(self, part: SaveSliceInfo, dtype: DType) -> Tensor:
        """The value of a part: of independent draws without a seed, else the slice of the whole value."""
        if getattr(self, "seed", 0) is None and self._draws_elements:
            return self._make([*part.var_shape], dtype)
        return slice_tensor(self._make([*part.full_shape], dtype), part.var_offset, part.var_shape)

    @abstractmethod
    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        """The value."""


def _read_values(value: Any) -> Array:
    try:
        values = as_array(value)
    except InvalidArgumentError as error:
        raise RefusedError(error) from None
    if values.dtype.kind not in "iufb":
        raise RefusedError
    return values


Values: TypeAlias = Annotated[Any, Kind("a number, or an array or list of numbers", _read_values)]


class ConstantInitializer(Initializer):
    """One constant everywhere, or an array (or list) with as many values as the variable has elements."""

    @checked
    def __init__(self, value: Values = 0, dtype: AsDType = float32, verify_shape: Flag = False):
        """verify_shape: TensorFlow's; an array must fill the shape in any case."""
        self.value, self.dtype = value, dtype

    def _make_slice(self, part: SaveSliceInfo, dtype: DType) -> Tensor:
        if np.ndim(self.value) == 0:
            return self._make([*part.var_shape], dtype)
        return super()._make_slice(part, dtype)

    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        values = as_array(self.value)
        if dtype != bool_ and values.dtype != bool:
            values = to_array(values, dtype)
        size = math.prod(shape)
        if values.ndim and values.size != size:
            raise InvalidArgumentError(
                f"constant initializer: {values.size} values do not fill the shape {shape}"
            )
        array = filled(shape, values) if values.ndim == 0 else values.reshape(shape)
        return convert_to_tensor(array.astype(dtype.as_numpy_dtype, copy=False), dtype)


class Zeros(ConstantInitializer):
    """All zeros; of strings, empty ones."""

    def __init__(self, dtype: AsDType = float32) -> None:
        super().__init__(0, dtype)

    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        return fill(shape, b"") if dtype.is_string else super()._make(shape, dtype)


class Ones(ConstantInitializer):
    """All ones."""

    def __init__(self, dtype: AsDType = float32) -> None:
        super().__init__(1, dtype)


class RandomUniform(Initializer):
    """Uniform distribution in [minval, maxval)."""

    _draws_elements = True

    @checked
    def __init__(
        self,
        minval: NumberOrTensor = -0.05,
        maxval: NumberOrTensor = 0.05,
        seed: Seed = None,
        dtype: AsDType = float32,
    ):
        self.minval, self.maxval, self.seed, self.dtype = minval, maxval, seed, dtype

    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        return drawn.random_uniform(shape, self.minval, self.maxval, dtype, seed=self.seed)


class RandomNormal(Initializer):
    """Normal distribution."""

    _draws_elements = True
    _draw = staticmethod(drawn.random_normal)

    @checked
    def __init__(
        self,
        mean: NumberOrTensor = 0.0,
        stddev: NumberOrTensor = 0.05,
        seed: Seed = None,
        dtype: AsDType = float32,
    ):
        self.mean, self.stddev, self.seed, self.dtype = mean, stddev, seed, dtype

    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        return self._draw(shape, self.mean, self.stddev, dtype, seed=self.seed)


class TruncatedNormal(RandomNormal):
    """Normal distribution; values beyond two standard deviations are drawn again."""

    _draw = staticmethod(drawn.truncated_normal)


class VarianceScaling(Initializer):
    """Random values of variance scale / n; n is the number of a unit's inputs or outputs, or their mean.

    mode: fan_in, fan_out or fan_avg. distribution: truncated_normal (also called normal),
    untruncated_normal or uniform.
    """

    @checked
    def __init__(
        self,
        scale: PositiveNumber = 1.0,
        mode: Annotated[str, one_of(*MODES)] = "fan_in",
        distribution: Annotated[str, one_of(*DISTRIBUTIONS)] = "truncated_normal",
        seed: Seed = None,
        dtype: AsDType = float32,
    ):
        self.scale, self.mode, self.distribution = scale, mode, distribution
        self.seed, self.dtype = seed, dtype

    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        return self._drawn(shape, dtype, fans(shape))

    def _make_slice(self, part: SaveSliceInfo, dtype: DType) -> Tensor:
        if self.seed is None:
            return self._drawn([*part.var_shape], dtype, fans(part.full_shape))
        return super()._make_slice(part, dtype)

    def _drawn(self, shape: list[int], dtype: DType, of_units: tuple[float, float]) -> Tensor:
        fan_in, fan_out = of_units
        n = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        variance = self.scale / max(1.0, n)
        deviation = math.sqrt(variance)
        if self.distribution == "uniform":
            limit = math.sqrt(3 * variance)
            return drawn.random_uniform(shape, -limit, limit, dtype, seed=self.seed)
        if self.distribution == "untruncated_normal":
            return drawn.random_normal(shape, 0.0, deviation, dtype, seed=self.seed)
        return drawn.truncated_normal(shape, 0.0, deviation / _TRUNCATED_DEVIATION, dtype, seed=self.seed)


class Orthogonal(Initializer):
    """Orthonormal rows or columns, whichever are fewer, times `gain` (Saxe et al., 2014).

    The matrix is [product of the other extents, last extent].
    """

    @checked
    def __init__(self, gain: Number = 1.0, seed: Seed = None, dtype: AsDType = float32):
        self.gain, self.seed, self.dtype = gain, seed, dtype

    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        if len(shape) < 2:
            raise InvalidArgumentError(
                f"orthogonal initializer: expected at least two axes, got the shape {shape}"
            )
        columns = shape[-1]
        rows = math.prod(shape[:-1])
        with name_scope("orthogonal"):
            matrix = drawn.random_normal(
                [max(rows, columns), min(rows, columns)], dtype=dtype, seed=self.seed
            )
            basis: Tensor = Orthonormal(matrix)
            if rows < columns:
                basis = transpose(basis, [1, 0])
            return multiply(reshape(basis, shape), self.gain)


@checked
def glorot_uniform(seed: Seed = None, dtype: AsDType = float32) -> VarianceScaling:
    """Uniform of variance 2 / (inputs + outputs) (Glorot and Bengio, 2010)."""
    return VarianceScaling(1.0, "fan_avg", "uniform", seed, dtype)


@checked
def glorot_normal(seed: Seed = None, dtype: AsDType = float32) -> VarianceScaling:
    """Truncated normal of variance 2 / (inputs + outputs)."""
    return VarianceScaling(1.0, "fan_avg", "truncated_normal", seed, dtype)


@checked
def he_uniform(seed: Seed = None, dtype: AsDType = float32) -> VarianceScaling:
    """Uniform of variance 2 / inputs (He et al., 2015)."""
    return VarianceScaling(2.0, "fan_in", "uniform", seed, dtype)


@checked
def he_normal(seed: Seed = None, dtype: AsDType = float32) -> VarianceScaling:
    """Truncated normal of variance 2 / inputs."""
    return VarianceScaling(2.0, "fan_in", "truncated_normal", seed, dtype)


@checked
def lecun_uniform(seed: Seed = None, dtype: AsDType = float32) -> VarianceScaling:
    """Uniform of variance 1 / inputs."""
    return VarianceScaling(1.0, "fan_in", "uniform", seed, dtype)


@checked
def lecun_normal(seed: Seed = None, dtype: AsDType = float32) -> VarianceScaling:
    """Truncated normal of variance 1 / inputs."""
    return VarianceScaling(1.0, "fan_in", "truncated_normal", seed, dtype)


zeros, ones, constant = Zeros, Ones, ConstantInitializer
random_uniform, random_normal, truncated_normal = RandomUniform, RandomNormal, TruncatedNormal
variance_scaling, orthogonal = VarianceScaling, Orthogonal
xavier_uniform, xavier_normal = glorot_uniform, glorot_normal

_BY_NAME: dict[str, Callable[[], Initializer]] = {
    "zeros": Zeros,
    "ones": Ones,
    "constant": ConstantInitializer,
    "random_uniform": RandomUniform,
    "random_normal": RandomNormal,
    "truncated_normal": TruncatedNormal,
    "variance_scaling": VarianceScaling,
    "orthogonal": Orthogonal,
    "glorot_uniform": glorot_uniform,
    "glorot_normal": glorot_normal,
    "xavier_uniform": glorot_uniform,
    "xavier_normal": glorot_normal,
    "he_uniform": he_uniform,
    "he_normal": he_normal,
    "lecun_uniform": lecun_uniform,
    "lecun_normal": lecun_normal,
}


def get(identifier: Any) -> Initializer | Callable[..., Any]:
    """An initialiser from its name (`"he_normal"`), its class, a function that makes one, or itself.

    Raises InvalidArgumentError for an unknown name, listing the known ones.
    """
    if isinstance(identifier, str):
        if identifier not in _BY_NAME:
            raise InvalidArgumentError(
                f"initializers.get: unknown identifier {identifier!r:.60}; "
                f"known: {', '.join(sorted(_BY_NAME))}"
            )
        return _BY_NAME[identifier]()
    is_class = isinstance(identifier, type) and issubclass(identifier, Initializer)
    if is_class or any(identifier is known for known in _BY_NAME.values()):
        made: Initializer = identifier()
        return made
    if callable(identifier) and not isinstance(identifier, type):
        return identifier  # type: ignore[no-any-return]
    raise refuse("initializers.get", "identifier", "a name or a function of shape and dtype", identifier)


Extents: TypeAlias = Annotated[Sequence[int], sequence(whole(0), "a list of whole numbers")]


@checked
def fans(shape: Extents) -> tuple[float, float]:
    """Numbers of a unit's inputs and outputs, for a matrix [in, out] or a filter [height, width, in, out]."""
    if len(shape) < 1:
        return 1.0, 1.0
    if len(shape) == 1:
        return float(shape[0]), float(shape[0])
    field = math.prod(shape[:-2])
    return float(shape[-2] * field), float(shape[-1] * field)


def _extents(shape: TensorShape) -> list[int]:
    dims = shape.dims
    extents = [] if dims is None else [extent for extent in dims if extent is not None]
    if dims is None or len(extents) < len(dims):
        raise InvalidArgumentError(f"initializer: the shape must be fully known, got {shape}")
    if any(extent > _LARGEST for extent in extents):
        raise InvalidArgumentError(
            f"initializer: expected a shape of at most {_LARGEST} along each axis, got {shape}"
        )
    return extents


if not TYPE_CHECKING:  # for which every name would be known

    def __getattr__(name: str) -> Any:
        raise no_attribute(name, __all__, __name__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
