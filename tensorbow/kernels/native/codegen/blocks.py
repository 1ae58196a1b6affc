"""Native code of blocks: tables of calls whose operands lie in the memory of the op that has the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from llvmlite import ir

from tensorbow.errors import CancelledError, InternalError, ResourceExhaustedError, TensorBowError
from tensorbow.graph import Attrs, KernelCall, NodeSpec, add_iteration
from tensorbow.graph.definition import read_only
from tensorbow.kernels.native.codegen.call_table import ACCEPTED, CallTable
from tensorbow.kernels.native.codegen.emitter import INT, POINTER, REFUSED, Emitter, index
from tensorbow.kernels.native.codegen.functions import Functions
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.lowering import Emit, Lowering, lowering_for, lowering_of
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.ops.definition import kernel_for
from tensorbow.program.blocks import ALIGNMENT, Block, BlockMemory, OperandPlace, blamed, node_spec
from tensorbow.program.cond_op import BranchProgram
from tensorbow.program.nodes import Node, Value
from tensorbow.program.plan import Group, Ref, Region
from tensorbow.program.stacks import HandleWord, frame_at, words_at
from tensorbow.program.while_op import STOPPED, LoopProgram
from tensorbow.specs import Array, TensorSpec, uint8

OPERAND_BITS = 20  # of an operand's word: which operand of the op holds it
BYTE = ir.IntType(8)
WAS_STOPPED, NO_MEMORY = -1, -2  # recorded in place of the number of a table of calls


def program_of(attrs: Attrs) -> LoopProgram | BranchProgram | None:
    """The program in the attributes of While or Cond; None for other ops."""
    found = attrs.get("loop") or attrs.get("branches")
    return found if isinstance(found, (LoopProgram, BranchProgram)) else None


def memory_of(program: LoopProgram | BranchProgram, target: Target) -> BlockMemory:
    """Places of values while native code is planned."""
    return program.memory(
        lambda node: lowering_of(node.definition).scratch(node_spec(node), target),
        lambda node: lowering_of(node.definition).inplace,
        moving=True,
    )


def takes(node: NodeSpec, target: Target) -> bool:
    """True if all nodes inside While or Cond have native code."""
    program = program_of(node.attrs)
    if program is None:
        return False
    operands = len(node.inputs) + len(node.outputs) + 1
    if isinstance(program, LoopProgram):
        operands += len(program.frames)
    return operands < 1 << OPERAND_BITS and all(
        lowering_for(each.definition, node_spec(each), target) is not None for each in program.nodes
    )


def scratch(node: NodeSpec, target: Target) -> Sequence[TensorSpec]:
    """The scratch array of While or Cond."""
    program = program_of(node.attrs)
    if program is None:
        raise InternalError("an op without blocks")
    return [memory_of(program, target).spec]


class BlockEmitter:
    """Emits the calls of an op's blocks, and accesses to the values in them."""

    def __init__(self, emitter: Emitter, group: Group, memory: BlockMemory, frames: int = 0):
        self.emitter = emitter
        self.memory = memory
        self._operands = (*group.inputs, *group.outputs, *group.scratch)
        self._functions = Functions(None, emitter.target, emitter.module)
        self._tables = 0
        self.iteration: ir.Value | None = None  # where a loop counts its iterations
        b = emitter.builder
        with b.goto_entry_block():
            self._bases = b.alloca(POINTER, size=len(self._operands) + frames)
        for position, operand in enumerate(self._operands):
            base = emitter.offset(emitter.address(operand), BYTE, -(operand.offset % ALIGNMENT))
            b.store(base, self._item(position))

    def _item(self, position: int) -> ir.Value:
        return self.emitter.builder.gep(self._bases, [index(position)], source_etype=POINTER)

    def set_frame(self, number: int, base: ir.Value) -> None:
        """Sets where a frame is."""
        self.emitter.builder.store(base, self._item(len(self._operands) + number))

    def _ref(self, place: OperandPlace, spec: TensorSpec) -> Ref:
        """A value in the memory of an operand, whose number stands for the region."""
        operand, offset = place
        if operand < len(self._operands):
            offset += self._operands[operand].offset % ALIGNMENT
        return Ref(cast(Region, operand), offset, spec.extents, spec.dtype)

    def of_value(self, value: Value) -> Ref:
        """Place of a value."""
        return self._ref(self.memory.place(value), value.spec)

    def address(self, value: Value) -> ir.Value:
        """The address of a value."""
        return self.address_of(self.memory.place(value))

    def address_of(self, place: OperandPlace) -> ir.Value:
        """The address of a place."""
        ref = self._ref(place, TensorSpec((), uint8))
        b = self.emitter.builder
        return self.emitter.offset(b.load(self._item(int(ref.region)), typ=POINTER), BYTE, ref.offset)

    def copy(self, to: OperandPlace, source: OperandPlace, spec: TensorSpec) -> None:
        """Copies a value, unless both places are one."""
        if to != source and spec.nbytes:
            self._memory("memcpy", self.address_of(to), self.address_of(source), spec.nbytes)

    def copy_from(self, to: OperandPlace, source: ir.Value, spec: TensorSpec) -> None:
        """Copies a value from an address."""
        if spec.nbytes:
            self._memory("memcpy", self.address_of(to), source, spec.nbytes)

    def clear(self, address: ir.Value, nbytes: int) -> None:
        """Sets bytes to 0."""
        self._memory("memset", address, ir.Constant(BYTE, 0), nbytes)

    def _memory(self, what: str, to: ir.Value, value: ir.Value, nbytes: int) -> None:
        name = "llvm.memcpy.p0.p0.i64" if what == "memcpy" else "llvm.memset.p0.i64"
        kinds = [POINTER, POINTER if what == "memcpy" else BYTE, INT, ir.IntType(1)]
        module = self.emitter.module
        function = module.globals.get(name) or ir.Function(
            module, ir.FunctionType(ir.VoidType(), kinds), name
        )
        self.emitter.builder.call(function, [to, value, index(nbytes), ir.Constant(kinds[3], 0)])

    def refuse(self, condition: ir.Value, table: int, call: ir.Value) -> None:
        """Ends the function where the condition holds, and records which call refuses its input."""
        b = self.emitter.builder
        refused, goes_on = (b.function.append_basic_block(name) for name in (REFUSED, "goes_on"))
        b.cbranch(condition, refused, goes_on)
        b.position_at_end(refused)
        words = self.address_of(self.memory.refusal)
        b.store(index(table), words)
        b.store(call, b.gep(words, [index(1)], source_etype=INT))
        if self.iteration is not None:
            number = b.load(self.iteration, typ=INT)
            b.store(number, b.gep(words, [index(2)], source_etype=INT))
        b.ret(index(0))
        b.position_at_end(goes_on)

    def run(self, block: Block) -> None:
        """Runs all calls of a block; ends the function where one refuses its input."""
        calls = [self._functions.call(self._group(node)) for node in block.nodes]
        module = self.emitter.module
        table = CallTable(module, f"_{len(module.globals)}_block", calls, OPERAND_BITS)
        found = table.emit(self.emitter.builder, self._bases, index(0), index(len(calls)))
        self.refuse(self.emitter.builder.icmp_signed("!=", found, ACCEPTED), self._tables, found)
        self._tables += 1

    def _group(self, node: Node) -> Group:
        seeds = [value for key, value in node.state if key == "seeds"]  # a further input of random ops
        return Group(
            node.name,
            node.definition,
            NativeKernel(
                emit=lowering_of(node.definition).emit, unread=("seed", "seed2") if node.state else ()
            ),
            node.attrs,
            tuple(map(self.of_value, [*node.inputs, *seeds])),
            tuple(map(self.of_value, node.outputs)),
            tuple(self._ref(*each) for each in self.memory.scratch[node]),
            tuple((key, self.of_value(value)) for key, value in node.state if key != "seeds"),
        )


