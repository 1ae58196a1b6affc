"""Definition of ops, the library's and users': spec, gradient and reference kernel together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.array_likes import as_array
from tensorbow.errors import AlreadyExistsError, InvalidArgumentError, TensorBowError, UnimplementedError
from tensorbow.graph import Kernel, KernelCall, NodeSpec, OpDef, blame
from tensorbow.graph.build import check_arity
from tensorbow.graph.definition import GradientRule, _NotDifferentiable, read_only
from tensorbow.kinds import (
    Flag,
    Function,
    Items,
    Mapped,
    Text,
    checked,
    instance,
    one_of,
    sequence,
    shown,
    whole,
)
from tensorbow.ops.argument_kinds import PAIR, Texts
from tensorbow.specs import Array, DType, TensorSpec, as_dtype

__all__ = ["define_op", "register_kernel", "run_reference_kernel"]

InputIndices: TypeAlias = Annotated[Any, sequence(whole(0), "a list of indices of inputs, counted from 0")]
Pair: TypeAlias = Annotated[Any, PAIR]
Pairs: TypeAlias = Annotated[Any, sequence(PAIR, "a list of pairs (output, input)")]
Definition: TypeAlias = Annotated[OpDef, instance(OpDef, expected="an op, as define_op gives it")]
KernelObject: TypeAlias = Annotated[Kernel, instance(Kernel, expected="a tb.Kernel")]

FLOWS = ("switch", "merge", "enter", "exit", "next_iteration", "loop_condition", "send", "receive")
OPS: dict[str, OpDef] = {}  # all definitions by name, for contract tests and GraphDefs


@checked
def define_op(
    name: Text,
    *,
    spec: Function,
    gradient: GradientRule | _NotDifferentiable | None = None,
    kernel: KernelObject | Function | None = None,
    inputs: Texts = (),
    attrs: Mapped | None = None,
    uniform_dtype: Flag = False,
    shape_inputs: InputIndices = (),
    unknown_dtypes: Function | None = None,
    alias: Pairs = (),
    writes: InputIndices = (),
    ignores: InputIndices = (),
    update: Pair | None = None,
    row_update: Pair | None = None,
    stateful: Flag = False,
    random: Flag = False,
    state: Texts = (),
    sets_status: Flag = False,
    exchange: Flag = False,
    host: Function | None = None,
    keeps: Flag = False,
    slow: Flag = False,
    asynchronous: Flag = False,
    changes: Text = "",
    flow: Annotated[str, one_of("", *FLOWS)] = "",
    scoped: Texts = (),
    fetched: Function | None = None,
    why_cpu: Text = "",
    strings: Flag = False,
    doc: Text = "",
    replace: Flag = False,
) -> OpDef:
    """Defines an op and registers it under its name; call the result to add it to a graph.

    `kernel` is the CPU reference kernel: a `Kernel`, or just its `run(call)`. An op whose output shapes
    depend on data, or that waits, has a function `host` instead. The other arguments
    are the fields of `OpDef`. A `gradient` must be given: a rule, or `NOT_DIFFERENTIABLE`.

    Raises AlreadyExistsError if the name is taken, unless `replace` (for notebooks), and
    InvalidArgumentError if the gradient or the kernel is missing.
    """
    if name in OPS and not replace:
        raise AlreadyExistsError(f"op {name} is defined already; choose another name or pass replace=True")
    if not callable(gradient) and not isinstance(gradient, _NotDifferentiable):
        got = "none" if gradient is None else shown(gradient)
        raise InvalidArgumentError(f"op {name}: give gradient=, a rule or tb.NOT_DIFFERENTIABLE; got {got}")
    if kernel is None and not alias and inputs and host is None and not flow and fetched is None:
        raise InvalidArgumentError(f"op {name}: give a kernel, a host function, or an alias for a view")
    if asynchronous and host is None:
        raise InvalidArgumentError(f"op {name}: asynchronous=True is about host=, a function; give it")
    if keeps and (host is None or asynchronous):
        raise InvalidArgumentError(f"op {name}: keeps=True is about host=, a function that returns; give it")
    if slow and (host is None or asynchronous):
        raise InvalidArgumentError(f"op {name}: slow=True is about host=, a function that ends; give it")
    if changes and (host is None or changes not in (attrs or {})):
        raise InvalidArgumentError(
            f"op {name}: changes= is an attribute that host= changes; got {changes!r}, which is none"
        )
    if host is not None and kernel is not None:
        raise InvalidArgumentError(f"op {name}: give a kernel or a host function, not both")
    kernels: dict[str, Kernel] = {}
    if kernel is not None:
        kernels["cpu"] = kernel if isinstance(kernel, Kernel) else Kernel(run=kernel)
    definition = OpDef(
        name=name,
        spec=spec,
        gradient=gradient,
        kernels=kernels,
        input_names=tuple(inputs),
        attrs=dict(attrs or {}),
        uniform_dtype=uniform_dtype,
        shape_inputs=tuple(shape_inputs),
        unknown_dtypes=unknown_dtypes,
        alias=tuple(alias),
        writes=tuple(writes),
        ignores=tuple(ignores),
        update=update,
        row_update=row_update,
        stateful=stateful or bool(writes),
        random=random,
        state=("counter", "random_stream", *state) if random else tuple(state),
        sets_status=sets_status,
        exchange=exchange,
        host=host,
        keeps=keeps,
        slow=slow,
        asynchronous=asynchronous,
        changes=changes,
        flow=flow,
        scoped=tuple(scoped),
        fetched=fetched,
        why_cpu=why_cpu,
        strings=strings,
        doc=doc,
    )
    OPS[name] = definition
    return definition


@checked
def register_kernel(definition: Definition, kind: Text, kernel: KernelObject) -> None:
    """Registers an op's kernel for another kind of device, or replaces its kernel.

    kind: for example `gpu`, for which `tb.CudaKernel` and `tb.CupyKernel` make kernels.
    """
    definition.kernels[kind] = kernel


def kernel_for(definition: OpDef, kind: str) -> Kernel:
    """The kernel of an op for a device kind. Raises UnimplementedError naming the kinds that have one."""
    kernel = definition.kernels.get(kind)
    if kernel is None:
        raise UnimplementedError(
            f"op {definition.name} has no kernel for {kind} devices (it has: "
            f"{', '.join(definition.kernels) or 'none'}); register one or place the op elsewhere"
        )
    return kernel


@checked
def run_reference_kernel(
    definition: Definition,
    inputs: Items,
    attrs: Mapped | None = None,
    state: Mapped | None = None,
) -> tuple[Array, ...]:
    """Runs the reference kernel of an op once on arrays, without a graph.

    Used by constant folding and tests; `state` gives the STATE scalars (`counter`, `replica`, ...).
    """
    check_arity(definition, len(inputs))
    arrays = tuple(as_array(value) for value in inputs)
    complete = {**definition.attrs, **(attrs or {})}
    specs = tuple(TensorSpec(a.shape, as_dtype(a.dtype), a) for a in arrays)
    results = definition.infer(specs, complete)
    if definition.is_view:
        (result,), array = results, arrays[definition.alias[0][1]]
        return (array.reshape(result.extents) if result.is_static else array,)
    node = NodeSpec(complete, specs, results)
    kernel = kernel_for(definition, "cpu")
    outputs = tuple(np.empty(r.extents, r.dtype.as_numpy_dtype) for r in results)
    scratch = tuple(np.empty(s.extents, s.dtype.as_numpy_dtype) for s in kernel.scratch_specs(node))
    values = {key: np.asarray(value) for key, value in (state or {}).items()}
    given = tuple(a if index in definition.writes else read_only(a) for index, a in enumerate(arrays))
    try:
        kernel.bind(KernelCall(complete, given, outputs, scratch, values))()
    except TensorBowError as error:
        raise type(error)(blame(definition.name, "", error, None)) from None
    return outputs


def require_dtype(op: str, spec: TensorSpec, allowed: Sequence[DType], what: str = "input") -> None:
    """Raises InvalidArgumentError unless the dtype of `spec` is one of `allowed`."""
    if spec.dtype not in allowed:
        raise InvalidArgumentError(
            f"{op}: {what} has dtype {spec.dtype.name}, expected {' or '.join(d.name for d in allowed)}; "
            "use tb.cast"
        )


def require_same_dtype(op: str, specs: Sequence[TensorSpec]) -> DType:
    """The common dtype of all inputs. Raises InvalidArgumentError if they differ."""
    dtypes = list(dict.fromkeys(s.dtype for s in specs))
    if len(dtypes) != 1:
        raise InvalidArgumentError(
            f"{op}: inputs have dtypes {' and '.join(d.name for d in dtypes)}, expected one; use tb.cast"
        )
    return dtypes[0]


def require_rank(op: str, spec: TensorSpec, rank: int, what: str = "input") -> None:
    """Raises InvalidArgumentError unless `spec` has that rank; UnknownRankError if its rank is unknown."""
    if spec.rank != rank:
        remedy = "tb.expand_dims or tb.reshape" if spec.rank < rank else "tb.squeeze or tb.reshape"
        raise InvalidArgumentError(f"{op}: {what} is {spec}, expected rank {rank}; use {remedy}")
