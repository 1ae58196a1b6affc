"""Fusion of element-wise ops into a contraction, as an epilogue on its result in registers.

An element-wise unit is fused if it alone reads the contraction's result, and if everything else that
it reads has the result's layout, one element per column (a bias), or a single element.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tensorbow.graph import Attrs, NodeSpec, OpDef
from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.epilogue import Broadcast, Epilogue
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.channels import ChannelSums
from tensorbow.kernels.native.products.ending import Ending
from tensorbow.kernels.scalars import FusedMap, Scalar, results_of
from tensorbow.kernels.scalars.fusion import is_fusable
from tensorbow.program.nodes import Node, Unit, Value, storage_of
from tensorbow.program.plan import Group, Ref
from tensorbow.specs import TensorSpec

NO_ENDING: Ending[Ref] = Ending()


class WriteContraction(Protocol):
    """Emits an op's code. ending: within what the op was registered for."""

    def __call__(
        self,
        e: Emitter,
        attrs: Attrs,
        inputs: Sequence[Ref],
        output: Ref,
        scratch: Sequence[Ref],
        ending: Ending[Ref] = NO_ENDING,
    ) -> None:
        """Emits code at the end of the function."""


@dataclass(frozen=True)
class _Contractor:
    write: WriteContraction
    scratch: Callable[[NodeSpec, Target], Sequence[TensorSpec]]
    finishes: Callable[[NodeSpec], bool]
    rows_at_once: Callable[[NodeSpec, Target], int]


@dataclass(frozen=True)
class FinishedContraction:
    """Code of a contraction with its epilogue."""

    contractor: _Contractor
    node: Node
    epilogue: Epilogue | None = None

    def __call__(self, e: Emitter, group: Group) -> None:
        """Emits the code of a call without other endings."""
        self.write(e, group.inputs, group.outputs[0], group.scratch)

    def write(
        self,
        e: Emitter,
        inputs: Sequence[Ref],
        output: Ref,
        scratch: Sequence[Ref],
        sums: ChannelSums | None = None,
        summed: Sequence[Ref] = (),
    ) -> None:
        """Emits the code. inputs: of the contraction and of the epilogue. For the others see `Ending`."""
        count = len(self.node.inputs)
        ending = Ending(self.epilogue, inputs[count:], sums, summed)
        self.contractor.write(e, self.node.attrs, inputs[:count], output, scratch, ending)

    def scratch(self, target: Target) -> Sequence[TensorSpec]:
        """The contraction's scratch."""
        return self.contractor.scratch(_spec(self.node), target)

    def rows_at_once(self, target: Target) -> int:
        """Neighbouring rows of the result that are computed together; 0 if no further ending is possible."""
        return self.contractor.rows_at_once(_spec(self.node), target)

    @property
    def form(self) -> Hashable:
        """A key that is equal for equal code."""
        attrs = tuple(sorted((key, repr(value)) for key, value in self.node.attrs.items()))
        return ("contraction", self.node.definition, attrs, self.epilogue)


_CONTRACTORS: dict[OpDef, _Contractor] = {}


def lower_contraction(
    definition: OpDef,
    write: WriteContraction,
    takes: Callable[[NodeSpec, Target], bool],
    scratch: Callable[[NodeSpec, Target], Sequence[TensorSpec]],
    finishes: Callable[[NodeSpec], bool] = lambda node: False,
    rows_at_once: Callable[[NodeSpec, Target], int] = lambda node, target: 0,
) -> None:
    """Registers an op's native code.

    finishes: True if `write` supports an epilogue for this node. rows_at_once: number of neighbouring rows of
    the result computed together; 0 if no further ending is possible.
    """

    def emit(e: Emitter, group: Group) -> None:
        write(e, group.attrs, group.inputs, group.outputs[0], group.scratch)

    lower(definition, Lowering(emit, takes, scratch))
    _CONTRACTORS[definition] = _Contractor(write, scratch, finishes, rows_at_once)


