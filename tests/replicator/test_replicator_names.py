"""Table of names in the docs: our names exist, and names listed as not supported do not."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

import tensorbow as tb

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/names.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| there", "| ---"))
]
SPAN = re.compile(r"`([^`]+)`")


def there(name):
    """Object with a dotted name, without the arguments of a call."""
    path = name.partition("(")[0].split(".")
    assert path.pop(0) == "tb"
    return functools.reduce(getattr, path, tb)


def test_the_table_is_found():
    assert len(ROWS) > 15
    assert all(len(row) == 2 for row in ROWS)
    for theirs in ("NonReplicator", "MirroredStrategy", "tf.Session"):
        assert any(theirs in row[0] for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:30])
def test_our_names_are_there(row):
    for name in SPAN.findall(row[1]):
        if name.startswith("tb."):
            assert there(name) is not None


@pytest.mark.parametrize("row", [row for row in ROWS if row[1] == "the same methods"])
def test_methods_of_the_same_name_are_there(row):
    for name in SPAN.findall(row[0]):
        assert callable(getattr(tb.NonReplicator, name))
        assert callable(getattr(tb.MultiGpuReplicator, name))


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row[1].startswith("not supported")], ids=lambda row: row[0][:30]
)
def test_what_is_said_to_be_missing_is(row):
    for name in SPAN.findall(row[0]):
        word = name.rpartition(".")[2].partition("(")[0]
        for home in (tb, tb.train, tb.MultiGpuReplicator):
            assert not hasattr(home, word), f"{name} exists now: correct the table"


@pytest.mark.parametrize("made", [tb.NonReplicator, lambda: tb.MultiGpuReplicator(["/cpu:0"], 2)])
def test_all_are_of_one_type(made):
    assert isinstance(made(), tb.Replicator)
