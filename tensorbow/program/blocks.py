"""Parts of a plan that run as one op: the branches of a cond, the condition and body of a loop.

A block's values lie in the memory of its op: in inputs, outputs, and one scratch array in which values share
memory by lifetime. What a gradient takes back from a loop's iterations lies in frames of a stack (see
`stacks`), one after the other, whose addresses change from iteration to iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from allocators import Lifetime, plan_slab
from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.graph import Kernel, KernelCall, NodeSpec, blame
from tensorbow.graph.definition import read_only
from tensorbow.program.nodes import Node, Value, storage_of
from tensorbow.specs import Array, TensorSpec, uint8

ALIGNMENT = 64  # bytes
OperandPlace: TypeAlias = (
    "tuple[int, int]"  # an operand of the op, counted inputs, outputs, scratch, frames; offset in bytes
)
KernelOf: TypeAlias = "Callable[[Node], Kernel]"
ScratchOf: TypeAlias = "Callable[[Node], Sequence[TensorSpec]]"
InplaceOf: TypeAlias = "Callable[[Node], Sequence[tuple[int, int]]]"


class Block:
    """Nodes that run one after the other, views apart, and what they compute.

    results: a value for each result of the op, None for one that only another branch has.
    """

    def __init__(self, nodes: Iterable[Node], results: Sequence[Value | None]):
        self.nodes = tuple(node for node in nodes if not node.definition.is_view)
        self.results = tuple(results)


@dataclass(eq=False)
class StackFrame:
    """Place of values in the frame of a stack that belongs to one iteration of a loop.

    handle: the words of the stack, int64 `[WORDS]`. begin: int64 scalar, the position of the first frame of
    this run of the loop. number: int32 scalar, the iteration; None for that of the loop itself, which then
    makes the frames. offsets: of the values in a frame.
    """

    handle: Value
    begin: Value
    number: Value | None
    nbytes: int
    offsets: dict[Value, int] = field(default_factory=dict)
    zeroed: bool = False  # each frame begins with zeros


class BlockMemory:
    """Places of the values of an op's blocks. Blocks of a loop run in turn; of branches only one runs.

    given: places of variables and of what is read from outside. homes: by block, places that a result may
    have from the beginning, by its number. frames: each is an operand behind the scratch array, or with
    `moving` False an area of it, from and to which a frame is copied.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        given: Mapping[Value, OperandPlace],
        homes: Mapping[tuple[int, int], OperandPlace],
        operands: int,
        frames: Sequence[StackFrame],
        scratch_of: ScratchOf,
        inplace_of: InplaceOf,
        *,
        in_turn: bool,
        moving: bool,
    ):
        """operands: inputs and outputs of the op, which come before the scratch array."""
        self.scratch: dict[Node, list[tuple[OperandPlace, TensorSpec]]] = {}
        self.moved: dict[int, OperandPlace] = {}  # loops: results that an overwritten variable holds
        self.areas: list[OperandPlace] = []  # of the frames, where they do not move
        self._places = dict(given)
        self._operand = operands
        self._blocks = blocks
        self._inplace_of = inplace_of
        self.refusal: OperandPlace = (operands, 0)
        self.nbytes = ALIGNMENT  # what is recorded of a refused call comes first
        for number, frame in enumerate(frames):
            area = (operands + 1 + number, 0) if moving else self._take(frame.nbytes)
            self.areas.append(area)
            for value, offset in frame.offsets.items():
                self._places[value] = (area[0], area[1] + offset)
        if in_turn:
            self._place_results(homes, in_turn)
            self._pack([node for block in blocks for node in block.nodes], scratch_of, blocks[-1].results)
            self._place_moved(blocks[-1], given, homes)
            return
        self._place_results(homes, in_turn)
        begin, most = self.nbytes, self.nbytes
        for block in blocks:
            self.nbytes = begin
            self._pack(block.nodes, scratch_of, block.results)
            most = max(most, self.nbytes)
        self.nbytes = most

    def _take(self, nbytes: int) -> OperandPlace:
        place = (self._operand, self.nbytes)
        self.nbytes += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return place

    def _place_results(self, homes: Mapping[tuple[int, int], OperandPlace], in_turn: bool) -> None:
        """Computes results where they belong, if nothing needs what is there any more."""
        nodes = [node for block in self._blocks for node in block.nodes]
        order = {node: index for index, node in enumerate(nodes)}
        last: dict[Value, int] = {}
        for node in nodes:
            for value in node.reads:
                last[storage_of(value)] = order[node]
        holders = {place: value for value, place in self._places.items()}
        for (number, index), home in homes.items():
            result = self._blocks[number].results[index]
            root = None if result is None else storage_of(result)
            if result is None or root is None or root.node not in order or root in self._places:
                continue
            holder = holders.get(home)
            if holder is not None and in_turn:
                used = last.get(holder, -1)
                others = [storage_of(r) for r in self._blocks[number].results if r is not None]
                if used > order[root.node] or holder in others or others.count(root) > 1:
                    continue
                if used == order[root.node] and not self._works_in(root.node, root.index, holder):
                    continue
            self._places[root] = home

    def _works_in(self, node: Node, output: int, holder: Value) -> bool:
        """True if a node may write an output where it reads a value."""
        pairs = self._inplace_of(node)
        spec = node.outputs[output].spec
        return all(
            (output, number) in pairs and value.spec.shape == spec.shape and value.spec.dtype == spec.dtype
            for number, value in enumerate(node.inputs)
            if storage_of(value) is holder
        )

    def _pack(self, nodes: Sequence[Node], scratch_of: ScratchOf, results: Sequence[Value | None]) -> None:
        """Places the other values, and scratch of the nodes, in the scratch array by lifetime."""
        last: dict[Value, int] = {}
        for index, node in enumerate(nodes):
            for value in node.reads:
                last[storage_of(value)] = index
        last.update({storage_of(value): len(nodes) for value in results if value is not None})
        lifetimes: list[Lifetime] = []
        takers: list[Value | tuple[Node, TensorSpec]] = []
        for index, node in enumerate(nodes):
            for value in node.outputs:
                if storage_of(value) is value and value not in self._places:
                    lifetimes.append(Lifetime(value.spec.nbytes, index, max(index, last.get(value, index))))
                    takers.append(value)
            for spec in scratch_of(node):
                lifetimes.append(Lifetime(spec.nbytes, index, index))
                takers.append((node, spec))
            self.scratch[node] = []
        plan = plan_slab(lifetimes, alignment=ALIGNMENT)
        for taker, offset in zip(takers, plan.offsets, strict=True):
            place = (self._operand, self.nbytes + offset)
            if isinstance(taker, Value):
                self._places[taker] = place
            else:
                self.scratch[taker[0]].append((place, taker[1]))
        self._take(plan.peak_nbytes)

    def _place_moved(
        self,
        body: Block,
        given: Mapping[Value, OperandPlace],
        homes: Mapping[tuple[int, int], OperandPlace],
    ) -> None:
        """Keeps room for results that lie in a variable that is overwritten before they are copied."""
        variables = set(homes.values())
        for number, result in enumerate(body.results):
            if result is None:
                continue
            place = self.place(result)
            if place != homes.get((1, number)) and place in variables:
                self.moved[number] = self._take(result.spec.nbytes)

    def place(self, value: Value) -> OperandPlace:
        """Place of a value."""
        return self._places[storage_of(value)]

    @property
    def spec(self) -> TensorSpec:
        """The scratch array."""
        return TensorSpec((self.nbytes,), uint8)


