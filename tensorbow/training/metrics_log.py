"""Log of metrics, `metrics.jsonl`: one JSON object per line, in order of time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorbow.errors import NotFoundError
from tensorbow.files import append_to_file, read_file, write_file
from tensorbow.strict_json import parse_json

LIMIT = 1 << 30  # bytes of a metrics file: some millions of records
MOST_VALUES = 1 << 16  # JSON values in a record; usual ones have some dozens


class MetricsLog:
    """Appends records to a file. Each has a `round`: a resumed run drops the records that it will repeat."""

    def __init__(self, path: Path, resume_at: int | None = None, source: Path | None = None):
        """resume_at: keep the records up to this round; None: start with an empty file.

        source: file from which kept records are copied, default `path`.
        Raises ResourceExhaustedError, InvalidArgumentError, FailedPreconditionError.
        """
        self.path = path
        kept: list[str] = []
        if resume_at is not None:
            kept = [line for line in _lines(source or path) if _round_of(line) <= resume_at]
        write_file(path, "".join(f"{line}\n" for line in kept).encode())
        append_to_file(path, b"")  # raises before training if appending is impossible

    def append(self, record: dict[str, Any]) -> None:
        """Appends a record, with null for values that are not finite; it is on disk on return.

        Raises ResourceExhaustedError, InvalidArgumentError; earlier records stay intact.
        """
        append_to_file(self.path, record_line(record))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Records of a file, in order of rounds, without lines that are no records, such as a truncated one.

    A value that was not finite is None. Raises NotFoundError, ResourceExhaustedError.
    """
    lines = read_file(path, LIMIT).decode("utf-8", errors="replace").splitlines()
    return [parse_json(line, MOST_VALUES) for line in lines if math.isfinite(_round_of(line))]


def record_line(record: Mapping[str, Any]) -> bytes:
    """A record as a line of JSON, with null for values that are not finite."""
    return json.dumps(finite_values(record)).encode() + b"\n"


def finite_values(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with None for NaN and infinity."""
    return {name: finite_or_none(value) for name, value in record.items()}


def finite_or_none(value: Any) -> Any:
    """Returns None for NaN and infinity, which JSON does not have; other values unchanged."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _lines(path: Path) -> list[str]:
    try:
        return read_file(path, LIMIT).decode("utf-8", errors="replace").splitlines()
    except NotFoundError:
        return []


def _round_of(line: str) -> float:
    """Round of a record; infinite for a truncated line, so that it is dropped."""
    try:
        round = parse_json(line, MOST_VALUES)["round"]
    except (ValueError, KeyError, TypeError):
        return math.inf
    return round if type(round) is int else math.inf
