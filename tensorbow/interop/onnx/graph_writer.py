"""Writing of a graph's operations as ONNX nodes.

Images have their channels last here and second in ONNX: a value that a node leaves with its channels second
stays so, its `axes` say where this library's axes are, and only a node that needs another order is
preceded by a Transpose. Weights and constants are rearranged in the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError, NotFoundError, TensorBowError, UnimplementedError
from tensorbow.graph import Operation, Tensor
from tensorbow.interop.onnx.held_values import AxisOrder, known_in_order
from tensorbow.interop.onnx.model_file import import_onnx
from tensorbow.ops.constant import Const
from tensorbow.ops.control import Identity, Placeholder, StopGradient
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.shape_rules import EnsureShape
from tensorbow.ops.state import ReadVariable, VariableReference
from tensorbow.specs import Array, Dims

# Ops with the value of their input.
PASSED = (Identity.name, StopGradient.name, EnsureShape.name, "Copy", "CheckFinite")
SKIPPED = (Const.name, Placeholder.name, VariableReference.name, ReadVariable.name, *PASSED, "NoOp")
WriteRule: TypeAlias = "Callable[[GraphWriter, Operation], None]"
WRITERS: dict[str, WriteRule] = {}


def writes(*ops: str) -> Callable[[WriteRule], WriteRule]:
    """Registers a function that writes operations of these kinds."""

    def register(function: WriteRule) -> WriteRule:
        WRITERS.update(dict.fromkeys(ops, function))
        return function

    return register


class Written(NamedTuple):
    """A written value: its axis i is the tensor's axis axes[i] (None: the same order)."""

    name: str
    axes: AxisOrder | None = None


