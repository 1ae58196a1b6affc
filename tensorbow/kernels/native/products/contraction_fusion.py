"""Contractions as part of a fused call, which may also sum their results for batch normalisation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tensorbow.graph import Attrs, NodeSpec, OpDef
from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.channels import BandSums
from tensorbow.program.nodes import Node, Unit, storage_of
from tensorbow.program.plan import Group, Ref
from tensorbow.specs import TensorSpec

NO_SUMS: BandSums[Ref] = BandSums()


class WriteContraction(Protocol):
    """Emits an op's code. sums: none unless the op was registered for them."""

    def __call__(
        self,
        e: Emitter,
        attrs: Attrs,
        inputs: Sequence[Ref],
        output: Ref,
        scratch: Sequence[Ref],
        sums: BandSums[Ref] = NO_SUMS,
    ) -> None:
        """Emits code at the end of the function."""


@dataclass(frozen=True)
class _Contractor:
    write: WriteContraction
    scratch: Callable[[NodeSpec, Target], Sequence[TensorSpec]]
    rows_at_once: Callable[[NodeSpec, Target], int]


@dataclass(frozen=True)
class FusedContraction:
    """Code of a contraction in a fused call."""

    contractor: _Contractor
    node: Node

    def write(
        self,
        e: Emitter,
        inputs: Sequence[Ref],
        output: Ref,
        scratch: Sequence[Ref],
        sums: BandSums[Ref],
    ) -> None:
        """Emits the code."""
        self.contractor.write(e, self.node.attrs, inputs, output, scratch, sums)

    def scratch(self, target: Target) -> Sequence[TensorSpec]:
        """The contraction's scratch."""
        return self.contractor.scratch(_spec(self.node), target)

    def rows_at_once(self, target: Target) -> int:
        """Neighbouring rows of the result that are computed together; 0 if they cannot be summed."""
        return self.contractor.rows_at_once(_spec(self.node), target)

    @property
    def form(self) -> Hashable:
        """A key that is equal for equal code."""
        attrs = tuple(sorted((key, repr(value)) for key, value in self.node.attrs.items()))
        return ("contraction", self.node.definition, attrs)


_CONTRACTORS: dict[OpDef, _Contractor] = {}


def lower_contraction(
    definition: OpDef,
    write: WriteContraction,
    takes: Callable[[NodeSpec, Target], bool],
    scratch: Callable[[NodeSpec, Target], Sequence[TensorSpec]],
    rows_at_once: Callable[[NodeSpec, Target], int] = lambda node, target: 0,
) -> None:
    """Registers an op's native code.

    rows_at_once: number of neighbouring rows of the result computed together; 0 if they cannot be summed.
    """

    def emit(e: Emitter, group: Group) -> None:
        write(e, group.attrs, group.inputs, group.outputs[0], group.scratch)

    lower(definition, Lowering(emit, takes, scratch))
    _CONTRACTORS[definition] = _Contractor(write, scratch, rows_at_once)


def _spec(node: Node) -> NodeSpec:
    return NodeSpec(node.attrs, tuple(v.spec for v in node.inputs), tuple(v.spec for v in node.outputs))


def contraction_of(unit: Unit) -> FusedContraction | None:
    """The contraction that a unit consists of."""
    found = _CONTRACTORS.get(unit.head.definition)
    is_native = isinstance(unit.kernel, NativeKernel) and len(unit.nodes) == 1
    return FusedContraction(found, unit.head) if found is not None and is_native else None


def is_written(unit: Unit, between: Sequence[Unit]) -> bool:
    """True if a variable that the unit reads is written before its new place."""
    reads = {storage_of(value) for value in unit.inputs}
    nodes = (node for other in between for node in other.nodes)
    return any(storage_of(node.inputs[i]) in reads for node in nodes for i in node.definition.writes)


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
