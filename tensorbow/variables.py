"""Variables: tensors that keep their value between steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import NoneType
from typing import Annotated, Any, TypeAlias

from tensorbow.control_flow.contexts import LoopContext
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    GLOBAL_VARIABLES,
    TRAINABLE_VARIABLES,
    ControlFlowContext,
    Graph,
    GraphKeys,
    MadeByCreators,
    OpDef,
    Operation,
    Tensor,
    TensorOperators,
    control_dependencies,
    convert_to_tensor,
    get_default_graph,
    name_scope,
    register_collection_item,
    register_tensor_conversion,
    require_session,
)
from tensorbow.kinds import (
    ITEMS,
    TEXT,
    AsDType,
    AxisNumber,
    Flag,
    Kind,
    Name,
    Names,
    RefusedError,
    called,
    checked,
    instance,
    one_of,
    refuse,
)
from tensorbow.ops import nd_writes, scatter
from tensorbow.ops.checks import CheckBelow
from tensorbow.ops.control import group, identity, no_op, placeholder_with_default
from tensorbow.ops.elementwise import add
from tensorbow.ops.host_variables import ON_HOST, VARIABLES, HostVariable
from tensorbow.ops.indexing import gather
from tensorbow.ops.nd_indexing import gather_nd
from tensorbow.ops.state import COMBINE, Assign, AssignAdd, AssignSub, ReadVariable, VariableReference
from tensorbow.ops.variable_aggregation import (
    AsAggregation,
    AsSynchronization,
    VariableAggregation,
    VariableSynchronization,
    combined_on_read,
)
from tensorbow.ops.variable_rows import of_positions, of_slices, reading, skipping_unused
from tensorbow.specs import Array, DType, SaveSliceInfo, TensorShape, TensorSpec


def _read_slot(value: Any) -> tuple[Any, str, float]:
    if not isinstance(value, tuple) or len(value) != 3 or not isinstance(value[0], (Variable, NoneType)):
        raise RefusedError
    return value[0], TEXT.read(value[1]), float(value[2])


Slot: TypeAlias = Annotated[Any, Kind("(variable or None, name of the slot, number)", _read_slot)]


class Variable(TensorOperators, metaclass=MadeByCreators):
    """A tensor with state, as in TensorFlow 1.

    Reads and writes follow program order: an op sees the writes that were created before
    it. A fetched variable gives its value after all writes of the run.

    In replicated training each replica has its own copy; `combine` says how copies become the
    central model's value: `sma` (averaged while training; the default of trainable ones), `mean`, `sum`,
    or `first` (replica 0's, the default of others). TensorFlow's `synchronization=ON_READ` with an
    `aggregation` says the same as the last three.
    """

    @checked
    def __init__(
        self,
        initial_value: Any,
        trainable: Flag | None = None,
        collections: Names | None = None,
        validate_shape: Flag = True,
        *,
        name: Name = None,
        dtype: AsDType | None = None,
        combine: Annotated[str, one_of(*COMBINE)] | None = None,
        decayed: Flag | None = None,
        slot: Slot | None = None,
        synchronization: AsSynchronization = VariableSynchronization.AUTO,
        aggregation: AsAggregation = VariableAggregation.NONE,
        use_resource: Flag | None = None,
    ):
        """Adds a variable to the default graph.

        initial_value: a tensor or a value that converts to one, of fully known shape, or a
            function without arguments that returns one.
        validate_shape: False for a variable whose shape an assignment may change, and whose initial value
            may be of unknown shape. Such a variable, and one of strings, is in host memory, for steps in the
            dynamic mode and `assign`, `assign_add` and `assign_sub`; no optimiser and no replica has it.
        decayed: weight decay applies to it; by default for trainable variables of rank 2 and more.
        trainable: optimisers change it by default; ignored for integer and bool dtypes, and in host memory.
            By default True, with ON_READ False.
        slot: (variable, slot name, initial value of the elements), set by optimisers. Without a variable the
            slot belongs to all variables, and keeps its value where slots start anew.
        synchronization, aggregation: see `tb.VariableSynchronization` and `tb.VariableAggregation`.
        use_resource: TensorFlow's; has no effect.

        Raises InvalidArgumentError for an initial value whose shape is not fully known, or that does not
        convert to `dtype`, for an unknown `combine`, one that adds bools up or is the mean of
        integers, for a synchronisation that is not supported or does not fit the other arguments, and for
        `combine`, `slot` or a container with a variable in host memory.
        """
        combine, trainable = combined_on_read(synchronization, aggregation, combine, trainable)
        with (  # in no branch or loop, so that all can read it
            get_default_graph().in_context(None),
            control_dependencies(None),
            name_scope(name or "Variable") as scope,
        ):
            initial = _initial_tensor(initial_value, dtype)
            on_host = initial.dtype.is_string or not validate_shape
            if on_host:
                _require_no_replicas(scope[:-1], combine, slot)
                trainable = False
                shape = initial.spec.shape if validate_shape else None
                initial = placeholder_with_default(initial, shape, name="given")
            elif not initial.spec.is_static:
                raise InvalidArgumentError(
                    f"variable {scope[:-1]}: the initial value is {initial.spec}; its shape must be fully "
                    "known, or validate_shape=False given"
                )
            trainable = trainable and initial.dtype.is_floating
            combine = combine or ("sma" if trainable else "first")
            if decayed is None:
                decayed = trainable and initial.spec.rank >= 2
            owner = slot[0] if slot else None
            role = "slots" if owner is not None else "weights" if trainable else "statistics"
            if on_host:
                self._ref: Tensor = HostVariable(shape=initial.spec.shape, dtype=initial.dtype, name=scope)
            else:
                self._ref = VariableReference(
                    shape=initial.spec.shape,
                    dtype=initial.dtype,
                    role=role,
                    decayed=decayed,
                    combine=combine,
                    slot_of=owner.op.name if owner is not None else "",
                    slot_name=slot[1] if slot else "",
                    slot_value=slot[2] if slot else 0.0,
                    container=get_default_graph().current_container,
                    name=scope,
                )
                if owner is not None and not self._ref.op.colocation:
                    self._ref.op.device = owner.op.device  # with its variable, whatever scope it is made in
            self.initial_value = initial
            self._initializer: Tensor = self._op(Assign)(self._ref, initial, name="Assign")
            self._read: Tensor = self._op(ReadVariable)(self._ref, name="read")
            self._reads: dict[ControlFlowContext, Tensor] = {}  # the last ones in branches and loops
        self.trainable = trainable
        self.save_slice_info: SaveSliceInfo | None = None
        """Its place in a partitioned variable, if it is a part of one, or the slot of a part."""
        if owner is not None and owner.save_slice_info and owner.shape.dims == initial.spec.shape:
            cut, own = owner.save_slice_info, self.op.name.removeprefix(owner.op.name)
            self.save_slice_info = replace(cut, full_name=f"{cut.full_name}{own}")
        graph = self._ref.graph
        for collection in [GLOBAL_VARIABLES] if collections is None else collections:
            graph.add_to_collection(collection, self)
        if trainable:
            graph.add_to_collection(TRAINABLE_VARIABLES, self)

    @classmethod
    def _restored(cls, content: Any, lookup: Callable[[str], Operation | Tensor]) -> Variable:
        """A variable of a GraphDef, from imported operations. Raises InvalidArgumentError."""
        if not isinstance(content, dict) or {*content} - {"slice"} != {*_PARTS, "trainable"}:
            raise InvalidArgumentError(f"a variable is {', '.join(_PARTS)} and trainable")
        parts = {part: lookup(content[part]) for part in _PARTS}
        ref, initial, initializer, read = parts.values()
        holds = (
            isinstance(ref, Tensor)
            and isinstance(initial, Tensor)
            and isinstance(initializer, Tensor)
            and isinstance(read, Tensor)
            and ref.op.definition in VARIABLES
            and initializer.op.definition in (Assign, ON_HOST[Assign])
            and initializer.op.inputs == (ref, initial)
            and read.op.definition in (ReadVariable, ON_HOST[ReadVariable])
            and read.op.inputs == (ref,)
            and isinstance(content["trainable"], bool)
            and (ref.dtype.is_floating or not content["trainable"])
        )
        if not holds:
            raise InvalidArgumentError(f"{', '.join(str(content[part]) for part in _PARTS)} are no variable")
        self = cls.__new__(cls)
        self._ref, self.initial_value, self._initializer, self._read = parts.values()  # type: ignore[assignment]
        self._reads = {}
        self.trainable = content["trainable"]
        self.save_slice_info = _read_slice(content["slice"], self._ref.spec) if "slice" in content else None
        return self

    def _starts_with(self, value: Array) -> None:
        """Makes the initializer assign an array of its shape, in place of its initial value."""
        with self.graph.as_default(), control_dependencies(None), name_scope(f"{self.op.name}/"):
            self.initial_value = convert_to_tensor(value, self.dtype, name="read_from_checkpoint")
            if self._ref.op.definition is HostVariable:
                self.initial_value = placeholder_with_default(self.initial_value, self.shape, name="given")
            self._initializer = self._op(Assign)(self._ref, self.initial_value, name="Assign")

    def _op(self, definition: OpDef) -> OpDef:
        """The op that does the same for this variable, beside its storage if that is in host memory."""
        return ON_HOST[definition] if self._ref.op.definition is HostVariable else definition

    def _parts(self) -> dict[str, Any]:
        """The operations and tensors that `_restored` needs."""
        elements = (self._ref, self.initial_value, self._initializer, self._read)
        names = {part: element.name for part, element in zip(_PARTS, elements, strict=True)}
        info = self.save_slice_info
        cut = {} if info is None else {"slice": [info.full_name, info.full_shape, info.var_offset]}
        return {**names, "trainable": self.trainable, **cut}

    @property
    def name(self) -> str:
        """The name, as `"w:0"`."""
        return self._ref.name

    @property
    def op(self) -> Operation:
        """The operation that represents its storage."""
        return self._ref.op

    @property
    def graph(self) -> Graph:
        """The variable's graph."""
        return self._ref.graph

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._ref.dtype

    @property
    def shape(self) -> TensorShape:
        """Its shape, fully known unless assignments may change it."""
        return self._ref.shape

    def get_shape(self) -> TensorShape:
        """Its shape (TensorFlow's older name), as `Tensor.get_shape`."""
        return self._ref.get_shape()

    @property
    def device(self) -> str:
        """The device requested for it, or ''."""
        return self._ref.op.device

    @property
    def initializer(self) -> Operation:
        """The operation that assigns its initial value."""
        return self._initializer.op

    def value(self) -> Tensor:
        """The value at this point of the program.

        A branch reads it in the branch, so that it needs none where the branch is not taken.
        """
        written = max((op.id for op in self.graph.consumers(self._ref) if op.definition.writes), default=-1)
        if self.graph.has_control_dependencies:
            return self.read_value()
        context = self.graph.context
        around = [] if context is None else [*context.chain()]
        known = [self._reads[each] for each in around if each in self._reads]
        if not around or any(isinstance(each, LoopContext) for each in around):
            known.append(self._read)
        for read in known:
            if read.op.id > written:
                return read
        made = self.read_value()
        if context is None:
            self._read = made
        else:
            self._reads[context] = made
        return made

    def read_value(self) -> Tensor:
        """A new read at this point of the program, after the current control dependencies."""
        return self._op(ReadVariable).tensor(self._ref, name=f"{self.op.name.rpartition('/')[2]}/read")

    def initialized_value(self) -> Tensor:
        """The value, for initial values of other variables: initialisers run in program order.

        Unlike in TensorFlow, it must be initialised before, or in the same run.
        """
        return self.value()

    @checked
    def assign(self, value: Any, use_locking: Flag | None = None, *, name: Name = None) -> Tensor:
        """Assigns a value; the result is the variable's value right after.

        use_locking: TensorFlow's; writes are always whole.
        """
        return self._write(Assign, value, name)

    @checked
    def assign_add(self, delta: Any, use_locking: Flag | None = None, *, name: Name = None) -> Tensor:
        """Adds to the value; the result is the variable's value right after.

        use_locking: TensorFlow's; writes are always whole.
        """
        return self._write(AssignAdd, delta, name)

    @checked
    def assign_sub(self, delta: Any, use_locking: Flag | None = None, *, name: Name = None) -> Tensor:
        """Subtracts from the value; the result is the variable's value right after.

        use_locking: TensorFlow's; writes are always whole.
        """
        return self._write(AssignSub, delta, name)

    @checked
    def count_up_to(self, limit: AxisNumber) -> Tensor:
        """Adds 1 to an integer scalar below `limit`, and returns the value before; see `tb.count_up_to`."""
        return count_up_to(self, limit)

    scatter_add = of_slices("scatter_add", skipping_unused(scatter.ScatterAdd), "Adds")
    scatter_sub = of_slices("scatter_sub", skipping_unused(scatter.ScatterSub), "Subtracts")
    scatter_update = of_slices("scatter_update", scatter.scatter_update, "Sets")
    scatter_mul = of_slices("scatter_mul", scatter.scatter_mul, "Multiplies by")
    scatter_div = of_slices("scatter_div", scatter.scatter_div, "Divides by")
    scatter_max = of_slices("scatter_max", scatter.scatter_max, "Takes the greater of it and")
    scatter_min = of_slices("scatter_min", scatter.scatter_min, "Takes the smaller of it and")
    batch_scatter_update = of_slices(
        "batch_scatter_update", nd_writes.batch_scatter_update, "Sets, in each example,"
    )
    scatter_nd_add = of_positions("scatter_nd_add", nd_writes.scatter_nd_add)
    scatter_nd_sub = of_positions("scatter_nd_sub", nd_writes.scatter_nd_sub)
    scatter_nd_update = of_positions("scatter_nd_update", nd_writes.scatter_nd_update)
    sparse_read = reading("sparse_read", gather, "The rows `indices` of the value: `tb.gather`.")
    gather_nd = reading("gather_nd", gather_nd, "The slices of the value at positions: `tb.gather_nd`.")

    def _write(self, op: Any, value: Any, name: str | None) -> Tensor:
        with self.graph.as_default():
            result: Tensor = self._op(op)(self._ref, convert_to_tensor(value, self.dtype), name=name)
        return result

    def eval(self, session: Any = None) -> Any:
        """The value in the given or the default session."""
        return self._ref.eval(session=session)

    def load(self, value: Any, session: Any = None) -> None:
        """Assigns an array in the given or the default session; adds nothing to the graph."""
        require_session(session, f"load of {self.name}").load_variables({self.op.name: value})

    def _as_graph_element(self) -> Tensor:
        return self._ref

    __array_priority__ = 100  # NumPy arrays on the left leave the operator to us

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.name} is a variable of a graph: it has no array; use session.run first")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            f"{self.name} is a variable of a graph: it cannot be iterated over; use session.run first"
        )

    def __repr__(self) -> str:
        return f"<tb.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}>"

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def _require_no_replicas(name: str, combine: Any, slot: Any) -> None:
    """Raises InvalidArgumentError for what only variables on devices have."""
    container = get_default_graph().current_container
    asked = {"combine": combine, "slot": slot, "container": container}
    for argument, value in asked.items():
        if value:
            raise InvalidArgumentError(
                f"variable {name}: one of strings, or with validate_shape=False, is in host memory of "
                f"one session: expected no {argument}, got {value!r:.60}; leave it out, or "
                "give numbers of a fixed shape"
            )


