"""`import_graph_def`: adds a GraphDef's operations to a graph; op definitions are looked up by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

from tensorbow.devices.names import DeviceName
from tensorbow.errors import InvalidArgumentError, NotFoundError, TensorBowError
from tensorbow.graph import (
    Graph,
    GraphDef,
    GraphKeys,
    NodeDef,
    OpDef,
    Operation,
    Tensor,
    as_tensor,
    get_default_graph,
)
from tensorbow.graph.build import check_arity, complete_attrs
from tensorbow.graph.collection_items import LaterItem, decode_item
from tensorbow.graph.control_flow import (
    ControlFlowContext,
    Finder,
    begin_contexts,
    context_of,
    entered_from,
    require_context,
    resolved,
    runs_by_itself,
    through_constants,
)
from tensorbow.graph.function import GraphFunction
from tensorbow.graph.function_def import CALL, FunctionDef, expand_calls
from tensorbow.graph.graph_def import GRADIENT, MAXIMUM_NODES, operation_name
from tensorbow.graph.names import check_op_name
from tensorbow.graph.program_order import program_order
from tensorbow.graph.user_lines import RecordedLine
from tensorbow.kinds import TEXT, Kind, Name, RefusedError, checked, read_as
from tensorbow.missing_names import did_you_mean
from tensorbow.ops.argument_kinds import Texts
from tensorbow.ops.attribute_kinds import check_attributes
from tensorbow.ops.control import STEP_SCALARS, StepScalar, find_step_scalar
from tensorbow.ops.control_flow import common_shape
from tensorbow.ops.definition import OPS
from tensorbow.specs import TensorSpec, compatible

__all__ = ["import_graph_def"]


def _read_graph_def(value: Any) -> GraphDef:
    if isinstance(value, GraphDef):
        return value
    if isinstance(value, (str, bytes)):
        return GraphDef.from_file_content(value.encode() if isinstance(value, str) else value)
    raise RefusedError("use graph.as_graph_def(), or the content of a file of tb.train.write_graph")


def _read_by_name(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return value
    raise RefusedError


Given: TypeAlias = Annotated[GraphDef, Kind("a GraphDef", _read_graph_def)]
ByName: TypeAlias = Annotated[Mapping[str, Any], Kind("a dictionary by names, as {'x:0': x}", _read_by_name)]


@checked
def import_graph_def(
    graph_def: Given,
    input_map: ByName | None = None,
    return_elements: Texts | None = None,
    name: Name = None,
) -> list[Operation | Tensor] | None:
    """Adds the operations of a GraphDef to the default graph, all or none, under the scope `name`.

    graph_def: a GraphDef, or its JSON text, or its protocol buffer (bytes).
    input_map: replacements for tensors of the GraphDef, by name: tensors or values that convert to one.
    return_elements: names in the GraphDef (`"op"` or `"op:0"`) of the elements to return.
    name: the scope; by default "import"; "" for none.

    Variables, step scalars and other items of collections are restored into the collections. Users'
    ops are found by name: define them before. Nodes may be in any order without a cycle. The
    current device scope applies to nodes without a device. Control dependencies are given to the nodes that
    read no other node of the GraphDef, and so affect all; ops that compute nothing (constants, variables,
    placeholders) get none.

    Raises NotFoundError for an unknown op or element, InvalidArgumentError for any other inconsistency
    (a cycle, a missing input, another dtype or shape than declared, a name taken, more
    than `MAXIMUM_NODES` nodes); the message names the node, and nothing is added then.
    """
    graph_def.check()
    graph = get_default_graph()
    mapped = _mapped(graph_def, input_map or {})
    with graph.name_scope("import" if name is None else name) as prefix:
        loader = _Import(graph, graph_def, prefix, mapped)
        returned = [loader.element(item) for item in return_elements or ()]
        loader.commit()
    return None if return_elements is None else returned


def _mapped(graph_def: GraphDef, input_map: Mapping[str, Any]) -> dict[str, Any]:
    """Replacements by every spelling of the input's name."""
    used = {item for node in graph_def.node for item in node.input}
    mapped: dict[str, Any] = {}
    unused = []
    for key, value in input_map.items():
        spellings = {key, f"{key}:0"} if key == operation_name(key) else {key}
        if key.endswith(":0"):
            spellings.add(key[:-2])
        if not spellings & used:
            unused.append(key)
        mapped.update(dict.fromkeys(spellings, value))
    if unused:
        raise InvalidArgumentError(
            f"Attempted to map inputs that were not found in graph_def: [{', '.join(unused)[:500]}]"
        )
    return mapped


