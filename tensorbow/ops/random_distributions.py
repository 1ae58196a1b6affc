"""Random numbers of further distributions: gamma, Poisson, and classes by their logits.

NumPy draws gamma and Poisson numbers on a CPU, from a Philox generator with the key and counter of the op's
stream and step (see `sampling`): the same in every run with the same NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    Attrs,
    Kernel,
    KernelCall,
    OpDef,
    Operation,
    Tensor,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.graph.definition import GradientRule, _NotDifferentiable
from tensorbow.kinds import AsDType, Count, Name, Seed, checked
from tensorbow.ops.argument_kinds import Extents
from tensorbow.ops.array_views import as_vector
from tensorbow.ops.arrays import stack
from tensorbow.ops.broadcasting import as_shape_vector, dims_of_vector, shape, sum_to
from tensorbow.ops.constant import constant
from tensorbow.ops.cumulative import cumsum
from tensorbow.ops.definition import define_op, require_dtype, require_rank
from tensorbow.ops.elementwise import add, divide, exp, multiply, subtract
from tensorbow.ops.philox import stream_key
from tensorbow.ops.positions import searchsorted
from tensorbow.ops.random import SEEDS, get_seed, random_uniform
from tensorbow.ops.reductions import reduce_max
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.special_functions import RandomGammaGrad
from tensorbow.specs import FLOATING, Array, DType, TensorSpec, float32, float64, int32, int64

__all__ = ["multinomial", "random_gamma", "random_poisson"]

PIECE = 4096  # elements drawn at a time

Draw = Callable[[np.random.Generator, Array, "tuple[int, int]"], Array]


def _distribution(
    name: str,
    parameter: str,
    draw: Draw,
    gradient: GradientRule | _NotDifferentiable,
) -> OpDef:
    """An op (shape, parameters) -> numbers [*shape, *parameters' shape]."""

    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        extents, parameters = inputs
        require_dtype(name, parameters, FLOATING, parameter)
        lead = dims_of_vector(name, extents)
        whole = None if lead is None or parameters.shape is None else (*lead, *parameters.shape)
        return TensorSpec(whole, parameters.dtype)

    def prepare(call: KernelCall) -> Callable[[], None]:
        (_, parameters), (out,), attrs, state = call.inputs, call.outputs, call.attrs, call.state
        elements, width = as_vector(out), parameters.size

        def step() -> None:
            if not elements.size:
                return
            key = stream_key(int(attrs["seed"]), int(attrs["seed2"]), int(state["random_stream"]))
            words = np.array([key[0] | key[1] << 32, 0], np.uint64)
            counter = np.array([0, 0, int(state["counter"]), 0], np.uint64)
            generator = np.random.Generator(np.random.Philox(counter=counter, key=words))
            rows, columns = elements.reshape(-1, width), parameters.reshape(-1)
            high = max(1, PIECE // width)
            for top in range(0, len(rows), high):
                for left in range(0, width, PIECE):
                    part = rows[top : top + high, left : left + PIECE]
                    part[...] = draw(generator, columns[left : left + PIECE], part.shape)

        return step

    return define_op(
        name,
        spec=spec,
        gradient=gradient,
        kernel=Kernel(prepare=prepare),
        inputs=("shape", parameter),
        attrs=SEEDS,
        shape_inputs=(0,),
        random=True,
        why_cpu="NumPy draws its numbers",
    )


def _gamma(generator: np.random.Generator, alpha: Array, size: tuple[int, int]) -> Array:
    """NaN where alpha is not positive; never 0, of which the density has no logarithm."""
    valid = (alpha > 0) & np.isfinite(alpha)
    drawn = generator.standard_gamma(np.where(valid, alpha, 1.0), size)
    return np.where(valid, np.maximum(drawn, np.finfo(alpha.dtype).tiny), np.nan)


def _poisson(generator: np.random.Generator, rate: Array, size: tuple[int, int]) -> Array:
    valid = (rate >= 0) & (rate < 1e18)
    return np.where(valid, generator.poisson(np.where(valid, rate, 1.0), size), np.nan)


def _gamma_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """Gradient by implicit differentiation of the distribution function (Figurnov et al., 2018)."""
    slopes = RandomGammaGrad(op.inputs[1], op.outputs[0])
    return [None, sum_to(multiply(g, slopes), op.inputs[1])]


RandomGamma = _distribution("RandomGamma", "alpha", _gamma, _gamma_gradient)
RandomPoisson = _distribution("RandomPoissonV2", "rate", _poisson, NOT_DIFFERENTIABLE)


def _seeds(seed: int | None) -> dict[str, Any]:
    return dict(zip(SEEDS, get_seed(seed), strict=True))


@checked
def random_gamma(
    shape: Extents,
    alpha: Any,
    beta: Any = None,
    dtype: AsDType = float32,
    seed: Seed = None,
    name: Name = None,
) -> Tensor:
    """Gamma-distributed numbers [*shape, *p], p being the shape of `alpha` and `beta`, which broadcast.

    alpha: the shape parameter, above 0; beta: the inverse of the scale, by default 1. float32 or float64, on
    CPU devices. The gradient reaches alpha and beta, by implicit differentiation.
    """
    _require_floating("random_gamma", dtype)
    with graph_of([shape, alpha, beta]).as_default(), name_scope(name or "random_gamma"):
        shapes = as_tensor(alpha, dtype)
        scale = None if beta is None else as_tensor(beta, dtype)
        if scale is not None:
            shapes = add(shapes, multiply(scale, 0.0))  # broadcast
        result: Tensor = RandomGamma(as_shape_vector(shape), shapes, **_seeds(seed))
        return result if scale is None else divide(result, scale)


@checked
def random_poisson(
    lam: Any, shape: Extents, dtype: AsDType = float32, seed: Seed = None, name: Name = None
) -> Tensor:
    """Poisson-distributed numbers [*shape, *p], p being the shape of the rates `lam` (at least 0).

    dtype: float32, float64, int32 or int64. On CPU devices.
    """
    if dtype not in (float32, float64, int32, int64):
        raise InvalidArgumentError(
            f"random_poisson: dtype {dtype.name}; expected float32, float64, int32 or int64"
        )
    with graph_of([lam, shape]).as_default(), name_scope(name or "random_poisson"):
        rates = as_tensor(lam, None if hasattr(lam, "dtype") else float32)
        rates = cast(rates, float64)
        return cast(RandomPoisson(as_shape_vector(shape), rates, **_seeds(seed)), dtype)


def _require_floating(op: str, dtype: DType) -> None:
    if dtype not in FLOATING:
        raise InvalidArgumentError(f"{op}: dtype {dtype.name} is not supported; use float32 or float64")


@checked
def multinomial(
    logits: Any,
    num_samples: Count,
    seed: Seed = None,
    name: Name = None,
    output_dtype: AsDType = int64,
) -> Tensor:
    """Classes drawn independently with the probabilities softmax(logits): [batch, num_samples].

    logits: `[batch, classes]`; output_dtype: int32 or int64. The search in the running sums of probabilities
    is on a CPU.
    """
    if output_dtype not in (int32, int64):
        raise InvalidArgumentError(f"multinomial: output_dtype {output_dtype.name}; expected int32 or int64")
    scores = as_tensor(logits)
    with scores.graph.as_default(), name_scope(name or "multinomial"):
        require_dtype("multinomial", scores.spec, FLOATING, "logits")
        if scores.shape.ndims is not None:
            require_rank("multinomial", scores.spec, 2, "logits")
        wide = cast(scores, float64)
        running = cumsum(exp(subtract(wide, reduce_max(wide, 1, keepdims=True))), 1)
        total = strided_slice(running, (slice(None), slice(-1, None)))
        batch = strided_slice(shape(scores), 0)
        drawn = random_uniform(stack([batch, constant(num_samples)]), dtype=float64, seed=seed)
        result = searchsorted(running, multiply(drawn, total), "right", output_dtype)
        result.set_shape([scores.spec.dims[0] if scores.spec.shape else None, num_samples])
        return result


@checked
def categorical(
    logits: Any, num_samples: Count, dtype: AsDType = int64, seed: Seed = None, name: Name = None
) -> Tensor:
    """`multinomial` under the name and with the arguments of `tb.random`."""
    return multinomial(logits, num_samples, seed, name, dtype)
