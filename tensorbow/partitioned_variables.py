"""Variables in parts, each on a device of its own, and TensorFlow's partitioners, which give their number.

with tb.device(tb.train.replica_device_setter(ps_tasks=3)):
    table = tb.get_variable("table", [10**6, 64], partitioner=tb.fixed_size_partitioner(3))
rows = tb.nn.embedding_lookup(table, ids, partition_strategy="div")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    Graph,
    Operation,
    Tensor,
    TensorOperators,
    convert_to_tensor,
    name_scope,
    register_tensor_conversion,
)
from tensorbow.kinds import FUNCTION, Name, Positive, called, checked, optional, refuse, whole
from tensorbow.ops.arrays import concat
from tensorbow.ops.control import group
from tensorbow.ops.shaping import split
from tensorbow.specs import DType, SaveSliceInfo, TensorShape
from tensorbow.variables import Variable

__all__ = [
    "PartitionedVariable",
    "fixed_size_partitioner",
    "min_max_variable_partitioner",
    "variable_axis_size_partitioner",
]

Partitioner: TypeAlias = Annotated["Callable[..., Any] | None", optional(FUNCTION)]
CutAxis: TypeAlias = Annotated[int, whole(0)]
Limit: TypeAlias = Annotated["int | None", optional(whole(1))]


class PartitionedVariable(TensorOperators):
    """A variable that is cut along one axis; its parts are the variables `name/part_0`, `name/part_1` ...

    `tb.get_variable` makes it when it has a partitioner. Operations read all parts, joined;
    `tb.nn.embedding_lookup` gathers rows where the parts are. Collections, and so optimisers, have the parts.
    `tb.train.Saver` saves the whole, so that a checkpoint fits any number of parts.
    """

    def __init__(self, name: str, axis: int, parts: Sequence[Variable]):
        """parts: variables that make up the whole along this axis, in order."""
        self.name, self.axis, self.parts = name, axis, (*parts,)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.parts[0].dtype

    @property
    def shape(self) -> TensorShape:
        """Shape of the whole."""
        extents = list(self.parts[0].shape)
        extents[self.axis] = sum(self._extents)
        return TensorShape(extents)

    def get_shape(self) -> TensorShape:
        """Shape of the whole (TensorFlow's older name)."""
        return self.shape

    @property
    def graph(self) -> Graph:
        """The parts' graph."""
        return self.parts[0].graph

    @property
    def initializer(self) -> Operation:
        """The operation that assigns the initial values of all parts."""
        return group(*[part.initializer for part in self.parts])

    @property
    def _extents(self) -> list[int]:
        return [part.op.outputs[0].spec.extents[self.axis] for part in self.parts]

    def as_tensor(self) -> Tensor:
        """The parts at this point of the program, joined."""
        with self.graph.as_default(), name_scope(f"{self.name.rpartition('/')[2]}/ConcatPartitions"):
            return self._joined([part.value() for part in self.parts])

    def value(self) -> Tensor:
        """`as_tensor()`."""
        return self.as_tensor()

    @checked
    def assign(self, value: Any, *, name: Name = None) -> Tensor:
        """Assigns to each part its rows of `value`, of the whole's shape; gives the whole after it."""
        return self._write("assign", value, name)

    @checked
    def assign_add(self, delta: Any, *, name: Name = None) -> Tensor:
        """Adds to each part its rows of `delta`, see `assign`."""
        return self._write("assign_add", delta, name)

    @checked
    def assign_sub(self, delta: Any, *, name: Name = None) -> Tensor:
        """Subtracts from each part its rows of `delta`, see `assign`."""
        return self._write("assign_sub", delta, name)

    def _write(self, method: str, value: Any, name: str | None) -> Tensor:
        with self.graph.as_default(), name_scope(name or method):
            tensor = convert_to_tensor(value, self.dtype)
            if tensor.shape.dims != self.shape.dims:
                raise InvalidArgumentError(
                    f"{method}: expected the shape {self.shape} of {self.name}, got {tensor.shape}"
                )
            slices = split(tensor, self._extents, self.axis)
            return self._joined(
                [getattr(part, method)(own) for part, own in zip(self.parts, slices, strict=True)]
            )

    def _joined(self, values: list[Tensor]) -> Tensor:
        return concat(values, self.axis) if len(values) > 1 else values[0]

    def __iter__(self) -> Iterator[Variable]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    __array_priority__ = 100  # NumPy arrays on the left leave the operator to us

    def __repr__(self) -> str:
        return (
            f"<tb.PartitionedVariable '{self.name}' shape={self.shape} dtype={self.dtype.name} "
            f"parts={len(self)}>"
        )

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


register_tensor_conversion(PartitionedVariable, lambda value, dtype, name: value.as_tensor())


@checked
def fixed_size_partitioner(num_shards: Positive, axis: CutAxis = 0) -> Callable[..., list[int]]:
    """A partitioner for `get_variable`: so many parts along an axis, or its extent if that is less."""
    return lambda shape, dtype: _along(shape, axis, num_shards)


@checked
def variable_axis_size_partitioner(
    max_shard_bytes: Positive, axis: CutAxis = 0, *, max_shards: Limit = None
) -> Callable[..., list[int]]:
    """A partitioner for `get_variable`: as few parts along an axis as have at most so many bytes each.

    max_shards: most parts, which may then be larger. A part has a slice of extent 1 at least.
    """

    def partitioner(shape: TensorShape, dtype: DType) -> list[int]:
        extent, nbytes = _extent_and_nbytes(shape, dtype, axis)
        slices = max(1, max_shard_bytes * extent // max(nbytes, 1))  # in a part
        count = -(-extent // slices)
        return _along(shape, axis, count if max_shards is None else min(count, max_shards))

    return partitioner


@checked
def min_max_variable_partitioner(
    max_partitions: Positive = 1, axis: CutAxis = 0, min_slice_size: Positive = 256 << 10
) -> Callable[..., list[int]]:
    """A partitioner for `get_variable`: up to so many parts along an axis, of at least so many bytes each."""

    def partitioner(shape: TensorShape, dtype: DType) -> list[int]:
        _, nbytes = _extent_and_nbytes(shape, dtype, axis)
        return _along(shape, axis, min(max_partitions, -(-nbytes // min_slice_size)))

    return partitioner


def _extent_and_nbytes(shape: TensorShape, dtype: DType, axis: int) -> tuple[int, int]:
    """The extent of an axis, and the bytes of the whole."""
    extents = _cut(shape, axis)
    return extents[axis], math.prod(extents) * dtype.size


def _along(shape: TensorShape, axis: int, count: int) -> list[int]:
    """Numbers of parts by axis: 1 to the extent of this axis, else 1."""
    extents = _cut(shape, axis)
    counts = [1] * len(extents)
    counts[axis] = max(1, min(count, extents[axis]))
    return counts


def _cut(shape: TensorShape, axis: int) -> list[int]:
    """The extents. Raises InvalidArgumentError if there is no such axis."""
    extents = [extent for extent in shape if extent is not None]
    if axis >= len(extents):
        raise InvalidArgumentError(
            f"partitioner: expected axis to be one of the {len(extents)} of the shape {shape}, got {axis}"
        )
    return extents


def slices_of(
    full: str, shape: TensorShape, dtype: DType, partitioner: Callable[..., Any]
) -> tuple[int, list[SaveSliceInfo]]:
    """The axis along which a partitioner cuts, and the slices, of which the first may be longer by one.

    Raises InvalidArgumentError for a shape that is not fully known, or numbers of parts that do not fit it.
    """
    if not shape.is_fully_defined():
        raise InvalidArgumentError(
            f"get_variable: expected a fully known shape of {full}, which has a partitioner, got {shape}"
        )
    argument, expected = f"partitioner of {full}", "a function of shape and dtype"
    counts = called(partitioner, shape, dtype, op="get_variable", argument=argument, expected=expected)
    extents = [extent or 0 for extent in shape]
    limits = [max(1, extent) for extent in extents]
    is_list = isinstance(counts, (list, tuple)) and all(isinstance(count, int) for count in counts)
    if (
        not is_list
        or len(counts) != len(limits)
        or not all(1 <= count <= limit for count, limit in zip(counts, limits, strict=True))
        or sum(count > 1 for count in counts) > 1
    ):
        expected = f"{len(limits)} numbers, of which one may be greater than 1, and at most those of {shape}"
        raise refuse("get_variable", f"result of the {argument}", expected, counts)
    axis = max(range(len(counts)), key=lambda number: counts[number])
    each, more = divmod(extents[axis], counts[axis])
    slices, start = [], 0
    for number in range(counts[axis]):
        offset, own = [0] * len(extents), list(extents)
        offset[axis], own[axis] = start, each + (number < more)
        slices.append(SaveSliceInfo(full, (*extents,), (*offset,), (*own,)))
        start += own[axis]
    return axis, slices
