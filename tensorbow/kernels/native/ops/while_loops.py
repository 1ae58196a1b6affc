"""Native code of While: condition and body are tables of calls, run until the condition is false."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from llvmlite import ir

from tensorbow.graph import NodeSpec
from tensorbow.kernels.native.codegen.call_table import ACCEPTED, CallTable
from tensorbow.kernels.native.codegen.emitter import POINTER, Emitter, index
from tensorbow.kernels.native.codegen.functions import Functions
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.lowering import LOWERINGS, Lowering, lower, lowering_for
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.program.nodes import Node, Value
from tensorbow.program.plan import Group, Ref, Region
from tensorbow.program.while_op import ALIGNMENT, LoopMemory, LoopProgram, OperandPlace, While, node_spec
from tensorbow.specs import TensorSpec

OPERAND_BITS = 20  # of an operand's word: which operand of the loop holds it
BYTE = ir.IntType(8)


def _memory(loop: LoopProgram, target: Target) -> LoopMemory:
    return loop.memory(lambda node: LOWERINGS[node.definition].scratch(node_spec(node), target))


def _takes(node: NodeSpec, target: Target) -> bool:
    loop: LoopProgram = node.attrs["loop"]
    operands = len(node.inputs) + len(node.outputs) + 1
    return operands < 1 << OPERAND_BITS and all(
        lowering_for(each.definition, node_spec(each), target) is not None for each in loop.nodes
    )


def _scratch(node: NodeSpec, target: Target) -> Sequence[TensorSpec]:
    return [_memory(node.attrs["loop"], target).spec]


def _emit(emitter: Emitter, group: Group) -> None:
    loop: LoopProgram = group.attrs["loop"]
    memory = _memory(loop, emitter.target)
    operands = (*group.inputs, *group.outputs, *group.scratch)
    b, module = emitter.builder, emitter.module
    functions = Functions(None, emitter.target, module)

    def ref(place: OperandPlace, spec: TensorSpec) -> Ref:
        """A value in the memory of an operand, whose number stands for the region."""
        operand, offset = place
        offset += operands[operand].offset % ALIGNMENT
        return Ref(cast(Region, operand), offset, spec.extents, spec.dtype)

    def of_value(value: Value) -> Ref:
        return ref(memory.place(value), value.spec)

    def call(node: Node) -> Group:
        return Group(
            node.name,
            node.definition,
            NativeKernel(emit=LOWERINGS[node.definition].emit),
            node.attrs,
            tuple(map(of_value, node.inputs)),
            tuple(map(of_value, node.outputs)),
            tuple(ref(*each) for each in memory.scratch[node]),
        )

    def address(place: Ref) -> ir.Value:
        return emitter.offset(b.load(_item(b, bases, int(place.region)), typ=POINTER), BYTE, place.offset)

    number = len(module.globals)
    tables = [
        CallTable(module, f"_{number}_{part}", [functions.call(call(n)) for n in nodes], OPERAND_BITS)
        for part, nodes in (("condition", loop.condition), ("body", loop.body))
    ]
    with b.goto_entry_block():
        bases = b.alloca(POINTER, size=len(operands))
    for position, operand in enumerate(operands):
        base = emitter.offset(emitter.address(operand), BYTE, -(operand.offset % ALIGNMENT))
        b.store(base, _item(b, bases, position))
    for value, variable in zip(group.inputs, loop.variables, strict=False):
        _copy(emitter, address(of_value(variable)), emitter.address(value), variable.spec)
    head, body, end = (b.function.append_basic_block(name) for name in ("head", "body", "end"))
    refused = b.function.append_basic_block("refused")
    ir.IRBuilder(refused).ret(index(0))
    b.branch(head)
    b.position_at_end(head)
    _run(emitter, tables[0], bases, len(loop.condition), refused)
    holds = b.load(address(of_value(loop.holds)), typ=BYTE)
    b.cbranch(b.icmp_unsigned("!=", holds, ir.Constant(BYTE, 0)), body, end)
    b.position_at_end(body)
    _run(emitter, tables[1], bases, len(loop.body), refused)
    sources = [of_value(result) for result in loop.results]
    for each, place in memory.moved.items():
        kept = ref(place, loop.results[each].spec)
        _copy(emitter, address(kept), address(sources[each]), loop.results[each].spec)
        sources[each] = kept
    for variable, source in zip(loop.variables, sources, strict=True):
        target = of_value(variable)
        if (target.region, target.offset) != (source.region, source.offset):
            _copy(emitter, address(target), address(source), variable.spec)
    b.branch(head)
    b.position_at_end(end)


def _run(emitter: Emitter, table: CallTable, bases: ir.Value, count: int, refused: ir.Block) -> None:
    """Runs all calls of a table; ends the function where one refuses its input."""
    b = emitter.builder
    accepted = b.function.append_basic_block("accepted")
    found = table.emit(b, bases, index(0), index(count))
    b.cbranch(b.icmp_signed("==", found, ACCEPTED), accepted, refused)
    b.position_at_end(accepted)


def _item(builder: ir.IRBuilder, array: ir.Value, position: int) -> ir.Value:
    return builder.gep(array, [index(position)], source_etype=POINTER)


def _copy(emitter: Emitter, to: ir.Value, source: ir.Value, spec: TensorSpec) -> None:
    name, module = "llvm.memcpy.p0.p0.i64", emitter.module
    kinds = [POINTER, POINTER, ir.IntType(64), ir.IntType(1)]
    function = module.globals.get(name) or ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    if spec.nbytes:
        emitter.builder.call(function, [to, source, index(spec.nbytes), ir.Constant(kinds[3], 0)])


lower(While, Lowering(_emit, takes=_takes, scratch=_scratch))
