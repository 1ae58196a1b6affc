"""Control flow of a graph under construction: which branch or loop an op is in, and what it may read there.

An op in a branch or loop reads tensors from outside through a Switch or an Enter, made on first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tensorbow.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tensorbow.graph.definition import OpDef
    from tensorbow.graph.operation import Operation, Tensor


class ControlFlowContext(ABC):
    """A branch of a cond, or a while loop. `outer`: the context around it, None for none.

    forward: for the gradient of a branch or loop, that context; see `read_forward`.
    """

    kind: str  # as errors call it

    def __init__(self, outer: ControlFlowContext | None, forward: ControlFlowContext | None = None):
        self.outer = outer
        self.forward = forward
        self.pivot: Operation | None = None  # runs whenever the context's ops run
        self.entered: dict[Tensor, Tensor] = {}  # by tensor from outside

    @abstractmethod
    def _enter(self, tensor: Tensor) -> Tensor:
        """The same value inside; `tensor` may be read in the outer context."""

    @abstractmethod
    def ordered_after(self, op: Operation) -> Operation:
        """An operation inside that runs after `op`, which is outside."""

    @abstractmethod
    def read_forward(self, tensor: Tensor) -> Tensor:
        """A tensor of the context `forward`, as it is read here."""

    def reads_directly(self, other: ControlFlowContext | None) -> bool:
        """True if ops here may read tensors of `other`: both run under the same conditions."""
        return other is self

    def resolve(self, tensor: Tensor) -> Tensor:
        """A tensor of any context as it is read here. Raises InvalidArgumentError if that is impossible."""
        origin = tensor.op.context
        if is_free(tensor.op) or self.reads_directly(origin):
            return tensor
        if origin is not None and origin is self.forward:
            return self.read_forward(tensor)
        if origin is not None and origin not in self.chain():
            outside = entered_from(tensor)
            if outside is not None:
                return self.resolve(outside)
        entered = self.entered.get(tensor)
        if entered is None:
            entered = self.entered[tensor] = self._enter(resolved(self.outer, tensor))
        return entered

    def chain(self) -> Iterator[ControlFlowContext]:
        """This context and those around it, the innermost first."""
        context: ControlFlowContext | None = self
        while context is not None:
            yield context
            context = context.outer


def is_free(op: Operation) -> bool:
    """True for constants and references of variables, which are read in every context as they are."""
    return op.definition.name in ("Const", "Variable")


def entered_from(tensor: Tensor) -> Tensor | None:
    """The tensor from outside that entered a context as this one and does not change there, or None."""
    op = tensor.op
    if op.definition.flow == "enter" and op.attrs["is_constant"]:
        return op.inputs[0]
    if op.definition.flow == "switch" and op.attrs["enters"]:
        return op.inputs[0]
    return None


def resolved(context: ControlFlowContext | None, tensor: Tensor) -> Tensor:
    """A tensor as it is read in a context. Raises InvalidArgumentError for one of a context beside it."""
    if context is not None:
        return context.resolve(tensor)
    origin = tensor.op.context
    if origin is None or is_free(tensor.op):
        return tensor
    outside = entered_from(tensor)
    if outside is not None:
        return resolved(None, outside)
    raise InvalidArgumentError(
        f"{tensor.name} is made in {origin.kind} and cannot be read outside; return it from the function "
        f"(made at {tensor.op.source})"
    )


def admitted(
    context: ControlFlowContext | None,
    definition: OpDef,
    inputs: Sequence[Tensor],
    controls: tuple[Operation, ...],
) -> tuple[Sequence[Tensor], tuple[Operation, ...]]:
    """Inputs and control inputs of a new op as they are read in its context."""
    if definition.flow in ("merge", "exit", "next_iteration"):  # the builders wire these themselves
        return inputs, controls
    if context is None:
        for op in controls:
            if op.context is not None:
                raise InvalidArgumentError(
                    f"control_dependencies: {op.name} is made in {op.context.kind}, beside these ops "
                    f"(made at {op.source})"
                )
        return [resolved(None, tensor) for tensor in inputs], controls
    if definition.name in ("Const", "Variable"):
        return inputs, ()
    inputs = [context.resolve(tensor) for tensor in inputs]
    kept = [op for op in controls if context.reads_directly(op.context)]
    has_own = bool(kept) or any(not is_free(t.op) and not _is_constant_enter(t.op) for t in inputs)
    if not has_own and context.pivot is not None:
        kept.append(context.pivot)
    kept.extend(context.ordered_after(op) for op in controls if not context.reads_directly(op.context))
    return inputs, tuple(kept)


def _is_constant_enter(op: Operation) -> bool:
    return op.definition.flow == "enter" and bool(op.attrs["is_constant"])


def context_of(context: ControlFlowContext | None, definition: OpDef) -> ControlFlowContext | None:
    """The context that a new op is in."""
    return None if definition.name in ("Const", "Variable") else context
