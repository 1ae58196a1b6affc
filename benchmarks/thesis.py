"""Figures of the TensorBow thesis (Budea, 2019), measured on Titan X GPUs, beside what is measured here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness import print_table
from results_page import shown

Row = dict[str, Any]


@dataclass(frozen=True)
class Fact:
    """Figure of the thesis. here: the same of our rows; None where they do not have it."""

    figure: str
    what: str
    value: float
    unit: str
    here: Callable[[Sequence[Row]], float | None]


def rate(rows: Sequence[Row], **fields: Any) -> float | None:
    """Median images per second of the row with these fields, for example model, replicas and sync."""
    for row in rows:
        if all(row.get(name) == value for name, value in fields.items()):
            return float(row["images_per_second"]["median"])
    return None


def ratio(rows: Sequence[Row], over: dict[str, Any], **fields: Any) -> float | None:
    """Rate of the row with these fields over that of the same row with the fields `over` instead."""
    first, second = rate(rows, **fields), rate(rows, **{**fields, **over})
    return first / second if first and second else None


def beside(facts: Sequence[Fact], rows: Sequence[Row]) -> list[str]:
    """Prints the thesis's figures beside ours; the same as remarks for a result."""
    found = [(fact, fact.here(rows)) for fact in facts]
    print("\nThe thesis's figures (Titan X), and those measured here:")
    columns = ["figure", "what", "thesis", "here", ""]
    print_table(columns, [[f.figure, f.what, shown(f.value), shown(here), f.unit] for f, here in found])
    return [
        f"Figure {fact.figure}, {fact.what}: thesis {shown(fact.value)} {fact.unit}, here {shown(here)}."
        for fact, here in found
        if here is not None
    ]
