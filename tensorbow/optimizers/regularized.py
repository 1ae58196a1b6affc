"""Optimisers that make weights zero: FTRL, proximal descent, proximal Adagrad, Adagrad with dual averaging.

They have TensorFlow 1's formulas, defaults and slot names. The L1 penalty acts in the update itself, not by
its gradient, so that weights which contribute little are exactly zero. A sparse gradient changes only its
rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeAlias

from tensorbow.graph import OpDef, Tensor
from tensorbow.kinds import (
    Flag,
    Name,
    NonNegative,
    NonNegativeOrTensor,
    PositiveNumber,
    checked,
    number,
)
from tensorbow.ops.elementwise import add
from tensorbow.ops.regularized_updates import (
    ApplyAdagradDA,
    ApplyFtrl,
    ApplyProximalAdagrad,
    ApplyProximalGradientDescent,
    SparseApplyAdagradDA,
    SparseApplyFtrl,
    SparseApplyProximalAdagrad,
    SparseApplyProximalGradientDescent,
)
from tensorbow.ops.selection import cast
from tensorbow.optimizers.optimizer import AsGlobalStep, Rate
from tensorbow.optimizers.slots import SlotOptimizer
from tensorbow.variables import Variable

Power: TypeAlias = Annotated[float, number(high=0)]


class _Regularized(SlotOptimizer):
    """An optimiser with L1 and L2 strengths; `_OPS`: its updates of a whole variable and of rows."""

    _OPS: ClassVar[tuple[OpDef, OpDef]]
    l1_regularization_strength: Any
    l2_regularization_strength: Any

    def _updates(self) -> tuple[OpDef, OpDef]:
        return self._OPS

    def _arguments(self) -> Sequence[Any]:
        return self.l1_regularization_strength, self.l2_regularization_strength


class FtrlOptimizer(_Regularized):
    """FTRL-Proximal: follow the regularised leader (McMahan et al., 2013, algorithm 1).

        z += g - ((n + g^2)^p - n^p) / learning_rate * w; n += g^2;
        w = 0 where |z| <= l1, else (sign(z) * l1 - z) / (n^p / learning_rate + 2 * l2),

    with p = -learning_rate_power; n begins at initial_accumulator_value, z at 0. An update sets a weight from
    z and n alone, so that a model should begin at zero: of other initial weights the first update leaves the
    share 1 - (n / (n + g^2))^p. l2_shrinkage_regularization_strength adds 2 * strength * w to z (not to g^2).
    """

    _OPS = ApplyFtrl, SparseApplyFtrl

    @checked
    def __init__(
        self,
        learning_rate: Rate,
        learning_rate_power: Power = -0.5,
        initial_accumulator_value: NonNegative = 0.1,
        l1_regularization_strength: NonNegativeOrTensor = 0.0,
        l2_regularization_strength: NonNegativeOrTensor = 0.0,
        use_locking: Flag = False,
        name: Name = None,
        accum_name: Name = None,
        linear_name: Name = None,
        l2_shrinkage_regularization_strength: NonNegative = 0.0,
        *,
        weight_decay: NonNegativeOrTensor = 0.0,
        decay_all: Flag = False,
    ):
        """accum_name, linear_name: of the slots' variables, `w/accum` and `w/linear` by default."""
        super().__init__(learning_rate, use_locking, name, weight_decay=weight_decay, decay_all=decay_all)
        self.learning_rate_power = learning_rate_power
        self.initial_accumulator_value = initial_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength
        self.l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self._names = accum_name, linear_name

    def _create_slots(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            for (slot, start), called in zip(self._slot_values().items(), self._names, strict=True):
                self._slot(variable, slot, start, called)

    def _slot_values(self) -> Mapping[str, float]:
        return {"accum": self.initial_accumulator_value, "linear": 0.0}

    def _attrs(self) -> dict[str, Any]:
        power, shrinkage = self.learning_rate_power, self.l2_shrinkage_regularization_strength
        return {"learning_rate_power": power, "l2_shrinkage": shrinkage}


class ProximalGradientDescentOptimizer(_Regularized):
    """w -= learning_rate * g, then w = sign(w) * max(|w| - learning_rate * l1, 0) / (1 + learning_rate * l2).

    Forward-backward splitting (Duchi and Singer, 2009).
    """

    _OPS = ApplyProximalGradientDescent, SparseApplyProximalGradientDescent

    @checked
    def __init__(
        self,
        learning_rate: Rate,
        l1_regularization_strength: NonNegativeOrTensor = 0.0,
        l2_regularization_strength: NonNegativeOrTensor = 0.0,
        use_locking: Flag = False,
        name: Name = None,
        *,
        weight_decay: NonNegativeOrTensor = 0.0,
        decay_all: Flag = False,
    ):
        super().__init__(learning_rate, use_locking, name, weight_decay=weight_decay, decay_all=decay_all)
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength


class ProximalAdagradOptimizer(_Regularized):
    """a += g^2, then as `ProximalGradientDescentOptimizer` with learning_rate / sqrt(a) of each weight."""

    _OPS = ApplyProximalAdagrad, SparseApplyProximalAdagrad

    @checked
    def __init__(
        self,
        learning_rate: Rate,
        initial_accumulator_value: PositiveNumber = 0.1,
        l1_regularization_strength: NonNegativeOrTensor = 0.0,
        l2_regularization_strength: NonNegativeOrTensor = 0.0,
        use_locking: Flag = False,
        name: Name = None,
        *,
        weight_decay: NonNegativeOrTensor = 0.0,
        decay_all: Flag = False,
    ):
        super().__init__(learning_rate, use_locking, name, weight_decay=weight_decay, decay_all=decay_all)
        self.initial_accumulator_value = initial_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength

    def _slot_values(self) -> Mapping[str, float]:
        return {"accumulator": self.initial_accumulator_value}


class AdagradDAOptimizer(_Regularized):
    """Adagrad with dual averaging (Duchi et al., 2011), for sparse linear models.

        s += g; q += g^2;
        w = -learning_rate * sign(s) * max(|s| - l1 * t, 0) / (l2 * t * learning_rate + sqrt(q)),

    in step t, counted from 1: the global step before the update, plus 1. Initial weights are forgotten.
    """

    _OPS = ApplyAdagradDA, SparseApplyAdagradDA

    @checked
    def __init__(
        self,
        learning_rate: Rate,
        global_step: AsGlobalStep,
        initial_gradient_squared_accumulator_value: PositiveNumber = 0.1,
        l1_regularization_strength: NonNegativeOrTensor = 0.0,
        l2_regularization_strength: NonNegativeOrTensor = 0.0,
        use_locking: Flag = False,
        name: Name = None,
        *,
        weight_decay: NonNegativeOrTensor = 0.0,
        decay_all: Flag = False,
    ):
        """global_step: the variable that is given to `minimize`, too."""
        super().__init__(learning_rate, use_locking, name, weight_decay=weight_decay, decay_all=decay_all)
        self.global_step = global_step
        self.initial_gradient_squared_accumulator_value = initial_gradient_squared_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength

    def _slot_values(self) -> Mapping[str, float]:
        start = self.initial_gradient_squared_accumulator_value
        return {"gradient_accumulator": 0.0, "gradient_squared_accumulator": start}

    def _scalars_of(self, variable: Variable) -> list[Tensor]:
        step = cast(add(self.global_step.value(), 1), variable.dtype)
        return [*super()._scalars_of(variable), step]
