"""Tables of columns by name, in .csv and .parquet files: features, standardised, and a target."""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Mapping, Sequence
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
_MOST_TEXTS = 100  # different texts of a column of features
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))  # in a column of numbers, in any case
_logger = logging.getLogger("tensorbow.data")


def read_table(path: Path) -> dict[str, Array]:
    """Columns of a .csv file with a header, or of a .parquet file: numbers, or texts where one is no number.

    A missing number is NaN, a missing text is empty.

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
    """Numbers of a column, float64; its texts, if one of them is neither a number nor missing."""
    texts = [text.strip() for text in texts]
    try:
        return np.array(["nan" if text.lower() in _MISSING else text for text in texts], np.float64)
    except ValueError:
        return np.array(["" if text.lower() == "nan" else text for text in texts])


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
            f"{shown(path)}: reading .parquet files needs pyarrow; pip install 'tensorbow[parquet]', or "
            "give a .csv file"
        ) from None
    with open_to_read(path) as file:
        try:
            table = parquet.read_table(file)
        except Exception as error:  # pyarrow raises many kinds
            raise DataLossError(f"{shown(path)} is damaged or no parquet file: {error}") from error
        columns = {name: np.asarray(table[name].to_numpy()) for name in table.column_names}
    return {
        name: _column(["" if each is None else str(each) for each in column])
        if column.dtype.kind == "O"
        else column
        for name, column in columns.items()
    }


def table_dataset(
    columns: Mapping[str, Array],
    target: str | None,
    name: str,
    ignored: Sequence[str] = (),
    feature_names: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
) -> ArrayDataset:
    """Features float32 [rows, features], and the target: classes int64 [rows], or float32 [rows].

    target: a column, or several separated by commas, which are numbers to regress, float32 [rows, targets].
    One of texts, or of a few whole numbers from 0, has classes; any other is to be regressed. ignored:
    columns that are no features. feature_names: those of a trained model, see `features_of`; by default a
    column of numbers is a feature, with NaN where a number is missing, and a column of texts one feature of 0
    and 1 for each of its texts. `splits_of` sets mean and standard deviation anew, but for features of texts,
    which keep 0 and 1. say: called with a line about texts and missing values. Raises InvalidArgumentError
    for a column that is not there or has too many texts, a text among numbers, and a target with missing
    values.
    """
    if target is None:
        target = next((each for each in USUAL_TARGETS if each in columns), None)
    targets = [target or ""] if target in columns else [each.strip() for each in (target or "").split(",")]
    if target is None or not {*targets} <= columns.keys():
        raise InvalidArgumentError(
            f"target: expected a column of {name}, one of {', '.join(columns)}; "
            f"{'give --target COLUMN' if target is None else f'got {target!r:.60}'}"
        )
    ignored = () if feature_names else ignored
    if unknown := [each for each in ignored if each not in columns or each in targets]:
        raise InvalidArgumentError(
            f"ignore_columns: expected columns of {name} beside the target, of {', '.join(columns)}; "
            f"got {unknown[0]!r:.60}"
        )
    kept = [key for key in columns if key not in targets and key not in ignored]
    if not kept:
        raise InvalidArgumentError(f"{name}: expected columns beside the target {target}, got none")
    for key in targets:
        _require_values(key, columns[key], name, is_target=True)
    labels: Array
    names: Sequence[str] = ()
    if len(targets) > 1:
        labels = features_of(columns, targets, name)
    else:
        labels, names = _target_of(columns[target])
    feature_names = feature_names or _feature_names(columns, kept, name, say)
    inputs = features_of(columns, feature_names, name)
    unscaled = np.array([each not in columns for each in feature_names])
    mean, std = standardisation_of(inputs)
    return ArrayDataset(
        inputs,
        labels,
        name=name,
        class_names=names,
        feature_names=feature_names,
        standardisation=(np.where(unscaled, 0.0, mean), np.where(unscaled, 1.0, std)),
    )


def _feature_names(
    columns: Mapping[str, Array], kept: Sequence[str], table: str, say: Callable[[str], None]
) -> list[str]:
    """Names of features: of a column of numbers its own, of one of texts COLUMN=TEXT for each text."""
    names: list[str] = []
    said = []
    for key in kept:
        column = columns[key]
        _require_values(key, column, table, is_target=False)
        if column.dtype.kind == "f" and np.isnan(column).all():
            raise InvalidArgumentError(
                f"{table}: column {key} has no values; leave it out by --ignore-columns {key}"
            )
        missing = int((column == "" if column.dtype.kind == "U" else np.isnan(column)).sum())
        note = f"{missing} missing" if missing else ""
        if column.dtype.kind == "U":
            texts = sorted({*column.tolist()} - {""})
            names += [f"{key}={text}" for text in texts]
            note = f"{len(texts)} texts{note and f', {note}'}"
        else:
            names.append(key)
        said += [f"{key} ({note})"] if note else []
    if said:
        say(
            f"{table}: {', '.join(said)}; texts become columns of 0 and 1, missing numbers the mean of the "
            "training rows"
        )
    return names


def features_of(columns: Mapping[str, Array], names: Sequence[str], table: str) -> Array:
    """Features float32 [rows, features] of these names, as of `table_dataset`. table: its name.

    COLUMN=TEXT is 1 in the rows with this text. Texts that no feature has are 0 in all, with a warning.
    Raises InvalidArgumentError for columns that are missing, and texts among numbers.
    """
    sources = {name: name if name in columns else _column_of(name, columns) for name in names}
    missing = [name for name, source in sources.items() if source is None]
    if missing or not names:
        raise InvalidArgumentError(
            f"{table}: expected the columns of the training data ({', '.join(names) or 'it had no names'}), "
            f"got {', '.join(columns)}"
        )
    known: dict[str, set[str]] = {}
    found = []
    for name, source in sources.items():
        assert source is not None
        column = columns[source]
        if source == name:
            _require_values(name, column, table, is_target=False)
            if column.dtype.kind == "U":
                raise InvalidArgumentError(f"{table}: expected column {name} to have numbers, got texts")
            found.append(column.astype(np.float32))
        else:
            text = name[len(source) + 1 :]
            known.setdefault(source, {""}).add(text)
            found.append((_texts_of(column) == text).astype(np.float32))
    for source, texts in known.items():
        strange = sorted({*_texts_of(columns[source]).tolist()} - texts)
        if strange:
            _logger.warning(
                "%s: column %s has texts that were not in the training data: %s; they count as missing",
                *(table, source, ", ".join(strange)[:200]),
            )
    return np.stack(found, axis=1)


def _column_of(name: str, columns: Mapping[str, Array]) -> str | None:
    """Column of a feature COLUMN=TEXT, either of which may have = in it; None if there is none."""
    ends = [at for at, letter in enumerate(name) if letter == "="]
    return next((name[:end] for end in reversed(ends) if name[:end] in columns), None)


def _texts_of(column: Array) -> Array:
    """Texts of a column, in which NaN is a missing one."""
    if column.dtype.kind != "f":
        return column.astype(str)
    return np.where(np.isnan(column), "", column.astype(str))


def _require_values(key: str, column: Array, table: str, is_target: bool) -> None:
    """Raises InvalidArgumentError for a column that can be no feature, or no target."""
    if column.dtype.kind in "biuf":
        bad = np.flatnonzero(~np.isfinite(column) if is_target else np.isinf(column))
        if bad.size:
            what = "no value" if np.isnan(column[bad[0]]) else "an infinite number"
            raise InvalidArgumentError(
                f"{table}, row {bad[0] + 2}: column {key} has {what}; fill it in, or drop the row"
            )
        return
    if column.dtype.kind != "U":
        raise InvalidArgumentError(
            f"{table}: expected column {key} to have numbers or texts, got {column.dtype}; convert it, or "
            f"leave it out by --ignore-columns {key}"
        )
    texts = column.tolist()
    if is_target:
        if "" in texts:
            raise InvalidArgumentError(
                f"{table}, row {texts.index('') + 2}: column {key} has no value; fill it in, or drop the row"
            )
        return
    if any(map(_is_number, texts)):
        row = next(row for row, text in enumerate(texts) if text and not _is_number(text))
        raise InvalidArgumentError(
            f"{table}, row {row + 2}: column {key} has {texts[row]!r:.60}, no number, where other rows have "
            f"numbers; correct it, or leave the column out by --ignore-columns {key}"
        )
    if len(different := {*texts}) > _MOST_TEXTS:
        raise InvalidArgumentError(
            f"{table}: column {key} has {len(different)} different texts, expected at most {_MOST_TEXTS}; "
            f"leave it out by --ignore-columns {key}, or encode it as numbers"
        )


def _target_of(column: Array) -> tuple[Array, Sequence[str]]:
    """Labels of a target, and the names of its classes if it has texts."""
    if column.dtype.kind == "U":
        return numbered(column)
    if (column == np.floor(column)).all() and column.min() >= 0 and column.max() < _MOST_CLASSES:
        return column.astype(np.int64), ()
    return column.astype(np.float32), ()


def standardisation_of(inputs: Array, before: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
    """Mean and standard deviation of each column without its NaN, float64 [columns]; 1 if values are equal.

    before: standardisation in which columns with mean 0 and deviation 1 stay as they are.
    """
    values: Any = inputs.astype(np.float64)
    there = ~np.isnan(values)
    counts = np.maximum(there.sum(0), 1)
    mean = np.where(there, values, 0).sum(0) / counts
    std = np.sqrt((np.where(there, values - mean, 0) ** 2).sum(0) / counts)
    std = np.where(std > 0, std, 1.0)
    if before is not None:
        unscaled = (before[0] == 0) & (before[1] == 1)
        mean, std = np.where(unscaled, 0.0, mean), np.where(unscaled, 1.0, std)
    return mean, std
