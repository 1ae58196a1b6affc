"""Contexts of control flow: branches of a cond and while loops, and what crosses their borders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tensorbow.errors import InternalError, InvalidArgumentError, UnimplementedError
from tensorbow.graph import ControlFlowContext, Graph, Operation, Tensor, as_tensor, control_dependencies
from tensorbow.ops.constant import constant
from tensorbow.ops.control import identity
from tensorbow.ops.control_flow import (
    Enter,
    Exit,
    Merge,
    NextIteration,
    StackPop,
    StackPush,
    Switch,
)
from tensorbow.ops.elementwise import add
from tensorbow.specs import int32


class BuiltContext(ControlFlowContext):
    """A branch or a loop of one graph.

    guards: control dependencies of the call that builds it; its ops run after them.
    """

    def __init__(
        self,
        graph: Graph,
        outer: ControlFlowContext | None,
        guards: tuple[Operation, ...],
        forward: ControlFlowContext | None = None,
    ):
        super().__init__(outer, forward)
        self.graph = graph
        self.whole: object = self  # the cond or loop that it is part of
        self.last = 0  # id of its last operation
        self._guards = guards
        self._gates: dict[Operation, Operation] = {}
        self._popped: dict[Tensor, Tensor] = {}

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Context in which ops are added around this one, after its guards."""
        with self.graph.in_context(self.outer), control_dependencies(self._guards):
            yield

    def ordered_after(self, op: Operation) -> Operation:
        """See ControlFlowContext.ordered_after."""
        gate = self._gates.get(op)
        if gate is None:
            with self.outside(), control_dependencies([op]):
                token = identity(constant(0), name="gate")
            gate = self._gates[op] = self.resolve(token).op
        return gate

    def read_forward(self, tensor: Tensor) -> Tensor:
        """See ControlFlowContext.read_forward: within loops, values of iterations are kept on a stack."""
        forward = tensor.op.context
        if forward is None:
            raise InternalError(f"{tensor.name} is in no branch or loop")
        loops = [each for each in forward.chain() if isinstance(each, LoopContext)]
        if not loops:
            return tensor
        kept = self._popped.get(tensor)
        if kept is not None:
            return kept
        counters = [loop.counter for loop in reversed(loops)]
        with self.graph.in_context(forward):
            push = StackPush(tensor, *counters)
        indices = self._iterations_of(forward)
        with self.graph.in_context(self):
            popped: Tensor = StackPop(*indices, push=push.name, shape=tensor.spec.shape, dtype=tensor.dtype)
        self._popped[tensor] = popped
        return popped

    def _iterations_of(self, forward: ControlFlowContext) -> list[Tensor]:
        """The numbers of the iterations of the loops around a forward context, as they are read here."""
        backward = {each.forward: each for each in self.chain() if isinstance(each, LoopContext)}
        indices = []
        for loop in reversed([each for each in forward.chain() if isinstance(each, LoopContext)]):
            reader = backward.get(loop)
            indices.append(loop.counter if reader is None else reader.remaining)
        return indices

    def take_gradient(self, tensor: Tensor, push: Operation) -> Tensor:
        """The gradient of a forward tensor that another loop has kept; zeros where it kept none."""
        forward = tensor.op.context
        if forward is None:
            raise InternalError(f"{tensor.name} is in no branch or loop")
        indices = self._iterations_of(forward)
        with self.graph.in_context(self):
            taken: Tensor = StackPop(
                tensor,
                *indices,
                push=push.name,
                shape=tensor.spec.shape,
                dtype=tensor.dtype,
                or_zeros=True,
            )
        return taken


class BranchContext(BuiltContext):
    """A branch of a cond: 1 is taken if `pred` is true, 0 if it is false."""

    kind = "a branch of tb.cond"

    def __init__(
        self,
        graph: Graph,
        outer: ControlFlowContext | None,
        guards: tuple[Operation, ...],
        pred: Tensor,
        branch: int,
        forward: ControlFlowContext | None = None,
    ):
        super().__init__(graph, outer, guards, forward)
        self.pred = pred
        self.branch = branch
        with self.outside():
            switched = Switch(pred, pred, name="switch")[branch]
        switched.op.context = self
        with graph.in_context(self):
            self.pivot = identity(switched, name=("switch_f", "switch_t")[branch]).op

    def _enter(self, tensor: Tensor) -> Tensor:
        with self.outside():
            outputs = Switch(tensor, self.pred, enters=True, name="Switch")
        outputs[0].op.context = self
        inside: Tensor = outputs[self.branch]
        return inside

    def reads_directly(self, other: ControlFlowContext | None) -> bool:
        """See ControlFlowContext.reads_directly: also branches of the same condition, outside loops."""
        if other is self:
            return True
        return (
            isinstance(other, BranchContext)
            and other.pred is self.pred
            and other.branch == self.branch
            and (
                other.outer is self.outer
                or (self.outer is not None and self.outer.reads_directly(other.outer))
            )
        )


