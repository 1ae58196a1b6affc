"""Values of options as their types, out of files and command lines that strangers have made."""

from __future__ import annotations

import operator
from dataclasses import Field
from numbers import Real
from reprlib import Repr
from typing import Any

from scheduler.run_trace import traced_rounds
from tensorbow.errors import InvalidArgumentError

AUTO = "auto"  # as replicas_per_device: as many as train fastest, found while training

_shortener = Repr()
_shortener.maxlevel, _shortener.maxstring, _shortener.maxother = 2, 60, 60
shortened = _shortener.repr  # of values that a stranger may have made

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
            return tuple(_text(item) for item in (value.split(",") if isinstance(value, str) else value))
        if field.name == "learning_rate_drops":
            expected = "pairs of an epoch and a factor, as [[10, 0.1]]"
            return tuple((_integer(epoch), _number(factor)) for epoch, factor in value)
        if field.name == "trace_rounds":
            expected = "two rounds, as 10:60"
            return traced_rounds(value)
        if field.name == "replicas_per_device":
            expected = "an integer, or one for each device, as 3,1, or auto"
            return _counts(value)
        return {"int": _integer, "float": _number, "str": _text, "bool": _boolean}[kind](value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError(f"{field.name}: expected {expected}, got {shortened(value)}") from None


def _counts(value: Any) -> int | tuple[int, ...] | str:
    if value == AUTO:
        return AUTO
    if isinstance(value, str):
        numbers = tuple(int(item) for item in value.split(","))
        return numbers if len(numbers) > 1 else numbers[0]
    return tuple(_integer(item) for item in value) if isinstance(value, (list, tuple)) else _integer(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
