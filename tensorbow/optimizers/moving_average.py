"""`ExponentialMovingAverage` of TensorFlow 1: shadow variables that follow variables or tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphKeys, Operation, Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import Flag, Fraction, Items, Name, checked, refuse
from tensorbow.ops.control import group
from tensorbow.ops.elementwise import add, divide, minimum, multiply, pow, subtract
from tensorbow.ops.selection import cast
from tensorbow.specs import float32
from tensorbow.variables import Variable, global_variables, trainable_variables


class ExponentialMovingAverage:
    """Keeps averages: average = decay * average + (1 - decay) * value, at each run of the op of `apply`.

    The average of a variable begins with its initial value, that of a tensor with zeros, corrected for this
    bias; so does that of a variable with `zero_debias`. In replicated training each replica averages its own
    values, and the mean of these is the average of the central model; the option `ema` of
    `tb.Synchronisation` averages the central model itself.
    """

    @checked
    def __init__(
        self,
        decay: Fraction,
        num_updates: Any = None,
        zero_debias: Flag = False,
        name: Name = "ExponentialMovingAverage",
    ):
        """num_updates: a number or scalar tensor, such as the global step; the decay is then at most
        (1 + num_updates) / (10 + num_updates), so that early values count less.
        """
        self._decay, self._num_updates = decay, num_updates
        self._zero_debias = zero_debias
        self.name = name or "ExponentialMovingAverage"
        self._averages: dict[Tensor, Variable] = {}

    @checked
    def apply(self, var_list: Items | None = None) -> Operation:
        """The op that updates the averages; run it after the optimiser's update.

        var_list: variables and tensors of floats, by default the trainable variables. Averages are in the
        collection MOVING_AVERAGE_VARIABLES and are saved with the other variables. Raises
        InvalidArgumentError for other items, and for one whose average is kept already.
        """
        followed: Sequence[Any] = trainable_variables() if var_list is None else var_list
        updates: list[Any] = []
        for each in followed:
            if not isinstance(each, (Variable, Tensor)) or not each.dtype.is_floating:
                raise refuse(
                    "ExponentialMovingAverage.apply", "var_list", "variables or tensors of floats", each
                )
            if _key(each) in self._averages:
                raise InvalidArgumentError(
                    f"ExponentialMovingAverage.apply: the average of {each.name} is kept already; "
                    "call apply once, with all variables"
                )
            updates.append(self._followed(each))
        return group(*updates, name=self.name)

    def _followed(self, each: Variable | Tensor) -> Tensor:
        is_debiased = self._zero_debias or isinstance(each, Tensor)
        dtype = each.dtype.as_numpy_dtype
        dims = each.shape.dims
        if dims is None or None in dims:
            raise InvalidArgumentError(
                f"ExponentialMovingAverage.apply: {each.name} has the shape {each.shape}, expected a fully "
                "known one; use set_shape"
            )
        zeros = np.zeros([d or 0 for d in dims], dtype)
        start = each.initialized_value if isinstance(each, Variable) else zeros  # read without dependencies
        with each.graph.as_default(), name_scope(None):
            average = self._variable(start, f"{each.op.name}/{self.name}")
            if is_debiased:
                biased = self._variable(zeros, f"{average.op.name}/biased")
                steps = self._variable(np.zeros((), dtype), f"{average.op.name}/local_step")
        self._averages[_key(each)] = average
        each.graph.add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, each)
        with each.graph.as_default(), name_scope(self.name):
            value, decay = convert_to_tensor(each), cast(self._decay_now(), each.dtype)
            kept = biased if is_debiased else average
            updated = kept.assign_sub(multiply(subtract(kept.value(), value), subtract(1.0, decay)))
            if not is_debiased:
                return updated
            share = subtract(1.0, pow(decay, steps.assign_add(1.0)))
            return average.assign(divide(updated, share))

    def _variable(self, value: Any, name: str) -> Variable:
        return Variable(value, False, name=name, combine="mean")

    def _decay_now(self) -> Tensor:
        if self._num_updates is None:
            return convert_to_tensor(self._decay, float32)
        number = cast(convert_to_tensor(self._num_updates), float32)
        return minimum(self._decay, divide(add(number, 1.0), add(number, 10.0)))

    @checked
    def average(self, var: Any) -> Variable | None:
        """The variable with the average of a variable or tensor; None if none is kept."""
        return self._averages.get(_key(var))

    @checked
    def average_name(self, var: Any) -> str:
        """The name of the average in checkpoints, kept or not."""
        return f"{_key(var).op.name}/{self.name}"

    @checked
    def variables_to_restore(self, moving_avg_variables: Items | None = None) -> dict[str, Variable]:
        """Variables by the names to restore them from: averaged ones from their averages, others as they are.

        For `tb.train.Saver(ema.variables_to_restore())` in a program that evaluates.
        moving_avg_variables: those with an average, by default the trainable variables.
        """
        averaged: list[Any] = (
            moving_avg_variables if moving_avg_variables is not None else trainable_variables()
        )
        for each in averaged:
            if not isinstance(each, Variable):
                raise refuse(
                    "ExponentialMovingAverage.variables_to_restore", "moving_avg_variables", "variables", each
                )
        names = {self.average_name(v): v for v in averaged}
        known = {v.op.name for v in averaged}
        kept = {v.op.name for v in self._averages.values()}
        others = [v for v in global_variables() if v.op.name not in known | kept]
        return names | {v.op.name: v for v in others}


def _key(value: Any) -> Tensor:
    """The tensor that stands for a variable or tensor."""
    element: Any = value._as_graph_element() if isinstance(value, Variable) else value
    if not isinstance(element, Tensor):
        raise refuse("ExponentialMovingAverage", "var", "a variable or a tensor", value)
    return element
