"""Blocks of a plan in the making: what is around them, and what loops keep for their gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from tensorbow.compiler.dynamic_mode import dynamic
from tensorbow.compiler.elements import StepArrays
from tensorbow.compiler.wholes import Item
from tensorbow.graph import Attrs, OpDef, Operation, Tensor
from tensorbow.ops.control_flow import StackPop
from tensorbow.ops.random import seed_words
from tensorbow.program.blocks import StackFrame
from tensorbow.program.draws import NextDraw
from tensorbow.program.nodes import Node, Value, storage_of
from tensorbow.program.plan import Ref, Region
from tensorbow.program.stacks import ALIGNMENT, STOP_OFFSET, HandleWord
from tensorbow.specs import Array, TensorSpec, int64

Made: TypeAlias = "list[tuple[Node, Operation]]"
Key: TypeAlias = "tuple[str, tuple[int | None, ...]]"
"""A push, and the numbers of the iterations around it: None for those of compiled loops."""


@dataclass(frozen=True)
class Stacked:
    """A value that the iterations of a compiled loop keep in the frames of a stack.

    begin: position of the first frame of the loop's run, which a loop around may keep in turn. depth: number
    of compiled loops around that loop.
    """

    handle: Value
    begin: Kept
    depth: int
    nbytes: int  # of a frame
    offset: int
    spec: TensorSpec


Kept: TypeAlias = "Value | Stacked"


@dataclass(eq=False)
class BlockLevel:
    """The step, or a block of it that is being made.

    loops: how many compiled loops are around its nodes. most: how often they run in a step, at most; None
    where that is not known.
    """

    outer: BlockLevel | None = None
    loops: int = 0
    is_loop: bool = False
    most: int | None = 1
    made: Made = field(default_factory=list)
    kept: dict[Key, Kept] = field(default_factory=dict)  # for gradients
    taken: list[StackFrame] = field(default_factory=list)  # frames of earlier loops that this loop reads
    handles: list[Value] = field(default_factory=list)  # of stacks of the loops in it


class Folding(Protocol):
    """Functions of a step's folding for the making of blocks."""

    values: dict[Tensor, Value]
    made: Made
    notes: list[str]
    arrays: StepArrays

    def add(self, item: Item) -> None:
        """Adds the nodes of an op, or of a loop or cond."""

    def pass_on(self, op: Operation) -> None:
        """An op of control flow whose condition is constant."""

    def forget(self, ops: Sequence[Operation]) -> None:
        """Drops the values of some ops."""

    @property
    def tag(self) -> str:
        """End of the names of nodes in unrolled loops."""

    def constant(self, name: str, array: Array) -> Value:
        """A constant."""

    def new_node(
        self, op: Operation, part: str, definition: OpDef, attrs: Attrs, inputs: list[Value]
    ) -> list[Value]:
        """The values of a node that the user's graph does not have."""


