"""The native code of exchanges: one pass over what all replicas hand in.

A replica's own averaging reads and writes its weights and slots and z, and leaves corrections that a pass of
z's reads again. Here the weights are cut into chunks, and each is done for all replicas before the next:
z and the corrections stay in the nearest caches, and memory sees each replica's values and z once. The chunks
are shared out among threads. Each element goes through the same operations in the same order as by the calls
by themselves: the replicas of a device are summed in order, then the devices; so its bits are the same
(Crossbow, VLDB 2019, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from functools import partial

from llvmlite import ir

from tensorbow.kernels.native.codegen.call_table import ACCEPTED, SIGNATURE
from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Bounds, Emitter, constant, index, type_of
from tensorbow.kernels.native.codegen.functions import ALIGNMENT, Functions
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.strips import vector_of
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.ops.finite_check import largest_magnitude_is_infinite
from tensorbow.kernels.native.ops.maps import emit_rule
from tensorbow.kernels.native.rounds.exchange_plan import ExchangeReduction
from tensorbow.kernels.native.rounds.pieces import PIECE_NBYTES, PIECE_SLOTS, emit_first_chunk
from tensorbow.kernels.native.rounds.waiting import wait_function
from tensorbow.kernels.native.rounds.words import (
    LINE,
    SharedWord,
    ThreadWord,
    bytes_on,
    copy_bytes,
    load_pointer,
    load_word,
    word_at,
)
from tensorbow.ops.exchanges import AllGather, AllSum
from tensorbow.program.plan import Group, Ref, Region
from tensorbow.specs import float32

CHUNK = 2048  # elements, at least
BLOCK = 4 * CHUNK  # elements, about, of which workers that share memory tell each other at a time
LAG = 2  # blocks that a worker sums before it waits for those of others; they stay in its caches
SLOTS = 6  # blocks of a thread in shared memory at a time, LAG + 2 at least; they stay in caches, too
PASS = "pass"
WORD, HALF, HALF_BITS = ir.IntType(32), ir.IntType(16), 16  # of float32 that is shared as its upper halves


class PassStage(Enum):
    """Work of a pass: all of an exchange, or with other workers what comes before and after they exchange.

    In between this worker's sums, which become those of all, stand in memory of their own (SUMS), and what
    replicas hand to gathers and broadcasts is in the results of the first device. Workers that share memory
    read each other's sums in the pass, block by block, and need no call for them. Where z, too, lies in
    memory that they share, there is one for all devices of all workers, and each worker moves its share of
    the blocks.
    """

    WHOLE = "whole"
    SUMS = "sums"
    USES = "uses"
    SHARED = "shared"


def pass_module(
    reductions: Sequence[ExchangeReduction],
    copies: Sequence[Group],
    status: Ref,
    target: Target,
    stage: PassStage = PassStage.WHOLE,
    offsets: Sequence[int] = (),
    flags: Sequence[int] = (),
    halves: bool = False,
    shares_central: bool = False,
    piece_slot: int = 0,
) -> ir.Module:
    """The function PASS of a thread's words: its part of an exchange of all replicas.

    copies: gathers and broadcasts. offsets: of each reduction's sums among a worker's, in bytes. flags: the
    number of each reduction's first flag, where workers share memory. halves: they share sums of float32 as
    their upper halves. shares_central: all workers have one z; a thread's first flag tells of its end.
    piece_slot: bytes of memory for a piece of the sums, where two workers exchange piece by piece.
    """
    functions = Functions(status, target)
    function = ir.Function(functions.module, SIGNATURE, PASS)
    entry, start = (function.append_basic_block(name) for name in ("entry", "start"))
    builder = ir.IRBuilder(start)
    emitter = Emitter(target, builder, function.args[0])
    rounding = functions.flush_denormals(builder)
    for number, reduction in enumerate(reductions):
        whole = _Pass(functions, emitter, reduction)
        if stage is PassStage.WHOLE:
            whole.emit(function.args[0])
        elif stage is PassStage.SHARED:
            whole.emit_shared(function.args[0], offsets[number], flags[number], halves, shares_central)
        elif piece_slot:
            whole.emit_piece(function.args[0], stage, offsets[number], piece_slot)
        else:
            whole.emit_stage(function.args[0], stage, offsets[number])
    if shares_central:
        _wait_for_ends(emitter, function.args[0])
    for group in copies:
        _emit_copies(emitter, group, function.args[0], stage)
    functions.restore(builder, rounding)
    builder.ret(ACCEPTED)
    ir.IRBuilder(entry).branch(start)
    return functions.module


class _Part:
    """The code of a part of a call, and the array of addresses that it gets."""

    def __init__(self, functions: Functions, builder: ir.IRBuilder, group: Group):
        self._function, self._slots = functions.part(group)
        with builder.goto_entry_block():
            self._words = builder.alloca(POINTER, size=len(self._slots) + 2)

    def emit(
        self,
        builder: ir.IRBuilder,
        bases: ir.Value,
        bounds: Bounds,
        stand_ins: Mapping[Ref, ir.Value],
    ) -> None:
        """stand_ins: pointers to operands that do not lie in their regions."""
        pointers: dict[tuple[int, int], ir.Value]
        pointers = {(ref.region, ref.offset): pointer for ref, pointer in stand_ins.items()}
        for (region, offset), slot in self._slots.items():
            pointer = pointers.get((region, offset))
            if pointer is None:
                pointer = bytes_on(builder, load_pointer(builder, bases, region), offset)
            builder.store(pointer, word_at(builder, self._words, slot))
        for number, bound in enumerate(bounds):
            builder.store(bound, word_at(builder, self._words, len(self._slots) + number))
        builder.call(self._function, [self._words])


class _Pass:
    """A sum over all replicas of one flat vector, and what is done with it on each device, chunk by chunk.

    The sums of a chunk stand on the stack: in `total` that of all devices, in `device` that of one, and in
    `one` what is added to it.
    """

    def __init__(self, functions: Functions, emitter: Emitter, reduction: ExchangeReduction):
        self._emitter, builder = emitter, emitter.builder
        self._checks = reduction.checks
        (source,), (total,) = reduction.total.inputs, reduction.total.outputs
        self._dtype, self._size, self._itemsize = source.dtype, math.prod(source.shape), source.dtype.size
        maker = reduction.made_by
        self._chunk, self._blocks = chunk_of(reduction), blocks_of(reduction)
        self._chunks_per_block = _chunks_per_block(self._chunk)
        # Refs that only name the sums: in a region that no call of a pass touches.
        self._total, self._device, self._one = (
            replace(source, region=Region.INPUT, offset=number * source.nbytes) for number in range(3)
        )
        self._made = self._one if maker is None else maker.outputs[0]
        part = partial(_Part, functions, builder)
        self._write = part(_sum((source,), self._one) if maker is None else maker)
        self._add = part(_sum((self._device, self._one), self._device))
        self._add_device = part(_sum((self._total, self._device), self._total))
        self._add_two = part(_sum((self._device, self._one), self._total))
        self._uses = [part(self._on_stack(group, total)) for group in reduction.uses]
        if reduction.keeps:
            self._uses.append(part(_sum((self._total,), total)))
        with builder.goto_entry_block():
            scratch = builder.alloca(type_of(self._dtype), size=3 * self._chunk)
            scratch.align = ALIGNMENT
            # Of no element type: 32-bit words are stored there, too.
            self._scratch = builder.inttoptr(builder.ptrtoint(scratch, INT), POINTER)

    def _on_stack(self, group: Group, total: Ref) -> Group:
        """A call that reads the sum where it stands."""
        return replace(group, inputs=tuple(self._total if ref == total else ref for ref in group.inputs))

    def emit(self, thread: ir.Value) -> None:
        """Emits the loop over this thread's chunks."""
        builder = self._emitter.builder
        shared = load_pointer(builder, thread, ThreadWord.SHARED)
        with self._chunks(thread, shared) as bounds:
            sums = self._scratch_of(bounds[0])
            self._emit_sums(shared, bounds, sums)
            self._emit_uses(thread, shared, bounds, sums)

    def emit_stage(self, thread: ir.Value, stage: PassStage, offset: int) -> None:
        """Emits the loop of one stage; the sums of all devices stand in SUMS, at an offset in bytes."""
        builder = self._emitter.builder
        shared = load_pointer(builder, thread, ThreadWord.SHARED)
        total = bytes_on(builder, load_pointer(builder, shared, SharedWord.SUMS), offset)
        with self._chunks(thread, shared) as bounds:
            sums = {**self._scratch_of(bounds[0]), self._total: total}
            if stage is PassStage.SUMS:
                self._emit_sums(shared, bounds, sums)
            else:
                self._emit_uses(thread, shared, bounds, sums)

    def emit_piece(self, thread: ir.Value, stage: PassStage, offset: int, slot: int) -> None:
        """Emits the loop of one stage over this thread's chunks of a piece; see `pieces`.

        slot: bytes of memory for a piece. In SUMS are PIECE_SLOTS of them with this worker's sums, and behind
        these as many with the other one's, which are used over and over.
        """
        b = self._emitter.builder
        shared = load_pointer(b, thread, ThreadWord.SHARED)
        piece = load_word(b, thread, ThreadWord.PIECE)
        back = b.sub(index(offset), b.mul(piece, index(PIECE_NBYTES)), flags=["nsw"])
        begin = b.add(b.mul(b.urem(piece, index(PIECE_SLOTS)), index(slot)), back, flags=["nsw"])
        own = bytes_on(b, load_pointer(b, shared, SharedWord.SUMS), begin)
        geometry = offset, self._chunk * self._itemsize, -(-self._size // self._chunk)
        first = emit_first_chunk(b, piece, *geometry)
        end = emit_first_chunk(b, b.add(piece, index(1)), *geometry)
        share, share_end = self._share(thread, b.sub(end, first))
        with self._bounds_of(b.add(first, share), b.add(first, share_end)) as bounds:
            if stage is PassStage.SUMS:
                self._emit_sums(shared, bounds, {**self._scratch_of(bounds[0]), self._total: own})
            else:
                two = {self._device: own, self._one: bytes_on(b, own, PIECE_SLOTS * slot)}
                with self._parts_of(bounds) as part:
                    sums = {**self._scratch_of(part[0]), **two}
                    self._add_two.emit(b, load_pointer(b, shared, SharedWord.BASES), part, sums)
                    self._emit_uses(thread, shared, part, sums)

    def emit_shared(
        self, thread: ir.Value, offset: int, first_flag: int, halves: bool, shares_central: bool
    ) -> None:
        """Emits the loop over this thread's blocks, where workers share memory.

        It sums a block in the worker's own memory and says so; some blocks behind it adds what the others
        have summed, in the order of workers. Threads wait only for smaller blocks than they have summed, so
        that some thread always goes on. Where all workers have as many threads, so that each reads from one
        thread of each other, SLOTS blocks of memory are used over and over: who has told of a block has read
        all that are more than LAG before it. halves: of float32, the upper 16 bits of the sums are shared.
        shares_central: one worker adds up the sums of a block, and moves z there; block by block another one.
        All have read z when they tell of their sums.
        """
        halves = halves and self._dtype == float32
        e, b = self._emitter, self._emitter.builder
        shared = load_pointer(b, thread, ThreadWord.SHARED)
        workers, worker = (load_word(b, shared, word) for word in (SharedWord.WORKERS, SharedWord.WORKER))
        exchange = load_word(b, load_pointer(b, shared, SharedWord.CONTROL), 1)
        wait = b.module.globals.get("wait") or wait_function(b.module, e.target)

        first, last = self._share(thread, self._blocks)
        own_slots = b.mul(load_word(b, thread, ThreadWord.NUMBER), index(SLOTS))
        reuses = self._reuses_slots(thread, shared)
        block_size = self._chunks_per_block * self._chunk
        block_nbytes = block_size * (self._itemsize // 2 if halves else self._itemsize)

        def sums_of(number: ir.Value, block: ir.Value) -> ir.Value:
            """Base address of a worker's sums, to which the offset of a block among all is added."""
            slot = b.add(own_slots, b.urem(b.sub(block, first), index(SLOTS)))
            back = b.mul(b.sub(b.select(reuses, slot, block), block), index(block_nbytes), flags=["nsw"])
            sums = load_pointer(b, load_pointer(b, shared, SharedWord.WORKER_SUMS), number)
            return bytes_on(b, bytes_on(b, sums, offset), back)

        def flag_of(number: ir.Value, block: ir.Value) -> ir.Value:
            flags = load_pointer(b, load_pointer(b, shared, SharedWord.WORKER_FLAGS), number)
            return word_at(b, flags, b.mul(b.add(block, index(first_flag)), index(LINE)))

        def wait_for(block: ir.Value) -> None:
            with e.loop(workers) as number:
                b.call(wait, [flag_of(number, block), exchange])

        def is_here(block: ir.Value) -> ir.Value:
            if not shares_central:
                return ir.Constant(ir.IntType(1), 1)
            return b.icmp_signed("==", b.urem(block, workers), worker)

        with e.loop(b.add(last, index(LAG)), first) as block:
            with b.if_then(b.icmp_signed("<", block, last)):
                is_used = b.icmp_signed(">=", b.sub(block, index(SLOTS)), first)
                with b.if_then(b.and_(reuses, is_used)):
                    wait_for(b.sub(block, index(SLOTS - LAG - 1)))
                with self._chunks_of(block) as bounds:
                    sums = self._scratch_of(bounds[0])
                    if halves:
                        self._emit_sums(shared, bounds, sums)
                        _to_halves(e, sums[self._total], sums_of(worker, block), bounds)
                    else:
                        self._emit_sums(shared, bounds, {**sums, self._total: sums_of(worker, block)})
                b.atomic_rmw("xchg", flag_of(worker, block), exchange, "release")
            behind = b.sub(block, index(LAG))
            with b.if_then(b.icmp_signed(">=", behind, first)), b.if_then(is_here(behind)):
                wait_for(behind)
                with self._chunks_of(behind) as chunk, self._parts_of(chunk) as bounds:
                    sums = self._scratch_of(bounds[0])
                    bases = load_pointer(b, shared, SharedWord.BASES)

                    def read(number: ir.Value, into: Ref) -> dict[Ref, ir.Value]:
                        source = sums_of(number, behind)
                        if not halves:
                            return {**sums, into: source}
                        _from_halves(e, source, sums[into], bounds)
                        return sums

                    two = {
                        ref: read(index(number), ref)[ref]
                        for number, ref in enumerate((self._device, self._one))
                    }
                    self._add_two.emit(b, bases, bounds, {**sums, **two})
                    with e.loop(workers, index(2)) as number:
                        self._add_device.emit(b, bases, bounds, read(number, self._device))
                    self._emit_uses(thread, shared, bounds, sums, once=shares_central)

    def _reuses_slots(self, thread: ir.Value, shared: ir.Value) -> ir.Value:
        """True if all workers have as many threads, and the memory has room for SLOTS blocks of each."""
        e, b = self._emitter, self._emitter.builder
        threads = load_word(b, thread, ThreadWord.THREADS)
        with b.goto_entry_block():
            reuses = b.alloca(ir.IntType(1))
        has_room = b.icmp_signed("<", b.mul(threads, index(SLOTS)), index(self._blocks))
        b.store(has_room, reuses)
        with e.loop(load_word(b, shared, SharedWord.WORKERS)) as number:
            others = load_pointer(b, load_pointer(b, shared, SharedWord.WORKER_THREADS), number)
            is_equal = b.icmp_signed("==", load_word(b, others, 0), threads)
            b.store(b.and_(b.load(reuses, typ=ir.IntType(1)), is_equal), reuses)
        return b.load(reuses, typ=ir.IntType(1))

    @contextmanager
    def _chunks_of(self, block: ir.Value) -> Iterator[Bounds]:
        """The loop over a block's chunks: their bounds."""
        b = self._emitter.builder
        first = b.mul(block, index(self._chunks_per_block), flags=["nsw"])
        last = b.add(first, index(self._chunks_per_block), flags=["nsw"])
        end = index(-(-self._size // self._chunk))
        with self._bounds_of(first, b.select(b.icmp_signed("<", last, end), last, end)) as bounds:
            yield bounds

    @contextmanager
    def _chunks(self, thread: ir.Value, shared: ir.Value) -> Iterator[Bounds]:
        """The loop over this thread's chunks: their bounds."""
        with self._bounds_of(*self._share(thread, -(-self._size // self._chunk))) as bounds:
            yield bounds

    def _share(self, thread: ir.Value, count: int | ir.Value) -> tuple[ir.Value, ir.Value]:
        """The first of this thread's of so many parts, and the one behind its last."""
        builder = self._emitter.builder
        number, threads = (
            load_word(builder, thread, word) for word in (ThreadWord.NUMBER, ThreadWord.THREADS)
        )
        parts = index(count) if isinstance(count, int) else count
        first, last = (
            builder.udiv(builder.mul(parts, own), threads) for own in (number, builder.add(number, index(1)))
        )
        return first, last

    @contextmanager
    def _bounds_of(self, first: ir.Value, last: ir.Value) -> Iterator[Bounds]:
        """The loop over chunks, by their numbers."""
        e, builder = self._emitter, self._emitter.builder
        with e.loop(last, first) as chunk:
            begin = builder.mul(chunk, index(self._chunk), flags=["nsw"])
            rest = builder.add(begin, index(self._chunk), flags=["nsw"])
            in_range = builder.icmp_signed("<", rest, index(self._size))
            yield begin, builder.select(in_range, rest, index(self._size))

    @contextmanager
    def _parts_of(self, bounds: Bounds) -> Iterator[Bounds]:
        """The loop over parts of a chunk whose sums stay in the first-level cache: their bounds."""
        e, (begin, end) = self._emitter, bounds
        with e.loop(end, begin, CHUNK) as first:
            last = e.builder.add(first, index(CHUNK), flags=["nsw"])
            yield first, e.builder.select(e.builder.icmp_signed("<", last, end), last, end)

    def _scratch_of(self, begin: ir.Value) -> dict[Ref, ir.Value]:
        """Addresses of a chunk's sums on the stack, as if whole vectors were there."""
        builder = self._emitter.builder
        back = builder.mul(begin, index(-self._itemsize), flags=["nsw"])
        rows = [builder.add(back, index(row * self._chunk * self._itemsize)) for row in range(3)]
        pointers = (bytes_on(builder, self._scratch, row) for row in rows)
        return dict(zip((self._total, self._device, self._one), pointers, strict=True))

    def _emit_sums(self, shared: ir.Value, bounds: Bounds, sums: Mapping[Ref, ir.Value]) -> None:
        """The sum of a chunk over this process's devices."""
        e, builder, total = self._emitter, self._emitter.builder, sums[self._total]
        self._sum_device(shared, index(0), bounds, {**sums, self._device: total}, total)
        with e.loop(load_word(builder, shared, SharedWord.DEVICES), index(1)) as device_number:
            self._sum_device(shared, device_number, bounds, sums, sums[self._device])
            self._add_device.emit(builder, load_pointer(builder, shared, SharedWord.BASES), bounds, sums)

    def _emit_uses(
        self,
        thread: ir.Value,
        shared: ir.Value,
        bounds: Bounds,
        sums: Mapping[Ref, ir.Value],
        once: bool = False,
    ) -> None:
        """The check of a chunk's sum, and what each device does with it; once: the first one, for all."""
        e, builder = self._emitter, self._emitter.builder
        if self._checks:
            self._check(thread, shared, sums[self._total], bounds)
        central = load_pointer(builder, shared, SharedWord.CENTRAL)
        devices = index(1) if once else load_word(builder, shared, SharedWord.DEVICES)
        with e.loop(devices) as device_number:
            bases = load_pointer(builder, central, device_number)
            for use in self._uses:
                use.emit(builder, bases, bounds, sums)

    def _check(self, thread: ir.Value, shared: ir.Value, total: ir.Value, bounds: Bounds) -> None:
        """Tells of a sum that is not finite: then its mean is not, either."""
        b = self._emitter.builder
        with b.if_then(
            largest_magnitude_is_infinite(self._emitter, total, self._dtype, bounds), likely=False
        ):
            meeting = load_word(b, thread, ThreadWord.MEETING)
            b.atomic_rmw("xchg", word_at(b, shared, SharedWord.NOT_FINITE), meeting, "release")

    def _sum_device(
        self,
        shared: ir.Value,
        device: ir.Value,
        bounds: Bounds,
        sums: Mapping[Ref, ir.Value],
        target: ir.Value,
    ) -> None:
        """The sum over a device's replicas, in their order."""
        e, builder = self._emitter, self._emitter.builder
        replicas = load_pointer(builder, shared, SharedWord.BASES)
        firsts = load_pointer(builder, shared, SharedWord.FIRST)
        first, end = (
            load_word(builder, firsts, number) for number in (device, builder.add(device, index(1)))
        )
        self._write.emit(builder, load_pointer(builder, replicas, first), bounds, {self._made: target})
        with e.loop(end, builder.add(first, index(1))) as replica:
            bases = load_pointer(builder, replicas, replica)
            self._write.emit(builder, bases, bounds, {self._made: sums[self._one]})
            self._add.emit(builder, bases, bounds, sums)


def _wait_for_ends(e: Emitter, thread: ir.Value) -> None:
    """Waits until all threads of all workers have come here: then z is whole."""
    b = e.builder
    shared = load_pointer(b, thread, ThreadWord.SHARED)
    workers, worker = (load_word(b, shared, word) for word in (SharedWord.WORKERS, SharedWord.WORKER))
    exchange = load_word(b, load_pointer(b, shared, SharedWord.CONTROL), 1)
    wait = b.module.globals.get("wait") or wait_function(b.module, e.target)

    def flag_of(number: ir.Value, of_thread: ir.Value) -> ir.Value:
        flags = load_pointer(b, load_pointer(b, shared, SharedWord.WORKER_FLAGS), number)
        return word_at(b, flags, b.mul(of_thread, index(LINE)))

    b.atomic_rmw("xchg", flag_of(worker, load_word(b, thread, ThreadWord.NUMBER)), exchange, "release")
    with e.loop(workers) as number:
        threads = load_word(b, load_pointer(b, load_pointer(b, shared, SharedWord.WORKER_THREADS), number), 0)
        with e.loop(threads) as other:
            b.call(wait, [flag_of(number, other), exchange])


def _to_halves(e: Emitter, source: ir.Value, target: ir.Value, bounds: Bounds) -> None:
    """Stores the upper halves of float32 elements, those from the first bound to before the second."""
    for lanes, position in _strips(e, bounds):
        wide, narrow = vector_of(WORD, lanes), vector_of(HALF, lanes)
        bits = e.load(e.offset(source, WORD, position), wide, 4)
        half = e.builder.trunc(e.builder.lshr(bits, constant(wide, HALF_BITS)), narrow)
        e.store(half, e.offset(target, HALF, position), 2)


def _from_halves(e: Emitter, source: ir.Value, target: ir.Value, bounds: Bounds) -> None:
    """Stores the float32 elements whose upper halves are given; their lower ones are zeros."""
    for lanes, position in _strips(e, bounds):
        wide, narrow = vector_of(WORD, lanes), vector_of(HALF, lanes)
        half = e.load(e.offset(source, HALF, position), narrow, 2)
        bits = e.builder.shl(e.builder.zext(half, wide), constant(wide, HALF_BITS))
        e.store(bits, e.offset(target, WORD, position), 4)


def _strips(e: Emitter, bounds: Bounds) -> Iterator[tuple[int, ir.Value]]:
    """Loops over elements, whole vectors first: how many are done at a time, and the first of them."""
    b, (first, end) = e.builder, bounds
    most = e.target.lanes(WORD.width // 8)
    whole = b.add(first, b.mul(b.udiv(b.sub(end, first), index(most)), index(most)))
    for lanes, start, stop in ((most, first, whole), (1, whole, end)):
        with e.loop(stop, start, step=lanes) as position:
            yield lanes, position


def blocks_of(reduction: ExchangeReduction) -> int:
    """Number of a reduction's blocks: so many flags has each worker that shares memory."""
    chunk = chunk_of(reduction)
    return -(-math.prod(reduction.total.inputs[0].shape) // (_chunks_per_block(chunk) * chunk))


def _chunks_per_block(chunk: int) -> int:
    return max(1, BLOCK // chunk)


def chunk_of(reduction: ExchangeReduction) -> int:
    """Elements of a reduction's chunks."""
    maker = reduction.made_by
    grain = maker.kernel.grain if maker is not None and isinstance(maker.kernel, NativeKernel) else 1
    return -(-CHUNK // grain) * grain


def _sum(inputs: tuple[Ref, ...], output: Ref) -> Group:
    kernel = NativeKernel(emit=emit_rule, emit_part=emit_rule)
    return Group(AllSum.name, AllSum, kernel, {}, inputs, (output,))


def _emit_copies(emitter: Emitter, group: Group, thread: ir.Value, stage: PassStage) -> None:
    """Copies what replicas hand in to the results of all devices; each thread copies for some replicas.

    With other workers to those of the first device; and then from there to the others.
    """
    e, b = emitter, emitter.builder
    (source,), (result,) = group.inputs, group.outputs
    if not source.nbytes:
        return
    shared = load_pointer(b, thread, ThreadWord.SHARED)
    replicas, central = (load_pointer(b, shared, word) for word in (SharedWord.BASES, SharedWord.CENTRAL))
    count, devices = (load_word(b, shared, word) for word in (SharedWord.COUNT, SharedWord.DEVICES))
    number, threads = (load_word(b, thread, word) for word in (ThreadWord.NUMBER, ThreadWord.THREADS))

    def result_of(device: ir.Value) -> ir.Value:
        return bytes_on(b, load_pointer(b, load_pointer(b, central, device), result.region), result.offset)

    if stage is PassStage.USES:
        with (
            e.loop(devices, index(1)) as device,
            b.if_then(b.icmp_signed("==", b.urem(device, threads), number)),
        ):
            copy_bytes(b, result_of(device), result_of(index(0)), index(result.nbytes))
        return
    gathers = group.definition is AllGather
    before = load_word(b, shared, SharedWord.FIRST_REPLICA)  # replicas of other workers
    with e.loop(count) as replica, b.if_then(b.icmp_signed("==", b.urem(replica, threads), number)):
        of_all = b.add(replica, before)
        is_given = b.icmp_signed("==", of_all, index(group.attrs.get("source", -1)))
        with b.if_then(ir.Constant(ir.IntType(1), 1) if gathers else is_given):
            handed = bytes_on(
                b, load_pointer(b, load_pointer(b, replicas, replica), source.region), source.offset
            )
            start = b.mul(of_all, index(source.nbytes if gathers else 0))
            with e.loop(devices if stage is PassStage.WHOLE else index(1)) as device:
                copy_bytes(b, bytes_on(b, result_of(device), start), handed, index(source.nbytes))
