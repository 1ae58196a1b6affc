"""Fusion of batch normalisation with its neighbours, to walk memory fewer times.

    convolution -> normalisation -> element-wise epilogue     (ReLU, the sum with a shortcut)
    convolution's gradient -> the normalisation's gradient

A convolution adds the normalisation's sums for each band of its result as soon as that is written.
Intermediate results are stored only if others read them, as the gradient reads a convolution's result.
The sums use the same chunks of rows with and without fusion, and the bits are the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.epilogue import Broadcast, Epilogue
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.ops.batch_norm import sums_of, write_batch_norm, write_batch_norm_gradient
from tensorbow.kernels.native.products.channels import BandSums
from tensorbow.kernels.native.products.contraction_fusion import (
    FusedContraction,
    contraction_of,
    is_written,
    kernel_of,
)
from tensorbow.kernels.scalars import FusedMap, Scalar, results_of
from tensorbow.kernels.scalars.fusion import is_fusable
from tensorbow.ops.batch_norm import FusedBatchNorm, FusedBatchNormGrad
from tensorbow.program.nodes import Node, Unit, Value, storage_of
from tensorbow.program.plan import Group, Ref
from tensorbow.specs import TensorSpec


def fuse_batch_norms(units: Sequence[Unit], maps: Mapping[Hashable, FusedMap], target: Target) -> list[Unit]:
    """Fuses normalisations with the units before and after them, where possible.

    maps: expressions of the element-wise units, by the form of their kernels.
    """
    return _Fusion(units, maps, target).fused()


@dataclass(frozen=True)
class JoinedBatchNorm:
    """Code of a normalisation fused with what comes before and after it.

    Inputs: those of the contraction, or x; scale, offset, mean, variance; the epilogue's operands. Outputs:
    the op's, the first through the epilogue; the contraction's result. Scratch: the running sums, then that
    of the contraction.
    """

    node: Node
    contraction: FusedContraction | None
    epilogue: Epilogue | None

    def __call__(self, e: Emitter, group: Group) -> None:
        """Emits the code."""
        inputs, outputs, (running, *scratch) = group.inputs, group.outputs, group.scratch
        count = _inputs_of(self.contraction)
        first, rest = inputs[:count], inputs[count:]
        x = first[0]
        if self.contraction is not None:
            x = outputs[-1]
            outputs = outputs[:-1]
            self.contraction.write(e, first, x, scratch, BandSums(sums_of(x, of_flow=False), [running]))
        write_batch_norm(
            e,
            self.node.attrs,
            [x, *rest[:4]],
            outputs,
            running,
            summed=self.contraction is not None,
            epilogue=self.epilogue,
            operands=rest[4:],
        )

    def scratch(self, target: Target) -> list[TensorSpec]:
        """The running sums, and the contraction's scratch."""
        sums = sums_of(self.node.inputs[0].spec, of_flow=False)
        return [sums.spec, *(() if self.contraction is None else self.contraction.scratch(target))]

    @property
    def form(self) -> Hashable:
        """A key that is equal for equal code."""
        attrs = tuple(sorted((key, repr(value)) for key, value in self.node.attrs.items()))
        made = None if self.contraction is None else self.contraction.form
        return ("batch norm", attrs, made, self.epilogue)


@dataclass(frozen=True)
class JoinedBatchNormGradient:
    """Code of a normalisation's gradient fused with the contraction that computes its flow.

    Inputs: those of the contraction, or the flow; x, scale, mean, inverse. Outputs: the op's, without the
    first unless it is to `apply`; the flow if it `stays`, else the flow shares the memory of the first
    output. Scratch: the running sums, then that of the contraction.
    """

    node: Node
    contraction: FusedContraction | None
    stays: bool
    applies: bool = True

    def __call__(self, e: Emitter, group: Group) -> None:
        """Emits the code."""
        inputs, outputs, (running, *scratch) = group.inputs, group.outputs, group.scratch
        flow = inputs[0]
        if self.contraction is not None:
            flow = outputs[-1] if self.stays else outputs[0]
            sums = self.sums(inputs, running)
            self.contraction.write(e, inputs[: _inputs_of(self.contraction)], flow, scratch, sums)
        self.finish(e, flow, inputs, outputs, running)

    def sums(self, inputs: Sequence[Ref], running: Ref) -> BandSums[Ref]:
        """The sums that the contraction adds up."""
        x, _, mean, _ = inputs[_inputs_of(self.contraction) :]
        return BandSums(sums_of(x, of_flow=True), (running, x, mean))

    def finish(
        self, e: Emitter, flow: Ref, inputs: Sequence[Ref], outputs: Sequence[Ref], running: Ref
    ) -> None:
        """Emits what follows the contraction."""
        operands = flow, *inputs[_inputs_of(self.contraction) :]
        own = outputs[: 3 if self.applies else 2]
        summed = self.contraction is not None
        write_batch_norm_gradient(e, self.node.attrs, operands, own, running, summed=summed)

    def scratch(self, target: Target) -> list[TensorSpec]:
        """The running sums, and the contraction's scratch."""
        sums = sums_of(self.node.inputs[1].spec, of_flow=True)
        return [sums.spec, *(() if self.contraction is None else self.contraction.scratch(target))]

    @property
    def form(self) -> Hashable:
        """A key that is equal for equal code."""
        made = None if self.contraction is None else self.contraction.form
        training = bool(self.node.attrs["is_training"])
        return ("batch norm gradient", training, made, self.stays, self.applies)


def _inputs_of(contraction: FusedContraction | None) -> int:
    """Number of a contraction's inputs; 1, its result, without one."""
    return 1 if contraction is None else len(contraction.node.inputs)


