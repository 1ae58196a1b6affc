"""Control inputs that TensorFlow needs beside those of a program: of constants in loops, and of updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorbow.graph.protobuf.tensorflow_forms import FormPart


def constants_after(node: Any, contexts: Mapping[str, Any]) -> list[str]:
    """The control inputs of a constant that a node reads: in a loop it has to be in its frame.

    contexts: entries of the GraphDef's contexts, by name.
    """
    context = contexts.get(node.context)
    if node.op == "Enter" and context is not None:
        context = contexts.get(context.get("outer", ""))
    while context is not None and context.get("kind") != "loop":
        context = contexts.get(context.get("outer", ""))
    merges = [] if context is None else context.get("tensor", {}).get("merges", [])
    return [f"^{merges[0].rpartition(':')[0]}"] if merges else []


def constants_inside(node: Any, nodes: Mapping[str, Any], contexts: Mapping[str, Any]) -> dict[str, FormPart]:
    """Copies of the constants that a node in a loop reads, by input."""
    after = constants_after(node, contexts) if node.context else []
    parts: dict[str, FormPart] = {}
    for number, item in enumerate(node.input if after else ()):
        constant = nodes.get(item.rpartition(":")[0])
        if constant is not None and constant.op == "Const" and not item.startswith("^"):
            parts[item] = FormPart(f"input{number}", "Const", after, value=constant.attr["value"])
    return parts


def writes_after(nodes: Sequence[Any]) -> dict[str, list[str]]:
    """Ops that each optimiser's update has to wait for, by its name: readers of the variable's value before.

    Here a read gives the value at its place in the program. In TensorFlow it is the variable's memory, so
    an update that runs before the last reader would change what that one reads.
    """
    variables = {f"{node.name}:0" for node in nodes if node.op == "Variable"}
    reads: dict[str, str] = {}  # variables by the tensor of a read
    users: dict[str, list[Any]] = {}  # of the present value, by variable
    found: dict[str, list[str]] = {}
    for node in nodes:
        inputs = [item for item in node.input if not item.startswith("^")]
        for item in dict.fromkeys(inputs):
            if item in variables and node.op == "ReadVariable":
                reads[f"{node.name}:0"] = item
                users.setdefault(item, []).append(node)
            elif item in reads and node.op != "Enter":
                users[reads[item]].append(node)
        for item in dict.fromkeys(inputs):
            if item in variables and node.op.startswith(("Apply", "SparseApply")):
                before = [each for each in users.get(item, ()) if each.context == node.context]
                names = dict.fromkeys(each.name for each in before if each is not node)
                own = {each.rpartition(":")[0] for each in inputs}
                found.setdefault(node.name, []).extend(f"^{name}" for name in names if name not in own)
    return found
