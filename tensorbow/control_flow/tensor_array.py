"""`TensorArray`: a list of tensors that loops read and write element by element."""

from __future__ import annotations

from typing import Annotated, Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import AsDType, Flag, Name, checked, or_tensor, whole
from tensorbow.ops.argument_kinds import INT32, StaticShape
from tensorbow.ops.broadcasting import shape as shape_of
from tensorbow.ops.control import identity, no_op
from tensorbow.ops.filling import range as range_of
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.tensor_arrays import (
    TensorArrayConcat,
    TensorArrayGather,
    TensorArrayNew,
    TensorArrayRead,
    TensorArrayScatter,
    TensorArraySize,
    TensorArraySplit,
    TensorArrayWrite,
)
from tensorbow.specs import Dims, compatible, int32, int64

__all__ = ["TensorArray"]


class TensorArray:
    """A list of tensors of one dtype, kept while a step runs; each element is written once.

    Methods that write return the array after the write: use that one. An array may be a loop variable of
    `tb.while_loop`. In a plan whose indices are all known its elements are plain tensors; otherwise the step
    runs in the dynamic mode. Differentiable; elements that nothing was computed from have gradient zero.
    """

    @checked
    def __init__(
        self,
        dtype: AsDType,
        size: Annotated[Any, or_tensor(whole(0, INT32 - 1))] | None = None,
        dynamic_size: Flag = False,
        clear_after_read: Flag | None = None,
        tensor_array_name: Name = None,
        handle: Any = None,
        flow: Any = None,
        infer_shape: Flag = True,
        element_shape: StaticShape = None,
        name: Name = None,
    ):
        """size: int32 scalar, the number of elements; by default 0 for one with `dynamic_size`, which grows.

        element_shape: what is known of the elements' shape. infer_shape: all elements have one shape, that
        of the first write if no other is given. clear_after_read: accepted; elements are freed with the step.
        tensor_array_name: used where there is no `name`. handle, flow: of another array of the step, which
        this one stands for, in place of a size.

        Raises InvalidArgumentError for a size that is missing, no scalar, or given beside a handle, and for a
        handle without a flow. A step raises it for an index out
        of range, for an element written twice, and for one read before it is written.
        """
        self.dtype = dtype
        self._infers = infer_shape
        self._shape: list[Dims | None] = [element_shape]
        if handle is not None or flow is not None:
            if handle is None or flow is None or size is not None:
                raise InvalidArgumentError(
                    "TensorArray: handle and flow stand for an array that is there: give both, and no size"
                )
            self.handle: Tensor = as_tensor(handle)
            self.flow: Tensor = as_tensor(flow)
            return
        if size is None and not dynamic_size:
            raise InvalidArgumentError("TensorArray: give size, or dynamic_size=True")
        count = as_tensor(0 if size is None else size, int32)
        if count.spec.shape not in (None, ()):
            raise InvalidArgumentError(f"TensorArray: size is {count.spec}, expected an int32 scalar")
        with graph_of([count]).as_default(), name_scope(name or tensor_array_name or "TensorArray"):
            self.handle, self.flow = TensorArrayNew(
                count,
                dtype=dtype,
                shape=self.element_shape,
                dynamic_size=dynamic_size,
            )

    @property
    def element_shape(self) -> Dims | None:
        """Known part of the elements' shape, as one of them was written anywhere, also in a loop."""
        return self._shape[0]

    def with_flow(self, flow: Tensor) -> TensorArray:
        """The same array after the writes that made a flow; both know the elements' shape."""
        copied = TensorArray.__new__(TensorArray)
        copied.__dict__.update(self.__dict__)
        copied.flow = flow
        return copied

    def _learn(self, shape: Dims | None, call: str) -> None:
        if shape is None or not self._infers:
            return
        if self.element_shape is None:
            self._shape[0] = shape
        elif not compatible(self.element_shape, shape):
            raise InvalidArgumentError(
                f"TensorArray.{call}: an element has shape {list(shape)}, expected "
                f"{list(self.element_shape)}; give infer_shape=False for elements of several shapes"
            )

    def _value(self, value: Any, call: str) -> Tensor:
        tensor = as_tensor(value, self.dtype) if not isinstance(value, Tensor) else value
        if tensor.dtype != self.dtype:
            raise InvalidArgumentError(
                f"TensorArray.{call}: the value is {tensor.dtype.name}, expected {self.dtype.name}; "
                "use tb.cast"
            )
        return tensor

    def _attrs(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": self.element_shape if self._infers else None}

    @checked
    def write(self, index: Any, value: Any, name: Name = None) -> TensorArray:
        """Writes a tensor as the element of an index, an int32 scalar. Raises InvalidArgumentError."""
        tensor = self._value(value, "write")
        self._learn(tensor.spec.shape, "write")
        return self.with_flow(
            TensorArrayWrite(self.handle, as_tensor(index, int32), tensor, self.flow, name=name)
        )

    @checked
    def read(self, index: Any, name: Name = None) -> Tensor:
        """The element of an index, an int32 scalar."""
        return TensorArrayRead.tensor(
            self.handle, as_tensor(index, int32), self.flow, name=name, **self._attrs()
        )

    @checked
    def gather(self, indices: Any, name: Name = None) -> Tensor:
        """The elements of indices, an int32 vector, as rows: `[indices, *element]`."""
        return TensorArrayGather.tensor(
            self.handle, as_tensor(indices, int32), self.flow, name=name, **self._attrs()
        )

    @checked
    def stack(self, name: Name = None) -> Tensor:
        """All elements as rows: `[size, *element]`."""
        with graph_of([self.flow]).as_default(), name_scope(name or "TensorArrayStack"):
            return self.gather(range_of(self.size()))

    def stack_or_zeros(self) -> Tensor:
        """All elements as rows: `[size, *element]`, with zeros for those that were not written."""
        with graph_of([self.flow]).as_default(), name_scope("TensorArrayStack"):
            return TensorArrayGather.tensor(
                self.handle, range_of(self.size()), self.flow, or_zeros=True, **self._attrs()
            )

    @checked
    def concat(self, name: Name = None) -> Tensor:
        """All elements one after the other along their first axis: `[rows of all elements, ...]`.

        The elements have rank 1 or more, and agree in all but the first extent: then give `element_shape`
        with None in its place, or infer_shape=False. Raises InvalidArgumentError for scalars.
        """
        if self.element_shape == ():
            raise InvalidArgumentError("TensorArray.concat: the elements are scalars; use stack")
        rows: Tensor
        rows, _ = TensorArrayConcat(self.handle, self.flow, name=name, **self._attrs())
        return rows

    @checked
    def split(self, value: Any, lengths: Any, name: Name = None) -> TensorArray:
        """Writes pieces of a tensor as the elements from 0 on: the first `lengths[0]` rows, and so on.

        lengths: an integer vector with one length for each element. Raises InvalidArgumentError for a scalar
        value. A step raises it for another number of lengths than elements, and for lengths whose sum is not
        the number of rows.
        """
        tensor = self._value(value, "split")
        counts = as_tensor(lengths)
        if tensor.spec.shape == ():
            raise InvalidArgumentError("TensorArray.split: the value is a scalar, expected rows")
        if not counts.dtype.is_integer or (counts.spec.shape is not None and len(counts.spec.shape) != 1):
            raise InvalidArgumentError(
                f"TensorArray.split: lengths is {counts.spec}, expected an integer vector, a length for each "
                "element"
            )
        if tensor.spec.shape is not None:
            known = counts.spec.value
            alike = known is not None and known.size > 0 and bool((known == known.flat[0]).all())
            rows = int(known.flat[0]) if known is not None and alike else None
            self._learn((rows, *tensor.spec.shape[1:]), "split")
        with graph_of([tensor, self.flow]).as_default(), name_scope(name or "TensorArraySplit"):
            counts = cast(counts, int64)
            return self.with_flow(TensorArraySplit(self.handle, tensor, counts, self.flow))

    @checked
    def scatter(self, indices: Any, value: Any, name: Name = None) -> TensorArray:
        """Writes the rows of a tensor as the elements of indices. Raises InvalidArgumentError."""
        tensor = self._value(value, "scatter")
        shape = tensor.spec.shape
        self._learn(None if shape is None else shape[1:], "scatter")
        return self.with_flow(
            TensorArrayScatter(self.handle, as_tensor(indices, int32), tensor, self.flow, name=name)
        )

    @checked
    def unstack(self, value: Any, name: Name = None) -> TensorArray:
        """Writes the rows of a tensor as the elements from 0 on. Raises InvalidArgumentError."""
        tensor = self._value(value, "unstack")
        if tensor.spec.shape == ():
            raise InvalidArgumentError("TensorArray.unstack: the value is a scalar, expected rows")
        with graph_of([tensor, self.flow]).as_default(), name_scope(name or "TensorArrayUnstack"):
            return self.scatter(range_of(strided_slice(shape_of(tensor), 0)), tensor)

    @checked
    def size(self, name: Name = None) -> Tensor:
        """The number of elements, an int32 scalar."""
        return TensorArraySize.tensor(self.handle, self.flow, name=name)

    def identity(self) -> TensorArray:
        """The same array, behind the current control dependencies."""
        return self.with_flow(identity(self.flow))

    @checked
    def close(self, name: Name = None) -> Operation:
        """An operation that does nothing: the elements are freed when the step ends."""
        return no_op("TensorArrayClose" if name is None else name)

    def __repr__(self) -> str:
        return f"<tb.TensorArray {self.dtype.name} {self.handle.name}>"
