"""`metrics.jsonl`: one JSON object a line, in the order of events."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tensorbow.errors import NotFoundError
from tensorbow.files import append_to_file, read_file, write_file
from tensorbow.strict_json import parse_json

LIMIT = 1 << 30  # bytes of a metrics file: some millions of records
MOST_VALUES = 1 << 16  # of a record, which has some dozens


class MetricsLog:
    """Appends records to a file. Each has a `round`, so that a resumed run can drop what it repeats."""

    def __init__(self, path: Path, resume_at: int | None = None, source: Path | None = None):
        """resume_at: keep only the records up to that round; None: start an empty file.

        source: the file they are taken from, if not `path` itself.
        Raises ResourceExhaustedError, InvalidArgumentError, FailedPreconditionError.
        """
        self.path = path
        kept: list[str] = []
        if resume_at is not None:
            kept = [line for line in _lines(source or path) if _round_of(line) <= resume_at]
        write_file(path, "".join(f"{line}\n" for line in kept).encode())
        append_to_file(path, b"")  # whether that can be, too, is known before anything is trained

    def append(self, record: dict[str, Any]) -> None:
        """Adds a record, with null for what is not finite; it is on disk when the method returns.

        Raises ResourceExhaustedError, InvalidArgumentError; the records before it are then whole.
        """
        line = json.dumps({name: finite_or_none(value) for name, value in record.items()}) + "\n"
        append_to_file(self.path, line.encode())


def finite_or_none(value: Any) -> Any:
    """None for NaN and infinity, which JSON does not have; anything else as it is."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _lines(path: Path) -> list[str]:
    try:
        return read_file(path, LIMIT).decode("utf-8", errors="replace").splitlines()
    except NotFoundError:
        return []


def _round_of(line: str) -> float:
    """The round of a record; infinite for a line cut short, which is thus dropped."""
    try:
        round = parse_json(line, MOST_VALUES)["round"]
    except (ValueError, KeyError, TypeError):
        return math.inf
    return round if type(round) is int else math.inf
