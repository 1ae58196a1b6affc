"""Regularizers: functions of a variable's tensor that give a scalar loss."""

from __future__ import annotations

from collections.abc import Callable

from tensorbow.graph import Tensor, name_scope
from tensorbow.kinds import Name, NonNegative, checked
from tensorbow.ops.elementwise import abs, multiply
from tensorbow.ops.nn import l2_loss
from tensorbow.ops.reductions import reduce_sum

__all__ = ["l1_regularizer", "l2_regularizer"]


@checked
def l1_regularizer(scale: NonNegative, scope: Name = None) -> Callable[[Tensor], Tensor]:
    """A function that gives scale * sum(|weights|), for the regularizers of layers and variables."""

    def l1(weights: Tensor) -> Tensor:
        with name_scope(scope or "l1_regularizer"):
            return multiply(reduce_sum(abs(weights)), scale)

    return l1


@checked
def l2_regularizer(scale: NonNegative, scope: Name = None) -> Callable[[Tensor], Tensor]:
    """A function that gives scale * sum(weights ** 2) / 2, for the regularizers of layers and variables."""

    def l2(weights: Tensor) -> Tensor:
        with name_scope(scope or "l2_regularizer"):
            return multiply(l2_loss(weights), scale)

    return l2
