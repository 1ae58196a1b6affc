"""Native code of batches made from a data set of pictures."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, Emitter, constant, index
from tensorbow.kernels.native.codegen.index_checks import refuse_outside
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.strips import (
    Elements,
    elements_of,
    nest,
    scaled,
    strips,
    sums,
    vector_of,
)
from tensorbow.ops.examples import (
    BOTTOM,
    COLOUR_BITS,
    COLOUR_ONE,
    DOWN,
    END,
    GREY,
    LEFT,
    LEVEL,
    MIRRORED,
    PICK,
    RIGHT,
    ROTATION_BITS,
    ROTATION_ONE,
    ROW,
    SATURATION,
    SINE,
    TOP,
    UPSIDE_DOWN,
    VERSINE,
    MakeBatch,
)
from tensorbow.program.plan import Group


def _emit(emitter: Emitter, group: Group) -> None:
    picks, pictures, labels = elements_of(emitter, *group.inputs)
    images, targets = elements_of(emitter, *group.outputs)
    (batch, columns), (examples, *shape) = group.inputs[0].shape, group.inputs[1].shape
    pixels = math.prod(shape)
    refuse_outside(emitter, picks, batch, examples, stride=columns)
    normalise = _Normalisation(emitter, group, pictures, images)
    with emitter.loop(batch) as number:
        first = scaled(emitter, number, columns)
        pick = [picks.load(sums(emitter, first, column)) for column in range(columns)]
        targets.store(labels.load(pick[ROW]), number)
        source, target = scaled(emitter, pick[ROW], pixels), scaled(emitter, number, pixels)
        (_copied if columns == PICK else _changed)(emitter, normalise, pick, shape, source, target)


def _copied(
    emitter: Emitter,
    normalise: _Normalisation,
    pick: Sequence[ir.Value],
    shape: list[int],
    source: ir.Value,
    target: ir.Value,
) -> None:
    """A picture moved and mirrored."""
    builder, move = emitter.builder, (pick[DOWN], pick[RIGHT])
    with builder.if_else(builder.icmp_signed("!=", pick[MIRRORED], index(0))) as (mirror, plain):
        with mirror:
            normalise.mirrored(source, target, shape, move)
        with plain:
            moves = builder.icmp_signed("!=", builder.or_(*move), index(0))
            with builder.if_else(moves) as (moved, still):
                with moved:
                    normalise.moved(source, target, shape, move)
                with still:
                    normalise.all(source, target, math.prod(shape))


def _changed(
    emitter: Emitter,
    normalise: _Normalisation,
    pick: Sequence[ir.Value],
    shape: list[int],
    source: ir.Value,
    target: ir.Value,
) -> None:
    """A picture changed in all ways; faster where it is only moved, mirrored and hidden in part."""
    builder = emitter.builder
    more = functools.reduce(builder.or_, pick[SINE:])
    with builder.if_else(builder.icmp_signed("!=", more, index(0))) as (changes, few):
        with changes:
            _Changes(emitter, normalise, pick, shape).all(source, target)
        with few:
            _copied(emitter, normalise, pick, shape, source, target)
    normalise.hidden(target, shape, (pick[TOP], pick[BOTTOM]), (pick[LEFT], pick[END]), pick[LEVEL])


class _Normalisation:
    """Pixels as float32: x * scale - shift, both steps rounded."""

    def __init__(self, emitter: Emitter, group: Group, pictures: Elements, images: Elements):
        self._emitter, self._pictures, self._images = emitter, pictures, images
        self._affine = [float(np.float32(group.attrs[name])) for name in ("scale", "shift")]

    def level(self, position: ir.Value) -> ir.Value:
        """A pixel of the data set as an index."""
        return self._emitter.builder.zext(self._pictures.load(position), INT)

    def store_level(self, level: ir.Value, position: ir.Value) -> None:
        """A pixel of the batch from a level 0 to 255."""
        self._store(self._emitter.builder.trunc(level, self._pictures.kind), position, 1)

    def all(self, source: ir.Value, target: ir.Value, pixels: int) -> None:
        """A picture as it is."""

        def convert(at: ir.Value, width: int) -> None:
            values = self._pictures.load(sums(self._emitter, source, at), width)
            self._store(values, sums(self._emitter, target, at), width)

        strips(self._emitter, pixels, self._emitter.target.lanes(self._images.dtype.size), convert)

    def moved(
        self, source: ir.Value, target: ir.Value, shape: list[int], move: tuple[ir.Value, ir.Value]
    ) -> None:
        """A picture moved down and to the right; pixels from outside are 0.

        All of it is moved in one piece, so that columns wrap around; then rows and columns from outside are
        written.
        """
        e, b = self._emitter, self._emitter.builder
        (height, width, channels), (down, right) = shape, move
        row, lanes = width * channels, e.target.lanes(self._images.dtype.size)
        shift = sums(e, scaled(e, down, row), scaled(e, right, channels))
        first, last = self._inside(height * row, shift)
        source = b.sub(source, shift)

        def convert(at: ir.Value, width: int) -> None:
            self._store(self._pictures.load(sums(e, source, at), width), sums(e, target, at), width)

        rest = sums(e, first, b.and_(b.sub(last, first), index(-lanes)))  # fewer than a vector
        with e.loop(rest, first, lanes) as at:
            convert(at, lanes)
        with e.loop(last, rest) as at:
            convert(at, 1)
        top, bottom = (scaled(e, edge, row) for edge in self._inside(height, down))
        self._clear(target, [(index(0), top), (bottom, index(height * row))])
        left, end = (scaled(e, edge, channels) for edge in self._inside(width, right))
        with e.loop(height) as y:
            self._clear(sums(e, target, scaled(e, y, row)), [(index(0), left), (end, index(row))])

    def _inside(self, extent: int, move: ir.Value) -> tuple[ir.Value, ir.Value]:
        """First and end of the target positions whose source is inside; equal where none is."""
        b, zero, all_of_it = self._emitter.builder, index(0), index(extent)
        back = b.icmp_signed("<", move, zero)
        end = b.add(all_of_it, move)
        start = b.select(b.icmp_signed("<", move, all_of_it), move, all_of_it)
        end = b.select(b.icmp_signed("<", end, zero), zero, end)
        return b.select(back, zero, start), b.select(back, end, all_of_it)

    def _clear(self, target: ir.Value, ranges: list[tuple[ir.Value, ir.Value]]) -> None:
        """Writes pixels from outside to ranges of elements."""
        for begin, end in ranges:
            with self._emitter.loop(end, begin) as at:
                self._store(constant(self._pictures.kind, 0), sums(self._emitter, target, at), 1)

    def mirrored(
        self, source: ir.Value, target: ir.Value, shape: list[int], move: tuple[ir.Value, ir.Value]
    ) -> None:
        """A picture mirrored, then moved; pixels from outside are 0."""
        e, b = self._emitter, self._emitter.builder
        (height, width, channels), (down, right) = shape, move
        with nest(e, [(height, (1, 0)), (width, (0, 1))], [0, 0]) as (y, x):
            from_y, from_x = b.sub(y, down), b.sub(index(width - 1), b.sub(x, right))
            inside = b.and_(
                b.icmp_unsigned("<", from_y, index(height)), b.icmp_unsigned("<", from_x, index(width))
            )
            pixel = b.select(inside, sums(e, scaled(e, from_y, width), from_x), index(0))
            first = sums(e, source, scaled(e, pixel, channels))
            to = sums(e, target, scaled(e, sums(e, scaled(e, y, width), x), channels))
            for channel in range(channels):
                value = self._pictures.load(sums(e, first, channel))
                value = b.select(inside, value, constant(self._pictures.kind, 0))
                self._store(value, sums(e, to, channel), 1)

    def hidden(
        self,
        target: ir.Value,
        shape: list[int],
        rows: tuple[ir.Value, ir.Value],
        columns: tuple[ir.Value, ir.Value],
        level: ir.Value,
    ) -> None:
        """A rectangle of a picture, as far as it is inside, behind a level."""
        e, (height, width, channels) = self._emitter, shape
        (top, bottom), (left, end) = self._clipped(rows, height), self._clipped(columns, width)
        with e.loop(bottom, top) as y:
            row = sums(e, target, scaled(e, y, width * channels))
            with e.loop(scaled(e, end, channels), scaled(e, left, channels)) as at:
                self.store_level(level, sums(e, row, at))

    def _clipped(self, ends: tuple[ir.Value, ir.Value], extent: int) -> tuple[ir.Value, ir.Value]:
        b, (first, end) = self._emitter.builder, ends
        first = b.select(b.icmp_signed("<", first, index(0)), index(0), first)
        return first, b.select(b.icmp_signed("<", index(extent), end), index(extent), end)

    def _store(self, values: ir.Value, position: ir.Value, width: int) -> None:
        b, kind = self._emitter.builder, vector_of(self._images.kind, width)
        scale, shift = (constant(kind, number) for number in self._affine)
        self._images.store(b.fsub(b.fmul(b.uitofp(values, kind), scale), shift), position)


class _Changes:
    """A picture rotated, moved and recoloured, pixel by pixel, as `change_picture` says."""

    def __init__(
        self, emitter: Emitter, normalise: _Normalisation, pick: Sequence[ir.Value], shape: Sequence[int]
    ):
        self._emitter, self._normalise, self._pick = emitter, normalise, pick
        self._height, self._width, self._channels = shape
        self._cosine = emitter.builder.sub(index(ROTATION_ONE), pick[VERSINE])

    def all(self, source: ir.Value, target: ir.Value) -> None:
        """All of it but the hidden rectangle."""
        e = self._emitter
        with nest(e, [(self._height, (1, 0)), (self._width, (0, 1))], [0, 0]) as (y, x):
            levels = self._recoloured(self._placed(source, y, x))
            to = sums(e, target, scaled(e, sums(e, scaled(e, y, self._width), x), self._channels))
            for channel, level in enumerate(levels):
                self._normalise.store_level(level, sums(e, to, channel))

    def _placed(self, source: ir.Value, y: ir.Value, x: ir.Value) -> list[ir.Value]:
        """Levels of one pixel, by channel: between the four nearest of the picture; 0 outside of it."""
        b, pick = self._emitter.builder, self._pick
        y, x = b.sub(y, pick[DOWN]), b.sub(x, pick[RIGHT])
        seen = self._inside(y, x)
        ends = index(self._height - 1), index(self._width - 1)
        down, right = (b.sub(b.shl(at, index(1)), end) for at, end in zip((y, x), ends, strict=True))
        starts = (b.mul(end, index(ROTATION_ONE)) for end in ends)
        turned = (
            b.add(b.mul(self._cosine, down), b.mul(pick[SINE], right)),
            b.sub(b.mul(self._cosine, right), b.mul(pick[SINE], down)),
        )
        row, column = (b.add(turn, start) for turn, start in zip(turned, starts, strict=True))
        below, after = (
            b.and_(b.ashr(at, index(ROTATION_BITS + 1 - COLOUR_BITS)), index(COLOUR_ONE - 1))
            for at in (row, column)
        )
        first = [b.ashr(at, index(ROTATION_BITS + 1)) for at in (row, column)]
        totals = [index(COLOUR_ONE * COLOUR_ONE // 2)] * self._channels
        for to_row, to_column in np.ndindex(2, 2):
            weights = (
                weight if to else b.sub(index(COLOUR_ONE), weight)
                for weight, to in ((below, to_row), (after, to_column))
            )
            weight = b.select(seen, b.mul(*weights), index(0))
            levels = self._of(source, b.add(first[0], index(to_row)), b.add(first[1], index(to_column)))
            totals = [b.add(total, b.mul(weight, level)) for total, level in zip(totals, levels, strict=True)]
        return [b.ashr(total, index(2 * COLOUR_BITS)) for total in totals]

    def _inside(self, row: ir.Value, column: ir.Value) -> ir.Value:
        b = self._emitter.builder
        return b.and_(
            b.icmp_unsigned("<", row, index(self._height)), b.icmp_unsigned("<", column, index(self._width))
        )

    def _of(self, source: ir.Value, row: ir.Value, column: ir.Value) -> list[ir.Value]:
        """Levels of a pixel of the mirrored picture, by channel; 0 outside of it."""
        e, b = self._emitter, self._emitter.builder
        inside = self._inside(row, column)
        for which, extent in ((UPSIDE_DOWN, self._height), (MIRRORED, self._width)):
            at = row if which == UPSIDE_DOWN else column
            turned = b.select(
                b.icmp_signed("!=", self._pick[which], index(0)), b.sub(index(extent - 1), at), at
            )
            row, column = (turned, column) if which == UPSIDE_DOWN else (row, turned)
        pixel = b.select(inside, sums(e, scaled(e, row, self._width), column), index(0))
        first = sums(e, source, scaled(e, pixel, self._channels))
        found = (self._normalise.level(sums(e, first, channel)) for channel in range(self._channels))
        return [b.select(inside, level, index(0)) for level in found]

    def _recoloured(self, levels: list[ir.Value]) -> list[ir.Value]:
        b, (saturation, gain, offset) = self._emitter.builder, self._pick[SATURATION:UPSIDE_DOWN]
        if self._channels == len(GREY):
            parts = (b.mul(level, index(weight)) for level, weight in zip(levels, GREY, strict=True))
            grey = b.mul(self._clipped(functools.reduce(b.add, parts)), saturation)
            kept = b.add(index(COLOUR_ONE), saturation)
            levels = [self._clipped(b.sub(b.mul(level, kept), grey)) for level in levels]
        gain = b.add(index(COLOUR_ONE), gain)
        return [self._clipped(b.add(b.mul(level, gain), offset)) for level in levels]

    def _clipped(self, total: ir.Value) -> ir.Value:
        """A sum in units of 1 / COLOUR_ONE, rounded and clipped to a level."""
        b = self._emitter.builder
        level = b.ashr(b.add(total, index(COLOUR_ONE // 2)), index(COLOUR_BITS))
        level = b.select(b.icmp_signed("<", level, index(0)), index(0), level)
        return b.select(b.icmp_signed("<", index(255), level), index(255), level)


lower(MakeBatch, Lowering(_emit))
