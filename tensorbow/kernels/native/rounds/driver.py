"""Several steps of one replica in one call: batches made, gradients, updates, averaging with the others.

The code is the same for all models; it calls the functions of a step by their addresses. Replicas that
average meet before and after the pass over their weights, each on its own thread. Who waits spins for a
moment, then lets others run. Or one thread does the steps of all, in turn, and nobody waits: what replicas
hand each other then stays in one core's caches, which for the smallest models is more than a second core
gives.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import llvmlite.binding as llvm
from llvmlite import ir

from tensorbow.kernels.native.codegen.call_table import ACCEPTED, SIGNATURE
from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.rounds.words import (
    DONE,
    REFUSED,
    STOPPED,
    LaunchWord,
    RoundsWord,
    RowWord,
    SharedWord,
    bytes_on,
    load_pointer,
    load_word,
    word_at,
)
from tensorbow.program.plan import Region

STEPS, ROUNDS = "steps", "rounds"
YIELD = "tensorbow_let_others_run"  # the C function that gives the processor to another thread
SPINS = 100  # looks before a thread that waits lets others run


def add_yield() -> bool:
    """Tells LLVM where the operating system's function is; False where there is none."""
    on_windows = os.name == "nt"
    library = ctypes.CDLL("kernel32" if on_windows else None)
    name = "SwitchToThread" if on_windows else "sched_yield"
    function = getattr(library, name, None)
    if function is not None:
        llvm.add_symbol(YIELD, ctypes.cast(function, ctypes.c_void_p).value)
    return function is not None


def driver_module(target: Target) -> ir.Module:
    """The functions STEPS of `LaunchWord`s, ROUNDS of `RoundsWord`s; they give DONE, REFUSED or STOPPED."""
    module = ir.Module("joint")
    module.triple = target.triple
    _Steps(module, target).write()
    _Rounds(module, target).write()
    return module