class _Functions:
    """The functions of a GraphDef's library, made when they are called."""

    def __init__(self, library: Sequence[FunctionDef]):
        self.by_name: dict[str, FunctionDef] = {}
        for function in library:
            if self.by_name.setdefault(function.name, function) is not function:
                raise InvalidArgumentError(f"GraphDef: two functions are named {function.name[:80]!r}")
        self._made: dict[str, GraphFunction] = {}
        self._making: set[str] = set()

    def get(self, name: str) -> GraphFunction:
        """The function of a name. Raises InvalidArgumentError, NotFoundError."""
        if name not in self.by_name:
            raise NotFoundError(f"GraphDef: there is no function {name[:80]!r}")
        if name in self._making:
            raise InvalidArgumentError(f"GraphDef: function {name[:80]!r} calls itself; write a loop")
        if name not in self._made:
            self._making.add(name)
            try:
                self._made[name] = self._make(self.by_name[name])
            except TensorBowError as error:
                text = " ".join(str(error).split()).removeprefix("GraphDef: ")[:500]
                raise type(error)(f"GraphDef: function {name[:80]!r}: {text}") from None
            finally:
                self._making.discard(name)
        return self._made[name]

    def _make(self, function: FunctionDef) -> GraphFunction:
        with Graph().as_default() as graph:
            loader = _Import(graph, GraphDef(function.node), "", {}, self)
            inputs = [loader.element(f"{name}:0") for name in function.input]
            outputs = [loader.element(name) for name in function.output]
            loader.commit()
        tensors = [element for element in (*inputs, *outputs) if isinstance(element, Tensor)]
        if len(tensors) < len(inputs) + len(outputs):
            raise InvalidArgumentError("an output is no tensor, expected 'operation:index'")
        arguments, results = tensors[: len(inputs)], tensors[len(inputs) :]
        for each in arguments:
            if each.op.type != "Placeholder":
                raise InvalidArgumentError(f"input {each.name[:80]!r} is no Placeholder")
        made = GraphFunction(function.name, graph, tuple(arguments), tuple(results))
        if made.size > MAXIMUM_NODES:
            raise InvalidArgumentError(f"it stands for more than {MAXIMUM_NODES:,} operations")
        return made


