"""`get_variable` and `variable_scope`: variables by name, shared where the program requests it.

As in TensorFlow 1, a variable's name has the variable scopes around it as prefix; name scopes do
not count.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow import initializers
from tensorbow.call_errors import UnfitError
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    Graph,
    GraphKeys,
    Tensor,
    as_tensor,
    colocate_with,
    convert_to_tensor,
    get_default_graph,
    name_scope,
)
from tensorbow.kinds import (
    FLAG,
    TEXT,
    AsDType,
    AsShape,
    Flag,
    Function,
    Items,
    Kind,
    Name,
    Names,
    RefusedError,
    Text,
    called,
    check_fields,
    checked,
    instance,
    is_tensor,
    one_of,
    optional,
    refuse,
    shown,
)
from tensorbow.ops.state import COMBINE
from tensorbow.ops.variable_aggregation import (
    AsAggregation,
    AsSynchronization,
    VariableAggregation,
    VariableSynchronization,
)
from tensorbow.partitioned_variables import PartitionedVariable, Partitioner, slices_of
from tensorbow.specs import DType, SaveSliceInfo, TensorShape, TensorSpec, compatible, float32
from tensorbow.variables import Variable

_STORE = "_variable_store"  # collection with the graph's single store


class _AutoReuse:
    """Type of AUTO_REUSE, which shares existing variables and makes missing ones."""

    def __repr__(self) -> str:
        return "AUTO_REUSE"


AUTO_REUSE = _AutoReuse()


def _read_reuse(value: Any) -> bool | _AutoReuse:
    return AUTO_REUSE if value is AUTO_REUSE else FLAG.read(value)  # type: ignore[no-any-return]


def _read_initializer(value: Any) -> Any:
    if isinstance(value, (bytes, dict, set)) or (isinstance(value, type) and not _makes(value)):
        raise RefusedError
    return value


def _makes(value: type) -> bool:
    return issubclass(value, initializers.Initializer)


Reuse: TypeAlias = Annotated[bool | _AutoReuse, Kind("True, False or tb.AUTO_REUSE", _read_reuse)]
Start: TypeAlias = Annotated[
    Any, Kind("the name of an initializer, a function of shape and dtype, or a value", _read_initializer)
]


@dataclass
class VariableScope:
    """A prefix of names, with defaults for `get_variable`.

    reuse: False makes variables, True finds existing ones, AUTO_REUSE does either. custom_getter: see
    `get_variable`.
    """

    name: Text = ""
    reuse: Reuse = False
    initializer: Start | None = None
    dtype: AsDType = float32
    regularizer: Function | None = None
    partitioner: Partitioner = None
    custom_getter: Function | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def original_name_scope(self) -> str:
        """The scope's name with a trailing slash, or ''."""
        return f"{self.name}/" if self.name else ""

    def reuse_variables(self) -> None:
        """Sets `reuse` to True, from here to the end of the scope."""
        self.reuse = True


@dataclass
class _Store:
    """A graph's variables by name, and the entered scopes."""

    variables: dict[str, Variable | PartitionedVariable] = field(default_factory=dict)
    scopes: list[VariableScope] = field(default_factory=lambda: [VariableScope()])
    labels: dict[str, set[str]] = field(default_factory=dict)  # by scope: used since it was entered

    def inside(self, scope: str) -> dict[str, set[str]]:
        """Labels used in a scope and in those below it, as a copy."""
        prefix = f"{scope}/" if scope else ""
        return {name: set(used) for name, used in self.labels.items() if f"{name}/".startswith(prefix)}

    def unused(self, scope: str, wanted: str) -> str:
        """The label, or the label with the first number not yet used in the scope."""
        known = self.labels.get(scope, set())
        numbered = (f"{wanted}_{number}" for number in count(1))
        return next(label for label in chain([wanted], numbered) if label not in known)


def _store(graph: Graph) -> _Store:
    found = graph.get_collection(_STORE)
    if not found:
        graph.add_to_collection(_STORE, _Store())
        found = graph.get_collection(_STORE)
    store: _Store = found[0]
    return store


def get_variable_scope() -> VariableScope:
    """The current variable scope."""
    return _store(get_default_graph()).scopes[-1]


ScopeOrName: TypeAlias = Annotated[
    Any,
    optional(TEXT | instance(VariableScope, expected="a tb.VariableScope")),
]


