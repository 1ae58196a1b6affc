"""Summary of a model: its layers with output shapes, parameters and floating-point operations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from tensorbow.compiler.placement import flops_of
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor
from tensorbow.kinds import checked, instance, optional, sequence, whole

MOST_LAYERS = 32  # rows of a summary by default; with more, layers are joined by the first parts of names
FREE = {"Const", "Placeholder", "Variable", "ReadVariable", "Shape", "Cast"}  # beside views: no arithmetic

READS = {"ReadVariable", "Enter", "Identity", "Cast"}  # between a variable and what computes with it

AsTensors: TypeAlias = Annotated[
    Sequence[Tensor], sequence(instance(Tensor, expected="a tensor"), "a list of tensors")
]
Depth: TypeAlias = Annotated[int | None, optional(whole(1))]


@dataclass(frozen=True)
class LayerSummary:
    """A layer, or several that are joined.

    name: scope of its variables, "" for operations of none. outputs: shape of its last output, None for an
    extent that is not known. parameters: numbers in its variables. trainable: those among them that training
    changes. flops: floating-point operations of the forward pass for the whole batch, a multiplication and
    an addition as two; about, since each element of other operations counts as one, and a loop that is not
    unrolled as one of its steps.
    """

    name: str
    outputs: tuple[int | None, ...] | None
    parameters: int
    trainable: int
    flops: float


@dataclass(frozen=True)
class ModelSummary:
    """Layers of a model in the order of the graph, and sums over them."""

    layers: Sequence[LayerSummary]

    @property
    def parameters(self) -> int:
        """Numbers in all variables."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def trainable(self) -> int:
        """Numbers that training changes."""
        return sum(layer.trainable for layer in self.layers)

    @property
    def flops(self) -> float:
        """Floating-point operations of the forward pass, for the whole batch."""
        return sum(layer.flops for layer in self.layers)

    def __str__(self) -> str:
        rows = [
            (layer.name or "(others)", _shape(layer.outputs), f"{layer.parameters:,}", count(layer.flops))
            for layer in self.layers
        ]
        table = [("layer", "outputs", "parameters", "flop"), *rows]
        table.append(("all", "", f"{self.parameters:,}", count(self.flops)))
        names, shapes, numbers, flops = (max(map(len, column)) for column in zip(*table, strict=True))
        return "\n".join(
            f"{name:<{names}}  {shape:<{shapes}}  {number:>{numbers}}  {flop:>{flops}}"
            for name, shape, number, flop in table
        )


@checked
def summarize(outputs: AsTensors, depth: Depth = None) -> ModelSummary:
    """Summarises what computes some tensors, such as a model's logits: the operations and variables before.

    depth: parts of a layer's name, such as 1 for block1 of block1/conv2; by default as many as give at most
    32 layers. Operations are counted for a batch of 1 where the placeholders leave it open; give placeholders
    of a known batch to a model that reshapes it together with other axes, as transformers do.
    Raises InvalidArgumentError for no tensors.
    """
    if not outputs:
        raise InvalidArgumentError("outputs: expected at least one tensor, got none")
    operations = _ancestors(tensor.op for tensor in outputs)
    scopes = {op.name.rpartition("/")[0] for op in operations if op.type == "Variable"}
    deepest = max((scope.count("/") + 1 for scope in scopes), default=1)
    while depth is None:
        names = {_joined(scope, deepest) for scope in scopes}
        if len(names) <= MOST_LAYERS or deepest == 1:
            depth = deepest
        deepest -= 1
    found: dict[str, list[Operation]] = {}
    for op, scope in _scopes_of(operations, scopes):
        found.setdefault(_joined(scope, depth), []).append(op)
    others = found.pop("", [])
    layers = [_layer(name, own) for name, own in found.items()]
    if any(_flops(op) for op in others) or any(op.type == "Variable" for op in others):
        layers.append(_layer("", others))
    return ModelSummary(layers)


def count(number: float) -> str:
    """A number of operations as text, such as 4.58 M."""
    for factor, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= factor:
            return f"{number / factor:.3g}{unit}"
    return f"{number:.0f}"


def _ancestors(ends: Iterable[Operation]) -> list[Operation]:
    """Operations that some depend on, with them, in the order in which they were made."""
    found: set[Operation] = set()
    left = [*ends]
    (graph,) = {op.graph for op in left}
    while left:
        op = left.pop()
        if op not in found:
            found.add(op)
            left += [tensor.op for tensor in op.inputs] + [*op.control_inputs]
    return [op for op in graph.get_operations() if op in found]


def _scopes_of(operations: Sequence[Operation], scopes: set[str]) -> Iterator[tuple[Operation, str]]:
    """Operations with the scope of the layer that each belongs to, "" for none.

    What is in no variables' scope, as the steps of a recurrent cell, belongs to that of the variable that it
    reads, else to the scope of the operation before, or the first one after, in the same name scope.
    """
    of_names: dict[str, str] = {}  # by name scope, the scope of the variables last read there
    waiting: dict[str, list[Operation]] = {}
    for op in operations:
        if scope := _scope_of(op, scopes):
            yield op, scope
            continue
        name = op.name.rpartition("/")[0]
        if read := _scope_read(op):
            yield from ((earlier, read) for earlier in waiting.pop(name, ()))
            yield op, read
            if name:
                of_names[name] = read
        elif name in of_names and op.type != "ConcatV2":  # which joins inputs and state for the next product
            yield op, of_names[name]
        elif name:
            waiting.setdefault(name, []).append(op)
        else:
            yield op, ""
    yield from ((op, "") for left in waiting.values() for op in left)


def _scope_read(op: Operation) -> str:
    """The scope of the first variable that an operation reads, also into a loop; "" for none."""
    for tensor in op.inputs:
        source = tensor.op
        while source.type in READS and source.inputs:
            source = source.inputs[0].op
        if source.type == "Variable" and op.type not in READS:
            return source.name.rpartition("/")[0]
    return ""


def _scope_of(op: Operation, scopes: set[str]) -> str:
    """The longest of the scopes that an operation is in."""
    name = op.name
    while name := name.rpartition("/")[0]:
        if name in scopes:
            return name
    return ""


def _joined(scope: str, depth: int) -> str:
    return "/".join(scope.split("/")[:depth])


def _layer(name: str, operations: Sequence[Operation]) -> LayerSummary:
    variables = [op for op in operations if op.type == "Variable"]
    computed = [op for op in operations if op.type not in FREE and op.outputs]
    shape = computed[-1].outputs[0].spec.shape if computed and name else None
    trainable = sum(_elements(op.outputs[0]) for op in variables if op.attrs["role"] == "weights")
    return LayerSummary(
        name,
        shape,
        sum(_elements(op.outputs[0]) for op in variables),
        trainable,
        sum(map(_flops, operations)),
    )


def _known(tensor: Tensor) -> tuple[int, ...]:
    """The shape of a tensor; unknown extents, as of the batch, count as 1."""
    return tuple(extent or 1 for extent in tensor.spec.shape or ())


def _elements(tensor: Tensor) -> int:
    return math.prod(_known(tensor))


def _flops(op: Operation) -> float:
    if op.type in FREE or op.definition.is_view or not op.outputs:
        return 0
    shapes = [[_known(tensor) for tensor in tensors] for tensors in (op.inputs, op.outputs)]
    return flops_of(op.type, op.attrs, *shapes)


def _shape(extents: tuple[int | None, ...] | None) -> str:
    return "" if extents is None else "x".join("?" if extent is None else str(extent) for extent in extents)
