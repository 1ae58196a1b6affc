"""Table of the calls of a run, as data: the function of each call, and where its operands lie.

Data need no compilation. Separate functions that stored each call's addresses took
longer to compile than the code that the calls share.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Slots, index
from tensorbow.program.plan import Region

SIGNATURE = ir.FunctionType(INT, [POINTER])
ACCEPTED = index(-1)
RUNNER = "run_calls"
REGION_BITS = (len(Region) - 1).bit_length()  # an operand is one word: offset and region


class CallTable:
    """Three constants of the module: function of each call, index of its first operand, all operands."""

    def __init__(
        self,
        module: ir.Module,
        number: int | str,
        calls: Sequence[tuple[ir.Function, Slots]],
        bits: int = REGION_BITS,
    ):
        """number: of the run, for the constants' names. calls: functions with the slots of their operands.

        bits: of an operand's word for its region.
        """
        self._module = module
        self._bits = bits
        starts, operands = [0], []
        for _, slots in calls:
            by_slot = sorted((slot, operand) for operand, slot in slots.items())
            operands += [offset << bits | int(region) for _, (region, offset) in by_slot]
            starts.append(len(operands))
        self._most_operands = max((len(slots) for _, slots in calls), default=0)
        self._tables = [
            self._constant(f"bodies{number}", POINTER, [body for body, _ in calls]),
            self._constant(f"starts{number}", INT, starts),
            self._constant(f"operands{number}", INT, operands),
        ]

    def _constant(self, name: str, kind: ir.Type, values: Sequence[object]) -> ir.GlobalVariable:
        array = ir.ArrayType(kind, len(values))
        table = ir.GlobalVariable(self._module, array, name)
        table.linkage, table.global_constant = "internal", True
        table.initializer = ir.Constant(array, list(values))
        return table

    def emit(self, builder: ir.IRBuilder, bases: ir.Value, first: ir.Value, end: ir.Value) -> ir.Value:
        """Emits the calls in [first, end); gives the number of a refusing call, or ACCEPTED."""
        with builder.goto_entry_block():
            addresses = builder.alloca(POINTER, size=self._most_operands)
        tables = [builder.gep(table, [index(0), index(0)]) for table in self._tables]
        name = RUNNER if self._bits == REGION_BITS else f"{RUNNER}{self._bits}"
        runner = self._module.globals.get(name) or _write_runner(self._module, name, self._bits)
        return builder.call(runner, [bases, addresses, *tables, first, end])


def _write_runner(module: ir.Module, name: str, bits: int) -> ir.Function:
    """The function that executes a table."""
    kinds = [POINTER] * 5 + [INT] * 2
    function = ir.Function(module, ir.FunctionType(INT, kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    bases, addresses, bodies, starts, operands, first, end = function.args
    names = ("entry", "look", "make", "fill", "call", "accepted", "done", "refused")
    entry, look, make, fill, call, accepted, done, refused = map(function.append_basic_block, names)

    b = ir.IRBuilder(entry)
    b.branch(look)

    b.position_at_end(look)
    number = b.phi(INT)
    number.add_incoming(first, entry)
    b.cbranch(b.icmp_signed("<", number, end), make, done)

    b.position_at_end(make)
    following = b.add(number, index(1))
    begin, limit = (b.load(b.gep(starts, [n], source_etype=INT), typ=INT) for n in (number, following))
    body = b.load(b.gep(bodies, [number], source_etype=POINTER), typ=ir.PointerType(SIGNATURE))
    b.cbranch(b.icmp_signed("<", begin, limit), fill, call)

    b.position_at_end(fill)
    position = b.phi(INT)
    position.add_incoming(begin, make)
    word = b.load(b.gep(operands, [position], source_etype=INT), typ=INT)
    region = b.and_(word, index((1 << bits) - 1))
    base = b.load(b.gep(bases, [region], source_etype=POINTER), typ=POINTER)
    address = b.gep(base, [b.lshr(word, index(bits))], source_etype=ir.IntType(8))
    b.store(address, b.gep(addresses, [b.sub(position, begin)], source_etype=POINTER))
    next_position = b.add(position, index(1))
    position.add_incoming(next_position, fill)
    b.cbranch(b.icmp_signed("<", next_position, limit), fill, call)

    b.position_at_end(call)
    b.cbranch(b.icmp_signed("==", b.call(body, [addresses]), ACCEPTED), accepted, refused)

    b.position_at_end(accepted)
    number.add_incoming(following, accepted)
    b.branch(look)

    b.position_at_end(refused)
    b.ret(number)

    b.position_at_end(done)
    b.ret(ACCEPTED)
    return function