@checked
@contextmanager
def variable_scope(
    name_or_scope: ScopeOrName,
    default_name: Name = None,
    values: Items | None = None,
    initializer: Start | None = None,
    regularizer: Function | None = None,
    *,
    reuse: Reuse | None = None,
    dtype: AsDType | None = None,
    partitioner: Partitioner = None,
    custom_getter: Function | None = None,
    use_resource: Flag | None = None,
) -> Iterator[VariableScope]:
    """Prefixes the names of variables from `get_variable`, and of ops made inside.

    A scope object, as yielded before, is entered again under its whole name, not below the current one.
    The name "" sets options without a name: it adds nothing to names at the top, a slash below other scopes
    (`a//x`), as in TensorFlow 1, and opens no name scope.
    `default_name` is used if the name is None, with a number if the scope around it has used that
    name since it was entered: entered again with `reuse`, it finds the same variables in the same order.
    Scopes inside a reusing scope reuse, too, except for a scope object that does not.
    custom_getter: see `get_variable`; given one that the scope has, it is called first. use_resource:
    TensorFlow's; has no effect.
    Raises InvalidArgumentError if there is no name, and for `reuse` with None.
    """
    graph = get_default_graph()
    store = _store(graph)
    outer = store.scopes[-1]
    if isinstance(name_or_scope, VariableScope):
        inner, label = replace(name_or_scope), name_or_scope.name.rpartition("/")[2]
    else:
        label = name_or_scope
        if label is None:
            if not default_name:
                raise InvalidArgumentError("variable_scope: give a name, or default_name with None")
            if reuse:
                raise InvalidArgumentError(
                    f"variable_scope: reuse={reuse} needs a name, got None; name the scope to share"
                )
            label = store.unused(outer.name, default_name)
        inner = replace(outer, name=f"{outer.original_name_scope}{label}")
    if initializer is not None:
        inner = replace(inner, initializer=initializer)
    if regularizer is not None:
        inner = replace(inner, regularizer=regularizer)
    if dtype is not None:
        inner = replace(inner, dtype=dtype)
    if partitioner is not None:
        inner = replace(inner, partitioner=partitioner)
    if custom_getter is not None:
        inner = replace(inner, custom_getter=_before(custom_getter, inner.custom_getter))
    if reuse:
        inner = replace(inner, reuse=reuse)
    above, _, own = inner.name.rpartition("/")
    store.labels.setdefault(above, set()).add(own)
    kept = store.inside(inner.name) if isinstance(name_or_scope, VariableScope) else {}
    store.scopes.append(inner)
    try:
        with name_scope(label) if label else nullcontext():
            yield inner
    finally:
        store.scopes.pop()
        for scope in store.inside(inner.name):
            del store.labels[scope]
        store.labels.update(kept)


@checked
def get_variable(
    name: Text,
    shape: AsShape | None = None,
    dtype: AsDType | None = None,
    initializer: Start | None = None,
    regularizer: Function | None = None,
    *,
    trainable: Flag | None = None,
    collections: Names | None = None,
    combine: Annotated[str, one_of(*COMBINE)] | None = None,
    decayed: Flag | None = None,
    synchronization: AsSynchronization = VariableSynchronization.AUTO,
    aggregation: AsAggregation = VariableAggregation.NONE,
    partitioner: Partitioner = None,
    custom_getter: Function | None = None,
    validate_shape: Flag = True,
    use_resource: Flag | None = None,
) -> Any:
    """The variable of that name in the current scope: made, or found if the scope reuses.

    initializer: a name, a function of shape and dtype, or a value; by default the scope's, else Glorot's
    uniform initialiser for floats and zeros for other dtypes. A value needs no shape.
    regularizer: a function of the variable's tensor that gives a scalar loss, or None; by default the
    scope's. When the variable is made, the loss is added to the collection REGULARIZATION_LOSSES.
    partitioner: a function of shape and dtype that gives the number of parts along each axis, such as
    `tb.fixed_size_partitioner(3)`, or None; by default the scope's. Then the result is a
    `tb.PartitionedVariable`, except for scalars; each part is initialised and regularised by itself. An
    initialiser with the argument `partition_info` is told the slice.
    custom_getter: a function (getter, name, **arguments), or None; the scope's is called behind it. It gives
    the result, as a variable of getter(name, **arguments) or what it computes of one. `name` is the whole
    name, and the arguments are `get_variable`'s others, with the scope's where none are given, and `reuse`.
    validate_shape: as of `tb.Variable`. use_resource: TensorFlow's; has no effect.

    Raises InvalidArgumentError for an existing variable without reuse, a missing one with reuse, and
    one of another shape or dtype than requested.
    """
    if not name:
        raise refuse("get_variable", "name", "a name that is not empty", name)
    scope = get_variable_scope()
    chosen = scope.initializer if initializer is None else initializer
    own_getter = scope.custom_getter
    if custom_getter is not None:
        own_getter = _before(custom_getter, own_getter)
    arguments: dict[str, Any] = {
        "shape": shape,
        "dtype": dtype,
        "initializer": chosen,
        "regularizer": scope.regularizer if regularizer is None else regularizer,
        "reuse": scope.reuse,
        "trainable": trainable,
        "collections": collections,
        "partitioner": scope.partitioner if partitioner is None else partitioner,
        "synchronization": synchronization,
        "aggregation": aggregation,
        "combine": combine,
        "decayed": decayed,
        "validate_shape": validate_shape,
    }
    full = f"{scope.original_name_scope}{name}"
    if own_getter is None:
        return getter(full, **arguments)
    if dtype is None and not _is_value(chosen):
        arguments["dtype"] = scope.dtype
    if trainable is None:
        arguments["trainable"] = synchronization != VariableSynchronization.ON_READ
    try:
        inspect.signature(own_getter).bind(getter, full, **arguments)
    except ValueError:  # its signature is unknown
        pass
    except TypeError:
        expected = "a function (getter, name, **arguments)"
        raise refuse("get_variable", "custom_getter", expected, own_getter) from None
    return own_getter(getter, full, **arguments)


