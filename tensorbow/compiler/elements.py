"""TensorArrays in plans: elements of known indices are plain values; compiled loops have them as rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tensorbow.compiler.dynamic_mode import dynamic
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, ControlFlowContext, OpDef, Operation, Tensor
from tensorbow.ops.arrays import ConcatV2, ExpandDims
from tensorbow.ops.control import Copy
from tensorbow.ops.control_flow import StackPop
from tensorbow.ops.elementwise_table import Add
from tensorbow.ops.indexing import GatherV2
from tensorbow.ops.slicing import StridedSlice
from tensorbow.ops.tensor_arrays import (
    NO_FLOW,
    TensorArrayConcat,
    TensorArrayGather,
    TensorArrayGrad,
    TensorArrayNew,
    TensorArrayRead,
    TensorArrayScatter,
    TensorArraySize,
    TensorArraySplit,
    TensorArrayWrite,
    pieces,
    require_lengths,
)
from tensorbow.program.nodes import Value
from tensorbow.program.rows import NewRows, RowAdd, RowRead, RowsWritten, RowWrite
from tensorbow.specs import Array, Dims, DType, TensorSpec, compatible, render_dims

NewNode = Callable[[Operation, str, OpDef, Attrs, list[Value]], list[Value]]
"""(op, part of its name, definition, attributes, inputs) -> outputs of a new node."""


@dataclass
class ArrayElements:
    """The elements of a TensorArray in a plan, as values of their own, or as rows of one value.

    of: the array whose gradients they are. rows: `[size, *element]`, and `elements` are then only counted.
    written: which of the rows are, bool `[size]`; None for all. owned: no one else reads the rows, so they
    may be changed in place. waits: in a loop that is compiled, so that an element's shape must be learned.
    """

    elements: list[Value | None]
    grows: bool
    shape: Dims | None
    dtype: DType
    of: int | None = None
    gradients: dict[str, int] = field(default_factory=dict)  # handles, by call of `gradients`
    rows: Value | None = None
    written: Value | None = None
    owned: bool = False
    waits: bool = False
    learned: TensorSpec | None = None

    def copied(self) -> ArrayElements:
        """A copy that can be changed."""
        return replace(self, elements=list(self.elements), gradients=dict(self.gradients))


def array_source(tensor: Tensor) -> Operation | None:
    """The op that makes the handle of the TensorArray that a tensor is of; None if it is of none."""
    op = tensor.op
    while op.definition not in (TensorArrayNew, TensorArrayGrad):
        if op.definition is StackPop:  # of a handle that enters a loop
            op = op.graph.get_operation_by_name(op.attrs["push"]).inputs[0].op
            continue
        if not op.inputs or not (op.definition.flow in ("enter", "switch") or op.type == "Identity"):
            return None
        op = op.inputs[0].op
    return op


class StepArrays:
    """The TensorArrays of a step, by handle."""

    def __init__(
        self, values: dict[Tensor, Value], new_node: NewNode, constant: Callable[[str, Array], Value]
    ):
        self._values = values
        self._new_node = new_node
        self._constant = constant
        self.arrays: list[ArrayElements] = []

    def saved(self) -> list[ArrayElements]:
        """The arrays as they are, for `restore`."""
        return [each.copied() for each in self.arrays]

    def restore(self, saved: Sequence[ArrayElements]) -> None:
        """Takes back what was done since."""
        self.arrays[:] = [each.copied() for each in saved]

    def convert(self, op: Operation, in_block: bool) -> None:
        """Adds what an op of a TensorArray does. in_block: part of a compiled loop or branch."""
        values = self._values
        of_lengths = op.definition in (TensorArrayConcat, TensorArraySplit)
        given = (op.inputs[0], *(op.inputs[2:3] if of_lengths else op.inputs[1:2]))
        numbers = [values[t].constant for t in given]
        if numbers[0] is None:
            raise dynamic(op)
        first = int(np.asarray(numbers[0]))
        if op.definition in (TensorArrayNew, TensorArrayGrad):
            number = self.new(op, first)
            values[op.outputs[0]] = self._constant(op.outputs[0].name, np.asarray(number))
            values[op.outputs[1]] = self._constant(op.outputs[1].name, NO_FLOW)
            return
        array = self.arrays[first]
        if op.definition is TensorArraySize:
            count = np.asarray(len(array.elements), np.int32)
            values[op.outputs[0]] = self._constant(op.outputs[0].name, count)
            return
        if of_lengths:
            self._convert_lengths(op, array, numbers[1:])
            return
        known = numbers[1] is not None
        if not known and not in_block:
            raise dynamic(op)
        where = [int(each) for each in np.atleast_1d(np.asarray(numbers[1]))] if known else []
        as_elements = known and not array.owned and not array.waits and array.written is None
        if as_elements and array.rows is not None and not (in_block and op.definition is not TensorArrayRead):
            self._split(op, array)
        if array.rows is None and not array.waits and known:
            self._convert_known(op, array, where)
        else:
            self._convert_rows(op, first, where if known else None, in_block)

    def new(self, op: Operation, size_or_handle: int) -> int:
        """The handle of a new array, or of the gradients of one."""
        if op.definition is TensorArrayNew:
            if size_or_handle < 0:
                raise InvalidArgumentError(_refused(op, f"size is {size_or_handle}, expected at least 0"))
            made = ArrayElements(
                [None] * size_or_handle, op.attrs["dynamic_size"], op.attrs["shape"], op.attrs["dtype"]
            )
            self.arrays.append(made)
            return len(self.arrays) - 1
        array = self.arrays[size_or_handle]
        if op.attrs["gradient_call"] not in array.gradients:
            array.gradients[op.attrs["gradient_call"]] = len(self.arrays)
            empty: list[Value | None] = [None] * len(array.elements)
            self.arrays.append(ArrayElements(empty, array.grows, array.shape, array.dtype, of=size_or_handle))
        return array.gradients[op.attrs["gradient_call"]]

    # Elements --------------------------------------------------------------------------------------

    def _convert_known(self, op: Operation, array: ArrayElements, where: Sequence[int]) -> None:
        values = self._values
        if op.definition is TensorArrayRead:
            values[op.outputs[0]] = self._element(op, array, where[0])
        elif op.definition is TensorArrayGather:
            or_zeros = op.attrs["or_zeros"]
            rows = [self._element(op, array, index, or_zeros) for index in where]
            values[op.outputs[0]] = self._joined(op, rows)
        else:
            given = values[op.inputs[2]]
            if op.definition is TensorArrayScatter and self._is_whole(array, given, where):
                array.rows, array.written, array.owned = given, None, False
            else:
                parts = [given] if op.definition is TensorArrayWrite else self._rows_of(op, given, len(where))
                for index, value in zip(where, parts, strict=True):
                    self._set_element(op, array, index, value)
            values[op.outputs[0]] = self._constant(op.outputs[0].name, NO_FLOW)

    def _convert_lengths(self, op: Operation, array: ArrayElements, lengths: Sequence[Array | None]) -> None:
        """TensorArrayConcat and TensorArraySplit, whose lengths must be known."""
        if array.owned or array.waits or array.written is not None:
            raise dynamic(op, "elements of several lengths in a loop or cond that depends on data")
        if any(each is None for each in lengths):
            raise dynamic(op)
        if array.rows is not None:
            self._split(op, array)
        if op.definition is TensorArrayConcat:
            count = len(array.elements) if not lengths else int(np.asarray(lengths[0]).size)
            self._join_elements(op, array, count)
            return
        found = [int(each) for each in np.atleast_1d(np.asarray(lengths[0]))]
        for index, value in enumerate(self._pieces_of(op, self._values[op.inputs[1]], found, array)):
            self._set_element(op, array, index, value)
        self._values[op.outputs[0]] = self._constant(op.outputs[0].name, NO_FLOW)

    def _join_elements(self, op: Operation, array: ArrayElements, count: int) -> None:
        """The outputs of TensorArrayConcat."""
        elements = [self._element(op, array, index) for index in range(count)]
        if any(element.spec.rank == 0 for element in elements):
            raise InvalidArgumentError(_refused(op, "the elements are scalars; use stack"))
        if len(elements) > 1:
            (rows,) = self._new_node(op, "rows", ConcatV2, {"axis": 0}, elements)
        else:
            rows = elements[0] if elements else self._joined(op, ())
        lengths = np.array([element.spec.extents[0] for element in elements], np.int64)
        self._values[op.outputs[0]] = rows
        self._values[op.outputs[1]] = self._constant(op.outputs[1].name, lengths)

    def _pieces_of(
        self, op: Operation, value: Value, lengths: Sequence[int], array: ArrayElements
    ) -> list[Value]:
        """Consecutive rows of a value, for TensorArraySplit."""
        if value.spec.rank == 0:
            raise InvalidArgumentError(_refused(op, "the value is a scalar, expected rows"))
        try:
            require_lengths(len(lengths), len(array.elements), array.grows)
            found = pieces(lengths, value.spec.extents[0])
        except InvalidArgumentError as error:
            raise InvalidArgumentError(_refused(op, str(error))) from None
        parts = []
        for number, (first, end) in enumerate(found):
            index = {"index": ((first, end, None),)}
            parts.append(self._new_node(op, f"piece{number}", StridedSlice, index, [value])[0])
        return parts

    def _split(self, op: Operation, array: ArrayElements) -> None:
        """Rows that nobody changes as elements; those that are not read cost nothing."""
        if op.definition is not TensorArrayGather and array.rows is not None:
            array.elements = list(self._rows_of(op, array.rows, len(array.elements)))
            array.rows = None

    def _is_whole(self, array: ArrayElements, given: Value, where: Sequence[int]) -> bool:
        """True if a value has all elements of an array to which nothing was written, in order."""
        count = len(array.elements)
        return (
            count > 0
            and given.spec.rank > 0
            and given.spec.extents[0] == count
            and list(where) == list(range(count))
            and all(each is None for each in array.elements)
            and (array.shape is None or compatible(array.shape, given.spec.extents[1:]))
        )

    def _element(self, op: Operation, array: ArrayElements, index: int, or_zeros: bool = False) -> Value:
        element = array.elements[index] if 0 <= index < len(array.elements) else None
        if element is not None:
            return element
        like = None
        if array.of is not None:
            like = self._spec_of(self.arrays[array.of], index)
        elif or_zeros:
            like = self.element_spec(array)
        if like is None:
            raise InvalidArgumentError(
                _refused(op, f"element {index} of {len(array.elements)} is read before it is written")
            )
        return self._constant(f"{op.name}/zeros", np.zeros(like.extents, like.dtype.as_numpy_dtype))

    def _spec_of(self, array: ArrayElements, index: int) -> TensorSpec | None:
        if array.rows is not None:
            return self.element_spec(array)
        element = array.elements[index] if 0 <= index < len(array.elements) else None
        return None if element is None else element.spec

    def _set_element(self, op: Operation, array: ArrayElements, index: int, value: Value) -> None:
        count = len(array.elements)
        if index < 0 or (index >= count and not array.grows):
            raise InvalidArgumentError(_refused(op, f"index {index} is not in [0, {count})"))
        array.elements.extend([None] * (index + 1 - count))
        before = array.elements[index]
        if before is not None and array.of is None:
            raise InvalidArgumentError(_refused(op, f"element {index} is written twice"))
        if array.shape is not None and not compatible(array.shape, value.spec.extents):
            raise InvalidArgumentError(
                _refused(op, f"element {index} is {value.spec}, expected {render_dims(array.shape)}")
            )
        if before is not None:
            (value,) = self._new_node(op, "sum", Add, {}, [before, value])
        array.elements[index] = value

    def _joined(self, op: Operation, rows: Sequence[Value]) -> Value:
        """Elements as rows of one value."""
        if not rows:
            spec = op.outputs[0].spec
            if not spec.shape or None in spec.shape[1:]:
                raise InvalidArgumentError(_refused(op, "no elements, of unknown shape; give element_shape"))
            extents = [extent or 0 for extent in spec.shape]
            return self._constant(op.outputs[0].name, np.zeros(extents, spec.dtype.as_numpy_dtype))
        parts = [self._new_node(op, f"row{i}", ExpandDims, {"axis": 0}, [v])[0] for i, v in enumerate(rows)]
        return self._new_node(op, "rows", ConcatV2, {"axis": 0}, parts)[0] if len(parts) > 1 else parts[0]

    def _rows_of(self, op: Operation, value: Value, count: int) -> list[Value]:
        if value.spec.rank == 0 or value.spec.extents[0] != count:
            raise InvalidArgumentError(
                _refused(op, f"{count} indices for {value.spec}; give one for each row")
            )
        sliced = range(count)
        return [self._new_node(op, f"row{i}", StridedSlice, {"index": (i,)}, [value])[0] for i in sliced]

    # Rows -------------------------------------------------------------------------------------

    def element_spec(self, array: ArrayElements) -> TensorSpec | None:
        """Shape and dtype of all elements, if they are known."""
        if array.rows is not None:
            return TensorSpec(array.rows.spec.extents[1:], array.rows.spec.dtype)
        found = array.learned or next((v.spec for v in array.elements if v is not None), None)
        if found is None and array.of is not None:
            return self.element_spec(self.arrays[array.of])
        if found is None and array.shape is not None and None not in array.shape:
            found = TensorSpec(array.shape, array.dtype)
        return None if found is None else TensorSpec(found.shape, found.dtype)

    def as_rows(self, op: Operation, number: int) -> bool:
        """Turns the elements of an array into rows; False if their shape has to be learned first."""
        array = self.arrays[number]
        if array.rows is not None:
            return True
        spec = self.element_spec(array)
        if array.grows or any(
            v is not None and spec is not None and v.spec.shape != spec.shape for v in array.elements
        ):
            raise dynamic(
                op, "a TensorArray that grows, or whose elements differ in shape, in a compiled loop"
            )
        if spec is None:
            return False
        count = len(array.elements)
        shape = (count, *spec.extents)
        flags = np.asarray([each is not None for each in array.elements], np.bool_)
        if array.of is None:
            array.written = self._constant(f"{op.name}/written", flags)
        if flags.any():
            zeros = self._constant(f"{op.name}/zeros", np.zeros(spec.extents, spec.dtype.as_numpy_dtype))
            array.rows = self._joined(op, [zeros if each is None else each for each in array.elements])
        else:
            attrs = {"shape": shape, "dtype": spec.dtype, "number": number}
            (array.rows,) = self._new_node(op, "elements", NewRows, attrs, [])
            array.owned = True
        array.elements = [None] * count
        array.learned = None
        return True

    def _convert_rows(self, op: Operation, handle: int, where: Sequence[int] | None, in_block: bool) -> None:
        """An op on rows. where: the indices, if they are known."""
        array = self.arrays[handle]
        values, reads = self._values, op.definition in (TensorArrayRead, TensorArrayGather)
        if array.waits:
            self._learn(op, array)
            return
        if array.rows is None and not self.as_rows(op, handle):
            raise dynamic(op, f"the shape of the elements of {op.name} is not known")
        rows = array.rows
        if rows is None:
            raise dynamic(op)
        if op.definition is TensorArrayRead:
            given = [rows, values[op.inputs[1]], *([] if array.written is None else [array.written])]
            values[op.outputs[0]] = self._new_node(op, "read", RowRead, {}, given)[0]
        elif op.definition is TensorArrayWrite:
            self._write_row(op, array, values[op.inputs[1]], values[op.inputs[2]])
        elif where is None:
            raise dynamic(op)
        elif op.definition is TensorArrayGather:
            values[op.outputs[0]] = self._gathered(op, array, where, in_block)
        else:
            for index, value in zip(where, self._rows_of(op, values[op.inputs[2]], len(where)), strict=True):
                self._write_row(op, array, self._constant(f"{op.name}/{index}", np.int32(index)), value)
        if not reads:
            values[op.outputs[0]] = self._constant(op.outputs[0].name, NO_FLOW)

    def _learn(self, op: Operation, array: ArrayElements) -> None:
        """Learns the shape of an array's elements from a write; the loop is then compiled again."""
        if op.definition is not TensorArrayWrite:
            raise dynamic(op, f"the shape of the elements that {op.name} reads is not known before the loop")
        array.learned = self._values[op.inputs[2]].spec
        self._values[op.outputs[0]] = self._constant(op.outputs[0].name, NO_FLOW)

    def _write_row(self, op: Operation, array: ArrayElements, index: Value, value: Value) -> None:
        rows = array.rows
        if rows is None:
            raise dynamic(op)
        if value.spec.shape != rows.spec.extents[1:]:
            raise InvalidArgumentError(
                _refused(op, f"an element is {value.spec}, expected {render_dims(rows.spec.extents[1:])}")
            )
        if not array.owned:
            rows = self._new_node(op, "copy", Copy, {}, [rows])[0]
            if array.written is not None:
                array.written = self._new_node(op, "copy_written", Copy, {}, [array.written])[0]
            array.owned = True
        if array.of is not None:
            (array.rows,) = self._new_node(op, "add", RowAdd, {}, [rows, index, value])
            return
        written = array.written
        if written is None:  # all elements are
            number = len(array.elements)
            written = self._constant(f"{op.name}/written", np.ones(number, np.bool_))
        given = [rows, written, index, value]
        array.rows, array.written = self._new_node(op, "write", RowWrite, {}, given)

    def _gathered(self, op: Operation, array: ArrayElements, where: Sequence[int], in_block: bool) -> Value:
        rows, written = array.rows, array.written
        if rows is None:
            raise dynamic(op)
        if written is not None and not op.attrs["or_zeros"]:
            rows = self._new_node(op, "written", RowsWritten, {}, [rows, written])[0]
        if list(where) != list(range(len(array.elements))):
            indices = self._constant(f"{op.name}/indices", np.asarray(where, np.int32))
            return self._new_node(op, "rows", GatherV2, dict(GatherV2.attrs), [rows, indices])[0]
        if in_block and array.owned:  # what is read stays as it is when more is written
            return self._new_node(op, "rows", Copy, {}, [rows])[0]
        return rows


