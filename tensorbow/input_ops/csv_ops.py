"""`decode_csv`: records of comma-separated values (RFC 4180) as one tensor for each column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, HostCall, Tensor, as_tensor, graph_of
from tensorbow.kinds import Flag, Items, Name, Text, checked, optional, sequence, whole
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, TensorSpec, float32, float64, int32, int64, string
from tensorbow.string_ops.conversion import number_of
from tensorbow.string_ops.elements import as_strings, require_strings

__all__ = ["decode_csv"]

Columns: TypeAlias = Annotated[Any, optional(sequence(whole(0), "a list of numbers of columns, from 0"))]
DTYPES = (float32, float64, int32, int64, string)


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    records, *defaults = inputs
    require_strings("DecodeCSV", records, "records")
    for index, default in enumerate(defaults):
        if default.dtype not in DTYPES:
            names = ", ".join(dtype.name for dtype in DTYPES)
            raise InvalidArgumentError(
                f"DecodeCSV: record_defaults[{index}] is {default}, expected a dtype of {names}"
            )
        if default.shape is not None and (len(default.shape) > 1 or default.shape not in ((), (0,), (1,))):
            raise InvalidArgumentError(
                f"DecodeCSV: record_defaults[{index}] is {default}, expected one value, or none ([]) where a "
                "field is required"
            )
    columns = attrs["select_cols"]
    if columns is not None and (len(columns) != len(defaults) or [*columns] != sorted({*columns})):
        raise InvalidArgumentError(
            f"DecodeCSV: select_cols is {list(columns)}, expected {len(defaults)} ascending numbers, one for "
            "each of record_defaults"
        )
    return [TensorSpec(records.shape, default.dtype) for default in defaults]


def split_fields(record: bytes, delimiter: bytes, quotes: bool) -> list[bytes]:
    """The fields of a record. Raises InvalidArgumentError for quotes that do not fit."""
    if not quotes or b'"' not in record:
        fields = record.split(delimiter)
        if quotes and any(b"\n" in field or b"\r" in field for field in fields):
            raise InvalidArgumentError("an unquoted field has a line end in it")
        return fields
    fields, at = [], 0
    while True:
        if record[at : at + 1] == b'"':
            parts, at = [], at + 1
            while True:
                end = record.find(b'"', at)
                if end < 0:
                    raise InvalidArgumentError(f"field {len(fields)} has a quote that does not end")
                parts.append(record[at:end])
                at = end + 1
                if record[at : at + 1] != b'"':
                    break
                parts.append(b'"')
                at += 1
            fields.append(b"".join(parts))
            if at < len(record) and record[at : at + 1] != delimiter:
                raise InvalidArgumentError(
                    f"field {len(fields) - 1} goes on after its closing quote; expected the delimiter"
                )
        else:
            end = record.find(delimiter, at)
            field = record[at:] if end < 0 else record[at:end]
            if any(each in field for each in (b'"', b"\n", b"\r")):
                raise InvalidArgumentError(
                    f"field {len(fields)} is not quoted and has a quote or a line end in it"
                )
            fields.append(field)
            at = len(record) if end < 0 else end
        if at >= len(record):
            return fields
        at += 1  # the delimiter


def _host(call: HostCall) -> list[Array]:
    (records, *defaults), attrs = call.inputs, call.attrs
    columns, missing = attrs["select_cols"], attrs["na_value"].encode()
    values: list[list[Any]] = [[] for _ in defaults]
    for number, record in enumerate(records.ravel().tolist()):
        try:
            fields = split_fields(record, attrs["field_delim"].encode(), attrs["use_quote_delim"])
            if columns is not None:
                if columns and columns[-1] >= len(fields):
                    raise InvalidArgumentError(f"it has {len(fields)} fields, expected column {columns[-1]}")
                fields = [fields[column] for column in columns]
            elif len(fields) != len(defaults):
                raise InvalidArgumentError(f"expected {len(defaults)} fields, got {len(fields)}")
            for index, (field, default) in enumerate(zip(fields, defaults, strict=True)):
                values[index].append(_value(index, field, default, missing))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"DecodeCSV: record {number}: {error}") from None
    return [
        np.array(column, default.dtype).reshape(records.shape)
        for column, default in zip(values, defaults, strict=True)
    ]


def _value(index: int, field: bytes, default: Array, missing: bytes) -> Any:
    if not field or (missing and field == missing):
        if not default.size:
            raise InvalidArgumentError(f"field {index} is required but missing")
        return default.ravel()[0]
    if default.dtype == object:
        return field
    dtype = next(each for each in DTYPES if each.as_numpy_dtype == default.dtype)
    return number_of(f"field {index}", field, dtype)


DecodeCSV = define_op(
    "DecodeCSV",
    spec=_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("records", "*record_defaults"),
    attrs={"field_delim": ",", "use_quote_delim": True, "na_value": "", "select_cols": None},
    unknown_dtypes=lambda inputs, attrs: [default.dtype for default in inputs[1:]],
    host=_host,
    strings=True,
    doc="The columns of records of comma-separated values.",
)


@checked
def decode_csv(
    records: Any,
    record_defaults: Items,
    field_delim: Text = ",",
    use_quote_delim: Flag = True,
    name: Name = None,
    na_value: Text = "",
    select_cols: Columns = None,
) -> list[Tensor]:
    """A tensor of the shape of `records`, strings, for each column of comma-separated values.

    record_defaults: for each column a list of one value, which an empty field gets, or an empty tensor, where
        a field is required; its dtype is the column's: float32, float64, int32, int64 or string.
    field_delim: one character of ASCII. use_quote_delim: `"` around a field protects delimiters and line ends
        in it, and `""` stands for a quote. na_value: a text that stands for a missing value, too.
    select_cols: the columns to give, ascending; by default all, and a record must have as many.

    Raises InvalidArgumentError and, when it runs, the same for a record that does not fit.
    """
    if len(field_delim.encode()) != 1 or field_delim in '"\r\n':
        raise InvalidArgumentError(
            f"decode_csv: expected field_delim to be one ASCII character, no quote, got {field_delim!r:.40}"
        )
    if not record_defaults:
        raise InvalidArgumentError("decode_csv: expected record_defaults to have a value for each column")
    with graph_of([records, *record_defaults]).as_default():
        made = DecodeCSV(
            as_strings(records),
            *(as_tensor(each) for each in record_defaults),
            field_delim=field_delim,
            use_quote_delim=use_quote_delim,
            na_value=na_value,
            select_cols=select_cols,
            name=name,
        )
    return list(made) if isinstance(made, tuple) else [made]