class _Driver:
    """A function in the making, and the replica's launch that it is at."""

    def __init__(self, module: ir.Module, target: Target, name: str):
        self._module = module
        function = ir.Function(module, SIGNATURE, name)
        self._entry, self._start = (function.append_basic_block(name) for name in ("entry", "start"))
        self._b = ir.IRBuilder(self._start)
        self._words = function.args[0]
        self._e = Emitter(target, self._b, self._words)
        self._ends = ir.IRBuilder(self._entry).alloca(ir.IntType(1))  # after this step, before all are done

    def _be_at(self, launch: ir.Value) -> None:
        self._launch = launch
        self._shared = load_pointer(self._b, launch, LaunchWord.SHARED)
        self._bases = load_pointer(self._b, launch, LaunchWord.BASES)

    def _end(self) -> None:
        self._b.ret(index(DONE))
        ir.IRBuilder(self._entry).branch(self._start)

    def _row(self, step: ir.Value) -> ir.Value:
        b, launch = self._b, self._launch
        row_words = load_word(b, launch, LaunchWord.ROW_WORDS)
        return word_at(b, load_pointer(b, launch, LaunchWord.ROWS), b.mul(step, row_words))

    def _averages(self, row: ir.Value) -> ir.Value:
        return self._b.icmp_signed("!=", load_word(self._b, row, RowWord.AVERAGES), index(0))

    def _find_gradient(self, row: ir.Value) -> None:
        """Step scalars, batch, gradient."""
        b = self._b
        self._copy(
            bytes_on(b, load_pointer(b, self._bases, Region.STATE), 0),
            load_pointer(b, row, RowWord.STATE),
            load_word(b, self._shared, SharedWord.STATE_NBYTES),
        )
        self._make_batch(row)
        self._call(SharedWord.GRADIENT)

    def _begin_update(self) -> None:
        """What comes before the pass over the weights, and whether all replicas end with this step."""
        self._call(SharedWord.BEFORE)
        with self._unlikely(self._is_bad()):
            self._set(SharedWord.BAD)

    def _do_pass(self) -> None:
        """This replica's part of it."""
        self._b.call(_function(self._b, load_word(self._b, self._shared, SharedWord.PASS)), [self._launch])

    def _note(self, row: ir.Value, step: ir.Value) -> None:
        """What the step fetches, and that it is done."""
        b = self._b
        self._fetch(load_word(b, row, RowWord.RING))
        b.store(b.add(step, index(1)), word_at(b, self._launch, LaunchWord.DONE))

    def _return_if_it_ends(self) -> None:
        with self._unlikely(self._b.load(self._ends, typ=ir.IntType(1))):
            self._set(SharedWord.STOPPED)
            self._b.ret(index(DONE))

    def _is_bad(self) -> ir.Value:
        """Whether this replica's status is set, and that ends the rounds."""
        b = self._b
        state = load_pointer(b, self._bases, Region.STATE)
        status = b.load(bytes_on(b, state, load_word(b, self._shared, SharedWord.STATUS)), typ=INT, align=8)
        stops = load_word(b, self._launch, LaunchWord.STOPS)
        return b.icmp_signed("!=", b.and_(status, stops), index(0))

    def _make_batch(self, row: ir.Value) -> None:
        """From picks, where there are some, or copies of what is fed."""
        b, launch = self._b, self._launch
        picks = load_word(b, row, RowWord.PICKS)
        with b.if_else(b.icmp_signed("!=", picks, index(0))) as (made, copied):
            with made:
                examples = load_pointer(b, launch, LaunchWord.EXAMPLES)
                b.store(picks, examples)
                b.call(_function(b, load_word(b, launch, LaunchWord.MAKE)), [examples])
            with copied:
                table = load_pointer(b, self._shared, SharedWord.INPUT_TABLE)
                inputs = load_pointer(b, self._bases, Region.INPUT)
                with self._e.loop(load_word(b, self._shared, SharedWord.INPUTS)) as number:
                    entry = word_at(b, table, b.mul(number, index(2)))
                    source = load_pointer(b, row, b.add(number, index(RowWord.SOURCES)))
                    self._copy(bytes_on(b, inputs, load_word(b, entry, 0)), source, load_word(b, entry, 1))

    def _fetch(self, ring: ir.Value) -> None:
        b = self._b
        table = load_pointer(b, self._shared, SharedWord.FETCH_TABLE)
        target = bytes_on(b, load_pointer(b, self._bases, Region.RING), ring)
        with self._e.loop(load_word(b, self._shared, SharedWord.FETCHES)) as number:
            entry = word_at(b, table, b.mul(number, index(4)))
            source = bytes_on(b, load_pointer(b, self._bases, load_word(b, entry, 0)), load_word(b, entry, 1))
            self._copy(bytes_on(b, target, load_word(b, entry, 2)), source, load_word(b, entry, 3))

    def _copy(self, target: ir.Value, source: ir.Value, nbytes: ir.Value) -> None:
        bit = ir.IntType(1)
        kind = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, INT, bit])
        name = "llvm.memcpy.p0.p0.i64"
        function = self._module.globals.get(name) or ir.Function(self._module, kind, name)
        self._b.call(function, [target, source, nbytes, ir.Constant(bit, 0)])

    def _call(self, which: SharedWord) -> None:
        """A function of base addresses; nobody goes on when one of its calls refuses its input."""
        b, launch = self._b, self._launch
        refused = b.call(_function(b, load_word(b, self._shared, which)), [self._bases])
        with self._unlikely(b.icmp_signed("!=", refused, ACCEPTED)):
            b.store(refused, word_at(b, launch, LaunchWord.REFUSED))
            b.store(index(which), word_at(b, launch, LaunchWord.REFUSED_BY))
            self._set(SharedWord.STOPPED)
            b.ret(index(REFUSED))

    def _is_set(self, which: SharedWord) -> ir.Value:
        place = word_at(self._b, self._shared, which)
        return self._b.icmp_signed("!=", self._b.load_atomic(place, "acquire", 8, typ=INT), index(0))

    def _set(self, which: SharedWord) -> None:
        self._b.atomic_rmw("or", word_at(self._b, self._shared, which), index(1), "release")

    def _return_if(self, condition: ir.Value, code: int) -> None:
        with self._unlikely(condition):
            self._b.ret(index(code))

    @contextmanager
    def _unlikely(self, condition: ir.Value) -> Iterator[None]:
        with self._b.if_then(condition, likely=False):
            yield