def _before(own: Callable[..., Any], other: Callable[..., Any] | None) -> Callable[..., Any]:
    """A getter that calls `own`, whose getter is the other one."""
    if other is None:
        return own

    def both(getter: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return own(partial(other, getter), *arguments, **named)

    return both


@checked
def getter(
    name: Text,
    shape: AsShape | None = None,
    dtype: AsDType | None = None,
    initializer: Start | None = None,
    regularizer: Function | None = None,
    reuse: Reuse | None = None,
    trainable: Flag | None = None,
    collections: Names | None = None,
    partitioner: Partitioner = None,
    synchronization: AsSynchronization = VariableSynchronization.AUTO,
    aggregation: AsAggregation = VariableAggregation.NONE,
    combine: Annotated[str, one_of(*COMBINE)] | None = None,
    decayed: Flag | None = None,
    validate_shape: Flag = True,
) -> Any:
    """The variable of a whole name: the getter that custom getters are given; see `get_variable`."""
    store = _store(get_default_graph())
    scope = store.scopes[-1]
    reuse = scope.reuse if reuse is None else reuse
    found = store.variables.get(name)
    if found is not None:
        return _shared(found, replace(scope, reuse=reuse), name, shape, dtype, partitioner)
    if reuse is True:
        raise InvalidArgumentError(
            f"get_variable: there is no variable {name} to be shared; make it first, or reuse=tb.AUTO_REUSE"
        )
    asked = dtype or scope.dtype

    def made(label: str, value: Any) -> Variable:
        with name_scope(None):
            variable = Variable(
                value,
                trainable,
                name=label,
                dtype=asked if callable(value) else dtype,
                collections=collections,
                combine=combine,
                decayed=decayed,
                synchronization=synchronization,
                aggregation=aggregation,
                validate_shape=validate_shape,
            )
        _regularize(variable, label, regularizer)
        return variable

    if partitioner is not None:
        whole = convert_to_tensor(initializer, dtype) if _is_value(initializer) else None
        extents, kind = (shape, asked) if whole is None else (whole.shape, whole.dtype)
        if extents is not None and extents.ndims != 0:
            if whole is not None and shape is not None:
                raise _needless_shape(name)
            if not validate_shape:
                raise InvalidArgumentError(
                    f"get_variable: {name} has parts of fixed shapes: expected no partitioner with "
                    "validate_shape=False; leave one of them out"
                )
            axis, slices = slices_of(name, extents, kind, partitioner)
            parts = []
            for number, info in enumerate(slices):
                value = _initial_value(name, TensorShape(info.var_shape), asked, initializer, info)
                parts.append(made(f"{name}/part_{number}", value))
                parts[-1].save_slice_info = info
            store.variables[name] = PartitionedVariable(name, axis, parts)
            return store.variables[name]
    store.variables[name] = made(name, _initial_value(name, shape, asked, initializer))
    return store.variables[name]


def _regularize(variable: Variable, full: str, regularizer: Callable[..., Any] | None) -> None:
    if regularizer is None:
        return
    with colocate_with(variable.op), name_scope(None), name_scope(f"{full}/Regularizer"):
        argument, expected = (
            f"regularizer of {full}",
            "a function of a tensor that gives a scalar loss, or None",
        )
        loss = called(regularizer, variable.value(), op="get_variable", argument=argument, expected=expected)
        if loss is None:
            return
        if not isinstance(loss, Tensor) or loss.shape.ndims not in (None, 0):
            raise refuse("get_variable", f"result of the {argument}", "a scalar tensor or None", loss)
        variable.graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)


