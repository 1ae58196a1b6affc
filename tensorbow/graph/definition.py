"""Definition of an op: one object that joins its spec, gradient and kernels.

`define_op` (in `tensorbow.ops.definition`) makes them. An `Operation` of a graph refers to its definition
object, so nothing is looked up by name at run time and a missing part shows when the op is defined.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tensorbow.errors import InternalError, InvalidArgumentError, NotFoundError
from tensorbow.graph.build import build_op
from tensorbow.specs import Array, DType, TensorSpec, UnknownRankError, as_dtype

if TYPE_CHECKING:
    from tensorbow.graph.operation import Operation, Tensor

Attrs: TypeAlias = Mapping[str, Any]
SpecRule: TypeAlias = "Callable[[Sequence[TensorSpec], Attrs], TensorSpec | Sequence[TensorSpec]]"
GradientRule: TypeAlias = "Callable[..., Sequence[Tensor | None]]"


class _NotDifferentiable:
    """States that an op has no gradient: `gradients` stops there."""

    def __repr__(self) -> str:
        return "NOT_DIFFERENTIABLE"


NOT_DIFFERENTIABLE = _NotDifferentiable()


@dataclass(frozen=True)
class NodeSpec:
    """An op with fully known shapes, as kernels and backends see it."""

    attrs: Attrs
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class KernelCall:
    """One bound call of a kernel: its arrays are views of fixed addresses, made once when it is bound.

    Inputs that the op does not declare in `writes` are read-only views.
    """

    attrs: Attrs
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    scratch: tuple[Array, ...] = ()
    state: Mapping[str, Array] = field(default_factory=dict)  # 0-d arrays that change in every step


@dataclass(frozen=True)
class Kernel:
    """The implementation of one op on one kind of device.

    `run(call)` reads `call.inputs` (any strides, never written) and writes every element of `call.outputs`.
    It allocates no tensor memory: temporary arrays come from `scratch`. It returns None, or the result of a
    NumPy call with `out=`. `prepare(call)`, if given, does the work that is needed only once (views, index
    tables) and returns the function that runs in each step.

    inplace: (output, input) pairs that may share memory if the input is not read later.
    pointwise: for ops that write variables: the kernel reads an element of every input before it writes that
    element of the variable, so an input of the same shape may alias the variable.
    capturable: False for a GPU kernel that must be launched between CUDA graphs; `why_alone` is the reason,
    for `explain`. waits: the kernel works on other streams, so the waiting thread itself may run it.
    explain: lines that an explanation shows for a call, by the attributes of the op.
    """

    run: Callable[[KernelCall], object] | None = None
    prepare: Callable[[KernelCall], Callable[[], None]] | None = None
    scratch: Callable[[NodeSpec], Sequence[TensorSpec]] | None = None
    inplace: tuple[tuple[int, int], ...] = ()
    pointwise: bool = False
    capturable: bool = True
    dynamic: bool = False
    why_alone: str = ""
    waits: bool = False
    explain: Callable[[Attrs], Sequence[str]] | None = None

    def __post_init__(self) -> None:
        if (self.run is None) == (self.prepare is None):
            raise InvalidArgumentError("a Kernel takes either run= or prepare=")

    def bind(self, call: KernelCall) -> Callable[[], None]:
        """The function that runs one bound call.

        It raises InvalidArgumentError if `run` returns results instead of writing them.
        """
        if self.prepare is not None:
            return self.prepare(call)
        run = self.run
        if run is None:
            raise InternalError("a Kernel without run and prepare")

        first = call.outputs[0] if call.outputs else None  # the usual result of a call with `out=`

        def step() -> None:
            returned: object = run(call)
            if returned is not None and returned is not first:
                _check_returned(returned, call)

        return step

    def scratch_specs(self, node: NodeSpec) -> tuple[TensorSpec, ...]:
        """Specs of the temporary arrays that the kernel needs, of fully known shape."""
        return () if self.scratch is None else tuple(self.scratch(node))


class Resources:
    """Objects that ops of one session share, such as queues, by key. All methods are thread-safe.

    named: objects that sessions share by name (`tensorbow.queues.named_objects`); None: those of the process.
    has_value: tells whether a variable has a value, by its name and container. owner: has the objects, and
    outlives this.
    """

    def __init__(
        self,
        named: Any = None,
        has_value: Callable[[str, str], bool] = lambda *variable: True,
        owner: Resources | None = None,
    ) -> None:
        self.named, self.has_value, self._owner = named, has_value, owner
        self._lock = RLock()
        self._held: dict[Any, Any] = {}

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """The object of that key; made on first use."""
        return self.own(key, make) if self._owner is None else self._owner.get(key, make)

    def own(self, key: Any, make: Callable[[], Any]) -> Any:
        """`get` of an object that is the session's even where there is an owner."""
        with self._lock:
            if key not in self._held:
                self._held[key] = make()
            return self._held[key]

    def close(self) -> None:
        """Calls `close` of every object that has it, and forgets them."""
        if not self._held:
            return
        with self._lock:
            held, self._held = self._held, {}
        for each in held.values():
            if hasattr(each, "close"):
                each.close()


