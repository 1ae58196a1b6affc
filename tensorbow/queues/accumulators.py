"""Accumulators of gradients: TensorFlow 1's ConditionalAccumulator and SparseConditionalAccumulator.

A gradient is dropped if it was computed at a step before the accumulator's. `take_grad` waits for a number
of gradients, gives their mean or sum, and moves the accumulator to the next step (OSDI 2016, section 4.4:
synchronous replicas with backup workers).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    REQUIRED,
    Attrs,
    HostCall,
    Operation,
    Tensor,
    as_tensor,
    name_scope,
)
from tensorbow.kinds import AsDType, Name, Text, checked, one_of, refuse
from tensorbow.ops.argument_kinds import StaticShape
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.ops.indexing import NO_ROW
from tensorbow.ops.selection import cast
from tensorbow.queues.queue_ops import KEY, found, handle_of, shared_or_own
from tensorbow.queues.queues import SharedName, shared_attrs
from tensorbow.queues.waiting_calls import WaitingCalls, define_object_op
from tensorbow.specs import NUMBERS, Array, Dims, TensorSpec, compatible, int32, int64, render_dims

ReductionType = Annotated[str, one_of("MEAN", "SUM")]
SETTINGS = {"dtype": REQUIRED, "shape": None, "reduction_type": "MEAN"}


class GradientSum:
    """State of a dense accumulator: a sum, the number of its terms, and the step of which they may be."""

    def __init__(self, label: str, shape: Dims | None, is_mean: bool):
        self.calls = WaitingCalls(label)
        self.handle = self.calls.handle
        self.shape = shape
        self._is_mean = is_mean
        self._sum: Array | None = None
        self.count = 0
        self.step = 0

    def close(self) -> None:
        """Ends the calls that wait."""
        self.calls.close()

    def apply(self, gradient: Array, local_step: int) -> None:
        """Adds a gradient, unless it is stale."""
        known = self.shape if self._sum is None else self._sum.shape
        _require_shape(self.calls.label, gradient.shape, known)
        if local_step < self.step:
            return
        if self._sum is None:
            self._sum = np.array(gradient)
        else:
            np.add(self._sum, gradient, out=self._sum)
        self.count += 1

    def take(self) -> list[Array]:
        """The mean or the sum; there is at least one gradient."""
        total, count = np.asarray(self._sum), self.count
        self._sum, self.count = None, 0
        self.step += 1
        return [(total / count).astype(total.dtype) if self._is_mean else total]


class SlicesSum:
    """State of a sparse accumulator: sums of rows by their index, and the number of terms of each."""

    def __init__(self, label: str, shape: Dims | None, is_mean: bool):
        self.calls = WaitingCalls(label)
        self.handle = self.calls.handle
        self.shape = shape
        self._is_mean = is_mean
        self._rows: dict[int, tuple[Array, int]] = {}
        self._tail: tuple[int, ...] | None = None
        self._dense_shape: tuple[int, ...] = ()
        self.count = 0
        self.step = 0

    def close(self) -> None:
        """Ends the calls that wait."""
        self.calls.close()

    def apply(self, indices: Array, values: Array, shape: Array, local_step: int) -> None:
        """Adds the rows of a gradient, unless it is stale; rows of one index count as one."""
        label = self.calls.label
        if indices.shape != values.shape[:1]:
            raise InvalidArgumentError(
                f"{label}: the indices are {render_dims(indices.shape)}, the values "
                f"{render_dims(values.shape)}; expected one index for each row"
            )
        tail = None if self.shape is None else self.shape[1:]
        _require_shape(label, values.shape[1:], tail if self._tail is None else self._tail)
        dense = tuple(int(extent) for extent in shape)
        if dense:
            _require_shape(label, dense, self.shape)
        used = indices != NO_ROW
        indices, values = indices[used], values[used]
        if len(indices) and (indices.min() < 0 or (dense and indices.max() >= dense[0])):
            raise InvalidArgumentError(f"{label}: indices {indices.tolist()} are not in [0, {dense[:1]})")
        if local_step < self.step:
            return
        self._tail, self._dense_shape = values.shape[1:], dense or self._dense_shape
        for index in np.unique(indices).tolist():
            row = values[indices == index].sum(0, dtype=values.dtype)
            known = self._rows.get(index)
            self._rows[index] = (row, 1) if known is None else (known[0] + row, known[1] + 1)
        self.count += 1

    def take(self) -> list[Array]:
        """Indices, ascending, rows, and the dense shape (empty if no gradient has told it)."""
        rows, tail = self._rows, self._tail or ()
        self._rows, self._tail, self.count = {}, None, 0
        self.step += 1
        order = sorted(rows)
        values = [rows[i][0] / rows[i][1] if self._is_mean else rows[i][0] for i in order]
        stacked = np.stack(values) if values else np.empty((0, *tail))
        dense = [extent or 0 for extent in self.shape or ()] if not self._dense_shape else self._dense_shape
        return [np.array(order, np.int64), stacked, np.array(dense, np.int64)]


def _require_shape(label: str, shape: tuple[int, ...], known: Dims | None) -> None:
    if not compatible(known, shape):
        raise InvalidArgumentError(
            f"{label}: a gradient of shape {render_dims(shape)}, expected {render_dims(known or ())}"
        )


# Ops ----------------------------------------------------------------------------------------------------


def _made(kind: str, state: type[GradientSum] | type[SlicesSum], call: HostCall) -> list[Array]:
    attrs = call.attrs
    label = f"{kind} '{attrs['shared_name'] or call.name}'"
    settings = (kind, attrs["dtype"], attrs["shape"], attrs["reduction_type"])

    def make() -> Any:
        return state(label, attrs["shape"], attrs["reduction_type"] == "MEAN")

    return handle_of(call, shared_or_own(call, make, settings))


def _accumulator(call: HostCall) -> Any:
    return found(call, (GradientSum, SlicesSum), "accumulator")  # type: ignore[arg-type]


def _now(call: HostCall, function: Callable[[Any], Sequence[Array]]) -> None:
    """Runs a function of the accumulator with its lock."""
    accumulator = _accumulator(call)

    def attempt() -> Callable[[], None]:
        results = function(accumulator)
        return lambda: call.done(results)

    accumulator.calls.call(attempt, call)


def _apply(call: HostCall) -> None:
    def add(accumulator: Any) -> list[Array]:
        *parts, step = call.inputs[1:]
        accumulator.apply(*parts, int(step))
        return []

    _now(call, add)


def _take(call: HostCall) -> None:
    accumulator, required = _accumulator(call), int(call.inputs[1])
    if required < 1:
        raise InvalidArgumentError(f"take_grad: num_required is {required}, expected at least 1")

    def attempt() -> Callable[[], None] | None:
        if accumulator.count < required:
            return None
        dtype = call.attrs["dtype"].as_numpy_dtype
        results = [
            a if a.dtype == np.int64 and i != 1 else a.astype(dtype) for i, a in enumerate(accumulator.take())
        ]
        return lambda: call.done(results)

    accumulator.calls.call(attempt, call)


def _set_step(call: HostCall) -> None:
    def move(accumulator: Any) -> list[Array]:
        accumulator.step = int(call.inputs[1])
        return []

    _now(call, move)


def _count(call: HostCall) -> None:
    _now(call, lambda accumulator: [np.asarray(accumulator.count, np.int32)])


def _handle_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    if attrs["dtype"] not in NUMBERS:
        raise InvalidArgumentError(
            f"an accumulator of dtype {attrs['dtype'].name}: expected a dtype of numbers"
        )
    return TensorSpec((), int64)


def _slices_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    shape = attrs["shape"]
    rows = None if shape is None else (None, *shape[1:])
    rank = None if shape is None else len(shape)
    return [TensorSpec((None,), int64), TensorSpec(rows, attrs["dtype"]), TensorSpec((rank,), int64)]


ConditionalAccumulatorHandle = define_object_op(
    "ConditionalAccumulator",
    lambda call: _made("ConditionalAccumulator", GradientSum, call),
    "An accumulator of gradients, as a handle.",
    spec=_handle_spec,
    attrs={**SETTINGS, **KEY},
)
SparseConditionalAccumulatorHandle = define_object_op(
    "SparseConditionalAccumulator",
    lambda call: _made("SparseConditionalAccumulator", SlicesSum, call),
    "An accumulator of rows of gradients, as a handle.",
    spec=_handle_spec,
    attrs={**SETTINGS, **KEY},
)
AccumulatorApply = define_object_op(
    "AccumulatorApplyGradient",
    _apply,
    "Adds a gradient.",
    "handle",
    "gradient",
    "local_step",
    asynchronous=True,
)
SparseAccumulatorApply = define_object_op(
    "SparseAccumulatorApplyGradient",
    _apply,
    "Adds rows of a gradient.",
    *("handle", "indices", "values", "shape", "local_step"),
    asynchronous=True,
)
AccumulatorTake = define_object_op(
    "AccumulatorTakeGradient",
    _take,
    "Waits for gradients and takes their mean or sum.",
    *("handle", "num_required"),
    spec=lambda inputs, attrs: TensorSpec(attrs["shape"], attrs["dtype"]),
    attrs={"dtype": REQUIRED, "shape": None},
    asynchronous=True,
)
SparseAccumulatorTake = define_object_op(
    "SparseAccumulatorTakeGradient",
    _take,
    "Waits for gradients and takes the mean or sum of each row.",
    *("handle", "num_required"),
    spec=_slices_spec,
    attrs={"dtype": REQUIRED, "shape": None},
    asynchronous=True,
)
AccumulatorSetStep = define_object_op(
    "AccumulatorSetGlobalStep", _set_step, "Sets the step.", "handle", "step", asynchronous=True
)
AccumulatorCount = define_object_op(
    "AccumulatorNumAccumulated",
    _count,
    "The number of gradients.",
    "handle",
    spec=lambda inputs, attrs: TensorSpec((), int32),
    asynchronous=True,
)


# Classes ------------------------------------------------------------------------------------------------


class ConditionalAccumulatorBase:
    """An accumulator of gradients; `ConditionalAccumulator` and `SparseConditionalAccumulator` make one."""

    def __init__(self, accumulator_ref: Tensor, dtype: Any, shape: Dims | None):
        self._ref = accumulator_ref
        self._dtype = dtype
        self._shape = shape

    @property
    def accumulator_ref(self) -> Tensor:
        """The handle of the accumulator, an int64 scalar."""
        return self._ref

    @property
    def name(self) -> str:
        """The name of the operation that makes the accumulator."""
        return self._ref.op.name

    @property
    def dtype(self) -> Any:
        """Dtype of the gradients."""
        return self._dtype

    @checked
    def num_accumulated(self, name: Name = None) -> Tensor:
        """The number of gradients that wait to be taken, int32."""
        with self._ref.graph.as_default():
            result: Tensor = AccumulatorCount(self._ref, name=name)
        return result

    @checked
    def set_global_step(self, new_global_step: Any, name: Name = None) -> Operation:
        """An operation that sets the step: gradients of earlier ones are dropped from then on."""
        with self._ref.graph.as_default(), name_scope(name or "set_global_step"):
            result: Operation = AccumulatorSetStep(self._ref, _scalar("set_global_step", new_global_step))
        return result

    def _required(self, num_required: Any) -> Tensor:
        return _scalar("take_grad", num_required)

    def _settings(self) -> dict[str, Any]:
        return {"dtype": self._dtype, "shape": self._shape}


def _scalar(op: str, value: Any) -> Tensor:
    tensor = as_tensor(value)
    if tensor.dtype not in (int32, int64) or tensor.spec.shape not in ((), None):
        raise InvalidArgumentError(f"{op}: got {tensor.spec}, expected an integer scalar")
    return cast(tensor, int64)


class ConditionalAccumulator(ConditionalAccumulatorBase):
    """Sums dense gradients of one step, and gives their mean once there are enough; in the dynamic mode."""

    @checked
    def __init__(
        self,
        dtype: AsDType,
        shape: StaticShape = None,
        shared_name: SharedName = None,
        name: Text = "conditional_accumulator",
        reduction_type: ReductionType = "MEAN",
    ):
        """dtype, shape: of the gradients. reduction_type: "MEAN" or "SUM".

        shared_name: sessions of the process share the accumulator of that name and `tb.container`.
        """
        ref = ConditionalAccumulatorHandle(
            dtype=dtype, shape=shape, reduction_type=reduction_type, **shared_attrs(shared_name), name=name
        )
        super().__init__(ref, dtype, shape)

    @checked
    def apply_grad(self, grad: Any, local_step: Any = 0, name: Name = None) -> Operation:
        """An operation that adds a gradient; it is dropped if `local_step` is less than the step."""
        with self._ref.graph.as_default(), name_scope(name or "apply_grad"):
            gradient = as_tensor(grad, self._dtype)
            if not compatible(self._shape, gradient.spec.shape):
                raise InvalidArgumentError(
                    f"apply_grad: grad is {gradient.spec}, expected {render_dims(self._shape or ())}"
                )
            result: Operation = AccumulatorApply(self._ref, gradient, _scalar("apply_grad", local_step))
        return result

    @checked
    def take_grad(self, num_required: Any, name: Name = None) -> Tensor:
        """Waits for `num_required` gradients; their mean or sum. The accumulator is then empty."""
        with self._ref.graph.as_default(), name_scope(name or "take_grad"):
            result: Tensor = AccumulatorTake(self._ref, self._required(num_required), **self._settings())
        return result


class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """Sums gradients of rows, and gives the mean of each row over the gradients that had it."""

    @checked
    def __init__(
        self,
        dtype: AsDType,
        shape: StaticShape = None,
        shared_name: SharedName = None,
        name: Text = "sparse_conditional_accumulator",
        reduction_type: ReductionType = "MEAN",
    ):
        """Arguments: see `ConditionalAccumulator`; shape: of the dense gradient."""
        ref = SparseConditionalAccumulatorHandle(
            dtype=dtype, shape=shape, reduction_type=reduction_type, **shared_attrs(shared_name), name=name
        )
        super().__init__(ref, dtype, shape)

    @checked
    def apply_indexed_slices_grad(self, grad: Any, local_step: Any = 0, name: Name = None) -> Operation:
        """An operation that adds a gradient, an IndexedSlices; see `apply_grad`."""
        if not isinstance(grad, IndexedSlices):
            raise refuse("apply_indexed_slices_grad", "grad", "a tb.IndexedSlices", grad)
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step, name)

    @checked
    def apply_grad(
        self,
        grad_indices: Any,
        grad_values: Any,
        grad_shape: Any = None,
        local_step: Any = 0,
        name: Name = None,
    ) -> Operation:
        """An operation that adds rows: indices `[n]`, values `[n, ...]`, shape of the dense gradient.

        It is dropped if `local_step` is less than the step.
        """
        with self._ref.graph.as_default(), name_scope(name or "apply_grad"):
            indices, values = as_tensor(grad_indices), as_tensor(grad_values, self._dtype)
            if not indices.dtype.is_integer:
                raise InvalidArgumentError(f"apply_grad: grad_indices is {indices.spec}, expected integers")
            shape = as_tensor(np.zeros(0, np.int64) if grad_shape is None else grad_shape)
            result: Operation = SparseAccumulatorApply(
                self._ref, cast(indices, int64), values, shape, _scalar("apply_grad", local_step)
            )
        return result

    @checked
    def take_grad(self, num_required: Any, name: Name = None) -> tuple[Tensor, Tensor, Tensor]:
        """Waits for `num_required` gradients; indices, rows, and the shape of the dense gradient."""
        with self._ref.graph.as_default(), name_scope(name or "take_grad"):
            indices, values, shape = SparseAccumulatorTake(
                self._ref, self._required(num_required), **self._settings()
            )
        return indices, values, shape

    @checked
    def take_indexed_slices_grad(self, num_required: Any, name: Name = None) -> IndexedSlices:
        """The results of `take_grad` as an IndexedSlices."""
        indices, values, shape = self.take_grad(num_required, name)
        return IndexedSlices(values, indices, shape)
