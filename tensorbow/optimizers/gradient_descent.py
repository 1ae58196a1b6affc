"""Stochastic gradient descent, plain and with momentum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorbow.graph import OpDef, Tensor
from tensorbow.kinds import Flag, FractionOrTensor, Name, NonNegativeOrTensor, checked
from tensorbow.ops.elementwise import multiply
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.ops.scatter import subtract_rows
from tensorbow.ops.sparse_updates import SparseApplyMomentum
from tensorbow.ops.updates import ApplyGradientDescent, ApplyMomentum
from tensorbow.optimizers.optimizer import Optimizer, Rate
from tensorbow.optimizers.slots import SlotOptimizer
from tensorbow.variables import Variable

SLOT_FORM = {"momentum": "sum of gradients"}  # meaning of the slots of `MomentumOptimizer`, in checkpoints


def slots_hold_rate(metadata: Mapping[str, Any]) -> bool:
    """True for a checkpoint of an earlier version, whose slots are -learning_rate times the present ones."""
    return any(metadata.get(key) != form for key, form in SLOT_FORM.items())


class GradientDescentOptimizer(Optimizer):
    """w -= learning_rate * (g + weight_decay * w)."""

    def _apply(self, variable: Variable, gradient: Tensor, rate: Tensor) -> Any:
        decay = self._decay(variable)
        return ApplyGradientDescent(variable.op.outputs[0], gradient, rate, weight_decay=decay)

    def _apply_sparse(self, variable: Variable, gradient: IndexedSlices, rate: Tensor) -> Any:
        return subtract_rows(variable, gradient.indices, multiply(gradient.values, rate))


class MomentumOptimizer(SlotOptimizer):
    """v = momentum * v + g + weight_decay * w, then w -= learning_rate * v, as in TensorFlow.

    With `use_nesterov`, w -= learning_rate * (momentum * v + g + weight_decay * w) with the new v. The slot
    `Momentum` holds v without the learning rate, so a changed rate applies to the whole step. A sparse
    gradient changes only its rows; the v of other rows stays as it is.
    """

    @checked
    def __init__(
        self,
        learning_rate: Rate,
        momentum: FractionOrTensor,
        use_locking: Flag = False,
        name: Name = None,
        use_nesterov: Flag = False,
        *,
        weight_decay: NonNegativeOrTensor = 0.0,
        decay_all: Flag = False,
    ):
        super().__init__(learning_rate, use_locking, name, weight_decay=weight_decay, decay_all=decay_all)
        self.momentum = momentum
        self.use_nesterov = use_nesterov

    def _updates(self) -> tuple[OpDef, OpDef]:
        return ApplyMomentum, SparseApplyMomentum

    def _slot_values(self) -> Mapping[str, float]:
        return {"Momentum": 0.0}

    def _arguments(self) -> Sequence[Any]:
        return (self.momentum,)

    def _attrs(self) -> dict[str, Any]:
        return {"use_nesterov": self.use_nesterov}
