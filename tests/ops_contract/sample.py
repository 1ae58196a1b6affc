"""The sample record of the op contract, and makers of small arrays for samples.

How to add samples for the ops of `tensorbow/ops/thing.py`
---------------------------------------------------------
Write `tests/ops_contract/samples_thing.py` with one list; the contract finds the file by its name:

    SAMPLES = [
        Sample(Relu, (normal(3, 5),), expected=lambda x: np.maximum(x, 0)),
        Sample(Relu, (normal(0, 5),), expected=lambda x: np.maximum(x, 0), label="empty"),
        Sample(Relu, (normal(256, 1031),), expected=lambda x: np.maximum(x, 0), label="large"),
    ]

Every op needs at least: an ordinary sample with pairwise different extents, one with a zero-size
input, and one whose largest array is about 1 MB (`large` is computed from the sizes; it checks that
a step allocates no tensor memory, and is left out of the slower checks). An op that cannot have one
of these is entered in `tests/ops_contract/exceptions.py` with the reason.

Gradients are checked in float64 for all floating inputs, so inputs must keep away from kinks
(`apart` gives values with distances between them). Inputs and expected results are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.specs import Array, TensorSpec, as_dtype

LARGE_NBYTES = 500_000


@dataclass(frozen=True, eq=False)
class Sample:
    """One call of an op with its expected result.

    expected(*inputs) is an independent NumPy expression of the result: one array, or a tuple of
    arrays for several outputs. None for an output, or `expected=None`, is not compared (random
    ops state their distributions in tests of their own).
    """

    op: OpDef
    inputs: tuple[Array, ...]
    expected: Callable[..., Any] | None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    wrt: tuple[int, ...] | None = None  # inputs to check the gradient of; None: every floating one
    through: tuple[int, ...] | None = None  # outputs the gradient flows from; None: every floating one
    constant: tuple[
        int, ...
    ] = ()  # inputs that are constants of the graph in gradient checks, beside shape_inputs
    second_order: bool = False  # also check the gradient of the gradient
    contiguous: tuple[int, ...] = ()  # inputs that always come contiguous, by the layout of their region
    exact_layout: bool = True  # strided and contiguous inputs give the same bits (BLAS and sums: not)
    rtol: float | None = None  # of kernel against `expected`; None: by dtype
    atol: float | None = None
    gradient_rtol: float = 1e-5
    state: Mapping[str, float] = field(default_factory=dict)  # STATE scalars, as {"counter": 3, "replica": 1}
    written: Callable[..., Any] | None = None  # expected contents of the inputs in `op.writes`, as a tuple

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(np.asarray(a) for a in self.inputs))
        for array in self.inputs:
            array.flags.writeable = False

    @property
    def id(self) -> str:
        """Name of the test case."""
        shapes = "x".join("(" + ",".join(map(str, a.shape)) + ")" for a in self.inputs)
        return f"{self.op.name}-{self.label or shapes}"

    @property
    def complete_attrs(self) -> dict[str, Any]:
        """Attributes, completed with the op's defaults."""
        return {**self.op.attrs, **self.attrs}

    @cached_property
    def expected_outputs(self) -> tuple[Array | None, ...] | None:
        """Result of `expected`, as a tuple."""
        if self.expected is None:
            return None
        with np.errstate(all="ignore"):
            result = self.expected(*self.inputs)
        return result if isinstance(result, tuple) else (np.asarray(result),)

    @cached_property
    def large(self) -> bool:
        """True for a sample that measures allocation; computed from the specs alone."""
        inputs = tuple(TensorSpec(a.shape, as_dtype(a.dtype), a) for a in self.inputs)
        specs = (*inputs, *self.op.infer(inputs, self.complete_attrs))
        return max((spec.nbytes for spec in specs), default=0) >= LARGE_NBYTES

    @property
    def empty(self) -> bool:
        """True if an input has no elements."""
        return any(a.size == 0 for a in self.inputs)


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Normally distributed numbers; another `seed` gives another array of the same shape."""
    return np.asarray(_generator(shape, seed).standard_normal(shape), dtype)


def uniform(
    *shape: int, low: float = 0.5, high: float = 2.0, dtype: Any = np.float32, seed: int = 0
) -> Array:
    """Uniformly distributed numbers, positive unless `low` says otherwise."""
    return np.asarray(_generator(shape, seed).uniform(low, high, shape), dtype)


def integers(*shape: int, low: int = 0, high: int = 10, dtype: Any = np.int32, seed: int = 0) -> Array:
    """Integers from `low` to `high` - 1."""
    return np.asarray(_generator(shape, seed).integers(low, high, shape), dtype)


def apart(*shape: int, step: float = 0.125, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Shuffled distinct numbers around zero, at least `step` from each other and `step` / 2 from zero."""
    size = int(np.prod(shape))
    values = (np.arange(size) - size // 2 + 0.5) * step
    return np.asarray(_generator(shape, seed).permutation(values).reshape(shape), dtype)


def vector(*values: int) -> Array:
    """int32 vector: a shape, a row of paddings, a permutation."""
    return np.array(values, np.int32)


def _generator(shape: tuple[int, ...], seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, len(shape), *shape])
