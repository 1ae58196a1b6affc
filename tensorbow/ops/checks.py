"""Checks of values while a step runs: assertions, NaN and infinity, and values printed to standard error.

They have kernels for CPUs only: without a device request they run on a CPU, also beside GPUs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.array_likes import text_of
from tensorbow.errors import InvalidArgumentError, OutOfRangeError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    Attrs,
    HostCall,
    Kernel,
    KernelCall,
    OpDef,
    Operation,
    Tensor,
    as_tensor,
    control_dependencies,
    get_default_graph,
    graph_of,
    name_scope,
)
from tensorbow.kinds import ITEMS, Items, Name, Text, checked, optional, whole
from tensorbow.ops.control import group
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import (
    add,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    multiply,
    not_equal,
    pair,
    subtract,
)
from tensorbow.ops.reductions import reduce_all
from tensorbow.specs import FLOATS, Array, TensorSpec, bool_, int32, int64

__all__ = [
    "Assert",
    "Print",
    "add_check_numerics_ops",
    "assert_equal",
    "assert_greater",
    "assert_greater_equal",
    "assert_less",
    "assert_less_equal",
    "assert_near",
    "assert_negative",
    "assert_non_negative",
    "assert_non_positive",
    "assert_none_equal",
    "assert_positive",
    "check_numerics",
    "verify_tensor_all_finite",
]

WHY_CPU = "the CPU checks and prints"
SHOWN = 3  # elements of each tensor in a message, by default

Summarize: TypeAlias = Annotated["int | None", optional(whole(-1))]
Data: TypeAlias = Annotated[Any, optional(ITEMS)]  # reads a list


def _shown(x: Array, most: int) -> str:
    flat = x.ravel() if most < 0 else x.ravel()[:most]
    items = " ".join(text_of(value) if type(value) is bytes else str(value) for value in flat.tolist())
    return f"[{items}{'...' if len(flat) < x.size else ''}]"


# Ops ----------------------------------------------------------------------------------------------------


def _assert_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> tuple[()]:
    require_dtype("Assert", inputs[0], (bool_,), "condition")
    return ()


def _assert(call: KernelCall) -> None:
    condition, *data = call.inputs
    if not condition.all():
        shown = " ".join(_shown(x, call.attrs["summarize"]) for x in data)
        raise InvalidArgumentError(f"assertion failed: {call.attrs['message']}{shown and ': '}{shown}")


AssertOp = define_op(
    "Assert",
    spec=_assert_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(run=_assert),
    inputs=("condition", "*data"),
    attrs={"message": "", "summarize": SHOWN},
    stateful=True,
    why_cpu=WHY_CPU,
    strings=True,
    doc="Fails unless every element of the condition is true.",
)


def _same(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(inputs[0].shape, inputs[0].dtype)


def _check_numerics_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("CheckNumerics", inputs[0], FLOATS, "tensor")
    return _same(inputs, attrs)


def _check_numerics(call: KernelCall) -> None:
    (x,), (out,), (finite,) = call.inputs, call.outputs, call.scratch
    if not np.isfinite(x, out=finite).all():
        bad = x[~finite]
        kinds = [word for word, there in (("NaN", np.isnan(bad)), ("infinity", np.isinf(bad))) if there.any()]
        first = np.unravel_index(int(np.argmin(finite)), x.shape)
        raise InvalidArgumentError(
            f"{call.attrs['message']}: tensor has {' and '.join(kinds)}, {bad.size} of {x.size} elements, "
            f"the first at {[int(i) for i in first]}"
        )
    np.copyto(out, x)


CheckNumerics: OpDef = define_op(
    "CheckNumerics",
    spec=_check_numerics_spec,
    gradient=lambda op, g: [CheckNumerics(g, message=f"gradient: {op.attrs['message']}")],
    kernel=Kernel(run=_check_numerics, scratch=lambda node: [TensorSpec(node.inputs[0].shape, bool_)]),
    inputs=("tensor",),
    attrs={"message": REQUIRED},
    stateful=True,
    why_cpu=WHY_CPU,
)


def _check_below(call: KernelCall) -> None:
    (count,), (out,) = call.inputs, call.outputs
    if count >= call.attrs["limit"]:
        raise OutOfRangeError(f"count_up_to: the variable is {count}, and the limit {call.attrs['limit']}")
    np.copyto(out, count)


def _check_below_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("CheckBelow", inputs[0], (int32, int64), "the variable")
    if inputs[0].shape not in (None, ()):
        raise InvalidArgumentError(f"count_up_to: expected a scalar variable, got {inputs[0]}")
    return TensorSpec((), inputs[0].dtype)


CheckBelow = define_op(
    "CheckBelow",
    spec=_check_below_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=_check_below,
    inputs=("input",),
    attrs={"limit": REQUIRED},
    stateful=True,
    why_cpu=WHY_CPU,
    doc="The input, an integer below `limit`.",
)


def _prepare_print(call: KernelCall) -> Callable[[], None]:
    (x, *data), (out,) = call.inputs, call.outputs
    message, most, first_n = (call.attrs[key] for key in ("message", "summarize", "first_n"))
    printed = 0

    def run() -> None:
        nonlocal printed
        if first_n < 0 or printed < first_n:
            printed += 1
            print(message + "".join(_shown(each, most) for each in data), file=sys.stderr, flush=True)
        np.copyto(out, x)

    return run


PrintOp = define_op(
    "Print",
    spec=_same,
    gradient=lambda op, g: [g, *[None] * (len(op.inputs) - 1)],
    kernel=Kernel(prepare=_prepare_print),
    inputs=("input", "*data"),
    attrs={"message": "", "first_n": -1, "summarize": SHOWN},
    stateful=True,
    why_cpu=WHY_CPU,
    doc="The input; prints the data when it is computed.",
)


def _print_strings(call: HostCall) -> Array:
    x, *data = call.inputs
    message, most, first_n = (call.attrs[key] for key in ("message", "summarize", "first_n"))
    printed = call.resources.get(("printed", call.name), lambda: [0])
    if first_n < 0 or printed[0] < first_n:
        printed[0] += 1
        print(message + "".join(_shown(each, most) for each in data), file=sys.stderr, flush=True)
    return x


PrintStrings = define_op(
    "PrintStrings",
    spec=_same,
    gradient=lambda op, g: [g, *[None] * (len(op.inputs) - 1)],
    host=_print_strings,
    inputs=("input", "*data"),
    attrs={"message": "", "first_n": -1, "summarize": SHOWN},
    stateful=True,
    strings=True,
    doc="Print with strings in its input or data, in the dynamic mode.",
)


# Functions ----------------------------------------------------------------------------------------------


@checked
def Print(  # noqa: N802 - TensorFlow's name
    input: Any,
    data: Items,
    message: Text | None = None,
    first_n: Summarize = None,
    summarize: Summarize = None,
    name: Name = None,
) -> Tensor:
    """`input`; when it is computed, `message` and the first elements of each tensor of `data` are printed.

    They go to standard error, a line each time. first_n: lines of one compiled step at most; None or -1: all.
    summarize: elements of each tensor, by default 3; -1: all. Nothing is printed unless the result is used.
    """
    with graph_of([input, data]).as_default():
        tensors = [as_tensor(each) for each in (input, *data)]
        definition = PrintStrings if any(t.dtype.is_string for t in tensors) else PrintOp
        result: Tensor = definition(
            *tensors,
            message=message or "",
            first_n=-1 if first_n is None else first_n,
            summarize=SHOWN if summarize is None else summarize,
            name=name,
        )
    return result


@checked
def Assert(  # noqa: N802 - TensorFlow's name
    condition: Any, data: Items, summarize: Summarize = None, name: Name = None
) -> Operation:
    """An operation that fails with InvalidArgumentError unless all elements of `condition` (bool) are true.

    data: tensors whose first elements (`summarize`, by default 3; -1: all) the error shows. It runs only if
    it is fetched or what is fetched depends on it: use `tb.control_dependencies`.
    """
    return asserted(condition, data, "", summarize, name)


def asserted(
    condition: Any,
    data: Sequence[Any],
    message: str,
    summarize: int | None = None,
    name: str | None = None,
) -> Operation:
    """`Assert` with a message before the data."""
    with graph_of([condition, *data]).as_default():
        result: Operation = AssertOp(
            condition, *data, message=message, summarize=SHOWN if summarize is None else summarize, name=name
        )
    return result


@checked
def check_numerics(tensor: Any, message: Text, name: Name = None) -> Tensor:
    """`tensor` (floating); NaN or infinity in it, or in its gradient, raises InvalidArgumentError.

    The error says `message`, the count of such elements and where the first one is.
    """
    return CheckNumerics.tensor(tensor, message=message, name=name)


@checked
def verify_tensor_all_finite(t: Any, msg: Text, name: Name = None) -> Tensor:
    """`t`, as `check_numerics` gives it: TensorFlow's older name."""
    return check_numerics(t, msg, name)


