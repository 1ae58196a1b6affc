"""Fusion of pooling with the contraction before it, and of its gradient with that of the ReLU.

A contraction pools rows that it has just computed (`row_pooling`). ReLU's gradient is zero unless the element
is positive; the gradient of pooling reads that element anyway, so it applies the test at
once. The bits are those of two passes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.ops.pooling import emit_max_pool_grad
from tensorbow.kernels.native.products.contraction_fusion import (
    FinishedContraction,
    finished_contraction,
    kernel_of,
)
from tensorbow.kernels.native.products.row_pooling import RowPooling
from tensorbow.ops.elementwise_table import ReluGrad
from tensorbow.ops.pooling import MaxPoolGrad
from tensorbow.program.nodes import Node, Unit, Value, storage_of
from tensorbow.program.plan import Group
from tensorbow.specs import TensorSpec


@dataclass(frozen=True)
class PooledContraction:
    """Code of a contraction with epilogue and pooling. Outputs: its result, and the pooled result."""

    contraction: FinishedContraction
    pool: RowPooling

    def __call__(self, e: Emitter, group: Group) -> None:
        """Emits the code."""
        made, pooled = group.outputs
        self.contraction.write(e, group.inputs, made, group.scratch, pool=self.pool, pooled=[pooled])

    def scratch(self, target: Target) -> list[TensorSpec]:
        """The contraction's scratch."""
        return [*self.contraction.scratch(target)]

    @property
    def form(self) -> Hashable:
        """A key that is equal for equal code."""
        return ("pooled contraction", self.contraction.form, self.pool)


def fuse_pools(units: Sequence[Unit], target: Target) -> list[Unit]:
    """Fuses poolings into the contractions whose results they pool."""
    result: list[Unit | None] = list(units)
    homes = {node: place for place, unit in enumerate(units) for node in unit.nodes}
    for place, unit in enumerate(units):
        pool = RowPooling.of(unit.head) if _is_alone(unit) else None
        value = unit.inputs[0] if pool is not None else None
        home = None if value is None or value.node is None else homes.get(value.node)
        maker = None if home is None else result[home]
        found = None if maker is None else finished_contraction(maker)
        if home is None or maker is None or found is None or pool is None or maker.outputs != [value]:
            continue
        rows = found.rows_at_once(target)
        if rows and rows % pool.rows == 0:
            kernel = kernel_of(PooledContraction(found, pool), target)
            outputs = [*maker.outputs, *unit.outputs]
            result[home] = Unit((*maker.nodes, unit.head), kernel, maker.inputs, outputs)
            result[place] = None
    return [unit for unit in result if unit is not None]


def fuse_pool_gradients(units: Sequence[Unit]) -> list[Unit]:
    """Fuses gradients of pooling into the ReLU gradients that read them."""
    result: list[Unit | None] = list(units)
    homes = {unit.head: place for place, unit in enumerate(units) if _is_alone(unit)}
    for place, unit in enumerate(units):
        pool = _pool_of(unit, homes)
        if pool is None or _writes(units[homes[pool] + 1 : place], pool.inputs):
            continue
        result[homes[pool]] = None
        result[place] = _joined(pool, unit.head)
    return [unit for unit in result if unit is not None]


def _is_alone(unit: Unit) -> bool:
    """True if a unit is one native node."""
    return len(unit.nodes) == 1 and isinstance(unit.kernel, NativeKernel)


def _writes(units: Sequence[Unit], values: Sequence[Value]) -> bool:
    """True if some unit writes a variable that is one of these values."""
    read = {storage_of(value) for value in values}
    nodes = (node for unit in units for node in unit.nodes)
    return any(storage_of(node.inputs[i]) in read for node in nodes for i in node.definition.writes)


def _pool_of(unit: Unit, homes: dict[Node, int]) -> Node | None:
    """The gradient of pooling that a ReLU's gradient can be fused with; it pooled the ReLU's result."""
    relu = unit.head
    if not (relu.definition is ReluGrad and relu in homes):
        return None
    gradient, features = relu.inputs
    pool = gradient.node
    if pool is None or pool.definition is not MaxPoolGrad or pool not in homes or gradient.is_fetched:
        return None
    is_same = features.spec == pool.inputs[0].spec and storage_of(features) is storage_of(pool.inputs[0])
    return pool if is_same and gradient.readers == [relu] else None


def _joined(pool: Node, relu: Node) -> Unit:
    def emit(e: Emitter, group: Group) -> None:
        emit_max_pool_grad(e, pool.attrs, group.inputs, group.outputs[0], rectified=True)

    attrs = tuple(sorted((key, repr(value)) for key, value in pool.attrs.items()))
    kernel = NativeKernel(emit=emit, form=("pool gradient", attrs))
    return Unit((pool, relu), kernel, list(pool.inputs), list(relu.outputs))
