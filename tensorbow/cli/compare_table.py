"""Table of compared runs, fitted to the terminal's width."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

RUN = "run"  # the column of the runs' folders
UNBOUNDED = 10_000  # columns of characters
LONGEST = 24  # characters of a text in a table that does not fit
GAP = 2  # spaces between columns


@dataclass(frozen=True)
class Column:
    """A column of a table. header: may have several lines. is_text: aligned at the left."""

    name: str
    header: str
    texts: Sequence[str]
    is_text: bool

    @property
    def width(self) -> int:
        """Number of characters of the widest line."""
        return max(map(cell_len, (*self.header.split("\n"), *self.texts)))

    @property
    def is_equal(self) -> bool:
        """True if several rows have the same text."""
        return len(self.texts) > 1 and len({*self.texts}) == 1

    def folded(self) -> Column:
        """The column with its header on several lines, as wide as its texts need."""
        width = max(map(cell_len, (*self.texts, *_words(self.header))))
        lines = [""]
        for word in _words(self.header):
            if lines[-1] and cell_len(f"{lines[-1]}{word}".rstrip()) > width:
                lines.append("")
            lines[-1] += word
        return replace(self, header="\n".join(line.strip() for line in lines))

    def shortened(self) -> Column:
        """The column with long texts cut in their middles, unless rows would look alike then."""
        texts = [_shortened(text) for text in self.texts]
        return self if len({*texts}) < len({*self.texts}) else replace(self, texts=texts)


def show_table(columns: Sequence[Column], kept: Sequence[str]) -> None:
    """Prints columns, the first of which is `RUN`.

    On a terminal, and where COLUMNS says so, what does not fit is folded, shortened or put into a second
    table, and columns with the same text in all rows are left out but for those of the names `kept`; lines
    say so.
    """
    console = Console(highlight=False, markup=False)
    is_bounded = console.is_terminal or "COLUMNS" in os.environ
    tables, lines = fitted(columns, console.width if is_bounded else UNBOUNDED, kept)
    console.width = max(console.width, *map(_width, tables))
    for number, each in enumerate(tables):
        if number:
            console.print()
        console.print(_table(each))
    for line in lines:
        console.print(line, soft_wrap=True)


def fitted(
    columns: Sequence[Column], width: int, kept: Sequence[str]
) -> tuple[list[list[Column]], list[str]]:
    """Columns of tables up to a width, if they can be that narrow, and lines about what is not in them."""
    lines: list[str] = []
    if _width(columns) > width:
        columns = [column.folded() for column in columns]
    if _width(columns) > width:
        equal = [column for column in columns if column.is_equal and column.name not in (RUN, *kept)]
        columns = [column for column in columns if column not in equal]
        if equal:
            said = (f"{column.header} {column.texts[0]}".replace("\n", " ") for column in equal)
            lines.append(f"equal in all runs: {', '.join(said)}")
    if _width(columns) > width:
        folder = _common_folder(columns[0].texts)
        if folder:
            texts = [os.path.relpath(path, folder) for path in columns[0].texts]
            columns = [replace(columns[0], texts=texts), *columns[1:]]
            lines.append(f"runs in {folder}")
    if _width(columns) > width:
        columns = [column.shortened() for column in columns]
    run, *others = columns
    tables = [[run]]
    for column in others:
        if len(tables[-1]) > 1 and _width([*tables[-1], column]) > width:
            tables.append([run])
        tables[-1].append(column)
    return tables, lines


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def _table(columns: Sequence[Column]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.header, justify="left" if column.is_text else "right", no_wrap=True)
    for row in zip(*(column.texts for column in columns), strict=True):
        table.add_row(*row)
    return table


def _words(header: str) -> list[str]:
    """Parts of a header between which a line may end."""
    return re.findall(r"[^ _]+[ _]*", header) or [header]


def _shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    half = (LONGEST - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def _common_folder(paths: Sequence[str]) -> str:
    """The folder that several paths have in common; empty if there is none."""
    try:
        return os.path.commonpath([os.path.dirname(path) for path in paths]) if len(paths) > 1 else ""
    except ValueError:  # relative and absolute ones
        return ""
