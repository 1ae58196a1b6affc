"""One launch for independent small maps of one expression: moving averages of batch normalisation.

The units run where the last of them was. Tables in the kernel's arguments have the addresses of each.
The bits stay the same: each element is computed as before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from tensorbow.graph import Kernel, KernelCall
from tensorbow.kernels.gpu.fusion.maps import map_of
from tensorbow.kernels.gpu.fusion.units import Effects, added_node, added_op
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall
from tensorbow.kernels.gpu.runtime.context import BLOCK, POINTERS, PointerTable
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.c_form import to_c
from tensorbow.kernels.scalars import FusedMap, inputs_of
from tensorbow.kernels.scalars.expression import structure
from tensorbow.program.nodes import Unit, Value
from tensorbow.specs import DType

MOST_ELEMENTS = 1 << 13  # of a member: a larger map fills a good part of a GPU by itself
TABLE_NBYTES = 3584  # of a launch's arguments, of which there may be 4096

SOURCE = (
    POINTERS
    + """
$helpers
struct Counts { int of[$number]; };
extern "C" __global__ void batched_maps($status$pointers, Counts counts) {
    $predicate
    TB_FOR_EACH(int, i, counts.of[blockIdx.y]) {
        $loads
        $statements
        targets.at[blockIdx.y][i] = $result;
    }
}
"""
)


@dataclass
class _Batch:
    """Units that may become one. fused: the expression of all of them."""

    fused: FusedMap
    units: list[int] = field(default_factory=list)  # by index
    effects: Effects = field(default_factory=Effects)


def batch_maps(units: Sequence[Unit]) -> list[Unit]:
    """The units of a segment, with batches in place of their last units."""
    open_: dict[Hashable, _Batch] = {}
    batches: list[_Batch] = []
    for index, unit in enumerate(units):
        for key in [key for key, batch in open_.items() if batch.effects.clash(unit)]:
            batches.append(open_.pop(key))
        fused = map_of(unit)
        if fused is None or not _is_small(unit):
            continue
        key = _key(unit, fused)
        batch = open_.setdefault(key, _Batch(fused))
        batch.units.append(index)
        batch.effects.add(unit)
        if len(batch.units) == TABLE_NBYTES // _entry_nbytes(fused):
            batches.append(open_.pop(key))
    several = [batch for batch in (*batches, *open_.values()) if len(batch.units) > 1]
    moved = {index for batch in several for index in batch.units}
    last = {batch.units[-1]: batch for batch in several}
    return [
        _batched([units[i] for i in last[index].units], last[index].fused) if index in last else unit
        for index, unit in enumerate(units)
        if index in last or index not in moved
    ]


def _is_small(unit: Unit) -> bool:
    """True if a map is small, and each of its inputs has its shape or one element."""
    extents = unit.outputs[0].spec.extents
    sizes = (value.spec.size for value in unit.inputs)
    return 0 < math.prod(extents) <= MOST_ELEMENTS and all(
        size == 1 or value.spec.extents == extents for size, value in zip(sizes, unit.inputs, strict=True)
    )


def _key(unit: Unit, fused: FusedMap) -> Hashable:
    """Equal for units that one kernel can serve."""
    return (
        structure([fused.result]),
        fused.assigns,
        unit.head.unconditional,
        tuple((value.spec.dtype, _is_scalar(unit, value)) for value in unit.inputs),
    )


def _is_scalar(unit: Unit, value: Value) -> bool:
    return value.spec.size == 1 < unit.outputs[0].spec.size


def _entry_nbytes(fused: FusedMap) -> int:
    """Bytes of the kernel's arguments: pointers, and the count."""
    return 8 * (len(inputs_of([fused.result])) + 1) + 4


def _batched(units: Sequence[Unit], fused: FusedMap) -> Unit:
    nodes = [node for unit in units for node in unit.nodes]
    inputs = [unit.inputs[0] for unit in units] if fused.assigns else []
    inputs += [value for unit in units for value in unit.inputs]
    inputs = list(dict.fromkeys(inputs))
    number = {value: index for index, value in enumerate(inputs)}
    used = inputs_of([fused.result])
    entries = [[number[unit.inputs[n]] for n in used] for unit in units]
    scalars = [_is_scalar(units[0], units[0].inputs[n]) for n in used]
    dtypes = [units[0].inputs[n].spec.dtype for n in used]

    def prepare(call: GpuCall) -> Enqueue:
        return _prepare(call, fused, entries, dtypes, scalars)

    writes = range(len(units)) if fused.assigns else ()
    definition = added_op(f"{units[-1].head.definition.name} batch", writes)
    head = added_node(definition, nodes, inputs)
    kernel = Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare), pointwise=fused.assigns)
    return Unit((*nodes, head), kernel, inputs, [unit.outputs[0] for unit in units])


def _prepare(
    call: GpuCall,
    fused: FusedMap,
    entries: Sequence[Sequence[int]],
    dtypes: Sequence[DType],
    scalars: Sequence[bool],
) -> Enqueue:
    """entries: by member, the numbers of its inputs. scalars: by input, True if it has one element."""
    targets = call.inputs[: len(entries)] if fused.assigns else call.outputs
    columns = [tuple(call.inputs[number] for number in column) for column in zip(*entries, strict=True)]
    tables = [PointerTable(tuple(arrays), len(entries)) for arrays in (*columns, targets)]
    predicated = fused.assigns or call.predicate is not None
    source = _source(fused, dtypes, scalars, len(entries), predicated)
    status = [call.predicate] if predicated else []
    counts = np.array([target.size for target in targets], np.int32)
    grid = (-(-int(counts.max()) // BLOCK), len(entries))
    return call.context.launch(source, "batched_maps", grid, BLOCK, *status, *tables, counts)


def _source(
    fused: FusedMap, dtypes: Sequence[DType], scalars: Sequence[bool], number: int, predicated: bool
) -> CudaSource:
    used = inputs_of([fused.result])
    kinds = [c_type(dtype) for dtype in dtypes]
    names = {symbol: f"x{position}" for position, symbol in enumerate(used)}
    form = to_c([fused.result], [names.get(symbol, "") for symbol in range(max(used, default=-1) + 1)])
    target = c_type(fused.result.dtype)
    pointers = [f"TbPointers<const {kind}, {number}> p{position}" for position, kind in enumerate(kinds)]
    loads = [
        f"const {kind} x{position} = p{position}.at[blockIdx.y][{'0' if is_scalar else 'i'}];"
        for position, (kind, is_scalar) in enumerate(zip(kinds, scalars, strict=True))
    ]
    return CudaSource.of(
        f"batched maps {fused.name}",
        SOURCE,
        helpers=form.helpers,
        pointers=", ".join([*pointers, f"TbPointers<{target}, {number}> targets"]),
        number=str(number),
        status="const long long* status, " if predicated else "",
        predicate="TB_PREDICATED(status);" if predicated else "",
        loads="\n        ".join(loads),
        statements="\n        ".join(form.statements),
        result=form.results[0],
    )
