"""Branches and loops of a GraphDef: what `gradients` and the compiler know of them beside their nodes.

A node names the innermost branch or loop that it is in by its field `context`. In JSON a loop is

    {"name": "while/while_context", "kind": "loop", "pivot": "while/Identity",
     "last": "while/NextIteration_1", "attr": {"parallel_iterations": 10},
     "tensor": {"condition": ["while/LoopCond:0"], "merges": ["while/Merge:0"],
                "variables": ["while/Identity:0"], "exits": ["while/Exit:0"]}}

and a branch of a cond

    {"name": "cond/switch_t", "kind": "branch", "pivot": "cond/switch_t", "last": "cond/Merge",
     "attr": {"branch": 1, "other": "cond/switch_f"},
     "tensor": {"pred": ["Greater:0"], "merged": ["cond/Merge:0"]}}

with `outer`, the context around it, and `forward`, that whose gradient it computes, where there are such.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tensorbow.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tensorbow.graph.control_flow import ControlFlowContext
    from tensorbow.graph.operation import Operation


@dataclass(eq=False)
class ContextDef:
    """A branch or loop as data. All names are of the GraphDef: contexts, operations and tensors.

    pivot: the operation that runs whenever those of the context run. last: the last operation of the call
    that made the context. guards: operations before which none of it runs. tensor: lists by role.
    """

    name: str
    kind: str
    outer: str = ""
    forward: str = ""
    pivot: str = ""
    last: str = ""
    guards: list[str] = field(default_factory=list)
    attr: dict[str, Any] = field(default_factory=dict)
    tensor: dict[str, list[str]] = field(default_factory=dict)

    def to_entry(self) -> dict[str, Any]:
        """The context as a JSON object, without what is empty."""
        return {key: value for key in _FIELDS if (value := getattr(self, key)) not in ("", [], {})}

    @classmethod
    def of_entry(cls, index: int, entry: Any) -> ContextDef:
        """The reverse of `to_entry`. Raises InvalidArgumentError, naming the context."""
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
            raise InvalidArgumentError(f"GraphDef: context {index} must be an object with a name")
        where = f"GraphDef: context {entry['name'][:80]!r}"
        if unknown := sorted(set(entry) - set(_FIELDS)):
            raise InvalidArgumentError(f"{where}: unknown field {unknown[0][:40]!r}")
        made = cls(**{"kind": "", **entry})
        made.check()
        return made

    def check(self) -> None:
        """Raises InvalidArgumentError for a field of another type than declared."""
        texts = all(isinstance(getattr(self, key), str) for key in _TEXTS)
        lists = isinstance(self.tensor, dict) and all(map(is_texts, self.tensor.values()))
        if not (texts and lists and is_texts(self.guards) and isinstance(self.attr, dict)):
            raise InvalidArgumentError(
                f"GraphDef: context {str(self.name)[:80]!r}: expected texts, lists of names by role in "
                "tensor, and an object attr"
            )
        if not all(isinstance(value, (str, int)) for value in self.attr.values()):
            raise InvalidArgumentError(f"GraphDef: context {self.name[:80]!r}: attr has texts and numbers")
        if len({len(self.tensor.get(role, ())) for role in OF_VARIABLES}) > 1:
            raise InvalidArgumentError(
                f"GraphDef: context {self.name[:80]!r}: {', '.join(OF_VARIABLES)} are of different lengths"
            )


OF_VARIABLES = ("merges", "variables", "exits")  # roles with one tensor for each loop variable
_TEXTS = ("name", "kind", "outer", "forward", "pivot", "last")
_FIELDS = (*_TEXTS, "guards", "attr", "tensor")


def is_texts(value: Any) -> bool:
    """True for a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def context_defs_of(operations: Collection[Operation]) -> list[ContextDef]:
    """The contexts that operations are in, each after those that it refers to."""
    found: dict[ControlFlowContext, None] = {}

    def visit(context: ControlFlowContext | None) -> None:
        if context is not None and context not in found:
            visit(context.outer)
            visit(context.forward)
            for each in context.parts():
                found[each] = None

    for op in operations:
        visit(op.context)
    kept = set(operations) if found else set()
    return [context.describe(kept) for context in found]


def used_contexts(contexts: Sequence[ContextDef], nodes: Collection[Any]) -> list[ContextDef]:
    """The contexts of some of a GraphDef's nodes, without what refers to the others."""
    by_name = {context.name: context for context in contexts}
    names, wanted = {node.name for node in nodes}, set()
    pending = [node.context for node in nodes if node.context]
    while pending:
        context = by_name.get(pending.pop())
        if context is not None and context.name not in wanted:
            wanted.add(context.name)
            pending += [context.outer, context.forward, str(context.attr.get("other", ""))]
    order = {node.name: index for index, node in enumerate(nodes)}
    return [_reduced(context, names, order) for context in contexts if context.name in wanted]


def _reduced(context: ContextDef, names: set[str], order: dict[str, int]) -> ContextDef:
    tensor = dict(context.tensor)
    together = [role for role in OF_VARIABLES if role in tensor]
    rows = list(zip(*(tensor[role] for role in together), strict=True)) if together else []
    rows = [row for row in rows if all(item.rpartition(":")[0] in names for item in row)]
    tensor.update({role: [row[place] for row in rows] for place, role in enumerate(together)})
    for role, items in tensor.items():
        if role not in together:
            tensor[role] = [item for item in items if item.rpartition(":")[0] in names]
    return ContextDef(
        context.name,
        context.kind,
        context.outer,
        context.forward,
        context.pivot if context.pivot in names else "",
        context.last if context.last in names else "",
        [name for name in context.guards if name in names],
        dict(context.attr),
        tensor,
    )
