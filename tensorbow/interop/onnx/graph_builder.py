"""Building of an ONNX graph from the ops of this library.

Nodes that compute shapes are evaluated while the graph is built. For an unknown batch they are evaluated for
three batches in graphs that are thrown away: an extent is then a constant, or per_example * batch + rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tensorbow.errors import TensorBowError, UnimplementedError
from tensorbow.graph import Graph, Tensor
from tensorbow.interop.onnx.held_values import (
    AxisOrder,
    BatchExtent,
    Held,
    known_in_order,
    padded_order,
    transposed,
)
from tensorbow.interop.onnx.model_file import ModelFile, OnnxNode, Weight, import_onnx
from tensorbow.ops.arrays import reshape, stack
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.constant import constant
from tensorbow.ops.control import placeholder
from tensorbow.ops.elementwise import add, multiply
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import Array, as_dtype, int64

PROBED = (3, 5, 7)  # batches
RANDOM = ("Dropout",)
MADE_AT = re.compile(r" \(made at .*\)$")  # an op's line; a node of a file has none
Rule: TypeAlias = "Callable[..., Held | Sequence[Held]]"  # (builder, node, *inputs)
RULES: dict[str, Rule] = {}


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Registers a function that builds nodes of these ops."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register


@dataclass(frozen=True)
class Fact:
    """Facts about a value that hold for any batch: its value if it depends on shapes only, and its shape.

    extents: for each axis, None where it is not linear in the batch. whole: dtype of known numbers.
    """

    known: Array | None
    extents: tuple[BatchExtent | None, ...]
    whole: np.dtype[Any] | None = None

    @property
    def dims(self) -> tuple[int | None, ...]:
        """Extents of the axes, None for those that depend on the batch."""
        return tuple(None if extent is None or extent.per_example else extent.rest for extent in self.extents)


class GraphBuilder:
    """Builds the nodes of a file in the default graph.

    Args:
        file: the model.
        weight: makes the tensor of a weight's variable.
        training: whether batch normalisation and dropout work as in training.
        facts: of values, if the batch is unknown.
    """

    def __init__(
        self,
        file: ModelFile,
        weight: Callable[[Weight], Tensor],
        training: bool,
        facts: Mapping[str, Fact] | None = None,
    ):
        self.file, self.training = file, training
        self.values: dict[str, Held] = {name: Held(array) for name, array in file.constants.items()}
        self.statistics: list[tuple[Weight, Tensor, float]] = []  # of the batch, with the moving share
        self._weight, self._facts = weight, facts or {}
        self._batch: Tensor | None = None

    def build(self, inputs: Mapping[str, Held]) -> list[Held]:
        """Builds all nodes; returns the outputs. Raises InvalidArgumentError, UnimplementedError."""
        self.values.update(inputs)
        first = next(iter(inputs.values())).tensor
        if first.spec.dims:
            self._batch = strided_slice(shape(first, out_type=int64), 0)
        for node in self.file.nodes:
            try:
                made = self._made(node)
            except TensorBowError as error:
                text = MADE_AT.sub("", str(error))
                raise type(error)(f"ONNX model {self.file.path.name}, {node}: {text}") from None
            for name, held in zip(node.outputs, made, strict=False):
                self.values[name] = held
                self._narrow(name, held)
        return [self.value(name) for name in self.file.outputs]

    def value(self, name: str) -> Held:
        """The value of that name; a weight becomes a variable when it is first used."""
        if name not in self.values:
            weight = self.file.weights[name]
            self.values[name] = Held(None, self._weight(weight), weight.axes)
        return self.values[name]

    def _made(self, node: OnnxNode) -> Sequence[Held]:
        facts = [self._facts.get(name) for name in node.outputs]
        if facts and all(fact is not None and fact.known is not None for fact in facts):
            return [Held(fact.known, whole=fact.whole) for fact in facts if fact is not None]
        inputs = [self.value(name) if name else None for name in node.inputs]
        known = [held.known for held in inputs if held is not None and held.known is not None]
        complete = len(known) == sum(held is not None for held in inputs)
        if complete and node.op not in RANDOM and all(array.dtype != object for array in known):
            return [Held(array) for array in _evaluated(node, inputs, self.file.opset)]
        made = RULES[node.op](self, node, *inputs)
        return [made] if isinstance(made, Held) else made

    def _narrow(self, name: str, held: Held) -> None:
        """Gives a tensor the static shape found by probing."""
        fact = self._facts.get(name)
        if fact is not None and held.known is None:
            held.tensor.set_shape([fact.dims[axis] for axis in held.order])

    def fact(self, node: OnnxNode) -> Fact | None:
        """Facts about the node's first output, for an unknown batch."""
        return self._facts.get(node.outputs[0])

    def extent(self, name: str, axis: int) -> BatchExtent | None:
        """Extent of an axis of a value, None if it is not linear in the unknown batch."""
        fact = self._facts.get(name)
        return None if fact is None else fact.extents[axis]

    # What rules take from their inputs ------------------------------------------------------------

    def tensor(self, held: Held, order: AxisOrder | None = None) -> Tensor:
        """A value as a tensor with its axes in `order`, by default ONNX's.

        With an `order` of more axes, the value has leading axes of extent 1.
        """
        wanted = tuple(range(held.rank)) if order is None else order
        if held.known is not None:
            if held.known.dtype == object:
                return self._vector(held.known, held.whole)
            return constant(known_in_order(held.known, wanted) if order is not None else held.known)
        if len(wanted) == held.rank:
            return held.in_order(wanted)
        tensor = held.in_order(tuple(range(held.rank)))
        dims = [-1 if d is None else d for d in tensor.spec.dims]
        lead = padded_order(held.rank, wanted)
        return transposed(reshape(tensor, [*lead, *dims]), wanted)

    def _vector(self, known: Array, dtype: np.dtype[Any] | None) -> Tensor:
        """A vector or scalar of whole numbers that depend on the batch; int64 for no dtype."""
        numbers = [self.scalar(item) for item in known.reshape(-1)]
        result = numbers[0] if known.ndim == 0 else reshape(stack(numbers), list(known.shape))
        return result if dtype is None else cast(result, as_dtype(dtype))

    def scalar(self, item: Any) -> Tensor:
        """A number, or one that depends on the batch, as an int64 scalar."""
        if not isinstance(item, BatchExtent):
            return constant(np.int64(item))
        assert self._batch is not None
        return add(multiply(self._batch, np.int64(item.per_example)), np.int64(item.rest))

    def extents(self, held: Held, what: str) -> list[Any]:
        """A known vector of extents, as numbers and scalar tensors. Raises UnimplementedError."""
        return [
            self.scalar(item) if isinstance(item, BatchExtent) else int(item) for item in _known(held, what)
        ]

    def numbers(self, held: Held | None, what: str) -> list[int]:
        """A known vector (or number) of whole numbers. Raises UnimplementedError for one that is computed."""
        items = _known(held, what)
        if any(isinstance(item, BatchExtent) for item in items):
            raise UnimplementedError(
                f"{what} depends on the batch, expected constants; give a batch of known size"
            )
        return [int(item) for item in items]

    def number(self, held: Held | None, what: str, default: Any = None) -> Any:
        """A known scalar, as Python's number; `default` for an input that is left out."""
        if held is None:
            return default
        if held.known is None or held.known.dtype == object or held.known.size != 1:
            raise UnimplementedError(f"{what} is computed, expected a constant number; export it as one")
        return held.known.reshape(()).item()


