"""Automatic differentiation by graph extension (TensorFlow white paper, section 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeAlias

from tensorbow.control_flow.conditional import build_cond
from tensorbow.control_flow.contexts import BuiltContext, Conditional, LoopContext
from tensorbow.control_flow.loops import build_loop
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    ControlFlowContext,
    GradientBlock,
    Graph,
    Operation,
    Tensor,
    convert_to_tensor,
    entered_from,
    gradient_of,
    is_free,
    name_scope,
)
from tensorbow.graph.build import as_tensor
from tensorbow.kinds import Flag, Name, checked, is_tensor, one_of, refuse
from tensorbow.ops.arrays import reshape, stack
from tensorbow.ops.broadcasting import ones_like, zeros_like
from tensorbow.ops.control import identity
from tensorbow.ops.control_flow import StackPop, StackPush
from tensorbow.ops.elementwise import add, greater_equal, subtract
from tensorbow.ops.filling import zeros
from tensorbow.ops.indexed_slices import IndexedSlices, add_slices
from tensorbow.ops.shaping import unstack
from tensorbow.ops.state import ReadVariable, VariableReference
from tensorbow.specs import compatible

Gradient: TypeAlias = Tensor | IndexedSlices


class UnconnectedGradients:
    """Values of `unconnected_gradients`: the gradient by a tensor on which `ys` does not depend."""

    NONE = "none"
    """None."""
    ZERO = "zero"
    """Zeros of its shape."""


Unconnected: TypeAlias = Annotated[str, one_of("none", "zero")]
Flows: TypeAlias = "dict[Tensor, list[Gradient]]"


@checked
def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: Name = "gradients",
    colocate_gradients_with_ops: Flag = True,
    gate_gradients: Any = None,
    aggregation_method: Any = None,
    stop_gradients: Any = None,
    unconnected_gradients: Unconnected = "none",
) -> list[Gradient | None]:
    """Adds the derivatives of the sum of `ys` with respect to each of `xs` to the graph.

    Each result has the shape and dtype of its x, or is None if no differentiable path leads from
    that x to any y. It is an `IndexedSlices` for a variable of which only rows are gathered. `grad_ys`
    weighs the ys (default: ones). `stop_gradients` are treated as constants: nothing flows through the
    ops that make them, though they may be xs themselves. Results can be differentiated again if the
    gradients consist of differentiable ops. With respect to a complex x they are those of TensorFlow, the
    derivative by the real part + i times the derivative by the imaginary part; a complex y needs its grad_y.
    The gradient of an op is computed on the op's device. unconnected_gradients: "zero" gives zeros in place
    of None.

    colocate_gradients_with_ops, gate_gradients, aggregation_method: TensorFlow's; have no effect.

    Raises InvalidArgumentError for a y that is neither floating nor complex, a grad_y that does not fit,
    and tensors of different graphs.
    """
    y_tensors = _tensors("ys", ys)
    x_tensors = _tensors("xs", xs)
    stopped = set(_tensors("stop_gradients", [] if stop_gradients is None else stop_gradients))
    if not y_tensors:
        raise InvalidArgumentError("gradients: ys is empty; give at least one tensor")
    for y in y_tensors:
        if not y.dtype.is_differentiable:
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
    with graph.as_default(), name_scope(name, "gradients") as scope, graph.differentiating(scope):
        needed, influenced = _influenced(x_tensors, stopped, y_tensors)
        flows: Flows = {}
        for y, grad in zip(y_tensors, _initial(y_tensors, grad_ys), strict=True):
            flows.setdefault(y, []).append(grad)
        sweep = _Sweep(graph, influenced, stopped, needed)
        sweep.run(graph.context, flows)
        if graph.context is not None:
            _leave_context(flows)
        found = [_sum(flows, x) for x in x_tensors]
        if unconnected_gradients == "none":
            return found
        return [zeros_like(x) if g is None else g for x, g in zip(x_tensors, found, strict=True)]


@checked
def hessians(ys: Any, xs: Any, name: Name = "hessians") -> list[Tensor]:
    """The second derivatives of the sum of `ys` with respect to each of `xs`: `[*x, *x]` for an x of shape x.

    The graph gets a gradient for each element of an x: for small ones. An x that the first derivatives do not
    depend on has zeros. Raises what `gradients` raises, and InvalidArgumentError for an x of unknown shape.
    """
    tensors = _tensors("xs", xs)
    for x in tensors:
        if not x.spec.is_static:
            raise InvalidArgumentError(
                f"hessians: x {x.name} is {x.spec}, expected a known shape, since each element has a "
                f"gradient of its own; use set_shape (made at {x.op.source})"
            )
    if not tensors:
        return []
    with tensors[0].graph.as_default(), name_scope(name, "hessians"):
        firsts = gradients(ys, tensors)
        return [_hessian(first, x) for first, x in zip(firsts, tensors, strict=True)]


def _hessian(first: Gradient | None, x: Tensor) -> Tensor:
    rows = []
    parts = [] if first is None else unstack(reshape(as_tensor(first), [x.spec.size]))
    for part in parts:
        (row,) = gradients(part, x)
        rows.append(zeros_like(x) if row is None else as_tensor(row))
    extents = [*x.spec.extents, *x.spec.extents]
    return reshape(stack(rows), extents) if rows else zeros(extents, x.dtype)


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _tensors(argument: str, value: Any) -> list[Tensor]:
    tensors = []
    for item in list(value) if isinstance(value, (list, tuple)) else [value]:
        element = item
        if isinstance(item, IndexedSlices):
            element = as_tensor(item)
        elif is_tensor(item) and not isinstance(item, Tensor):
            element = item._as_graph_element()
        if not isinstance(element, Tensor):
            raise refuse("gradients", argument, "tensors or variables", item)
        tensors.append(element)
    return tensors


def _initial(ys: Sequence[Tensor], grad_ys: Any) -> Iterable[Tensor]:
    given = _as_list(grad_ys) or [None] * len(ys)
    if len(given) != len(ys):
        raise InvalidArgumentError(f"gradients: grad_ys: {len(given)} for {len(ys)} ys; give one for each")
    for y, grad in zip(ys, given, strict=True):
        if grad is None:
            if y.dtype.is_complex:
                raise InvalidArgumentError(
                    f"gradients of {y.name}: dtype {y.dtype.name} needs grad_ys, as one real number has "
                    "to be differentiated; give it, or take tb.real, tb.imag or tb.abs of y"
                )
            yield ones_like(y)
            continue
        tensor = convert_to_tensor(grad, y.dtype)
        if not compatible(tensor.spec.shape, y.spec.shape):
            raise InvalidArgumentError(
                f"gradients: grad_ys: {tensor.spec} does not fit {y.name}, which is {y.spec}"
            )
        yield tensor


def _influenced(
    xs: Sequence[Tensor], stopped: set[Tensor], ys: Sequence[Tensor]
) -> tuple[list[Operation], set[Tensor]]:
    """The operations that the ys need, and the tensors on a path from an x to a y.

    A stopped tensor depends on nothing.
    """
    needed: set[Operation] = set()
    pending = [y.op for y in ys]
    while pending:
        op = pending.pop()
        if op not in needed:
            needed.add(op)
            pending.extend(t.op for t in (*op.inputs, *_popped(op)))
    influenced = set(xs)
    ordered = sorted(needed, key=lambda o: o.id)
    count = -1
    while len(influenced) > count:  # again if a loop has brought more, from its end to its begin
        count = len(influenced)
        for op in ordered:
            if any(t in influenced for t in (*op.inputs, *_popped(op))):
                influenced.update(t for t in op.outputs if t not in stopped)
        if not any(op.definition.flow == "next_iteration" for op in ordered):
            break
    return ordered, influenced


def _popped(op: Operation) -> Sequence[Tensor]:
    """The value of a forward loop that a StackPop takes back."""
    if op.definition is not StackPop:
        return ()
    return op.graph.get_operation_by_name(op.attrs["push"]).inputs[:1]


class _Sweep:
    """Goes back through operations, and through conds and loops as wholes, and adds their gradients."""

    def __init__(
        self, graph: Graph, influenced: set[Tensor], stopped: set[Tensor], needed: Sequence[Operation]
    ):
        self._graph = graph
        self._influenced = influenced
        self._stopped = stopped
        self._needed = needed
        self._kept: dict[Tensor, list[Operation]] = {}  # pushes of gradients of values kept in loops

    def _take_back(self, op: Operation, flows: Flows) -> None:
        """The gradient of a value that a loop has kept: kept in turn, for the way back through that loop."""
        grad = _sum(flows, op.outputs[0])
        if grad is None or not grad.dtype.is_differentiable:
            return
        value = op.graph.get_operation_by_name(op.attrs["push"]).inputs[0]
        indices = op.inputs[1:] if op.attrs["or_zeros"] else op.inputs
        with name_scope(f"{op.name}_grad"):
            self._kept.setdefault(value, []).append(StackPush(as_tensor(grad), *indices))

    def _has_kept(self, context: BuiltContext) -> bool:
        """True if gradients were kept of values in a context."""
        return any(t.op.context is not None and context in t.op.context.chain() for t in self._kept)

    def run(self, context: ControlFlowContext | None, flows: Flows) -> None:
        """Propagates flows through all that is in a context. New ops are added to the graph's current one."""
        current = self._graph.context
        if isinstance(current, BuiltContext):
            for tensor, pushes in self._kept.items():
                if tensor.op.context is context and context is not None:
                    flows.setdefault(tensor, []).extend(
                        current.take_gradient(tensor, push) for push in pushes
                    )
        steps: dict[object, int] = {}
        for op in self._needed:
            if op.context is context:
                if op.definition.flow == "" and any(t in self._influenced for t in op.outputs):
                    steps[op] = op.id
                continue
            inner = _directly_in(context, op.context)
            if inner is not None:
                steps[inner.whole] = max(steps.get(inner.whole, 0), inner.last)
        for step in sorted(steps, key=lambda step: -steps[step]):
            if isinstance(step, Operation) and step.definition is StackPop:
                self._take_back(step, flows)
            elif isinstance(step, Operation):
                _propagate(step, self._influenced, self._stopped, flows)
            elif isinstance(step, Conditional):
                self._through_cond(step, flows)
            elif isinstance(step, LoopContext):
                self._through_loop(step, flows)

    def _inputs_of(self, context: BuiltContext) -> list[tuple[Tensor, Tensor]]:
        """Floating tensors that flow into a context from outside, each with the tensor inside."""
        found: dict[Tensor, Tensor] = {}
        for inside in context.entered.values():
            if inside in self._influenced and inside.dtype.is_differentiable:
                found[inside] = inside.op.inputs[0]
        for op in self._needed:
            if op.context is context or (op.context is not None and context in op.context.chain()):
                for tensor in op.inputs:
                    if is_free(tensor.op) and tensor in self._influenced and tensor.dtype.is_differentiable:
                        found[tensor] = tensor
        return [(outside, inside) for inside, outside in found.items()]

    def _through_cond(self, conditional: Conditional, flows: Flows) -> None:
        seeds = [
            (number, _sum(flows, merged))
            for number, merged in enumerate(conditional.merged)
            if flows.get(merged) and merged not in self._stopped
        ]
        entered = [self._inputs_of(branch) for branch in conditional.branches]
        sources = list(dict.fromkeys(outside for pairs in entered for outside, _ in pairs))
        inside = any(
            t.op.context is not None and conditional.branches[b] in t.op.context.chain()
            for t in flows
            for b in (0, 1)
        )
        if not seeds and not inside and not any(map(self._has_kept, conditional.branches)):
            return

        def gradient_in(number: int) -> Callable[[], list[Tensor]]:
            def build() -> list[Tensor]:
                branch = conditional.branches[number]
                for index, grad in seeds:
                    result = conditional.results[number][index]
                    flows.setdefault(result, []).append(identity(as_tensor(grad)))
                local = {t: f for t, f in flows.items() if not is_free(t.op)}
                self.run(branch, local)
                flows.update({t: f for t, f in local.items() if t not in sources})
                pairs = dict(entered[number])
                grads = [_sum(local, pairs[x]) if x in pairs else None for x in sources]
                return [
                    zeros_like(x) if grad is None else as_tensor(grad)
                    for x, grad in zip(sources, grads, strict=True)
                ]

            return build

        with name_scope("cond_grad"):
            whole = build_cond(
                conditional.branches[0].pred, (gradient_in(0), gradient_in(1)), conditional.branches
            )[1]
        for source, grad in zip(sources, whole.merged, strict=True):
            flows.setdefault(source, []).append(_of_shape(grad, source))

    def _through_loop(self, loop: LoopContext, flows: Flows) -> None:
        numbers = [
            number
            for number, (merged, left) in enumerate(zip(loop.merges, loop.exits, strict=True))
            if merged in self._influenced and merged.dtype.is_differentiable and left not in self._stopped
        ]
        if not any(flows.get(loop.exits[number]) for number in numbers) and not self._has_kept(loop):
            return
        constants = self._inputs_of(loop)
        starts = []
        for number in numbers:
            grad = _sum(flows, loop.exits[number])
            starts.append(zeros_like(loop.exits[number]) if grad is None else as_tensor(grad))
        totals = [zeros_like(outside) for outside, _ in constants]
        shapes = [loop.merges[number].spec.shape for number in numbers]

        def body(values: Sequence[Tensor]) -> list[Tensor]:
            remaining, grads, sums = values[0], values[1 : 1 + len(numbers)], values[1 + len(numbers) :]
            context = self._graph.context
            if isinstance(context, LoopContext):
                context.remaining = remaining
            local: Flows = {}
            for number, grad in zip(numbers, grads, strict=True):
                local.setdefault(loop.results[number], []).append(grad)
            self.run(loop, local)
            following = []
            for number in numbers:
                found = _sum(local, loop.variables[number].op.inputs[0])
                grad = zeros_like(loop.variables[number]) if found is None else as_tensor(found)
                following.append(_of_shape(grad, loop.merges[number]))
            added = []
            for total, (outside, inside) in zip(sums, constants, strict=True):
                found = _sum(local, inside)
                added.append(total if found is None else _of_shape(add(total, as_tensor(found)), outside))
            return [subtract(remaining, 1), *following, *added]

        with name_scope("while_grad"):
            backward = build_loop(
                lambda values: greater_equal(values[0], 0),
                body,
                [subtract(loop.count, 1), *starts, *totals],
                [(), *shapes, *[outside.spec.shape for outside, _ in constants]],
                loop.parallel_iterations,
                forward=loop,
            )
        results = backward.exits[1:]
        for number, grad in zip(numbers, results[: len(numbers)], strict=True):
            flows.setdefault(loop.merges[number].op.inputs[0].op.inputs[0], []).append(grad)
        for (outside, _), grad in zip(constants, results[len(numbers) :], strict=True):
            flows.setdefault(outside, []).append(grad)