VARIABLE = instance(Variable, expected="a tb.Variable")
AsVariable: TypeAlias = Annotated[Variable, VARIABLE]
Variables: TypeAlias = Annotated[
    Sequence[Variable], Kind("a list of variables", lambda value: [*map(VARIABLE.read, ITEMS.read(value))])
]


def _read_slice(content: Any, part: TensorSpec) -> SaveSliceInfo:
    """The place of a part, of a GraphDef. Raises InvalidArgumentError."""
    with contextlib.suppress(TypeError, ValueError):
        name, shape, offset = content
        info = SaveSliceInfo(TEXT.read(name), (*map(int, shape),), (*map(int, offset),), part.extents)
        ends = zip(info.var_offset, info.var_shape, info.full_shape, strict=True)
        if all(0 <= start <= start + extent <= whole for start, extent, whole in ends):
            return info
    raise InvalidArgumentError(f"{content!r:.100} is no slice of a variable that has a part {part}")


_PARTS = ("reference", "initial_value", "initializer", "read")
register_collection_item("variable", Variable, Variable._parts, Variable._restored)


def _initial_tensor(initial_value: Any, dtype: Any) -> Tensor:
    """Makes the tensor in the variable's scope; functions run in scope `Initializer`, as in TensorFlow."""
    if not callable(initial_value):
        return convert_to_tensor(initial_value, dtype, name="initial_value")
    expected = "a value, or a function without arguments"
    if isinstance(initial_value, type):
        raise refuse("Variable", "initial_value", expected, initial_value)
    with name_scope("Initializer"):
        made = called(initial_value, op="Variable", argument="initial_value", expected=expected)
        try:
            return convert_to_tensor(made, dtype, name="initial_value")
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                f"Variable: initial_value: of the function's result: {error}"
            ) from None


