"""Fusion of batch normalisation with its neighbours, to walk memory fewer times.

    convolution -> normalisation -> element-wise epilogue     (ReLU, the sum with a shortcut)

A convolution adds the normalisation's sums for each band of its result as soon as that is written.
The convolution's result is stored, too, as the gradient reads it.
The sums use the same chunks of rows with and without fusion, and the bits are the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tensorbow.graph import NodeSpec
from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.epilogue import Broadcast, Epilogue
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.ops.batch_norm import sums_of, write_batch_norm
from tensorbow.kernels.native.ops.conv import convolution_scratch, rows_at_once, write_convolution
from tensorbow.kernels.scalars import results_of
from tensorbow.kernels.scalars.fusion import is_fusable
from tensorbow.ops.batch_norm import FusedBatchNorm
from tensorbow.ops.conv import Conv2D
from tensorbow.program.nodes import Node, Unit, Value, storage_of
from tensorbow.program.plan import Group
from tensorbow.specs import TensorSpec


def fuse_batch_norms(units: Sequence[Unit], target: Target) -> list[Unit]:
    """Fuses normalisations with the units before and after them, where possible."""
    return _Fusion(units, target).fused()


@dataclass(frozen=True)
class JoinedBatchNorm:
    """Code of a normalisation fused with what comes before and after it.

    Inputs: those of the convolution, or x; scale, offset, mean, variance; the epilogue's operands. Outputs:
    the op's, the first through the epilogue; the convolution's result. Scratch: the running sums, then that
    of the convolution.
    """

    node: Node
    convolution: Node | None
    epilogue: Epilogue | None

    def __call__(self, e: Emitter, group: Group) -> None:
        """Emits the code."""
        inputs, outputs, (running, *scratch) = group.inputs, group.outputs, group.scratch
        count = 1 if self.convolution is None else len(self.convolution.inputs)
        first, rest = inputs[:count], inputs[count:]
        x = first[0]
        if self.convolution is not None:
            outputs, x = outputs[:-1], outputs[-1]
            sums = sums_of(x, of_flow=False), running
            write_convolution(e, self.convolution.attrs, first, x, scratch, sums)
        write_batch_norm(
            e,
            self.node.attrs,
            [x, *rest[:4]],
            outputs,
            running,
            summed=self.convolution is not None,
            epilogue=self.epilogue,
            operands=rest[4:],
        )

    def scratch(self, target: Target) -> list[TensorSpec]:
        """The running sums, and the convolution's scratch."""
        sums = sums_of(self.node.inputs[0].spec, of_flow=False)
        more = () if self.convolution is None else convolution_scratch(_spec(self.convolution), target)
        return [sums.spec, *more]

    @property
    def form(self) -> Hashable:
        """A key that is equal for equal code."""
        made = None if self.convolution is None else _attrs(self.convolution)
        return ("batch norm", _attrs(self.node), made, self.epilogue)


def _spec(node: Node) -> NodeSpec:
    return NodeSpec(node.attrs, tuple(v.spec for v in node.inputs), tuple(v.spec for v in node.outputs))


def _attrs(node: Node) -> Hashable:
    return tuple(sorted((key, repr(value)) for key, value in node.attrs.items()))


