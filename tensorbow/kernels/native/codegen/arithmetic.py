"""The arithmetic of an element type on scalars and vectors, with NumPy's rules for NaN and overflow."""

from __future__ import annotations

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter, constant, type_of
from tensorbow.specs import DType, uint8


class Arithmetic:
    """Operations on values of one element type. Integers wrap around, bools are 0 and 1."""

    def __init__(self, emitter: Emitter, dtype: DType):
        self._emitter = emitter
        self.dtype = dtype
        self.kind = type_of(dtype)

    def number(self, value: float, like: ir.Value) -> ir.Constant:
        """A constant of the type of another value."""
        return constant(like.type, value)

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a + b"""
        builder = self._emitter.builder
        return builder.fadd(a, b) if self.dtype.is_floating else builder.add(a, b)

    def subtract(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a - b"""
        builder = self._emitter.builder
        return builder.fsub(a, b) if self.dtype.is_floating else builder.sub(a, b)

    def multiply(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a * b"""
        builder = self._emitter.builder
        return builder.fmul(a, b) if self.dtype.is_floating else builder.mul(a, b)

    def divide(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a / b of floating numbers."""
        return self._emitter.builder.fdiv(a, b)

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c of floating numbers, fused if the processor can."""
        return self._emitter.intrinsic("fmuladd", a.type, a, b, c)

    def either(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a or b, bool."""
        return self._emitter.builder.or_(a, b)

    def both(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a and b, bool."""
        return self._emitter.builder.and_(a, b)

    def less(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a < b; false if either is NaN."""
        builder = self._emitter.builder
        if self.dtype.is_floating:
            return builder.fcmp_ordered("<", a, b)
        return builder.icmp_unsigned("<", a, b) if self._unsigned else builder.icmp_signed("<", a, b)

    def maximum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The greater value; NaN if either is NaN."""
        return self._extreme(a, b, self.less(a, b))

    def minimum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The lesser value; NaN if either is NaN."""
        return self._extreme(a, b, self.less(b, a))

    def _extreme(self, a: ir.Value, b: ir.Value, b_wins: ir.Value) -> ir.Value:
        """A NaN in `a` stays, since no comparison with it is true; a NaN in `b` is taken."""
        builder = self._emitter.builder
        chosen = builder.select(b_wins, b, a)
        return builder.select(self.is_nan(b), b, chosen) if self.dtype.is_floating else chosen

    def is_nan(self, a: ir.Value) -> ir.Value:
        """True for NaN; floating numbers."""
        return self._emitter.builder.fcmp_unordered("uno", a, a)

    @property
    def _unsigned(self) -> bool:
        return self.dtype == uint8
