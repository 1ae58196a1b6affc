"""Graph interpreter: runs every op by its reference kernel or host function, in program order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tensorbow.graph import HostCall, Operation, Resources, StepResources, Tensor
from tensorbow.graph.definition import read_only
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.specs import Array


def run_graph(
    fetches: Sequence[Tensor], feeds: Mapping[Tensor, Array], state: Mapping[str, float] | None = None
) -> list[Array]:
    """Values of `fetches`, given values of placeholders or of any other tensors."""
    values: dict[Tensor, Array] = dict(feeds)
    shared, step = Resources(), Resources()
    for op in _needed([t for t in fetches if t not in values], values):
        if op.type == "Const":
            values[op.outputs[0]] = op.attrs["value"]
        elif op.type == "StepScalar":
            values[op.outputs[0]] = np.array(op.attrs["default"], op.outputs[0].dtype.as_numpy_dtype)
        elif op.outputs:
            with np.errstate(all="ignore"):
                if op.definition.host is not None:
                    results = _from_host(op, [values[t] for t in op.inputs], shared, step)
                else:
                    given = [values[t] for t in op.inputs]
                    results = run_reference_kernel(op.definition, given, op.attrs, state)
            values.update(zip(op.outputs, results, strict=True))
    return [values[t] for t in fetches]


def _from_host(op: Operation, inputs: Sequence[Array], shared: Resources, step: Resources) -> Sequence[Array]:
    given = tuple(read_only(np.asarray(array)) for array in inputs)
    call = HostCall(op, given, StepResources(shared, step))
    assert op.definition.host is not None
    results = op.definition.host(call)
    return [np.asarray(each) for each in (results if isinstance(results, (list, tuple)) else [results])]


def _needed(fetches: Sequence[Tensor], cut: Mapping[Tensor, Array]) -> list[Operation]:
    found: set[Operation] = set()
    pending = [t.op for t in fetches]
    while pending:
        op = pending.pop()
        if op not in found:
            found.add(op)
            pending.extend(t.op for t in op.inputs if t not in cut)
            pending.extend(op.control_inputs)
    return sorted(found, key=lambda op: op.id)
