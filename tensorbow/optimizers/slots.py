"""Base of optimisers whose update is one op on a variable and its slots, or on rows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorbow.graph import OpDef, Tensor
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.ops.sparse_updates import sum_equal_rows
from tensorbow.optimizers.optimizer import Optimizer
from tensorbow.variables import Variable


class SlotOptimizer(Optimizer):
    """An optimiser with an op for whole variables and one for rows, whose inputs are slots and scalars."""

    def _updates(self) -> tuple[OpDef, OpDef]:
        """The ops of a whole variable and of rows."""
        raise NotImplementedError

    def _slot_values(self) -> Mapping[str, float]:
        """Initial value of each slot, in the order of the ops' inputs."""
        return {}

    def _arguments(self) -> Sequence[Any]:
        """Numbers that the ops take after the learning rate."""
        return ()

    def _scalars_of(self, variable: Variable) -> list[Tensor]:
        return self._numbers(variable.dtype, *self._arguments())

    def _attrs(self) -> dict[str, Any]:
        """Attributes of both ops."""
        return {}

    def _create_slots(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            for name, start in self._slot_values().items():
                self._slot(variable, name, start)

    def _apply(self, variable: Variable, gradient: Tensor, rate: Tensor) -> Any:
        operands, scalars = self._operands(variable, *self._slot_values()), self._scalars_of(variable)
        decay = self._decay(variable)
        return self._updates()[0](*operands, gradient, rate, *scalars, weight_decay=decay, **self._attrs())

    def _apply_sparse(self, variable: Variable, gradient: IndexedSlices, rate: Tensor) -> Any:
        operands, scalars = self._operands(variable, *self._slot_values()), self._scalars_of(variable)
        rows = sum_equal_rows(gradient)
        return self._updates()[1](*operands, rows.values, rate, rows.indices, *scalars, **self._attrs())
