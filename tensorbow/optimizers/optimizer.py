"""Base of all optimisers: turns gradients into update operations (TensorFlow 1's interface)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.gradients import gradients
from tensorbow.graph import (
    Graph,
    GraphKeys,
    Operation,
    Tensor,
    control_dependencies,
    convert_to_tensor,
    name_scope,
)
from tensorbow.kinds import (
    Flag,
    Items,
    Kind,
    Name,
    NonNegativeOrTensor,
    RefusedError,
    Text,
    checked,
    instance,
    is_tensor,
    number,
    optional,
    refuse,
    require_constants,
)
from tensorbow.ops.control import find_step_scalar, group, step_scalar
from tensorbow.ops.elementwise import add, multiply
from tensorbow.ops.host_variables import HostVariable
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.ops.selection import cast
from tensorbow.optimizers.outer_products import warn_of_outer_products
from tensorbow.optimizers.schedules import Constant, Schedule
from tensorbow.specs import FLOATING, DType, float64
from tensorbow.variables import AsVariable, Variable, Variables, trainable_variables

GradientsAndVariables: TypeAlias = "list[tuple[Tensor | IndexedSlices | None, Variable]]"
LEARNING_RATE = "learning_rate"  # the step scalar that schedulers set


_RATE = number(0, above=True)


def _read_rate(value: Any) -> Any:
    if isinstance(value, Schedule):
        return value
    if isinstance(value, (list, tuple)):
        raise RefusedError("tb.per_replica([...]) gives each replica of a step its own")
    if not is_tensor(value):
        return _RATE.read(value)
    if value.shape.ndims not in (None, 0) or not value.dtype.is_floating:
        raise RefusedError
    require_constants(_RATE, value)
    return value


def _read_global_step(value: Any) -> Any:
    if isinstance(value, Variable) and value.dtype.is_integer and value.shape.ndims == 0:
        return value
    raise RefusedError


def _read_counter(value: Any) -> Any:
    if isinstance(value, Variable) and value.dtype.is_floating and value.shape.ndims == 0:
        if value.trainable:
            raise RefusedError("one of floats needs trainable=False")
        return value
    return _read_global_step(value)


Rate: TypeAlias = Annotated[
    Any, Kind(f"{_RATE.expected}, a scalar tensor or variable of floats, or a schedule", _read_rate)
]
Loss: TypeAlias = Annotated[Tensor, instance(Tensor, expected="a tensor")]
AsGlobalStep: TypeAlias = Annotated[Variable, Kind("a scalar variable of whole numbers", _read_global_step)]
GlobalStep: TypeAlias = Annotated[
    Variable | None, optional(Kind("a scalar variable that counts steps", _read_counter))
]


@dataclass(frozen=True)
class ScheduledBy:
    """A schedule with the variable that counts its steps; in the collection `GraphKeys.SCHEDULES`."""

    schedule: Schedule
    step: Variable


class Optimizer(ABC):
    """Computes gradients of a loss and applies them to variables.

    The learning rate is a number, a scalar tensor or variable, or a `Schedule`. A number becomes the step
    scalar `learning_rate`, which a scheduler may set in each step; optimisers of the same graph with another
    rate get step scalars of their own, `learning_rate_1`, ... A schedule follows the `global_step` given to
    `minimize`; without it, the optimiser counts its calls of `apply_gradients` in its own saved variable
    `iterations`.

    weight_decay times the variable is added to the gradient of decayed variables (by default those of rank 2
    and more); with decay_all to that of every variable. It is a number, or a scalar tensor, with which the
    gradients of decayed variables are always dense.
    """

    @checked
    def __init__(
        self,
        learning_rate: Rate,
        use_locking: Flag = False,
        name: Name = None,
        *,
        weight_decay: NonNegativeOrTensor = 0.0,
        decay_all: Flag = False,
    ):
        """use_locking: has no effect; updates follow program order in any case."""
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.decay_all = decay_all
        self.name = name or type(self).__name__.removesuffix("Optimizer")
        self._slots: dict[tuple[Variable, str], Variable] = {}
        self._scalars: dict[tuple[Graph, str], Variable] = {}
        self._constants: dict[tuple[float, DType], Tensor] = {}  # of the current `apply_gradients`

    @checked
    def minimize(
        self,
        loss: Loss,
        global_step: GlobalStep = None,
        var_list: Variables | None = None,
        gate_gradients: Any = None,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: Flag = False,
        name: Name = None,
        grad_loss: Any = None,
    ) -> Operation:
        """The operation that does one training step: `apply_gradients(compute_gradients(loss))`.

        gate_gradients, aggregation_method, colocate_gradients_with_ops: TensorFlow's; have no effect.
        Raises InvalidArgumentError if no gradient leads from the loss to any variable.
        """
        pairs = self.compute_gradients(loss, var_list, grad_loss=grad_loss)
        if all(gradient is None for gradient, _ in pairs):
            raise InvalidArgumentError(
                f"minimize: no gradient leads from {loss.name} to any of "
                f"{', '.join(v.name for _, v in pairs) or 'the trainable variables (there are none)'}"
            )
        return self.apply_gradients(pairs, global_step, name)

    @checked
    def compute_gradients(
        self,
        loss: Loss,
        var_list: Variables | None = None,
        gate_gradients: Any = None,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: Flag = False,
        grad_loss: Any = None,
    ) -> GradientsAndVariables:
        """(gradient, variable) pairs; the gradient is None if the loss does not depend on the variable.

        Warns of a loss that subtracts [batch] and [batch, 1], which gives [batch, batch].
        gate_gradients, aggregation_method, colocate_gradients_with_ops: TensorFlow's; have no effect.
        """
        warn_of_outer_products(loss)
        with loss.graph.as_default():
            variables = trainable_variables() if var_list is None else var_list
            grads = gradients(loss, variables, grad_ys=None if grad_loss is None else [grad_loss])
        return list(zip(grads, variables, strict=True))

    @checked
    def apply_gradients(
        self, grads_and_vars: Items, global_step: GlobalStep = None, name: Name = None
    ) -> Operation:
        """The operation that applies gradients, of the given name or the optimiser's.

        Ignores pairs without a gradient. Raises InvalidArgumentError if no gradient is left, and for items
        that are no (gradient, variable) pair.
        """
        pairs = pairs_of(grads_and_vars)
        self._constants.clear()
        for _, variable in pairs:
            if variable.op.definition is HostVariable:
                raise InvalidArgumentError(
                    f"apply_gradients: the shape of {variable.name} may change, and it is not trained; "
                    "make it without validate_shape=False"
                )
            if variable.dtype not in FLOATING:
                raise InvalidArgumentError(
                    f"apply_gradients: {variable.name} is {variable.dtype.name}, expected float32 or "
                    "float64; keep weights in one of them, and tb.cast what is computed from them"
                )
        with pairs[0][1].graph.as_default() as graph:
            self._create_slots([v for _, v in pairs])
            scheduled = self._scheduled(graph, global_step)
            step = global_step if scheduled is None else scheduled.step
            with name_scope(name or self.name) as scope:
                rates = self._rates(list(dict.fromkeys(v.dtype for _, v in pairs)), scheduled)
                updates: list[Any] = [self._update(v, g, rates[v.dtype]) for g, v in pairs]
                updates += self._finish(updates, [v for _, v in pairs])
                if step is not None:
                    with control_dependencies(updates):
                        updates.append(step.assign_add(1))
                train_op = group(*updates, name=scope)
                train_op.graph.add_to_collection(GraphKeys.TRAIN_OP, train_op)
                return train_op

    def _rates(self, dtypes: Sequence[DType], scheduled: ScheduledBy | None) -> dict[DType, Tensor]:
        """The learning rate in each dtype; a scheduled rate is rounded once, as on the host."""
        rate = self.learning_rate
        if scheduled is not None:
            tensor = scheduled.schedule.tensor(scheduled.step.value(), float64)
        elif isinstance(rate, (Tensor, Variable)):
            tensor = convert_to_tensor(rate)
        else:
            number = rate(0) if isinstance(rate, Schedule) else float(rate)
            tensor = _rate_scalar(max(dtypes, key=lambda dtype: dtype.size), number)
        return {dtype: tensor if tensor.dtype == dtype else cast(tensor, dtype) for dtype in dtypes}

    def _scheduled(self, graph: Graph, global_step: Variable | None) -> ScheduledBy | None:
        """The schedule and its counter, the global step or `iterations`; None for a constant rate."""
        rate, key = self.learning_rate, (graph, "iterations")
        if not isinstance(rate, Schedule) or isinstance(rate, Constant):
            return None
        if global_step is None and key not in self._scalars:
            zero, slot = np.zeros((), np.int64), (None, "iterations", 0.0)
            with name_scope(None):
                self._scalars[key] = Variable(
                    zero, False, name=f"{self.name}/iterations", combine="first", slot=slot
                )
        scheduled = ScheduledBy(rate, self._scalars[key] if global_step is None else global_step)
        graph.add_to_collection(GraphKeys.SCHEDULES, scheduled)
        return scheduled

    def _numbers(self, dtype: DType, *values: float | Tensor) -> list[Tensor]:
        """Hyper-parameters as tensors; updates of one `apply_gradients` share the constants."""
        tensors = []
        for value in values:
            if isinstance(value, (int, float)):
                if (value, dtype) not in self._constants:
                    self._constants[value, dtype] = convert_to_tensor(value, dtype)
                value = self._constants[value, dtype]
            tensors.append(convert_to_tensor(value, dtype))
        return tensors

    def _update(self, variable: Variable, gradient: Tensor | IndexedSlices, rate: Tensor) -> Any:
        """Update of one variable; a sparse gradient stays sparse unless weight decay changes every row."""
        if is_tensor(self.weight_decay) and self._decays(variable):
            (decay,) = self._numbers(variable.dtype, self.weight_decay)
            gradient = add(multiply(variable.value(), decay), convert_to_tensor(gradient))
        if isinstance(gradient, IndexedSlices) and not self._decay(variable):
            return self._apply_sparse(variable, gradient, rate)
        return self._apply(variable, convert_to_tensor(gradient), rate)

    def _decays(self, variable: Variable) -> bool:
        return self.decay_all or bool(variable.op.attrs["decayed"])

    def _decay(self, variable: Variable) -> float:
        """Weight decay in the update op; one that is a tensor is in the gradient already."""
        return self.weight_decay if self._decays(variable) and not is_tensor(self.weight_decay) else 0.0

    def _create_slots(self, variables: Sequence[Variable]) -> None:  # noqa: B027 - plain ones have no slots
        """Makes the optimiser's own variables; none by default."""

    def _slot(
        self, variable: Variable, slot_name: str, value: float = 0.0, called: str | None = None
    ) -> Variable:
        """The slot of a variable, `w/Momentum` shaped like `w`, filled with `value`; made on first use.

        called: name of its variable after `w/`, by default the slot's.
        """
        key = (variable, slot_name)
        if key not in self._slots:
            extents = variable.op.outputs[0].spec.extents
            name = f"{variable.op.name}/{called or slot_name}"
            self._slots[key] = _state(variable, name, extents, slot_name, value)
        return self._slots[key]

    def _scalar(self, name: str, value: float, variables: Sequence[Variable]) -> Variable:
        """A scalar variable of the optimiser, one per graph; made on first use."""
        first = min(variables, key=lambda variable: variable.op.name)
        key = (first.graph, name)
        if key not in self._scalars:
            self._scalars[key] = _state(first, name, (), name, value)
        return self._scalars[key]

    def _operands(self, variable: Variable, *slot_names: str) -> list[Tensor]:
        """References to a variable and its slots, for an op that writes them."""
        owned = [variable, *(self._slots[variable, name] for name in slot_names)]
        return [each.op.outputs[0] for each in owned]

    @checked
    def get_slot(self, variable: AsVariable, name: Text) -> Variable | None:
        """The slot of `variable`, or None."""
        return self._slots.get((variable, name))

    def get_slot_names(self) -> list[str]:
        """The names of the optimiser's slots."""
        return sorted({name for _, name in self._slots})

    def variables(self) -> list[Variable]:
        """All variables of the optimiser."""
        return [*self._slots.values(), *self._scalars.values()]

    def _finish(self, updates: Sequence[Any], variables: Sequence[Variable]) -> list[Any]:
        """Operations to run after all variables are updated; none by default."""
        return []

    @abstractmethod
    def _apply(self, variable: Variable, gradient: Tensor, rate: Tensor) -> Any:
        """The update of one variable."""

    def _apply_sparse(self, variable: Variable, gradient: IndexedSlices, rate: Tensor) -> Any:
        """The update by rows; indices may repeat. By default makes the gradient dense."""
        return self._apply(variable, convert_to_tensor(gradient), rate)