def _known(held: Held | None, what: str) -> list[Any]:
    if held is None or held.known is None:
        raise UnimplementedError(
            f"{what} depends on data, expected constants, or what follows from the shapes of the inputs"
        )
    return list(held.known.reshape(-1))


def _evaluated(node: OnnxNode, inputs: Sequence[Held | None], opset: int) -> list[Array]:
    """Evaluates a node of known inputs."""
    if node.op == "Constant":
        return [_constant(node)]
    onnx = import_onnx()
    from onnx.reference import ReferenceEvaluator

    known = {name: held.known for name, held in zip(node.inputs, inputs, strict=True) if held is not None}
    helper = onnx.helper
    signature = [helper.make_empty_tensor_value_info(name) for name in known]
    results = [helper.make_empty_tensor_value_info(name) for name in node.outputs]
    graph = helper.make_graph([node.proto], "node", signature, results)
    found = ReferenceEvaluator(graph, opsets={"": opset}).run(None, known)
    return [np.asarray(array) for array in found]


def _constant(node: OnnxNode) -> Array:
    (kind, value), *_ = node.attrs.items()
    if kind == "value":
        return np.asarray(value)
    dtypes = {
        "value_int": np.int64,
        "value_ints": np.int64,
        "value_float": np.float32,
        "value_floats": np.float32,
    }
    if kind not in dtypes:
        raise UnimplementedError(f"attribute {kind} is not supported, expected a tensor")
    return np.asarray(value, dtypes[kind])


