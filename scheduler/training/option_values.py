"""Values of options as their types, out of files and command lines that strangers have made."""

from __future__ import annotations

from dataclasses import Field
from typing import Any

import numpy as np

from scheduler.averaging.synchronisation import shortened
from scheduler.training.run_trace import traced_rounds
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import FLAG, TEXT, RefusedError, number, sequence, whole

AUTO = "auto"  # as replicas_per_device: as many as train fastest, found while training

_NUMBER = number()
_INTEGER = whole(-(1 << 10_000), 1 << 10_000)  # each option has its own bounds, and its words for them
_COUNTS = sequence(_INTEGER, "")

# What float32 holds, in which devices compute.
LEAST_NUMBER, GREATEST_NUMBER = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
POSITIVE = "a positive number, from 1.2e-38 to 3.4e+38"
NOT_NEGATIVE = "a number of at least 0, up to 3.4e+38"

# What a field's annotation is called in a message.
_EXPECTED = {
    "int": "an integer",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "tuple": "a list",
}


def typed(field: Field[Any], value: Any) -> Any:
    """A value as its option's type; lists become tuples. Raises InvalidArgumentError."""
    annotation = str(field.type)
    kind = annotation.split("[")[0].split(" ")[0]
    if value is None and annotation.endswith("None"):
        return None
    expected = _EXPECTED[kind]
    try:
        if field.name == "devices":
            expected = "names of devices, as cpu:0,cpu:1"
            return tuple(TEXT.read(item) for item in (value.split(",") if isinstance(value, str) else value))
        if field.name == "learning_rate_drops":
            expected = "pairs of an epoch and a factor, as [[10, 0.1]]"
            return tuple((_INTEGER.read(epoch), _number(factor)) for epoch, factor in value)
        if field.name == "trace_rounds":
            expected = "two rounds, as 10:60"
            return traced_rounds(value)
        if field.name == "replicas_per_device":
            expected = "an integer, or one for each device, as 3,1, or auto"
            return _counts(value)
        read = {"int": _INTEGER.read, "float": _number, "str": TEXT.read, "bool": FLAG.read}[kind]
        return read(value)
    except (TypeError, ValueError, OverflowError, RefusedError):
        raise InvalidArgumentError(f"{field.name}: expected {expected}, got {shortened(value)}") from None


def is_positive(value: float | None) -> bool:
    """Whether a number is what POSITIVE says; None is none, and holds too."""
    return value is None or LEAST_NUMBER <= value <= GREATEST_NUMBER


def _number(value: Any) -> float:
    """A float; NaN and infinity too, which each option refuses in its words."""
    if isinstance(value, (float, np.floating)) and not np.isfinite(value):
        return float(value)
    number: float = _NUMBER.read(value)
    return number


def _counts(value: Any) -> int | tuple[int, ...] | str:
    if isinstance(value, str) and value == AUTO:
        return AUTO
    if isinstance(value, str):
        numbers = tuple(int(item) for item in value.split(","))
        return numbers if len(numbers) > 1 else numbers[0]
    kind = _COUNTS if isinstance(value, (list, tuple)) else _INTEGER
    counts: int | tuple[int, ...] = kind.read(value)
    return counts
