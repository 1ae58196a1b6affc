"""One launch for the loss of a classifier and what surrounds it, where one block can do it all.

That is, around sparse softmax cross-entropy and as far as the step has it: the bias of the logits, the mean
and the check of the loss, the scale of its derivative, the bias's gradient, and the number of examples whose
greatest logit is the label's.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.kernels.gpu.fusion.inlining import Inlined, inlined
from tensorbow.kernels.gpu.fusion.units import Effects, added_node, added_op
from tensorbow.kernels.gpu.ops.losses import LossHead
from tensorbow.kernels.gpu.source.elements import Element, ElementIndex
from tensorbow.ops.control import CheckFinite
from tensorbow.ops.losses import SparseSoftmaxCrossEntropyWithLogits
from tensorbow.ops.nn import BiasAddGrad
from tensorbow.ops.reductions import ArgMax, Mean, Sum
from tensorbow.program.nodes import Unit, Value, storage_of
from tensorbow.specs import DType, int64

MOST_ELEMENTS, MOST_ROWS = 1 << 14, 1 << 10  # of logits, for one block


def fuse_loss_heads(units: Sequence[Unit]) -> list[Unit]:
    """The units of a segment, with loss heads in place of losses."""
    result = list(units)
    for unit in units:
        if unit.head.definition is SparseSoftmaxCrossEntropyWithLogits:
            spec = unit.inputs[0].spec
            if 0 < spec.size <= MOST_ELEMENTS and spec.extents[0] <= MOST_ROWS:
                result = _Head(result, result.index(unit)).fused()
    return result


class _Head:
    """A loss among the units of a segment, and those that its launch takes over."""

    def __init__(self, units: list[Unit], anchor: int):
        self._units, self._anchor = units, anchor
        self._home = {node: index for index, unit in enumerate(units) for node in unit.nodes}
        self._taken = {anchor}

    def fused(self) -> list[Unit]:
        """The units with the head in the loss's place; the same where it would take over nothing."""
        unit = self._units[self._anchor]
        logits, labels = unit.inputs
        losses, derivative = unit.outputs
        loss = self._reduced(losses)
        checks = loss is not None and self._takes_check(loss.outputs[0])
        right, correct, position = self._right(logits)
        flow, result = self._flow(derivative)
        bias = self._bias(result)
        logit = self._logit(logits)
        if len(self._taken) == 1:
            return self._units
        keeps_losses = loss is None and bool(losses.readers or losses.is_fetched)
        optional = [
            losses if keeps_losses else None,
            loss.outputs[0] if loss else None,
            correct.outputs[0] if correct else None,
            bias.outputs[0] if bias else None,
        ]
        parts = (logit, flow, right)
        head = LossHead(
            logits.spec,
            logit.element,
            flow.element,
            right.element,
            counts=[len(part.inputs) for part in parts],
            has=[value is not None for value in optional],
            loss_is_mean=loss is not None and loss.head.definition is Mean,
            right_is_mean=correct is not None and correct.head.definition is Mean,
            checks=checks,
            position=position,
        )
        inputs = [labels, *(value for part in parts for value in part.inputs)]
        taken = sorted(self._taken - {self._anchor})
        nodes = [*(node for index in taken for node in self._units[index].nodes), *unit.nodes]
        node = added_node(added_op("LossHead", sets_status=checks), nodes, inputs)
        outputs = [result, *(value for value in optional if value is not None)]
        made = Unit((*nodes, node), head.kernel(), inputs, outputs)
        return [
            made if index == self._anchor else each
            for index, each in enumerate(self._units)
            if index == self._anchor or index not in self._taken
        ]

    # What it takes over -------------------------------------------------------------------------------

    def _take(self, *indices: int) -> bool:
        """Takes over units, in order, unless the order of one and of others that stay would change."""
        before = set(self._taken)
        for index in indices:
            first, last = sorted((index, self._anchor))
            between = (self._units[i] for i in range(first + 1, last) if i not in self._taken)
            if index in self._taken or Effects(between).clash(self._units[index]):
                self._taken = before
                return False
            self._taken.add(index)
        return True

    def _readers(self, value: Value) -> list[int]:
        """Indices of the units of this segment that read a value."""
        return sorted({self._home[reader] for reader in value.readers if reader in self._home})

    def _only_reader(self, value: Value) -> int | None:
        """Index of the unit that alone reads a value; None if there are others, or it is fetched."""
        homes = {self._home.get(reader) for reader in value.readers}
        return homes.pop() if len(homes) == 1 and not value.is_fetched else None

    def _reduction(self, value: Value) -> int | None:
        """Index of the only reader of a vector, if that is its sum or mean."""
        index = self._only_reader(value)
        if index is None:
            return None
        unit = self._units[index]
        whole = unit.inputs[0].spec == value.spec and unit.outputs[0].spec.extents == ()
        return index if unit.head.definition in (Sum, Mean) and whole else None

    def _reduced(self, losses: Value) -> Unit | None:
        index = self._reduction(losses)
        return self._units[index] if index is not None and self._take(index) else None

    def _takes_check(self, loss: Value) -> bool:
        """Takes over the check of the loss, and says whether there is one."""
        checks = (i for i in self._readers(loss) if self._units[i].head.definition is CheckFinite)
        return any(self._take(index) for index in checks)

    def _right(self, logits: Value) -> tuple[Inlined, Unit | None, DType]:
        """Expression of the greatest logit's number, the unit of its sum over the examples, and its dtype."""
        for index in self._readers(storage_of(logits)):
            unit = self._units[index]
            greatest = unit.outputs[0] if unit.outputs else None
            if unit.head.definition is not ArgMax or greatest is None or unit.inputs[0].spec != logits.spec:
                continue
            reader = self._only_reader(greatest)
            found = None if unit.head.attrs["axis"] % 2 == 0 or reader is None else reader
            right = None if found is None else self._own(self._units[found], greatest)
            if right is None or found is None:
                continue
            end = self._reduction(self._units[found].outputs[0])
            if end is not None and self._take(index, found, end):
                return right, self._units[end], greatest.spec.dtype
        return Inlined(Element.identity(ElementIndex.OWN, int64), []), None, int64

    def _flow(self, derivative: Value) -> tuple[Inlined, Value]:
        """Expression of the derivative, and its value: of a map that alone reads it, if there is one."""
        index = self._only_reader(derivative)
        if index is not None:
            flow = self._own(self._units[index], derivative)
            result = self._units[index].outputs[0]
            if flow is not None and result.spec == derivative.spec and self._take(index):
                return flow, result
        return Inlined(Element.identity(ElementIndex.OWN, derivative.spec.dtype), []), derivative

    def _bias(self, flow: Value) -> Unit | None:
        for index in self._readers(flow):
            unit = self._units[index]
            is_whole = unit.inputs[0].spec == flow.spec
            if unit.head.definition is BiasAddGrad and is_whole and self._take(index):
                return unit
        return None

    def _logit(self, logits: Value) -> Inlined:
        """Expression of the logits: of a map that is read by what is taken over, if there is one."""
        root = storage_of(logits)
        index = None if root.node is None else self._home.get(root.node)
        homes = {self._home.get(reader) for reader in root.readers}
        if index is not None and not root.is_fetched and homes <= self._taken and root.spec == logits.spec:
            found = inlined(self._units[index])
            if found is not None and self._take(index):
                return found
        return Inlined(Element.identity(ElementIndex.EACH, logits.spec.dtype), [logits])

    def _own(self, unit: Unit, own: Value) -> Inlined | None:
        """A map as an expression of a value; the labels stand for that among its inputs."""
        found = inlined(unit, own)
        labels = self._units[self._anchor].inputs[1]
        if found is None:
            return None
        return Inlined(found.element, [labels if storage_of(v) is own else v for v in found.inputs])
