"""One transpose for all filters of a segment's convolutions, and one for all of their gradients.

cuDNN takes NHWC images with OHWI filters only, as a filter's descriptor has no strides; variables are HWIO.
Instead of a transpose around each call, three for a layer, all filters are packed before the first
convolution, for the convolutions and the gradients of their inputs, and all gradients are unpacked behind the
last. Variables stay HWIO, whatever reads them: a kernel that takes HWIO filters finds them among its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from tensorbow.errors import InternalError
from tensorbow.graph import Kernel, KernelCall
from tensorbow.kernels.gpu.fusion.units import added_node, added_op, reads, writes
from tensorbow.kernels.gpu.ops import conv
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall
from tensorbow.kernels.gpu.source.copies_of_arrays import copy_arrays
from tensorbow.kernels.gpu.source.packed_filters import MOST_FILTERS, PackedFilter, pack, unpack
from tensorbow.kernels.merging import touch
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.program.nodes import Node, Unit, Value, storage_of
from tensorbow.program.plan import Group, Ref
from tensorbow.specs import TensorSpec

MOST_NBYTES = 1 << 20  # of a filter: packed ones take memory for the whole step
PACK, UNPACK = added_op("PackFilters"), added_op("UnpackFilters")
READERS = {Conv2D: conv.packed_forward, Conv2DBackpropInput: conv.packed_backward_input}


def pack_filters(units: Sequence[Unit]) -> list[Unit]:
    """The units of a segment, with packed filters."""
    return _gradients_packed(_filters_packed(units))


@dataclass(frozen=True)
class PackedKernel(Kernel):
    """The kernel of a convolution with a packed filter. plain: that of the same unit without."""

    plain: Kernel | None = None


def _packed_kernel(kernel: Kernel, unit: Unit) -> Kernel:
    return PackedKernel(prepare=kernel.prepare, scratch=kernel.scratch, plain=unit.kernel)


def unpacked(groups: Sequence[Group]) -> list[Group]:
    """A segment's calls with filters and their gradients as they are, for kernels that take them so.

    Scratch that these may need is not in the plan. A gradient whose memory has other uses before it would be
    unpacked waits in the packed one's, and is copied.
    """
    result: list[Group] = []
    waiting = set[Ref]()
    for index, group in enumerate(groups):
        if group.definition is PACK:
            continue
        if group.definition is UNPACK:
            result += _copied(group, waiting)
            continue
        if isinstance(group.kernel, PackedKernel) and group.kernel.plain is not None:
            if group.definition is Conv2DBackpropFilter:
                home, is_free = _home(groups, index)
                if not is_free:
                    waiting.add(group.outputs[0])
                    home = replace(group.outputs[0], shape=home.shape)
                changed = replace(group, outputs=(home,), writes=(home,))
            else:
                *inputs, packed = group.inputs
                kept = tuple(ref for ref in group.reads if ref != packed)
                changed = replace(group, inputs=tuple(inputs), reads=kept)
            group = replace(changed, kernel=group.kernel.plain, scratch=())
        result.append(group)
    return result


def _home(groups: Sequence[Group], index: int) -> tuple[Ref, bool]:
    """Memory of the gradient that a call leaves packed, and whether nothing else uses it before."""
    (packed,) = groups[index].outputs
    for end, group in enumerate(groups[index:], index):
        if group.definition is UNPACK and packed in group.inputs:
            home = group.outputs[group.inputs.index(packed)]
            others = groups[index:end]  # the call itself, too: it reads while it writes
            return home, not any(touch((*other.reads, *other.writes), (home,)) for other in others)
    raise InternalError(f"{groups[index].name}: nothing unpacks its result")


def _copied(group: Group, waiting: set[Ref]) -> list[Group]:
    """Copy of gradients that wait in the memory of packed ones, in place of unpacking."""
    pairs = [
        (home, replace(packed, shape=home.shape))
        for home, packed in zip(group.outputs, group.inputs, strict=True)
        if packed in waiting
    ]
    if not pairs:
        return []
    homes, sources = zip(*pairs, strict=True)

    def prepare(call: GpuCall) -> Enqueue:
        return copy_arrays(call.context, [*zip(call.outputs, call.inputs, strict=True)])

    return [
        replace(group, kernel=_kernel(prepare), inputs=sources, outputs=homes, reads=sources, writes=homes)
    ]


def _form_of(unit: Unit) -> PackedFilter | None:
    form = conv.packed_form(unit.head)
    return form if form is not None and 4 * _size(form) <= MOST_NBYTES else None


def _size(form: PackedFilter) -> int:
    outputs, height, width, inputs = form.packed_extents
    return outputs * height * width * inputs


def _packed_value(value: Value, form: PackedFilter, node: Node, index: int = 0) -> Value:
    return Value(f"{value.name} packed", TensorSpec(form.packed_extents, value.spec.dtype), node, index)


# Filters ----------------------------------------------------------------------------------------------

Key = tuple[Value, PackedFilter]  # a variable and its packed form


def _filters_packed(units: Sequence[Unit]) -> list[Unit]:
    readers = _readers(units)
    keys = list(dict.fromkeys(readers.values()))
    packed: dict[Key, Value] = {}
    before: dict[int, list[Unit]] = {}
    for start in range(0, len(keys), MOST_FILTERS):
        some = keys[start : start + MOST_FILTERS]
        first = min(index for index, key in readers.items() if key in some)
        unit = _packing(some, units[first])
        packed |= zip(some, unit.outputs, strict=True)
        before.setdefault(first, []).append(unit)
    result: list[Unit] = []
    for index, unit in enumerate(units):
        result += before.get(index, ())
        if index in readers:
            key = readers[index]
            kernel = _packed_kernel(READERS[unit.head.definition](key[1]), unit)
            unit = replace(unit, kernel=kernel, inputs=[*unit.inputs, packed[key]])
        result.append(unit)
    return result


def _readers(units: Sequence[Unit]) -> dict[int, Key]:
    """Indices of units that may take a packed filter: a variable that no unit before them writes."""
    readers: dict[int, Key] = {}
    written = set[Value]()
    for index, unit in enumerate(units):
        if unit.head.definition in READERS and (form := _form_of(unit)) is not None:
            root = storage_of(unit.inputs[1])
            if root.variable is not None and root not in written:
                readers[index] = root, form
        written |= writes(unit)
    return readers


def _packing(keys: Sequence[Key], reader: Unit) -> Unit:
    forms = [form for _, form in keys]

    def prepare(call: GpuCall) -> Enqueue:
        return pack(call.context, forms, call.inputs, call.outputs)

    node = added_node(PACK, reader.nodes, [root for root, _ in keys])
    values = [_packed_value(root, form, node, index) for index, (root, form) in enumerate(keys)]
    return Unit((node,), _kernel(prepare), node.inputs, values)


# Gradients --------------------------------------------------------------------------------------------


def _gradients_packed(units: Sequence[Unit]) -> list[Unit]:
    result: list[Unit] = []
    waiting: dict[Value, tuple[PackedFilter, Value]] = {}  # by gradient: its form, packed
    for unit in units:
        if waiting and (waiting.keys() & reads(unit) or len(waiting) == MOST_FILTERS):
            result.append(_unpacking(waiting))
            waiting = {}
        if unit.head.definition is Conv2DBackpropFilter and (form := _form_of(unit)) is not None:
            gradient = unit.outputs[0]
            packed = _packed_value(gradient, form, unit.head)
            waiting[gradient] = form, packed
            kernel = _packed_kernel(conv.packed_backward_filter(form), unit)
            unit = replace(unit, kernel=kernel, outputs=[packed])
        result.append(unit)
    return [*result, _unpacking(waiting)] if waiting else result


def _unpacking(waiting: Mapping[Value, tuple[PackedFilter, Value]]) -> Unit:
    forms = [form for form, _ in waiting.values()]

    def prepare(call: GpuCall) -> Enqueue:
        return unpack(call.context, forms, call.inputs, call.outputs)

    makers = [gradient.node for gradient in waiting if gradient.node is not None]
    node = added_node(UNPACK, makers, [packed for _, packed in waiting.values()])
    return Unit((node,), _kernel(prepare), node.inputs, list(waiting))


def _kernel(prepare: Callable[[GpuCall], Enqueue]) -> Kernel:
    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare))
