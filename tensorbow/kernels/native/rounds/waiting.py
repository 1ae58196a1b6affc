"""Waiting of native code for other threads and processes: it spins for a moment, then lets others run."""

from __future__ import annotations

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, POINTER, index
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.rounds.system_functions import YIELD
from tensorbow.kernels.native.rounds.words import SharedWord, word_at

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


def barrier_function(module: ir.Module, target: Target) -> ir.Function:
    """The function (shared words, arrivals to wait for): 0 when all have come, 1 when they never will."""
    function = ir.Function(module, ir.FunctionType(INT, [POINTER, INT]), "barrier")
    function.linkage = "internal"
    shared, wanted = function.args
    names = ("entry", "look", "late", "again", "rest", "come", "never")
    entry, look, late, again, rest, come, never = map(function.append_basic_block, names)
    b = ir.IRBuilder(entry)
    arrived = word_at(b, shared, SharedWord.ARRIVED)
    stopped = word_at(b, shared, SharedWord.STOPPED)
    b.atomic_rmw("add", arrived, index(1), "acq_rel")
    b.branch(look)
    b.position_at_end(look)
    looks = b.phi(INT)
    looks.add_incoming(index(0), entry)
    b.cbranch(b.icmp_signed(">=", b.load_atomic(arrived, "acquire", 8, typ=INT), wanted), come, late)
    b.position_at_end(late)
    gave_up = b.icmp_signed("!=", b.load_atomic(stopped, "acquire", 8, typ=INT), index(0))
    b.cbranch(gave_up, again, rest)
    b.position_at_end(again)  # the last may have come, and left, between the two looks
    b.cbranch(b.icmp_signed(">=", b.load_atomic(arrived, "acquire", 8, typ=INT), wanted), come, never)
    b.position_at_end(rest)
    b.call(rest_function(module, target), [looks])
    looks.add_incoming(b.add(looks, index(1)), rest)
    b.branch(look)
    for block, code in ((come, 0), (never, 1)):
        ir.IRBuilder(block).ret(index(code))
    return function


def _pause(module: ir.Module, b: ir.IRBuilder, target: Target) -> None:
    """Tells the processor that this is a loop that waits."""
    nothing = ir.VoidType()
    if target.triple.startswith("x86_64"):
        b.call(ir.Function(module, ir.FunctionType(nothing, []), "llvm.x86.sse2.pause"), [])
    elif target.triple.startswith(("aarch64", "arm64")):
        hint = ir.Function(module, ir.FunctionType(nothing, [ir.IntType(32)]), "llvm.aarch64.hint")
        b.call(hint, [ir.Constant(ir.IntType(32), 1)])
