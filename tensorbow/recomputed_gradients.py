"""Functions whose gradient runs their ops again, so that it needs no intermediate values kept for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.gradients import gradients
from tensorbow.graph import GradientBlock, Operation, Tensor, as_tensor, graph_of, name_scope
from tensorbow.graph.build import build_op
from tensorbow.kinds import Function, checked
from tensorbow.nest import flatten, pack
from tensorbow.ops.constant import Const
from tensorbow.ops.control import Again, CustomGradient, identity
from tensorbow.ops.state import ReadVariable


@checked
def recompute_grad(f: Function) -> Callable[..., Any]:
    """A function with the results of `f(*tensors)` whose gradient runs the ops of `f` again.

    So their intermediate values are not kept from the forward pass to the gradient (white paper, section
    4.1). Random ops, those with effects and reads of variables are not run again: their results are kept.
    The gradients have the same bits. f returns a tensor or a nest of them.

    Raises InvalidArgumentError if `f` holds control flow of the dynamic mode.
    """

    @wraps(f)
    def decorated(*args: Any) -> Any:
        graph = graph_of(args)
        with graph.as_default(), name_scope(None, getattr(f, "__name__", "recompute_grad").strip("<>_")):
            xs = [identity(as_tensor(arg)) for arg in args]
            first = graph.version
            result = f(*xs)
            ys = [as_tensor(y) for y in flatten(result)]
            ops = _repeated_ops(graph.get_operations()[first : graph.version], ys)
            reads = _outside(ops, ys, xs)
            sources = (*xs, *reads)
            outputs = [CustomGradient(y, *sources) for y in ys]
            rule = _rule_of_repetition(ops, ys, sources)
            block = GradientBlock(tuple(y.op for y in outputs), sources, rule)
            for y in outputs:
                y.op.gradient_override = block
            return pack(result, iter(outputs))

    return decorated


def _repeated_ops(made: Sequence[Operation], ys: Sequence[Tensor]) -> list[Operation]:
    """The ops of a function that run again, in their order: what ys need, less what must not run twice."""
    needed: set[Operation] = set()
    pending = [y.op for y in ys]
    inside = set(made)
    while pending:
        op = pending.pop()
        if op in inside and op not in needed:
            needed.add(op)
            pending += [tensor.op for tensor in op.inputs]
    for op in needed:
        if op.definition.is_dynamic or op.context is not None:
            raise InvalidArgumentError(
                f"recompute_grad: {op.type} {op.name} is control flow or an op of the host, which does not "
                f"run again; give it a function of plain ops (made at {op.source})"
            )

    def repeats(op: Operation) -> bool:
        definition = op.definition
        return not (
            definition.stateful
            or definition.random
            or definition.writes
            or definition.exchange
            or definition.state
            or definition is ReadVariable
            or not op.inputs
        )

    return [op for op in made if op in needed and repeats(op)]


def _outside(ops: Sequence[Operation], ys: Sequence[Tensor], xs: Sequence[Tensor]) -> list[Tensor]:
    """Inputs of repeated ops from other ops, beside xs, and results that are not repeated."""
    inside = set(ops)
    read = [tensor for op in ops for tensor in op.inputs] + [*ys]
    own = {*inside, *(x.op for x in xs)}
    return list(dict.fromkeys(t for t in read if t.op not in own and t.op.definition is not Const))


def _rule_of_repetition(
    ops: Sequence[Operation], ys: Sequence[Tensor], sources: Sequence[Tensor]
) -> Callable[..., list[Any]]:
    """The block's rule: builds the ops again, and gives their gradients."""

    def rule(*flowing: Tensor | None) -> list[Any]:
        graph = ys[0].graph
        made: dict[Tensor, Tensor] = {}
        with graph.as_default(), name_scope("again"):
            for source in sources:
                made[source] = Again(source, use=graph.version)
            for op in ops:
                inputs = [made.get(tensor, tensor) for tensor in op.inputs]
                with graph.device(op.device or None):
                    built = build_op(op.definition, inputs, dict(op.attrs), None)
                outputs = built if isinstance(built, (tuple, list)) else [built]
                made.update(zip(op.outputs, outputs, strict=True))
            pairs = [(made.get(y, y), g) for y, g in zip(ys, flowing, strict=True) if g is not None]
            heads = [made[source] for source in sources]
            return gradients([y for y, _ in pairs], heads, [g for _, g in pairs])

    return rule