class GraphWriter:
    """Collects the nodes and stored arrays of a file.

    Args:
        values: of the variables, by their names.
        operations: in program order, all that the outputs need.
    """

    def __init__(self, values: Mapping[str, Array], operations: Sequence[Operation]):
        self.onnx = import_onnx()
        self.nodes: list[Any] = []
        self.arrays: dict[str, Array] = {}  # what the file stores, by name
        self.readers = Counter(tensor for op in operations for tensor in op.inputs)
        self._values, self._operations = values, operations
        self._known: dict[Tensor, Array] = {}
        self._labels: dict[Tensor, str] = {}  # of variables
        self._written: dict[Tensor, Written] = {}
        self._ordered: dict[tuple[Tensor, AxisOrder], str] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._taken: Counter[str] = Counter()

    def write(self, inputs: Mapping[Tensor, str]) -> None:
        """Writes all operations. Raises UnimplementedError that lists all that have no counterpart."""
        for tensor, name in inputs.items():
            self.unique(name)
            self._written[tensor] = Written(name)
        self._require_known()
        for op in self._operations:
            if all(tensor in inputs for tensor in op.outputs):
                continue
            try:
                self._write(op)
            except TensorBowError as error:
                raise type(error)(f"onnx.export: {op.definition.name} {op.name}: {error}") from None

    def _require_known(self) -> None:
        unknown = [op for op in self._operations if op.definition.name not in (*WRITERS, *SKIPPED)]
        if unknown:
            listed = "; ".join(f"{op.definition.name} ({op.name})" for op in unknown[:20])
            more = f" and {len(unknown) - 20} more" if len(unknown) > 20 else ""
            raise UnimplementedError(
                f"onnx.export: these operations have no ONNX counterpart here: {listed}{more}. Export the "
                f"graph of inference, built with training=False; supported: {', '.join(sorted(WRITERS))}"
            )

    def _write(self, op: Operation) -> None:
        name = op.definition.name
        if op.definition is Const:
            self._known[op.outputs[0]] = op.attrs["value"]
        elif op.definition is VariableReference:
            if op.name not in self._values:
                raise NotFoundError("there is no value of this variable; give values=session")
            self._known[op.outputs[0]] = np.asarray(self._values[op.name])
            self._labels[op.outputs[0]] = op.name
        elif op.definition is ReadVariable or name in PASSED:
            self._pass(op.inputs[0], op.outputs[0])
        elif op.definition is Placeholder:
            raise InvalidArgumentError("the outputs need this placeholder; name it among the inputs")
        elif name != "NoOp" and not self._fold(op):
            WRITERS[name](self, op)

    def _pass(self, source: Tensor, result: Tensor) -> None:
        if source in self._known:
            self._known[result] = self._known[source]
            if source in self._labels:
                self._labels[result] = self._labels[source]
        else:
            self._written[result] = self._written[source]

    def _fold(self, op: Operation) -> bool:
        """Evaluates an operation whose results depend on weights and constants only."""
        arrays = [self.known(tensor) for tensor in op.inputs]
        static = [tensor.spec.value for tensor in op.outputs]
        if all(value is not None for value in static):
            results = [np.asarray(value) for value in static]
        elif op.definition.random or op.definition.stateful or any(array is None for array in arrays):
            return False
        else:
            results = list(run_reference_kernel(op.definition, arrays, op.attrs))
        self._known.update(zip(op.outputs, results, strict=True))
        return True

    # What rules take and make ------------------------------------------------------------------------

    def known(self, tensor: Tensor) -> Array | None:
        """The value of a tensor that does not depend on the inputs."""
        found = self._known.get(tensor)
        return found if found is not None else tensor.spec.value

    def order(self, tensor: Tensor) -> AxisOrder:
        """The tensor's axes in the order in which it is written."""
        written = self._written.get(tensor)
        return written.axes if written and written.axes else tuple(range(len(tensor.spec.dims)))

    def name(self, tensor: Tensor, order: AxisOrder | None = None) -> str:
        """The written value with its axes in this order, by default the tensor's."""
        wanted = order or tuple(range(len(tensor.spec.dims)))
        if (tensor, wanted) in self._ordered:
            return self._ordered[tensor, wanted]
        known = self._known.get(tensor)
        if known is not None:
            array = np.transpose(known, wanted)
            label = self._labels.get(tensor)
            found = self.constant(array) if label is None else self.store(label, array)
        else:
            written, own = self._written[tensor], self.order(tensor)
            found = written.name
            if own != wanted:
                perm = [own.index(axis) for axis in wanted]
                found = self.node("Transpose", [found], perm=perm)
        self._ordered[tensor, wanted] = found
        return found

    def aligned(self, tensors: Sequence[Tensor]) -> tuple[list[str], AxisOrder | None]:
        """The written values in one order of axes, so that they broadcast as the tensors; and the order."""
        rank = max(len(tensor.spec.dims) for tensor in tensors)
        orders = [
            self.order(tensor)
            for tensor in tensors
            if tensor not in self._known and len(tensor.spec.dims) == rank
        ]
        order = next((o for o in orders if o != tuple(range(rank))), None)
        if order is None:
            return [self.name(tensor) for tensor in tensors], None
        return [self._padded(tensor, order) for tensor in tensors], order

    def _padded(self, tensor: Tensor, order: AxisOrder) -> str:
        """A value with leading axes of extent 1, as many as `order` has, and its axes in this order."""
        known, rank = self._known.get(tensor), len(tensor.spec.dims)
        if rank == len(order):
            return self.name(tensor, order)
        if known is not None:
            return self.constant(known_in_order(known, order))
        lead = self.constant(np.arange(len(order) - rank))
        return self.node("Transpose", [self.node("Unsqueeze", [self.name(tensor), lead])], perm=list(order))

    def name_result(self, tensor: Tensor, name: str, axes: AxisOrder | None = None) -> None:
        """Says under which name, and in which order of axes, a tensor was written."""
        order = axes if axes is None or axes != tuple(range(len(axes))) else None
        self._written[tensor] = Written(name, order)

    def node(self, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        """Adds a node with one result; returns its name."""
        return self.node_of_several(op, inputs, 1, **attrs)[0]

    def node_of_several(self, op: str, inputs: Sequence[str], count: int, **attrs: Any) -> list[str]:
        """Adds a node; returns the names of its results."""
        label = self.unique(op)
        outputs = [label, *(f"{label}:{i}" for i in range(1, count))]
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), outputs, name=label, **attrs))
        return outputs

    def constant(self, value: Any, dtype: Any = None) -> str:
        """The name of a stored constant; equal ones are stored once."""
        array = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
        key = array.dtype.name, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = self.store("constant", array)
        return self._constants[key]

    def store(self, label: str, array: Array) -> str:
        """Stores an array under this name, or one like it."""
        name = self.unique(label)
        self.arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
        return name

    def unique(self, wanted: str) -> str:
        """The name, with a number if it is taken."""
        self._taken[wanted] += 1
        return wanted if self._taken[wanted] == 1 else self.unique(f"{wanted}_{self._taken[wanted] - 1}")

    def vector(self, tensor: Tensor) -> str:
        """A vector of extents as int64."""
        known = self.known(tensor)
        if known is not None:
            return self.constant(known, np.int64)
        return self.node("Cast", [self.name(tensor)], to=self.onnx.TensorProto.INT64)

    def shape_vector(self, tensor: Tensor, dims: Dims | None) -> str:
        """The vector for a result of static shape `dims`, for which -1 stands for one unknown extent."""
        if dims is not None and sum(d is None for d in dims) <= 1:
            return self.constant([-1 if d is None else d for d in dims], np.int64)
        return self.vector(tensor)

    def written_axes(self, tensor: Tensor, axes: Sequence[int]) -> list[int]:
        """The positions of a tensor's axes in the written value."""
        order = self.order(tensor)
        return [order.index(axis % len(order)) for axis in axes]


def channels_second(rank: int) -> AxisOrder:
    """Order of axes with the channels, the tensor's last axis, second."""
    return (0, rank - 1, *range(1, rank - 1))
