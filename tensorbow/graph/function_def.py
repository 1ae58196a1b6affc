"""Functions of a GraphDef: its `library`, which nodes `Call` name by their attribute `f`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tensorbow.errors import InvalidArgumentError

CALL = "Call"  # the op that calls a function, which its attribute `f` names


@dataclass(eq=False)
class FunctionDef:
    """A function as data: `input` has the names of its placeholders, `output` of tensors, in `node`."""

    name: str
    input: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    node: list[Any] = field(default_factory=list)  # NodeDefs

    def check(self) -> None:
        """Raises InvalidArgumentError for fields of another type than declared."""
        lists = all(
            isinstance(value, list) and all(isinstance(item, str) for item in value)
            for value in (self.input, self.output)
        )
        if not isinstance(self.name, str) or not self.name or not lists or not isinstance(self.node, list):
            raise InvalidArgumentError(
                f"GraphDef: function {str(self.name)[:80]!r}: expected a name, and lists input, output and "
                "node"
            )

    def calls(self) -> Iterable[str]:
        """The names of the functions that it calls."""
        return called_by(self.node)


def called_by(nodes: Iterable[Any]) -> list[str]:
    """The names of the functions that nodes call."""
    return [node.attr["f"] for node in nodes if node.op == CALL and isinstance(node.attr.get("f"), str)]


def used_functions(library: Iterable[FunctionDef], nodes: Iterable[Any]) -> list[FunctionDef]:
    """The functions of a library that nodes call, and those that these call."""
    functions = list(library)
    by_name = {function.name: function for function in functions}
    wanted: set[str] = set()
    pending = called_by(nodes)
    while pending:
        name = pending.pop()
        if name in by_name and name not in wanted:
            wanted.add(name)
            pending += by_name[name].calls()
    return [function for function in functions if function.name in wanted]


def library_of(
    operations: Iterable[Any], node_of: Callable[[Any], Any]
) -> tuple[list[FunctionDef], dict[Any, str]]:
    """The functions that operations call, each after those that it calls, and their names in the library."""
    names: dict[Any, str] = {}
    library: dict[str, FunctionDef] = {}

    def visit(function: Any) -> None:
        if function in names:
            return
        for op in function.ops:
            if op.definition.name == CALL:
                visit(op.attrs["f"])
        name, number = function.name, 0
        while name in library:
            number += 1
            name = f"{function.name}_{number}"
        names[function] = name
        nodes = [node_of(op) for op in (*(tensor.op for tensor in function.inputs), *function.ops)]
        for node in nodes:
            if node.op == CALL:
                node.attr["f"] = names[node.attr["f"]]
        library[name] = FunctionDef(
            name,
            [tensor.op.name for tensor in function.inputs],
            [tensor.name for tensor in function.outputs],
            nodes,
        )

    for op in operations:
        if op.definition.name == CALL:
            visit(op.attrs["f"])
    return list(library.values()), names


def expand_calls(
    nodes: Sequence[Any],
    library: Mapping[str, FunctionDef],
    stays: Callable[[str], bool],
    scoped: Callable[[str], Sequence[str]],
    most: int,
) -> tuple[list[Any], dict[str, str]]:
    """Nodes with the nodes of functions in the place of calls, and what the calls' outputs have become.

    stays: True for a function whose calls are kept. scoped: attributes of an op that are names. most: nodes.
    """
    if not any(node.op == CALL and not stays(str(node.attr.get("f"))) for node in nodes):
        return list(nodes), {}
    found: list[Any] = []
    became: dict[str, str] = {}
    ends: dict[str, list[str]] = {}  # by call, what comes after it waits for
    pending = list(reversed(nodes))
    while pending:
        node = pending.pop()
        function = library.get(str(node.attr.get("f"))) if node.op == CALL else None
        if function is None or stays(function.name):
            found.append(node)
            continue
        items = [item for item in node.input if not item.startswith("^")]
        if len(items) != len(function.input):
            raise InvalidArgumentError(
                f"GraphDef: node {node.name[:80]!r}: function {function.name[:80]!r} takes "
                f"{len(function.input)} inputs, got {len(items)}"
            )
        given = dict(zip((f"{name}:0" for name in function.input), items, strict=True))
        inner = [_inlined(each, node, function, given, scoped) for each in function.node]
        pending.extend(reversed([each for each in inner if each is not None]))
        if len(found) + len(pending) > most:
            raise InvalidArgumentError(f"GraphDef: with the nodes of functions it has more than {most:,}")
        results = [given.get(item, f"{node.name}/{item}") for item in function.output]
        became.update({f"{node.name}:{index}": item for index, item in enumerate(results)})
        ends[node.name] = [f"^{item.rpartition(':')[0]}" for item in results]
    for node in found:
        inputs = [_followed(item, became) for item in node.input]
        node.input = [
            each for item in inputs for each in ends.get(item[1:] if item[:1] == "^" else "", [item])
        ]
    return found, became


def _inlined(
    each: Any,
    call: Any,
    function: FunctionDef,
    given: Mapping[str, str],
    scoped: Callable[[str], Sequence[str]],
) -> Any:
    """A node of a function as it stands in the place of a call; None for one of its inputs."""
    if each.name in function.input:
        return None
    inputs = []
    for item in each.input:
        if item.startswith("^"):
            control = item[1:]
            outside = given.get(f"{control}:0", "").rpartition(":")[0]
            inputs.append(f"^{outside or f'{call.name}/{control}'}")
        else:
            inputs.append(given.get(item, f"{call.name}/{item}"))
    reads = not each.input if each.op != "Const" else False
    reads = reads or any(item in given for item in each.input)
    controls = [item for item in call.input if item.startswith("^")] if reads else []
    attr = dict(each.attr)
    for key in scoped(each.op):
        if isinstance(attr.get(key), str) and attr[key]:
            attr[key] = f"{call.name}/{attr[key]}"
    return replace(
        each,
        name=f"{call.name}/{each.name}",
        input=list(dict.fromkeys([*inputs, *controls])) if controls else inputs,
        attr=attr,
        device=each.device or call.device,
        context=call.context,
        colocation=[f"{call.name}/{name}" for name in each.colocation],
    )


def _followed(item: str, became: Mapping[str, str]) -> str:
    for _ in range(len(became) + 1):
        if item not in became:
            break
        item = became[item]
    return item
