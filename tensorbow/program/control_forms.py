"""The ops of compiled control flow. Only the compiler makes them.

A node's op says which of its inputs it writes and which outputs lie in the memory of an input; so each
combination is a form of one op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from tensorbow.errors import InternalError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, OpDef
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
def form_of(op: OpDef, writes: tuple[int, ...], alias: tuple[tuple[int, int], ...]) -> OpDef:
    """A form of While or Cond. writes, alias: see OpDef."""
    if not writes and not alias:
        return op
    return replace(op, writes=writes, alias=alias, stateful=bool(writes), form_of=op)
