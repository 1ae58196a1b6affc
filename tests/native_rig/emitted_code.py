"""Code written straight with an emitter, called on arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from llvmlite import ir

from tensorbow.kernels.native.codegen.compiler import compile_module
from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.specs import Array


def call_emitted(
    write: Callable[[Emitter, Sequence[ir.Value]], None], arrays: Sequence[Array], target: Target
) -> None:
    """Calls the code that write(emitter, addresses of the arrays) emits."""
    module = ir.Module("test")
    module.triple = target.triple
    function = ir.Function(module, ir.FunctionType(INT, [POINTER]), "run")
    emitter = Emitter(target, ir.IRBuilder(function.append_basic_block("entry")), function.args[0])
    builder = emitter.builder
    addresses = [
        builder.load(builder.gep(function.args[0], [index(i)], source_etype=POINTER), typ=POINTER)
        for i in range(len(arrays))
    ]
    write(emitter, addresses)
    builder.ret(index(-1))
    code = compile_module(module, target, None)
    bases = (ctypes.c_void_p * len(arrays))(*(x.ctypes.data for x in arrays))
    code.function("run")(ctypes.addressof(bases))
