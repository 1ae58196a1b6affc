"""Automatic differentiation by graph extension (TensorFlow white paper, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, convert_to_tensor, gradient_of, name_scope
from tensorbow.graph.build import as_tensor
from tensorbow.kinds import Name, checked, is_tensor, refuse
from tensorbow.ops.broadcasting import ones_like
from tensorbow.ops.elementwise import add
from tensorbow.ops.indexed_slices import IndexedSlices, add_slices
from tensorbow.ops.state import ReadVariable
from tensorbow.specs import compatible

Gradient: TypeAlias = Tensor | IndexedSlices


@checked
def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: Name = "gradients",
    *,
    stop_gradients: Any = None,
) -> list[Gradient | None]:
    """Adds the derivatives of the sum of `ys` with respect to each of `xs` to the graph.

    Each result has the shape and dtype of its x, or is None if no differentiable path leads from
    that x to any y. It is an `IndexedSlices` for a variable of which only rows are gathered. `grad_ys`
    weighs the ys (default: ones). `stop_gradients` are treated as constants: nothing flows through the
    ops that make them, though they may be xs themselves. Results can be differentiated again if the
    gradients consist of differentiable ops.

    Raises InvalidArgumentError for a y that is not floating, a grad_y that does not fit its y, and
    tensors of different graphs.
    """
    y_tensors = _tensors("ys", ys)
    x_tensors = _tensors("xs", xs)
    stopped = set(_tensors("stop_gradients", [] if stop_gradients is None else stop_gradients))
    if not y_tensors:
        raise InvalidArgumentError("gradients: ys is empty; give at least one tensor")
    for y in y_tensors:
        if not y.dtype.is_floating:
            raise InvalidArgumentError(
                f"gradients of {y.name}: dtype {y.dtype.name} is not differentiable; compute it in floating "
                f"point, by tb.cast before what it depends on (made at {y.op.source})"
            )
    graph = y_tensors[0].graph
    for tensor in (*y_tensors, *x_tensors, *stopped):
        if tensor.graph is not graph:
            raise InvalidArgumentError(
                f"gradients: {tensor.name} and {y_tensors[0].name} are of different graphs"
            )
    with graph.as_default(), name_scope(name, "gradients"):
        influenced = _influenced(x_tensors, stopped, y_tensors)
        flows: dict[Tensor, list[Gradient]] = {}
        for y, grad in zip(y_tensors, _initial(y_tensors, grad_ys), strict=True):
            flows.setdefault(y, []).append(grad)
        for op in sorted({t.op for t in influenced}, key=lambda o: -o.id):
            _propagate(op, influenced, stopped, flows)
        return [_sum(flows, x) for x in x_tensors]


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _tensors(argument: str, value: Any) -> list[Tensor]:
    tensors = []
    for item in list(value) if isinstance(value, (list, tuple)) else [value]:
        element = item._as_graph_element() if is_tensor(item) and not isinstance(item, Tensor) else item
        if not isinstance(element, Tensor):
            raise refuse("gradients", argument, "tensors or variables", item)
        tensors.append(element)
    return tensors


def _initial(ys: Sequence[Tensor], grad_ys: Any) -> Iterable[Tensor]:
    given = _listed(grad_ys) or [None] * len(ys)
    if len(given) != len(ys):
        raise InvalidArgumentError(f"gradients: grad_ys: {len(given)} for {len(ys)} ys; give one for each")
    for y, grad in zip(ys, given, strict=True):
        if grad is None:
            yield ones_like(y)
            continue
        tensor = convert_to_tensor(grad, y.dtype)
        if not compatible(tensor.spec.shape, y.spec.shape):
            raise InvalidArgumentError(
                f"gradients: grad_ys: {tensor.spec} does not fit {y.name}, which is {y.spec}"
            )
        yield tensor


def _influenced(xs: Sequence[Tensor], stopped: set[Tensor], ys: Sequence[Tensor]) -> set[Tensor]:
    """Tensors on a path from an x to a y. A stopped tensor depends on nothing."""
    needed: set[Operation] = set()
    pending = [y.op for y in ys]
    while pending:
        op = pending.pop()
        if op not in needed:
            needed.add(op)
            pending.extend(t.op for t in op.inputs)
    influenced = set(xs)
    for op in sorted(needed, key=lambda o: o.id):
        if any(t in influenced for t in op.inputs):
            influenced.update(t for t in op.outputs if t not in stopped)
    return influenced


def _propagate(
    op: Operation, influenced: set[Tensor], stopped: set[Tensor], flows: dict[Tensor, list[Gradient]]
) -> None:
    if not any(t in influenced for t in op.inputs):
        return
    outputs = [_sum(flows, t) if t in influenced and t not in stopped else None for t in op.outputs]
    if all(grad is None for grad in outputs):
        return
    with name_scope(f"{op.name}_grad"), op.graph.device(op.device):  # each op's gradient is where the op is
        if op.definition is ReadVariable:  # returns its input unchanged
            results: Sequence[Gradient | None] = outputs
        else:
            results = gradient_of(op, [None if g is None else as_tensor(g) for g in outputs])
    for tensor, grad in zip(op.inputs, results, strict=True):
        if grad is None or tensor not in influenced or not tensor.dtype.is_floating:
            continue
        if grad.dtype != tensor.dtype or not compatible(grad.spec.shape, tensor.spec.shape):
            raise InvalidArgumentError(
                f"gradient of {op.definition.name} ({op.name}): expected {tensor.spec} for input "
                f"{tensor.name}, got {grad.spec} (the op was made at {op.source})"
            )
        flows.setdefault(tensor, []).append(grad)


def _sum(flows: dict[Tensor, list[Gradient]], tensor: Tensor) -> Gradient | None:
    """Sum of all gradients of a tensor; stays sparse if all of them are."""
    terms = flows.get(tensor)
    if not terms:
        return None
    slices = [t for t in terms if isinstance(t, IndexedSlices)]
    if len(slices) == len(terms):
        total: Gradient = add_slices(slices)
    else:
        total = as_tensor(terms[0])
        for term in terms[1:]:
            total = add(total, term)
    flows[tensor] = [total]
    return total