@dataclass(frozen=True, eq=False)
class StepResources:
    """Objects that the host functions of one run of a session share."""

    resources: Resources  # of the session
    step: Resources  # of this run, for all calls in it


DEAD: Any = object()
"""The value, in a step in the dynamic mode, of a tensor whose branch is not taken."""

OnCancel: TypeAlias = "Callable[[Callable[[], object]], None]"


class HostCall:
    """One call of an op's host function: its inputs are arrays of any shape, not to be written.

    done, fail: of an asynchronous call: one of them is called once, by any thread, with the outputs or with
    the error. on_cancel: takes a function that ends the wait of such a call; to be told before anything can
    answer the call, so that an interrupted step leaves nothing that waits. Others return their outputs, and
    have none of these. iterations: of the loops around a Send or Receive, the outermost first; such an op
    takes and gives DEAD, too.
    """

    # Few are set: a step may make millions.
    __slots__ = ("_shared", "done", "fail", "inputs", "iterations", "on_cancel", "op")

    iterations: tuple[int, ...]
    done: Callable[[Sequence[Array]], None]
    fail: Callable[[BaseException], None]
    on_cancel: OnCancel

    def __init__(self, op: Operation, inputs: tuple[Array, ...], shared: StepResources):
        self.op, self.inputs, self._shared = op, inputs, shared

    def __getattr__(self, name: str) -> Any:
        if name in ("done", "fail", "on_cancel"):
            raise InternalError(
                f"{self.op.type} {self.op.name}: {name} is for asynchronous ops; return the outputs"
            )
        raise AttributeError(f"'HostCall' has no attribute '{name}'")

    @property
    def name(self) -> str:
        """Name of the operation."""
        return self.op.name

    @property
    def attrs(self) -> Attrs:
        """Attributes of the operation."""
        return self.op.attrs

    @property
    def resources(self) -> Resources:
        """Objects of the session."""
        return self._shared.resources

    @property
    def step(self) -> Resources:
        """Objects of this run of the session, for all calls in it."""
        return self._shared.step


HostFunction: TypeAlias = "Callable[[HostCall], Any]"


