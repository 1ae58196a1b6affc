"""Tables of columns by name, in .csv and .parquet files: features, standardised, and a target."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tensorbow.data.array_dataset import ArrayDataset, numbered
from tensorbow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError
from tensorbow.files import open_to_read, shown
from tensorbow.specs import Array

USUAL_TARGETS = ("target", "label", "labels", "class", "y")
_MOST_CLASSES = 1000  # different whole numbers of a target that are taken for classes


def read_table(path: Path) -> dict[str, Array]:
    """Columns of a .csv file with a header, or of a .parquet file: numbers, or texts where one is no number.

    Raises what opening a file raises, DataLossError for a damaged file, InvalidArgumentError for a file
    without a header or rows, FailedPreconditionError for .parquet without pyarrow.
    """
    return _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)


def _read_csv(path: Path) -> dict[str, Array]:
    with open_to_read(path) as file:
        try:
            text = file.read().decode("utf-8-sig")
            rows = [row for row in csv.reader(text.splitlines()) if row]
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataLossError(f"{shown(path)} is damaged or no text in UTF-8: {error}") from None
    if len(rows) < 2:
        raise InvalidArgumentError(f"{shown(path)}: expected a header and rows, got {len(rows)} rows")
    names = [name.strip() for name in rows[0]]
    if len(set(names)) != len(names) or any(map(_is_number, names)):
        raise InvalidArgumentError(
            f"{shown(path)}: expected a header of different names, got {', '.join(names)[:200]}"
        )
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise InvalidArgumentError(
                f"{shown(path)}, row {number}: expected {len(names)} values, as the header, got {len(row)}"
            )
    return {name: _column([*column]) for name, column in zip(names, zip(*rows[1:], strict=True), strict=True)}


def _column(texts: list[str]) -> Array:
    """Numbers of a column, float64; its texts, if one of them is no number."""
    try:
        return np.array(texts, np.float64)
    except ValueError:
        return np.array([text.strip() for text in texts])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path) -> dict[str, Array]:
    try:
        parquet = import_module("pyarrow.parquet")  # has no types, and need not be installed
    except ImportError:
        raise FailedPreconditionError(
            f"{shown(path)}: reading .parquet files needs pyarrow; pip install pyarrow, or give a .csv file"
        ) from None
    with open_to_read(path) as file:
        try:
            table = parquet.read_table(file)
        except Exception as error:  # pyarrow raises many kinds
            raise DataLossError(f"{shown(path)} is damaged or no parquet file: {error}") from error
        columns = {name: np.asarray(table[name].to_numpy()) for name in table.column_names}
    return {
        name: column.astype(str) if column.dtype.kind == "O" else column for name, column in columns.items()
    }


def table_dataset(columns: Mapping[str, Array], target: str | None, name: str) -> ArrayDataset:
    """Features float32 [rows, columns], and the target: classes int64 [rows], or float32 [rows].

    target: a column, or several separated by commas, which are numbers to regress, float32 [rows, targets].
    One of texts, or of a few whole numbers from 0, has classes; any other is to be regressed. Mean and
    standard deviation are set by `standardised_by`. Raises InvalidArgumentError for a target that is not
    there, a feature of texts, and values that are missing.
    """
    if target is None:
        target = next((each for each in USUAL_TARGETS if each in columns), None)
    targets = [target or ""] if target in columns else [each.strip() for each in (target or "").split(",")]
    if target is None or not {*targets} <= columns.keys():
        raise InvalidArgumentError(
            f"target: expected a column of {name}, one of {', '.join(columns)}; "
            f"{'give --target COLUMN' if target is None else f'got {target!r:.60}'}"
        )
    features = [key for key in columns if key not in targets]
    if not features:
        raise InvalidArgumentError(f"{name}: expected columns beside the target {target}, got none")
    inputs = features_of(columns, features, name)
    labels: Array
    names: Sequence[str] = ()
    if len(targets) > 1:
        labels = features_of(columns, targets, name)
    else:
        _require_values(target, columns[target], name, may_be_text=True)
        labels, names = _target_of(columns[target])
    return ArrayDataset(
        inputs,
        labels,
        name=name,
        class_names=names,
        feature_names=features,
        standardisation=standardisation_of(inputs),
    )


def features_of(columns: Mapping[str, Array], names: Sequence[str], table: str) -> Array:
    """Features float32 [rows, columns] of these names. table: its name. Raises as `table_dataset`."""
    missing = [name for name in names if name not in columns]
    if missing or not names:
        raise InvalidArgumentError(
            f"{table}: expected the columns of the training data ({', '.join(names) or 'it had no names'}), "
            f"got {', '.join(columns)}"
        )
    for name in names:
        _require_values(name, columns[name], table, may_be_text=False)
    return np.stack([columns[name].astype(np.float32) for name in names], axis=1)


def _require_values(key: str, column: Array, name: str, may_be_text: bool) -> None:
    if column.dtype.kind in "biuf":
        missing = np.flatnonzero(np.isnan(column)) if column.dtype.kind == "f" else np.arange(0)
        if missing.size:
            raise InvalidArgumentError(
                f"{name}, row {missing[0] + 2}: column {key} has no number; fill it in"
            )
        return
    if column.dtype.kind != "U":
        raise InvalidArgumentError(f"{name}: expected column {key} to have numbers, got {column.dtype}")
    bad = next(
        (
            row
            for row, text in enumerate(column.tolist())
            if not text or not (may_be_text or _is_number(text))
        ),
        None,
    )
    if bad is None:
        return
    what = f"{str(column[bad])!r:.60}, no number" if column[bad] else "no value"
    raise InvalidArgumentError(
        f"{name}, row {bad + 2}: column {key} has {what}; expected numbers: encode or drop it"
    )


def _target_of(column: Array) -> tuple[Array, Sequence[str]]:
    """Labels of a target, and the names of its classes if it has texts."""
    if column.dtype.kind == "U":
        return numbered(column)
    if (column == np.floor(column)).all() and column.min() >= 0 and column.max() < _MOST_CLASSES:
        return column.astype(np.int64), ()
    return column.astype(np.float32), ()


def standardisation_of(inputs: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each column, float64 [columns]; 1 for a column of equal values."""
    values: Any = inputs.astype(np.float64)
    std = values.std(0)
    return values.mean(0), np.where(std > 0, std, 1.0)
