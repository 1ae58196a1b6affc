"""Layers one after another, and around a shortcut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import Name, called, checked, is_tensor, optional, refuse, sequence
from tensorbow.layers.building import LAYER, Activation, layer_scope
from tensorbow.ops.elementwise import add
from tensorbow.specs import compatible
from tensorbow.variable_scope import Reuse

__all__ = ["residual", "sequential"]


@checked
def sequential(
    inputs: Any,
    layers: Annotated[Any, sequence(LAYER, "a list of functions of a tensor")],
    *,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """Applies functions of one tensor, one after another, in a variable scope of their own:

    tb.layers.sequential(images, [tb.layers.flatten, partial(tb.layers.dense, units=10)])
    """
    tensor = convert_to_tensor(inputs)
    with tensor.graph.as_default(), layer_scope(name, "sequential", reuse):
        for layer in layers:
            tensor = _applied("sequential", "layers", layer, tensor)
        return tensor


@checked
def residual(
    inputs: Any,
    block: Annotated[Callable[[Any], Any], LAYER],
    shortcut: Annotated[Callable[[Any], Any] | None, optional(LAYER)] = None,
    activation: Activation = None,
    *,
    name: Name = None,
    reuse: Reuse | None = None,
) -> Tensor:
    """activation(block(inputs) + shortcut(inputs)), in a variable scope of their own (He et al., 2015).

    shortcut: by default the inputs themselves. Raises InvalidArgumentError if the two have different shapes.
    """
    tensor = convert_to_tensor(inputs)
    with tensor.graph.as_default(), layer_scope(name, "residual", reuse):
        changed = _applied("residual", "block", block, tensor)
        kept = tensor if shortcut is None else _applied("residual", "shortcut", shortcut, tensor)
        if not compatible(changed.spec.shape, kept.spec.shape):
            raise InvalidArgumentError(
                f"residual: the block gives {changed.spec}, the shortcut {kept.spec}; expected one shape: "
                "give a shortcut that projects, such as a 1x1 convolution"
            )
        result = add(changed, kept)
        return result if activation is None else activation(result)


def _applied(op: str, argument: str, function: Callable[[Any], Any], tensor: Tensor) -> Tensor:
    """Result of a user's function of a tensor. Raises InvalidArgumentError unless it is a tensor."""
    expected = "functions of a tensor that return one"
    result = called(function, tensor, op=op, argument=argument, expected=expected)
    if not is_tensor(result):
        raise refuse(op, argument, expected, function, f"one returned {type(result).__name__}")
    return convert_to_tensor(result)