def node_spec(node: Node) -> NodeSpec:
    """A node as kernels see it."""
    return NodeSpec(node.attrs, *(tuple(v.spec for v in values) for values in (node.inputs, node.outputs)))


def reference_kernel(node: Node) -> Kernel:
    """The reference kernel of a node."""
    return node.definition.kernels["cpu"]


class BlockCalls:
    """Reference kernels of a block's nodes, bound to the arrays of the op's call."""

    def __init__(self, memory: BlockMemory, operands: Sequence[Array], kernel_of: KernelOf):
        """operands: inputs, outputs and the scratch array."""
        self._memory = memory
        self._operands = operands
        self._kernel_of = kernel_of

    def array(self, place: OperandPlace, spec: TensorSpec) -> Array:
        """The array of a value in a place."""
        operand, offset = place
        if operand < len(self._operands) - 1:
            return self._operands[operand].reshape(spec.extents)
        taken = self._operands[-1][offset : offset + spec.nbytes]
        viewed: Array = taken.view(spec.dtype.as_numpy_dtype).reshape(spec.extents)
        return viewed

    def value(self, value: Value) -> Array:
        """The array of a value."""
        return self.array(self._memory.place(value), value.spec)

    def prepare(self, block: Block) -> list[Callable[[], None]]:
        """A function for each node, which raises the op's error with its name and the user's line."""
        return [self._prepared(node) for node in block.nodes]

    def _prepared(self, node: Node) -> Callable[[], None]:
        writes = node.definition.writes
        inputs = tuple(
            self.value(v) if number in writes else read_only(self.value(v))
            for number, v in enumerate(node.inputs)
        )
        outputs = tuple(map(self.value, node.outputs))
        scratch = tuple(self.array(*each) for each in self._memory.scratch[node])
        state = {key: self.value(value) for key, value in node.state}
        bound = self._kernel_of(node).bind(KernelCall(node.attrs, inputs, outputs, scratch, state))

        def run() -> None:
            try:
                bound()
            except Exception as error:
                raise blamed(node, error) from error

        return run


def blamed(node: Node, error: Exception) -> TensorBowError:
    """The error of a node in a block, with its name and the user's line."""
    kind = type(error) if isinstance(error, TensorBowError) else InvalidArgumentError
    return kind(blame(node.definition.name, node.name, error, node.source))


class BlockProgram(Protocol):
    """Blocks that run as one op."""

    def memory(self, scratch_of: ScratchOf, inplace_of: InplaceOf, *, moving: bool) -> BlockMemory:
        """Place of each value."""


BindBlocks: TypeAlias = "Callable[[KernelCall, BlockMemory, BlockCalls], Callable[[], None]]"


def block_kernel(attr: str, bind: BindBlocks, kernel_of: KernelOf) -> Kernel:
    """The reference kernel of an op of blocks.

    attr: the op's attribute that is its `BlockProgram`. bind: makes the function that runs a call. kernel_of:
    kernels of the nodes inside.
    """

    def scratch(node: Node) -> Sequence[TensorSpec]:
        return kernel_of(node).scratch_specs(node_spec(node))

    def memory(program: BlockProgram) -> BlockMemory:
        return program.memory(scratch, lambda node: kernel_of(node).inplace, moving=False)

    def prepare(call: KernelCall) -> Callable[[], None]:
        planned = memory(call.attrs[attr])
        operands = (*call.inputs, *call.outputs, *call.scratch)
        return bind(call, planned, BlockCalls(planned, operands, kernel_of))

    return Kernel(prepare=prepare, scratch=lambda node: [memory(node.attrs[attr]).spec])