@dataclass(frozen=True, eq=False)
class OpDef:
    """An op: its name, the spec of its results, its gradient, and a kernel per kind of device.

    spec      (input specs, attrs) -> output spec(s); raises InvalidArgumentError. May read the
              `value` of inputs listed in `shape_inputs`, and set the `value` of a result. Reading
              `.dims` of a tensor of unknown rank gives results of unknown rank, with the dtypes of
              `unknown_dtypes`.
    gradient  (op, *output_gradients) -> a gradient or None per input; an output gradient is None
              where nothing flows.
    alias     (output, input) pairs that share storage; an op with an alias and no kernel is
              a view and costs nothing.
    writes    inputs (variable references) that the kernel changes.
    ignores   inputs (variable references) that the kernel does not read before it writes them.
    update    (variable input, gradient input): the optimiser's local update of a variable.
    row_update
              (input of rows, input of their indices): the update of a variable's rows by rows of a
              gradient, which may be the mean of several.
    fetched   (op, values of the inputs) -> the value of a fetch: sessions compute the inputs and call it. No
              step computes such an op, so it can only be fetched, or read by another one with `fetched`.
    exchange  replicas meet in it: a kernel gets one input from each replica of its device, and the result is
              the same for all replicas of all devices.
    host      HostCall -> its output arrays, whose shapes need not be known before; the op runs in the
              dynamic mode only.
    keeps     `host` only keeps its inputs, or hands them on: it gets those that lie in a GPU's memory as they
              are, as objects with `shape` and `dtype` that NumPy's functions copy to the host.
    slow      `host` may take long, for example as it reads files: other ops of a step run meanwhile.
    asynchronous
              `host` returns at once and calls `done` or `fail` of its HostCall later, and before it begins
              to wait `on_cancel`.
    changes   attribute that is an object which `host` changes, or None: ops of one step that change the same
              object run in the order of creation.
    why_cpu   why it has a kernel for CPUs only: without a device request it is placed on a CPU device.
    strings   it takes and gives string tensors, too: then its reference kernel, on arrays of `bytes`, runs in
              the dynamic mode.
    flow      its part in control flow, which the executor itself plays: switch, merge, enter, ...; send and
              receive: its host function takes or gives dead tensors, too.
    scoped    attributes that are names in the graph: where a GraphDef is imported under a scope, it is put
              before them.
    form_of   the op of which it is a form that differs in `writes` and `alias`.
    """

    name: str
    spec: SpecRule
    gradient: GradientRule | _NotDifferentiable
    kernels: dict[str, Kernel]
    input_names: tuple[str, ...] = ()
    attrs: Attrs = field(default_factory=dict)  # names and defaults; REQUIRED: must be given
    uniform_dtype: bool = False  # Python numbers take the dtype of the other inputs
    shape_inputs: tuple[int, ...] = ()  # inputs whose values determine shapes: must fold to constants
    unknown_dtypes: Callable[[Sequence[TensorSpec], Attrs], Sequence[DType]] | None = None
    alias: tuple[tuple[int, int], ...] = ()
    writes: tuple[int, ...] = ()
    ignores: tuple[int, ...] = ()
    update: tuple[int, int] | None = None
    row_update: tuple[int, int] | None = None
    stateful: bool = False  # has side effects or an identity: never folded, merged or dropped
    random: bool = False  # draws numbers: gets a STATE counter, never folded or merged
    state: tuple[str, ...] = ()  # STATE scalars the kernel reads
    sets_status: bool = False  # the kernel may set the status, which is then one of `state`
    exchange: bool = False
    host: HostFunction | None = None
    keeps: bool = False
    slow: bool = False
    asynchronous: bool = False
    changes: str = ""
    flow: str = ""
    scoped: tuple[str, ...] = ()
    fetched: Callable[[Operation, Sequence[Any]], Any] | None = None
    why_cpu: str = ""
    strings: bool = False
    form_of: OpDef | None = None
    doc: str = ""

    @property
    def is_dynamic(self) -> bool:
        """True if only the dynamic mode runs it: host functions and control flow. See Operation's, too."""
        return bool(self.host is not None or self.flow)

    def infer(self, inputs: Sequence[TensorSpec], attrs: Attrs) -> tuple[TensorSpec, ...]:
        """The specs of the outputs. Raises InvalidArgumentError for inputs that do not fit."""
        if self.strings:
            return self._infer(inputs, attrs)
        _refuse_strings(inputs)
        results = self._infer(inputs, attrs)
        _refuse_strings(results, gives=True)
        return results

    def _infer(self, inputs: Sequence[TensorSpec], attrs: Attrs) -> tuple[TensorSpec, ...]:
        try:
            result = self.spec(inputs, attrs)
        except UnknownRankError:
            if self.unknown_dtypes is not None:
                dtypes = self.unknown_dtypes(inputs, attrs)
            else:
                dtypes = (inputs[0].dtype,)
            return tuple(TensorSpec(None, dtype) for dtype in dtypes)
        results = (result,) if isinstance(result, TensorSpec) else result
        if results is result and not (
            isinstance(results, Sequence) and all(isinstance(r, TensorSpec) for r in results)
        ):
            raise InvalidArgumentError(
                f"spec of {self.name} must return a TensorSpec or a sequence of them, "
                f"got {type(result).__name__} {reprlib.repr(result)}"
            )
        # A rule may return an input's spec: the value is only the input's.
        return tuple(
            TensorSpec(r.shape, r.dtype) if r.value is not None and any(r is x for x in inputs) else r
            for r in results
        )

    @property
    def is_view(self) -> bool:
        """True if the output is the input's storage under another shape: nothing to compute."""
        return bool(self.alias) and not self.kernels

    def small_results(self, inputs: Sequence[Array], attrs: Attrs, most: int) -> Sequence[Array | None]:
        """The results for small arrays, by the spec's values or the reference kernel; None for each that is
        not known so, or has more than `most` elements. Raises what these raise."""
        specs = tuple(TensorSpec(array.shape, as_dtype(array.dtype), array) for array in inputs)
        results = self.infer(specs, attrs)
        kernel = self.kernels.get("cpu")
        if any(spec.value is not None for spec in results):
            return [spec.value for spec in results]
        if any(not spec.is_static or math.prod(spec.extents) > most for spec in results):
            return [None] * len(results)
        if kernel is None:
            views = [inputs[source].reshape(results[0].extents) for _, source in self.alias[:1]]
            return views if self.is_view else [None] * len(results)
        outputs = tuple(np.empty(spec.extents, spec.dtype.as_numpy_dtype) for spec in results)
        scratch = kernel.scratch_specs(NodeSpec(attrs, specs, results))
        made = tuple(np.empty(spec.extents, spec.dtype.as_numpy_dtype) for spec in scratch)
        with np.errstate(all="ignore"):
            kernel.bind(KernelCall(attrs, tuple(inputs), outputs, made))()
        return outputs

    def __call__(self, *inputs: Any, name: str | None = None, **attrs: Any) -> Any:
        """Adds this op to the default graph; returns its tensor, tuple of tensors, or Operation."""
        return build_op(self, inputs, attrs, name)

    def tensor(self, *inputs: Any, name: str | None = None, **attrs: Any) -> Tensor:
        """The tensor of an op with one output, added as by a call."""
        result: Tensor = build_op(self, inputs, attrs, name)
        return result

    def __repr__(self) -> str:
        return f"<OpDef {self.name}>"


