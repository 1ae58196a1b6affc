"""The graph: operations in program order, their names and scopes."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias
from weakref import WeakKeyDictionary

from tensorbow.devices.names import DeviceName
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, TensorBowError
from tensorbow.graph.control_flow import admitted, context_of, through_constants
from tensorbow.graph.defaults import default_graphs
from tensorbow.graph.dot import render_dot
from tensorbow.graph.graph_def import GraphDef, graph_def_of
from tensorbow.graph.operation import Operation, Tensor
from tensorbow.graph.scopes import Scopes
from tensorbow.graph.user_lines import blame, user_line
from tensorbow.kinds import (
    ITEMS,
    TEXT,
    NameOrNames,
    Seed,
    Text,
    checked,
    instance,
    optional,
    read_as,
    refuse,
)
from tensorbow.missing_names import did_you_mean

if TYPE_CHECKING:
    from tensorbow.graph.definition import Attrs, OpDef, Resources

GLOBAL_VARIABLES = "variables"
TRAINABLE_VARIABLES = "trainable_variables"
LOSSES = "losses"


class Graph(Scopes):
    """A dataflow graph (TensorFlow white paper, section 2).

    Operations are only ever added, so the order of creation is a valid order of execution, and the graph may
    grow between runs. Only one thread at a time may build it; running only reads it.

    captures: True for the graph of a function that is being made, which tensors of other graphs may enter.
    """

    captures = False

    def __init__(self) -> None:
        super().__init__()
        self.seed: int | None = None  # set by `set_random_seed`
        self._operations: list[Operation] = []
        self._by_name: dict[str, Operation] = {}
        self._consumers: dict[Tensor, list[Operation]] = {}
        self._collections: dict[str, list[Any]] = {}
        self._finalized = False
        self._lock = threading.RLock()
        self.host_objects: Resources | None = None  # such as queues, where sessions share them with replicas
        self.layer_places: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # of layer objects

    # Building ---------------------------------------------------------------------------------

    def create_op(
        self, definition: OpDef, inputs: Sequence[Tensor], attrs: Attrs, name: str | None = None
    ) -> Operation:
        """Adds an operation, which keeps `attrs`.

        Raises InvalidArgumentError if the inputs do not fit its spec, FailedPreconditionError if the graph is
        finalized.
        """
        with self._lock:
            self._check_growable(f"add a {definition.name}")
            for tensor in inputs:
                if tensor.op.graph is not self:
                    raise InvalidArgumentError(
                        f"{definition.name}: input {tensor.name} is from another graph; "
                        "build all of one computation in one graph"
                    )
            source = user_line()
            controls = through_constants(inputs, self._control_inputs(inputs))
            context = self.context
            if context is not None or controls or any(t.op.context is not None for t in inputs):
                inputs, controls = admitted(context, definition, inputs, controls)
            try:
                specs = definition.infer([t.spec for t in inputs], attrs)
            except TensorBowError as error:
                raise type(error)(blame(definition.name, name or "", error, source)) from None
            full_name = self._full_name(name or definition.name)
            op = Operation(
                self,
                len(self._operations),
                full_name,
                definition,
                tuple(inputs),
                attrs,
                controls,
                "",
                source,
                specs,
            )
            op.context = context_of(context, definition)
            op.gradient_override = self._gradient_overrides.get(definition.name)
            op.colocation = self._colocation
            op.device = op.leading_device or self._device_for(op)
            self._operations.append(op)
            self._by_name[full_name] = op
            for tensor in dict.fromkeys(inputs):
                self._consumers.setdefault(tensor, []).append(op)
            return op

    def close_loop(self, merge: Operation, back: Tensor) -> None:
        """Makes `back`, of a NextIteration, the second input of a loop's Merge, made before it."""
        with self._lock:
            merge.inputs = (merge.inputs[0], back)
            self._consumers.setdefault(back, []).append(merge)

    def add_operations(self, operations: Sequence[Operation]) -> None:
        """Adds operations made elsewhere for this graph, in their order: all or none.

        Device scopes complete their devices. Control dependencies are given to the operations that read none
        of the others, so all of them run later. Raises InvalidArgumentError if a name is taken,
        FailedPreconditionError if the graph is finalized.
        """
        with self._lock:
            self._check_growable(f"add {len(operations)} operations")
            for op in operations:
                if op.name in self._by_name:
                    raise InvalidArgumentError(f"the graph has an operation '{op.name}' already")
            after: set[Operation] = set()  # operations that run after the control dependencies
            for op in operations:
                if not _stands_for_a_value(op):
                    if not any(tensor.op in after for tensor in op.inputs):
                        controls = (*op.control_inputs, *self._control_inputs(op.inputs))
                        op.control_inputs = tuple(dict.fromkeys(controls))
                    after.add(op)
                op.id = len(self._operations)
                outer = self._device_for(op)
                if op.leading_device:
                    op.device = op.leading_device
                elif outer:
                    inner = DeviceName.parse(op.device) if op.device else DeviceName()
                    op.device = str(DeviceName.parse(outer).merge(inner))
                self._names.mark(op.name)
                for key in op.definition.scoped:
                    if op.attrs[key]:
                        self._names.mark(op.attrs[key])
                self._operations.append(op)
                self._by_name[op.name] = op
                for tensor in dict.fromkeys(op.inputs):
                    self._consumers.setdefault(tensor, []).append(op)

    def as_graph_def(self) -> GraphDef:
        """The graph as data, including its collections: for JSON, and for `import_graph_def`."""
        with self._lock:
            return graph_def_of(self._operations, self._collections)

    def _check_growable(self, what: str) -> None:
        if self._finalized:
            raise FailedPreconditionError(f"cannot {what}: the graph is finalized; build before finalize()")

    def _full_name(self, name: str) -> str:
        if name.endswith("/"):  # the name of a scope, which is unique already
            if name[:-1] in self._by_name:
                raise InvalidArgumentError(f"the graph has an operation '{name[:-1]}' already")
            self._names.mark(name[:-1])
            return name[:-1]
        return self.unique_name(name)

    def finalize(self) -> None:
        """Makes the graph read-only."""
        self._finalized = True

    @property
    def finalized(self) -> bool:
        """True once `finalize` was called."""
        return self._finalized

    # Looking up -------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The number of operations."""
        return len(self._operations)

    def get_operations(self) -> list[Operation]:
        """All operations in order of creation."""
        return list(self._operations)

    def known_operation(self, name: str) -> Operation | None:
        """The operation of that name, or None."""
        return self._by_name.get(name)

    @checked
    def get_operation_by_name(self, name: Text) -> Operation:
        """The operation of that name. Raises NotFoundError, suggesting similar names."""
        op = self.known_operation(name)
        if op is None:
            near = did_you_mean(name, self._by_name, 3)
            raise NotFoundError(f"the graph has no operation '{name:.200}'{near}")
        return op

    @checked
    def get_tensor_by_name(self, name: Text) -> Tensor:
        """The tensor `"op:index"`. Raises NotFoundError."""
        op_name, colon, index = name.rpartition(":")
        if not colon or not index.isascii() or not index.isdigit() or len(index) > 9:
            raise InvalidArgumentError(
                f"'{name}' is no tensor name: expected 'operation:index', as in 'add:0'"
            )
        op = self.get_operation_by_name(op_name)
        if int(index) >= len(op.outputs):
            has = f"outputs 0 to {len(op.outputs) - 1}" if op.outputs else "no outputs"
            raise NotFoundError(f"the graph has no tensor '{name}': {op.type} {op_name} has {has}")
        return op.outputs[int(index)]

    def as_graph_element(self, obj: Any) -> Operation | Tensor:
        """An operation or tensor of this graph from the object itself, its name, or a variable.

        Raises InvalidArgumentError for anything else and for elements of other graphs, NotFoundError for an
        unknown name.
        """
        if hasattr(obj, "_as_graph_element") and not isinstance(obj, type):
            obj = obj._as_graph_element()
        if isinstance(obj, str):
            return self.get_tensor_by_name(obj) if ":" in obj else self.get_operation_by_name(obj)
        if not isinstance(obj, (Operation, Tensor)):
            raise refuse("as_graph_element", "obj", "a tensor, an operation, a variable or a name", obj)
        if obj.graph is not self:
            raise InvalidArgumentError(
                f"{obj.name} is not an element of this graph; use a session of the graph it was made in"
            )
        return obj

    def consumers(self, tensor: Tensor) -> list[Operation]:
        """The operations that read a tensor, in order of creation."""
        if not isinstance(tensor, Tensor):
            raise refuse("consumers", "tensor", "a tensor", tensor)
        return list(self._consumers.get(tensor, ()))

    # Collections ------------------------------------------------------------------------------

    def add_to_collection(self, name: str, value: Any) -> None:
        """Appends to a named list, for example `TRAINABLE_VARIABLES`."""
        if type(name) is not str:  # fast path: called for every variable
            name = read_as(TEXT, name, "add_to_collection", "name")
        self._check_growable(f"add to collection {name}")
        self._collections.setdefault(name, []).append(value)

    @checked
    def add_to_collections(self, names: NameOrNames, value: Any) -> None:
        """Appends to several named lists, or to one; a list that is named twice gets the value once."""
        for name in dict.fromkeys([names] if isinstance(names, str) else names):
            self.add_to_collection(name, value)

    def get_all_collection_keys(self) -> list[str]:
        """Names of the collections that have items."""
        return [name for name, items in self._collections.items() if items]

    def get_collection(self, name: str, scope: str | None = None) -> list[Any]:
        """A copy of a named list; empty when there is none.

        scope: a regular expression; only items whose name begins with a match are listed, as in TensorFlow.
        Raises InvalidArgumentError for a scope that is no regular expression.
        """
        if type(name) is not str:
            name = read_as(TEXT, name, "get_collection", "name")
        items = list(self._collections.get(name, ()))
        if scope is None:
            return items
        try:
            begins = re.compile(read_as(TEXT, scope, "get_collection", "scope"))
        except re.error as error:
            raise InvalidArgumentError(
                f"get_collection: expected scope to be a regular expression, got {scope!r:.60}: {error}; "
                "re.escape makes one of a name"
            ) from None
        return [item for item in items if begins.match(getattr(item, "name", None) or "")]

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Context in which this is the default graph of the thread, to which ops are added."""
        with default_graphs.entered(self):
            yield self

    @checked
    def to_dot(self, title: Text = "graph") -> str:
        """The graph as GraphViz DOT text."""
        return render_dot(self.get_operations(), title)


AsGraph: TypeAlias = Annotated[Graph, instance(Graph, expected="a tb.Graph")]


def _stands_for_a_value(op: Operation) -> bool:
    """True for ops that compute nothing: constants, placeholders, variables' storage."""
    return not op.inputs and bool(op.outputs) and not op.definition.kernels


