"""Adagrad, Adadelta, RMSProp, Adam and AdamW, with TensorFlow 1's formulas, defaults and slot names.

Weight decay first adds weight_decay * w to the gradient of decayed variables (see `Optimizer`), or with
`decay_all` of all variables; AdamW instead scales the variable. The sparse gradient of a variable that decays
is made dense, since decay changes every row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorbow.graph import OpDef, Tensor, control_dependencies
from tensorbow.kinds import (
    Flag,
    Fraction,
    FractionOrTensor,
    Name,
    NonNegative,
    NonNegativeOrTensor,
    PositiveNumber,
    PositiveOrTensor,
    checked,
)
from tensorbow.ops.adaptive_updates import (
    ApplyAdadelta,
    ApplyAdagrad,
    ApplyAdam,
    ApplyAdamW,
    ApplyCenteredRMSProp,
    ApplyRMSProp,
)
from tensorbow.ops.elementwise import multiply
from tensorbow.ops.selection import cast
from tensorbow.ops.sparse_adaptive_updates import (
    SparseApplyAdadelta,
    SparseApplyAdagrad,
    SparseApplyCenteredRMSProp,
    SparseApplyRMSProp,
)
from tensorbow.optimizers.optimizer import Optimizer, Rate
from tensorbow.optimizers.slots import SlotOptimizer
from tensorbow.variables import Variable


class AdagradOptimizer(SlotOptimizer):
    """a += g^2, then w -= learning_rate * g / sqrt(a) (Duchi et al., 2011).

    A sparse gradient changes only its rows, as in TensorFlow.
    """

    @checked
    def __init__(
        self,
        learning_rate: Rate,
        initial_accumulator_value: PositiveNumber = 0.1,
        use_locking: Flag = False,
        name: Name = None,
        *,
        weight_decay: NonNegativeOrTensor = 0.0,
        decay_all: Flag = False,
    ):
        super().__init__(learning_rate, use_locking, name, weight_decay=weight_decay, decay_all=decay_all)
        self.initial_accumulator_value = initial_accumulator_value

    def _updates(self) -> tuple[OpDef, OpDef]:
        return ApplyAdagrad, SparseApplyAdagrad

    def _slot_values(self) -> Mapping[str, float]:
        return {"Adagrad": self.initial_accumulator_value}


class AdadeltaOptimizer(SlotOptimizer):
    """d = g * rms(past d) / rms(g), then w -= learning_rate * d (Zeiler, 2012).

    A sparse gradient changes only its rows of variable and slots, as in TensorFlow.
    """

    @checked
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        rho: FractionOrTensor = 0.95,
        epsilon: PositiveOrTensor = 1e-8,
        use_locking: Flag = False,
        name: Name = None,
        *,
        weight_decay: NonNegativeOrTensor = 0.0,
        decay_all: Flag = False,
    ):
        super().__init__(learning_rate, use_locking, name, weight_decay=weight_decay, decay_all=decay_all)
        self.rho = rho
        self.epsilon = epsilon

    def _updates(self) -> tuple[OpDef, OpDef]:
        return ApplyAdadelta, SparseApplyAdadelta

    def _slot_values(self) -> Mapping[str, float]:
        return {"accum": 0.0, "accum_update": 0.0}

    def _arguments(self) -> Sequence[Any]:
        return self.rho, self.epsilon


class RMSPropOptimizer(SlotOptimizer):
    """s += (1 - decay) (g^2 - s); v = momentum * v + learning_rate * g / sqrt(s + epsilon); w -= v.

    After Tieleman and Hinton (2012). The epsilon is inside the root, and s starts at 1, as in TensorFlow.
    `centered` divides by the standard deviation of the gradient instead. A sparse gradient changes only its
    rows of variable and slots, as in TensorFlow.
    """

    @checked
    def __init__(
        self,
        learning_rate: Rate,
        decay: FractionOrTensor = 0.9,
        momentum: FractionOrTensor = 0.0,
        epsilon: PositiveOrTensor = 1e-10,
        use_locking: Flag = False,
        centered: Flag = False,
        name: Name = None,
        *,
        weight_decay: NonNegativeOrTensor = 0.0,
        decay_all: Flag = False,
    ):
        super().__init__(learning_rate, use_locking, name, weight_decay=weight_decay, decay_all=decay_all)
        self.decay = decay
        self.momentum = momentum
        self.epsilon = epsilon
        self.centered = centered

    def _updates(self) -> tuple[OpDef, OpDef]:
        if self.centered:
            return ApplyCenteredRMSProp, SparseApplyCenteredRMSProp
        return ApplyRMSProp, SparseApplyRMSProp

    def _slot_values(self) -> Mapping[str, float]:
        return {**({"mg": 0.0} if self.centered else {}), "rms": 1.0, "momentum": 0.0}

    def _arguments(self) -> Sequence[Any]:
        return self.decay, self.momentum, self.epsilon


class AdamOptimizer(Optimizer):
    """Adam: bias-corrected moving averages of gradients and squared gradients (Kingma and Ba, 2014).

        m += (1 - beta1) (g - m); v += (1 - beta2) (g^2 - v);
        w -= learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon).

    beta1^t and beta2^t are scalar variables of the optimiser, `beta1_power` and `beta2_power`, multiplied
    after all variables are updated. A sparse gradient is made dense: other rows get gradient zero, so their
    averages decay and still move them, as in TensorFlow (unlike "lazy" Adam).
    """

    @checked
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: Fraction = 0.9,
        beta2: Fraction = 0.999,
        epsilon: PositiveOrTensor = 1e-8,
        use_locking: Flag = False,
        name: Name = None,
        *,
        weight_decay: NonNegativeOrTensor = 0.0,
        decay_all: Flag = False,
    ):
        super().__init__(learning_rate, use_locking, name, weight_decay=weight_decay, decay_all=decay_all)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    _update_op = ApplyAdam

    def _create_slots(self, variables: Sequence[Variable]) -> None:
        self._powers(variables)
        for variable in variables:
            self._slot(variable, "m")
            self._slot(variable, "v")

    def _powers(self, variables: Sequence[Variable]) -> list[tuple[Variable, float]]:
        """The variables beta1^t and beta2^t, each with its factor."""
        betas = (("beta1_power", self.beta1), ("beta2_power", self.beta2))
        return [(self._scalar(name, beta, variables), beta) for name, beta in betas]

    def _apply(self, variable: Variable, gradient: Tensor, rate: Tensor) -> Any:
        dtype = variable.dtype
        powers = [power.value() for power, _ in self._powers([variable])]
        return self._update_op(
            *self._operands(variable, "m", "v"),
            gradient,
            *(power if power.dtype == dtype else cast(power, dtype) for power in powers),
            rate,
            *self._numbers(dtype, self.beta1, self.beta2, self.epsilon),
            weight_decay=self._decay(variable),
        )

    def _finish(self, updates: Sequence[Any], variables: Sequence[Variable]) -> list[Any]:
        with control_dependencies(updates):
            return [power.assign(multiply(power.value(), beta)) for power, beta in self._powers(variables)]


class AdamWOptimizer(AdamOptimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2017): w *= 1 - learning_rate * weight_decay.

    Then Adam's step, whose averages do not see the decay. weight_decay is a number.
    """

    _update_op = ApplyAdamW

    @checked
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: Fraction = 0.9,
        beta2: Fraction = 0.999,
        epsilon: PositiveOrTensor = 1e-8,
        use_locking: Flag = False,
        name: Name = None,
        *,
        weight_decay: NonNegative = 0.01,
        decay_all: Flag = False,
    ):
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            epsilon,
            use_locking,
            name,
            weight_decay=weight_decay,
            decay_all=decay_all,
        )
