"""Warnings of moving averages that a training step does not update, or a checkpoint leaves out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tensorbow.compiler.prune import needed_for
from tensorbow.graph import Graph, GraphKeys, Operation, Tensor, warn_at_user_line
from tensorbow.missing_names import listed
from tensorbow.ops.state import VariableReference
from tensorbow.runtime.fetches_and_feeds import GraphElements

_REMEDY = (
    "build the update of the weights under "
    "tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)), or run these ops with it"
)


def warn_of_forgotten_updates(operations: Sequence[Operation]) -> None:
    """Warns if a step trains a layer without running the layer's ops in the collection UPDATE_OPS.

    operations: all that the step runs.
    """
    if not operations:
        return
    graph = operations[0].graph
    updates = _updates_of(graph)
    reached, train_ops = set(operations), set(graph.get_collection(GraphKeys.TRAIN_OP))
    if not updates or not any(op in train_ops or op.definition.update is not None for op in operations):
        return
    written = {variable.name for op in operations for variable in _written(op)}
    trainable = {variable.op.name for variable in graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)}
    trained = {_layer(name) for name in written & trainable}
    kept = {variable.name for op in updates if op in reached for variable in _written(op)}
    sources = {variable.name: op.source for op in updates for variable in _written(op)}
    missing = [name for name in sources if name not in kept and _layer(name) in trained]
    if missing:
        warn_at_user_line(
            f"the step trains {_layer(missing[0])}, but does not update {listed(missing)}, which "
            f"evaluation uses: {_REMEDY} (made at {sources[missing[0]]})"
        )


def warn_of_updates_forgotten_by(elements: GraphElements, fed: Collection[Tensor]) -> None:
    """`warn_of_forgotten_updates` for the step of these fetches."""
    if elements and elements[0].graph.get_collection(GraphKeys.UPDATE_OPS):
        warn_of_forgotten_updates(needed_for(elements, fed))


def warn_of_unsaved_averages(graph: Graph, saved: Collection[str]) -> None:
    """Warns if variables of a layer are saved without its moving averages. saved: names of variables."""
    layers = {_layer(name) for name in saved}
    averages = [variable.name for op in _updates_of(graph) for variable in _written(op)]
    missing = [name for name in dict.fromkeys(averages) if name not in saved and _layer(name) in layers]
    if missing:
        warn_at_user_line(
            f"Saver: var_list has variables of {_layer(missing[0])}, but not {listed(missing)}, "
            "which evaluation uses: a restored model would compute something else; give "
            "tb.global_variables(), or no var_list"
        )


def _updates_of(graph: Graph) -> list[Operation]:
    elements: Iterable[Tensor | Operation] = graph.get_collection(GraphKeys.UPDATE_OPS)
    return [element.op if isinstance(element, Tensor) else element for element in elements]


def _written(op: Operation) -> list[Operation]:
    """The variables that an operation writes."""
    owners = [op.inputs[index].op for index in op.definition.writes]
    return [owner for owner in owners if owner.definition is VariableReference]


def _layer(name: str) -> str:
    return name.rpartition("/")[0]