class _Fusion:
    """Units by index; those fused into a later one are None."""

    def __init__(self, units: Sequence[Unit], maps: Mapping[Hashable, FusedMap], target: Target):
        self._units: list[Unit | None] = list(units)
        self._maps = maps
        self._target = target
        self._places = {node: place for place, unit in enumerate(units) for node in unit.nodes}

    def fused(self) -> list[Unit]:
        for place, unit in enumerate(self._units):
            if unit is None or not isinstance(unit.kernel, NativeKernel):
                continue
            if unit.head.definition is FusedBatchNorm:
                self._join(place, unit)
            elif unit.head.definition is FusedBatchNormGrad:
                self._join_gradient(place, unit)
        return [unit for unit in self._units if unit is not None]

    def _join(self, place: int, unit: Unit) -> None:
        node = unit.head
        summed = bool(node.attrs["is_training"])
        end = self._end(place, node.outputs[0])
        others = [*unit.inputs[1:], *(end[1].inputs if end is not None else [])]
        made = self._contraction(node.inputs[0], place, others) if summed else None
        if made is None and end is None:
            return
        inputs, nodes, outputs, contraction = unit.inputs[:1], [node], unit.outputs, None
        if made is not None:
            home, maker, contraction = made
            inputs, nodes = maker.inputs, [*maker.nodes, node]
            self._units[home] = None
        operands, epilogue = [], None
        if end is not None:
            home, after, epilogue = end
            nodes += after.nodes
            outputs = [*after.outputs, *outputs[1:]]
            operands = [after.inputs[number] for number, _ in epilogue.operands]
            self._units[home] = None
        if contraction is not None:
            outputs = [*outputs, node.inputs[0]]
        emit = JoinedBatchNorm(node, contraction, epilogue)
        self._put(place, emit, nodes, [*inputs, *unit.inputs[1:], *operands], outputs)

    def _join_gradient(self, place: int, unit: Unit) -> None:
        node = unit.head
        flow = node.inputs[0]
        made = self._contraction(flow, place, unit.inputs[1:])
        if made is None:
            return
        home, maker, contraction = made
        stays = flow.is_fetched or any(reader is not node for reader in flow.readers)
        self._units[home] = None
        emit = JoinedBatchNormGradient(node, contraction, stays)
        outputs = [*unit.outputs, *([flow] if stays else [])]
        self._put(place, emit, [*maker.nodes, node], [*maker.inputs, *unit.inputs[1:]], outputs)

    def _put(
        self,
        place: int,
        emit: JoinedBatchNorm | JoinedBatchNormGradient,
        nodes: Sequence[Node],
        inputs: list[Value],
        outputs: list[Value],
    ) -> None:
        kernel = kernel_of(emit, self._target)
        self._units[place] = Unit(tuple(nodes), kernel, inputs, outputs)
        self._places.update(dict.fromkeys(nodes, place))

    def _contraction(
        self, value: Value, place: int, others: Sequence[Value]
    ) -> tuple[int, Unit, FusedContraction] | None:
        """The contraction that makes a value, if it can move to a place and sum whole chunks."""
        home = None if value.node is None else self._places.get(value.node)
        unit = None if home is None or home > place else self._units[home]
        found = None if unit is None else contraction_of(unit)
        if home is None or unit is None or found is None or any(storage_of(v) is value for v in others):
            return None
        chunk = sums_of(value.spec, of_flow=False).rows
        between = [other for other in self._units[home + 1 : place] if other is not None]
        is_read = any(storage_of(v) is value for other in between for v in other.inputs)
        rows = found.rows_at_once(self._target)
        if not rows or rows % chunk or is_read or is_written(unit, between):
            return None
        return home, unit, found

    def _end(self, place: int, value: Value) -> tuple[int, Unit, Epilogue] | None:
        """The element-wise unit that is the only reader of a value, if it can move to the value's place."""
        homes = {self._places.get(reader) for reader in value.readers}
        home = homes.pop() if len(homes) == 1 else None
        unit = None if home is None else self._units[home]
        expression = None if unit is None else _expression_of(unit, self._maps)
        if home is None or unit is None or expression is None:
            return None
        epilogue = _epilogue_of(expression, value, unit)
        if epilogue is None or any(self._is_made_later(v, place) for v in unit.inputs if v is not value):
            return None
        between = [other for other in self._units[place + 1 : home] if other is not None]
        return None if is_written(unit, between) else (home, unit, epilogue)

    def _is_made_later(self, value: Value, place: int) -> bool:
        node = storage_of(value).node
        return node is not None and self._places.get(node, -1) >= place


def _expression_of(unit: Unit, maps: Mapping[Hashable, FusedMap]) -> Scalar | None:
    """Scalar expression of an element-wise unit; None if it has none."""
    kernel, head = unit.kernel, unit.head
    if not isinstance(kernel, NativeKernel):
        return None
    if len(unit.nodes) == 1 and is_fusable(head):
        (result,) = results_of(head.definition, head.attrs, [v.spec.dtype for v in unit.inputs], ())
        return result
    fused = maps.get(kernel.form)
    return None if fused is None or fused.assigns else fused.result


def _epilogue_of(expression: Scalar, own: Value, unit: Unit) -> Epilogue | None:
    """The unit as an epilogue of the normalisation that makes `own`, if possible."""
    result = unit.outputs[0].spec
    extents, dtype = own.spec.extents, own.spec.dtype
    stays = own.is_fetched or not all(reader in unit.nodes for reader in own.readers)
    if stays or not own.readers or (result.extents, result.dtype) != (extents, dtype):
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
