"""Ops of readers. A reader is a handle, an int64 scalar; its state is the session's or the process's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall, OpDef
from tensorbow.ops.definition import define_op
from tensorbow.queues.element_queue import ElementQueue
from tensorbow.queues.queue_ops import KEY, found, handle_of, shared_or_own
from tensorbow.readers.record_reader import RecordReader
from tensorbow.readers.record_sources import (
    FixedLengthSource,
    ItemSource,
    LineSource,
    Record,
    RecordFileSource,
    RecordSource,
    WholeFileSource,
)
from tensorbow.specs import Array, TensorSpec, int64, string

Opening: TypeAlias = Callable[[Attrs], Callable[[bytes], RecordSource]]  # by attributes, of a work item
_HANDLE = TensorSpec((), int64)


# Making readers -------------------------------------------------------------------------------


def _make(kind: str, opening: Opening, call: HostCall) -> list[Array]:
    attrs = call.attrs

    def make() -> RecordReader:
        return RecordReader(f"{kind} '{attrs['shared_name'] or call.name}'", opening(attrs))

    settings = (kind, *((k, v) for k, v in sorted(attrs.items()) if k not in KEY))
    return handle_of(call, shared_or_own(call, make, settings))


def _define_reader(
    kind: str,
    opening: Opening,
    doc: str,
    **attrs: Any,
) -> OpDef:
    return define_op(
        kind,
        spec=lambda inputs, attrs: _HANDLE,
        gradient=NOT_DIFFERENTIABLE,
        attrs={**attrs, **KEY},
        host=partial(_make, kind, opening),
        stateful=True,
        doc=doc,
    )


TextLineHandle = _define_reader(
    "TextLineReader",
    lambda attrs: partial(LineSource, skip_header_lines=attrs["skip_header_lines"]),
    "A reader of lines.",
    skip_header_lines=0,
)
FixedLengthHandle = _define_reader(
    "FixedLengthRecordReader",
    lambda attrs: partial(
        FixedLengthSource,
        header=attrs["header_bytes"],
        record=attrs["record_bytes"],
        footer=attrs["footer_bytes"],
        hop=attrs["hop_bytes"] or attrs["record_bytes"],
    ),
    "A reader of records of equal length.",
    record_bytes=REQUIRED,
    header_bytes=0,
    footer_bytes=0,
    hop_bytes=0,
)
WholeFileHandle = _define_reader("WholeFileReader", lambda attrs: WholeFileSource, "A reader of whole files.")
RecordFileHandle = _define_reader(
    "TFRecordReader",
    lambda attrs: partial(RecordFileSource, compression=attrs["compression_type"]),
    "A reader of TFRecord files.",
    compression_type=0,
)
IdentityHandle = _define_reader("IdentityReader", lambda attrs: ItemSource, "A reader that gives its items.")


# Using readers --------------------------------------------------------------------------------


def _reader(call: HostCall) -> RecordReader:
    reader: RecordReader = found(call, RecordReader, "reader")
    return reader


def _queue(call: HostCall) -> ElementQueue:
    handle = int(call.inputs[1])

    def missing() -> Any:
        raise InvalidArgumentError(f"{handle} is no handle of a queue that this session has made")

    queue = call.resources.get(("handle", handle), missing).value
    if not isinstance(queue, ElementQueue):
        raise InvalidArgumentError(f"expected the handle of a queue, got that of a {type(queue).__name__}")
    return queue


def _strings(values: Sequence[bytes], shape: tuple[int, ...]) -> Array:
    array: Array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def _read(call: HostCall) -> None:
    def done(records: list[Record]) -> None:
        ((key, value),) = records
        call.done([_strings([key], ()), _strings([value], ())])

    _reader(call).read(_queue(call), 1, done, call.fail, call.on_cancel)


def _read_up_to(call: HostCall) -> None:
    count = int(call.inputs[2])
    if count < 1:
        raise InvalidArgumentError(f"num_records is {count}, expected at least 1")

    def done(records: list[Record]) -> None:
        call.done([_strings([r[part] for r in records], (len(records),)) for part in (0, 1)])

    _reader(call).read(_queue(call), count, done, call.fail, call.on_cancel)


def _reset(call: HostCall) -> list[Array]:
    _reader(call).reset()
    return []


def _define_use(
    name: str,
    host: Callable[[HostCall], Any],
    inputs: tuple[str, ...],
    specs: Sequence[TensorSpec],
    doc: str,
    *,
    asynchronous: bool = False,
) -> OpDef:
    return define_op(
        name,
        spec=lambda inputs, attrs: tuple(specs),
        gradient=NOT_DIFFERENTIABLE,
        inputs=inputs,
        host=host,
        asynchronous=asynchronous,
        stateful=True,
        strings=True,
        doc=doc,
    )


ReaderRead = _define_use(
    "ReaderRead",
    _read,
    ("reader_handle", "queue_handle"),
    [TensorSpec((), string)] * 2,
    "The key and the value of the next record; waits for it.",
    asynchronous=True,
)
ReaderReadUpTo = _define_use(
    "ReaderReadUpTo",
    _read_up_to,
    ("reader_handle", "queue_handle", "num_records"),
    [TensorSpec((None,), string)] * 2,
    "Keys and values of some records; waits for one.",
    asynchronous=True,
)
ReaderNumRecordsProduced = _define_use(
    "ReaderNumRecordsProduced",
    lambda call: [np.asarray(_reader(call).produced(), np.int64)],
    ("reader_handle",),
    [TensorSpec((), int64)],
    "The number of records that a reader has given.",
)
ReaderNumWorkUnitsCompleted = _define_use(
    "ReaderNumWorkUnitsCompleted",
    lambda call: [np.asarray(_reader(call).completed(), np.int64)],
    ("reader_handle",),
    [TensorSpec((), int64)],
    "The number of work items that a reader has read to their end.",
)
ReaderReset = _define_use("ReaderReset", _reset, ("reader_handle",), [], "Makes a reader as new.")
