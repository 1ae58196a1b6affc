"""Native code of Cond: each branch is a table of calls, one of which is run."""

from __future__ import annotations

from llvmlite import ir

from tensorbow.kernels.native.codegen.blocks import BYTE, BlockEmitter, block_lowering, memory_of
from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.lowering import lower
from tensorbow.program.cond_op import BranchProgram
from tensorbow.program.control_forms import Cond
from tensorbow.program.plan import Group


def _emit(emitter: Emitter, group: Group) -> None:
    program: BranchProgram = group.attrs["branches"]
    memory = memory_of(program, emitter.target)
    blocks, b = BlockEmitter(emitter, group, memory), emitter.builder
    pred = b.load(emitter.address(group.inputs[0]), typ=BYTE)
    false, true, end = (b.function.append_basic_block(name) for name in ("false", "true", "end"))
    b.cbranch(b.icmp_unsigned("!=", pred, ir.Constant(BYTE, 0)), true, false)
    first = len(group.inputs)
    for start, block in zip((false, true), program.branches, strict=True):
        b.position_at_end(start)
        blocks.run(block)
        for number, result in enumerate(block.results):
            if result is not None and number not in program.in_place:
                blocks.copy((first + number, 0), memory.place(result), result.spec)
        b.branch(end)
    b.position_at_end(end)


lower(Cond, block_lowering(_emit))
