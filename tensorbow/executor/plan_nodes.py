"""Nodes of a dynamic plan, and the frames that they are in (white paper, section 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tensorbow.executor.sequence import OpSequence, usual_output
from tensorbow.graph import Operation, Tensor, label_of
from tensorbow.specs import Array


class NodeKind(IntEnum):
    """Kinds of nodes, each of which the executor runs in another way."""

    SEQUENCE = 0
    HOST = 1  # a slow op
    SWITCH = 2
    MERGE = 3  # of branches: takes the input that is not dead
    PASS = 4  # hands its input on
    ENTER = 5
    EXIT = 6
    NEXT = 7
    DONE = 8  # runs when a frame has ended
    SEND = 9  # its function runs also for a dead input


@dataclass(eq=False)
class Frame:
    """A loop of the plan, or with parent None all that is in none."""

    name: str
    parent: Frame | None
    parallel_iterations: int = 1
    nodes: list[DynamicNode] = field(default_factory=list)
    slots: int = 0  # input values of its nodes
    enters: int = 0
    done: DynamicNode | None = None  # of the frame around
    exits: list[DynamicNode] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    sequential: bool = False  # its iterations write variables, so they run one by one
    ordered: list[DynamicNode] = field(default_factory=list)
    constants: list[tuple[int, Array]] = field(default_factory=list)  # slots filled in every iteration
    conditions: frozenset[object] = frozenset()  # of the ops around it
    waits: int = 0

    @cached_property
    def pending(self) -> list[int]:
        """Numbers of inputs and of earlier nodes that each node waits for; read once the plan is complete."""
        return [node.waits + node.ordered for node in self.nodes]

    @cached_property
    def ready(self) -> list[DynamicNode]:
        """The nodes that wait for nothing."""
        return [node for node, waits in zip(self.nodes, self.pending, strict=True) if waits == 0]

    @cached_property
    def values(self) -> list[Any]:
        """The inputs that its nodes begin with: constants, and None."""
        values: list[Any] = [None] * self.slots
        for slot, value in self.constants:
            values[slot] = value
        return values

    def chain(self) -> list[Frame]:
        """The frames around it and itself, outermost first."""
        return [*(self.parent.chain() if self.parent is not None else []), self]


@dataclass(eq=False)
class DynamicNode:
    """One thing to run in each iteration of a frame.

    frame: that its inputs are in. waits: number of inputs and control inputs that it waits for.
    readers: by output, the nodes that read it and the slots of the value; in the frame `target`.
    """

    kind: NodeKind
    name: str
    frame: Frame
    target: Frame
    outputs: int
    index: int = 0
    first: int = 0  # slot of its first input
    count: int = 0  # of inputs
    blank: list[None] = field(default_factory=list)  # None for each of them
    waits: int = 0
    readers: list[list[tuple[DynamicNode, int]]] = field(default_factory=list)
    controls: list[DynamicNode] = field(default_factory=list)  # dead if this one is
    followers: list[DynamicNode] = field(default_factory=list)  # run after this one, dead or not
    sequence: OpSequence | None = None
    inputs: Sequence[Tensor] = ()
    made: Sequence[Tensor] = ()  # its outputs
    op: Operation | None = None
    merges: bool = False  # it is of kind MERGE
    fetched: bool = False
    slow: bool = False  # it may run on the pool
    ordered: bool = False  # it has effects: it runs once the iteration before is through with it
    dtype: object = None  # of the only output of a host op, as NumPy has it,
    shape: object = None  # and its shape, if it is known

    @property
    def may_be_chained(self) -> bool:
        """True for a sequence, and for an op of the host that says when it is done."""
        if self.op is None or self.kind is not NodeKind.HOST:
            return self.sequence is not None
        return self.op.definition.asynchronous and not self.op.definition.flow and not self.slow

    @property
    def described(self) -> str:
        """The name of an op that waits, for a message; of a Receive that of the value and its sender."""
        if self.op is None:
            return f"{self.name} and ops with it"
        if self.op.definition.flow == "receive":
            return f"{self.op.attrs['key'].removeprefix('^')} of {self.op.attrs['sender']}"
        return label_of(self.op.type, self.name)

    @property
    def after(self) -> list[DynamicNode]:
        """The nodes that wait for this one, each as often as it counts."""
        return [*(node for readers in self.readers for node, _ in readers), *self.controls, *self.followers]

    def fits(self, outputs: Sequence[Any]) -> bool:
        """True in the usual cases: nothing, or one array of the only output's dtype and shape."""
        if not outputs:
            return not self.outputs
        array = outputs[0]
        return (
            type(array) is np.ndarray
            and len(outputs) == 1
            and array.dtype == self.dtype
            and array.shape == self.shape
        )

    def __post_init__(self) -> None:
        self.merges = self.kind is NodeKind.MERGE
        if self.op is not None:
            self.inputs, self.made = self.op.inputs, self.op.outputs
            if self.kind is NodeKind.HOST:
                self.dtype, self.shape = usual_output(self.op)
        self.readers = [[] for _ in range(self.outputs)]
        self.index = len(self.frame.nodes)
        self.frame.nodes.append(self)


class ChainLink(NamedTuple):
    """A node of a plan that is a chain.

    own: slots of its inputs. moves: outputs that later nodes read, each with a slot that it goes to.
    """

    node: DynamicNode
    sequence: OpSequence | None
    own: slice
    moves: list[tuple[int, int]]

    @classmethod
    def of(cls, node: DynamicNode) -> ChainLink:
        """The link of a node whose plan is complete."""
        moves = [(number, slot) for number, places in enumerate(node.readers) for _, slot in places]
        return cls(node, node.sequence, slice(node.first, node.first + node.count), moves)
