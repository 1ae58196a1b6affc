"""A step between graph and plan: nodes and values with every shape known.

The compiler's passes take a `Program` and give one back; a backend fuses its nodes into units. A value
is what flows: fed, constant, a step scalar, a variable's storage, or an output of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tensorbow.errors import InternalError
from tensorbow.graph import Attrs, Kernel, NodeSpec, OpDef, Operation, UserLine
from tensorbow.program.plan import Ref
from tensorbow.specs import Array, TensorSpec


@dataclass(eq=False)
class Value:
    """One tensor of a compiled step. `name` is the tensor's name in the user's graph."""

    name: str
    spec: TensorSpec
    node: Node | None = None  # its producer
    index: int = 0  # which output of the producer
    constant: Array | None = None
    feed: str | None = None  # name of the fed tensor
    variable: Operation | None = None  # the variable whose storage it is
    scalar: Operation | None = None  # the step scalar it is
    state_key: str = ""  # the scalar of STATE that it is, beside step scalars
    ref: Ref | None = None  # its memory, where that is fixed before memory is planned
    stack_nbytes: int = 0  # of words of a stack: bytes of the slab that its frames may have; 0: they grow
    readers: list[Node] = field(default_factory=list)  # of a storage: see `record_readers`
    is_fetched: bool = False  # a storage that is, itself or through a view

    def __repr__(self) -> str:
        return f"<Value {self.name} {self.spec}>"


@dataclass(eq=False)
class Node:
    """One op of a compiled step; `position` orders the nodes of the program."""

    name: str
    definition: OpDef
    attrs: Attrs
    inputs: list[Value]
    position: int  # the graph's op id: execution keeps this order
    source: UserLine | None = None
    outputs: list[Value] = field(default_factory=list)
    note: str = ""
    is_target: bool = False  # runs even if nobody reads its results
    device: str = ""  # full name of the device it was placed on; "" while there is only one device
    after: tuple[Node, ...] = ()  # what a control dependency puts before it; kept for several devices only
    unfused: bool = False  # added by a rewriting, and never fused with other nodes
    unconditional: bool = False  # writes whatever the status, also in a predicated variant
    swaps: bool = False  # of a loop with swap_memory
    state: tuple[tuple[str, Value], ...] = ()  # of a random op in a loop or cond: where its state lies

    @property
    def reads(self) -> list[Value]:
        """Inputs, and values that stand for its state."""
        return [*self.inputs, *(value for _, value in self.state)] if self.state else self.inputs

    def __repr__(self) -> str:
        return f"<Node {self.name} {self.definition.name}>"


@dataclass(eq=False)
class Unit:
    """One or several fused nodes that run as one kernel call; becomes a `Group` once memory is planned."""

    nodes: tuple[Node, ...]
    kernel: Kernel
    inputs: list[Value]
    outputs: list[Value]

    @property
    def head(self) -> Node:
        """The node that gives the unit its name, definition and attributes."""
        return self.nodes[-1]

    @property
    def note(self) -> str:
        """The notes of its nodes, and which they are where there are several."""
        fused = ", ".join(f"{node.definition.name} {node.name}" for node in self.nodes[:-1])
        notes = [node.note for node in self.nodes if node.note]
        return "; ".join([*notes, *([f"fused with {fused}"] if fused else [])])

    @property
    def scratch(self) -> tuple[TensorSpec, ...]:
        """Scratch that the kernel needs beside inputs and outputs."""
        specs = tuple(v.spec for v in self.inputs), tuple(v.spec for v in self.outputs)
        return self.kernel.scratch_specs(NodeSpec(self.head.attrs, *specs))


@dataclass
class SplitStep:
    """A step's nodes before they are cut into segments: the gradient, and the update that follows it.

    guarded: the gradient's nodes end with a check of the loss, which sets the status.
    received, received_late: what other parts of the replica send for the gradient, and for the update.
    """

    gradient: list[Node]
    update: list[Node]
    guarded: bool
    received: Collection[Value] = ()
    received_late: Collection[Value] = ()


@dataclass
class Variant:
    """One of the alternative lists of nodes that a round may run, behind the gradient's.

    without_gradient: it is run by itself, between rounds.

    predicated: variables are written only while the status is not set.
    """

    name: str
    nodes: list[Node]
    without_gradient: bool = False
    predicated: bool = False


Rewriting: TypeAlias = "Callable[[SplitStep], Sequence[Variant]]"
"""Makes the variants of a step, and may add nodes to the end of its gradient."""


@dataclass
class Program:
    """Nodes in execution order, what is fetched, and what is fed."""

    nodes: list[Node]
    fetches: list[Value]
    feeds: dict[str, Value]
    notes: list[str] = field(default_factory=list)

    def check_invariants(self) -> None:
        """Every input comes from outside or from an earlier node. Raises InternalError."""
        made: set[Value] = set()
        for node in self.nodes:
            for value in node.inputs:
                if value.node is not None and value not in made:
                    raise InternalError(f"{node.name} reads {value.name} before it is made")
            made.update(node.outputs)
        for value in self.fetches:
            if value.node is not None and value not in made:
                raise InternalError(f"fetched {value.name} is not made by this program")


def replace_values(program: Program, replacement: dict[Value, Value]) -> None:
    """Rewires every use of a value to another one, following chains."""

    def final(value: Value) -> Value:
        while value in replacement:
            value = replacement[value]
        return value

    if replacement:
        for node in program.nodes:
            node.inputs = [final(v) for v in node.inputs]
        program.fetches = [final(v) for v in program.fetches]


def record_readers(nodes: Iterable[Node], fetches: Iterable[Value]) -> None:
    """Tells every storage which nodes read it, themselves or through views, and whether it is fetched.

    `nodes`: all of the program, whatever segment they are in. What a backend may fuse depends on it.
    """
    everything = list(nodes)
    for node in everything:
        for value in (*node.inputs, *node.outputs):
            value.readers, value.is_fetched = [], False
    for node in everything:
        if not node.definition.is_view:
            for root in dict.fromkeys(map(storage_of, node.inputs)):
                root.readers.append(node)
    for value in fetches:
        storage_of(value).is_fetched = True


def storage_of(value: Value) -> Value:
    """The value whose storage this one is: follows aliases (views, assigned variables) to their root."""
    while value.node is not None:
        for output, source in value.node.definition.alias:
            if output == value.index:
                value = value.node.inputs[source]
                break
        else:
            return value
    return value


def writes_weights(node: Node) -> bool:
    """True if a node writes a trainable variable."""
    roots = (storage_of(node.inputs[index]).variable for index in node.definition.writes)
    return any(root is not None and root.attrs["role"] == "weights" for root in roots)
