"""A worker of asynchronous training: pulls values, computes steps, pushes updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from replicator.asynchronous.pushes import (
    Contribution,
    Gradient,
    Push,
    PushedGradients,
    SharedStep,
    SharedVariable,
    pushed_in,
)
from replicator.input_functions import InputContext, InputOptions, ReplicaShare, called_with
from replicator.picked_inputs import inputs_of
from replicator.tracing import Trace, TracedStep, trace_step
from tensorbow.compiler.prune import prune
from tensorbow.devices import opened
from tensorbow.errors import InvalidArgumentError, UnimplementedError
from tensorbow.graph import GLOBAL_VARIABLES, Graph, Tensor
from tensorbow.nest import map_leaves
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.runtime import Session
from tensorbow.specs import Array
from tensorbow.variables import Variable


class AsyncWorker:
    """One replica of the step, in a graph and a session of its own (between-graph replication)."""

    def __init__(
        self,
        step_fn: Callable[..., Any],
        options: InputOptions,
        number: int,
        workers: int,
        seed: int | None = None,
        device: str = "/cpu:0",
    ):
        """Traces the step, with the first batch of this worker's inputs.

        number: of this worker, from 0. seed: of the graph. Raises InvalidArgumentError for a step that cannot
        be replicated, UnimplementedError for collectives, and what input_fn raises.
        """
        self.number = number
        self._graph = Graph()
        self._graph.seed = seed
        opened_device = opened(device)
        with self._graph.as_default():
            share = ReplicaShare(number, 1, workers)
            self._inputs = inputs_of(_for_worker(options, number, workers), share)
            trace = Trace(1, self._graph, True, False, [opened_device])
            self._traced = trace_step(step_fn, self._inputs, trace)
        _require_no_meeting(trace, self._traced)
        program = self._traced.program
        reached = prune([program.update, *(tensor.op for tensor in self._traced.tensors)], program.inputs)
        self._pushed = [pushed for pushed in pushed_in(self._graph) if pushed.done in set(reached)]
        self._variables: dict[str, Variable] = {
            variable.op.name: variable for variable in self._graph.get_collection(GLOBAL_VARIABLES)
        }
        assigned = {op.inputs[index].op.name for op in reached for index in op.definition.writes}
        self._written = [name for name in self._variables if name in assigned]
        _require_pushes(step_fn, self._variables, self._pushed, self._written)
        self._session = Session(graph=self._graph, device=device)
        self._session.run([variable.initializer for variable in self._variables.values()])
        gradients = [[_parts(gradient) for gradient, _ in pushed.pairs] for pushed in self._pushed]
        written = [self._variables[name] for name in self._written]
        fetches = [[*self._traced.tensors], gradients, written, program.update]
        self._run = self._session.make_callable(fetches, [*program.inputs])

    @property
    def shared_step(self) -> SharedStep:
        """Facts that the shards need; with this worker's initial values."""
        names = [*self._variables]
        values = dict(zip(names, self._session.run([*self._variables.values()]), strict=True))
        variables = [
            SharedVariable(name, values[name], variable.trainable, bool(variable.op.attrs["decayed"]))
            for name, variable in self._variables.items()
        ]
        return SharedStep(variables, [*map(_push, self._pushed)], self._written)

    def step(self, values: Mapping[str, Array]) -> tuple[Any, Contribution]:
        """Does a step with the next inputs on values of all variables: its results, and what it changes.

        Results: arrays `[1, ...]` in the nest that step_fn returns, None for operations. Raises
        OutOfRangeError when the inputs end.
        """
        rounds = self._inputs.take(1)
        (fed,) = cast(Any, self._inputs.joined(rounds))
        self._session.load_variables(values)
        results, gradients, written, _ = self._run(*fed)
        contribution = Contribution()
        for pushed, of_push in zip(self._pushed, gradients, strict=True):
            named = zip(pushed.pairs, of_push, strict=True)
            contribution.gradients.append({pair[1].op.name: _gradient(arrays) for pair, arrays in named})
        for name, after in zip(self._written, written, strict=True):
            is_number = after.dtype.kind in "iuf"
            contribution.added[name] = after - values[name] if is_number else after
        return self._nest(results), contribution

    def close(self) -> None:
        """Frees its memory and threads. Idempotent."""
        self._inputs.close()
        self._session.close()

    def _nest(self, results: Sequence[Array]) -> Any:
        def leaf(name: str, place: Any) -> Any:
            return np.asarray(results[place])[None] if isinstance(place, int) else None

        return map_leaves(leaf, self._traced.structure, "output")


def _for_worker(options: InputOptions, number: int, workers: int) -> InputOptions:
    """Options whose input_fn gets this worker's number as that of its replica."""
    input_fn, context = options.input_fn, InputContext(number, workers, workers)
    if input_fn is None:
        return options
    return InputOptions(
        lambda: called_with(input_fn, context),
        smaller_batch=options.smaller_batch,
        prefetch=options.prefetch,
        data_on_device="never",
    )


def _require_no_meeting(trace: Trace, traced: TracedStep) -> None:
    """Raises UnimplementedError for a step in which replicas meet, or that asks for its number."""
    exchanges = traced.program.exchange_ops
    if exchanges:
        names = ", ".join(sorted(definition.name for definition in exchanges))
        raise UnimplementedError(
            f"MultiWorkerAsyncReplicator: the step has collectives ({names}), but its workers never meet; "
            "use tb.MultiWorkerReplicator or tb.MultiGpuReplicator"
        )
    if trace.numbered_by:
        raise UnimplementedError(
            f"MultiWorkerAsyncReplicator: {trace.numbered_by} is not known in an asynchronous step; have "
            "input_fn(context) give context.replica_id as an input"
        )


def _require_pushes(
    step_fn: Callable[..., Any],
    variables: Mapping[str, Variable],
    pushed: Sequence[PushedGradients],
    written: Sequence[str],
) -> None:
    """Raises InvalidArgumentError for a step that trains nothing, or assigns trainable variables itself."""
    name = getattr(step_fn, "__name__", "step_fn")
    if not pushed:
        raise InvalidArgumentError(
            f"{name}: expected to return the operation of an optimiser of replicator.wrap_optimizer, got a "
            "step that trains nothing; return it, or a tensor made under its control dependency"
        )
    assigned = [each for each in written if variables[each].trainable]
    if assigned:
        raise InvalidArgumentError(
            f"{name}: assigns the trainable variable {assigned[0]}, which the shards update; use "
            "replicator.wrap_optimizer, or make it with trainable=False"
        )


def _parts(gradient: Tensor | IndexedSlices) -> Any:
    return [gradient.values, gradient.indices] if isinstance(gradient, IndexedSlices) else gradient


def _gradient(arrays: Any) -> Gradient:
    return (arrays[0], arrays[1].astype(np.int64)) if isinstance(arrays, list) else arrays


def _push(pushed: PushedGradients) -> Push:
    rows = dict[str, int]()
    for gradient, variable in pushed.pairs:
        if isinstance(gradient, IndexedSlices):
            if not gradient.values.spec.is_static:
                raise InvalidArgumentError(
                    f"gradient of {variable.op.name}: expected a known number of rows, got "
                    f"{gradient.values.spec}; give batches of one size"
                )
            rows[variable.op.name] = gradient.values.spec.extents[0]
    return Push(pushed.optimizer, [variable.op.name for _, variable in pushed.pairs], rows)