def _shared(
    found: Variable | PartitionedVariable,
    scope: VariableScope,
    full: str,
    shape: TensorShape | None,
    dtype: DType | None,
    partitioner: Callable[..., Any] | None,
) -> Variable | PartitionedVariable:
    if not scope.reuse:
        source = (found if isinstance(found, Variable) else found.parts[0]).op.source
        raise InvalidArgumentError(
            f"get_variable: variable {full} is there already (made at {source}); "
            "use variable_scope(..., reuse=True) to share it"
        )
    if isinstance(found, Variable) and partitioner is not None and found.shape.ndims:
        raise InvalidArgumentError(
            f"get_variable: expected no partitioner for {full}, which was made without one; leave it out"
        )
    if isinstance(found, PartitionedVariable):
        if partitioner is None:
            raise InvalidArgumentError(
                f"get_variable: expected a partitioner for {full}, which is in {len(found)} parts; give the "
                "one that it was made with, best in the variable_scope of both"
            )
        _, slices = slices_of(full, found.shape, found.dtype, partitioner)
        if [each.save_slice_info for each in found] != slices:
            raise InvalidArgumentError(
                f"get_variable: variable {full} is in {len(found)} parts along axis {found.axis}, and the "
                f"partitioner gives {len(slices)} others; give the one that it was made with"
            )
    if shape is not None and shape.dims != found.shape.dims and found.shape.ndims is not None:
        raise InvalidArgumentError(f"get_variable: variable {full} has the shape {found.shape}, not {shape}")
    if dtype is not None and dtype != found.dtype:
        raise InvalidArgumentError(f"get_variable: variable {full} is {found.dtype.name}, not {dtype.name}")
    return found


def _is_value(chosen: Any) -> bool:
    """True for an initial value, not a way to make one."""
    return not (chosen is None or isinstance(chosen, str) or callable(chosen))


def _needless_shape(full: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"get_variable: the initializer of {full} is a value, which has a shape: give none beside it"
    )


def _initial_value(
    full: str, shape: TensorShape | None, dtype: DType, chosen: Any, part: SaveSliceInfo | None = None
) -> Callable[[], Any] | Any:
    """The initial value, or a function that makes it. part: it is this slice of the whole."""
    if not _is_value(chosen):
        if chosen is None:
            chosen = initializers.glorot_uniform() if dtype.is_floating else initializers.Zeros()
        if shape is None:
            raise InvalidArgumentError(f"get_variable: {full} needs a shape")
        return partial(_made, full, initializers.get(chosen), shape, dtype, part)
    if part is not None:
        return as_tensor(chosen)[part.index] if is_tensor(chosen) else np.asarray(chosen)[part.index]
    if shape is not None:
        raise _needless_shape(full)
    return chosen


def _takes_slices(initializer: Callable[..., Any]) -> bool:
    try:
        return "partition_info" in inspect.signature(initializer).parameters
    except (TypeError, ValueError):  # its signature is unknown
        return False


def _made(
    full: str,
    initializer: Callable[..., Any],
    shape: TensorShape,
    dtype: DType,
    part: SaveSliceInfo | None = None,
) -> Tensor:
    """The initialiser's result, checked for shape and dtype, as users may write initialisers."""
    asked = TensorSpec(shape.dims, dtype)
    if part is not None and _takes_slices(initializer):
        initializer = partial(initializer, partition_info=part)
    value = called(
        *(initializer, shape, dtype),
        op="get_variable",
        argument=f"initializer of {full}",
        expected="a function of shape and dtype",
    )
    try:
        tensor = convert_to_tensor(value, dtype)
    except UnfitError as error:
        raise InvalidArgumentError(
            f"get_variable: expected the initializer of {full} to give {asked}, got {shown(error.value)}: "
            f"{error.reason}"
        ) from None
    if not compatible(tensor.spec.shape, shape.dims):
        raise InvalidArgumentError(
            f"get_variable: expected the initializer of {full} to give {asked}, got {tensor.spec}; "
            "have it use its arguments shape and dtype"
        )
    return tensor
