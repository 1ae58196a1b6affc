"""Contexts of control flow: branches of a cond and while loops, and what crosses their borders."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager

from tensorbow.errors import InternalError, InvalidArgumentError, UnimplementedError
from tensorbow.graph import (
    ControlFlowContext,
    Graph,
    Operation,
    Tensor,
    as_tensor,
    control_dependencies,
    entered_from,
)
from tensorbow.graph.context_def import OF_VARIABLES, ContextDef
from tensorbow.graph.control_flow import CONTEXT_KINDS, ContextKind, Finder
from tensorbow.ops.constant import constant
from tensorbow.ops.control import Identity, identity
from tensorbow.ops.control_flow import (
    Enter,
    Exit,
    LoopCond,
    Merge,
    NextIteration,
    StackPop,
    StackPush,
    Switch,
    require_condition,
)
from tensorbow.ops.elementwise import add
from tensorbow.specs import int32

BRANCH, LOOP = "branch", "loop"  # kinds of contexts in GraphDefs


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
        self._last_op: Operation | None = None  # of an imported one
        self._guards = guards
        self._gates: dict[Operation, Operation] = {}
        self._popped: dict[Tensor, Tensor] = {}

    def describe(self, kept: Container[Operation]) -> ContextDef:
        """See ControlFlowContext.describe."""
        operations = self.graph.get_operations()
        last = next((op for op in reversed(operations[: self.last + 1]) if op in kept), None)
        pivot = self.pivot
        return ContextDef(
            self.name,
            "",
            "" if self.outer is None else self.outer.name,
            "" if self.forward is None else self.forward.name,
            "" if pivot is None or pivot not in kept else pivot.name,
            "" if last is None else last.name,
            [op.name for op in self._guards if op in kept],
        )

    def complete(self, definition: ContextDef, find: Finder) -> None:
        """Takes what a ContextDef says, once the operations are there."""
        if definition.pivot:
            self.pivot = find.operation(definition.pivot)
        self._guards += tuple(find.operation(name) for name in definition.guards)
        self._last_op = find.operation(definition.last) if definition.last else None

    def settle(self) -> None:
        """See ControlFlowContext.settle."""
        if self._last_op is not None:
            self.last = self._last_op.id

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
        """See ControlFlowContext.read_forward: within loops, values of iterations are kept on a stack.

        What a loop takes from outside, the same in all iterations, is read outside again.
        """
        forward = tensor.op.context
        if forward is None:
            raise InternalError(f"{tensor.name} is in no branch or loop")
        loops = [each for each in forward.chain() if isinstance(each, LoopContext)]
        if not loops:
            return tensor
        outside = entered_from(tensor)
        if outside is not None and tensor.op.definition is Enter:
            return self.resolve(outside)
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
        pred: Tensor | None,
        branch: int,
        forward: ControlFlowContext | None = None,
        name: str = "",
    ):
        super().__init__(graph, outer, guards, forward)
        self._pred = pred
        self._name = name
        self.branch = branch

    @property
    def name(self) -> str:
        """See ControlFlowContext.name: that of its pivot."""
        return self._name

    def parts(self) -> Sequence[ControlFlowContext]:
        """See ControlFlowContext.parts."""
        return self.whole.branches if isinstance(self.whole, Conditional) else (self,)

    def inside_of(self, op: Operation) -> Tensor:
        """See ControlFlowContext.inside_of."""
        return op.outputs[self.branch]

    def describe(self, kept: Container[Operation]) -> ContextDef:
        """See ControlFlowContext.describe."""
        described = super().describe(kept)
        described.kind = BRANCH
        other = next((each for each in self.parts() if each is not self), self)
        described.attr = {"branch": self.branch, "other": other.name}
        merged = self.whole.merged if isinstance(self.whole, Conditional) else []
        described.tensor = {"pred": _kept([self._pred], kept), "merged": _kept(merged, kept)}
        return described

    def complete(self, definition: ContextDef, find: Finder) -> None:
        """See BuiltContext.complete."""
        super().complete(definition, find)
        for name in definition.tensor.get("pred", ()):
            self._pred = find.tensor(name)
            require_condition("branch", self._pred)
        self._complete_cond(definition, find)

    def _complete_cond(self, definition: ContextDef, find: Finder) -> None:
        """Makes one cond of this branch and the other, once both are complete."""
        other = find.context(str(definition.attr.get("other", "")))
        if (
            not isinstance(other, BranchContext)
            or other.branch == self.branch
            or other.outer is not self.outer
        ):
            raise InvalidArgumentError(f"other is {other.name[:80]!r}, expected the other branch of the cond")
        if isinstance(other.whole, Conditional) and self not in other.whole.branches:
            raise InvalidArgumentError(f"other is {other.name[:80]!r}, which is a branch of another cond")
        if isinstance(self.whole, Conditional):
            return
        self.whole = other.whole = Conditional(sorted((self, other), key=lambda each: each.branch))
        for name in definition.tensor.get("merged", ()):
            merged = find.tensor(name)
            sources = merged.op.inputs
            if merged.op.definition is not Merge or merged.index or len(sources) != 2:
                raise InvalidArgumentError(f"merged: {name[:80]!r} is no Merge of two tensors")
            self.whole.merged.append(merged)
        self.whole.results = [[each.op.inputs[k] for each in self.whole.merged] for k in (0, 1)]

    @property
    def pred(self) -> Tensor:
        """The condition, in the context around."""
        if self._pred is None:
            raise InternalError("a branch without a condition")
        return self._pred

    def begin(self) -> None:
        """Adds the operation that runs whenever the branch does."""
        with self.outside():
            switched = Switch(self.pred, self.pred, name="switch")[self.branch]
        switched.op.context = self
        with self.graph.in_context(self):
            self.pivot = identity(switched, name=("switch_f", "switch_t")[self.branch]).op
        self._name = self.pivot.name

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
            and other._pred is self._pred
            and other.branch == self.branch
            and (
                other.outer is self.outer
                or (self.outer is not None and self.outer.reads_directly(other.outer))
            )
        )


class Conditional:
    """A cond: its branches [false, true], their results, and the merged tensors."""

    def __init__(self, branches: Sequence[BranchContext]):
        self.branches = branches
        self.outer = branches[0].outer
        self.results: list[list[Tensor]] = []  # by branch
        self.merged: list[Tensor] = []


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
        swap_memory: bool = False,
    ):
        super().__init__(graph, outer, guards, forward)
        self.swap_memory |= swap_memory
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

    @property
    def name(self) -> str:
        """See ControlFlowContext.name: that of its frame."""
        return self.frame_name

    def describe(self, kept: Container[Operation]) -> ContextDef:
        """See ControlFlowContext.describe."""
        described = super().describe(kept)
        described.kind = LOOP
        described.attr = {"parallel_iterations": self.parallel_iterations}
        if self.swap_memory:
            described.attr["swap_memory"] = 1
        if self.unrolls_fully:
            described.attr["unrolls_fully"] = 1
        rows = [
            row
            for row in zip(self.merges, self.variables, self.exits, strict=True)
            if len(_kept(row, kept)) == 3
        ]
        described.tensor = {
            "condition": _kept([self.condition], kept),
            **{role: [row[place].name for row in rows] for place, role in enumerate(OF_VARIABLES)},
            "counter": _kept([self._counter], kept),
            "count": _kept([self._count], kept),
            "remaining": _kept([self._remaining], kept),
        }
        described.tensor = {role: names for role, names in described.tensor.items() if names}
        return described

    def complete(self, definition: ContextDef, find: Finder) -> None:
        """See BuiltContext.complete."""
        super().complete(definition, find)
        for role in ("condition", "_counter", "_count", "_remaining"):
            for name in definition.tensor.get(role.removeprefix("_"), ()):
                setattr(self, role, find.tensor(name))
        if self.condition is not None and self.condition.op.definition is not LoopCond:
            raise InvalidArgumentError(f"condition: {self.condition.name[:80]!r} is no LoopCond")
        lists = [[find.tensor(name) for name in definition.tensor.get(role, ())] for role in OF_VARIABLES]
        for merged, variable, left in zip(*lists, strict=True):
            self._require_variable(merged, variable, left)
            self.merges.append(merged)
            self.variables.append(variable)
            self.exits.append(left)
            self.results.append(merged.op.inputs[1].op.inputs[0])

    def _require_variable(self, merged: Tensor, variable: Tensor, left: Tensor) -> None:
        """Raises InvalidArgumentError unless they are the parts of one loop variable."""
        sources = [tensor.op for tensor in merged.op.inputs]
        switches = [tensor.op.inputs[0] if tensor.op.inputs else tensor for tensor in (variable, left)]
        sound = (
            merged.op.definition is Merge
            and [op.definition for op in sources] == [Enter, NextIteration]
            and left.op.definition is Exit
            and variable.op.definition is Identity
            and all(s.op.definition is Switch and s.op.inputs[0].op is merged.op for s in switches)
            and [s.index for s in switches] == [1, 0]
            and all(op.context is self for op in (merged.op, *sources, variable.op))
        )
        if not sound:
            raise InvalidArgumentError(
                f"{merged.name[:80]!r}, {variable.name[:80]!r} and {left.name[:80]!r} are not the Merge, the "
                "value in the body and the Exit of a loop variable"
            )

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
        """Number of the iteration that the loop of a gradient goes through."""
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


# Contexts of GraphDefs ----------------------------------------------------------------------------


def _kept(tensors: Sequence[Tensor | None], kept: Container[Operation]) -> list[str]:
    return [tensor.name for tensor in tensors if tensor is not None and tensor.op in kept]


def _begin_branch(
    graph: Graph,
    name: str,
    definition: ContextDef,
    outer: ControlFlowContext | None,
    forward: ControlFlowContext | None,
) -> BranchContext:
    branch = definition.attr.get("branch")
    if branch not in (0, 1):
        raise InvalidArgumentError(f"branch is {branch!r:.40}, expected 0 or 1")
    return BranchContext(graph, outer, (), None, int(branch), forward, name)


def _begin_loop(
    graph: Graph,
    name: str,
    definition: ContextDef,
    outer: ControlFlowContext | None,
    forward: ControlFlowContext | None,
) -> LoopContext:
    count = definition.attr.get("parallel_iterations")
    if type(count) is not int or count < 1:
        raise InvalidArgumentError(f"parallel_iterations is {count!r:.40}, expected at least 1")
    loop = LoopContext(graph, outer, (), name, count, forward, bool(definition.attr.get("swap_memory")))
    loop.unrolls_fully = bool(definition.attr.get("unrolls_fully"))
    return loop


CONTEXT_KINDS[BRANCH] = ContextKind(_begin_branch)
CONTEXT_KINDS[LOOP] = ContextKind(_begin_loop)
