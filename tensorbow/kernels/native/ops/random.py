"""Native code of the random ops as `tensorbow.ops.sampling` defines them, many blocks at a time.

Integers, uniforms and dropout masks equal the reference bit for bit. Normals of float32 use polynomials;
they differ by the rounding of log, sine and cosine, within 2e-6. About one truncated normal in 10**7
differs entirely, when rounding moves it across 2. Permutations use the reference kernel, which sorts.

Seeds are data, not code: compiled code serves all seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, constant, index, type_of
from tensorbow.kernels.native.codegen.index_checks import index_at
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.philox import RandomStream
from tensorbow.kernels.native.codegen.strips import Accumulator, elements_of, splat, vector_of
from tensorbow.kernels.native.codegen.vector_math import log, sine_and_cosine
from tensorbow.kernels.native.products.microkernel import shared_function
from tensorbow.ops.random import (
    SEEDS,
    DropoutMask,
    RandomStandardNormal,
    RandomUniform,
    RandomUniformInt,
    TruncatedNormal,
    seed_words,
)
from tensorbow.ops.sampling import ATTEMPTS, TRUNCATION
from tensorbow.program.nodes import Unit, Value
from tensorbow.program.plan import Group
from tensorbow.specs import DType, TensorSpec, float32, int64

WORDS = 4  # per block

Vectors = list[ir.Value]  # per lane of a block, its numbers in neighbouring blocks
Draw = Callable[[Emitter, RandomStream, ir.Value, DType], Vectors]
"""(first block) -> numbers of a type, from as many blocks side by side as a float32 vector has elements."""


def with_seeds(units: Sequence[Unit]) -> list[Unit]:
    """The units; native random ones get their seeds as a further input."""
    return [
        _seeded(u) if u.head.definition.random and isinstance(u.kernel, NativeKernel) else u for u in units
    ]


def _seeded(unit: Unit) -> Unit:
    words = seed_words(unit.head.attrs)
    value = Value(f"{unit.head.name}/seeds", TensorSpec((WORDS,), int64), constant=words)
    assert isinstance(unit.kernel, NativeKernel)
    kernel = replace(unit.kernel, unread=tuple(SEEDS))
    return Unit(unit.nodes, kernel, [*unit.inputs, value], unit.outputs)


def _side_by_side(e: Emitter) -> int:
    return e.target.lanes(float32.size)


def _emit(
    e: Emitter,
    group: Group,
    what: str,
    lanes: int,
    draw: Callable[[Emitter, RandomStream, Sequence[ir.Value]], Callable[[ir.Value], Vectors]],
    operands: Sequence[ir.Value] = (),
) -> None:
    """Fills the output. draw: from the operands, makes a function (first block) -> numbers."""
    (out,) = group.outputs
    size = math.prod(out.shape)
    if not size:
        return
    state = dict(group.state)
    stream = [e.load(e.address(state[key]), INT, INT.width // 8) for key in ("random_stream", "counter")]

    def write(inner: Emitter, given: Sequence[ir.Value]) -> None:
        seeds, replica, step, target, count, *rest = given
        _fill(
            inner,
            draw(inner, RandomStream.of(inner, seeds, replica, step), rest),
            target,
            count,
            lanes,
            out.dtype,
        )

    kinds = [operand.type for operand in operands]
    function = shared_function(
        e,
        ("random", what, out.dtype.name, [str(kind) for kind in kinds]),
        [POINTER, INT, INT, POINTER, INT, *kinds],
        write,
    )
    e.builder.call(function, [e.address(group.inputs[-1]), *stream, e.address(out), index(size), *operands])


def _fill(
    e: Emitter,
    draw: Callable[[ir.Value], Vectors],
    target: ir.Value,
    size: ir.Value,
    lanes: int,
    dtype: DType,
) -> None:
    """Stores numbers in the order of elements; the last ones via a local buffer."""
    b, element, width = e.builder, type_of(dtype), _side_by_side(e)
    at_once = index(width * lanes)
    whole = b.udiv(size, at_once)
    done = b.mul(whole, at_once)
    with b.goto_entry_block():
        last = b.alloca(element, size=width * lanes)
    with e.loop(b.udiv(b.add(size, index(width * lanes - 1)), at_once)) as chunk:
        numbers = _interleaved(e, draw(b.mul(chunk, index(width))))
        there = e.offset(target, element, b.mul(chunk, at_once))
        is_whole = b.icmp_signed("<", chunk, whole)
        e.store(numbers, b.select(is_whole, there, last), dtype.size)
    tail = e.offset(target, element, done)
    with e.loop(b.sub(size, done)) as i:
        value = e.load(e.offset(last, element, i), element, dtype.size)
        e.store(value, e.offset(tail, element, i), dtype.size)


def _interleaved(e: Emitter, vectors: Vectors) -> ir.Value:
    """Numbers in block order: the first element of each vector, then the second of each."""
    width = vectors[0].type.count
    while len(vectors) > 1:
        half = len(vectors) // 2
        count = vectors[0].type.count
        lanes = [part * count + lane for lane in range(count) for part in range(2)]
        kind = ir.VectorType(ir.IntType(32), 2 * count)
        vectors = [
            e.builder.shuffle_vector(vectors[i], vectors[half + i], ir.Constant(kind, lanes))
            for i in range(half)
        ]
    assert vectors[0].type.count % width == 0
    return vectors[0]


# Numbers from words -----------------------------------------------------------------------------------


def _uniforms(e: Emitter, stream: RandomStream, start: ir.Value, attempt: ir.Value, dtype: DType) -> Vectors:
    """Uniform numbers in [0, 1): from the upper 24 bits of a word, or the upper 53 of two."""
    b, width, kind = e.builder, _side_by_side(e), type_of(dtype)
    words = stream.blocks(start, width, attempt)
    wide, target = words[0].type, vector_of(kind, width)
    if dtype == float32:
        narrow = vector_of(ir.IntType(32), width)
        parts = [b.trunc(b.lshr(word, constant(wide, 8)), narrow) for word in words]
    else:
        parts = [b.lshr(pair, constant(wide, 11)) for pair in _joined(e, words)]
    scale = constant(target, 2.0**-24 if dtype == float32 else 2.0**-53)
    return [b.fmul(b.sitofp(part, target), scale) for part in parts]


def _joined(e: Emitter, words: Sequence[ir.Value]) -> Vectors:
    """Two 64-bit numbers from four words."""
    half = constant(words[0].type, 32)
    pairs = ((words[0], words[1]), (words[2], words[3]))
    return [e.builder.or_(e.builder.shl(high, half), low) for high, low in pairs]


def _normals(e: Emitter, stream: RandomStream, start: ir.Value, attempt: ir.Value, dtype: DType) -> Vectors:
    """Pairs of uniforms as pairs of normals (Box and Muller, 1958)."""
    b, numbers = e.builder, _uniforms(e, stream, start, attempt, dtype)
    kind = numbers[0].type
    result: Vectors = []
    for u, v in zip(numbers[::2], numbers[1::2], strict=True):
        squared = b.fmul(log(e, b.fsub(constant(kind, 1.0), u)), constant(kind, -2.0))
        radius = e.intrinsic("sqrt", kind, squared)
        sine, cosine = sine_and_cosine(e, b.fmul(v, constant(kind, dtype.as_numpy_dtype.type(2 * math.pi))))
        result += [b.fmul(radius, cosine), b.fmul(sine, radius)]
    return result


def _truncated(e: Emitter, stream: RandomStream, start: ir.Value, dtype: DType) -> Vectors:
    """Normals within two deviations; lanes beyond are drawn again with the next attempt number."""
    b, kind = e.builder, vector_of(type_of(dtype), _side_by_side(e))
    lanes = 4 if dtype == float32 else 2
    found = [Accumulator(e, constant(kind, math.inf)) for _ in range(lanes)]
    limit = constant(kind, TRUNCATION)

    def outside(number: Accumulator) -> ir.Value:
        return b.fcmp_ordered(">", e.intrinsic("fabs", kind, number.get()), limit)

    with e.loop(ATTEMPTS) as attempt:
        beyond = outside(found[0])
        for number in found[1:]:
            beyond = b.or_(beyond, outside(number))
        with b.if_then(e.reduced("or", beyond)):
            for number, again in zip(found, _normals(e, stream, start, attempt, dtype), strict=True):
                number.set(b.select(outside(number), again, number.get()))
    clipped = []
    for number in found:
        sized = e.intrinsic("copysign", kind, limit, number.get())
        clipped.append(b.select(outside(number), sized, number.get()))
    return clipped


# Ops --------------------------------------------------------------------------------------------------


def _floating(what: str, draw: Draw) -> Lowering:
    def emit(e: Emitter, group: Group) -> None:
        dtype = group.outputs[0].dtype

        def drawn(
            inner: Emitter, stream: RandomStream, _: Sequence[ir.Value]
        ) -> Callable[[ir.Value], Vectors]:
            return lambda start: draw(inner, stream, start, dtype)

        _emit(e, group, what, 4 if dtype == float32 else 2, drawn)

    return Lowering(emit)


def _emit_integers(e: Emitter, group: Group) -> None:
    """Draws integers; refuses an empty range."""
    _, *bounds, _ = group.inputs
    b, dtype = e.builder, group.outputs[0].dtype
    low, high = (index_at(e, bound, 0) for bound in elements_of(e, *bounds))
    e.refuse_if(b.icmp_signed(">=", low, high))

    def drawn(
        inner: Emitter, stream: RandomStream, operands: Sequence[ir.Value]
    ) -> Callable[[ir.Value], Vectors]:
        width, builder = _side_by_side(inner), inner.builder
        first, extent = (splat(inner, operand, width) for operand in operands)

        def numbers(start: ir.Value) -> Vectors:
            wide = _joined(inner, stream.blocks(start, width, index(0)))
            values = [builder.add(builder.urem(value, extent), first) for value in wide]
            if dtype == int64:
                return values
            return [builder.trunc(value, vector_of(type_of(dtype), width)) for value in values]

        return numbers

    _emit(e, group, "integers", 2, drawn, (low, b.sub(high, low)))


def _emit_mask(e: Emitter, group: Group) -> None:
    """Keeps an element if the upper 24 bits of its word are at least the rate; NaN for an invalid rate."""
    _, rate, _ = group.inputs
    b, dtype, double = e.builder, group.outputs[0].dtype, ir.DoubleType()
    kind = type_of(dtype)
    share = e.load(e.address(rate), kind, dtype.size)
    share = share if kind == double else b.fpext(share, double)
    sound = b.and_(
        b.fcmp_ordered(">=", share, constant(double, 0.0)), b.fcmp_ordered("<", share, constant(double, 1.0))
    )
    safe = b.select(sound, share, constant(double, 0.0))
    words = b.fptosi(e.intrinsic("ceil", double, b.fmul(safe, constant(double, 2.0**24))), INT)
    scale = b.fdiv(constant(double, 1.0), b.fsub(constant(double, 1.0), safe))
    scale = scale if kind == double else b.fptrunc(scale, kind)
    scale = b.select(sound, scale, constant(kind, math.nan))
    lost = b.select(sound, constant(kind, 0.0), constant(kind, math.nan))

    def drawn(
        inner: Emitter, stream: RandomStream, operands: Sequence[ir.Value]
    ) -> Callable[[ir.Value], Vectors]:
        width = _side_by_side(inner)
        limit, kept, none = (splat(inner, operand, width) for operand in operands)

        def numbers(start: ir.Value) -> Vectors:
            words = stream.blocks(start, width, index(0))
            keeps = [inner.builder.icmp_unsigned(">=", word, limit) for word in words]
            return [inner.builder.select(keep, kept, none) for keep in keeps]

        return numbers

    _emit(e, group, "mask", 4, drawn, (b.shl(words, index(8)), scale, lost))


def _first_attempt(numbers: Callable[..., Vectors]) -> Draw:
    return lambda e, stream, start, dtype: numbers(e, stream, start, index(0), dtype)


lower(RandomUniform, _floating("uniform", _first_attempt(_uniforms)))
lower(RandomStandardNormal, _floating("normal", _first_attempt(_normals)))
lower(TruncatedNormal, _floating("truncated normal", _truncated))
lower(RandomUniformInt, Lowering(_emit_integers))
lower(DropoutMask, Lowering(_emit_mask))
