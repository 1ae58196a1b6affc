"""Control flow of a graph under construction: which branch or loop an op is in, and what it may read there.

An op in a branch or loop reads tensors from outside through a Switch or an Enter, made on first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph.context_def import ContextDef

if TYPE_CHECKING:
    from tensorbow.graph.definition import OpDef
    from tensorbow.graph.graph import Graph
    from tensorbow.graph.operation import Operation, Tensor


FREE = ("Const", "Variable", "HostVariable")  # ops that `is_free` is true for


class ControlFlowContext(ABC):
    """A branch of a cond, or a while loop. `outer`: the context around it, None for none.

    forward: for the gradient of a branch or loop, that context; see `read_forward`.
    """

    kind: str  # as errors call it

    def __init__(self, outer: ControlFlowContext | None, forward: ControlFlowContext | None = None):
        self.outer = outer
        self.forward = forward
        self.pivot: Operation | None = None  # runs whenever the context's ops run
        self.swap_memory: bool = outer is not None and outer.swap_memory  # of values kept for the gradient
        # A loop of a known number of iterations: without a limit of ops, where no device compiles loops.
        self.unrolls_fully: bool = forward is not None and forward.unrolls_fully
        self.entered: dict[Tensor, Tensor] = {}  # by tensor from outside

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in GraphDefs."""

    def inside_of(self, op: Operation) -> Tensor:
        """The output, inside, of an operation by which a tensor has entered."""
        return op.outputs[0]

    @abstractmethod
    def complete(self, definition: ContextDef, find: Finder) -> None:
        """Takes what a GraphDef says of it, once the operations are there. Raises InvalidArgumentError."""

    @abstractmethod
    def settle(self) -> None:
        """Called when imported operations have got their places in program order."""

    @abstractmethod
    def describe(self, kept: Container[Operation]) -> ContextDef:
        """The context as data, as far as it concerns operations that are kept."""

    def parts(self) -> Sequence[ControlFlowContext]:
        """All branches of its cond; of a loop the context itself."""
        return (self,)

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
    return op.definition.name in FREE


def through_constants(
    inputs: Iterable[Tensor],
    controls: tuple[Operation, ...],
    waits: Mapping[Operation, Sequence[Operation]] = MappingProxyType({}),
) -> tuple[Operation, ...]:
    """The control inputs of an op, and those of the constants that it reads or waits for.

    Steps have constants as they are, and nothing waits for one: its readers wait for what it waits for.
    waits: by constant, in the place of its control inputs.
    """
    found: list[Operation] = []
    for op in (*controls, *(tensor.op for tensor in inputs)):
        if op.definition.name == "Const":
            found += waits.get(op, op.control_inputs)
    return tuple(dict.fromkeys((*controls, *found))) if found else controls


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
    if definition.name in FREE:
        return inputs, ()
    inputs = [context.resolve(tensor) for tensor in inputs]
    kept = [op for op in controls if context.reads_directly(op.context)]
    has_own = bool(kept) or any(not is_free(t.op) and not _is_constant_enter(t.op) for t in inputs)
    if not has_own and context.pivot is not None:
        kept.append(context.pivot)
    kept.extend(context.ordered_after(op) for op in controls if not context.reads_directly(op.context))
    return inputs, tuple(kept)


def runs_by_itself(context: ControlFlowContext, op: Operation) -> bool:
    """True if an op of a context reads nothing that would keep it from running outside."""
    reads = any(not is_free(t.op) and not _is_constant_enter(t.op) for t in op.inputs)
    return not reads and not any(context.reads_directly(each.context) for each in op.control_inputs)


def _is_constant_enter(op: Operation) -> bool:
    return op.definition.flow == "enter" and bool(op.attrs["is_constant"])


def context_of(context: ControlFlowContext | None, definition: OpDef) -> ControlFlowContext | None:
    """The context that a new op is in."""
    return None if definition.name in FREE else context


# Contexts of GraphDefs ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ContextKind:
    """A kind of context in GraphDefs. begin(graph, name, definition, outer, forward): makes one."""

    begin: Callable[..., ControlFlowContext]


@dataclass(frozen=True)
class Finder:
    """Objects by their names in a ContextDef. All methods raise InvalidArgumentError or NotFoundError."""

    tensor: Callable[[str], Tensor]
    operation: Callable[[str], Operation]
    context: Callable[[str], ControlFlowContext]


CONTEXT_KINDS: dict[str, ContextKind] = {}


def begin_contexts(
    graph: Graph, prefix: str, definitions: Sequence[ContextDef], around: ControlFlowContext | None
) -> dict[str, ControlFlowContext]:
    """The contexts of a GraphDef by name, still without tensors. around: the context of the import.

    prefix: of names in the graph.

    Raises InvalidArgumentError, naming the context, for an unknown kind, two of one name, and an outer or
    forward context that is not listed before.
    """
    made: dict[str, ControlFlowContext] = {}
    for definition in definitions:
        where = f"GraphDef: context {definition.name[:80]!r}"
        kind = CONTEXT_KINDS.get(definition.kind)
        if kind is None:
            expected = " or ".join(CONTEXT_KINDS)
            raise InvalidArgumentError(f"{where}: kind is {definition.kind[:40]!r}, expected {expected}")
        if definition.name in made:
            raise InvalidArgumentError(f"{where}: there are two of this name")
        for name in (definition.outer, definition.forward):
            if name and name not in made:
                raise InvalidArgumentError(f"{where}: {name[:80]!r} is no context that is listed before it")
        outer = made[definition.outer] if definition.outer else around
        forward = made[definition.forward] if definition.forward else None
        try:
            made[definition.name] = kind.begin(graph, prefix + definition.name, definition, outer, forward)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{where}: {error}") from None
    return made


def require_context(op: Operation) -> None:
    """Raises InvalidArgumentError if an imported op reads what cannot be read in its context."""
    flow, context = op.definition.flow, op.context
    for tensor in op.inputs:
        origin = tensor.op.context
        if is_free(tensor.op):
            continue
        inside = origin is context or (context is not None and context.reads_directly(origin))
        if flow == "enter" or (flow == "switch" and not inside):
            outer = None if context is None else context.outer
            sound = origin is outer or _reads(outer, origin)
        elif flow == "exit" or (flow == "merge" and not inside):
            sound = origin is None or origin.outer is context or _reads(context, origin.outer)
        else:
            sound = inside
        if not sound:
            raise InvalidArgumentError(
                f"it is in {_called(context)} and reads {tensor.name}, which is in {_called(origin)}"
            )


def _reads(context: ControlFlowContext | None, origin: ControlFlowContext | None) -> bool:
    return context is not None and context.reads_directly(origin)


def _called(context: ControlFlowContext | None) -> str:
    return "no branch or loop" if context is None else f"{context.kind} ({context.name[:80]})"
