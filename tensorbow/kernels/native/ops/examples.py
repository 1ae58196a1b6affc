"""Native code of batches made from a data set of pictures."""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter, constant, index
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
    DOWN,
    END,
    LEFT,
    LEVEL,
    MIRRORED,
    PICK,
    RIGHT,
    ROW,
    TOP,
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
    builder = emitter.builder
    with emitter.loop(batch) as number:

        def column(which: int, number: ir.Value = number) -> ir.Value:
            return picks.load(sums(emitter, scaled(emitter, number, columns), which))

        row, down, right, mirrored = (column(which) for which in (ROW, DOWN, RIGHT, MIRRORED))
        targets.store(labels.load(row), number)
        source, target = scaled(emitter, row, pixels), scaled(emitter, number, pixels)
        with builder.if_else(builder.icmp_signed("!=", mirrored, index(0))) as (mirror, plain):
            with mirror:
                normalise.mirrored(source, target, shape, (down, right))
            with plain:
                moves = builder.icmp_signed("!=", builder.or_(down, right), index(0))
                with builder.if_else(moves) as (move, still):
                    with move:
                        normalise.moved(source, target, shape, (down, right))
                    with still:
                        normalise.all(source, target, pixels)
        if columns > PICK:
            top, left, bottom, end = (column(which) for which in (TOP, LEFT, BOTTOM, END))
            normalise.hidden(target, shape, (top, bottom), (left, end), column(LEVEL))


class _Normalisation:
    """Pixels as float32: x * scale - shift, both steps rounded."""

    def __init__(self, emitter: Emitter, group: Group, pictures: Elements, images: Elements):
        self._emitter, self._pictures, self._images = emitter, pictures, images
        self._affine = [float(np.float32(group.attrs[name])) for name in ("scale", "shift")]

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
        level = e.builder.trunc(level, self._pictures.kind)
        with e.loop(bottom, top) as y:
            row = sums(e, target, scaled(e, y, width * channels))
            with e.loop(scaled(e, end, channels), scaled(e, left, channels)) as at:
                self._store(level, sums(e, row, at), 1)

    def _clipped(self, ends: tuple[ir.Value, ir.Value], extent: int) -> tuple[ir.Value, ir.Value]:
        b, (first, end) = self._emitter.builder, ends
        first = b.select(b.icmp_signed("<", first, index(0)), index(0), first)
        return first, b.select(b.icmp_signed("<", index(extent), end), index(extent), end)

    def _store(self, values: ir.Value, position: ir.Value, width: int) -> None:
        b, kind = self._emitter.builder, vector_of(self._images.kind, width)
        scale, shift = (constant(kind, number) for number in self._affine)
        self._images.store(b.fsub(b.fmul(b.uitofp(values, kind), scale), shift), position)


lower(MakeBatch, Lowering(_emit))
