"""The ops of compiled control flow. Only the compiler makes them.

A node's op says which of its inputs it writes and which outputs lie in the memory of an input; so each
combination is a form of one op.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from tensorbow.errors import InternalError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, OpDef
from tensorbow.program.nodes import Node
from tensorbow.specs import TensorSpec


def _made_by_compiler(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    raise InternalError("the compiler gives the specs of compiled control flow")


While = OpDef(
    "While",
    spec=_made_by_compiler,
    gradient=NOT_DIFFERENTIABLE,
    kernels={},
    input_names=("*values",),
    attrs={"loop": REQUIRED},
    doc="Runs a LoopProgram on initial variables and what it reads.",
)
Cond = OpDef(
    "Cond",
    spec=_made_by_compiler,
    gradient=NOT_DIFFERENTIABLE,
    kernels={},
    input_names=("pred", "*values"),
    attrs={"branches": REQUIRED},
    doc="Runs one of two BranchProgram blocks on what they read.",
)


@cache
def form_of(
    op: OpDef, writes: tuple[int, ...], alias: tuple[tuple[int, int], ...], checks: bool = False
) -> OpDef:
    """A form of While or Cond. writes, alias: see OpDef. checks: it may fail, so it runs for that alone."""
    if not writes and not alias and not checks:
        return op
    return replace(op, writes=writes, alias=alias, stateful=bool(writes) or checks, form_of=op)


def has_checks(nodes: Iterable[Node]) -> bool:
    """True if some of the nodes, or of those in their blocks, are there to fail."""
    for node in nodes:
        if node.definition.stateful and not node.definition.writes:
            return True
        inside = node.attrs.get("loop") or node.attrs.get("branches")
        if has_checks(getattr(inside, "nodes", ())):
            return True
    return False
