"""Messages of examples: TensorFlow's `Example`, `SequenceExample` and their parts (extra `protobuf`)."""

from __future__ import annotations

from functools import cache
from typing import Any

from tensorbow.graph.protobuf.message_classes import message_classes

_MESSAGES = {
    "BytesList": "repeated bytes value 1",
    "FloatList": "repeated float value 1",
    "Int64List": "repeated int64 value 1",
    "Feature": "BytesList bytes_list 1, FloatList float_list 2, Int64List int64_list 3",
    "Features": "map:Feature feature 1",
    "FeatureList": "repeated Feature feature 1",
    "FeatureLists": "map:FeatureList feature_list 1",
    "Example": "Features features 1",
    "SequenceExample": "Features context 1, FeatureLists feature_lists 2",
}
_DOCS = {
    "BytesList": "Values of a feature, as `BytesList(value=[b'a'])`.",
    "FloatList": "Values of a feature, as `FloatList(value=[0.5])`.",
    "Int64List": "Values of a feature, as `Int64List(value=[1, 2])`.",
    "Feature": "A feature: one of `bytes_list`, `float_list` and `int64_list`.",
    "Features": "Features by name, as `Features(feature={'x': Feature(...)})`.",
    "FeatureList": "The features of a sequence's steps, as `FeatureList(feature=[...])`.",
    "FeatureLists": "Feature lists by name, as `FeatureLists(feature_list={'x': FeatureList(...)})`.",
    "Example": "An example, `Example(features=...)`: a message of protocol buffers, for `tb.parse_example`.",
    "SequenceExample": "A sequence, `SequenceExample(context=..., feature_lists=...)`: a message, for "
    "`tb.parse_single_sequence_example`.",
}
NAMES = tuple(_MESSAGES)


@cache
def _classes() -> Any:
    return message_classes("example", _MESSAGES, {}, {"Feature": "kind"})


@cache
def example_message(name: str) -> Any:
    """The class of a message. Raises FailedPreconditionError where protobuf is not installed."""
    found = _classes()(name)
    found.__doc__ = _DOCS[name]
    return found
