"""Map kernels: CUDA source of one element-wise pass, from scalar expressions and the inputs' broadcasting.

All results have the same shape; inputs broadcast to it. Axes along which no inputs differ in broadcasting are
collapsed, so most maps run over one axis. Extents of the remaining axes are kernel arguments; their number
and each input's axes are part of the source. The thread that writes an element reads it first, so a result
may share the memory of any input of its shape. Four elements at a time are loaded and stored
if addresses and extents allow it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tensorbow.errors import InternalError
from tensorbow.graph import OpDef
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, GpuCall
from tensorbow.kernels.gpu.runtime.context import GpuContext
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.c_form import to_c
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.kernels.scalars import Scalar, inputs_of, results_of
from tensorbow.kernels.scalars.collapsing import Mask, collapse
from tensorbow.specs import DType, as_dtype

FOUR = 4  # elements of a vector access

_SOURCE = """\
$helpers
template <typename T> struct alignas(4 * sizeof(T)) tb_four { T at[4]; };
static __device__ inline void tb_apply($apply_parameters) {
    $statements
}
extern "C" __global__ void tb_map($parameters) {
    $predicate
    $scalars
$loop
}
"""
_ONE_BY_ONE = """\
    TB_FOR_EACH($I, i, count) {
        $coordinates
        $locals
        tb_apply($arguments);
        $stores
    }
"""
_BY_FOUR = """\
    TB_FOR_EACH($I, quarter, count / 4) {
        const $I i = 4 * quarter;
        $coordinates
        $locals
        $calls
        $stores
    }
"""
_REST = """\
    {
        const $I i = count - count % 4 + blockIdx.x * ($I)blockDim.x + threadIdx.x;
        if (i < count) {
            $locals
            tb_apply($arguments);
            $stores
        }
    }
"""


def prepare_rule(definition: OpDef, call: GpuCall) -> Enqueue:
    """Prepares the launch of one op by its row in the table of scalar expressions."""
    state = [call.state[key] for key in definition.state]
    arrays = (*call.inputs, *state)
    dtypes = [as_dtype(array.dtype) for array in arrays]
    count = len(call.inputs)
    results = results_of(definition, call.attrs, dtypes[:count], dtypes[count:])
    aliased = {output for output, _ in definition.alias}
    targets = [array for index, array in enumerate(call.outputs) if index not in aliased]
    targets += [call.inputs[index] for index in definition.writes]
    predicated = bool(definition.writes) or call.predicate is not None
    return prepare_map(call.context, definition.name, results, arrays, targets, call.predicate, predicated)


def prepare_map(
    context: GpuContext,
    name: str,
    results: Sequence[Scalar],
    inputs: Sequence[DeviceArray],
    targets: Sequence[DeviceArray],
    predicate: DeviceArray | None = None,
    predicated: bool = False,
) -> Enqueue:
    """Prepares a map that writes each result to its target.

    inputs: numbered as the expressions' symbols; they broadcast to the targets' shape.
    predicate: the status, 0-d int64, of a map that is `predicated`: nothing is written while it is set.
    Raises InternalError for arrays that do not fit the expressions.
    """
    shape = targets[0].shape
    for result, target in zip(results, targets, strict=True):
        if target.shape != shape or result.dtype != as_dtype(target.dtype):
            raise InternalError(
                f"map {name}: a {result.dtype.name} result for {target.dtype}{list(target.shape)}; "
                f"expected every target to be of shape {list(shape)} and of its result's dtype"
            )
    used = inputs_of(results)
    arrays = [inputs[number] for number in used]
    extents, masks = collapse(shape, [array.shape for array in arrays])
    count = math.prod(shape)
    index = index_for(count)
    layout = MapLayout(
        inputs=tuple(as_dtype(array.dtype) for array in arrays),
        masks=masks,
        rank=len(extents),
        by_four=_by_four(extents, masks, arrays, targets),
        predicated=predicated,
        index=index.name,
    )
    source = map_source(name, results, used, layout)
    sizes = [index.make(extent) for extent in (count, *extents[1:])]
    status = [predicate] if predicated else []
    items = max(count // FOUR, 1) if layout.by_four else count
    return context.launch(
        source, "tb_map", context.blocks(items if count else 0), 256, *status, *arrays, *targets, *sizes
    )


@dataclass(frozen=True)
class MapLayout:
    """Indexing of a map's inputs; with the expressions it determines the source."""

    inputs: tuple[DType, ...]
    masks: tuple[Mask, ...]
    rank: int
    by_four: bool
    predicated: bool
    index: str


def _by_four(
    extents: Sequence[int],
    masks: Sequence[Mask],
    inputs: Sequence[DeviceArray],
    targets: Sequence[DeviceArray],
) -> bool:
    """True if four elements along the last axis can be read and written at once."""
    if extents[-1] < FOUR or (len(extents) > 1 and extents[-1] % FOUR):
        return False
    wide = [array for array, mask in zip(inputs, masks, strict=True) if mask[-1]]
    return all(array.address % (FOUR * array.dtype.itemsize) == 0 for array in (*wide, *targets))