_process_default = Graph()


def get_default_graph() -> Graph:
    """The innermost graph entered by `as_default` in this thread, else the process's default graph."""
    stack: list[Graph] = default_graphs.stack
    return stack[-1] if stack else _process_default


def reset_default_graph() -> None:
    """Makes an empty graph the process's default. Raises FailedPreconditionError inside `as_default`."""
    global _process_default
    if default_graphs.stack:
        raise FailedPreconditionError(
            "reset_default_graph inside `with graph.as_default()`, or with an InteractiveSession(graph=...): "
            "leave it, or close the session, first"
        )
    _process_default = Graph()


def name_scope(name: str | None, default_name: str | None = None, values: Sequence[Any] | None = ()) -> Any:
    """`Graph.name_scope` of the default graph, or of the graph of the tensors in `values`.

    `default_name` is used when `name` is None.
    """
    if default_name is not None and type(default_name) is not str:  # fast path: called for every layer
        default_name = read_as(optional(TEXT), default_name, "name_scope", "default_name")
    if values is not None and type(values) is not tuple:
        values = read_as(ITEMS, values, "name_scope", "values")
    graph = next(
        (v.graph for v in values or () if isinstance(getattr(v, "graph", None), Graph)), get_default_graph()
    )
    return graph.name_scope(default_name if name is None else name)


def control_dependencies(inputs: Iterable[Any] | None) -> Any:
    """`Graph.control_dependencies` of the default graph."""
    return get_default_graph().control_dependencies(inputs)


def device(name: str | Callable[[Operation], str] | None) -> Any:
    """`Graph.device` of the default graph."""
    return get_default_graph().device(name)


def container(name: str) -> Any:
    """`Graph.container` of the default graph."""
    return get_default_graph().container(name)


def colocate_with(op: Any, ignore_existing: bool = False) -> Any:
    """`Graph.colocate_with` of the default graph."""
    return get_default_graph().colocate_with(op, ignore_existing)


@checked
def set_random_seed(seed: Seed) -> None:
    """Sets the graph-level seed: random ops made afterwards draw the same numbers in every process.

    With None they draw different numbers in each process.
    """
    get_default_graph().seed = seed