def _of_shape(grad: Tensor, tensor: Tensor) -> Tensor:
    """The gradient of a tensor with at least the static shape of the tensor, which it has in any case."""
    shape = tensor.spec.shape
    if grad.spec.shape != shape and shape is not None and compatible(grad.spec.shape, shape):
        grad = identity(grad)
        grad.set_shape(shape)
    return grad


def _directly_in(context: ControlFlowContext | None, inner: ControlFlowContext | None) -> BuiltContext | None:
    """The context right inside `context` that is `inner` or around it; None if there is none."""
    for each in inner.chain() if inner is not None else ():
        if each.outer is context and isinstance(each, BuiltContext):
            return each
    return None


def _leave_context(flows: Flows) -> None:
    """Hands what flows to tensors that have entered a branch or loop on to the tensors outside."""
    for tensor in list(flows):
        outside: Tensor | None = tensor
        while outside is not None and outside.op.context is not None:
            outside = entered_from(outside)
        while outside is not None and outside.op.definition is ReadVariable:
            outside = outside.op.inputs[0]
            flows.setdefault(outside, []).extend(flows[tensor])
        if outside is not None and outside is not tensor and outside.op.definition is not VariableReference:
            flows.setdefault(outside, []).extend(flows[tensor])


def _propagate(
    op: Operation, influenced: set[Tensor], stopped: set[Tensor], flows: dict[Tensor, list[Gradient]]
) -> None:
    if not any(t in influenced for t in op.inputs):
        return
    targets, made = op.inputs, op.outputs
    if isinstance(op.gradient_override, GradientBlock):
        block = op.gradient_override
        targets, made = block.inputs, tuple(each.outputs[0] for each in block.outputs)
        if op.outputs[0] is not next(t for t in made if t in influenced):
            return  # the block is differentiated with its first output, after all readers of the others
    outputs = [_sum(flows, t) if t in influenced and t not in stopped else None for t in made]
    if all(grad is None for grad in outputs):
        return
    with name_scope(f"{op.name}_grad"), op.graph.device(op.device):  # each op's gradient is where the op is
        if op.definition is ReadVariable:  # returns its input unchanged
            results: Sequence[Gradient | None] = outputs
        elif op.gradient_override is not None:
            dense = [zeros_like(t) if g is None else as_tensor(g) for t, g in zip(made, outputs, strict=True)]
            rule = op.gradient_override
            results = rule.rule(*dense) if isinstance(rule, GradientBlock) else gradient_of(op, dense)
            results = [None if g is None or isinstance(g, IndexedSlices) else as_tensor(g) for g in results]
        else:
            results = gradient_of(op, [None if g is None else as_tensor(g) for g in outputs])
    for tensor, grad in zip(targets, results, strict=True):
        if grad is None or tensor not in influenced or not tensor.dtype.is_differentiable:
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
