"""The update of all replicas of a device and their averaging, as one pass over the weights.

A replica's own pass reads and writes its weights and slots and z, and leaves corrections that a pass of z's
reads again. Here the weights are cut into chunks, and each chunk is done for all replicas before the next:
z and the corrections stay in the nearest caches, and memory sees each replica's values and z once. The chunks
are shared out among the replicas' threads. Each element goes through the same operations in the same order
as by the passes of their own, so its bits are the same (Crossbow, VLDB 2019, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from llvmlite import ir

from tensorbow.graph import OpDef
from tensorbow.kernels.native.codegen.call_table import ACCEPTED, SIGNATURE
from tensorbow.kernels.native.codegen.emitter import POINTER, Emitter, index, type_of
from tensorbow.kernels.native.codegen.functions import ALIGNMENT, Functions
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.ops.maps import emit_rule
from tensorbow.kernels.native.rounds.words import (
    LaunchWord,
    SharedWord,
    bytes_on,
    load_pointer,
    load_word,
    word_at,
)
from tensorbow.ops.averaging import SmaMove, SmaSum
from tensorbow.program.plan import Group, Ref, Region
from tensorbow.specs import float64

CHUNK = 2048  # elements, at least
PASS = "pass"
MU = Ref(Region.STATE, 0, (), float64)  # where z's plan has it


def is_averaged(group: Group) -> bool:
    """Whether a call of a replica leaves corrections for z."""
    return any(ref.region is Region.CORRECTIONS for ref in group.outputs)


def has_parts(group: Group) -> bool:
    """Whether such a call can be done part by part."""
    kernel = group.kernel
    return isinstance(kernel, NativeKernel) and kernel.emit_part is not None and len(group.outputs) == 1


def pass_module(groups: Sequence[Group], status: Ref, momentum: bool, target: Target) -> ir.Module:
    """The function PASS of a launch's words: this replica's part of the work on all replicas.

    groups: updates with averaging, as each replica does them alone. momentum: whether z has one; without, u
    is left alone.
    """
    functions = Functions(status, target)
    function = ir.Function(functions.module, SIGNATURE, PASS)
    entry, start = (function.append_basic_block(name) for name in ("entry", "start"))
    builder = ir.IRBuilder(start)
    emitter = Emitter(target, builder, function.args[0])
    rounding = functions.flush_denormals(builder)
    for group in groups:
        _Averaged(functions, emitter, group, momentum).emit(function.args[0])
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
        bounds: tuple[ir.Value, ir.Value],
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


class _Averaged:
    """One update with averaging, for all replicas."""

    def __init__(self, functions: Functions, emitter: Emitter, group: Group, momentum: bool):
        self._emitter, builder = emitter, emitter.builder
        (self._correction,) = group.outputs
        self._size, itemsize = math.prod(self._correction.shape), self._correction.dtype.size
        grain = group.kernel.grain if isinstance(group.kernel, NativeKernel) else 1
        self._chunk = -(-CHUNK // grain) * grain
        self._update = _Part(functions, builder, group)
        z = next(ref for ref in group.inputs if ref.region is Region.CENTRAL)
        z = replace(z, shape=(self._size,))
        self._total, self._one = (
            replace(z, region=Region.SLAB, offset=number * z.nbytes) for number in range(2)
        )
        self._add = _Part(functions, builder, _call(SmaSum, (self._total, self._one), self._total))
        if momentum:
            velocity = replace(z, region=Region.SLOTS)
            moved = _call(SmaMove, (z, self._total, velocity), z, ("mu", MU))
        else:
            moved = _call(SmaSum, (z, self._total), z)
        self._move = _Part(functions, builder, moved)
        with builder.goto_entry_block():
            self._scratch = builder.alloca(type_of(z.dtype), size=2 * self._chunk)
            self._scratch.align = ALIGNMENT
        self._itemsize = itemsize

    def emit(self, launch: ir.Value) -> None:
        """Emits the loop over this replica's chunks."""
        e, builder = self._emitter, self._emitter.builder
        shared = load_pointer(builder, launch, LaunchWord.SHARED)
        count, own = (
            load_word(builder, shared, SharedWord.COUNT),
            load_word(builder, launch, LaunchWord.INDEX),
        )
        replicas = load_pointer(builder, shared, SharedWord.BASES)
        central = load_pointer(builder, shared, SharedWord.CENTRAL)
        chunks = index(-(-self._size // self._chunk))
        first, last = (
            builder.udiv(builder.mul(chunks, number), count) for number in (own, builder.add(own, index(1)))
        )
        with e.loop(last, first) as chunk:
            begin = builder.mul(chunk, index(self._chunk), flags=["nsw"])
            rest = builder.add(begin, index(self._chunk), flags=["nsw"])
            in_range = builder.icmp_signed("<", rest, index(self._size))
            bounds = begin, builder.select(in_range, rest, index(self._size))
            back = builder.mul(begin, index(-self._itemsize), flags=["nsw"])
            total, one = (
                bytes_on(
                    builder, self._scratch, builder.add(back, index(number * self._chunk * self._itemsize))
                )
                for number in range(2)
            )
            sums = {self._total: total, self._one: one}
            bases = load_pointer(builder, replicas, 0)
            self._update.emit(builder, bases, bounds, {self._correction: total})
            with e.loop(count, index(1)) as replica:
                bases = load_pointer(builder, replicas, replica)
                self._update.emit(builder, bases, bounds, {self._correction: one})
                self._add.emit(builder, bases, bounds, sums)
            self._move.emit(builder, central, bounds, sums)


def _call(definition: OpDef, inputs: tuple[Ref, ...], output: Ref, *state: tuple[str, Ref]) -> Group:
    kernel = NativeKernel(emit_part=emit_rule)
    return Group(definition.name, definition, kernel, {}, inputs, (output,), state=state)