class LoopContext(BuiltContext):
    """A while loop: its frame, its variables and its counter."""

    kind = "a tb.while_loop"

    def __init__(
        self,
        graph: Graph,
        outer: ControlFlowContext | None,
        guards: tuple[Operation, ...],
        frame_name: str,
        parallel_iterations: int,
        forward: ControlFlowContext | None = None,
    ):
        super().__init__(graph, outer, guards, forward)
        self.frame_name = frame_name
        self.parallel_iterations = parallel_iterations
        self.condition: Tensor | None = None  # LoopCond's output, once it is made
        self.merges: list[Tensor] = []
        self.variables: list[Tensor] = []  # as the body gets them
        self.results: list[Tensor] = []  # of the body
        self.exits: list[Tensor] = []
        self._counter: Tensor | None = None
        self._remaining: Tensor | None = None
        self._count: Tensor | None = None

    def _enter(self, tensor: Tensor) -> Tensor:
        return self.enter(tensor, is_constant=True)

    def enter(self, tensor: Tensor, *, is_constant: bool = False, shape: object = None) -> Tensor:
        """A tensor from the context around, in the first iteration, or in all of them if constant."""
        with self.outside():
            inside: Tensor = Enter(
                tensor,
                frame_name=self.frame_name,
                is_constant=is_constant,
                parallel_iterations=self.parallel_iterations,
                shape=shape,
            )
        inside.op.context = self
        return inside

    def add_variable(self, initial: Tensor, shape: object, name: str = "Merge") -> Tensor:
        """Enters a loop variable; its value as the condition reads it."""
        entered = self.enter(initial, shape=shape)
        with self.graph.in_context(self):
            merged: Tensor = Merge(entered, name=name)
        self.merges.append(merged)
        return merged

    def switch(self, merged: Tensor) -> tuple[Tensor, Tensor]:
        """The exit of a loop variable, and its value as the body reads it."""
        with self.graph.in_context(self):
            left, inside = Switch(merged, self.condition)
            value = identity(inside)
            left = Exit(left)
        left.op.context = self.outer
        return left, value

    def close(self, merged: Tensor, result: Tensor) -> None:
        """Gives a loop variable its value of the next iteration."""
        with self.graph.in_context(self):
            back = NextIteration(result)
        self.graph.close_loop(merged.op, back)

    @property
    def counter(self) -> Tensor:
        """The number of the iteration, from 0: a loop variable that is added on first use."""
        if self._counter is None:
            if self.condition is None:
                raise UnimplementedError(
                    "gradients: inside the condition of tb.while_loop they are not supported; compute them "
                    "in its body"
                )
            with self.outside():
                start = identity(constant(0, int32), name="counter")
            merged = self.enter_counter(start)
            self._count, self._counter = self.switch(merged)
            with self.graph.in_context(self):
                following = add(self._counter, 1)
            self.close(merged, following)
        return self._counter

    def enter_counter(self, start: Tensor) -> Tensor:
        """Enters the counter, which is none of the user's variables."""
        entered = self.enter(start, shape=())
        with self.graph.in_context(self):
            merged: Tensor = Merge(entered, name="counter")
        return merged

    @property
    def count(self) -> Tensor:
        """The number of iterations, in the context around."""
        _ = self.counter
        if self._count is None:
            raise InternalError("a loop without a counter")
        return self._count

    @property
    def remaining(self) -> Tensor:
        """Of the loop that computes a gradient: the number of the iteration that it goes through."""
        if self._remaining is None:
            raise InternalError("a loop that computes no gradient")
        return self._remaining

    @remaining.setter
    def remaining(self, value: Tensor) -> None:
        self._remaining = value


def refuse_exchanges(context: ControlFlowContext, graph: Graph, first: int, decides: Tensor) -> None:
    """Raises InvalidArgumentError for an exchange between replicas that some of them may not come to.

    first: id of the first operation that may be in the context. decides: whether, or how often, it runs.
    """
    for op in graph.get_operations()[first:]:
        if op.definition.exchange and op.context is not None and context in op.context.chain():
            cause = _differs_by(decides)
            if cause is not None:
                raise InvalidArgumentError(
                    f"{op.type} {op.name} is in {context.kind} that replicas may take differently, by "
                    f"{cause.type} {cause.name}: those that come to it would wait for ever; compute it "
                    f"before or behind, and choose by tb.where (made at {op.source})"
                )


def _differs_by(tensor: Tensor) -> Operation | None:
    """An operation by which a value may differ between replicas; None if all have the same."""
    seen: set[Operation] = set()
    pending = [tensor.op]
    while pending:
        op = pending.pop()
        if op in seen or op.type in ("Const", "Shape", "Size", "Rank") or op.definition.exchange:
            continue
        seen.add(op)
        if not op.inputs or op.definition.random or op.definition.host is not None:
            return op
        pending.extend(t.op for t in op.inputs)
    return None


def checked_result(value: object, where: str) -> Tensor:
    """A result of a user's function as a tensor. Raises InvalidArgumentError."""
    try:
        return as_tensor(value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}: {error}") from None