class _Fusion:
    """Units by index; those fused into a later one are None."""

    def __init__(self, units: Sequence[Unit], target: Target):
        self._units: list[Unit | None] = list(units)
        self._target = target
        self._places = {node: place for place, unit in enumerate(units) for node in unit.nodes}

    def fused(self) -> list[Unit]:
        for place, unit in enumerate(self._units):
            if unit is not None and unit.head.definition is FusedBatchNorm and _is_native(unit):
                self._join(place, unit)
        return [unit for unit in self._units if unit is not None]

    def _join(self, place: int, unit: Unit) -> None:
        node = unit.head
        summed = bool(node.attrs["is_training"])
        end = self._end(place, node.outputs[0])
        others = [*unit.inputs[1:], *(end[1].inputs if end is not None else [])]
        made = self._convolution(node.inputs[0], place, others) if summed else None
        if made is None and end is None:
            return
        inputs, nodes, outputs, convolution = unit.inputs[:1], [node], unit.outputs, None
        if made is not None:
            home, convolution = made
            inputs, nodes = list(convolution.inputs), [convolution, node]
            self._units[home] = None
        operands, epilogue = [], None
        if end is not None:
            home, after, epilogue = end
            nodes += after.nodes
            outputs = [*after.outputs, *outputs[1:]]
            operands = [after.inputs[number] for number, _ in epilogue.operands]
            self._units[home] = None
        if convolution is not None:
            outputs = [*outputs, node.inputs[0]]
        emit = JoinedBatchNorm(node, convolution, epilogue)
        scratch = emit.scratch(self._target)
        kernel = NativeKernel(emit=emit, scratch=lambda _: scratch, form=emit.form)
        self._units[place] = Unit(tuple(nodes), kernel, [*inputs, *unit.inputs[1:], *operands], outputs)
        self._places.update(dict.fromkeys(nodes, place))

    def _convolution(self, value: Value, place: int, others: Sequence[Value]) -> tuple[int, Node] | None:
        """The convolution that makes a value, if it can move to a place and sum whole chunks."""
        node = value.node
        home = None if node is None else self._places.get(node)
        unit = None if home is None or home > place else self._units[home]
        if node is None or home is None or unit is None or node.definition is not Conv2D:
            return None
        between = [other for other in self._units[home + 1 : place] if other is not None]
        readers = [*others, *(v for other in between for v in other.inputs)]
        if not _is_native(unit) or any(storage_of(v) is value for v in readers) or _is_written(unit, between):
            return None
        chunk = sums_of(value.spec, of_flow=False).rows
        return (home, node) if rows_at_once(_spec(node), self._target) % chunk == 0 else None

    def _end(self, place: int, value: Value) -> tuple[int, Unit, Epilogue] | None:
        """The element-wise unit that is the only reader of a value, if it can move to the value's place."""
        homes = {self._places.get(reader) for reader in value.readers}
        home = homes.pop() if len(homes) == 1 else None
        unit = None if home is None else self._units[home]
        epilogue = None if unit is None else _epilogue_of(value, unit)
        if home is None or unit is None:
            return None
        if epilogue is None or any(self._is_made_later(v, place) for v in unit.inputs if v is not value):
            return None
        between = [other for other in self._units[place + 1 : home] if other is not None]
        return None if _is_written(unit, between) else (home, unit, epilogue)

    def _is_made_later(self, value: Value, place: int) -> bool:
        node = storage_of(value).node
        return node is not None and self._places.get(node, -1) >= place


def _is_native(unit: Unit) -> bool:
    """True if a unit is one node with native code."""
    return isinstance(unit.kernel, NativeKernel) and len(unit.nodes) == 1


def _is_written(unit: Unit, between: Sequence[Unit]) -> bool:
    """True if a variable that the unit reads is written before its new place."""
    reads = {storage_of(value) for value in unit.inputs}
    nodes = (node for other in between for node in other.nodes)
    return any(storage_of(node.inputs[i]) in reads for node in nodes for i in node.definition.writes)


def _epilogue_of(own: Value, unit: Unit) -> Epilogue | None:
    """The unit, which alone reads `own`, as an epilogue of the normalisation that makes it, if possible."""
    if own.is_fetched or not (_is_native(unit) and is_fusable(unit.head)):
        return None
    result = unit.outputs[0].spec
    extents, dtype = own.spec.extents, own.spec.dtype
    if (result.extents, result.dtype) != (extents, dtype):
        return None
    operands = []
    for number, value in enumerate(unit.inputs):
        if value is own:
            continue
        broadcast = _broadcast(value.spec, extents)
        if broadcast is None or value.spec.dtype != dtype or storage_of(value) is own:
            return None
        operands.append((number, broadcast))
    numbers = tuple(number for number, value in enumerate(unit.inputs) if value is own)
    head = unit.head
    (expression,) = results_of(head.definition, head.attrs, [v.spec.dtype for v in unit.inputs], ())
    return Epilogue(expression, numbers, tuple(operands))


def _broadcast(spec: TensorSpec, extents: tuple[int, ...]) -> Broadcast | None:
    own = spec.extents
    if own == extents:
        return Broadcast.ELEMENT
    if all(extent == 1 for extent in own):
        return Broadcast.SINGLE
    if own[-1] == extents[-1] and all(extent == 1 for extent in own[:-1]):
        return Broadcast.COLUMN
    return None