def map_source(name: str, results: Sequence[Scalar], used: Sequence[int], layout: MapLayout) -> CudaSource:
    """The source of a map, with the kernel `tb_map`.

    Its parameters: the status if predicated, the used inputs, the targets, the count, and the extents of
    all axes but the first.
    """
    kinds = [c_type(dtype) for dtype in layout.inputs]
    made = [c_type(result.dtype) for result in results]
    names = {number: f"x{position}" for position, number in enumerate(used)}
    form = to_c(results, [names.get(number, "") for number in range(max(used, default=-1) + 1)])
    constant_inputs = [position for position, mask in enumerate(layout.masks) if not any(mask)]
    parameters = ["const long long* status"] if layout.predicated else []
    parameters += [f"const {kind}* p{position}" for position, kind in enumerate(kinds)]
    parameters += [f"{kind}* q{position}" for position, kind in enumerate(made)]
    parameters += [f"{layout.index} count", *(f"{layout.index} d{axis}" for axis in range(1, layout.rank))]
    return CudaSource.of(
        f"map {name}",
        _SOURCE,
        helpers=form.helpers,
        apply_parameters=", ".join(
            [f"{kind} x{position}" for position, kind in enumerate(kinds)]
            + [f"{kind}& y{position}" for position, kind in enumerate(made)]
        ),
        statements="\n    ".join(
            [*form.statements, *(f"y{position} = {value};" for position, value in enumerate(form.results))]
        ),
        parameters=", ".join(parameters),
        predicate="TB_PREDICATED(status);" if layout.predicated else "",
        scalars="\n    ".join(
            f"const {kinds[position]} x{position} = p{position}[0];" for position in constant_inputs
        ),
        loop=_loops(kinds, made, layout),
    )


def _loops(kinds: Sequence[str], made: Sequence[str], layout: MapLayout) -> str:
    """The loop over all elements, or over groups of four and the rest."""
    one_by_one = _fill(_REST if layout.by_four else _ONE_BY_ONE, kinds, made, layout, "")
    if not layout.by_four:
        return one_by_one
    fours = _fill(_BY_FOUR, kinds, made, layout, "tb_four")
    return fours + (one_by_one if layout.rank == 1 else "")


def _fill(template: str, kinds: Sequence[str], made: Sequence[str], layout: MapLayout, vector: str) -> str:
    lines: list[str] = []
    arguments: list[str] = []
    for position, (kind, mask) in enumerate(zip(kinds, layout.masks, strict=True)):
        arguments.append(f"x{position}")
        if not any(mask):
            continue
        where = _index(mask)
        if vector and mask[-1]:
            wide = f"tb_four<{kind}>"
            lines.append(
                f"const {wide} x{position} = *reinterpret_cast<const {wide}*>(p{position} + {where});"
            )
            arguments[-1] += ".at[$]"
        else:
            lines.append(f"const {kind} x{position} = p{position}[{where}];")
    stores: list[str] = []
    for position, kind in enumerate(made):
        wide = f"tb_four<{kind}>" if vector else kind
        lines.append(f"{wide} y{position};")
        arguments.append(f"y{position}.at[$]" if vector else f"y{position}")
        stores.append(
            f"*reinterpret_cast<{wide}*>(q{position} + i) = y{position};"
            if vector
            else f"q{position}[i] = y{position};"
        )
    call = ", ".join(arguments)
    calls = [f"tb_apply({call.replace('$', str(lane))});" for lane in range(FOUR)]
    values = {
        "$I": layout.index,
        "$coordinates": _coordinates(layout),
        "$locals": "\n        ".join(lines),
        "$arguments": call,
        "$calls": "\n        ".join(calls),
        "$stores": "\n        ".join(stores),
    }
    for key, value in values.items():
        template = template.replace(key, value)
    return template


def _index(mask: Mask) -> str:
    """Index expression of an input's element, from the coordinates of the axes that it has."""
    if all(mask):
        return "i"
    text = ""
    for axis, present in enumerate(mask):
        if present:
            text = f"({text} * d{axis} + c{axis})" if text else f"c{axis}"
    return text


def _coordinates(layout: MapLayout) -> str:
    """Coordinates of element i, if an input needs them."""
    partial = [mask for mask in layout.masks if any(mask) and not all(mask)]
    needed = [axis for axis in range(layout.rank) if any(mask[axis] for mask in partial)]
    lines, rest = [], "i"
    for axis in range(layout.rank - 1, -1, -1):
        if axis in needed:
            value = f"{rest} % d{axis}" if axis else rest
            lines.append(f"const {layout.index} c{axis} = {value};")
        if any(before < axis for before in needed):
            lines.append(f"const {layout.index} r{axis} = {rest} / d{axis};")
            rest = f"r{axis}"
    return "\n        ".join(lines)