def _refuse_strings(specs: Sequence[TensorSpec], gives: bool = False) -> None:
    """Raises InvalidArgumentError for a spec of strings, for an op that has no kernel for them."""
    for number, spec in enumerate(specs):
        if spec.dtype.is_string:
            raise InvalidArgumentError(
                f"{'output' if gives else 'input'} {number} is {spec}, and the op has no kernel for strings; "
                + ("tb.as_string makes strings" if gives else "tb.string_to_number makes numbers of them")
            )


def read_only(array: Array) -> Array:
    """A view of an array that cannot be written."""
    view: Array = array.view()
    view.flags.writeable = False
    return view


def _check_returned(returned: object, call: KernelCall) -> None:
    """Accepts the arrays that `out=` returns: the call's own outputs, or views of them."""
    own = [array for array in (*call.outputs, *call.scratch, *call.inputs) if array.flags.writeable]
    for result in returned if isinstance(returned, tuple) else (returned,):
        if not isinstance(result, np.ndarray) or not (
            result.size == 0 or any(np.may_share_memory(result, array) for array in own)
        ):
            raise InvalidArgumentError(
                f"its kernel returned {type(result).__name__} {reprlib.repr(result)}; expected None: "
                "a kernel writes its results, for example by np.copyto(call.outputs[0], ...) or out="
            )


REGISTERED_GRADIENTS: dict[str, GradientRule] = {}  # by name, for `Graph.gradient_override_map`


def gradient_of(op: Operation, gradients: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """Calls the gradient rule of an op and checks that it gives one result per input.

    Raises InvalidArgumentError, naming the op and the user's line, for another number of results.
    """
    rule = op.definition.gradient
    if isinstance(op.gradient_override, str):
        found = REGISTERED_GRADIENTS.get(op.gradient_override)
        if found is None:
            raise NotFoundError(
                f"gradient of {op.type} {op.name}: {op.gradient_override!r:.60} is not registered; use "
                f"tb.RegisterGradient (the op was made at {op.source})"
            )
        result = found(op, *gradients)
        return check_gradients(op, [result] if result is None or hasattr(result, "spec") else result)
    if isinstance(rule, _NotDifferentiable):
        return [None] * len(op.inputs)
    return check_gradients(op, rule(op, *gradients))


def check_gradients(op: Operation, result: object) -> Sequence[Tensor | None]:
    """Results of a gradient rule, one per input. Raises InvalidArgumentError for anything else."""
    count = len(op.inputs)
    if not isinstance(result, (list, tuple)) or (isinstance(result, tuple) and hasattr(result, "_fields")):
        got = type(result).__name__
    elif len(result) != count:
        got = f"{len(result)} results"
    elif wrong := [each for each in result if each is not None and not hasattr(each, "spec")]:
        got = f"{type(wrong[0]).__name__} {reprlib.repr(wrong[0])} in it"
    else:
        return result
    raise InvalidArgumentError(
        f"gradient of {op.definition.name} must return a list of {count} (a tensor per input, None for "
        f"an input without gradient), got {got} ({op.name} was made at {op.source})"
    )
