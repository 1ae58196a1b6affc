"""The step that all replicas run: a user's graph, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, TypeAlias, TypeVar

from scheduler.averaging.synchronisers import Synchroniser
from scheduler.replicas.dynamic.divided_step import compile_divided
from scheduler.replicas.hyperparameters import hyperparameters
from tensorbow.compiler import NeedsDynamicModeError, VariableLayout, compile_step
from tensorbow.compiler.prune import prune
from tensorbow.compiler.recompute import HOW, NEVER
from tensorbow.compiler.swap import HOW as WAYS_TO_SWAP
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph, OpDef, Operation, Resources, Tensor
from tensorbow.kinds import (
    TEXT,
    Count,
    Kind,
    Positive,
    RefusedError,
    check_fields,
    checked,
    instance,
    one_of,
    optional,
    sequence,
    with_remedy,
)
from tensorbow.ops.control import Placeholder
from tensorbow.ops.host_variables import HostVariable
from tensorbow.ops.state import VariableReference
from tensorbow.program import Backend, Executable
from tensorbow.runtime.forgotten_updates import warn_of_forgotten_updates
from tensorbow.runtime.initial_values import initial_values
from tensorbow.specs import Array, TensorSpec, compatible

_TENSOR = instance(Tensor, expected="a tensor")
_OPERATION = instance(Operation, expected="the operation that does the step")
_ORDER = "give StepProgram(inputs, loss, update)"


def _read_metrics(value: Any) -> Mapping[str, Tensor]:
    if not isinstance(value, Mapping):
        raise RefusedError
    return {TEXT.read(name): _TENSOR.read(tensor) for name, tensor in value.items()}


Inputs: TypeAlias = Annotated[
    tuple[Tensor, ...], with_remedy(sequence(_TENSOR, "a tuple of placeholders"), _ORDER)
]
Loss: TypeAlias = Annotated[Tensor | None, with_remedy(optional(_TENSOR), _ORDER)]
Update: TypeAlias = Annotated[
    Operation, with_remedy(_OPERATION, "give what optimizer.minimize(loss) returns")
]
Metrics: TypeAlias = Annotated[Mapping[str, Tensor], Kind("tensors by name", _read_metrics)]
Others: TypeAlias = Annotated[tuple[Operation, ...], sequence(_OPERATION, "a tuple of operations")]
Recompute: TypeAlias = Annotated[str, one_of(*HOW)]
Swap: TypeAlias = Annotated[str, one_of(*WAYS_TO_SWAP)]
Compiled = TypeVar("Compiled")
AUTO, DYNAMIC = "auto", "dynamic"
Mode: TypeAlias = Annotated[str, one_of(AUTO, DYNAMIC)]
Shared: TypeAlias = Annotated[
    Resources | None, optional(instance(Resources, expected="the resources of a session"))
]


@dataclass(frozen=True)
class StepProgram:
    """Training step of one replica, built once for one device; it does not mention replicas.

    inputs: placeholders, fed in this order with each batch.
    loss: a scalar; checked for NaN before any variable is written. None where the step has not one loss.
    update: the operation that does the step, usually `optimizer.minimize(loss)`.
    metrics: what else to report, by name: tensors of any shape.
    others: further operations to run.
    recompute: how intermediate values are computed again for the gradient, so as to keep less: never; cheap
        (elementwise ops, normalisation, pooling); segments (whole segments of the forward pass); or smallest:
        the one of these plans with the smallest peak. The bits stay the same. Not for replicas with several
        parts.
    swap: on GPUs, which intermediate values lie in the host's memory between their uses: never; hidden (those
        whose copies take no longer than what is computed meanwhile, by estimates); or smallest: the step
        waits for copies where that makes its peak smaller. The bits stay the same. Replicas are captured
        side by side then, not fused. No effect on CPUs, nor for replicas with several parts.
    mode: auto: planned, or, where the step has ops that no plan has, forward and backward pass by each
        replica's dynamic executor and the rest planned; dynamic: so in any case, to compare.
    resources: where ops of the host keep what replicas share, such as queues; default: of the program's own.
    """

    inputs: Inputs
    loss: Loss
    update: Update
    metrics: Metrics = field(default_factory=dict)
    others: Others = ()
    recompute: Recompute = NEVER
    swap: Swap = NEVER
    mode: Mode = AUTO
    resources: Shared = None

    @property
    def graph(self) -> Graph:
        """The graph it is part of."""
        return self.update.graph

    @property
    def variables(self) -> list[Operation]:
        """All variables that its graph has now."""
        return [op for op in self.graph.get_operations() if op.definition is VariableReference]

    @property
    def fetches(self) -> list[Tensor]:
        """Tensors that a task reports: the loss, if any, and the metrics."""
        return [*([] if self.loss is None else [self.loss]), *self.metrics.values()]

    def __post_init__(self) -> None:
        check_fields(self)
        loss = self.loss
        if loss is not None and loss.spec.shape not in ((), None):
            raise InvalidArgumentError(
                f"the loss {loss.name} must be a scalar, got {loss.spec}; "
                f"reduce it, as by tb.reduce_mean (made at {loss.op.source})"
            )
        if loss is not None and not loss.dtype.is_floating:
            raise InvalidArgumentError(f"the loss {loss.name} must be floating, got {loss.spec}")
        elements: list[Tensor | Operation] = [*self.inputs, *self.fetches, *self.others]
        for element in elements:
            if element.graph is not self.graph:
                raise InvalidArgumentError(f"{element.name} is not of the graph of {self.update.name}")
        operations = [*(tensor.op for tensor in self.fetches), self.update, *self.others]
        reached = prune(operations, self.inputs)
        for op in reached:
            if op.definition is HostVariable:
                raise InvalidArgumentError(
                    f"variable {op.name} is of strings, or its shape may change, but the replicas' variables "
                    "are numbers of a fixed shape in device memory; leave validate_shape=False out, hold "
                    f"numbers, or write it in a plain tb.Session (made at {op.source})"
                )
            if op.definition is VariableReference and op.attrs["container"]:
                raise InvalidArgumentError(
                    f"variable {op.name} is in container '{op.attrs['container']}', but each replica has "
                    f"variables of its own; make it outside of tb.container (made at {op.source})"
                )
            if op.definition is Placeholder and op.outputs[0] not in self.inputs:
                raise InvalidArgumentError(
                    f"the step reads the placeholder {op.name}, which is not among its inputs "
                    f"({', '.join(tensor.name for tensor in self.inputs) or 'there are none'}); "
                    f"add it to StepProgram(inputs=...) (made at {op.source})"
                )
        warn_of_forgotten_updates(reached)

    @checked
    def specs(self, batch_size: Positive) -> list[TensorSpec]:
        """The inputs' specs when each unknown leading dimension is `batch_size`."""
        result = []
        for tensor in self.inputs:
            dims = tensor.spec.shape
            if dims and dims[0] is None:
                dims = (batch_size, *dims[1:])
            result.append(TensorSpec(dims, tensor.dtype))
        return result

    @checked
    def initial_values(self, random_stream: Count = 0) -> dict[str, Array]:
        """The initial values of all variables of the graph, by name, drawn from this stream of numbers."""
        return initial_values(self.graph, random_stream)

    def compile(
        self,
        shapes: Sequence[TensorSpec],
        layout: VariableLayout,
        backend: Backend,
        synchroniser: Synchroniser,
        replicas: int = 1,
    ) -> Executable:
        """The step and its variants, see `scheduler.averaging.synchronisers`.

        replicas: their number matters only where it is in the shape of an exchange's result.
        Raises InvalidArgumentError for shapes that do not fit, and for a step that cannot be planned.
        """
        feeds = self.feeds(shapes)
        operations = [self.update, *self.others]
        executable = planned_or(
            self.mode,
            lambda: compile_step(
                [*self.fetches, *operations],
                feeds,
                layout,
                backend,
                rewriting=lambda step: synchroniser.rewrite(step, layout, replicas),
                guard=self.loss,
                replicas=replicas,
                recompute=self.recompute,
                swap=self.swap,
            ),
            lambda error: compile_divided(
                self.fetches,
                operations,
                feeds,
                layout,
                backend,
                synchroniser,
                loss=self.loss,
                replicas=replicas,
                resources=self.shared,
                error=error,
            ),
        )
        if self.loss is not None and executable.fetches[0].shape:
            shape = list(executable.fetches[0].shape)
            raise InvalidArgumentError(f"the loss {self.loss.name} must be a scalar, its shape is {shape}")
        return executable

    @cached_property
    def shared(self) -> Resources:
        """Objects of its ops of the host, for all replicas of this process."""
        return Resources() if self.resources is None else self.resources

    @cached_property
    def definitions(self) -> frozenset[OpDef]:
        """The ops that the step has."""
        return frozenset(op.definition for op in self._operations)

    @property
    def updates_weights(self) -> bool:
        """True if the step writes a trainable variable; an evaluation does not."""
        return any(map(writes_weights, self._operations))

    @cached_property
    def _operations(self) -> list[Operation]:
        wanted = [*(tensor.op for tensor in self.fetches), self.update, *self.others]
        return prune(wanted, self.inputs)

    @property
    def exchange_ops(self) -> frozenset[OpDef]:
        """The exchanges of the step itself, in which replicas meet whatever keeps them together."""
        return frozenset(definition for definition in self.definitions if definition.exchange)

    @cached_property
    def exchanges(self) -> list[str]:
        """Each exchange of the step itself, in their order, and the op whose value replicas hand in."""
        own = [op for op in self._operations if op.definition.exchange]
        return [f"{op.definition.name} of the result of {op.inputs[0].op.definition.name}" for op in own]

    @cached_property
    def hyperparameters(self) -> list[str]:
        """Numbers that its optimisers read, each with its place."""
        return hyperparameters(self._operations)

    def feeds(self, shapes: Sequence[TensorSpec]) -> dict[Tensor, TensorSpec]:
        """The spec of each input. Raises InvalidArgumentError for shapes that do not fit."""
        if len(shapes) != len(self.inputs):
            raise InvalidArgumentError(
                f"shapes: expected one for each of {len(self.inputs)} inputs, got {len(shapes)}"
            )
        for tensor, spec in zip(self.inputs, shapes, strict=True):
            fits = spec.dtype == tensor.dtype and compatible(tensor.spec.shape, spec.shape)
            if not fits or not spec.is_static:
                raise InvalidArgumentError(
                    f"shapes: input {tensor.name} is {tensor.spec}, got {spec}; "
                    "give it with all dimensions known"
                )
        return dict(zip(self.inputs, shapes, strict=True))


def planned_or(
    mode: str, planned: Callable[[], Compiled], divided: Callable[[NeedsDynamicModeError], Compiled]
) -> Compiled:
    """Plan of a step, or the divided step where it has no plan, or where its mode is `dynamic`.

    mode: of its StepProgram. planned, divided: functions that compile; divided takes the reason.
    """
    if mode == DYNAMIC:
        return divided(NeedsDynamicModeError(f"mode {DYNAMIC}", f"mode={DYNAMIC!r} of its StepProgram"))
    try:
        return planned()
    except NeedsDynamicModeError as error:
        unplanned = error.with_traceback(None)
    return divided(unplanned)


def writes_weights(op: Operation) -> bool:
    """True for an op that writes a trainable variable."""
    written = (op.inputs[index].op for index in op.definition.writes)
    return any(v.definition is VariableReference and v.attrs["role"] == "weights" for v in written)


AsProgram: TypeAlias = Annotated[StepProgram, instance(StepProgram, expected="a tb.StepProgram")]
