"""Optimiser for use inside a step: it updates the replica's variables, which the replicator synchronises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from replicator.tracing import current_trace
from tensorbow.graph import Operation, Tensor
from tensorbow.optimizers import Optimizer
from tensorbow.variables import Variable


class WrappedOptimizer:
    """Wraps an optimiser; its updates can be built only inside a step (TF-Replicator, section 3.2)."""

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer

    def minimize(
        self,
        loss: Tensor,
        global_step: Variable | None = None,
        var_list: Sequence[Variable] | None = None,
        *,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Operation:
        """Returns the operation that updates the variables of the replica that runs it.

        Raises FailedPreconditionError outside of a step.
        """
        return self._build(
            "minimize",
            lambda: self.optimizer.minimize(loss, global_step, var_list, name=name, grad_loss=grad_loss),
        )

    def compute_gradients(
        self, loss: Tensor, var_list: Sequence[Variable] | None = None, *, grad_loss: Any = None
    ) -> Any:
        """(gradient, variable) pairs, with gradients of the replica's own batch."""
        return self.optimizer.compute_gradients(loss, var_list, grad_loss=grad_loss)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Returns the operation that applies gradients. Raises FailedPreconditionError outside of a step."""
        return self._build(
            "apply_gradients",
            lambda: self.optimizer.apply_gradients(grads_and_vars, global_step, name),
        )

    def _build(self, method: str, build: Callable[[], Operation]) -> Operation:
        trace = current_trace(f"{method} of a wrapped optimizer")
        before = trace.graph.version
        update = build()
        trace.updates.update(trace.graph.get_operations()[before:])
        return update

    def get_slot(self, variable: Variable, name: str) -> Variable | None:
        """Slot of `variable` with this name, or None."""
        return self.optimizer.get_slot(variable, name)

    def get_slot_names(self) -> list[str]:
        """Names of the optimiser's slots."""
        return self.optimizer.get_slot_names()

    def variables(self) -> list[Variable]:
        """All variables of the optimiser, such as slots."""
        return self.optimizer.variables()
