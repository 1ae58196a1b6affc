"""Fusion of pooling's gradient with that of the ReLU.

ReLU's gradient is zero unless the element is positive; the gradient of pooling reads that element anyway, so
it applies the test at once. The bits are those of two passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.ops.pooling import emit_max_pool_grad
from tensorbow.ops.elementwise_table import ReluGrad
from tensorbow.ops.pooling import MaxPoolGrad
from tensorbow.program.nodes import Node, Unit, Value, storage_of
from tensorbow.program.plan import Group


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