@checked
def add_check_numerics_ops() -> Operation:
    """An operation that checks every floating tensor of the default graph for NaN and infinity.

    The first op in program order whose result has one is named by the error. Tensors made in branches and
    loops are left out, since they may have no value. Fetch it beside what a step computes.
    """
    checks: list[Operation] = []
    for op in list(get_default_graph().get_operations()):
        definition = op.definition
        if op.context is not None or definition.fetched is not None or definition.flow:
            continue
        if definition.name in ("Variable", "Const", "CheckNumerics"):
            continue
        for tensor in op.outputs:
            if tensor.dtype in FLOATS:
                with control_dependencies(checks[-1:]):  # the first one in program order fails first
                    checks.append(check_numerics(tensor, tensor.name).op)
    return group(*checks, name="check_numerics")


def _compared(
    name: str, symbol: str, compare: Callable[[Any, Any], Tensor], known: np.ufunc
) -> Callable[..., Operation]:
    """The function `name` of two tensors. known: the comparison of values known while the graph is built."""

    def check(
        x: Any,
        y: Any,
        data: Data = None,
        summarize: Summarize = None,
        message: Name = None,
        name: Name = None,
    ) -> Operation:
        first, second = pair(x, y)
        with first.graph.as_default(), name_scope(name or label):
            condition = reduce_all(compare(first, second))
            text = f"{label}: {message + ': ' if message else ''}expected x {symbol} y"
            a, b = first.spec.value, second.spec.value
            if a is not None and b is not None and not known(a, b).all():
                got = f"x {_shown(a, SHOWN)} ({first.name}), y {_shown(b, SHOWN)} ({second.name})"
                raise InvalidArgumentError(f"{text}, got {got}")
            what = f"{text} for x {first.name}, y {second.name}"
            return asserted(condition, [first, second] if data is None else data, what, summarize, None)

    label = name
    return _public(check, name, f"x {symbol} y for all elements, by broadcasting")


