"""Functions as reusable subgraphs, under TensorFlow's names: templates, which share variables, and Defun."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tensorbow.custom_gradients import custom_gradient
from tensorbow.errors import InternalError, InvalidArgumentError
from tensorbow.function_calls import Call, FunctionGraph
from tensorbow.graph import Graph, GraphDef, Tensor, as_tensor, get_default_graph, graph_of
from tensorbow.graph.defaults import default_graphs
from tensorbow.graph.function import GraphFunction
from tensorbow.kinds import DTYPE, Flag, Function, Name, RefusedError, Text, checked, refuse
from tensorbow.nest import flatten, pack
from tensorbow.ops.control import placeholder
from tensorbow.ops.importing import import_graph_def
from tensorbow.ops.state import VariableReference
from tensorbow.variable_scope import AUTO_REUSE, VariableScope, variable_scope

SEEDS_OF_CALLS = 1 << 63  # seeds of operations are smaller


class Template:
    """A function whose variables of `tb.get_variable` are made by the first call and shared by all others."""

    def __init__(
        self, name: str, function: Callable[..., Any], arguments: dict[str, Any], unique: str | None
    ):
        self._function, self._arguments = function, arguments
        self._name, self._unique = name, unique
        self._scope: VariableScope | None = None
        self._graph: Graph | None = None
        self._called = False

    @property
    def variable_scope(self) -> VariableScope | None:
        """The scope of the variables; None before the first call."""
        return self._scope

    def begin(self) -> None:
        """Takes the current variable scope and a name in it; ignores repeats."""
        if self._scope is None:
            self._graph = get_default_graph()
            with variable_scope(self._unique, self._name) as scope:
                self._scope = scope

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function in its scope.

        Raises InvalidArgumentError in another graph than that of the first call, and for variables that a
        later call makes.
        """
        self.begin()
        if get_default_graph() is not self._graph:
            raise InvalidArgumentError(
                f"template {self._name}: its variables are of another graph; make a template for each graph"
            )
        with variable_scope(self._scope, reuse=True if self._called else AUTO_REUSE):
            result = self._function(*args, **{**self._arguments, **kwargs})
        self._called = True
        return result


@checked
def make_template(
    name_: Text,
    func_: Function,
    create_scope_now_: Flag = False,
    unique_name_: Name = None,
    **kwargs: Any,
) -> Template:
    """A function that calls `func_` in a variable scope of its own: all calls share its variables.

    name_: of the scope, made unique. create_scope_now_: the scope is made here, not in the first call.
    unique_name_: the scope's name, exactly. kwargs: arguments of each call.
    """
    template = Template(name_, func_, kwargs, unique_name_)
    if create_scope_now_:
        template.begin()
    return template


class Defun:
    """Decorator that makes a function of the graph: traced once, and one operation in each call.

    `@tb.Defun(tb.float32, tb.int32)` decorates a function of two tensors. It may read tensors and variables
    of one other graph, as they are when it is called there, but writes no variable and makes none.
    `python_grad_func(op_inputs, *gradients)` replaces its derivative; it returns a gradient for each input.

    The compiler puts the function's operations in the place of a call. A function with random numbers,
    control flow or effects is added to the graph by each call instead.
    """

    @checked
    def __init__(self, *input_types: Any, func_name: Name = None, python_grad_func: Any = None):
        """input_types: dtypes of the arguments. func_name: the name of calls; by default the function's."""
        try:
            self._types = [DTYPE.read(each) for each in input_types]
        except RefusedError:
            raise refuse("Defun", "input_types", "dtypes, as tb.float32", input_types) from None
        self._name = func_name
        if python_grad_func is not None and not callable(python_grad_func):
            raise refuse("Defun", "python_grad_func", "a function or None", python_grad_func)
        self._gradient = python_grad_func

    def __call__(self, function: Callable[..., Any]) -> DefinedFunction:
        """The defined function."""
        name = self._name or getattr(function, "__name__", "").strip("<>_") or "function"
        return DefinedFunction(function, self._types, name, self._gradient)


