"""Epilogue: element-wise operations on a normalisation's result while it is in registers (ReLU, a sum).

The expression is that of the element-wise op that reads the result.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.llvm_form import to_llvm
from tensorbow.kernels.scalars.expression import INPUT, Scalar, in_order, structure


class Broadcast(Enum):
    """Broadcasting of an operand to the result."""

    ELEMENT = "one for each element, laid out as the result"
    COLUMN = "one for each column"
    SINGLE = "one for all"


@dataclass(frozen=True)
class Epilogue:
    """result: the expression. own: numbers of its inputs that are the normalisation's result.

    operands: numbers of the other inputs, in the order of their places, with their broadcasting.
    """

    result: Scalar = field(compare=False, repr=False)
    own: tuple[int, ...]
    operands: tuple[tuple[int, Broadcast], ...]
    form: Hashable = field(init=False)  # equal for equal expressions

    def __post_init__(self) -> None:
        object.__setattr__(self, "form", structure([self.result]))

    @property
    def broadcasts(self) -> tuple[Broadcast, ...]:
        """Broadcasting of each operand."""
        return tuple(broadcast for _, broadcast in self.operands)

    def emit(self, e: Emitter, own: ir.Value, operands: Sequence[ir.Value], lanes: int) -> ir.Value:
        """The new values of a vector of elements; `operands`: vectors of the operands' elements."""
        values = dict.fromkeys(self.own, own)
        values.update(zip((number for number, _ in self.operands), operands, strict=True))
        inputs = (node for node in in_order([self.result]) if node.operator == INPUT)
        known = {node: values[int(node.argument)] for node in inputs}
        (value,) = to_llvm(e, [self.result], known, lanes)
        return value
