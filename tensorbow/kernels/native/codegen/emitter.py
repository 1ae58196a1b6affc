"""Emission of a call's code: operands, loops, vectors.

Pointers are opaque. A function gets the addresses of its operands at run time, so one compilation serves all
replicas, and all calls that differ only in the addresses of their operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TypeAlias

from llvmlite import ir

from tensorbow.errors import InternalError
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.program.plan import Ref
from tensorbow.specs import DType

Slots: TypeAlias = "Mapping[tuple[int, int], int]"  # of operands, by region and offset
Bounds: TypeAlias = "tuple[ir.Value, ir.Value]"  # first element of a part of flat arrays, and its end

INT = ir.IntType(64)  # of all indices
POINTER = ir.PointerType()
REFUSED = "refused"  # begins the names of blocks in which a call refuses its input
TYPES: dict[str, ir.Type] = {
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    "int32": ir.IntType(32),
    "int64": ir.IntType(64),
    "uint8": ir.IntType(8),
    "bool": ir.IntType(8),  # 0 or 1
}


def type_of(dtype: DType) -> ir.Type:
    """The LLVM type of an element in memory."""
    return TYPES[dtype.name]


def index(value: int) -> ir.Constant:
    """A constant index."""
    return ir.Constant(INT, int(value))  # an IntEnum's text is its name before Python 3.11


def constant(kind: ir.Type, value: float) -> ir.Constant:
    """A number of a type, in all lanes for a vector type."""
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [value] * kind.count)
    return ir.Constant(kind, value)


@cache  # printing a constant of many lanes takes long
def _first_lane(lanes: int) -> ir.Constant:
    """Shuffle mask of a splat."""
    return ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)


@cache
def _undefined(element: ir.Type, lanes: int) -> ir.Constant:
    """Undefined vector that a splat starts from."""
    return ir.Constant(ir.VectorType(element, lanes), ir.Undefined)


def lanes_of(kind: ir.Type) -> int:
    """Number of lanes of a vector type; 1 for any other type."""
    return int(kind.count) if isinstance(kind, ir.VectorType) else 1


class Emitter:
    """Emits code into one function, at the position of `builder`."""

    def __init__(
        self, target: Target, builder: ir.IRBuilder, addresses: ir.Value, slots: Slots | None = None
    ):
        """addresses: pointer to an array of the operands' addresses. slots: index of each operand in it."""
        self.target = target
        self.builder = builder
        self._addresses = addresses
        self._slots: Slots = {} if slots is None else slots
        self._known: dict[int, ir.Value] = {}
        self._refused: ir.Block | None = None

    @property
    def module(self) -> ir.Module:
        """The module, for declaring intrinsics and helper functions."""
        return self.builder.module

    def of_function(self, builder: ir.IRBuilder) -> Emitter:
        """An emitter for another function of the module, without operands."""
        return Emitter(self.target, builder, ir.Constant(POINTER, None))

    def address(self, ref: Ref) -> ir.Value:
        """The pointer to an operand's first element, loaded in the function's entry block.

        Raises InternalError for a ref that is no operand of the call.
        """
        slot = self._slots.get((ref.region, ref.offset))
        if slot is None:
            raise InternalError(f"{ref} is no operand of the call")
        pointer = self._known.get(slot)
        if pointer is None:
            with self.builder.goto_entry_block():
                where = self.builder.gep(self._addresses, [index(slot)], source_etype=POINTER)
                pointer = self._known[slot] = self.builder.load(where, typ=POINTER)
        return pointer

    def offset(self, pointer: ir.Value, kind: ir.Type, position: ir.Value | int) -> ir.Value:
        """The pointer `position` elements of a type further."""
        where = index(position) if isinstance(position, int) else position
        return self.builder.gep(pointer, [where], inbounds=True, source_etype=kind)

    def load(self, pointer: ir.Value, kind: ir.Type, align: int) -> ir.Value:
        """An element, or a vector if `kind` is one, at a pointer; `align` in bytes."""
        return self.builder.load(pointer, align=align, typ=kind)

    def store(self, value: ir.Value, pointer: ir.Value, align: int) -> None:
        """Stores an element or vector at a pointer; `align` in bytes."""
        self.builder.store(value, pointer, align=align)

    def vector_type(self, dtype: DType) -> ir.VectorType:
        """The type of a full vector of elements."""
        return ir.VectorType(type_of(dtype), self.target.lanes(dtype.size))

    def splat(self, value: ir.Value, lanes: int) -> ir.Value:
        """A vector with the same value in all lanes."""
        undefined = _undefined(value.type, lanes)
        single = self.builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(single, undefined, _first_lane(lanes))

    def intrinsic(self, name: str, kind: ir.Type, *arguments: ir.Value) -> ir.Value:
        """Calls `llvm.NAME` for a type, as `llvm.fma` for vectors; all arguments have that type."""
        full = f"llvm.{name}.{_suffix(kind)}"
        function = self.module.globals.get(full)
        if function is None:
            signature = ir.FunctionType(kind, [kind] * len(arguments))
            function = ir.Function(self.module, signature, full)
        return self.builder.call(function, arguments)

    def reduced(self, name: str, vector: ir.Value) -> ir.Value:
        """Calls `llvm.vector.reduce.NAME`: reduces the lanes of an integer vector."""
        full = f"llvm.vector.reduce.{name}.{_suffix(vector.type)}"
        function = self.module.globals.get(full)
        if function is None:
            signature = ir.FunctionType(vector.type.element, [vector.type])
            function = ir.Function(self.module, signature, full)
        return self.builder.call(function, [vector])

    def refuse_if(self, condition: ir.Value) -> None:
        """Ends the call here if the op refuses its input: its reference kernel then runs to raise the error.

        Must be emitted before the first write. The function must return a number; 0 stands for
        the call itself.
        """
        function = self.builder.function
        if self._refused is None:
            self._refused = function.append_basic_block(REFUSED)
            ir.IRBuilder(self._refused).ret(index(0))
        accepted = function.append_basic_block("accepted")
        self.builder.cbranch(condition, self._refused, accepted)
        self.builder.position_at_end(accepted)

    @contextmanager
    def loop(self, stop: ir.Value | int, start: ir.Value | int = 0, step: int = 1) -> Iterator[ir.Value]:
        """A rolled loop over start, start + step, ... below stop, possibly empty; gives the index."""
        builder, function = self.builder, self.builder.function
        first, last = (index(v) if isinstance(v, int) else v for v in (start, stop))
        head, body, end = (function.append_basic_block(name) for name in ("head", "body", "end"))
        before = builder.block
        builder.branch(head)
        builder.position_at_end(head)
        position = builder.phi(INT)
        position.add_incoming(first, before)
        builder.cbranch(builder.icmp_signed("<", position, last), body, end)
        builder.position_at_end(body)
        yield position
        following = builder.add(position, index(step), flags=["nsw"])
        position.add_incoming(following, builder.block)
        builder.branch(head)
        builder.position_at_end(end)


def _suffix(kind: ir.Type) -> str:
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    names = {"float": "f32", "double": "f64"}
    text = str(kind)
    if text not in names and not text.startswith("i"):
        raise InternalError(f"no intrinsic for {kind}")
    return names.get(text, text)
