"""`cond` and `case`: branches of which one runs (TensorFlow white paper, section 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tensorbow.control_flow.contexts import BranchContext, Conditional, checked_result, refuse_exchanges
from tensorbow.control_flow.slices import opened
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    ControlFlowContext,
    Operation,
    Tensor,
    as_tensor,
    control_dependencies,
    graph_of,
    name_scope,
)
from tensorbow.kinds import Flag, Name, checked, refuse
from tensorbow.nest import flatten, pack
from tensorbow.ops.checks import asserted
from tensorbow.ops.constant import constant
from tensorbow.ops.control import group, identity
from tensorbow.ops.control_flow import Merge, RequireAtMostOne
from tensorbow.ops.elementwise import logical_and, logical_or
from tensorbow.specs import bool_

__all__ = ["case", "cond"]

NONE_IS_TRUE = "case: none of the conditions is true, and there is no default; give one"


@checked
def cond(
    pred: Any,
    true_fn: Any = None,
    false_fn: Any = None,
    strict: Flag = False,
    name: Name = None,
    fn1: Any = None,
    fn2: Any = None,
) -> Any:
    """The results of `true_fn` if `pred`, a bool scalar, is true, else those of `false_fn`; only one runs.

    true_fn, false_fn: functions without arguments; both return tensors of the same dtypes in the same nest,
        or operations or None to be run for their effects. What they read from outside is computed in any
        case. fn1, fn2: TensorFlow's older names of them.
    strict: return a nest of one element as it is, not as the element.

    Returns the results; an operation stands for results that are operations. Shapes are known as far as both
    branches agree; where they do, the cond is compiled, also in steps of replicas. Other steps with a cond
    run in the dynamic mode. Raises InvalidArgumentError for functions
    whose results differ in structure or dtype.
    """
    functions = (fn2 if false_fn is None else false_fn, fn1 if true_fn is None else true_fn)
    for argument, function in zip(("true_fn", "false_fn"), reversed(functions), strict=True):
        if not callable(function):
            raise refuse("cond", argument, "a function", function)
    condition = _condition(pred, "cond")
    with graph_of([condition]).as_default(), name_scope(name or "cond"):
        opening = [lambda function=function: opened(function()) for function in functions]
        given, whole = build_cond(condition, opening, (None, None))
        result = pack(given, iter(whole.merged))
    single = not strict and isinstance(result, (list, tuple)) and len(result) == 1
    return result[0] if single else result


def _condition(pred: Any, call: str) -> Tensor:
    if isinstance(pred, bool):
        raise InvalidArgumentError(
            f"{call}: pred is the Python bool {pred}, expected a bool tensor; use Python's `if`"
        )
    tensor = as_tensor(pred)
    if tensor.dtype != bool_ or (tensor.spec.shape is not None and tensor.spec.shape != ()):
        raise InvalidArgumentError(
            f"{call}: pred is {tensor.spec}, expected a bool scalar; use a comparison, tb.reduce_all or "
            f"tb.reduce_any (made at {tensor.op.source})"
        )
    return tensor


def build_cond(
    pred: Tensor,
    functions: Sequence[Callable[[], Any]],
    forwards: Sequence[ControlFlowContext | None],
) -> tuple[Any, Conditional]:
    """A cond in the current context. functions, forwards: of the branches [false, true].

    Returns the nest that the function for true returned, and the cond with merged tensors of its leaves.
    """
    graph = pred.graph
    outer, guards, first = graph.context, graph.current_controls, graph.version
    pred = pred if outer is None else outer.resolve(pred)
    branches = [
        BranchContext(graph, outer, guards, pred, number, forward) for number, forward in enumerate(forwards)
    ]
    for branch in branches:
        branch.begin()
    whole = Conditional(branches)
    nests = []
    for branch, function in zip(branches, functions, strict=True):
        branch.whole = whole
        with graph.in_context(branch):
            nest = function()
            leaves = flatten(nest)
            whole.results.append([_result(leaf, branch) for leaf in leaves])
            nests.append(nest)
    _check_alike(nests, whole)
    for false, true in zip(*whole.results, strict=True):
        with graph.in_context(branches[0]):
            (merged,) = (Merge(false, true),)
        merged.op.context = outer
        whole.merged.append(merged)
    for branch in branches:
        branch.last = graph.version - 1
        refuse_exchanges(branch, graph, first, pred)
    return nests[1], whole


def _result(leaf: Any, branch: BranchContext) -> Tensor:
    """A branch's result as a tensor of the branch; an operation gives a number that depends on it."""
    if leaf is None or isinstance(leaf, Operation):
        with control_dependencies([] if leaf is None else [leaf]):
            return identity(constant(0), name="done")
    name = ("false_fn", "true_fn")[branch.branch]
    return identity(checked_result(leaf, f"cond: result of {name}"))