def fuse_epilogues(units: Sequence[Unit], maps: Mapping[Hashable, FusedMap], target: Target) -> list[Unit]:
    """Fuses contractions with the element-wise units that read their results.

    maps: expressions of fused units, by the form of their kernels.
    """
    homes = {unit.nodes[0]: place for place, unit in enumerate(units) if _contractor(unit) is not None}
    result: list[Unit | None] = list(units)
    for place, unit in enumerate(units):
        expression = expression_of(unit, maps)
        if expression is None:
            continue
        for value in unit.inputs:
            home = None if value.node is None else homes.get(value.node)
            if home is None or home > place:
                continue
            epilogue = epilogue_of(expression, value, unit)
            if epilogue is not None and not is_written(units[home], units[home + 1 : place]):
                result[home] = None
                result[place] = _joined(units[home], unit, epilogue, target)
                break
    return [unit for unit in result if unit is not None]


def _contractor(unit: Unit) -> _Contractor | None:
    """The registered code of a unit that is a contraction and supports an epilogue."""
    node, found = unit.head, _CONTRACTORS.get(unit.head.definition)
    native = isinstance(unit.kernel, NativeKernel) and len(unit.nodes) == 1
    return found if found is not None and native and found.finishes(_spec(node)) else None


def _spec(node: Node) -> NodeSpec:
    return NodeSpec(node.attrs, tuple(v.spec for v in node.inputs), tuple(v.spec for v in node.outputs))


def expression_of(unit: Unit, maps: Mapping[Hashable, FusedMap]) -> Scalar | None:
    """Scalar expression of an element-wise unit; None if it has none."""
    kernel, head = unit.kernel, unit.head
    if not isinstance(kernel, NativeKernel):
        return None
    if len(unit.nodes) == 1 and is_fusable(head):
        (result,) = results_of(head.definition, head.attrs, [v.spec.dtype for v in unit.inputs], ())
        return result
    fused = maps.get(kernel.form)
    return None if fused is None or fused.assigns else fused.result


def epilogue_of(expression: Scalar, own: Value, unit: Unit) -> Epilogue | None:
    """The unit as an epilogue of the contraction that makes `own`, if possible."""
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


def is_written(unit: Unit, between: Sequence[Unit]) -> bool:
    """True if a variable that the unit reads is written before its new place."""
    reads = {storage_of(value) for value in unit.inputs}
    nodes = (node for other in between for node in other.nodes)
    return any(storage_of(node.inputs[i]) in reads for node in nodes for i in node.definition.writes)


def _joined(contraction: Unit, unit: Unit, epilogue: Epilogue, target: Target) -> Unit:
    node = contraction.head
    emit = FinishedContraction(_CONTRACTORS[node.definition], node, epilogue)
    kernel = NativeKernel(emit=emit, scratch=lambda _: emit.scratch(target), form=emit.form)
    others = [unit.inputs[number] for number, _ in epilogue.operands]
    return Unit((node, *unit.nodes), kernel, [*contraction.inputs, *others], unit.outputs)


def finished_contraction(unit: Unit) -> FinishedContraction | None:
    """The contraction that a unit consists of, with its epilogue if any."""
    kernel, found = unit.kernel, _CONTRACTORS.get(unit.head.definition)
    if not isinstance(kernel, NativeKernel):
        return None
    if isinstance(kernel.emit, FinishedContraction):
        return kernel.emit
    return FinishedContraction(found, unit.head) if found is not None and len(unit.nodes) == 1 else None


class JoinedCode(Protocol):
    """Code of a call fused from several ops. form: equal for equal code."""

    @property
    def form(self) -> Hashable: ...  # noqa: D102

    def __call__(self, e: Emitter, group: Group) -> None: ...  # noqa: D102

    def scratch(self, target: Target) -> list[TensorSpec]: ...  # noqa: D102


def kernel_of(code: JoinedCode, target: Target) -> NativeKernel:
    """The kernel of fused code."""
    scratch = code.scratch(target)
    return NativeKernel(emit=code, scratch=lambda _: scratch, form=code.form)
