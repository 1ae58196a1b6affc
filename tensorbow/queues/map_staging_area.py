"""Staging areas whose elements have keys (TensorFlow 1's MapStagingArea)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np

from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError
from tensorbow.graph import (
    REQUIRED,
    HostCall,
    OpDef,
    Operation,
    Tensor,
    as_tensor,
    name_scope,
)
from tensorbow.kinds import TEXT, Count, Flag, Name, checked, optional, sequence, whole
from tensorbow.queues.queue_ops import COMPONENTS, KEY, found, handle_of, shared_or_own, spec_of_element
from tensorbow.queues.queues import ComponentNames, DTypes, Shapes, SharedName, shared_attrs
from tensorbow.queues.waiting_calls import WaitingCalls, define_object_op
from tensorbow.specs import Array, DType, TensorShape, TensorSpec, compatible, int32, int64

Indices = Annotated[Any, optional(sequence(whole(0) | TEXT, "a list of positions or names", lone=True))]


class KeyedArea:
    """State of a staging area with keys: components by key, complete or not."""

    def __init__(self, label: str, components: int, ordered: bool, capacity: int, memory_limit: int):
        self.calls = WaitingCalls(label)
        self.handle = self.calls.handle
        self.complete: dict[int, dict[int, Array]] = {}
        self.incomplete: dict[int, dict[int, Array]] = {}
        self._components = components
        self._ordered = ordered
        self._capacity = capacity
        self._memory_limit = memory_limit
        self._nbytes = 0
        self._random = random.Random(0)

    def close(self) -> None:
        """Ends the calls that wait."""
        self.calls.close()

    def put(self, key: int, parts: Mapping[int, Array]) -> bool:
        """Adds components of a key; False while there is no room.

        Raises InvalidArgumentError for a component that is there, ResourceExhaustedError for more bytes than
        the limit.
        """
        nbytes = sum(part.nbytes for part in parts.values())
        if self._memory_limit and nbytes > self._memory_limit:
            raise ResourceExhaustedError(
                f"{self.calls.label}: an element of {nbytes:,} bytes, more than the memory_limit of "
                f"{self._memory_limit:,}"
            )
        if key in self.complete or any(number in self.incomplete.get(key, ()) for number in parts):
            raise InvalidArgumentError(f"{self.calls.label}: key {key} has these components already")
        keys = len(self.complete) + len(self.incomplete)
        if key not in self.incomplete and self._capacity and keys >= self._capacity:
            return False
        if self._memory_limit and self._nbytes + nbytes > self._memory_limit:
            return False
        element = self.incomplete.setdefault(key, {})
        element.update((number, np.array(part)) for number, part in parts.items())
        self._nbytes += nbytes
        if len(element) == self._components:
            self.complete[key] = self.incomplete.pop(key)
        return True

    def next_key(self) -> int | None:
        """The smallest key of an ordered area, any of another one; None if no element is complete."""
        if not self.complete:
            return None
        return min(self.complete) if self._ordered else self._random.choice(list(self.complete))

    def get(self, key: int, numbers: Sequence[int], removes: bool) -> list[Array] | None:
        """Components of a key, or None if they are not there yet. `removes`: takes them out."""
        element = self.complete.get(key)
        if element is None:
            return None
        if any(number not in element for number in numbers):
            raise InvalidArgumentError(f"{self.calls.label}: components of key {key} were taken before")
        if not removes:
            return [element[number] for number in numbers]
        parts = [element.pop(number) for number in numbers]
        self._nbytes -= sum(part.nbytes for part in parts)
        if not element:
            del self.complete[key]
        return parts

    def clear(self) -> None:
        """Removes all elements."""
        self.complete.clear()
        self.incomplete.clear()
        self._nbytes = 0


# Ops ----------------------------------------------------------------------------------------------------


def _make(call: HostCall) -> list[Array]:
    attrs = call.attrs
    label = f"staging area '{attrs['shared_name'] or call.name}'"
    options = tuple(attrs[key] for key in ("ordered", "capacity", "memory_limit"))
    settings = ("MapStagingArea", attrs["component_types"], attrs["shapes"], *options)
    make = lambda: KeyedArea(label, len(attrs["component_types"]), *options)  # noqa: E731
    return handle_of(call, shared_or_own(call, make, settings))


def _attempted(call: HostCall, function: Callable[[KeyedArea], Sequence[Array] | None]) -> None:
    """Runs a function of the area with its lock, until it has results."""
    area: KeyedArea = found(call, KeyedArea, "staging area")

    def attempt() -> Callable[[], None] | None:
        results = function(area)
        return None if results is None else lambda: call.done(results)

    area.calls.call(attempt, call)


def _put(call: HostCall) -> None:
    key, parts = int(call.inputs[1]), dict(zip(call.attrs["indices"], call.inputs[2:], strict=True))
    _attempted(call, lambda area: [] if area.put(key, parts) else None)


def _get(removes: bool, call: HostCall) -> None:
    key = int(call.inputs[1])
    _attempted(call, lambda area: area.get(key, call.attrs["indices"], removes))


def _get_any(call: HostCall) -> None:
    def take(area: KeyedArea) -> list[Array] | None:
        key = area.next_key()
        if key is None:
            return None
        parts = area.get(key, call.attrs["indices"], True)
        return None if parts is None else [np.asarray(key, np.int64), *parts]

    _attempted(call, take)


def _clear(call: HostCall) -> None:
    def clear(area: KeyedArea) -> list[Array]:
        area.clear()
        return []

    _attempted(call, clear)


_define = partial(define_object_op, strings=True)
_PARTS = {**COMPONENTS, "indices": REQUIRED}  # of the components that are read
MapStagingAreaHandle = _define(
    "MapStagingArea",
    _make,
    "A staging area with keys, as a handle.",
    spec=lambda inputs, attrs: TensorSpec((), int64),
    attrs={**COMPONENTS, "ordered": False, "capacity": 0, "memory_limit": 0, **KEY},
)
MapStage = _define(
    "MapStage",
    _put,
    "Adds components of a key; waits for room.",
    *("handle", "key", "*components"),
    attrs={"indices": REQUIRED},
    asynchronous=True,
)
MapUnstage = _define(
    "MapUnstage",
    lambda call: _get(True, call),
    "Removes components of a key; waits for it.",
    *("handle", "key"),
    spec=spec_of_element,
    attrs=_PARTS,
    asynchronous=True,
)
MapPeek = _define(
    "MapPeek",
    lambda call: _get(False, call),
    "Reads components of a key; waits for it.",
    *("handle", "key"),
    spec=spec_of_element,
    attrs=_PARTS,
    asynchronous=True,
)
MapUnstageNoKey = _define(
    "MapUnstageNoKey",
    _get_any,
    "Removes an element, with its key; waits for one.",
    "handle",
    spec=lambda inputs, attrs: [TensorSpec((), int64), *spec_of_element(inputs, attrs)],
    attrs=_PARTS,
    asynchronous=True,
)
MapClear = _define("MapClear", _clear, "Removes all elements.", "handle", asynchronous=True)
MapSize, MapIncompleteSize = (
    _define(
        f"Map{which}Size",
        lambda call, size=size: _attempted(call, lambda area: [np.asarray(size(area), np.int32)]),
        "The number of elements.",
        "handle",
        spec=lambda inputs, attrs: TensorSpec((), int32),
        asynchronous=True,
    )
    for which, size in (("", lambda a: len(a.complete)), ("Incomplete", lambda a: len(a.incomplete)))
)


class MapStagingArea:
    """Elements that steps put under a key, whole or component by component, for others to get."""

    @checked
    def __init__(
        self,
        dtypes: DTypes,
        shapes: Shapes = None,
        names: ComponentNames = None,
        shared_name: SharedName = None,
        ordered: Flag = False,
        capacity: Count = 0,
        memory_limit: Count = 0,
    ):
        """dtypes, shapes, names: of the components of an element, as of `FIFOQueue`.

        ordered: `get` without a key gives the smallest one, else any. capacity, memory_limit: most elements
        and bytes, beyond which `put` waits; 0 for no limit. Raises InvalidArgumentError for numbers of
        dtypes, shapes and names that differ.
        """
        for what, given in (("shapes", shapes), ("names", names)):
            if not dtypes or (given is not None and len(given) != len(dtypes)):
                raise InvalidArgumentError(
                    f"MapStagingArea: got {len(given or ())} {what} for {len(dtypes)} dtypes, expected one "
                    "for each component, at least one"
                )
        self._dtypes = tuple(dtypes)
        self._shapes = tuple(shapes or ())
        self._names = None if names is None else tuple(names)
        self._ref: Tensor = MapStagingAreaHandle(
            component_types=self._dtypes,
            shapes=self._shapes,
            ordered=ordered,
            capacity=capacity,
            memory_limit=memory_limit,
            **shared_attrs(shared_name),
            name="map_staging_area",
        )

    @property
    def name(self) -> str:
        """The name of the operation that makes the staging area."""
        return self._ref.op.name

    @property
    def dtypes(self) -> list[DType]:
        """Dtypes of the components."""
        return list(self._dtypes)

    @property
    def shapes(self) -> list[TensorShape]:
        """Shapes of the components; of unknown rank if they are not fixed."""
        return [TensorShape(dims) for dims in self._shapes or [None] * len(self._dtypes)]

    @property
    def names(self) -> list[str] | None:
        """Names of the components, or None."""
        return None if self._names is None else list(self._names)

    @checked
    def put(self, key: Any, vals: Any, indices: Indices = None, name: Name = None) -> Operation:
        """An operation that adds components of the element `key`, an int64 scalar; waits for room.

        vals: a tensor, a list of them, or with `names` a dictionary, which may lack components.
        indices: the positions of the components in a list that lacks some.
        """
        with self._ref.graph.as_default(), name_scope(name or f"{self.name}_put"):
            if isinstance(vals, Mapping):
                if indices is not None:
                    raise InvalidArgumentError(
                        "put: indices are for a list, the keys of a dictionary say them"
                    )
                numbers = self._numbers("put", list(vals))
                given = list(vals.values())
            else:
                given = list(vals) if isinstance(vals, (list, tuple)) else [vals]
                if self._names is not None and indices is None:
                    raise InvalidArgumentError(f"put: the area has names, give a dictionary of {self._names}")
                numbers = self._numbers("put", indices)
            if len(numbers) != len(given):
                raise InvalidArgumentError(f"put: got {len(given)} components, expected {len(numbers)}")
            parts = [as_tensor(value, self._dtypes[n]) for value, n in zip(given, numbers, strict=True)]
            for part, number in zip(parts, numbers, strict=True):
                dims = self._shapes[number] if self._shapes else None
                if not compatible(dims, part.spec.shape):
                    raise InvalidArgumentError(
                        f"put: component {number} is {part.spec}, expected {TensorShape(dims)!r}"
                    )
            result: Operation = MapStage(self._ref, self._key("put", key), *parts, indices=numbers)
        return result

    @checked
    def get(self, key: Any = None, indices: Indices = None, name: Name = None) -> Any:
        """The element `key`, removed, or without a key (key, element) of some; waits while there is none.

        indices: positions or names of the components to take; the others stay.
        """
        with self._ref.graph.as_default(), name_scope(name or f"{self.name}_get"):
            numbers = self._numbers("get", indices)
            if key is not None:
                return self._element(
                    MapUnstage(self._ref, self._key("get", key), **self._parts(numbers)), numbers
                )
            found_key, *parts = MapUnstageNoKey(self._ref, **self._parts(numbers))
            return found_key, self._element(tuple(parts), numbers)

    @checked
    def peek(self, key: Any, indices: Indices = None, name: Name = None) -> Any:
        """The element `key`, which stays; waits while there is none. indices: see `get`."""
        with self._ref.graph.as_default(), name_scope(name or f"{self.name}_peek"):
            numbers = self._numbers("peek", indices)
            return self._element(MapPeek(self._ref, self._key("peek", key), **self._parts(numbers)), numbers)

    @checked
    def size(self, name: Name = None) -> Tensor:
        """The number of complete elements, int32."""
        result: Tensor = self._of_all(MapSize, name)
        return result

    @checked
    def incomplete_size(self, name: Name = None) -> Tensor:
        """The number of elements that lack components, int32."""
        result: Tensor = self._of_all(MapIncompleteSize, name)
        return result

    @checked
    def clear(self, name: Name = None) -> Operation:
        """An operation that removes all elements."""
        result: Operation = self._of_all(MapClear, name)
        return result

    def _of_all(self, definition: OpDef, name: str | None) -> Any:
        with self._ref.graph.as_default():
            return definition(self._ref, name=name)

    def _key(self, op: str, key: Any) -> Tensor:
        tensor = as_tensor(key, int64 if isinstance(key, int) else None)
        if tensor.dtype not in (int32, int64) or tensor.spec.shape not in ((), None):
            raise InvalidArgumentError(f"{op}: key is {tensor.spec}, expected an integer scalar")
        return tensor

    def _numbers(self, op: str, indices: Any) -> tuple[int, ...]:
        """Positions of components, given by number or name; None: of all."""
        every = range(len(self._dtypes))
        if indices is None:
            return tuple(every)
        names = self._names or ()
        numbers = tuple(names.index(i) if i in names else i for i in indices)
        if len(set(numbers)) < len(numbers) or not numbers or any(n not in every for n in numbers):
            raise InvalidArgumentError(
                f"{op}: expected different components of {list(names or every)}, got {list(indices)}"
            )
        return numbers

    def _parts(self, numbers: Sequence[int]) -> dict[str, Any]:
        return {
            "component_types": tuple(self._dtypes[n] for n in numbers),
            "shapes": tuple(self._shapes[n] for n in numbers) if self._shapes else (),
            "indices": tuple(numbers),
        }

    def _element(self, made: Any, numbers: Sequence[int]) -> Any:
        tensors = list(made) if isinstance(made, tuple) else [made]
        if self._names is not None:
            return dict(zip((self._names[n] for n in numbers), tensors, strict=True))
        return tensors[0] if len(tensors) == 1 else tensors
