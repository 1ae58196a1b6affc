"""Optimiser for use inside a step: it updates the replica's variables, which the replicator synchronises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from replicator.tracing import Trace, current_trace
from scheduler.engine.outcomes import ROUND
from tensorbow.graph import GraphKeys, Operation, Tensor
from tensorbow.ops import cast
from tensorbow.ops.control import step_scalar
from tensorbow.optimizers import Constant, Optimizer, Schedule
from tensorbow.specs import float64, int64
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
        with self._rate_for(trace):
            update = build()
        trace.updates.update(trace.graph.get_operations()[before:])
        return update

    @contextmanager
    def _rate_for(self, trace: Trace) -> Iterator[None]:
        """Context in which a schedule follows the rounds, where replicas do not take equally many steps."""
        rate = self.optimizer.learning_rate
        if not trace.first_come or not isinstance(rate, Schedule) or isinstance(rate, Constant):
            yield
            return
        with trace.graph.as_default():
            round = step_scalar(ROUND, float64, 0.0)
            self.optimizer.learning_rate = rate.tensor(cast(round, int64), float64)
        trace.graph.add_to_collection(GraphKeys.ROUND_SCHEDULES, rate)
        try:
            yield
        finally:
            self.optimizer.learning_rate = rate

    def get_slot(self, variable: Variable, name: str) -> Variable | None:
        """Slot of `variable` with this name, or None."""
        return self.optimizer.get_slot(variable, name)

    def get_slot_names(self) -> list[str]:
        """Names of the optimiser's slots."""
        return self.optimizer.get_slot_names()

    def variables(self) -> list[Variable]:
        """All variables of the optimiser, such as slots."""
        return self.optimizer.variables()
