"""Element-wise units that need no launch: what comes before or after them computes their elements.

After batch normalisation: ReLU, or the sum of a residual block and its ReLU. Before batch normalisation's
gradient, and the sum that is a bias's gradient: the gradients of these, and that of max pooling. Before max
pooling: bias and ReLU. Where others read the elements too, they are kept. Each element is computed as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tensorbow.graph import Kernel, OpDef
from tensorbow.kernels.gpu.fusion.maps import map_of
from tensorbow.kernels.gpu.fusion.units import Effects
from tensorbow.kernels.gpu.ops.batch_norm import normalized
from tensorbow.kernels.gpu.ops.batch_norm_grad import differentiated
from tensorbow.kernels.gpu.ops.nn import summed
from tensorbow.kernels.gpu.ops.pooling import pooled, summed_gradient
from tensorbow.kernels.gpu.source.elements import Element, ElementIndex
from tensorbow.ops.batch_norm import FusedBatchNorm, FusedBatchNormGrad
from tensorbow.ops.nn import BiasAddGrad
from tensorbow.ops.pooling import MaxPool, MaxPoolGrad
from tensorbow.program.nodes import Node, Unit, Value, storage_of

MOST_ARRAYS = 4  # that an inlined expression reads

READERS: dict[OpDef, Callable[[Node, Element], Kernel | None]] = {
    FusedBatchNormGrad: differentiated,
    BiasAddGrad: summed,
    MaxPool: pooled,
}
"""Kernels of ops whose first input may be an expression, of the inputs behind the op's others.

Its elements are a further result, where the kernel is asked for one.
"""


def inline_maps(units: Sequence[Unit]) -> list[Unit]:
    """The units of a segment, without element-wise units that others can compute."""
    kept: list[Unit | None] = list(units)
    home = {node: index for index, unit in enumerate(units) for node in unit.nodes}
    for index, unit in enumerate(units):
        if unit.head.definition is FusedBatchNorm:
            _absorb_reader(kept, index, home)
    for index in range(len(units)):
        unit_now = kept[index]
        if unit_now is not None:
            _hand_to_reader(kept, index, home)
    return [unit for unit in kept if unit is not None]


class Inlined(NamedTuple):
    """The expression of a unit, and its inputs by number."""

    element: Element
    inputs: list[Value]


def inlined(unit: Unit, own: Value | None = None) -> Inlined | None:
    """A map as an expression; None where that reads too much, or elements elsewhere. own: a value in it."""
    fused = map_of(unit)
    if fused is None or fused.assigns:
        return None
    shape = unit.outputs[0].spec.extents
    extents = []
    for value in unit.inputs:
        is_own = own is not None and storage_of(value) is own
        extent = _extent(value, shape)
        if extent is None or (is_own and extent is not ElementIndex.EACH):
            return None
        extents.append(ElementIndex.OWN if is_own else extent)
    if extents.count(ElementIndex.EACH) > MOST_ARRAYS:
        return None
    return Inlined(Element(fused.result, tuple(extents)), unit.inputs)


def _extent(value: Value, shape: tuple[int, ...]) -> ElementIndex | None:
    """Elements of a value that broadcasts to a shape [..., channels]; None for any others than these."""
    extents = value.spec.extents
    if extents == shape:
        return ElementIndex.EACH
    if value.spec.size == 1:
        return ElementIndex.ONE
    if extents == (*shape[:-1], 1):
        return ElementIndex.ROW
    return ElementIndex.CHANNEL if value.spec.size == extents[-1] == shape[-1] else None


def _absorb_reader(units: list[Unit | None], index: int, home: dict[Node, int]) -> None:
    """Lets batch normalisation compute the only map that reads its normalised elements."""
    norm = units[index]
    if norm is None:
        return
    result = norm.outputs[0]
    readers = {home.get(reader) for reader in result.readers}
    if result.is_fetched or len(readers) != 1 or (found := readers.pop()) is None:
        return
    reader = units[found]
    expression = None if reader is None else inlined(reader, result)
    if reader is None or expression is None or reader.outputs[0].spec != result.spec:
        return
    between = Effects(unit for unit in units[index + 1 : found] if unit is not None)
    others = {storage_of(value) for value in reader.inputs} - {result}
    if between.clash(reader) or others & set(norm.outputs):
        return
    given = [norm.inputs[0] if storage_of(value) is result else value for value in reader.inputs]
    count = len(norm.inputs)
    each = (n for n, extent in enumerate(expression.element.extents) if extent is ElementIndex.EACH)
    inplace = [(0, count + number) for number in each if given[number].spec.dtype == result.spec.dtype]
    units[index] = Unit(
        (*reader.nodes, *norm.nodes),
        normalized(expression.element, inplace),
        [*norm.inputs, *given],
        [reader.outputs[0], *norm.outputs[1:]],
    )
    units[found] = None
    home.update(dict.fromkeys(reader.nodes, index))


def _hand_to_reader(units: list[Unit | None], index: int, home: dict[Node, int]) -> None:
    """Lets the first reader of a map compute it, where that is one of READERS."""
    unit = units[index]
    expression = None if unit is None else inlined(unit)
    if unit is None or expression is None:
        return
    result = unit.outputs[0]
    found = min((home[reader] for reader in result.readers if reader in home), default=None)
    reader = None if found is None else units[found]
    if found is None or reader is None or reader.head.definition not in READERS:
        return
    first, *rest = reader.inputs
    between = Effects(each for each in units[index + 1 : found] if each is not None)
    if (
        len(reader.nodes) > 1
        or storage_of(first) is not result
        or first.spec != result.spec
        or any(storage_of(value) is result for value in rest)
        or between.clash(unit)
    ):
        return
    kernel = READERS[reader.head.definition](reader.head, expression.element)
    if kernel is None:
        return
    keeps = result.is_fetched or not set(result.readers) <= set(reader.nodes)
    outputs = [*reader.outputs, *([result] if keeps else [])]
    units[found] = Unit((*unit.nodes, *reader.nodes), kernel, [*rest, *expression.inputs], outputs)
    units[index] = None
    home.update(dict.fromkeys(unit.nodes, found))
    if reader.head.definition is BiasAddGrad:
        _absorb_pooling(units, found, unit, home)


def _absorb_pooling(units: list[Unit | None], index: int, unit: Unit, home: dict[Node, int]) -> None:
    """Lets a sum of a map's elements compute the gradient of max pooling that only the map reads.

    index: of the sum, which computes `unit` already.
    """
    sums = units[index]
    for value in unit.inputs:
        flow = storage_of(value)
        found = None if flow.node is None else home.get(flow.node)
        source = None if found is None else units[found]
        expression = inlined(unit, flow)
        if sums is None or source is None or found is None or expression is None:
            continue
        between = Effects(each for each in units[found + 1 : index] if each is not None)
        alone = not flow.is_fetched and set(flow.readers) <= set(unit.nodes)
        if source.head.definition is MaxPoolGrad and alone and not between.clash(source):
            given = [source.inputs[0] if storage_of(each) is flow else each for each in unit.inputs]
            kernel = summed_gradient(source.head, expression.element)
            nodes = (*source.nodes, *sums.nodes)
            units[index] = Unit(nodes, kernel, [*source.inputs, *given], sums.outputs)
            units[found] = None
            home.update(dict.fromkeys(source.nodes, index))
            return