class _Import:
    """Operations made for a graph, added only if all of them and the collections are valid."""

    def __init__(
        self,
        graph: Graph,
        graph_def: GraphDef,
        prefix: str,
        mapped: Mapping[str, Any],
        functions: _Functions | None = None,
    ):
        self._functions = _Functions(graph_def.library) if functions is None else functions
        nodes, self._became = expand_calls(
            graph_def.node, self._functions.by_name, lambda name: self._functions.get(name).is_plain, _scoped,
            MAXIMUM_NODES,
        )  # fmt: skip
        if self._became:
            graph_def = replace(graph_def, node=nodes)
        self._graph = graph
        self._prefix = prefix
        self._constants: list[Operation] = []  # from values in the input_map
        self._names = {f"{prefix}{node.name}" for node in graph_def.node}
        known: dict[int, Tensor] = {}  # by id of the value: one tensor for all spellings
        around = graph.context
        self._mapped = {item: self._tensor(value, known) for item, value in mapped.items()}
        if around is not None or any(t.op.context is not None for t in self._mapped.values()):
            self._mapped = {item: resolved(around, tensor) for item, tensor in self._mapped.items()}
        self._operations: dict[str, Operation] = {}  # by name in the GraphDef
        self._back_edges: list[tuple[Operation, NodeDef, int]] = []  # of loops: Merges, and their index
        self._contexts = begin_contexts(graph, prefix, graph_def.context, graph.context)
        self._taken = {op.name for op in graph.get_operations()}
        self._waits: dict[Operation, tuple[Operation, ...]] = {}  # what constants would wait for
        nodes = graph_def.node
        for index in program_order(graph_def, mapped):
            node = nodes[index]
            try:
                self._operations[node.name] = self._operation(index, node)
            except TensorBowError as error:
                raise type(error)(_blame(index, node, error)) from None
            except Exception as error:  # a rule may raise anything for attributes of unknown types
                raise InvalidArgumentError(_blame(index, node, error)) from error
        for op, node, index in self._back_edges:
            self._close_loop(op, node, index)
        self._complete_contexts(graph_def)
        for index, node in enumerate(nodes):
            try:
                require_context(self._operations[node.name])
            except InvalidArgumentError as error:
                raise InvalidArgumentError(_blame(index, node, error)) from None
        if around is not None and around.pivot is not None:
            for op in self._operations.values():
                if op.context is around and runs_by_itself(around, op):
                    op.control_inputs = (*op.control_inputs, around.pivot)
        self._scalars = self._step_scalars()
        self._items = self._collected(graph_def)

    def _operation(self, index: int, node: NodeDef) -> Operation:
        check_op_name(node.name)
        full_name = f"{self._prefix}{node.name}"
        if full_name in self._taken:
            raise InvalidArgumentError(
                f"the graph has an operation '{full_name}' already; import under a name"
            )
        definition = _definition(node.op)
        items = [item for item in node.input if not item.startswith("^")]
        back = definition.flow == "merge" and len(items) == 2 and self._is_later(items[1])
        inputs = [self._input(item) for item in (items[:1] if back else items)]
        controls = dict.fromkeys(self._control(item) for item in node.input if item.startswith("^"))
        check_arity(definition, len(inputs))
        gradient = node.attr.get(GRADIENT)
        attrs = complete_attrs(definition, {k: v for k, v in node.attr.items() if k != GRADIENT})
        if node.op == CALL and isinstance(attrs["f"], str):
            attrs["f"] = self._functions.get(attrs["f"])
        check_attributes(definition, attrs)
        for key in definition.scoped:
            if attrs[key]:
                attrs[key] = f"{self._prefix}{attrs[key]}"
        specs = definition.infer([t.spec for t in inputs], attrs)
        if node.output:
            specs = _declared(node.output, specs)
        device = str(DeviceName.parse(node.device)) if node.device else ""
        source = RecordedLine("", 0, "", node.source or "a GraphDef")
        op = Operation(
            self._graph,
            0,
            full_name,
            definition,
            tuple(inputs),
            attrs,
            tuple(controls),
            device,
            source,
            specs,
        )
        if gradient is not None:
            op.gradient_override = read_as(TEXT, gradient, definition.name, GRADIENT)
        op.colocation = tuple(self._operations[other] for other in node.colocation)
        op.context = self._context(node, definition)
        self._pass_controls_on(op)
        if back:
            self._back_edges.append((op, node, index))
        return op

    def _pass_controls_on(self, op: Operation) -> None:
        """Gives an op what its constants wait for. A constant is in no loop or branch, and waits for none."""
        own, waited = op.control_inputs, through_constants(op.inputs, op.control_inputs, self._waits)
        if op.definition.name == "Const":
            self._waits[op] = waited
            op.control_inputs = tuple(other for other in own if other.context is None)
        else:
            op.control_inputs = tuple(o for o in waited if o in own or o.context is op.context)

    def _is_later(self, item: str) -> bool:
        return item not in self._mapped and operation_name(item) not in self._operations

    def _context(self, node: NodeDef, definition: OpDef) -> ControlFlowContext | None:
        if node.context and node.context not in self._contexts:
            raise InvalidArgumentError(f"there is no context {node.context[:80]!r}")
        return context_of(self._contexts.get(node.context, self._graph.context), definition)

    def _close_loop(self, op: Operation, node: NodeDef, index: int) -> None:
        """Gives a loop's Merge what comes back to it. Raises InvalidArgumentError if that does not fit."""
        back = self._input(next(item for item in node.input[1:] if not item.startswith("^")))
        (merged,) = op.outputs
        found, shape = back.spec.shape, merged.spec.shape
        if back.dtype != merged.dtype or (shape is not None and common_shape([shape, found]) != shape):
            error = f"a loop variable is {merged.spec}, and what comes back is {back.spec}"
            raise InvalidArgumentError(_blame(index, node, error))
        op.inputs = (op.inputs[0], back)

    def _complete_contexts(self, graph_def: GraphDef) -> None:
        finder = Finder(self._input, self._control, self._context_named)
        for definition in graph_def.context:
            try:
                self._contexts[definition.name].complete(definition, finder)
            except TensorBowError as error:
                reason = " ".join(str(error).split())[:500]
                raise type(error)(f"GraphDef: context {definition.name[:80]!r}: {reason}") from None
        for op in self._operations.values():
            entered = entered_from(op.outputs[0]) if op.outputs and op.context is not None else None
            if entered is not None and op.context is not None:
                op.context.entered.setdefault(entered, op.context.inside_of(op))

    def _context_named(self, name: str) -> ControlFlowContext:
        if name not in self._contexts:
            raise InvalidArgumentError(f"there is no context {name[:80]!r}")
        return self._contexts[name]

    def _tensor(self, value: Any, known: dict[int, Tensor]) -> Tensor:
        """The tensor of a value in the input_map; constants are added with the other operations."""
        if id(value) not in known:
            if hasattr(value, "graph"):
                known[id(value)] = as_tensor(value)
            else:
                with Graph().as_default():
                    made = as_tensor(value).op
                name = self._graph.unique_name("Const")
                while name in self._names:
                    name = self._graph.unique_name("Const")
                specs = tuple(output.spec for output in made.outputs)
                constant = Operation(
                    self._graph, 0, name, made.definition, (), made.attrs, (), "", made.source, specs
                )
                self._constants.append(constant)
                known[id(value)] = constant.outputs[0]
        return known[id(value)]

    def _input(self, item: str) -> Tensor:
        mapped = self._mapped.get(item)
        if mapped is not None:
            if mapped.graph is not self._graph:
                raise InvalidArgumentError(f"input_map: {mapped.name} for {item!r} is from another graph")
            return mapped
        element = self.element(item if item != operation_name(item) else f"{item}:0")
        assert isinstance(element, Tensor)
        return element

    def _control(self, item: str) -> Operation:
        element = self.element(operation_name(item))
        assert isinstance(element, Operation)
        return element

    def element(self, name: str) -> Operation | Tensor:
        """The imported element for a name in the GraphDef. Raises NotFoundError."""
        if not isinstance(name, str):
            raise InvalidArgumentError(f"expected the name of an element, got {type(name).__name__}")
        name = self._became.get(name, name)
        op_name = operation_name(name)
        op = self._operations.get(op_name)
        if op is None or name.startswith("^"):
            raise NotFoundError(f"GraphDef: there is no node for {name[:80]!r}")
        if op_name == name:
            return op
        index = int(name[len(op_name) + 1 :])
        if index >= len(op.outputs):
            raise NotFoundError(
                f"GraphDef: {op.type} {op_name!r} has no output {index}, only {len(op.outputs)}"
            )
        return op.outputs[index]

    def _step_scalars(self) -> list[Tensor]:
        """The first step scalar of each key that the graph lacks."""
        known: dict[str, Tensor] = {}
        new: list[Tensor] = []
        for op in self._operations.values():
            if op.definition is not StepScalar:
                continue
            key, (mine,) = op.attrs["key"], op.outputs
            other = known[key] if key in known else find_step_scalar(key)
            if other is None:
                new.append(mine)
            elif other.dtype != mine.dtype or other.op.attrs["default"] != op.attrs["default"]:
                raise InvalidArgumentError(
                    f"GraphDef: step scalar {op.name}: {key!r} is {other.dtype.name} with default "
                    f"{other.op.attrs['default']:g} already, here it is {mine.dtype.name} with "
                    f"{op.attrs['default']:g}"
                )
            known.setdefault(key, mine if other is None else other)
        return new

    def _collected(self, graph_def: GraphDef) -> list[tuple[str, Any]]:
        """(collection, item) pairs; an entry in two collections is one object."""
        made: dict[str, Any] = {}
        items: list[tuple[str, Any]] = []
        for name, entries in graph_def.collection.items():
            if name == STEP_SCALARS:
                continue
            for index, entry in enumerate(entries):
                try:
                    _check_item(name, entry)
                    key = repr(entry)
                    if key not in made:
                        made[key] = decode_item(entry, self.element)
                except (TensorBowError, RecursionError) as error:
                    reason = " ".join(str(error).split())[:500]
                    raise InvalidArgumentError(
                        f"GraphDef: collection {name[:80]!r}, item {index}: {reason}"
                    ) from None
                items.append((name, made[key]))
        return items

    def commit(self) -> None:
        """Adds everything. Raises the errors of `Graph.add_operations`."""
        self._graph.add_operations([*self._constants, *self._operations.values()])
        for context in self._contexts.values():
            context.settle()
        for tensor in self._scalars:
            self._graph.add_to_collection(STEP_SCALARS, tensor)
        later = [(name, item) for name, item in self._items if isinstance(item, LaterItem)]
        for name, item in self._items:
            if not isinstance(item, LaterItem):
                self._graph.add_to_collection(name, item)
        for name, item in later:
            self._graph.add_to_collection(name, item.item)


