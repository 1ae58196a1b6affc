"""Initial values by name, with TensorFlow's names and formulas: `tb.initializers`.

An initialiser is called with a shape and a dtype, and gives a tensor. Random ones follow the graph's seed
as all random ops do.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorbow.array_likes import as_array
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor, name_scope
from tensorbow.ops import random as drawn
from tensorbow.ops.arrays import reshape, transpose
from tensorbow.ops.elementwise import multiply
from tensorbow.ops.orthogonal import Orthonormal
from tensorbow.specs import DType, TensorShape, as_dtype, float32

Shape: TypeAlias = "Sequence[int] | TensorShape"

_TRUNCATED_DEVIATION = 0.87962566103423978  # of a standard normal cut at two deviations


class Initializer(ABC):
    """What a variable starts from."""

    def __call__(self, shape: Shape, dtype: Any = None) -> Tensor:
        """The initial value of that shape. Raises InvalidArgumentError for a shape it is not meant for."""
        kind = float32 if dtype is None else as_dtype(dtype)
        return self._make(_extents(shape), kind)

    @abstractmethod
    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        """The value."""


class ConstantInitializer(Initializer):
    """One value everywhere, or an array (or list) of as many values as the variable has elements."""

    def __init__(self, value: Any = 0):
        self.value = value

    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        values = as_array(self.value)
        size = math.prod(shape)
        if values.ndim and values.size != size:
            raise InvalidArgumentError(
                f"constant initializer: {values.size} values do not fill the shape {shape}"
            )
        filled = np.full(shape, values) if values.ndim == 0 else values.reshape(shape)
        return convert_to_tensor(filled.astype(dtype.as_numpy_dtype), dtype)


class Zeros(ConstantInitializer):
    """Zeros."""

    def __init__(self) -> None:
        super().__init__(0)


class Ones(ConstantInitializer):
    """Ones."""

    def __init__(self) -> None:
        super().__init__(1)


class RandomUniform(Initializer):
    """Uniform in [minval, maxval)."""

    def __init__(self, minval: float = -0.05, maxval: float = 0.05, seed: int | None = None):
        self.minval, self.maxval, self.seed = minval, maxval, seed

    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        return drawn.random_uniform(shape, self.minval, self.maxval, dtype, seed=self.seed)


class RandomNormal(Initializer):
    """Normal."""

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None):
        self.mean, self.stddev, self.seed = mean, stddev, seed

    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        return drawn.random_normal(shape, self.mean, self.stddev, dtype, seed=self.seed)


class TruncatedNormal(Initializer):
    """Normal, drawn anew beyond two standard deviations."""

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None):
        self.mean, self.stddev, self.seed = mean, stddev, seed

    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        return drawn.truncated_normal(shape, self.mean, self.stddev, dtype, seed=self.seed)


class VarianceScaling(Initializer):
    """Numbers of variance scale / n, with n the inputs or outputs of a unit, or the mean of both.

    mode: fan_in, fan_out or fan_avg. distribution: truncated_normal (also called normal),
    untruncated_normal or uniform.
    """

    MODES = ("fan_in", "fan_out", "fan_avg")
    DISTRIBUTIONS = ("normal", "truncated_normal", "untruncated_normal", "uniform")

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: int | None = None,
    ):
        if not scale > 0:
            raise InvalidArgumentError(f"variance_scaling: scale must be positive, got {scale}")
        for what, value, known in (
            ("mode", mode, self.MODES),
            ("distribution", distribution, self.DISTRIBUTIONS),
        ):
            if value not in known:
                raise InvalidArgumentError(
                    f"variance_scaling: {what} must be one of {', '.join(known)}, got {value!r}"
                )
        self.scale, self.mode, self.distribution, self.seed = scale, mode, distribution, seed

    def _make(self, shape: list[int], dtype: DType) -> Tensor:
        fan_in, fan_out = fans(shape)
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
    """Orthonormal rows or columns, whichever are fewer, of the matrix [product of the others, last axis],
    times `gain` (Saxe et al., 2014).
    """

    def __init__(self, gain: float = 1.0, seed: int | None = None):
        self.gain, self.seed = gain, seed

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


def glorot_uniform(seed: int | None = None) -> VarianceScaling:
    """Uniform of variance 2 / (inputs + outputs) (Glorot and Bengio, 2010)."""
    return VarianceScaling(1.0, "fan_avg", "uniform", seed)


def glorot_normal(seed: int | None = None) -> VarianceScaling:
    """Truncated normal of variance 2 / (inputs + outputs)."""
    return VarianceScaling(1.0, "fan_avg", "truncated_normal", seed)


def he_uniform(seed: int | None = None) -> VarianceScaling:
    """Uniform of variance 2 / inputs (He et al., 2015)."""
    return VarianceScaling(2.0, "fan_in", "uniform", seed)


def he_normal(seed: int | None = None) -> VarianceScaling:
    """Truncated normal of variance 2 / inputs."""
    return VarianceScaling(2.0, "fan_in", "truncated_normal", seed)


def lecun_uniform(seed: int | None = None) -> VarianceScaling:
    """Uniform of variance 1 / inputs."""
    return VarianceScaling(1.0, "fan_in", "uniform", seed)


def lecun_normal(seed: int | None = None) -> VarianceScaling:
    """Truncated normal of variance 1 / inputs."""
    return VarianceScaling(1.0, "fan_in", "truncated_normal", seed)


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
    """An initialiser from its name (`"he_normal"`), a class or function that makes one, or one itself.

    Raises InvalidArgumentError for a name that there is not, listing those there are.
    """
    if isinstance(identifier, str):
        if identifier not in _BY_NAME:
            raise InvalidArgumentError(
                f"unknown initializer {identifier!r}; known: {', '.join(sorted(_BY_NAME))}"
            )
        return _BY_NAME[identifier]()
    is_class = isinstance(identifier, type) and issubclass(identifier, Initializer)
    if is_class or identifier in _BY_NAME.values():
        made: Initializer = identifier()
        return made
    if callable(identifier):
        return identifier  # type: ignore[no-any-return]
    raise InvalidArgumentError(
        f"an initializer is a name or a function of shape and dtype, got {identifier!r}"
    )


def fans(shape: Sequence[int]) -> tuple[float, float]:
    """Inputs and outputs of a unit: of a matrix [in, out] or a filter [height, width, in, out]."""
    if len(shape) < 1:
        return 1.0, 1.0
    if len(shape) == 1:
        return float(shape[0]), float(shape[0])
    field = math.prod(shape[:-2])
    return float(shape[-2] * field), float(shape[-1] * field)


def _extents(shape: Shape) -> list[int]:
    dims = TensorShape(shape).dims
    extents = [] if dims is None else [extent for extent in dims if extent is not None]
    if dims is None or len(extents) < len(dims):
        raise InvalidArgumentError(f"initializer: the shape must be fully known, got {shape}")
    return extents
