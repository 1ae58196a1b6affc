"""Hyper-parameters of a step's optimisers, as its graph has them: what workers compare before they train."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from numbers import Number

import numpy as np

from tensorbow.graph import Operation, Tensor
from tensorbow.ops.arrays import ConcatV2, ExpandDims
from tensorbow.ops.control import StepScalar
from tensorbow.ops.state import VariableReference
from tensorbow.optimizers import Schedule
from tensorbow.specs import Array

STACKING = (ConcatV2, ExpandDims)
SHOWN = 8  # elements of a constant; longer ones are shown by a checksum


def hyperparameters(operations: Sequence[Operation]) -> list[str]:
    """Numbers that the updates of a step's variables read beside gradients, each with its place.

    These are attributes of the updates, as a weight decay; constants from which their scalars are computed,
    the boundaries of a schedule among them; and all step scalars. What depends on an input, on a variable or
    on the replica's number is left out from there on, so that a replica may have values of its own.
    """
    found = {}  # each with its first place
    for op in operations:
        if op.definition is StepScalar:
            found[op.outputs[0]] = [f"{op.attrs['key']}={op.attrs['default']:g}"]
    for op in operations:
        rule = op.definition.update or op.definition.row_update
        if rule is None or op.inputs[0].op.definition is not VariableReference:
            continue
        place = f"of {op.definition.name} of {op.inputs[0].op.name}"
        numbers = {name: value for name, value in op.attrs.items() if isinstance(value, (bool, int, float))}
        found[op.outputs[0]] = [f"{name}={value!r} {place}" for name, value in numbers.items()]
        gradient = {*rule} - {*op.definition.writes}
        for index, (name, tensor) in enumerate(zip(op.definition.input_names, op.inputs, strict=False)):
            if index not in gradient and index not in op.definition.writes and tensor not in found:
                found[tensor] = [f"{name}={part} {place}" for part in _parts(tensor)]
    return [text for texts in found.values() for text in texts]


def of_schedule(schedule: Schedule | None) -> list[str]:
    """Numbers of a learning rate that an engine sets by round, and of schedules that it is made of."""
    if schedule is None:
        return []
    facts = [f"learning rate {schedule(0):g} at round 0, by {type(schedule).__name__}"]
    for name, value in sorted(vars(schedule).items()):
        if isinstance(value, Schedule):
            facts += of_schedule(value)
        elif all(
            isinstance(each, Number) for each in (value if isinstance(value, (list, tuple)) else [value])
        ):
            facts.append(f"{name.lstrip('_')}={value!r} of the {type(schedule).__name__}")
    return facts


def _parts(tensor: Tensor) -> Iterator[str]:
    """Constants from which a scalar is computed, or a stack of scalars, from its end on."""
    seen, pending = set[Tensor](), [tensor]
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        if current.spec.value is not None:
            yield _shown(np.asarray(current.spec.value))
        elif current.spec.shape == () or current.op.definition in STACKING:
            pending += reversed(current.op.inputs)


def _shown(value: Array) -> str:
    if value.size <= SHOWN:
        return " ".join(map(str, value.reshape(-1)))
    return f"{value.dtype}{[*value.shape]} with checksum {zlib.crc32(np.ascontiguousarray(value).tobytes())}"
