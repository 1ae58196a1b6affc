"""What an op is: one object that joins its spec, gradient and kernels.

`define_op` (in `tensorbow.ops.definition`) makes these; an `Operation` of a graph points at its
definition, so nothing is looked up by a string and nothing can be missing late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from tensorbow.errors import InternalError, InvalidArgumentError
from tensorbow.specs import Array, DType, TensorSpec, UnknownRankError

if TYPE_CHECKING:
    from tensorbow.graph.operation import Operation, Tensor

Attrs: TypeAlias = Mapping[str, Any]
SpecRule: TypeAlias = "Callable[[Sequence[TensorSpec], Attrs], TensorSpec | Sequence[TensorSpec]]"
GradientRule: TypeAlias = "Callable[..., Sequence[Tensor | None]]"


class _NotDifferentiable:
    """The explicit statement that an op has no gradient: `gradients` does not go through it."""

    def __repr__(self) -> str:
        return "NOT_DIFFERENTIABLE"


NOT_DIFFERENTIABLE = _NotDifferentiable()


@dataclass(frozen=True)
class NodeSpec:
    """An op with every shape known: what scratch rules and backends are asked about."""

    attrs: Attrs
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class KernelCall:
    """One bound call of a kernel: arrays that are views of fixed addresses, made once at bind time."""

    attrs: Attrs
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    scratch: tuple[Array, ...] = ()
    state: Mapping[str, Array] = field(default_factory=dict)  # 0-d arrays that change from step to step


@dataclass(frozen=True)
class Kernel:
    """The implementation of one op on one kind of device.

    `run(call)` reads `call.inputs` (any strides, never written) and writes every element of
    `call.outputs`; it allocates no tensor memory, temporary arrays come from `scratch`.
    `prepare(call)`, where given, does work that can be done once (views, index tables) and returns
    the function that runs the step.

    `inplace` pairs (output, input) may share memory where the input is used for the last time.
    `pointwise` is for ops that write variables: the kernel reads an element of every input before it
    writes that element of the variable, so that an input of the same shape may be the variable itself.
    """

    run: Callable[[KernelCall], None] | None = None
    prepare: Callable[[KernelCall], Callable[[], None]] | None = None
    scratch: Callable[[NodeSpec], Sequence[TensorSpec]] | None = None
    inplace: tuple[tuple[int, int], ...] = ()
    pointwise: bool = False
    capturable: bool = True
    dynamic: bool = False

    def __post_init__(self) -> None:
        if (self.run is None) == (self.prepare is None):
            raise InvalidArgumentError("a Kernel takes either run= or prepare=")

    def bind(self, call: KernelCall) -> Callable[[], None]:
        """The step function of one bound call."""
        if self.prepare is not None:
            return self.prepare(call)
        run = self.run
        if run is None:
            raise InternalError("a Kernel without run and prepare")
        return lambda: run(call)

    def scratch_specs(self, node: NodeSpec) -> tuple[TensorSpec, ...]:
        """What the kernel wants beside inputs and outputs, as specs of fully known shape."""
        return () if self.scratch is None else tuple(self.scratch(node))


@dataclass(frozen=True, eq=False)
class OpDef:
    """An op: its name, what its results look like, its gradient, and a kernel per kind of device.

    spec      (input specs, attrs) -> output spec(s); raises InvalidArgumentError. May read the
              `value` of inputs listed in `shape_inputs`, and give the `value` of a result. Reads of
              `.dims` of a tensor of unknown rank give results of unknown rank, with the dtypes of
              `unknown_dtypes`.
    gradient  (op, *output_gradients) -> a gradient or None per input; an output gradient is None
              where nothing flows.
    alias     (output, input) pairs that are the same storage; an op with an alias and no kernel is
              a view and costs nothing.
    writes    inputs (variable references) that the kernel changes.
    ignores   inputs (variable references) that the kernel does not read before it writes them.
    update    (variable input, gradient input): the optimiser's local update of a variable.
    """

    name: str
    spec: SpecRule
    gradient: GradientRule | _NotDifferentiable
    kernels: dict[str, Kernel]
    input_names: tuple[str, ...] = ()
    attrs: Attrs = field(default_factory=dict)  # names and defaults; a default of REQUIRED must be given
    uniform_dtype: bool = False  # Python numbers take the dtype of the other inputs
    shape_inputs: tuple[int, ...] = ()  # inputs whose values decide shapes: must fold to constants
    unknown_dtypes: Callable[[Sequence[TensorSpec], Attrs], Sequence[DType]] | None = None
    alias: tuple[tuple[int, int], ...] = ()
    writes: tuple[int, ...] = ()
    ignores: tuple[int, ...] = ()
    update: tuple[int, int] | None = None
    stateful: bool = False  # has an effect or an identity of its own: never folded, merged or dropped
    random: bool = False  # draws numbers: gets a STATE counter, never folded or merged
    state: tuple[str, ...] = ()  # STATE scalars the kernel reads
    doc: str = ""

    def infer(self, inputs: Sequence[TensorSpec], attrs: Attrs) -> tuple[TensorSpec, ...]:
        """The specs of the outputs. Raises InvalidArgumentError for inputs that do not fit."""
        try:
            result = self.spec(inputs, attrs)
        except UnknownRankError:
            if self.unknown_dtypes is not None:
                dtypes = self.unknown_dtypes(inputs, attrs)
            else:
                dtypes = (inputs[0].dtype,)
            return tuple(TensorSpec(None, dtype) for dtype in dtypes)
        results = (result,) if isinstance(result, TensorSpec) else tuple(result)
        return tuple(_without_value(r) if any(r is x for x in inputs) else r for r in results)

    @property
    def is_view(self) -> bool:
        """Whether the output is the input's storage under another shape, with nothing to compute."""
        return bool(self.alias) and not self.kernels

    def __call__(self, *inputs: Any, name: str | None = None, **attrs: Any) -> Any:
        """Adds this op to the default graph; returns its tensor, tensors, or the Operation itself."""
        from tensorbow.graph.build import build_op

        return build_op(self, inputs, attrs, name)

    def __repr__(self) -> str:
        return f"<OpDef {self.name}>"


def _without_value(spec: TensorSpec) -> TensorSpec:
    """For a rule that gives back an input's spec: it speaks of shape and dtype, not of the value."""
    return spec if spec.value is None else TensorSpec(spec.shape, spec.dtype)


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


def gradient_of(op: Operation, gradients: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """Calls the gradient rule of an op and checks that it gives one result per input."""
    rule = op.definition.gradient
    if isinstance(rule, _NotDifferentiable):
        return [None] * len(op.inputs)
    result = list(rule(op, *gradients))
    if len(result) != len(op.inputs):
        raise InvalidArgumentError(
            f"gradient of {op.definition.name}: expected {len(op.inputs)} results (one per input), "
            f"got {len(result)}; return None for an input without gradient"
        )
    return result
