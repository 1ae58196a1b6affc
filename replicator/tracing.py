"""Tracing: calls a user's `step_fn` once; the ops that it builds are the step of every replica."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from replicator.step_inputs import StepInputs
from scheduler import StepProgram
from tensorbow.call_errors import UnfitError
from tensorbow.compiler import DeviceSet
from tensorbow.compiler.prune import prune
from tensorbow.devices import Device
from tensorbow.devices.names import DeviceName
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import (
    Graph,
    GraphKeys,
    Operation,
    Tensor,
    convert_to_tensor,
    get_default_graph,
)
from tensorbow.graph.user_lines import raising_line
from tensorbow.kinds import Items, Name, checked
from tensorbow.nest import leaves_like, map_leaves, named_leaves
from tensorbow.ops import gather, stack
from tensorbow.ops.arrays import ConcatV2
from tensorbow.ops.collectives import known_replicas
from tensorbow.ops.constant import constant
from tensorbow.ops.control import Placeholder, group, placeholder
from tensorbow.ops.exchanges import ReplicaId
from tensorbow.specs import TensorSpec, int32
from tensorbow.string_ops.packing import UnpackStrings


@dataclass
class Trace:
    """State of a step that is being traced."""

    replicas: int
    graph: Graph
    synchronises: bool  # whether replicas are synchronised, so that optimisers must be wrapped
    first_come: bool  # whether some replicas take more steps than others, or their steps do not count
    devices: Sequence[Device]  # of the first replica
    updates: set[Operation] = field(default_factory=set)  # operations added by wrapped optimisers
    numbered_by: str = ""  # function by which the step asked for its replica's number, if it did


@dataclass(frozen=True)
class TracedStep:
    """A traced `step_fn`: its program, and the nest that it returned."""

    program: StepProgram
    shapes: list[TensorSpec]  # of one replica's inputs
    structure: Any  # the returned nest; its leaves: an index into `tensors`, an Operation, or None
    tensors: tuple[Tensor, ...]

    def require_known_shapes(self) -> None:
        """Raises InvalidArgumentError for a returned tensor whose shape is not known."""
        for name, tensor in self.program.metrics.items():
            if not tensor.spec.is_static:
                raise InvalidArgumentError(
                    f"{name}: its shape is {tensor.shape}, but results of replicas are stacked; "
                    "its shape must be known; reshape or reduce it "
                    f"(made at {tensor.op.source})"
                )


class _Current(threading.local):
    def __init__(self) -> None:
        self.trace: Trace | None = None


_current = _Current()


def current_trace(what: str) -> Trace:
    """Trace in progress in this thread. Raises FailedPreconditionError, naming `what`, if there is none."""
    if _current.trace is None:
        raise FailedPreconditionError(
            f"{what} is for use inside a step: call it in the step_fn that is given to replicator.run"
        )
    return _current.trace


def is_tracing() -> bool:
    """True while this thread traces a step."""
    return _current.trace is not None


@contextmanager
def _tracing(trace: Trace) -> Iterator[None]:
    if _current.trace is not None:
        raise FailedPreconditionError("run: a step is being traced already; a step cannot run another")
    _current.trace = trace
    try:
        yield
    finally:
        _current.trace = None


def trace_step(step_fn: Callable[..., Any], inputs: StepInputs, trace: Trace) -> TracedStep:
    """Calls `step_fn` once in the trace's graph, with placeholders of the first batch's shapes.

    Raises InvalidArgumentError for what cannot be replicated, naming it.
    """
    graph = trace.graph
    with graph.as_default(), _tracing(trace), known_replicas(trace.replicas):
        fed: list[Tensor] = []

        def feed(name: str, spec: TensorSpec) -> Tensor:
            word = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).strip("_")
            fed.append(placeholder(spec.dtype, inputs.declared_shape(spec), name=word))
            return UnpackStrings.tensor(fed[-1]) if name in inputs.packed else fed[-1]

        nest = None if inputs.tensors is None else _own_part(inputs.tensors)
        if inputs.structure is not None:
            nest = map_leaves(feed, inputs.structure, "inputs")
        before = graph.version
        try:
            outputs = _apply(step_fn, nest, inputs.hint)
            _require_apart(step_fn, nest, fed, graph.get_operations()[before:])
            _initialise_tables(graph)
            leaves = {name: _leaf(name, leaf, graph) for name, leaf in named_leaves(outputs, "output")}
        except InvalidArgumentError as error:
            if isinstance(error, UnfitError) and error.value is nest and isinstance(nest, (tuple, list)):
                raise _not_apart(step_fn, nest, raising_line(error)) from error
            if "from another graph" not in str(error):
                raise
            raise InvalidArgumentError(
                f"step_fn uses what was made outside of the replicator's graph: {error}; "
                "make variables, queues and constants inside `with replicator.context():` or in step_fn"
            ) from error
        _check_placeholders(fed, [leaf for leaf in leaves.values() if leaf is not None])
        _check_optimizers(trace, graph.get_operations()[before:])
        _warn_of_unused(trace, step_fn, [leaf for leaf in leaves.values() if leaf is not None])
        tensors = tuple(leaf for leaf in leaves.values() if isinstance(leaf, Tensor))
        operations = [leaf for leaf in leaves.values() if isinstance(leaf, Operation)]
        metrics = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, Tensor)}
        update = group(*operations, name="step")
        program = StepProgram(tuple(fed), None, update, metrics, resources=graph.host_objects)
        _check_devices(trace, program)
    indices = iter(range(len(tensors)))

    def numbered(name: str, leaf: Any) -> Any:
        kept = leaves[name]
        return next(indices) if isinstance(kept, Tensor) else kept

    structure = map_leaves(numbered, outputs, "output")
    traced = TracedStep(program, inputs.specs, structure, tensors)
    if not inputs.compiles_smaller:
        traced.require_known_shapes()
    return traced


def _initialise_tables(graph: Graph) -> None:
    """Has the tables of the graph initialised before they are used: replicas run no `tables_initializer`."""
    initializers = graph.get_collection(GraphKeys.TABLE_INITIALIZERS)
    for initializer in initializers:
        for op in graph.consumers(initializer.inputs[0]):
            if op not in initializers and initializer not in op.control_inputs:
                op.control_inputs = (*op.control_inputs, initializer)


def _own_part(parts: Sequence[Any]) -> Any:
    """Selects from nests of tensors, one per replica, the nest of the replica that runs the step."""
    first, *others = parts
    if not others:
        return first
    leaves: dict[str, list[Tensor]] = {}
    for replica, part in enumerate(parts):
        for name, leaf in leaves_like(first, part, "inputs"):
            tensor = convert_to_tensor(leaf)
            leaves.setdefault(name, []).append(tensor)
            expected = leaves[name][0].spec
            if (tensor.spec.shape, tensor.dtype) != (expected.shape, expected.dtype):
                raise InvalidArgumentError(
                    f"{name} of replica {replica}: expected {expected} as of replica 0, got {tensor.spec}"
                )
    number = ReplicaId(name="replica_id")
    return map_leaves(lambda name, leaf: gather(stack(leaves[name]), number), first, "inputs")


def _apply(step_fn: Callable[..., Any], nest: Any, hint: str) -> Any:
    """Calls `step_fn` with the nest, or with the items of a tuple or list if it takes several arguments.

    hint: added to the error where it does not take them.
    """
    signature = inspect.signature(step_fn)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [p for p in signature.parameters.values() if p.kind in kinds and p.default is p.empty]
    if nest is None:
        arguments: Sequence[Any] = ()
    else:
        arguments = nest if len(parameters) != 1 and isinstance(nest, (tuple, list)) else [nest]
    try:
        signature.bind(*arguments)
    except TypeError as error:
        given = f"{len(arguments)} from input_fn" if nest is not None else "none, as there is no input_fn"
        if len(arguments) == 1:
            given = f"one {type(arguments[0]).__name__} from input_fn"
            if isinstance(arguments[0], Mapping):
                given += ", to be taken as one argument"
        name = getattr(step_fn, "__name__", "step_fn")
        raise InvalidArgumentError(f"{name}{signature} gets {given}: {error}{hint}") from None
    return step_fn(*arguments)


def _require_apart(
    step_fn: Callable[..., Any], nest: Any, fed: Sequence[Tensor], added: Sequence[Operation]
) -> None:
    """Raises InvalidArgumentError if the tuple from `input_fn` was used as one tensor, stacked implicitly."""
    for op in added:
        if op.definition is ConcatV2 and op.name.rpartition("/")[2].startswith("packed"):
            parts = [tensor.op.inputs[0] for tensor in op.inputs if tensor.op.inputs]
            joined = len(fed) > 1 and isinstance(nest, (tuple, list)) and parts == [*fed]
            if joined and any(tensor.shape.rank for tensor in fed):  # a list of numbers is a vector
                raise _not_apart(step_fn, nest, op.source)


def _not_apart(step_fn: Callable[..., Any], nest: Sequence[Any], line: object) -> InvalidArgumentError:
    name = getattr(step_fn, "__name__", "step_fn")
    return InvalidArgumentError(
        f"{name}{inspect.signature(step_fn)} uses the {type(nest).__name__} of {len(nest)} from input_fn as "
        f"one tensor: give it a parameter for each, or take it apart, or join it by tb.stack (made at {line})"
    )


def _leaf(name: str, leaf: Any, graph: Graph) -> Tensor | Operation | None:
    if leaf is None:
        return None
    if not isinstance(leaf, Operation):
        try:
            leaf = convert_to_tensor(leaf)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{name} of step_fn: {error}") from None
    if leaf.graph is not graph:
        raise InvalidArgumentError(f"{name} of step_fn: {leaf.name} is from another graph")
    kept: Tensor | Operation = leaf
    return kept


def _check_placeholders(fed: Sequence[Tensor], outputs: list[Tensor | Operation]) -> None:
    """Raises InvalidArgumentError for a placeholder that is not one of the step's inputs."""
    inputs = {tensor.op for tensor in fed}
    for op in prune([leaf if isinstance(leaf, Operation) else leaf.op for leaf in outputs], ()):
        if op.definition is Placeholder and op not in inputs:
            raise InvalidArgumentError(
                f"step_fn needs the placeholder {op.name}, which nothing feeds: have input_fn give its "
                "value, or use a tb.Variable(trainable=False) that another step assigns "
                f"(made at {op.source})"
            )


