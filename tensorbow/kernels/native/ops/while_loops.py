"""Native code of While: condition and body are tables of calls, run until the condition is false."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
from llvmlite import ir

from tensorbow.errors import InternalError
from tensorbow.kernels.native.codegen.blocks import (
    BYTE,
    NO_MEMORY,
    WAS_STOPPED,
    BlockEmitter,
    block_lowering,
    memory_of,
)
from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index
from tensorbow.kernels.native.codegen.lowering import lower
from tensorbow.program.blocks import StackFrame
from tensorbow.program.control_forms import While
from tensorbow.program.plan import Group
from tensorbow.program.stacks import GROW, GROW_CALLBACK, HandleWord
from tensorbow.program.while_op import LoopProgram

llvm.add_symbol(GROW, ctypes.cast(GROW_CALLBACK, ctypes.c_void_p).value)


class _LoopWriter:
    """The code of one loop."""

    def __init__(self, emitter: Emitter, group: Group):
        self._loop: LoopProgram = group.attrs["loop"]
        self._group = group
        self._emitter = emitter
        self._memory = memory_of(self._loop, emitter.target)
        self._blocks = BlockEmitter(emitter, group, self._memory, len(self._loop.frames))

    def write(self) -> None:
        """Emits the loop at the end of the function."""
        loop, blocks, b = self._loop, self._blocks, self._emitter.builder
        with b.goto_entry_block():
            number = b.alloca(INT)
        b.store(index(0), number)
        blocks.iteration = number
        for value, variable in zip(self._group.inputs, loop.variables, strict=False):
            blocks.copy_from(self._memory.place(variable), self._emitter.address(value), variable.spec)
        for handle in loop.handles:
            b.store(index(0), self._word(blocks.address(handle), HandleWord.USED))
        if loop.own is not None:
            used = b.load(self._word(blocks.address(loop.own.handle), HandleWord.USED), typ=INT)
            b.store(used, blocks.address(loop.own.begin))
        head, body, end = (b.function.append_basic_block(name) for name in ("head", "body", "end"))
        b.branch(head)
        b.position_at_end(head)
        stops = b.load_atomic(blocks.address(loop.stop), "monotonic", 8, typ=INT)
        blocks.refuse(b.icmp_signed("!=", stops, index(0)), WAS_STOPPED, index(0))
        blocks.run(loop.condition)
        holds = b.load(blocks.address(loop.holds), typ=BYTE)
        b.cbranch(b.icmp_unsigned("!=", holds, ir.Constant(BYTE, 0)), body, end)
        b.position_at_end(body)
        for which, frame in enumerate(loop.frames):
            blocks.set_frame(which, self._frame(frame, b.load(number, typ=INT)))
        blocks.run(loop.body)
        self._copy_results()
        b.store(b.add(b.load(number, typ=INT), index(1)), number)
        b.branch(head)
        b.position_at_end(end)

    def _word(self, handle: ir.Value, which: HandleWord) -> ir.Value:
        return self._emitter.builder.gep(handle, [index(which)], source_etype=INT)

    def _frame(self, frame: StackFrame, number: ir.Value) -> ir.Value:
        """The address of a frame; a new one is made at the end of the stack."""
        blocks, b = self._blocks, self._emitter.builder
        handle = blocks.address(frame.handle)
        begin = b.load(blocks.address(frame.begin), typ=INT)
        if frame.number is not None:
            kind = ir.IntType(8 * frame.number.spec.dtype.size)
            at = b.load(blocks.address(frame.number), typ=kind)
            number = at if kind == INT else b.sext(at, INT)
        position = b.add(begin, number)
        if frame.number is None:
            following = b.add(position, index(1))
            needed = b.mul(following, index(frame.nbytes))
            room = b.load(self._word(handle, HandleWord.NBYTES), typ=INT)
            with b.if_then(b.icmp_signed("<", room, needed), likely=False):
                grown = b.call(self._grow(), [b.ptrtoint(handle, INT), needed])
                blocks.refuse(b.icmp_signed("==", grown, index(0)), NO_MEMORY, index(0))
            b.store(following, self._word(handle, HandleWord.USED))
        first = b.load(self._word(handle, HandleWord.ADDRESS), typ=POINTER)
        address = b.gep(first, [b.mul(position, index(frame.nbytes))], source_etype=BYTE)
        if frame.zeroed:
            blocks.clear(address, frame.nbytes)
        return address

    def _grow(self) -> ir.Function:
        module = self._emitter.module
        known = module.globals.get(GROW)
        if known is not None and not isinstance(known, ir.Function):
            raise InternalError(f"{GROW} is no function")
        return known or ir.Function(module, ir.FunctionType(INT, [INT, INT]), GROW)

    def _copy_results(self) -> None:
        """Copies the next values of variables that were computed elsewhere."""
        loop, memory, blocks = self._loop, self._memory, self._blocks
        sources = [memory.place(result) for result in loop.results]
        for each, place in memory.moved.items():
            blocks.copy(place, sources[each], loop.results[each].spec)
            sources[each] = place
        for variable, source in zip(loop.variables, sources, strict=True):
            blocks.copy(memory.place(variable), source, variable.spec)


def _emit(emitter: Emitter, group: Group) -> None:
    _LoopWriter(emitter, group).write()


lower(While, block_lowering(_emit))
