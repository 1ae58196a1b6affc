"""JSON of others: one meaning or none, within bounds."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbow.strict_json import parse_json
from tests.memory_rig.peak import growing_by_less_than

REFUSED = {
    '{"a": 1, "b": 2, "a": 3}': "the key 'a' stands twice in one object",
    '[{"x": {"y": 1, "y": 1}}]': "the key 'y' stands twice",
    "NaN": "NaN where a number is expected",
    "[Infinity]": "Infinity where a number",
    "-Infinity": "-Infinity where a number",
    "1e999": "1e999 where a number",
    "[-1e400]": "-1e400 where a number",
    str(10**400): "0000 where a number",
    "9" * 10_000: "9999 where a number",
    "[" * 100_000: "up to 100,000 values; at most 1,000 are supported",
    "[" + "1," * 1001 + "1]": "at most 1,000 are supported",
    "[1": "delimiter",
    "": "Expecting value",
    "'a'": "Expecting value",
}


@pytest.mark.parametrize("text", REFUSED, ids=[text[:20] for text in REFUSED])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(REFUSED[text])) as refused:
        parse_json(text, 1000)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_too_deep() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 200_000 + "]" * 200_000, 1 << 20)


def test_many_values_take_no_memory() -> None:
    text = "[" + "[],[]," * 2_000_000 + "[]]"
    with growing_by_less_than(1 << 24), pytest.raises(ValueError, match="up to 8,000,002 values"):
        parse_json(text, 1 << 20)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.slow
@given(value=VALUES)
def test_sound_values(value: Any) -> None:
    assert parse_json(json.dumps(value), 1000) == value