def blocks_of(program: LoopProgram | BranchProgram) -> Sequence[Block]:
    """The blocks of a program, as their tables are numbered."""
    return (program.condition, program.body) if isinstance(program, LoopProgram) else program.branches


def raise_refused(program: LoopProgram | BranchProgram, target: Target, operands: Sequence[Array]) -> None:
    """Raises the error of the call that While or Cond has recorded as the one that refuses its input.

    operands: inputs, outputs and the scratch array as the call has left them.
    """
    table, call, number = (int(word) for word in operands[-1][:24].view(np.int64))
    if table == WAS_STOPPED:
        raise CancelledError(STOPPED)
    if table == NO_MEMORY:
        raise ResourceExhaustedError("no memory for what the iterations keep for the gradient")
    try:
        _raise_of(program, target, operands, blocks_of(program)[table].nodes[call])
    except CancelledError:
        raise
    except TensorBowError as error:
        if isinstance(program, LoopProgram):
            add_iteration(error, program.name, number)
        raise


def _raise_of(
    program: LoopProgram | BranchProgram, target: Target, operands: Sequence[Array], node: Node
) -> None:
    """Raises the error of a node that refuses its input."""
    memory = memory_of(program, target)
    found = _Arrays(program, memory, operands)
    inputs, outputs = (
        [found.array(memory.place(v), v.spec) for v in vs] for vs in (node.inputs, node.outputs)
    )
    scratch = [found.array(*each) for each in memory.scratch[node]]
    inner = program_of(node.attrs)
    try:
        if inner is not None:
            raise_refused(inner, target, (*inputs, *outputs, *scratch))
        kernel = kernel_for(node.definition, "cpu")
        own = [np.empty(s.extents, s.dtype.as_numpy_dtype) for s in kernel.scratch_specs(node_spec(node))]
        with np.errstate(all="ignore"):
            given = tuple(map(read_only, inputs))
            state = {key: found.array(memory.place(value), value.spec) for key, value in node.state}
            kernel.bind(KernelCall(node.attrs, given, tuple(outputs), tuple(own), state))()
    except InternalError:
        raise
    except Exception as error:
        raise blamed(node, error) from error
    raise InternalError(f"native {node.definition.name} refused what its reference kernel takes")


class _Arrays:
    """Arrays of the values of a program after its native code has stopped."""

    def __init__(self, program: LoopProgram | BranchProgram, memory: BlockMemory, operands: Sequence[Array]):
        self._operands = [each.reshape(-1).view(np.uint8) for each in operands]
        for frame in program.frames if isinstance(program, LoopProgram) else ():
            handle, begin = (self.array(memory.place(v), v.spec) for v in (frame.handle, frame.begin))
            if frame.number is None:
                position = int(words_at(handle.ctypes.data, HandleWord.WORDS)[HandleWord.USED]) - 1
            else:
                position = int(begin) + int(self.array(memory.place(frame.number), frame.number.spec))
            made = position >= int(begin)
            empty = np.zeros(frame.nbytes, np.uint8)
            self._operands.append(frame_at(handle, position, frame.nbytes, make=False) if made else empty)

    def array(self, place: OperandPlace, spec: TensorSpec) -> Array:
        operand, offset = place
        taken = self._operands[operand][offset : offset + spec.nbytes]
        array: Array = taken.view(spec.dtype.as_numpy_dtype).reshape(spec.extents)
        return array


def block_lowering(emit: Emit) -> Lowering:
    """The lowering of an op with blocks."""
    return Lowering(emit, takes=takes, scratch=scratch)
