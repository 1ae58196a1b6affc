"""Summaries for TensorBoard: scalars, histograms, images and texts (TensorFlow white paper, section 9.1).

A summary is a tensor whose value is a serialised `Summary` message (bytes). No device computes it: a step
computes the summary's inputs, and the session makes the message of them. So it may be fetched, and read by
`merge`, and nothing else; replicas are averaged or concatenated before, as other fetches are.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    Attrs,
    GraphKeys,
    OpDef,
    Operation,
    Tensor,
    as_tensor,
    get_default_graph,
    name_scope,
)
from tensorbow.kinds import TEXT, Items, Kind, Name, Names, Positive, Text, checked, is_tensor, sequence
from tensorbow.ops.definition import define_op
from tensorbow.specs import NUMERIC, Array, TensorSpec, bool_, uint8

__all__ = ["histogram", "image", "merge", "merge_all", "scalar", "text"]

RED = 255  # of pixels that are no number
SUMMARIES: list[OpDef] = []  # the ops whose results are summaries
_TEXTS = sequence(TEXT, "a text or a list of texts", lone=True)
AnyTexts: TypeAlias = Annotated[
    Any,
    Kind(
        "a text, a list of texts, or a tensor of strings",
        lambda value: value if is_tensor(value) else _TEXTS.read(value),
    ),
]


def event_protocol() -> tuple[ModuleType, ModuleType]:
    """The modules of tensorboardX with the messages Summary and Event.

    Raises FailedPreconditionError where tensorboardX is not installed.
    """
    try:
        import tensorboardX  # noqa: F401 - its messages may be loaded already, without it
        from tensorboardX.proto import event_pb2, summary_pb2
    except ImportError:
        raise FailedPreconditionError(
            "summaries and event files need tensorboardX; pip install 'tensorbow[tensorboard]'"
        ) from None
    return summary_pb2, event_pb2


def summary_message(tag: str, **value: Any) -> bytes:
    protocol, _ = event_protocol()
    blob: bytes = protocol.Summary(value=[protocol.Summary.Value(tag=tag, **value)]).SerializeToString()
    return blob


# Values -------------------------------------------------------------------------------------------------


def _scalar_value(op: Operation, values: Sequence[Any]) -> bytes:
    if np.shape(values[0]) != ():
        raise InvalidArgumentError(
            f"summary.scalar {op.attrs['tag']}: expected a scalar, got shape {list(np.shape(values[0]))}; "
            f"use tb.reduce_mean (made at {op.source})"
        )
    return summary_message(op.attrs["tag"], simple_value=float(values[0]))


@cache
def _bucket_limits() -> Array:
    """TensorFlow's: powers of 1.1 from 1e-12 to 1e20 with both signs, zero, the greatest numbers."""
    positive = [1e-12]
    while positive[-1] * 1.1 < 1e20:
        positive.append(positive[-1] * 1.1)
    positive.append(float(np.finfo(np.float64).max))
    return np.array([*(-limit for limit in reversed(positive)), 0.0, *positive])


def _histogram_value(op: Operation, values: Sequence[Any]) -> bytes:
    numbers = np.asarray(values[0], np.float64).ravel()
    if not np.isfinite(numbers).all():
        raise InvalidArgumentError(
            f"summary.histogram {op.attrs['tag']}: expected finite numbers, got NaN or infinity "
            f"(made at {op.source})"
        )
    limits = _bucket_limits()
    counts = np.bincount(np.searchsorted(limits, numbers, side="right"), minlength=len(limits) + 1)
    counts[-2] += counts[-1]  # the greatest number belongs to the last bucket
    filled = counts[:-1] > 0
    kept = filled | np.append(filled[1:], True)  # of several empty buckets in a row the last one stays
    protocol, _ = event_protocol()
    with np.errstate(over="ignore"):
        total, squares = numbers.sum(), np.square(numbers).sum()
    return summary_message(
        op.attrs["tag"],
        histo=protocol.HistogramProto(
            min=numbers.min(initial=np.inf) if numbers.size else 0.0,
            max=numbers.max(initial=-np.inf) if numbers.size else 0.0,
            num=numbers.size,
            sum=total,
            sum_squares=squares,
            bucket_limit=limits[kept].tolist(),
            bucket=counts[:-1][kept].tolist(),
        ),
    )


