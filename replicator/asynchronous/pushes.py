"""Pushes of an asynchronous step: gradients for an optimiser at the shards, and changes of counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from replicator.tracing import current_trace
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph, Operation, Tensor
from tensorbow.kinds import is_tensor
from tensorbow.ops.control import group
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.optimizers import Optimizer, Schedule
from tensorbow.specs import Array
from tensorbow.variables import Variable

PUSHED = "pushed_gradients"  # collection of a step's graph

Gradient: TypeAlias = "Array | tuple[Array, Array]"
"""Change of one variable: an array, or (values, indices) of rows."""


@dataclass(frozen=True)
class PushedGradients:
    """Gradients that a step hands to an optimiser; `done` is the operation that step_fn got for it."""

    optimizer: Optimizer
    pairs: Sequence[tuple[Tensor | IndexedSlices, Variable]]
    done: Operation


@dataclass(frozen=True)
class SharedVariable:
    """A variable that lives at a shard; for the process that makes it there."""

    name: str
    value: Array  # the initial one
    trainable: bool
    decayed: bool


@dataclass(frozen=True)
class Push:
    """An optimiser and, by name, the variables that it updates; `rows` has those whose gradients are rows."""

    optimizer: Optimizer
    variables: Sequence[str]
    rows: Mapping[str, int]  # the number of rows of a gradient


@dataclass(frozen=True)
class SharedStep:
    """Description of a step for the shards. written: names of variables that the step assigns."""

    variables: Sequence[SharedVariable]
    pushes: Sequence[Push]
    written: Sequence[str]


@dataclass
class Contribution:
    """Changes by one step of a worker.

    gradients: by number of the push, and by variable. added: the change of each variable that the step
    assigns by itself, such as moving averages and counters; of bools the new value.
    """

    gradients: list[dict[str, Gradient]] = field(default_factory=list)
    added: dict[str, Array] = field(default_factory=dict)

    def of(self, names: Sequence[str]) -> Contribution:
        """The part that concerns some of the variables."""
        wanted = set(names)

        def part(values: Mapping[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in values.items() if name in wanted}

        return Contribution([*map(part, self.gradients)], part(self.added))


class PushingOptimizer:
    """Wraps an optimiser for asynchronous steps: they compute its gradients, the shards apply them.

    The optimiser's slots and the counter of its schedule are at the shards (OSDI 2016, section 4.4); a
    schedule counts the pushes of all workers.
    """

    def __init__(self, optimizer: Optimizer):
        """Raises InvalidArgumentError for an optimiser with tensors of a graph in its options."""
        rate = optimizer.learning_rate
        for name, value in (("learning_rate", rate), ("weight_decay", optimizer.weight_decay)):
            if is_tensor(value) or isinstance(value, Variable):
                raise InvalidArgumentError(
                    f"wrap_optimizer: {name}: expected a number"
                    f"{' or a schedule' if name == 'learning_rate' else ''}, as the shards that apply "
                    f"gradients have a graph of their own; got {value!r:.80}"
                )
        self.optimizer = optimizer

    @property
    def learning_rate(self) -> float | Schedule:
        """The optimiser's learning rate."""
        rate: float | Schedule = self.optimizer.learning_rate
        return rate

    def minimize(
        self,
        loss: Tensor,
        global_step: Variable | None = None,
        var_list: Sequence[Variable] | None = None,
        *,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Operation:
        """Returns the operation that computes the gradients that are pushed. Raises as `apply_gradients`."""
        pairs = self.compute_gradients(loss, var_list, grad_loss=grad_loss)
        return self.apply_gradients(pairs, global_step, name)

    def compute_gradients(
        self, loss: Tensor, var_list: Sequence[Variable] | None = None, *, grad_loss: Any = None
    ) -> Any:
        """(gradient, variable) pairs, with gradients of the worker's own batch."""
        return self.optimizer.compute_gradients(loss, var_list, grad_loss=grad_loss)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Returns the operation that has gradients pushed; pairs without a gradient are ignored.

        global_step: is incremented. Raises FailedPreconditionError outside of a step, InvalidArgumentError if
        no gradient is left.
        """
        trace = current_trace("apply_gradients of a wrapped optimizer")
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
        if not pairs:
            raise InvalidArgumentError(
                "apply_gradients: no variable has a gradient; check what compute_gradients gave"
            )
        before = trace.graph.version
        with trace.graph.as_default():
            made: list[Any] = [g.values if isinstance(g, IndexedSlices) else g for g, _ in pairs]
            if global_step is not None:
                made.append(global_step.assign_add(1))
            done = group(*made, name=name or f"push_{self.optimizer.name}")
        trace.graph.add_to_collection(PUSHED, PushedGradients(self.optimizer, pairs, done))
        trace.updates.update(trace.graph.get_operations()[before:])
        return done


def pushed_in(graph: Graph) -> list[PushedGradients]:
    """All that steps of a graph push, in order of building."""
    found: list[PushedGradients] = graph.get_collection(PUSHED)
    return found
