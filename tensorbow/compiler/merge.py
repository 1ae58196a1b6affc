"""Merge: compute each common subexpression once (TensorFlow white paper, section 5.1)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from tensorbow.ops.state import ReadVariable
from tensorbow.program.nodes import Program, Value, replace_values, storage_of


def merge(program: Program) -> Program:
    """Keeps the first of several equal nodes. Never merges stateful or random nodes; merges reads of a
    variable only if no write lies between them.
    """
    replacement: dict[Value, Value] = {}
    seen: dict[Hashable, list[Value]] = {}
    constants: dict[Hashable, Value] = {}
    writes: dict[Value, int] = {}
    kept = []

    def final(value: Value) -> Value:
        while value in replacement:
            value = replacement[value]
        if value.constant is not None:
            return constants.setdefault(_frozen(value.constant), value)
        return value

    for node in program.nodes:
        node.inputs = [final(v) for v in node.inputs]
        for index in node.definition.writes:
            root = storage_of(node.inputs[index])
            writes[root] = writes.get(root, 0) + 1
        if node.definition.stateful or node.definition.random:
            kept.append(node)
            continue
        key: tuple[Hashable, ...] = (node.definition, _frozen(node.attrs), tuple(node.inputs), node.device)
        if node.definition is ReadVariable:
            key = (*key, writes.get(storage_of(node.inputs[0]), 0))
        first = seen.get(key)
        if first is None:
            seen[key] = node.outputs
            kept.append(node)
        else:
            replacement.update(zip(node.outputs, first, strict=True))
            program.notes.append(f"{node.name}: merged into {first[0].name}")
    program.nodes = kept
    replace_values(program, replacement)
    return program


def _frozen(value: Any) -> Hashable:
    """A hashable form of an attribute."""
    if isinstance(value, (np.ndarray, np.generic)):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, Mapping):
        return tuple((key, _frozen(item)) for key, item in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, float):
        return ("float", value.hex())  # 0.0 is not -0.0
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))  # unique while the node that holds it lives
    return (type(value), value)