def _check_item(collection: str, entry: Any) -> None:
    """Raises InvalidArgumentError for an item that is invalid in a collection of the library."""
    kinds = _ITEMS.get(collection)
    if kinds is not None and not (isinstance(entry, dict) and len(entry) == 1 and set(entry) <= kinds):
        raise InvalidArgumentError(f"expected a {' or '.join(sorted(kinds))}, got {entry!r:.80}")


_ITEMS = {
    GraphKeys.GLOBAL_VARIABLES: {"variable"},
    GraphKeys.TRAINABLE_VARIABLES: {"variable"},
    GraphKeys.LOCAL_VARIABLES: {"variable"},
    GraphKeys.METRIC_VARIABLES: {"variable"},
    GraphKeys.UPDATE_OPS: {"tensor", "operation"},
    GraphKeys.LOSSES: {"tensor"},
}


def _scoped(op: str) -> Sequence[str]:
    return OPS[op].scoped if op in OPS else ()


def _definition(op: str) -> OpDef:
    definition = OPS.get(op)
    if definition is None:
        raise NotFoundError(
            f"Op type not registered {op[:80]!r}; define it (tb.define_op) before importing"
            f"{did_you_mean(op[:80], OPS, 3)}"
        )
    return definition


def _declared(declared: Sequence[TensorSpec], inferred: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Inferred specs, refined by the declared static shapes as by `set_shape`."""
    if len(declared) != len(inferred):
        raise InvalidArgumentError(f"it declares {len(declared)} outputs, the op has {len(inferred)}")
    specs = []
    for index, (said, found) in enumerate(zip(declared, inferred, strict=True)):
        if said.dtype != found.dtype or not compatible(said.shape, found.shape):
            raise InvalidArgumentError(f"output {index} is declared as {said}, but it is {found}")
        dims = found.shape
        if dims is None:
            dims = said.shape
        elif said.shape is not None:
            dims = tuple(b if a is None else a for a, b in zip(dims, said.shape, strict=True))
        specs.append(TensorSpec(dims, found.dtype, found.value))
    return tuple(specs)


def _blame(index: int, node: NodeDef, error: Exception | str) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    made = f" (made at {node.source})" if node.source else ""
    return f"GraphDef: node {index} {node.name[:80]!r} ({node.op[:40]}): {text[:500]}{made}"