def pairs_of(grads_and_vars: Sequence[Any]) -> list[tuple[Any, Variable]]:
    """The pairs that have a gradient. Raises InvalidArgumentError if there are none, and for other items."""
    for pair in grads_and_vars:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[1], Variable):
            raise refuse("apply_gradients", "grads_and_vars", "(gradient, variable) pairs", pair)
    pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
    if not pairs:
        raise InvalidArgumentError(
            "apply_gradients: no variable has a gradient; check what compute_gradients gave"
        )
    return pairs


def _state(of: Variable, name: str, extents: tuple[int, ...], slot_name: str, value: float) -> Variable:
    dtype = of.dtype
    with name_scope(None):
        return Variable(
            partial(np.full, extents, value, dtype.as_numpy_dtype),
            trainable=False,
            name=name,
            dtype=dtype,
            combine="first",
            slot=(of, slot_name, value),
        )


def _rate_scalar(dtype: DType, rate: float) -> Tensor:
    """The step scalar of a rate: `learning_rate`, or the next free key if that has another rate."""
    key, number = LEARNING_RATE, 0
    while (scalar := find_step_scalar(key)) is not None:
        if scalar.dtype == dtype and scalar.op.attrs["default"] == rate:
            return scalar
        number += 1
        key = f"{LEARNING_RATE}_{number}"
    return step_scalar(key, dtype, rate)
