"""Exchanges of all replicas of a process, each as one pass over the weights.

A replica's own averaging reads and writes its weights and slots and z, and leaves corrections that a pass of
z's reads again. Here the weights are cut into chunks, and each is done for all replicas before the next:
z and the corrections stay in the nearest caches, and memory sees each replica's values and z once. The chunks
are shared out among threads. Each element goes through the same operations in the same order as by the passes
of their own: the replicas of a device are summed in order, then the devices; so its bits are the same
(Crossbow, VLDB 2019, section 3). The mean of gradients is such a pass, too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from llvmlite import ir

from tensorbow.graph import OpDef
from tensorbow.kernels.native.codegen.call_table import ACCEPTED, SIGNATURE
from tensorbow.kernels.native.codegen.emitter import POINTER, Bounds, Emitter, index, type_of
from tensorbow.kernels.native.codegen.functions import ALIGNMENT, Functions
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.ops.finite_check import largest_magnitude_is_infinite
from tensorbow.kernels.native.ops.maps import emit_rule
from tensorbow.kernels.native.rounds.words import (
    SharedWord,
    ThreadWord,
    bytes_on,
    load_pointer,
    load_word,
    word_at,
)
from tensorbow.ops.averaging import GradientMean, SmaMove, SmaSum
from tensorbow.program.plan import Group, Ref, Region
from tensorbow.specs import float64

CHUNK = 2048  # elements, at least
PASS = "pass"
MU = Ref(Region.STATE, 0, (), float64)  # where z's plan has it


def is_averaged(group: Group) -> bool:
    """True if a call of a replica leaves corrections for z."""
    return any(ref.region is Region.CORRECTIONS for ref in group.outputs)


def has_parts(group: Group) -> bool:
    """True if such a call can be done part by part."""
    kernel = group.kernel
    return isinstance(kernel, NativeKernel) and kernel.emit_part is not None and len(group.outputs) == 1


def averaging_module(
    groups: Sequence[Group], status: Ref, momentum: bool, before: int, target: Target
) -> ir.Module:
    """The function PASS of a thread's words: its part of an averaging of all replicas, updates included.

    groups: updates with averaging, as each replica does them alone. momentum: whether z has one; without, u
    is left alone. before: how many bytes from the z that is read lies the one that is moved.
    """

    def make(functions: Functions, emitter: Emitter) -> list[_Pass]:
        return [_Averaged(functions, emitter, group, momentum, before) for group in groups]

    return _pass_module(status, target, make)


def mean_module(means: Sequence[Group], status: Ref, target: Target) -> ir.Module:
    """The function PASS of a thread's words: its part of the mean of all replicas' gradients.

    means: the calls that divide the sum, as z's work has them.
    """

    def make(functions: Functions, emitter: Emitter) -> list[_Pass]:
        return [_Mean(functions, emitter, group) for group in means]

    return _pass_module(status, target, make)


def _pass_module(
    status: Ref, target: Target, make: Callable[[Functions, Emitter], Sequence[_Pass]]
) -> ir.Module:
    functions = Functions(status, target)
    function = ir.Function(functions.module, SIGNATURE, PASS)
    entry, start = (function.append_basic_block(name) for name in ("entry", "start"))
    builder = ir.IRBuilder(start)
    emitter = Emitter(target, builder, function.args[0])
    rounding = functions.flush_denormals(builder)
    for each in make(functions, emitter):
        each.emit(function.args[0])
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
        """stand_ins: where places are that do not lie in their regions."""
        pointers: dict[tuple[int, int], ir.Value]
        pointers = {(ref.region, ref.offset): pointer for ref, pointer in stand_ins.items()}
        for place, slot in self._slots.items():
            pointer = pointers.get(place)
            if pointer is None:
                pointer = bytes_on(builder, load_pointer(builder, bases, place[0]), place[1])
            builder.store(pointer, word_at(builder, self._words, slot))
        for number, bound in enumerate(bounds):
            builder.store(bound, word_at(builder, self._words, len(self._slots) + number))
        builder.call(self._function, [self._words])


class _Pass(ABC):
    """A sum over all replicas of one flat vector, and what is done with it on each device, chunk by chunk.

    The sums of a chunk stand on the stack: in `total` that of all devices, in `device` that of one, and in
    `one` what is added to it.
    """

    def __init__(self, functions: Functions, emitter: Emitter, like: Ref, grain: int):
        """like: the vector. grain: chunks are of a multiple of so many elements."""
        self._emitter, builder = emitter, emitter.builder
        self._size, self._itemsize = math.prod(like.shape), like.dtype.size
        self._chunk = -(-CHUNK // grain) * grain
        # Names for the sums, no places: in the region that no call of a pass touches.
        self._total, self._device, self._one = (
            replace(like, region=Region.SLAB, offset=number * like.nbytes) for number in range(3)
        )
        add = partial(_call, SmaSum)
        self._add = _Part(functions, builder, add((self._device, self._one), self._device))
        self._add_device = _Part(functions, builder, add((self._total, self._device), self._total))
        with builder.goto_entry_block():
            self._scratch = builder.alloca(type_of(like.dtype), size=3 * self._chunk)
            self._scratch.align = ALIGNMENT

    @abstractmethod
    def _write(self, bases: ir.Value, bounds: Bounds, sums: Mapping[Ref, ir.Value], target: ir.Value) -> None:
        """A replica's part of a chunk, to the address `target`."""

    @abstractmethod
    def _use(self, central: ir.Value, bounds: Bounds, sums: Mapping[Ref, ir.Value]) -> None:
        """Emits what a device does with the sum over all replicas."""

    def emit(self, thread: ir.Value) -> None:
        """Emits the loop over this thread's chunks."""
        e, builder = self._emitter, self._emitter.builder
        shared = load_pointer(builder, thread, ThreadWord.SHARED)
        number, threads = (
            load_word(builder, thread, word) for word in (ThreadWord.NUMBER, ThreadWord.THREADS)
        )
        devices = load_word(builder, shared, SharedWord.DEVICES)
        chunks = index(-(-self._size // self._chunk))
        first, last = (
            builder.udiv(builder.mul(chunks, own), threads) for own in (number, builder.add(number, index(1)))
        )
        with e.loop(last, first) as chunk:
            begin = builder.mul(chunk, index(self._chunk), flags=["nsw"])
            rest = builder.add(begin, index(self._chunk), flags=["nsw"])
            in_range = builder.icmp_signed("<", rest, index(self._size))
            bounds = begin, builder.select(in_range, rest, index(self._size))
            back = builder.mul(begin, index(-self._itemsize), flags=["nsw"])
            total, device, one = (
                bytes_on(
                    builder, self._scratch, builder.add(back, index(place * self._chunk * self._itemsize))
                )
                for place in range(3)
            )
            sums = {self._total: total, self._device: device, self._one: one}
            self._sum_device(shared, index(0), bounds, {**sums, self._device: total}, total)
            with e.loop(devices, index(1)) as place:
                self._sum_device(shared, place, bounds, sums, device)
                self._add_device.emit(builder, load_pointer(builder, shared, SharedWord.BASES), bounds, sums)
            self._check(thread, shared, total, bounds)
            central = load_pointer(builder, shared, SharedWord.CENTRAL)
            with e.loop(devices) as place:
                self._use(load_pointer(builder, central, place), bounds, sums)

    @abstractmethod
    def _check(self, thread: ir.Value, shared: ir.Value, total: ir.Value, bounds: Bounds) -> None:
        """Checks the sum of all, a chunk at `total`."""

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
        first, end = (load_word(builder, firsts, place) for place in (device, builder.add(device, index(1))))
        self._write(load_pointer(builder, replicas, first), bounds, sums, target)
        with e.loop(end, builder.add(first, index(1))) as replica:
            bases = load_pointer(builder, replicas, replica)
            self._write(bases, bounds, sums, sums[self._one])
            self._add.emit(builder, bases, bounds, sums)


class _Averaged(_Pass):
    """One update with averaging, for all replicas."""

    def __init__(self, functions: Functions, emitter: Emitter, group: Group, momentum: bool, before: int):
        (self._correction,) = group.outputs
        grain = group.kernel.grain if isinstance(group.kernel, NativeKernel) else 1
        z = next(ref for ref in group.inputs if ref.region is Region.CENTRAL)
        z = replace(z, shape=(math.prod(self._correction.shape),))
        super().__init__(functions, emitter, z, grain)
        self._update = _Part(functions, emitter.builder, group)
        old = replace(z, offset=z.offset + before)
        if momentum:
            velocity = replace(z, region=Region.SLOTS, offset=group.inputs[0].offset)
            moved = _call(SmaMove, (old, self._total, velocity), z, ("mu", MU))
        else:
            moved = _call(SmaSum, (old, self._total), z)
        self._move = _Part(functions, emitter.builder, moved)

    def _write(self, bases: ir.Value, bounds: Bounds, sums: Mapping[Ref, ir.Value], target: ir.Value) -> None:
        self._update.emit(self._emitter.builder, bases, bounds, {self._correction: target})

    def _use(self, central: ir.Value, bounds: Bounds, sums: Mapping[Ref, ir.Value]) -> None:
        self._move.emit(self._emitter.builder, central, bounds, sums)

    def _check(self, thread: ir.Value, shared: ir.Value, total: ir.Value, bounds: Bounds) -> None:
        """Nothing: replicas check their gradients before."""


class _Mean(_Pass):
    """The mean of all replicas' gradients, for every device."""

    def __init__(self, functions: Functions, emitter: Emitter, group: Group):
        """group: the division."""
        (summed,), (mean,) = group.inputs, group.outputs
        super().__init__(functions, emitter, mean, 1)
        gradient = replace(summed, region=Region.GRADIENTS)
        self._take = _Part(functions, emitter.builder, _call(SmaSum, (gradient,), self._one))
        self._dtype = mean.dtype
        divide = replace(_call(GradientMean, (self._total,), mean), attrs=group.attrs)
        self._divide = _Part(functions, emitter.builder, divide)

    def _write(self, bases: ir.Value, bounds: Bounds, sums: Mapping[Ref, ir.Value], target: ir.Value) -> None:
        self._take.emit(self._emitter.builder, bases, bounds, {self._one: target})

    def _use(self, central: ir.Value, bounds: Bounds, sums: Mapping[Ref, ir.Value]) -> None:
        self._divide.emit(self._emitter.builder, central, bounds, sums)

    def _check(self, thread: ir.Value, shared: ir.Value, total: ir.Value, bounds: Bounds) -> None:
        """Tells of a sum that is not finite: then its mean is not, either."""
        b = self._emitter.builder
        with b.if_then(
            largest_magnitude_is_infinite(self._emitter, total, self._dtype, bounds), likely=False
        ):
            meeting = load_word(b, thread, ThreadWord.MEETING)
            b.atomic_rmw("xchg", word_at(b, shared, SharedWord.NOT_FINITE), meeting, "release")


def _call(definition: OpDef, inputs: tuple[Ref, ...], output: Ref, *state: tuple[str, Ref]) -> Group:
    kernel = NativeKernel(emit_part=emit_rule)
    return Group(definition.name, definition, kernel, {}, inputs, (output,), state=state)
