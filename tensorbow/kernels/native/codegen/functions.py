"""The functions of a step: one per run of neighbouring calls; equal code is emitted once.

The code of a call gets an array of addresses, one per operand; tables (`call_table`) compute them from the
regions' base addresses. So calls that differ only in the addresses of their operands, as in a
network's equal blocks, share their code.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

from llvmlite import ir

from tensorbow.errors import InternalError
from tensorbow.kernels.native.codegen.call_table import ACCEPTED, SIGNATURE, CallTable
from tensorbow.kernels.native.codegen.compiler import NativeCode, compile_module, kept_code
from tensorbow.kernels.native.codegen.emitter import INT, POINTER, REFUSED, Emitter, Slots, index
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.plan_key import plan_key
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.program.plan import Group, Ref

ALIGNMENT = 64  # bytes of alignment that code may assume for arrays
REFUSES = "refuses"  # name of a function of `compile_groups`
FLUSH = ir.Constant(ir.IntType(32), 0x8000)  # flush-to-zero bit of x86's MXCSR: for results, not operands


def compile_groups(
    runs: Sequence[Sequence[Group]], status: Ref, target: Target, folder: Path | None
) -> NativeCode:
    """Compiles the functions of all runs, see `Functions.add_run` and `add_refuses`.

    status: the sticky status, read by predicated calls. Uses the code cached in `folder`, if there is any.
    """

    def write() -> ir.Module:
        functions = Functions(status, target)
        for number, groups in enumerate(runs):
            functions.add_run(number, groups)
        functions.add_refuses()
        return functions.module

    return compile_unless_kept(plan_key(runs, status) if folder is not None else None, write, target, folder)


def compile_unless_kept(
    key: str | None, write: Callable[[], ir.Module], target: Target, folder: Path | None
) -> NativeCode:
    """The code cached in `folder` under a key; if there is none, compiles the module that `write` makes.

    key: None uses the module's text as the key.
    """
    kept = kept_code(key, target, folder) if key is not None else None
    return kept or compile_module(write(), target, folder, key)


class Functions:
    """The functions of calls in a module under construction."""

    def __init__(self, status: Ref | None, target: Target, module: ir.Module | None = None):
        """status: for predicated calls. module: by default a new one."""
        self.module = module or ir.Module("step")
        self.module.triple = target.triple
        self._status = status
        self._target = target
        self._bodies: dict[Hashable, ir.Function] = {}
        self._calls: list[ir.Function] = []  # the functions of all runs' calls

    def add_run(self, number: int, groups: Sequence[Group]) -> None:
        """Adds the functions `run<number>`, of all calls of a run, and `call<number>`, of one of them.

        The first gets the base addresses, and returns the number of a call that refuses its input. The second
        gets a pointer to two words: the address of the base addresses, and the number of the call.
        """
        own = [self.call(group) for group in groups]
        self._calls += [body for body, _ in own]
        calls = CallTable(self.module, number, own)
        for name in (f"run{number}", f"call{number}"):
            function = ir.Function(self.module, SIGNATURE, name)
            builder = ir.IRBuilder(function.append_basic_block("entry"))
            bases, first, end = function.args[0], index(0), index(len(groups))
            if name.startswith("call"):
                bases = builder.load(function.args[0], typ=POINTER)
                call = builder.gep(function.args[0], [index(1)], source_etype=INT)
                first = builder.load(call, typ=INT)
                end = builder.add(first, index(1))
            before = self.flush_denormals(builder)
            refused = calls.emit(builder, bases, first, end)
            self.restore(builder, before)
            builder.ret(refused)

    def add_refuses(self) -> None:
        """Adds a function that gives the number of calls so far that may refuse their input."""
        inner = set(self._bodies.values()).difference(self._calls)
        refusing = sum(
            any(block.name.startswith(REFUSED) for block in body.basic_blocks)
            for body in (*self._calls, *inner)
        )
        function = ir.Function(self.module, SIGNATURE, REFUSES)
        ir.IRBuilder(function.append_basic_block("entry")).ret(index(refusing))

    def flush_denormals(self, builder: ir.IRBuilder) -> ir.Value | None:
        """Emits that results below 1.2e-38 become 0 from here on; gives the value for `restore`.

        The velocities of a model that has learned its data decay into denormal numbers, which cost a
        processor over a hundred cycles each: LeNet's step took twice as long. x86-64 only.
        """
        if not self._target.triple.startswith("x86_64"):
            return None
        before, after = (builder.alloca(ir.IntType(32)) for _ in range(2))
        builder.call(self._control_register("st"), [before])
        builder.store(builder.or_(builder.load(before, typ=ir.IntType(32)), FLUSH), after)
        builder.call(self._control_register("ld"), [after])
        return before

    def restore(self, builder: ir.IRBuilder, before: ir.Value | None) -> None:
        """Restores the mode from before `flush_denormals`."""
        if before is not None:
            builder.call(self._control_register("ld"), [before])

    def _control_register(self, way: str) -> ir.Function:
        name = f"llvm.x86.sse.{way}mxcsr"
        known = self.module.globals.get(name)
        return known or ir.Function(self.module, ir.FunctionType(ir.VoidType(), [POINTER]), name)

    def call(self, group: Group) -> tuple[ir.Function, Slots]:
        """The function of a call, and the slots of its operands."""
        slots = _slots(group, self._status)
        return self._body(group, slots), slots

    def part(self, group: Group) -> tuple[ir.Function, Slots]:
        """The function of a part of a call, by `NativeKernel.emit_part`, and the slots of its operands.

        The bounds follow the operands' addresses in its array.
        """
        slots = _slots(group, self._status)
        function = ir.Function(self.module, SIGNATURE, f"part{len(self.module.globals)}")
        function.linkage = "internal"
        function.attributes.add("noinline")
        entry, body = (function.append_basic_block(name) for name in ("entry", "start"))
        builder = ir.IRBuilder(body)
        emitter = Emitter(self._target, builder, function.args[0], slots)
        positions = (index(len(slots) + number) for number in range(2))
        first, end = (
            builder.load(builder.gep(function.args[0], [position], source_etype=INT), typ=INT)
            for position in positions
        )
        kernel = group.kernel
        if not isinstance(kernel, NativeKernel) or kernel.emit_part is None:
            raise InternalError(f"{group.definition.name} {group.name} has no native code for a part of it")
        kernel.emit_part(emitter, group, (first, end))
        builder.ret(ACCEPTED)
        ir.IRBuilder(entry).branch(body)
        return function, slots

    def _body(self, group: Group, slots: Slots) -> ir.Function:
        """The function of a call, shared with earlier calls of equal code."""
        key = _key(group, slots)
        body = self._bodies.get(key)
        if body is None:
            body = ir.Function(self.module, SIGNATURE, f"body{len(self.module.globals)}")
            body.linkage = "internal"
            body.attributes.add("noinline")
            self._bodies[key] = body
            self._emit(body, group, slots)
        return body

    def _emit(self, function: ir.Function, group: Group, slots: Slots) -> None:
        """Emits a call's code, which returns ACCEPTED or 0; the status disables predicated calls."""
        entry, body = (function.append_basic_block(name) for name in ("entry", "start"))
        builder = ir.IRBuilder(body)
        emitter = Emitter(self._target, builder, function.args[0], slots)
        end = function.append_basic_block("done")
        if group.predicated and self._status is not None:
            work = function.append_basic_block("work")
            flag = emitter.load(emitter.address(self._status), INT, INT.width // 8)
            builder.cbranch(builder.icmp_signed("==", flag, index(0)), work, end)
            builder.position_at_end(work)
        kernel = group.kernel
        if not isinstance(kernel, NativeKernel):
            raise InternalError(f"{group.definition.name} {group.name} has no native code")
        kernel.emit(emitter, group)
        builder.branch(end)
        builder.position_at_end(end)
        builder.ret(ACCEPTED)
        ir.IRBuilder(entry).branch(body)


def _operands(group: Group, status: Ref | None) -> list[Ref]:
    operands = [*group.inputs, *group.outputs, *group.scratch, *(ref for _, ref in group.state)]
    return [*operands, status] if group.predicated and status is not None else operands


def _slots(group: Group, status: Ref | None) -> Slots:
    """A number for each operand of a call, in order; operands at one address share it."""
    slots: dict[tuple[int, int], int] = {}
    for ref in _operands(group, status):
        slots.setdefault((ref.region, ref.offset), len(slots))
    return slots


def _key(group: Group, slots: Slots) -> Hashable:
    """A key that is equal for calls with equal code, wherever their operands lie."""
    kernel = group.kernel
    operands = tuple(
        (slots[ref.region, ref.offset], ref.shape, ref.dtype, ref.offset % ALIGNMENT)
        for ref in (*group.inputs, *group.outputs, *group.scratch, *(ref for _, ref in group.state))
    )
    form = kernel.form or kernel.emit if isinstance(kernel, NativeKernel) else None
    counts = len(group.inputs), len(group.outputs), len(group.scratch)
    keys = tuple(key for key, _ in group.state)
    unread = kernel.unread if isinstance(kernel, NativeKernel) else ()
    items = (item for item in sorted(group.attrs.items()) if item[0] not in unread)
    attrs = tuple((name, type(value), value) for name, value in items)
    key = (group.definition, form, attrs, counts, keys, operands, group.predicated)
    try:
        hash(key)
    except TypeError:  # unhashable attributes: a list or an array
        return object()
    return key
