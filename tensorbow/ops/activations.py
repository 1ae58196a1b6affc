"""Activations beside relu, sigmoid and tanh, which are in `elementwise`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    Attrs,
    Kernel,
    KernelCall,
    NodeSpec,
    Operation,
    Tensor,
    as_tensor,
    name_scope,
)
from tensorbow.kinds import AxisNumber, Flag, Name, Number, checked
from tensorbow.ops import elementwise_table as table
from tensorbow.ops.arrays import concat
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import (
    add,
    divide,
    erf,
    greater,
    minimum,
    multiply,
    negative,
    relu,
    sigmoid,
    tanh,
)
from tensorbow.ops.selection import select
from tensorbow.specs import FLOATING, FLOATS, TensorSpec, bool_, compatible

__all__ = [
    "crelu",
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "mish",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "softsign",
    "swish",
]

# Klambauer et al., 2017: with them, normalised activations stay normalised
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


@checked
def elu(features: Any, name: Name = None) -> Tensor:
    """`features` if positive, else exp(features) - 1 (Clevert et al., 2015); floating."""
    return table.Elu.tensor(features, name=name)


@checked
def softplus(features: Any, name: Name = None) -> Tensor:
    """log(1 + exp(features)), without overflow; floating."""
    return table.Softplus.tensor(features, name=name)


@checked
def gelu(features: Any, approximate: Flag = False, name: Name = None) -> Tensor:
    """`features` times the normal distribution function of `features` (Hendrycks and Gimpel, 2016); floating.

    `approximate` uses 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    """
    x = as_tensor(features)
    require_dtype("gelu", x.spec, FLOATS, "features")
    with x.graph.as_default(), name_scope(name or "Gelu"):
        if approximate:
            cubic = multiply(multiply(x, x), multiply(x, 0.044715))
            inner = tanh(multiply(add(x, cubic), math.sqrt(2 / math.pi)))
        else:
            inner = erf(multiply(x, math.sqrt(0.5)))
        return multiply(multiply(x, 0.5), add(inner, 1.0))


@checked
def relu6(features: Any, name: Name = None) -> Tensor:
    """min(max(features, 0), 6) (Krizhevsky, 2010)."""
    return minimum(6, relu(features), name)


@checked
def crelu(features: Any, name: Name = None, axis: AxisNumber = -1) -> Tensor:
    """relu of `features` and of their negative, one behind the other along `axis` (Shang et al., 2016)."""
    x = as_tensor(features)
    with x.graph.as_default(), name_scope(name or "CRelu"):
        return relu(concat([x, negative(x)], axis))


@checked
def selu(features: Any, name: Name = None) -> Tensor:
    """1.0507 times `features` if positive, else 1.7581 (exp(features) - 1) (Klambauer et al., 2017)."""
    x = as_tensor(features)
    with x.graph.as_default(), name_scope(name or "Selu"):
        return multiply(select(greater(x, 0.0), x, multiply(elu(x), _SELU_ALPHA)), _SELU_SCALE)


@checked
def softsign(features: Any, name: Name = None) -> Tensor:
    """features / (1 + |features|); floating."""
    x = as_tensor(features)
    with x.graph.as_default(), name_scope(name or "Softsign"):
        return divide(x, add(absolute(x), 1.0))


@checked
def swish(features: Any, name: Name = None) -> Tensor:
    """features * sigmoid(features) (Ramachandran et al., 2017); floating."""
    x = as_tensor(features)
    with x.graph.as_default(), name_scope(name or "swish"):
        return multiply(x, sigmoid(x))


@checked
def silu(features: Any, name: Name = None) -> Tensor:
    """features * sigmoid(features) (Elfwing et al., 2017), which `swish` is, too; floating."""
    return swish(features, name or "silu")


@checked
def mish(features: Any, name: Name = None) -> Tensor:
    """features * tanh(softplus(features)) (Misra, 2019); floating."""
    x = as_tensor(features)
    with x.graph.as_default(), name_scope(name or "mish"):
        return multiply(x, tanh(softplus(x)))


@checked
def hard_sigmoid(features: Any, name: Name = None) -> Tensor:
    """relu6(features + 3) / 6 (Howard et al., 2019, section 5.2); floating."""
    x = as_tensor(features)
    with x.graph.as_default(), name_scope(name or "hard_sigmoid"):
        return multiply(relu6(add(x, 3.0)), 1 / 6)


@checked
def hard_swish(features: Any, name: Name = None) -> Tensor:
    """features * relu6(features + 3) / 6 (Howard et al., 2019, section 5.2); floating."""
    x = as_tensor(features)
    with x.graph.as_default(), name_scope(name or "hard_swish"):
        return multiply(x, hard_sigmoid(x))


# Leaky ReLU ---------------------------------------------------------------------------------------


@checked
def leaky_relu(features: Any, alpha: Number = 0.2, name: Name = None) -> Tensor:
    """`features` if positive, else `alpha` times `features`; floating. The slope at 0 is `alpha`."""
    return LeakyRelu.tensor(features, alpha=alpha, name=name)


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("leaky_relu", inputs[0], FLOATING, "features")
    return TensorSpec(inputs[0].shape, inputs[0].dtype)


def _scratch(node: NodeSpec) -> list[TensorSpec]:
    """The results for slope alpha, and a mask of the others."""
    output = node.outputs[0]
    return [TensorSpec(output.shape, output.dtype), TensorSpec(output.shape, bool_)]


def _kernel(call: KernelCall) -> None:
    (x,), (out,), (low, mask) = call.inputs, call.outputs, call.scratch
    np.multiply(x, call.attrs["alpha"], out=low)
    np.greater(x, 0, out=mask)
    np.copyto(low, x, where=mask)
    np.copyto(out, low)


def _grad_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    dtype = require_same_dtype("leaky_relu gradient", inputs)
    require_dtype("leaky_relu gradient", inputs[0], FLOATING, "the gradients")
    gradients, features = inputs
    if not compatible(gradients.shape, features.shape):
        raise InvalidArgumentError(
            f"leaky_relu gradient: {gradients} for features {features}; expected one shape"
        )
    return TensorSpec(features.shape if gradients.shape is None else gradients.shape, dtype)


def _grad_kernel(call: KernelCall) -> None:
    (gradients, features), (out,), (low, mask) = call.inputs, call.outputs, call.scratch
    np.multiply(gradients, call.attrs["alpha"], out=low)
    np.greater(features, 0, out=mask)
    np.copyto(low, gradients, where=mask)
    np.copyto(out, low)


def _gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [LeakyReluGrad(g, op.inputs[0], alpha=op.attrs["alpha"])]


def _grad_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [LeakyReluGrad(g, op.inputs[1], alpha=op.attrs["alpha"]), None]


LeakyRelu = define_op(
    "LeakyRelu",
    spec=_spec,
    gradient=_gradient,
    kernel=Kernel(run=_kernel, scratch=_scratch, inplace=((0, 0),)),
    inputs=("features",),
    attrs={"alpha": 0.2},
)
LeakyReluGrad = define_op(
    "LeakyReluGrad",
    spec=_grad_spec,
    gradient=_grad_gradient,
    kernel=Kernel(run=_grad_kernel, scratch=_scratch, inplace=((0, 0), (0, 1))),
    inputs=("gradients", "features"),
    attrs={"alpha": 0.2},
)