class _Steps(_Driver):
    """STEPS: those of one replica, which meets the others."""

    def __init__(self, module: ir.Module, target: Target):
        super().__init__(module, target, STEPS)
        self._meet = self._write_meet(target)
        self._meetings = ir.IRBuilder(self._entry).alloca(INT)  # that this thread is through with

    def write(self) -> None:
        """The steps, one after the other."""
        b = self._b
        self._be_at(self._words)
        self._return_if(self._is_set(SharedWord.STOPPED), STOPPED)
        b.store(load_word(b, self._launch, LaunchWord.MEETINGS), self._meetings)
        with self._e.loop(load_word(b, self._launch, LaunchWord.STEPS)) as step:
            row = self._row(step)
            self._find_gradient(row)
            with b.if_else(self._averages(row)) as (together, alone):
                with together:
                    self._begin_update()
                    self._wait_for_all()
                    b.store(self._is_set(SharedWord.BAD), self._ends)  # set by nobody till the next meeting
                    self._do_pass()
                    self._wait_for_all()
                    self._call(SharedWord.AFTER)
                with alone:
                    self._call(SharedWord.UPDATE)
                    b.store(self._is_bad(), self._ends)
            self._note(row, step)
            self._return_if_it_ends()
        self._end()

    def _wait_for_all(self) -> None:
        b = self._b
        now = b.add(b.load(self._meetings, typ=INT), index(1))
        b.store(now, self._meetings)
        count = load_word(b, self._shared, SharedWord.COUNT)
        stopped = b.call(self._meet, [self._shared, b.mul(now, count)])
        self._return_if(b.icmp_signed("!=", stopped, index(0)), STOPPED)

    def _write_meet(self, target: Target) -> ir.Function:
        """The function (shared words, arrivals to wait for): 0 when all have come, 1 when they never will."""
        function = ir.Function(self._module, ir.FunctionType(INT, [POINTER, INT]), "meet")
        function.linkage = "internal"
        shared, wanted = function.args
        names = ("entry", "look", "late", "again", "rest", "let", "come", "never")
        entry, look, late, again, rest, let, come, never = map(function.append_basic_block, names)
        b = ir.IRBuilder(entry)
        arrived = word_at(b, shared, SharedWord.ARRIVED)
        stopped = word_at(b, shared, SharedWord.STOPPED)
        b.atomic_rmw("add", arrived, index(1), "acq_rel")
        b.branch(look)
        b.position_at_end(look)
        spins = b.phi(INT)
        spins.add_incoming(index(0), entry)
        b.cbranch(b.icmp_signed(">=", b.load_atomic(arrived, "acquire", 8, typ=INT), wanted), come, late)
        b.position_at_end(late)
        gave_up = b.icmp_signed("!=", b.load_atomic(stopped, "acquire", 8, typ=INT), index(0))
        b.cbranch(gave_up, again, rest)
        b.position_at_end(again)  # the last may have come, and left, between the two looks
        b.cbranch(b.icmp_signed(">=", b.load_atomic(arrived, "acquire", 8, typ=INT), wanted), come, never)
        b.position_at_end(rest)
        following = b.add(spins, index(1))
        self._pause(b, target)
        spins.add_incoming(following, rest)
        b.cbranch(b.icmp_signed("<", following, index(SPINS)), look, let)
        b.position_at_end(let)
        kind = ir.FunctionType(ir.IntType(32), [])
        b.call(ir.Function(self._module, kind, YIELD), [])
        spins.add_incoming(following, let)
        b.branch(look)
        for block, code in ((come, 0), (never, 1)):
            ir.IRBuilder(block).ret(index(code))
        return function

    def _pause(self, b: ir.IRBuilder, target: Target) -> None:
        """Tells the processor that this is a loop that waits."""
        nothing = ir.VoidType()
        if target.triple.startswith("x86_64"):
            pause = ir.Function(self._module, ir.FunctionType(nothing, []), "llvm.x86.sse2.pause")
            b.call(pause, [])
        elif target.triple.startswith(("aarch64", "arm64")):
            hint = ir.Function(self._module, ir.FunctionType(nothing, [ir.IntType(32)]), "llvm.aarch64.hint")
            b.call(hint, [ir.Constant(ir.IntType(32), 1)])


class _Rounds(_Driver):
    """ROUNDS: the steps of all replicas."""

    def __init__(self, module: ir.Module, target: Target):
        super().__init__(module, target, ROUNDS)

    def write(self) -> None:
        """The rounds, one after the other."""
        b = self._b
        first = load_pointer(b, load_pointer(b, self._words, RoundsWord.LAUNCHES), 0)
        self._be_at(first)
        shared = self._shared
        self._return_if(self._is_set(SharedWord.STOPPED), STOPPED)
        with self._e.loop(load_word(b, first, LaunchWord.STEPS)) as step:
            with self._each_replica():
                self._find_gradient(self._row(step))
                with b.if_else(self._averages(self._row(step))) as (together, alone):
                    with together:
                        self._begin_update()
                    with alone:
                        self._call(SharedWord.UPDATE)
                        with self._unlikely(self._is_bad()):
                            self._set(SharedWord.BAD)
            self._be_at(first)
            with b.if_then(self._averages(self._row(step))):
                with self._each_replica():
                    self._do_pass()
                with self._each_replica():
                    self._call(SharedWord.AFTER)
                met = b.mul(load_word(b, shared, SharedWord.COUNT), index(2))
                b.atomic_rmw("add", word_at(b, shared, SharedWord.ARRIVED), met, "release")
            with self._each_replica():
                self._note(self._row(step), step)
            self._be_at(first)
            b.store(self._is_set(SharedWord.BAD), self._ends)
            self._return_if_it_ends()
        self._end()

    @contextmanager
    def _each_replica(self) -> Iterator[None]:
        b = self._b
        launches = load_pointer(b, self._words, RoundsWord.LAUNCHES)
        with self._e.loop(load_word(b, self._words, RoundsWord.COUNT)) as replica:
            b.store(replica, word_at(b, self._words, RoundsWord.AT))
            self._be_at(load_pointer(b, launches, replica))
            yield


def _function(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """The function at an address."""
    return builder.inttoptr(address, ir.PointerType(SIGNATURE))
