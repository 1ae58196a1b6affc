"""Characters of strings: decoded, split, encoded and in other encodings, with errors of three kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError


def value_of(make: Any) -> Any:
    """The value; of a SparseTensor the rows as lists."""
    with tb.Graph().as_default(), tb.Session() as session:
        value = session.run(make())
    if not isinstance(value, tb.SparseTensorValue):
        return value
    rows: list[list[Any]] = [[] for _ in range(value.dense_shape[0])]
    for (row, column), element in zip(value.indices.tolist(), value.values.tolist(), strict=True):
        assert column == len(rows[row]) < value.dense_shape[1]
        rows[row].append(element)
    return rows


TEXTS = ["Grüße 😀", "", "日本"]


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16-BE", "UTF-32-BE", "utf-8"])
def test_characters_of_a_vector(encoding: str) -> None:
    encoded = [text.encode(encoding) for text in TEXTS]
    numbers = value_of(lambda: tb.strings.unicode_decode(encoded, encoding))
    assert [[*map(chr, row)] for row in numbers] == [list(text) for text in TEXTS]
    parts = value_of(lambda: tb.strings.unicode_split(encoded, encoding))
    assert [[part.decode(encoding) for part in row] for row in parts] == [list(text) for text in TEXTS]


def test_characters_of_a_scalar() -> None:
    assert value_of(lambda: tb.strings.unicode_decode("aé", "UTF-8")).tolist() == [97, 233]
    assert value_of(lambda: tb.strings.unicode_split("aé", "UTF-8")).tolist() == [b"a", "é".encode()]
    with pytest.raises(InvalidArgumentError, match=r"unicode_decode: .*expected a scalar or a vector"):
        value_of(lambda: tb.strings.unicode_decode([["a"]], "UTF-8"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [97, 0xFFFD, 1, 98]),
        ({"replacement_char": 63}, [97, 63, 1, 98]),
        ({"errors": "ignore"}, [97, 1, 98]),
        ({"replacement_char": 63, "replace_control_characters": True}, [97, 63, 63, 98]),
    ],
)
def test_bytes_that_are_no_character(options: dict[str, Any], expected: list[int]) -> None:
    broken = b"a\xff\x01b"
    assert value_of(lambda: tb.strings.unicode_decode(broken, "UTF-8", **options)).tolist() == expected
    again = value_of(lambda: tb.strings.unicode_transcode(broken, "UTF-8", "UTF-16-BE", **options))
    assert again == "".join(map(chr, expected)).encode("utf-16-be")


def test_strict_errors() -> None:
    with pytest.raises(InvalidArgumentError, match=r"is no UTF-8 at byte 1; give errors='replace'"):
        value_of(lambda: tb.strings.unicode_decode(b"a\xff", "UTF-8", errors="strict"))
    with pytest.raises(InvalidArgumentError, match=r"55296 is the number of no character"):
        value_of(lambda: tb.strings.unicode_encode([97, 0xD800], "UTF-8", errors="strict"))
    with pytest.raises(InvalidArgumentError, match="expected input_encoding to be the name of an encoding"):
        tb.strings.unicode_decode("a", "UTF-9")


def test_numbers_become_strings() -> None:
    assert value_of(lambda: tb.strings.unicode_encode([72, 105, -5], "UTF-8")) == "Hi\ufffd".encode()
    numbers = np.array([[97, 98], [0x1F600, 0xD800]], np.int64)
    found = value_of(lambda: tb.strings.unicode_encode(numbers, "UTF-16-BE", errors="ignore"))
    assert found.tolist() == [text.encode("utf-16-be") for text in ("ab", "😀")]
    decoded = value_of(lambda: tb.strings.unicode_encode(tb.strings.unicode_decode(TEXTS, "UTF-8"), "UTF-8"))
    assert [text.decode() for text in decoded] == TEXTS
    assert value_of(lambda: tb.strings.unicode_transcode(["é"], "latin 1", "UTF-8"))[0] == "Ã©".encode()


def test_encodings_that_lack_the_replacing_character():
    parts = value_of(lambda: tb.strings.unicode_split(b"a\xffb", "US-ASCII"))
    assert parts.tolist() == [b"a", b"?", b"b"]
    with pytest.raises(InvalidArgumentError, match="input_encoding to be the name of an encoding"):
        value_of(lambda: tb.strings.unicode_decode(b"61", "hex"))