# Probing --------------------------------------------------------------------------------------------


def probe(file: ModelFile, inputs: Mapping[str, Held], training: bool) -> dict[str, Fact]:
    """Facts about each value that hold for any batch, from graphs for three batches.

    inputs: tensors, whose only unknown extents are that of axis 0, the batch.
    """
    found: list[dict[str, Held]] = []
    for batch in PROBED:
        with Graph().as_default():
            builder = GraphBuilder(file, _stand_in, training)
            builder.build({name: _probed(held, batch) for name, held in inputs.items()})
            found.append(builder.values)
    return {
        name: _fact([values[name] for values in found]) for name in found[0] if name not in file.constants
    }


def _stand_in(weight: Weight) -> Tensor:
    dims = weight.value.shape
    order = weight.axes or tuple(range(len(dims)))
    return placeholder(as_dtype(weight.value.dtype), [dims[axis] for axis in order])


def _probed(held: Held, batch: int) -> Held:
    spec = held.tensor.spec
    dims = [batch if d is None else d for d in spec.dims]
    return Held(None, placeholder(spec.dtype, dims), held.axes)


def _fact(held: Sequence[Held]) -> Fact:
    shapes = [item.dims for item in held]
    ranks = {len(dims) for dims in shapes}
    if len(ranks) != 1:
        raise UnimplementedError("the number of axes depends on the batch; give a batch of known size")
    extents = tuple(
        None if None in found else line_of([d for d in found if d is not None])
        for found in zip(*shapes, strict=True)
    )
    known = [item.known for item in held]
    if any(array is None for array in known):
        return Fact(None, extents)
    arrays = [array for array in known if array is not None]
    return Fact(_fitted(arrays), extents, arrays[0].dtype)


def _fitted(arrays: Sequence[Array]) -> Array | None:
    """A value for any batch from those for the probed batches; None if it is not linear in it."""
    first = arrays[0]
    if any(array.shape != first.shape for array in arrays):
        return None
    if all(np.array_equal(array, first, equal_nan=first.dtype.kind == "f") for array in arrays):
        return first
    if first.dtype.kind not in "iu" or first.ndim > 1:
        return None
    result = np.empty(first.shape, object)
    for index in np.ndindex(first.shape):
        line = line_of([int(array[index]) for array in arrays])
        if line is None:
            return None
        result[index] = line if line.per_example else line.rest
    return result


def line_of(numbers: Sequence[int]) -> BatchExtent | None:
    """The number for any batch from those for the probed batches; None if it is not linear in it."""
    slope, left = divmod(numbers[1] - numbers[0], PROBED[1] - PROBED[0])
    rest = numbers[0] - slope * PROBED[0]
    return None if left or slope * PROBED[2] + rest != numbers[2] else BatchExtent(slope, rest)
