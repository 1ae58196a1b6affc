"""Calls of single instructions of x86 processors."""

from __future__ import annotations

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter


def x86_instruction(e: Emitter, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    """Calls a processor's instruction. LLVM takes vectors of integers for those of bfloat16, its older form
    of these intrinsics.
    """
    full = f"llvm.x86.{name}"
    known = e.module.globals.get(full)
    if known is None:
        known = ir.Function(e.module, ir.FunctionType(result, [v.type for v in arguments]), full)
    return e.builder.call(known, arguments)
