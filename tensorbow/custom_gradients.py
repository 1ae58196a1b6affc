"""Gradients that replace those of ops: registered under a name, or given with a function.

Names are TensorFlow's. See also `Graph.gradient_override_map`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from tensorbow.errors import AlreadyExistsError, InvalidArgumentError
from tensorbow.graph import (
    REGISTERED_GRADIENTS,
    TRAINABLE_VARIABLES,
    GradientBlock,
    Operation,
    Tensor,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.kinds import FUNCTION, Function, Text, checked, refuse
from tensorbow.nest import flatten, pack
from tensorbow.ops.control import CustomGradient, identity
from tensorbow.ops.definition import OPS
from tensorbow.ops.state import ReadVariable


class RegisterGradient:
    """Decorator that registers a gradient under a name, for `Graph.gradient_override_map`.

    The function is called as `function(op, *gradients)`, with a tensor per output of the op (zeros where
    nothing flows), and returns a tensor or None per input.
    """

    @checked
    def __init__(self, op_type: Text):
        """op_type: the name. Raises AlreadyExistsError if it is taken, when the function is registered, and
        InvalidArgumentError for the name of an op: its gradient belongs to its definition.
        """
        if op_type in OPS:
            raise InvalidArgumentError(
                f"RegisterGradient: expected a name of its own, got the op {op_type}, whose gradient is in "
                "its definition; choose another name, and put it in place by Graph.gradient_override_map"
            )
        self._name = op_type

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Registers a function, and returns it."""
        function = FUNCTION.read(function)
        if self._name in REGISTERED_GRADIENTS:
            raise AlreadyExistsError(
                f"RegisterGradient: {self._name!r:.60} is registered already; choose another name"
            )
        REGISTERED_GRADIENTS[self._name] = function
        return function


@checked
def NotDifferentiable(op_type: Text) -> None:  # noqa: N802 - TensorFlow's name
    """Registers under a name that there is no gradient, for `Graph.gradient_override_map`.

    A definition of an op states the same by `gradient=tb.NOT_DIFFERENTIABLE`. Raises AlreadyExistsError if
    the name is taken.
    """
    if op_type in REGISTERED_GRADIENTS:
        raise AlreadyExistsError(
            f"NotDifferentiable: {op_type!r:.60} is registered already; choose another name"
        )
    REGISTERED_GRADIENTS[op_type] = _nothing


def _nothing(op: Operation, *gradients: Tensor) -> list[None]:
    return [None] * len(op.inputs)


NoGradient = NotDifferentiable  # TensorFlow's older name


@checked
def custom_gradient(f: Function) -> Callable[..., Any]:
    """Decorator for a function of tensors that gives its own gradient, as in TensorFlow.

    `f(*tensors)` returns `(ys, gradient)`: a tensor or a nest of them, and a function called with a gradient
    for each of `ys` that returns one for each argument (a tensor or None, alone or in a list). If `f` reads
    trainable variables, that function takes `variables=` and returns a pair: the gradients of the arguments,
    and a list with those of the variables.

    Raises InvalidArgumentError for another result, for a wrong number of gradients, and for trainable
    variables without `variables=`.
    """

    @wraps(f)
    def decorated(*args: Any) -> Any:
        graph = graph_of(args)
        with graph.as_default(), name_scope(None, getattr(f, "__name__", "custom_gradient").strip("<>_")):
            xs = [identity(as_tensor(arg)) for arg in args]
            result = f(*xs)
            if not isinstance(result, tuple) or len(result) != 2 or not callable(result[1]):
                raise refuse("custom_gradient", "f", "a function that returns (ys, gradient)", result)
            ys = [as_tensor(y) for y in flatten(result[0])]
            reads = _variables_read(ys, xs)
            rule = _rule(result[1], len(xs), reads)
            sources = (*xs, *(tensor for tensor, _ in reads))
            outputs = [CustomGradient(y, *sources) for y in ys]
            block = GradientBlock(tuple(y.op for y in outputs), sources, rule)
            for y in outputs:
                y.op.gradient_override = block
            return pack(result[0], iter(outputs))

    return decorated


def _variables_read(ys: Sequence[Tensor], xs: Sequence[Tensor]) -> list[tuple[Tensor, Any]]:
    """Reads of trainable variables that ys depend on, not through xs, each with its variable."""
    if not ys:
        return []
    trainable = {v.op: v for v in ys[0].graph.get_collection(TRAINABLE_VARIABLES)}
    seen: set[Operation] = {x.op for x in xs}
    pending = [y.op for y in ys]
    reads = []
    while pending:
        op = pending.pop()
        if op in seen:
            continue
        seen.add(op)
        pending += [tensor.op for tensor in op.inputs]
        if op.definition is ReadVariable and op.inputs[0].op in trainable:
            reads.append((op.outputs[0], trainable[op.inputs[0].op]))
    return sorted(reads, key=lambda read: read[0].op.id)


def _rule(
    gradient: Callable[..., Any], count: int, reads: Sequence[tuple[Tensor, Any]]
) -> Callable[..., list[Any]]:
    """The block's rule: gradients of its outputs -> those of the arguments, and of the variables read."""
    variables = [variable for _, variable in reads]
    if variables:
        try:
            parameters = inspect.signature(gradient).parameters.values()
        except ValueError:
            parameters = ()  # type: ignore[assignment]
        if not any(p.name == "variables" or p.kind is p.VAR_KEYWORD for p in parameters):
            names = ", ".join(variable.op.name for variable in variables)
            raise InvalidArgumentError(
                f"custom_gradient: the function reads trainable variables ({names:.200}): its gradient must "
                "take variables=, and return (gradients of the arguments, gradients of the variables)"
            )

    def rule(*gradients: Tensor) -> list[Any]:
        if not variables:
            return _gradients_of(gradient(*gradients), count, "arguments")
        result = gradient(*gradients, variables=variables)
        if not isinstance(result, tuple) or len(result) != 2:
            raise refuse("custom_gradient", "the gradient", "a pair, for arguments and for variables", result)
        by_variable = _gradients_of(result[1], len(variables), "variables")
        return _gradients_of(result[0], count, "arguments") + by_variable

    return rule


def _gradients_of(result: Any, count: int, what: str) -> list[Any]:
    items = list(result) if isinstance(result, (list, tuple)) else [result]
    if len(items) != count and not (count == 0 and items == [None]):
        raise InvalidArgumentError(
            f"custom_gradient: expected the gradient to give {count} tensors or None for the {what}, "
            f"got {len(items)}"
        )
    return items[:count]
