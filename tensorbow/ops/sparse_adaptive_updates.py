"""Sparse updates, of the rows that have a gradient, by Adagrad, Adadelta and RMSProp.

Same as TensorFlow 1's SparseApplyAdagrad, SparseApplyAdadelta, SparseApplyRMSProp and
SparseApplyCenteredRMSProp: other rows of variable and slots stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tensorbow.graph import NOT_DIFFERENTIABLE, Kernel, KernelCall, NodeSpec, OpDef
from tensorbow.ops.adaptive_updates import Formula, adadelta, adagrad, centered_rms_prop, rms_prop
from tensorbow.ops.definition import define_op
from tensorbow.ops.indexing import check_positions
from tensorbow.ops.sparse_updates import rows_spec, take_rows
from tensorbow.specs import TensorSpec, int64


def define_row_update(
    name: str,
    slots: Sequence[str],
    scalars: Sequence[str],
    formula: Formula,
    attrs: Mapping[str, Any] = MappingProxyType({}),
) -> OpDef:
    """Defines an op of (variable, slots, gradient, learning rate, indices, scalars); writes the first two.

    attrs: attributes, with their defaults, which the formula gets by name.
    """
    owned = 1 + len(slots)  # the variable and its slots

    def scratch(node: NodeSpec) -> list[TensorSpec]:
        """The rows of the variable and its slots, two temporaries, and the positions."""
        gradient, indices = node.inputs[owned], node.inputs[owned + 2]
        rows = TensorSpec(gradient.shape, gradient.dtype)
        return [*[rows] * (owned + 2), TensorSpec(indices.shape, int64)]

    def prepare(call: KernelCall) -> Callable[[], None]:
        tables = call.inputs[:owned]
        gradient, rate, indices, *more = call.inputs[owned:]
        *buffers, positions = call.scratch
        own = {name: call.attrs[name] for name in attrs}

        def step() -> None:
            np.copyto(positions, indices)
            count = int(np.count_nonzero(indices >= 0))
            if not count:
                return
            chosen = positions[:count]
            check_positions(name, chosen, len(tables[0]))
            *rows, a, b = (buffer[:count] for buffer in buffers)
            for table, part in zip(tables, rows, strict=True):
                take_rows(table, chosen, part)
            formula(a, b, *rows, gradient[:count], rate, *more, **own)
            for table, part in zip(tables, rows, strict=True):
                table[chosen] = part

        return step

    return define_op(
        name,
        spec=rows_spec(name, len(slots)),
        gradient=NOT_DIFFERENTIABLE,
        inputs=("var", *slots, "gradient", "learning_rate", "indices", *scalars),
        attrs=attrs,
        kernel=Kernel(prepare=prepare, scratch=scratch),
        alias=((0, 0),),
        writes=tuple(range(owned)),
        row_update=(owned, owned + 2),
        doc=f"{name.removeprefix('Sparse')} of the rows at `indices`: all different, then -1 perhaps.",
    )


SparseApplyAdagrad = define_row_update("SparseApplyAdagrad", ("accumulator",), (), adagrad)
SparseApplyAdadelta = define_row_update(
    "SparseApplyAdadelta", ("accum", "accum_update"), ("rho", "epsilon"), adadelta
)
SparseApplyRMSProp = define_row_update(
    "SparseApplyRMSProp", ("rms", "momentum_slot"), ("rho", "momentum", "epsilon"), rms_prop
)
SparseApplyCenteredRMSProp = define_row_update(
    "SparseApplyCenteredRMSProp",
    ("mg", "rms", "momentum_slot"),
    ("rho", "momentum", "epsilon"),
    centered_rms_prop,
)
