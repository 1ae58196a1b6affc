"""The variable that counts training steps (`tf.train.get_global_step` and related functions)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.errors import AlreadyExistsError, InvalidArgumentError
from tensorbow.graph import AsGraph, GraphKeys, Tensor, get_default_graph, name_scope
from tensorbow.kinds import checked, refuse
from tensorbow.variables import Variable

NAME = "global_step"


@checked
def get_global_step(graph: AsGraph | None = None) -> Variable | None:
    """The global step of a graph: from `create_global_step`, or a variable named `global_step`, or None.

    Raises InvalidArgumentError if there are several, or it is not an integer scalar.
    """
    graph = get_default_graph() if graph is None else graph
    found = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if not found:
        found = [v for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES) if v.op.name == NAME]
    if not found:
        return None
    if len(found) > 1:
        raise InvalidArgumentError(
            f"global step: the collection {GraphKeys.GLOBAL_STEP!r} holds {len(found)} items, "
            "expected one variable"
        )
    _require_step("get_global_step", NAME, found[0])
    step: Variable = found[0]
    return step


@checked
def assert_global_step(global_step_tensor: Any) -> None:
    """Raises InvalidArgumentError for what is no variable or tensor of a scalar integer."""
    _require_step("assert_global_step", "global_step_tensor", global_step_tensor)


def _require_step(call: str, argument: str, step: Any) -> None:
    expected = "a variable or tensor of a scalar integer"
    if not isinstance(step, (Variable, Tensor)):
        raise refuse(call, argument, expected, step)
    if not step.dtype.is_integer or step.shape.ndims not in (None, 0):
        raise InvalidArgumentError(
            f"{call}: expected {argument} to be {expected}, got {step.name}, {step.dtype.name} of "
            f"shape {step.shape}"
        )


@checked
def create_global_step(graph: AsGraph | None = None) -> Variable:
    """Makes a scalar int64 variable `global_step` for `minimize`, not trainable, that starts at 0.

    With replicas it counts rounds: every replica counts its own, and all counts are equal.

    Raises AlreadyExistsError if the graph has one.
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
    """The global step of a graph; made if there is none."""
    step = get_global_step(graph)
    return create_global_step(graph) if step is None else step


@checked
def global_step(sess: Any, global_step_tensor: Any) -> int:
    """The value of a global step in a session.

    Raises InvalidArgumentError for another session, and for what is no scalar integer.
    """
    if not hasattr(sess, "run"):
        raise refuse("global_step", "sess", "a session", sess)
    _require_step("global_step", "global_step_tensor", global_step_tensor)
    return int(sess.run(global_step_tensor))
