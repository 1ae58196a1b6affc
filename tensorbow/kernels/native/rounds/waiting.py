"""How native code waits for other threads and processes: it spins for a moment, then lets others run."""

from __future__ import annotations

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, POINTER, index
from tensorbow.kernels.native.codegen.target import Target

YIELD = "tensorbow_let_others_run"  # the C function that gives the processor to another thread
SPINS = 100  # looks before a thread that waits lets others run


def rest_function(module: ir.Module, target: Target) -> ir.Function:
    """The function (looks so far), to be called between two looks."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INT]), "rest")
    function.linkage = "internal"
    entry, let, done = map(function.append_basic_block, ("entry", "let", "done"))
    b = ir.IRBuilder(entry)
    _pause(module, b, target)
    b.cbranch(b.icmp_signed("<", function.args[0], index(SPINS)), done, let)
    b.position_at_end(let)
    b.call(ir.Function(module, ir.FunctionType(ir.IntType(32), []), YIELD), [])
    b.branch(done)
    ir.IRBuilder(done).ret_void()
    return function


def wait_function(module: ir.Module, target: Target) -> ir.Function:
    """The function (address of a word, number): returns when the word is that number or a greater one."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, INT]), "wait")
    function.linkage = "internal"
    word, wanted = function.args
    rest = rest_function(module, target)
    entry, look, again, done = map(function.append_basic_block, ("entry", "look", "again", "done"))
    ir.IRBuilder(entry).branch(look)
    b = ir.IRBuilder(look)
    looks = b.phi(INT)
    looks.add_incoming(index(0), entry)
    has_come = b.icmp_signed(">=", b.load_atomic(word, "acquire", 8, typ=INT), wanted)
    b.cbranch(has_come, done, again)
    b.position_at_end(again)
    b.call(rest, [looks])
    looks.add_incoming(b.add(looks, index(1)), again)
    b.branch(look)
    ir.IRBuilder(done).ret_void()
    return function


def _pause(module: ir.Module, b: ir.IRBuilder, target: Target) -> None:
    """Tells the processor that this is a loop that waits."""
    nothing = ir.VoidType()
    if target.triple.startswith("x86_64"):
        b.call(ir.Function(module, ir.FunctionType(nothing, []), "llvm.x86.sse2.pause"), [])
    elif target.triple.startswith(("aarch64", "arm64")):
        hint = ir.Function(module, ir.FunctionType(nothing, [ir.IntType(32)]), "llvm.aarch64.hint")
        b.call(hint, [ir.Constant(ir.IntType(32), 1)])
