"""Strict parser of untrusted JSON: unambiguous and of bounded size."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any


def parse_json(text: str, most_values: int) -> Any:
    """The value of a JSON text.

    most_values: limit on an upper estimate of its values, computed before parsing: the commas and opening
    brackets of the text, those inside strings included; keys are not counted. A value takes about 64 bytes.
    Raises ValueError, with the reason on one line, for invalid JSON, a repeated key in an object,
    NaN, infinity, numbers beyond float64, too deeply nested lists, and too many values, before memory is
    allocated for them.
    """
    values = text.count(",") + text.count("[") + text.count("{")
    if values > most_values:
        raise ValueError(f"up to {values:,} values; at most {most_values:,} are supported")
    try:
        return json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except RecursionError:
        raise ValueError("lists or objects are nested too deeply") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice[:40]!r} stands twice in one object")
    return found


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:40]} where a number within float64 is expected")
    return value


def _bounded(digits: str) -> int:
    _finite(digits)
    return int(digits)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} where a number is expected")
