"""Scopes of a graph under construction: names, control dependencies, devices, containers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tensorbow.devices.names import DeviceName
from tensorbow.devices.registry import check_scope_device
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph.names import UniqueNames, check_scope_name
from tensorbow.graph.operation import Operation, Tensor
from tensorbow.kinds import FLAG, ITEMS, TEXT, Kind, RefusedError, optional, read_as, refuse

if TYPE_CHECKING:
    from tensorbow.graph.control_flow import ControlFlowContext

_NAME = optional(TEXT)
_INPUTS = Kind("a list of tensors and operations, or None", ITEMS.read)


def _read_device(value: Any) -> Any:
    if value is None or isinstance(value, DeviceName) or (callable(value) and not isinstance(value, type)):
        return value
    raise RefusedError


_DEVICE = Kind("a string as '/cpu:0', a function of the operation, or None", _read_device)


class Scopes(ABC):
    """The current scopes of a graph, for one building thread at a time."""

    def __init__(self) -> None:
        self.current_container = ""  # name of the current container
        self._names = UniqueNames()
        self._scope = ""  # the current name scope, without its slash
        self._controls: list[tuple[Operation, ...]] = []
        self._devices: list[str | Callable[[Operation], str] | None] = []
        self._colocation: tuple[Operation, ...] = ()
        self.context: ControlFlowContext | None = None  # the branch or loop that is being built
        self._gradient_overrides: Mapping[str, str] = {}  # names of registered gradients by type of op
        self._gradient_call = ""
        self.variable_creators: tuple[Callable[..., Any], ...] = ()  # the innermost scope's last

    @abstractmethod
    def as_graph_element(self, obj: Any) -> Operation | Tensor:
        """An operation or tensor of the graph from the object itself, its name, or a variable."""

    def _element_of(self, obj: Any, call: str, argument: str) -> Operation | Tensor:
        """`as_graph_element`, but errors name the call and its argument."""
        if isinstance(obj, type) or not (
            isinstance(obj, (str, Tensor, Operation)) or hasattr(obj, "_as_graph_element")
        ):
            raise refuse(call, argument, "tensors, operations, variables or their names", obj)
        try:
            return self.as_graph_element(obj)
        except (InvalidArgumentError, NotFoundError) as error:
            raise type(error)(f"{call}: {argument}: {error}") from None

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """`name` under the current scope, with `_1`, `_2`, ... if it is taken."""
        if type(name) is not str or type(mark_as_used) is not bool:  # fast path: called for every op
            name = read_as(TEXT, name, "unique_name", "name")
            mark_as_used = read_as(FLAG, mark_as_used, "unique_name", "mark_as_used")
        full = f"{self._scope}/{name}" if self._scope else name
        return self._names.claim(full) if mark_as_used else self._names.peek(full)

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Prefixes the names of ops made inside; yields the scope with its slash.

        `None` or "" returns to the root; a name that ends with "/" re-enters exactly that scope.
        """
        before = self._scope
        if type(name) is not str and name is not None:
            name = str(read_as(_NAME, name, "name_scope", "name"))
        if name:
            check_scope_name(name, nested=bool(before))
        if not name:
            self._scope = ""
        elif name.endswith("/"):
            self._scope = name[:-1]
        else:
            self._scope = self.unique_name(name)
        try:
            yield f"{self._scope}/" if self._scope else ""
        finally:
            self._scope = before

    @contextmanager
    def control_dependencies(self, inputs: Iterable[Any] | None) -> Iterator[None]:
        """Ops made inside run after `inputs`; `None` clears the dependencies of outer scopes."""
        before = self._controls
        if inputs is None:
            self._controls = []
        else:
            ops = []
            for item in read_as(_INPUTS, inputs, "control_dependencies", "inputs"):
                element = self._element_of(item, "control_dependencies", "inputs")
                ops.append(element.op if isinstance(element, Tensor) else element)
            self._controls = [*before, tuple(ops)]
        try:
            yield
        finally:
            self._controls = before

    @property
    def has_control_dependencies(self) -> bool:
        """True if an op made now would get control inputs."""
        return any(self._controls)

    @property
    def current_controls(self) -> tuple[Operation, ...]:
        """The operations that ops made now run after."""
        return tuple(dict.fromkeys(op for scope in self._controls for op in scope))

    def _control_inputs(self, inputs: Sequence[Tensor]) -> tuple[Operation, ...]:
        if not self._controls:  # fast path: called for every op
            return ()
        producers = {t.op for t in inputs}
        wanted = dict.fromkeys(op for scope in self._controls for op in scope)
        return tuple(op for op in wanted if op not in producers)

    @contextmanager
    def device(self, device: str | Callable[[Operation], str] | None) -> Iterator[None]:
        """Requests `device` (`"/cpu:1"`, or a function of the op) for ops made inside.

        An inner scope overrides the parts it names; `None` ignores the outer scopes. Raises
        InvalidArgumentError for an invalid device name, and for a bare word that is no known kind.
        """
        if isinstance(device, str):
            check_scope_device(device)
        else:
            device = read_as(_DEVICE, device, "device", "device name")
        before = self._devices
        self._devices = [*before, device]
        try:
            yield
        finally:
            self._devices = before

    @contextmanager
    def in_context(self, context: Any) -> Iterator[None]:
        """Adds ops made inside to a branch or a loop body, or with None to none."""
        before, controls = self.context, self._controls
        self.context, self._controls = context, []
        try:
            yield
        finally:
            self.context, self._controls = before, controls

    @contextmanager
    def differentiating(self, scope: str) -> Iterator[None]:
        """Context of one call of `gradients`, which makes ops in a name scope (given with its slash)."""
        before, self._gradient_call = self._gradient_call, self._names.claim(f"{scope}gradient_call")
        try:
            yield
        finally:
            self._gradient_call = before

    @property
    def gradient_call(self) -> str:
        """Unique name of the call of `gradients` that is being built, or a new one if there is none."""
        return self._gradient_call or self.unique_name("gradient_call")

    @contextmanager
    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Iterator[None]:
        """Places ops made inside on the device of `op` (operation, tensor or variable), whatever scopes say.

        If `op` asks for no device, it shares the one that a `device` scope inside asks for. `ignore_existing`
        ignores outer `colocate_with` scopes; with `op` None, it only does that.
        """
        ignore_existing = read_as(FLAG, ignore_existing, "colocate_with", "ignore_existing")
        if op is None and not ignore_existing:
            raise InvalidArgumentError("colocate_with(None): say ignore_existing=True to leave outer scopes")
        before, devices = self._colocation, self._devices
        outer = () if ignore_existing else before
        if op is None:
            self._colocation = outer
        else:
            element = self._element_of(op, "colocate_with", "op")
            target = element.op if isinstance(element, Tensor) else element
            self._colocation = (*(other for other in outer if other is not target), target)
            self._devices = []
        try:
            yield
        finally:
            self._colocation, self._devices = before, devices

    @contextmanager
    def gradient_override_map(self, op_type_map: Mapping[str, str]) -> Iterator[None]:
        """Gives ops made inside the gradients that `tb.RegisterGradient` has registered under other names.

        op_type_map: names of gradients by type of op, as `{"Relu": "GuidedRelu"}`; `tb.gradients` raises
        NotFoundError for a name that is not registered then.
        """
        if not isinstance(op_type_map, Mapping) or not all(
            isinstance(text, str) for pair in op_type_map.items() for text in pair
        ):
            expected = "a dictionary of names of gradients by type of op"
            raise refuse("gradient_override_map", "op_type_map", expected, op_type_map)
        before = self._gradient_overrides
        self._gradient_overrides = {**before, **op_type_map}
        try:
            yield
        finally:
            self._gradient_overrides = before

    @contextmanager
    def container(self, name: str) -> Iterator[str]:
        """Puts variables made inside into the container of that name, which sessions of the process share.

        `""` selects the session's own container. Raises InvalidArgumentError for an invalid container name.
        """
        name = read_as(TEXT, name, "container", "name")
        if name:
            check_scope_name(name, nested=False)
        before, self.current_container = self.current_container, name
        try:
            yield name
        finally:
            self.current_container = before

    def _device_for(self, op: Operation) -> str:
        merged: DeviceName | None = None
        for scope in self._devices:
            if scope is None:
                merged = None
                continue
            text = scope(op) if callable(scope) else scope
            if text is not None and text != "":
                inner = DeviceName.parse(text)
                merged = inner if merged is None else merged.merge(inner)
        return "" if merged is None else str(merged)