def _image_value(op: Operation, values: Sequence[Any]) -> bytes:
    protocol, _ = event_protocol()
    tag, most = op.attrs["tag"], op.attrs["max_outputs"]
    entries = []
    for index, pixels in enumerate(values[0][:most]):
        height, width, channels = pixels.shape
        entries.append(
            protocol.Summary.Value(
                tag=f"{tag}/image" if most == 1 else f"{tag}/image/{index}",
                image=protocol.Summary.Image(
                    height=height,
                    width=width,
                    colorspace=channels,
                    encoded_image_string=_png(pixels if pixels.dtype == np.uint8 else _as_bytes(pixels)),
                ),
            )
        )
    blob: bytes = protocol.Summary(value=entries).SerializeToString()
    return blob


def _as_bytes(pixels: Array) -> Array:
    """Scales an image as TensorFlow does: the greatest value is 255, and zero 0, or 127 beside negatives."""
    finite = np.isfinite(pixels)
    known = np.where(finite, pixels, 0).astype(np.float64)
    low, high = known.min(initial=0.0), known.max(initial=0.0)
    offset = 127.0 if low < 0 else 0.0
    ends = [room / extent for extent, room in ((high, 255.0 - offset), (-low, offset)) if extent > 0]
    scaled = np.floor(known * min(ends, default=0.0) + offset).astype(np.uint8)
    scaled[~finite.all(axis=-1)] = np.array([RED, 0, 0, 255], np.uint8)[: pixels.shape[-1]]
    return scaled