class DefinedFunction:
    """A function of graphs (`definition`, a GraphDef), which a call of it applies to tensors."""

    def __init__(
        self,
        function: Callable[..., Any],
        types: Sequence[Any],
        name: str,
        gradient: Callable[..., Any] | None,
    ):
        self.name = name
        self._types = types
        self._gradient = gradient
        graph = FunctionGraph(f"Defun {name}")
        default_graphs.making += 1
        try:
            with graph.as_default():
                arguments = [placeholder(dtype, name=f"arg{n}") for n, dtype in enumerate(types)]
                self._result = function(*arguments)
                results = [graph.inside(as_tensor(each)) for each in flatten(self._result)]
        finally:
            default_graphs.making -= 1
        if any(op.definition is VariableReference for op in graph.get_operations()):
            raise InvalidArgumentError(
                f"Defun {name}: expected a function that makes no variable, got one; make it outside, and "
                "read it in the function, or pass its value"
            )
        self._captured = tuple(graph.captured)
        self._calls = 0  # that added the operations
        inputs = (*arguments, *graph.captured.values())
        rule = None if gradient is None else self._rule
        self.function = GraphFunction(name, graph, inputs, tuple(results), rule)
        self._inputs = [each.name for each in inputs]
        self._results = [each.name for each in results]
        self.definition: GraphDef = graph.as_graph_def()
        self.definition.node = [n for n in self.definition.node if f"{n.name}:0" not in self._inputs]

    def __call__(self, *args: Any, name: str | None = None) -> Any:
        """Applies the function in the graph of the arguments; returns the results in the function's nest.

        Raises InvalidArgumentError for another number of arguments, or another dtype, and in another graph
        than that whose tensors the function reads.
        """
        if len(args) != len(self._types):
            raise InvalidArgumentError(f"{self.name}: expected {len(self._types)} arguments, got {len(args)}")
        graph = graph_of((*args, *self._captured))
        for tensor in self._captured:
            if tensor.graph is not graph and not graph.captures:
                raise InvalidArgumentError(
                    f"{self.name}: it reads {tensor.name}, of another graph than its arguments; pass its "
                    "value"
                )
        with graph.as_default():
            tensors = [as_tensor(each, dtype) for each, dtype in zip(args, self._types, strict=True)]
            if self.function.is_plain:
                made = Call(*tensors, *self._captured, f=self.function, name=name or self.name)
                results = made if isinstance(made, tuple) else (made,) if self._results else ()
                return pack(self._result, iter(results))
            if self._gradient is None:
                return self._added((*tensors, *self._captured), name)

            @custom_gradient
            def with_gradient(*inputs: Tensor) -> Any:
                return self._added(inputs, name), lambda *grads: self._rule(inputs, *grads)

            return with_gradient(*tensors, *self._captured)

    def _next_definition(self) -> GraphDef:
        """The function's operations for another call, whose random numbers are its own."""
        number, self._calls = self._calls, self._calls + 1
        nodes = [
            node
            if not number or "seed2" not in node.attr
            else replace(node, attr={**node.attr, "seed2": (node.attr["seed2"] + number) % SEEDS_OF_CALLS})
            for node in self.definition.node
        ]
        return replace(self.definition, node=nodes)

    def _rule(self, inputs: Sequence[Tensor], *grads: Any) -> list[Any]:
        """The given gradients of the arguments, and none for what is read from outside."""
        if self._gradient is None:
            raise InternalError(f"{self.name} has no gradient of its own")
        found = self._gradient(list(inputs[: len(self._types)]), *grads)
        given = list(found) if isinstance(found, (list, tuple)) else [found]
        return [*given, *[None] * len(self._captured)]

    def _added(self, tensors: Sequence[Tensor], name: str | None) -> Any:
        """The results, by the function's operations in the graph."""
        used = {item for node in self.definition.node for item in node.input}
        given = dict(zip(self._inputs, tensors, strict=True))
        mapped = {key: tensor for key, tensor in given.items() if key in used}
        made = [result for result in self._results if result not in given]
        added = import_graph_def(self._next_definition(), mapped, made, name=name or self.name) or []
        found = {**given, **dict(zip(made, added, strict=True))}
        return pack(self._result, iter([found[result] for result in self._results]))