def _check_optimizers(trace: Trace, added: list[Operation]) -> None:
    train_ops = set(trace.graph.get_collection(GraphKeys.TRAIN_OP))
    for op in added:
        is_update = op.definition.update is not None or op in train_ops
        if trace.synchronises and is_update and op not in trace.updates and _differs_between_replicas(op):
            raise InvalidArgumentError(
                f"{op.name} updates a variable by an optimiser that is not wrapped: use "
                "optimizer = replicator.wrap_optimizer(optimizer) in the step, or average all "
                f"gradients that it applies by a collective (made at {op.source})"
            )


def _differs_between_replicas(update: Operation) -> bool:
    """True if what is applied to a trainable variable depends on a replica's inputs, number or draws other
    than through a collective: an optimiser that averages its gradients by itself needs no wrapping."""
    trainable = {variable.op for variable in update.graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)}
    differing: set[Operation] = set()
    for op in prune([update], ()):
        made = op.definition
        if made.exchange:
            continue
        if made in (Placeholder, ReplicaId) or made.random or any(t.op in differing for t in op.inputs):
            differing.add(op)
            if any(op.inputs[index].op in trainable for index in made.writes):
                return True
    return False


def _check_devices(trace: Trace, program: StepProgram) -> None:
    """Raises InvalidArgumentError for an op on a device that is no part of a replica."""
    parts = DeviceSet(trace.devices[0], trace.devices[1:])
    for op in prune([*(tensor.op for tensor in program.fetches), program.update], program.inputs):
        if op.device and not parts.matching(DeviceName.parse(op.device)):
            last = len(trace.devices) - 1
            remedy = f"replicator.logical_device(i) with i from 0 to {last}" if last else "no device scope"
            raise InvalidArgumentError(
                f"{op.type} {op.name} requests device {op.device}, which is no device of a replica ({parts} "
                f"for the first one); in a step use {remedy} (made at {op.source})"
            )


