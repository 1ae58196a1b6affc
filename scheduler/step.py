"""The step that all replicas run: a user's graph, compiled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.averaging import with_averaging
from scheduler.gradient_mean import with_gradient_mean
from tensorbow.compiler import VariableLayout, compile_step
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph, Operation, Tensor
from tensorbow.kernels import Backend, Executable
from tensorbow.runtime import Session
from tensorbow.specs import Array, TensorSpec, compatible
from tensorbow.variables import global_variables, global_variables_initializer


@dataclass(frozen=True)
class StepProgram:
    """What a replica does with a batch, built once on one device; nothing in it speaks of replicas.

    inputs: placeholders, fed in this order with each batch.
    loss: a scalar; checked for NaN before any variable is written.
    update: the operation that does the step, usually `optimizer.minimize(loss)`.
    metrics: further scalars to report, by name.
    """

    inputs: tuple[Tensor, ...]
    loss: Tensor
    update: Operation
    metrics: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        """The graph it is part of."""
        return self.loss.graph

    def __post_init__(self) -> None:
        for what, tensor in (("loss", self.loss), *((f"metric {n}", t) for n, t in self.metrics.items())):
            if tensor.spec.shape not in ((), None):
                raise InvalidArgumentError(
                    f"the {what} {tensor.name} must be a scalar, got {tensor.spec}; "
                    f"reduce it, as by tb.reduce_mean (made at {tensor.op.source})"
                )
        if not self.loss.dtype.is_floating:
            raise InvalidArgumentError(f"the loss {self.loss.name} must be floating, got {self.loss.spec}")
        elements: list[Tensor | Operation] = [*self.inputs, *self.metrics.values(), self.update]
        for element in elements:
            if element.graph is not self.graph:
                raise InvalidArgumentError(f"{element.name} is not of the graph of the loss {self.loss.name}")

    def specs(self, batch_size: int) -> list[TensorSpec]:
        """The inputs' specs when each unknown leading dimension is `batch_size`."""
        result = []
        for tensor in self.inputs:
            dims = tensor.spec.shape
            if dims and dims[0] is None:
                dims = (batch_size, *dims[1:])
            result.append(TensorSpec(dims, tensor.dtype))
        return result

    def initial_values(self) -> dict[str, Array]:
        """The initial values of all variables of the graph, by name."""
        with self.graph.as_default(), Session(graph=self.graph) as session:
            session.run(global_variables_initializer())
            return {v.op.name: session.run(v) for v in global_variables()}

    def compile(
        self,
        shapes: Sequence[TensorSpec],
        layout: VariableLayout,
        backend: Backend,
        averaging_slots: int,
        clear_velocity: bool = False,
        aggregates: bool = False,
    ) -> Executable:
        """Segments `gradient`, `update`, and for averaging one `update` per slot of z and corrections.

        averaging_slots: staleness + 1, or 0 without averaging. See `scheduler.averaging`.
        aggregates: adds an update on the mean gradient. See `scheduler.gradient_mean`.
        Raises InvalidArgumentError for shapes that do not fit, and for a step that cannot be planned.
        """
        self._check(shapes)
        executable = compile_step(
            [self.loss, *self.metrics.values(), self.update],
            dict(zip(self.inputs, shapes, strict=True)),
            layout,
            backend,
            cut_before_update=True,
            guard=self.loss,
        )
        for tensor, ref in zip((self.loss, *self.metrics.values()), executable.fetches, strict=True):
            if ref.shape:
                raise InvalidArgumentError(f"{tensor.name} must be a scalar, its shape is {list(ref.shape)}")
        executable = with_averaging(executable, layout, backend, averaging_slots, clear_velocity)
        if aggregates:
            executable = with_gradient_mean(executable, layout, backend, averaging_slots)
        return executable

    def _check(self, shapes: Sequence[TensorSpec]) -> None:
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