def _overload(method: str) -> Callable[..., Any]:
    def operator(self: Any, *args: Any) -> Any:
        return getattr(Tensor, method)(self.value(), *args)

    operator.__name__ = method
    return operator


def install_operators(*kinds: type[TensorOperators]) -> None:
    """Gives kinds of variables all operators of tensors; called once, after all ops are defined."""
    for kind in kinds:
        for method in Tensor.operators:
            setattr(kind, method, _overload(method))


def _convert(value: Any, dtype: DType | None, name: str | None) -> Tensor:
    result: Tensor = value.value()
    return result


register_tensor_conversion(Variable, _convert)


@checked
def global_variables(scope: Name = None) -> list[Variable]:
    """All variables of the default graph, in order of creation; scope: see `Graph.get_collection`."""
    return get_default_graph().get_collection(GLOBAL_VARIABLES, scope)


@checked
def local_variables(scope: Name = None) -> list[Variable]:
    """Local variables, such as the counts of metrics; scope: see `Graph.get_collection`."""
    return get_default_graph().get_collection(GraphKeys.LOCAL_VARIABLES, scope)


@checked
def trainable_variables(scope: Name = None) -> list[Variable]:
    """The variables that optimisers change by default; scope: of names that begin so, as `"generator/"`."""
    return get_default_graph().get_collection(TRAINABLE_VARIABLES, scope)


