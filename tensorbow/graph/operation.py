"""Operations and tensors: the nodes and edges of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph.defaults import require_session
from tensorbow.graph.known_values import known_value
from tensorbow.graph.user_lines import UserLine
from tensorbow.kinds import SHAPE, read_as
from tensorbow.specs import Array, DimensionShape, DType, TensorShape, TensorSpec, compatible, render_dims

if TYPE_CHECKING:
    from tensorbow.graph.control_flow import ControlFlowContext
    from tensorbow.graph.definition import Attrs, OpDef
    from tensorbow.graph.graph import Graph


class TensorOperators:
    """Operators of tensors and variables, which the ops layer installs, for type checkers."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __rand__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __ror__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __rxor__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...


class Tensor(TensorOperators):
    """One output of an operation: an edge of the graph, named `"op:index"`. Holds no value."""

    __slots__ = ("_spec", "index", "op")
    __array_priority__ = 100  # NumPy arrays on the left leave the operator to us

    def __init__(self, op: Operation, index: int, spec: TensorSpec):
        self.op = op
        self.index = index
        self._spec = spec

    @property
    def spec(self) -> TensorSpec:
        """Static shape and dtype, and the value if it is known."""
        return self._spec

    @property
    def known_value(self) -> Array | None:
        """The value, if it is small and follows from constants and static shapes alone."""
        return known_value(self)

    @property
    def name(self) -> str:
        """`"op:index"`."""
        return f"{self.op.name}:{self.index}"

    @property
    def graph(self) -> Graph:
        """The tensor's graph."""
        return self.op.graph

    @property
    def device(self) -> str:
        """The device requested for its op, or ''."""
        return self.op.device

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._spec.dtype

    @property
    def shape(self) -> TensorShape:
        """Static shape."""
        return TensorShape(self._spec.shape)

    def get_shape(self) -> TensorShape:
        """Static shape (TensorFlow's older name), whose unknown extents have TensorFlow 1's `value`, too."""
        return DimensionShape(self.shape)

    def set_shape(self, shape: Any) -> None:
        """Adds known extents to the static shape. Raises InvalidArgumentError if they contradict it."""
        dims = read_as(SHAPE, shape, "set_shape", "shape").dims
        known = self._spec.shape
        if dims is None:
            return
        if not compatible(known, dims):
            raise InvalidArgumentError(
                f"set_shape of {self.name}: {render_dims(dims)} contradicts the known {self.shape}"
            )
        if known is not None:
            dims = tuple(b if a is None else a for a, b in zip(known, dims, strict=True))
        self._spec = TensorSpec(dims, self._spec.dtype, self._spec.value)

    def consumers(self) -> list[Operation]:
        """The operations that read this tensor, in order of creation."""
        return self.op.graph.consumers(self)

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """The tensor's value, computed by the given or the default session."""
        return require_session(session, f"eval of {self.name}").run(self, feed_dict)

    def __repr__(self) -> str:
        return f"<tb.Tensor '{self.name}' shape={self.shape} dtype={self.dtype.name}>"

    def __iter__(self) -> Iterator[Tensor]:
        raise TypeError(
            f"{self.name} is a symbolic tensor: it cannot be iterated over; use session.run first"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.name} is a symbolic tensor: it has no array; use session.run first")

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self.name} is a symbolic tensor: it has no truth value while the graph is built; "
            "use tb.where or session.run first"
        )

    if TYPE_CHECKING:  # installed by the ops layer

        def assign(self, value: Any, name: str | None = None) -> Tensor:
            """Assigns to a slice of a variable."""
            ...

    __hash__ = object.__hash__  # by identity

    def __eq__(self, other: object) -> bool:
        return self is other

    # The ops layer, which lies above this one, installs the arithmetic operators.
    operators: ClassVar[set[str]] = set()

    @classmethod
    def install_operator(cls, method: str, function: Callable[..., Any]) -> None:
        """Makes `method` (for example `__add__`) of every tensor call a function."""

        cls.install_method(method, function)
        cls.operators.add(method)

    @classmethod
    def install_method(cls, method: str, function: Callable[..., Any]) -> None:
        """Makes `method` of every tensor, but not of variables, call a function."""

        def called(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            return function(self, *args, **kwargs)

        called.__name__ = method
        called.__doc__ = function.__doc__
        setattr(cls, method, called)


@dataclass(frozen=True, eq=False)
class GradientBlock:
    """A function with a gradient of its own: `rule(*gradients of the outputs)` gives those of the inputs."""

    outputs: tuple[Operation, ...]  # one output each
    inputs: tuple[Tensor, ...]
    rule: Callable[..., Sequence[Any]]


class Operation:
    """A node of a graph: a definition with inputs, attributes and a name. Created by calling an op."""

    __slots__ = (
        "attrs",
        "colocation",
        "context",
        "control_inputs",
        "definition",
        "device",
        "gradient_override",
        "graph",
        "has_strings",
        "id",
        "inputs",
        "name",
        "outputs",
        "source",
    )

    def __init__(
        self,
        graph: Graph,
        identity: int,
        name: str,
        definition: OpDef,
        inputs: tuple[Tensor, ...],
        attrs: Attrs,
        control_inputs: tuple[Operation, ...],
        device: str,
        source: UserLine,
        specs: tuple[TensorSpec, ...],
    ):
        self.graph = graph
        self.id = identity  # position in creation order, which is program order
        self.name = name
        self.definition = definition
        self.inputs = inputs
        self.attrs = attrs
        self.control_inputs = control_inputs
        self.device = device
        self.context: ControlFlowContext | None = None  # the branch or loop it is in
        self.colocation: tuple[Operation, ...] = ()  # ops that share this one's device
        self.gradient_override: str | GradientBlock | None = None  # name of a registered gradient, or a block
        self.source = source
        self.outputs = tuple(Tensor(self, index, spec) for index, spec in enumerate(specs))
        self.has_strings = any(t._spec.dtype.is_string for t in (*inputs, *self.outputs))

    @property
    def leading_device(self) -> str:
        """The device that the ops ask for which it shares one with, of the last if several do, or ""."""
        return next((op.device for op in reversed(self.colocation) if op.device), "")

    def colocation_groups(self) -> list[bytes]:
        """Names of the ops whose device this one shares, as `loc:@name`; its own where it follows none."""
        return [f"loc:@{op.name}".encode() for op in self.colocation or (self,)]

    @property
    def is_dynamic(self) -> bool:
        """True if only the dynamic mode runs it: host functions, control flow, and any op of strings."""
        return self.has_strings or self.definition.is_dynamic

    @property
    def type(self) -> str:
        """Name of its definition, for example `MatMul`."""
        return self.definition.name

    def run(self, feed_dict: Any = None, session: Any = None) -> None:
        """Runs the operation in the given or the default session."""
        require_session(session, f"run of {self.name}").run(self, feed_dict)

    def __repr__(self) -> str:
        return f"<tb.Operation '{self.name}' type={self.type}>"