class Levels:
    """The block that is being made, those around it, and the values that gradients take back.

    ops_of: the ops of each node While and Cond.
    """

    def __init__(self, folding: Folding, ops: Sequence[Operation], fixed: Collection[Operation]):
        """ops: of the step. fixed: those that are fed, fetched or run for themselves."""
        self.folding = folding
        self.needed = set(ops)
        self._fixed = set(fixed)
        pops = [op for op in ops if op.definition is StackPop]
        self.zeroed = {op.attrs["push"] for op in pops if op.attrs["or_zeros"]}
        self._pops: dict[str, list[Operation]] = {}  # by push
        for op in pops:
            self._pops.setdefault(op.attrs["push"], []).append(op)
        self.ops_of: dict[Node, Sequence[Operation]] = {}
        self.now = BlockLevel()
        self.stop = _control_value("stop", STOP_OFFSET, ())
        self._stacks = 0

    @property
    def in_block(self) -> bool:
        """True while the nodes of a block are made."""
        return self.now.outer is not None

    @contextmanager
    def inside(self, level: BlockLevel) -> Iterator[None]:
        """Context in which nodes are added to a block."""
        folding, outer, made = self.folding, self.now, self.folding.made
        self.now, folding.made = level, level.made
        try:
            yield
        finally:
            self.now, folding.made = outer, made

    def new_words(self, name: str) -> Value:
        """Words of a new stack."""
        self._stacks += 1
        return _control_value(name, self._stacks * ALIGNMENT, (int(HandleWord.WORDS),))

    def set_state(self, node: Node, op: Operation) -> None:
        """Gives a random node of a block its state; in a loop it draws other numbers in each iteration."""
        counter = Value(counter_key(node), TensorSpec((), int64), state_key=counter_key(node))
        stream = Value("random_stream", TensorSpec((), int64), state_key="random_stream")
        if self.now.loops:
            draws = self.new_words(f"{node.name}/draws")
            self.now.handles.append(draws)
            counter = self.folding.new_node(op, "draw", NextDraw, {"of": node.name}, [counter, draws])[0]
        seeds = self.folding.constant(f"{node.name}/seeds", seed_words(node.attrs))
        node.state = (("counter", counter), ("random_stream", stream), ("seeds", seeds))

    def new_frame(self, name: str) -> StackFrame:
        """An empty frame of a new stack. name: of the loop."""
        handle = self.new_words(f"{name}/stack")
        return StackFrame(handle, Value(f"{name}/begin", TensorSpec((), int64)), None, 0)

    def is_taken_outside(self, key: Key, inside: Collection[Operation]) -> bool:
        """True if something outside of a loop or cond takes back what is kept."""
        return any(op not in inside for op in self._pops.get(key[0], ()))

    def refuse_fixed(self, ops: Collection[Operation], source: Operation) -> None:
        """Raises NeedsDynamicModeError if something in a loop or cond is fed or fetched."""
        for op in self._fixed.intersection(ops):
            raise dynamic(source, f"{op.name} is in it, and fed or fetched")

    def keep(self, op: Operation) -> None:
        """StackPush."""
        values = self.folding.values
        key = (op.name, tuple(_number(values[t]) for t in op.inputs[1:]))
        self.now.kept[key] = values[op.inputs[0]]

    def take(self, op: Operation) -> None:
        """StackPop."""
        values = self.folding.values
        or_zeros = op.attrs["or_zeros"]
        numbers = [values[t] for t in op.inputs[1 if or_zeros else 0 :]]
        key = (op.attrs["push"], tuple(map(_number, numbers)))
        level: BlockLevel | None = self.now
        while level is not None and key not in level.kept:
            level = level.outer
        if level is None:
            if not or_zeros:
                raise dynamic(op, f"{op.attrs['push']} keeps no value where it is taken back")
            spec = values[op.inputs[0]].spec  # of a branch that was not taken
            zeros = np.zeros(spec.extents, spec.dtype.as_numpy_dtype)
            values[op.outputs[0]] = self.folding.constant(op.outputs[0].name, zeros)
            return
        open_numbers = [each for each in numbers if each.constant is None]
        values[op.outputs[0]] = self._taken(level.kept[key], open_numbers, op)

    def _taken(self, kept: Kept, numbers: Sequence[Value], op: Operation) -> Value:
        if isinstance(kept, Value):
            return kept
        loop: BlockLevel | None = self.now
        between: list[BlockLevel] = []
        while loop is not None and not loop.is_loop:
            between.append(loop)
            loop = loop.outer
        if loop is None or kept.depth >= len(numbers):
            raise dynamic(op, "a value that a compiled loop keeps is taken back outside of loops")
        begin = self._taken(kept.begin, numbers, op)
        number = numbers[kept.depth]
        for value in (begin, number):
            node = storage_of(value).node
            if node is not None and any(node is each for lv in (loop, *between) for each, _ in lv.made):
                raise dynamic(
                    op, "a value of an iteration is taken back whose number is computed in the loop"
                )
        for frame in loop.taken:
            if (frame.handle, frame.begin, frame.number) == (kept.handle, begin, number):
                break
        else:
            frame = StackFrame(kept.handle, begin, number, kept.nbytes)
            loop.taken.append(frame)
        for value, offset in frame.offsets.items():
            if offset == kept.offset and value.spec == kept.spec:
                return value
        value = Value(op.outputs[0].name, kept.spec)
        frame.offsets[value] = kept.offset
        return value


def counter_key(node: Node) -> str:
    """Key in STATE of the counter of a random op."""
    return f"counter:{node.name}"


def _control_value(name: str, offset: int, shape: tuple[int, ...]) -> Value:
    return Value(name, TensorSpec(shape, int64), ref=Ref(Region.CONTROL, offset, shape, int64))


def _number(value: Value) -> int | None:
    return None if value.constant is None else int(value.constant)


def value_in(kept: Kept) -> Value:
    """The value of the level in what is kept: itself, or the position where its frames begin."""
    while isinstance(kept, Stacked):
        kept = kept.begin
    return kept


def with_value(kept: Kept, value: Kept) -> Kept:
    """The kept values, with another one in the place of `_value_in`."""
    if isinstance(kept, Stacked):
        begin = with_value(kept.begin, value)
        return Stacked(kept.handle, begin, kept.depth, kept.nbytes, kept.offset, kept.spec)
    return value
