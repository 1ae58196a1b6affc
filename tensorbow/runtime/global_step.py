"""The variable that counts training steps, as `tf.train.get_global_step` and its kin find and make it."""

from __future__ import annotations

import numpy as np

from tensorbow.errors import AlreadyExistsError, InvalidArgumentError
from tensorbow.graph import AsGraph, GraphKeys, get_default_graph, name_scope
from tensorbow.kinds import checked
from tensorbow.variables import Variable

NAME = "global_step"


@checked
def get_global_step(graph: AsGraph | None = None) -> Variable | None:
    """The global step of a graph, or None: that of `create_global_step`, or a variable of this name.

    Raises InvalidArgumentError when there are several, or it is no scalar integer.
    """
    graph = get_default_graph() if graph is None else graph
    found = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if not found:
        found = [v for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES) if v.op.name == NAME]
    if not found:
        return None
    step = found[0]
    if len(found) > 1 or not isinstance(step, Variable):
        raise InvalidArgumentError(
            f"global step: the collection {GraphKeys.GLOBAL_STEP!r} holds {len(found)} items, "
            "expected one variable"
        )
    if not step.dtype.is_integer or step.shape.ndims != 0:
        raise InvalidArgumentError(
            f"global step: {step.name} is {step.dtype.name} of shape {step.shape}, expected a scalar integer"
        )
    return step


@checked
def create_global_step(graph: AsGraph | None = None) -> Variable:
    """A scalar int64 variable `global_step` that starts at 0 and is not trained, for `minimize`.

    With replicas it counts rounds: each of them counts for itself, and all count the same.

    Raises AlreadyExistsError when the graph has one.
    """
    graph = get_default_graph() if graph is None else graph
    if get_global_step(graph) is not None:
        raise AlreadyExistsError(f"{NAME!r} already exists; use get_or_create_global_step")
    with graph.as_default(), name_scope(None):
        step = Variable(np.zeros((), np.int64), trainable=False, name=NAME, combine="first")
        graph.add_to_collection(GraphKeys.GLOBAL_STEP, step)
    return step


@checked
def get_or_create_global_step(graph: AsGraph | None = None) -> Variable:
    """The global step of a graph, made where there is none."""
    step = get_global_step(graph)
    return create_global_step(graph) if step is None else step