def _compared_to_zero(name: str, symbol: str, compare: Callable[..., Operation]) -> Callable[..., Operation]:
    """The function `name` of one tensor."""

    def check(
        x: Any, data: Data = None, summarize: Summarize = None, message: Name = None, name: Name = None
    ) -> Operation:
        tensor = as_tensor(x)
        text = f"{label}{(message and f': {message}') or ''}"
        with tensor.graph.as_default():
            return compare(tensor, 0, [tensor] if data is None else data, summarize, text, name or label)

    label = name
    return _public(check, name, f"x {symbol} 0 for all elements")


def _public(check: Callable[..., Operation], name: str, what: str) -> Callable[..., Operation]:
    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"""An operation that fails unless {what}: see `Assert`.

    The error shows `message` and `data`, by default what is compared. Values known while the graph is built
    are compared at once: raises InvalidArgumentError.
    """
    return checked(check)


assert_equal = _compared("assert_equal", "==", equal, np.equal)
assert_none_equal = _compared("assert_none_equal", "!=", not_equal, np.not_equal)
assert_less = _compared("assert_less", "<", less, np.less)
assert_less_equal = _compared("assert_less_equal", "<=", less_equal, np.less_equal)
assert_greater = _compared("assert_greater", ">", greater, np.greater)
assert_greater_equal = _compared("assert_greater_equal", ">=", greater_equal, np.greater_equal)
assert_positive = _compared_to_zero("assert_positive", ">", assert_greater)
assert_negative = _compared_to_zero("assert_negative", "<", assert_less)
assert_non_negative = _compared_to_zero("assert_non_negative", ">=", assert_greater_equal)
assert_non_positive = _compared_to_zero("assert_non_positive", "<=", assert_less_equal)


@checked
def assert_near(
    x: Any,
    y: Any,
    rtol: Any = None,
    atol: Any = None,
    data: Data = None,
    summarize: Summarize = None,
    message: Name = None,
    name: Name = None,
) -> Operation:
    """An operation that fails unless |x - y| <= atol + rtol |y| for all elements.

    rtol, atol: numbers or tensors, by default 10 times the distance from 1 to the next number of the dtype.
    """
    first, second = pair(x, y)
    with first.graph.as_default(), name_scope(name or "assert_near"):
        dtype = first.dtype
        least = 10 * float(np.finfo(dtype.as_numpy_dtype).eps) if dtype.is_floating else 0
        relative, absolute_ = (least if each is None else each for each in (rtol, atol))
        bound = add(multiply(relative, absolute(second)), absolute_)
        near = reduce_all(less_equal(absolute(subtract(first, second)), bound))
        text = f"assert_near: {message + ': ' if message else ''}x {first.name}, y {second.name}"
        return asserted(near, [first, second] if data is None else data, text, summarize, None)
