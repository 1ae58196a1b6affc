"""Descriptions of the features that `parse_example` finds in examples, under TensorFlow's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import DTYPE, Flag, Kind, Positive, RefusedError, Text, check_fields
from tensorbow.ops.argument_kinds import StaticShape
from tensorbow.specs import DType, float32, int64, render_dims, string

__all__ = ["FixedLenFeature", "FixedLenSequenceFeature", "SparseFeature", "VarLenFeature"]

FEATURE_DTYPES = (float32, int64, string)


def _read_dtype(value: Any) -> DType:
    dtype: DType = DTYPE.read(value)
    if dtype not in FEATURE_DTYPES:
        raise RefusedError
    return dtype


FeatureDType: TypeAlias = Annotated[Any, Kind("tb.float32, tb.int64 or tb.string", _read_dtype)]


def _require_known(kind: str, shape: Any) -> None:
    if shape is None or None in shape:
        text = "None" if shape is None else render_dims(shape)
        raise InvalidArgumentError(f"{kind}: shape is {text}, expected one that is fully known")


@dataclass(frozen=True)
class FixedLenFeature:
    """A feature with as many values as `shape` holds: parsed as a dense tensor [batch, *shape].

    default_value: for examples without it: a number or text, or an array of `shape`; None: it is required.
    """

    shape: StaticShape
    dtype: FeatureDType
    default_value: Any = None

    def __post_init__(self) -> None:
        check_fields(self)
        _require_known("FixedLenFeature", self.shape)


@dataclass(frozen=True)
class VarLenFeature:
    """A feature with any number of values: parsed as a SparseTensor [batch, most values]."""

    dtype: FeatureDType

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class SparseFeature:
    """A sparse vector of `size` elements from features of positions and values: a SparseTensor [batch, size].

    index_key: of an int64 feature. value_key: of one with as many values, of `dtype`. already_sorted: the
    positions of each example are in ascending order.
    """

    index_key: Text
    value_key: Text
    dtype: FeatureDType
    size: Positive
    already_sorted: Flag = False

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class FixedLenSequenceFeature:
    """A feature of a sequence whose steps have a value of `shape` each.

    `parse_single_sequence_example` gives [steps, *shape]; allow_missing: no steps where the list is missing.
    `parse_example` needs `allow_missing`, and gives [batch, most steps, *shape], padded by `default_value`
    (by default 0, or "").
    """

    shape: StaticShape
    dtype: FeatureDType
    allow_missing: Flag = False
    default_value: Any = None

    def __post_init__(self) -> None:
        check_fields(self)
        _require_known("FixedLenSequenceFeature", self.shape)