def _check_alike(nests: Sequence[Any], whole: Conditional) -> None:
    false, true = whole.results
    alike = len(false) == len(true)
    try:
        alike = alike and pack(nests[0], iter(range(len(false)))) == pack(nests[1], iter(range(len(true))))
    except (TypeError, ValueError):
        alike = False
    if not alike:
        raise InvalidArgumentError(
            f"cond: true_fn returns {len(true)} results and false_fn {len(false)}, or in other nests; return "
            "the same nest from both"
        )
    for number, (a, b) in enumerate(zip(false, true, strict=True)):
        if a.dtype != b.dtype:
            raise InvalidArgumentError(
                f"cond: result {number} is {b.spec} of true_fn, and {a.spec} of false_fn; return one dtype, "
                "by tb.cast"
            )


@checked
def case(
    pred_fn_pairs: Any,
    default: Any = None,
    exclusive: Flag = False,
    strict: Flag = False,
    name: Name = None,
) -> Any:
    """The results of the function of the first pair whose condition is true, or of `default`.

    pred_fn_pairs: a list of (bool scalar, function), or a dictionary of functions by condition. default: if
    there is none, one of the conditions has to be true. exclusive: fail at run time if more than one
    condition is true.

    Raises what `cond` raises; InvalidArgumentError for no pairs. A step fails with InvalidArgumentError if
    `exclusive` conditions are true together, and without a default if none is true.
    """
    if not isinstance(pred_fn_pairs, (dict, list, tuple)):
        raise refuse("case", "pred_fn_pairs", "a list of pairs (bool scalar, function)", pred_fn_pairs)
    pairs = list(pred_fn_pairs.items()) if isinstance(pred_fn_pairs, dict) else list(pred_fn_pairs)
    if not pairs:
        raise InvalidArgumentError("case: pred_fn_pairs is empty; give at least one pair")
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not callable(pair[1]):
            raise refuse("case", "pred_fn_pairs", "pairs (bool scalar, function)", pair)
    conditions = [_condition(pred, "case") for pred, _ in pairs]
    functions = [function for _, function in pairs]
    if default is None:
        default = _required(conditions, functions.pop())
    elif not callable(default):
        raise refuse("case", "default", "a function", default)
    if exclusive:
        conditions = _exclusive(conditions)
    conditions = conditions[: len(functions)]
    with name_scope(name or "case"):
        return _chain(list(zip(conditions, functions, strict=True)), default, strict)


def _chain(pairs: list[tuple[Tensor, Any]], default: Any, strict: bool) -> Any:
    if not pairs:
        return default()
    (pred, function), *rest = pairs
    return cond(pred, function, lambda: _chain(rest, default, True), strict=strict or len(rest) > 0)


def _required(conditions: Sequence[Tensor], function: Any) -> Any:
    """The function of the last condition, which fails at run time unless one of them is true."""

    def checked_call() -> Any:
        with control_dependencies([asserted(reduce(logical_or, conditions), conditions, NONE_IS_TRUE)]):
            return pack(nest := function(), iter([_gated(leaf) for leaf in flatten(nest)]))

    return checked_call


def _gated(leaf: Any) -> Any:
    """A result that waits for the current control dependencies."""
    if leaf is None or isinstance(leaf, Operation):
        return group(*([] if leaf is None else [leaf]))
    return identity(leaf)


def _exclusive(conditions: list[Tensor]) -> list[Tensor]:
    """The conditions; computing them fails at run time if several are true."""
    at_most_one = RequireAtMostOne(*conditions)
    return [logical_and(condition, at_most_one) for condition in conditions]
