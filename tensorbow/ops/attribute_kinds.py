"""Kinds of the ops' attributes, for checking GraphDefs, whose attributes may be anything.

In a program, the functions that set attributes have checked them. An attribute name has the same
meaning in every op, so kinds are looked up by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import OpDef
from tensorbow.graph.function import GraphFunction
from tensorbow.ops.image_windows import WINDOWS
from tensorbow.specs import DType

WINDOW_LIMIT = 1 << 16  # limit of extents, strides and dilation rates of windows
INT64 = 1 << 63


@dataclass(frozen=True)
class _Kind:
    words: str  # description of valid values
    holds: Callable[[Any], bool]


def _is_whole(value: Any, low: int = -INT64, high: int = INT64 - 1) -> bool:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and low <= value <= high


def _is_number(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_, float, np.floating)):
        return True
    return _is_whole(value, high=2 * INT64 - 1)


def _whole(words: str, low: int = -INT64, high: int = INT64 - 1) -> _Kind:
    return _Kind(f"a whole number{words}", lambda value: _is_whole(value, low, high))


def _wholes(words: str, low: int = -INT64, high: int = INT64 - 1) -> _Kind:
    return _Kind(
        f"a tuple of whole numbers{words}",
        lambda value: isinstance(value, tuple) and all(_is_whole(item, low, high) for item in value),
    )


def _optional(kind: _Kind, *others: _Kind) -> _Kind:
    kinds = (kind, *others)
    words = " or ".join([*(k.words for k in kinds), "None"])
    return _Kind(words, lambda value: value is None or any(k.holds(value) for k in kinds))


def _is_index(value: Any) -> bool:
    if not isinstance(value, tuple):
        return (isinstance(value, str) and value in ("...", "new")) or _is_whole(value)
    return (
        len(value) == 3
        and all(item is None or _is_whole(item) for item in value)
        and (value[2] is None or value[2] != 0)
    )


def _is_shape(value: Any) -> bool:
    return value is None or (
        isinstance(value, tuple) and all(item is None or _is_whole(item, 0) for item in value)
    )


def _is_feature(value: Any) -> bool:
    """True for a feature to parse, as `tensorbow.input_ops.feature_parser` describes it."""
    if not isinstance(value, tuple) or len(value) != 7:
        return False
    kind, key, dtype, shape, default, value_key, number = value
    return (
        kind in ("dense", "padded", "pairs", "sparse")
        and isinstance(key, str)
        and isinstance(value_key, str)
        and isinstance(dtype, DType)
        and dtype.name in ("float32", "int64", "string")
        and isinstance(shape, tuple)
        and all(_is_whole(extent, 0) for extent in shape)
        and (default is None or isinstance(default, np.ndarray))
        and _is_whole(number, 0)
    )


def _tuple_of(what: str, holds: Callable[[Any], bool]) -> _Kind:
    return _Kind(f"a tuple of {what}", lambda value: isinstance(value, tuple) and all(map(holds, value)))


_TEXT = _Kind("a str", lambda value: isinstance(value, str))
_BOOL = _Kind("a bool", lambda value: isinstance(value, (bool, np.bool_)))
_DTYPE = _Kind("a dtype", lambda value: isinstance(value, DType))
_NUMBER = _Kind("a number", _is_number)
_WINDOW = _wholes(f" from 1 to {WINDOW_LIMIT:,}", 1, WINDOW_LIMIT)
_COUNT = _whole(" of at least 1", 1)

KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys(
        ("combine", "container", "delimiter", "encoding", "errors", "field_delim", "fill", "format",
         "frame_name", "gradient_call", "input_encoding", "key", "last", "message", "metadata", "na_value",
         "output_encoding", "padding", "push", "to", "reduction_type", "role", "sender",
         "separator", "set_operation", "shared_name", "side",
         "display_name", "slot_name", "slot_of", "summary_description", "summary_metadata", "tag", "unit",
         "variable"),
        _TEXT,
    ),
    **dict.fromkeys(
        ("adj_x", "adj_y", "adjoint", "align_corners", "allow_small_batch", "allow_unused",
         "cancel_pending_enqueues", "chroma_downsampling", "compute_uv", "compute_v",
         "ctc_merge_repeated", "decayed", "dynamic_size", "enters", "exclusive", "full_matrices",
         "ignore_longer_outputs_than_inputs", "include_batch_in_index", "is_constant",
         "is_training", "keepdims", "little_endian", "lossy", "lower", "merge_repeated", "normalize",
         "optimize_size", "or_zeros", "ordered", "pad", "pads", "preprocess_collapse_repeated",
         "progressive", "replace_control_characters", "replace_global", "reverse",
         "scientific", "shortest", "signal", "single", "skip_empty", "sorted", "splits",
         "transpose_a", "transpose_b", "unique",
         "use_image_if_no_bounding_boxes", "use_nesterov", "use_quote_delim"),
        _BOOL,
    ),
    **dict.fromkeys(("Targmax", "dtype", "key_type", "out_idx", "out_type", "output_idx_type"), _DTYPE),
    **dict.fromkeys(("Tkeys", "Tvalues", "key_dtype", "output_type", "type", "value_dtype"), _DTYPE),
    **dict.fromkeys(("key_index", "value_index"), _whole(" of at least -2", -2)),
    "vocab_size": _optional(_COUNT),
    **dict.fromkeys(
        ("alpha", "constant_values", "decay", "default", "epsilon", "fraction", "l2_shrinkage",
         "learning_rate_power", "min_object_covered", "off_value", "on_value", "scale", "shift", "slot_value",
         "soft_nms_sigma", "value", "weight_decay"),
        _NUMBER,
    ),
    **dict.fromkeys(("dilations", "ksize", "strides"), _WINDOW),
    **dict.fromkeys(
        ("area_range", "aspect_ratio_range"),
        _tuple_of("numbers", _is_number),
    ),
    "fft_length": _optional(_wholes(" of at least 1", 1)),
    "indices": _wholes(" of at least 0", 0),
    "window": _wholes("", 1),
    **dict.fromkeys(("beam_width", "inner", "max_attempts", "num_sampled", "range_max", "top_paths"), _COUNT),
    **dict.fromkeys(("component_index", "memory_limit", "use"), _whole(" of at least 0", 0)),
    "replacement_char": _whole(" from 0 to 1,114,111, a Unicode character", 0, 0x10FFFF),
    "padding_value": _whole(" from 0 to 255", 0, 255),
    "method": _whole(" from 0 to 3", 0, 3),
    "kind": _Kind(f"one of {', '.join(WINDOWS)}", lambda value: value in WINDOWS),
    "zero_point": _whole(" from -128 to 255", -128, 255),
    **dict.fromkeys(
        ("Tout", "component_types", "dtypes"), _tuple_of("dtypes", lambda item: isinstance(item, DType))
    ),
    "shapes": _tuple_of("shapes", _is_shape),
    **dict.fromkeys(
        ("max_outputs", "num_buckets", "num_partitions", "num_split", "parallel_iterations",
         "ratio", "record_bytes"),
        _COUNT,
    ),
    **dict.fromkeys(("context", "features", "sequence"), _tuple_of("descriptions of features", _is_feature)),
    **dict.fromkeys(("channels", "compression_type", "footer_bytes", "header_bytes", "hop_bytes", "quality",
                     "skip_header_lines"), _whole(" of at least 0", 0)),
    **dict.fromkeys(("capacity", "compression", "first_n", "limit", "min_after_dequeue", "precision",
                     "summarize", "width"), _whole("")),
    "hash_key": _wholes(" of 64 bits", 0, 2 * INT64 - 1),
    "sparse": _tuple_of("bools", lambda item: isinstance(item, bool)),
    "select_cols": _optional(_wholes(" of at least 0", 0)),
    "func": _Kind("a function", callable),
    "object": _Kind("what the function changes, or None", lambda value: True),
    "f": _Kind("a function of the library", lambda value: isinstance(value, GraphFunction)),
    **dict.fromkeys(
        ("after", "conditions", "momenta", "texts"), _tuple_of("str", lambda item: isinstance(item, str))
    ),
    **dict.fromkeys(("num_epochs", "replicas"), _optional(_COUNT)),
    **dict.fromkeys(("depth", "first", "k", "more", "source"), _whole(" of at least 0", 0)),
    **dict.fromkeys(("seed", "seed2"), _whole(" of 64 bits", high=2 * INT64 - 1)),
    **dict.fromkeys(("perm", "size_splits"), _optional(_wholes(""))),
    "axis": _optional(_whole(""), _wholes("")),
    "shape": _Kind("a tuple of extents and None, or None", _is_shape),
    "index": _Kind(
        "a tuple of whole numbers, (start, stop, step), '...' and 'new'",
        lambda value: isinstance(value, tuple) and all(map(_is_index, value)),
    ),
}  # fmt: skip
ARRAY = _Kind("an array", lambda value: isinstance(value, np.ndarray))
_BY_DEFAULT = ((str, _TEXT), (DType, _DTYPE), (bool, _BOOL), ((float, int), _NUMBER))


def kind_of(definition: OpDef, key: str) -> _Kind | None:
    """The kind of an attribute; None if any value is valid, as for users' ops."""
    if definition.spec.__module__.startswith("tensorbow."):
        return ARRAY if (definition.name, key) == ("Const", "value") else KINDS.get(key)
    default = definition.attrs[key]
    return next((kind for types, kind in _BY_DEFAULT if isinstance(default, types)), None)


def check_attributes(definition: OpDef, attrs: Mapping[str, Any]) -> None:
    """Raises InvalidArgumentError if an attribute is not of its kind."""
    for key in definition.attrs:
        kind, value = kind_of(definition, key), attrs[key]
        if kind is not None and not kind.holds(value):
            raise InvalidArgumentError(
                f"attribute {key!r} must be {kind.words}, got {type(value).__name__} {value!r:.60}"
            )
