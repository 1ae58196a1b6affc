"""The gradients of max pooling and of the ReLU before it, in one pass.

ReLU's gradient keeps what goes to positive elements. Pooling makes each element's gradient while the element
itself is in a register, so it can look at once. The bits are those of two passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.kernels.native.emitter import Emitter
from tensorbow.kernels.native.kernel import NativeKernel
from tensorbow.kernels.native.pooling import emit_max_pool_grad
from tensorbow.kernels.plan import Group
from tensorbow.kernels.program import Node, Unit, Value, storage_of
from tensorbow.ops.elementwise_table import ReluGrad
from tensorbow.ops.pooling import MaxPoolGrad


def fuse_pool_gradients(units: Sequence[Unit]) -> list[Unit]:
    """The units, gradients of pooling joined to those of the ReLU, in its place."""
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
    """Whether a unit is one native node."""
    return len(unit.nodes) == 1 and isinstance(unit.kernel, NativeKernel)


def _writes(units: Sequence[Unit], values: Sequence[Value]) -> bool:
    """Whether variables that these values are, are written."""
    read = {storage_of(value) for value in values}
    nodes = (node for unit in units for node in unit.nodes)
    return any(storage_of(node.inputs[i]) in read for node in nodes for i in node.definition.writes)


def _pool_of(unit: Unit, homes: dict[Node, int]) -> Node | None:
    """The gradient of pooling that a ReLU's gradient can be joined to: of what the ReLU gave."""
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