def _png(pixels: Array) -> bytes:
    """An image [height, width, 1, 3 or 4 channels] of bytes as PNG."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with its filter, 0: none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    blob = b"\x89PNG\r\n\x1a\n"
    for kind, content in ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")):
        blob += struct.pack(">I", len(content)) + kind + content
        blob += struct.pack(">I", zlib.crc32(kind + content))
    return blob


def _text_value(op: Operation, values: Sequence[Any]) -> bytes:
    texts = [each.encode() for each in op.attrs["texts"]]
    return _text_message(op, [len(texts)], texts)


def _string_value(op: Operation, values: Sequence[Any]) -> bytes:
    (value,) = values
    if isinstance(value, bytes):
        return _text_message(op, [], [value])
    return _text_message(op, value.shape, value.ravel().tolist())


def _text_message(op: Operation, shape: Sequence[int], texts: Sequence[bytes]) -> bytes:
    protocol, _ = event_protocol()
    from tensorboardX.proto.tensor_pb2 import TensorProto
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

    dims = [TensorShapeProto.Dim(size=extent) for extent in shape]
    metadata = protocol.SummaryMetadata(plugin_data=protocol.SummaryMetadata.PluginData(plugin_name="text"))
    tensor = TensorProto(
        dtype="DT_STRING",
        string_val=texts,
        tensor_shape=TensorShapeProto(dim=dims),
    )
    return summary_message(op.attrs["tag"], metadata=metadata, tensor=tensor)


def _merged_value(op: Operation, values: Sequence[Any]) -> bytes:
    return b"".join(values)  # messages one after another are one message with all values


# Ops ----------------------------------------------------------------------------------------------------


def summary_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec((None,), uint8)


def _scalar_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    if inputs[0].shape not in ((), None):
        raise InvalidArgumentError(
            f"summary.scalar: expected tensor to be a scalar, got {inputs[0]}; use tb.reduce_mean"
        )
    return summary_spec(inputs, attrs)


def _image_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    shape = inputs[0].shape
    if inputs[0].dtype == bool_ or (
        shape is not None and (len(shape) != 4 or shape[3] not in (1, 3, 4, None))
    ):
        raise InvalidArgumentError(
            "summary.image: expected tensor to have shape [batch, height, width, channels] with 1, 3 or 4 "
            f"channels, and numbers, got {inputs[0]}"
        )
    return summary_spec(inputs, attrs)


def _string_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    if not inputs[0].dtype.is_string:
        raise InvalidArgumentError(
            f"summary.text: expected tensor to be of strings, got {inputs[0]}; use tb.as_string"
        )
    return summary_spec(inputs, attrs)


def summary_op(
    name: str, spec: Any, fetched: Any, inputs: Sequence[str], strings: bool = False, **attrs: Any
) -> OpDef:
    """Defines a summary whose message `fetched(op, values)` makes; strings: an input may be of them."""
    definition: OpDef = define_op(
        name,
        spec=spec,
        gradient=NOT_DIFFERENTIABLE,
        inputs=inputs,
        attrs={"tag": REQUIRED, **attrs} if name != "MergeSummary" else {},
        fetched=fetched,
        strings=strings,
    )
    SUMMARIES.append(definition)
    return definition


ScalarSummary = summary_op("ScalarSummary", _scalar_spec, _scalar_value, ["input"])
HistogramSummary = summary_op("HistogramSummary", summary_spec, _histogram_value, ["input"])
ImageSummary = summary_op("ImageSummary", _image_spec, _image_value, ["input"], max_outputs=3)
TextSummary = summary_op("TextSummary", summary_spec, _text_value, [], texts=REQUIRED)
StringSummary = summary_op("StringSummary", _string_spec, _string_value, ["input"], strings=True)
MergeSummary = summary_op("MergeSummary", summary_spec, _merged_value, ["*inputs"])


# Functions ----------------------------------------------------------------------------------------------


def add_summary(
    definition: OpDef,
    inputs: Sequence[Any],
    name: str,
    collections: Sequence[str] | None,
    family: str | None,
    **attrs: Any,
) -> Tensor:
    """Adds a summary, whose tag is its full name (after the family), and puts it into collections."""
    tensors = [as_tensor(each) for each in inputs]
    for tensor in tensors:
        if not definition.strings and tensor.dtype not in (*NUMERIC, bool_):
            raise InvalidArgumentError(f"summary {name}: expected numbers, got {tensor.spec}")
    clean = re.sub(r"[^-/\w.]", "_", name, flags=re.ASCII).strip("/") or "summary"
    wanted = clean if family is None else f"{family}/{clean}"
    with name_scope(wanted, values=tensors) as scope:
        tag = scope.rstrip("/") if family is None else f"{family}/{scope.rstrip('/')}"
        result: Tensor = definition(*tensors, tag=tag, name=scope, **attrs)
    for collection in [GraphKeys.SUMMARIES] if collections is None else collections:
        result.graph.add_to_collection(collection, result)
    return result


@checked
def scalar(name: Text, tensor: Any, collections: Names | None = None, family: Name = None) -> Tensor:
    """A summary with one number.

    tensor: a scalar. collections: keys the summary is added to, by default `tb.GraphKeys.SUMMARIES`.
    family: put before the tag, which groups charts. Raises InvalidArgumentError for a tensor of another
    shape; when fetched, FailedPreconditionError without tensorboardX.
    """
    return add_summary(ScalarSummary, [tensor], name, collections, family)


@checked
def histogram(name: Text, values: Any, collections: Names | None = None, family: Name = None) -> Tensor:
    """A summary with a histogram of a tensor of any shape, in TensorFlow's 1,550 buckets.

    Raises what `scalar` raises; when fetched, InvalidArgumentError for NaN and infinity.
    """
    return add_summary(HistogramSummary, [values], name, collections, family)


@checked
def image(
    name: Text,
    tensor: Any,
    max_outputs: Positive = 3,
    collections: Names | None = None,
    family: Name = None,
) -> Tensor:
    """A summary with the first images of a batch.

    tensor: `[batch, height, width, channels]` with 1, 3 or 4 channels. uint8 is written as it is; other
    numbers are scaled for each image so that the greatest is 255, and with negative ones zero is 127. Pixels
    that are no number are red. Raises what `scalar` raises.
    """
    return add_summary(ImageSummary, [tensor], name, collections, family, max_outputs=max_outputs)


@checked
def text(name: Text, tensor: AnyTexts, collections: Names | None = None) -> Tensor:
    """A summary with a text (Markdown), or a list of texts.

    tensor: a text, a list of texts, or a tensor of strings of any shape, with which a step runs in the
    dynamic mode. Raises InvalidArgumentError for others.
    """
    if is_tensor(tensor):
        return add_summary(StringSummary, [tensor], name, collections, None)
    return add_summary(TextSummary, [], name, collections, None, texts=tuple(tensor))


@checked
def merge(inputs: Items, collections: Names | None = None, name: Name = None) -> Tensor:
    """One summary with the values of several.

    Raises InvalidArgumentError for inputs that are no summaries.
    """
    wrong = next((each for each in inputs if not is_summary(each)), None)
    if wrong is not None or not inputs:
        got = "none" if wrong is None else repr(wrong)
        raise InvalidArgumentError(f"summary.merge: expected inputs to be summaries, got {got:.100}")
    with inputs[0].graph.as_default():
        result: Tensor = MergeSummary(*inputs, name=name or "Merge/MergeSummary")
    for collection in collections or ():
        result.graph.add_to_collection(collection, result)
    return result


@checked
def merge_all(key: Text = GraphKeys.SUMMARIES, scope: Name = None, name: Name = None) -> Tensor | None:
    """One summary of all in a collection of the default graph, or None if there is none.

    scope: a regular expression; only summaries whose name begins with a match.
    """
    found = get_default_graph().get_collection(key, scope)
    return merge(found, name=name) if found else None


def is_summary(value: Any) -> bool:
    """True for the tensor of a summary op."""
    return isinstance(value, Tensor) and value.op.definition in SUMMARIES