def writes_of(ops: Sequence[Operation]) -> list[Operation]:
    """The ops that write to TensorArrays, or to their gradients."""
    writes = (TensorArrayWrite, TensorArrayScatter, TensorArraySplit)
    return [op for op in ops if op.definition in writes]


def arrays_written(
    ops: Sequence[Operation],
    inside: Collection[ControlFlowContext | None],
    values: Mapping[Tensor, Value],
    arrays: StepArrays,
) -> dict[int, Operation]:
    """The arrays from outside to which ops of a loop or cond write, each with an op that does.

    inside: the contexts of the loop or cond, and those of which it is the gradient. Arrays of gradients are
    made if there are none: an array that an iteration or branch makes has gradients in the same one.
    """

    def handle_of(tensor: Tensor) -> int | None:
        source = array_source(tensor)
        if source is None:
            return None
        if source.definition is TensorArrayNew:
            if source.context is not None and any(each in inside for each in source.context.chain()):
                return None
            value = values[source.outputs[0]].constant
            return None if value is None else int(value)
        of = handle_of(source.inputs[0])
        return None if of is None else arrays.new(source, of)

    found: dict[int, Operation] = {}
    for op in writes_of(ops):
        number = handle_of(op.inputs[0])
        if number is not None:
            found.setdefault(number, op)
    return found


def _refused(op: Operation, reason: str) -> str:
    return f"{op.type} {op.name}: {reason} (made at {op.source})"