def _warn_of_unused(trace: Trace, step_fn: Callable[..., Any], outputs: list[Tensor | Operation]) -> None:
    """Warns if a step builds updates but its returned values run none of them."""
    built = [op for op in trace.graph.get_collection(GraphKeys.TRAIN_OP) if op in trace.updates]
    reached = prune([leaf if isinstance(leaf, Operation) else leaf.op for leaf in outputs], ())
    if built and not set(built).intersection(reached):
        name = getattr(step_fn, "__name__", "step_fn")
        warnings.warn(
            f"{name} builds {built[0].name}, but nothing that it returns runs it: return it too, or a "
            f"tensor made under tb.control_dependencies([...]) of it (made at {built[0].source})",
            stacklevel=6,
        )


# Inside a step ------------------------------------------------------------------------------------


def replica_id() -> Tensor:
    """Number of the replica that runs the step, an int32 scalar from 0.

    Raises FailedPreconditionError outside of a step.
    """
    return _replica_number("replica_id")


def _replica_number(asked_by: str) -> Tensor:
    current_trace(asked_by).numbered_by = asked_by
    with get_default_graph().as_default():
        result: Tensor = ReplicaId(name="replica_id")
    return result


@checked
def per_replica(values: Items, name: Name = None) -> Tensor:
    """The replica's own value of a list with one for each replica: numbers or arrays of one shape and dtype.

    For hyper-parameters that differ, such as learning rates of independent replicas (`sync="none"`).
    Raises FailedPreconditionError outside of a step, InvalidArgumentError for another number of values than
    there are replicas, for shapes that differ, or for a number that is not finite.
    """
    count = current_trace("per_replica").replicas
    if len(values) != count:
        raise InvalidArgumentError(
            f"per_replica: expected a value for each of {count} replicas, got {len(values)} values"
        )
    if float in map(type, values):  # 1 may stand beside 0.1
        values = [float(value) if type(value) is int else value for value in values]
    with get_default_graph().as_default():
        rows = [convert_to_tensor(value) for value in values]
        for replica, row in enumerate(rows):
            if row.dtype.is_floating and row.spec.value is not None and not np.isfinite(row.spec.value).all():
                raise InvalidArgumentError(
                    f"per_replica: expected finite numbers, got {row.spec.value} for replica {replica}"
                )
        return gather(stack(rows), _replica_number("per_replica"), name=name)


def num_replicas() -> Tensor:
    """Number of replicas that run the step, an int32 constant.

    Raises FailedPreconditionError outside of a step.
    """
    return constant(current_trace("num_replicas").replicas, dtype=int32, name="num_replicas")