@checked
def model_variables(scope: Name = None) -> list[Variable]:
    """Variables that a program has added to the collection MODEL_VARIABLES; layers add none to it."""
    return get_default_graph().get_collection(GraphKeys.MODEL_VARIABLES, scope)


@checked
def variables_initializer(variables: Variables, name: Name = "init") -> Operation:
    """One operation that initialises the given variables."""
    if not variables:
        return no_op(name=name or "init")
    return group(*[v.initializer for v in variables], name=name or "init")


def global_variables_initializer() -> Operation:
    """One operation that initialises all variables made so far."""
    return variables_initializer(global_variables())


def local_variables_initializer() -> Operation:
    """One operation that initialises all local variables made so far."""
    return variables_initializer(local_variables())


@checked
def assign(
    ref: AsVariable,
    value: Any,
    validate_shape: Flag | None = None,
    use_locking: Flag | None = None,
    *,
    name: Name = None,
) -> Tensor:
    """`ref.assign(value)`. validate_shape, use_locking: TensorFlow's; have no effect.

    A variable made with validate_shape=False takes values of any shape.
    """
    return ref.assign(value, name=name)


@checked
def assign_add(ref: AsVariable, value: Any, use_locking: Flag | None = None, *, name: Name = None) -> Tensor:
    """`ref.assign_add(value)`. use_locking: TensorFlow's; writes are always whole."""
    return ref.assign_add(value, name=name)


@checked
def assign_sub(ref: AsVariable, value: Any, use_locking: Flag | None = None, *, name: Name = None) -> Tensor:
    """`ref.assign_sub(value)`. use_locking: TensorFlow's; writes are always whole."""
    return ref.assign_sub(value, name=name)


@checked
def count_up_to(ref: AsVariable, limit: AxisNumber, *, name: Name = None) -> Tensor:
    """Adds 1 to a variable, an int32 or int64 scalar, and returns the value before.

    A step in which it is `limit` or more raises OutOfRangeError, and leaves it as it is.
    """
    with ref.graph.as_default(), name_scope(name or "CountUpTo"):
        count: Tensor = CheckBelow(ref.value(), limit=limit)
        with control_dependencies([ref.assign(add(count, 1))]):
            return identity(count)
