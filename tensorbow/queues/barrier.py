"""Barriers: elements whose components come one by one, by key (TensorFlow white paper, section 4.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tensorbow.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from tensorbow.graph import (
    REQUIRED,
    Attrs,
    HostCall,
    Operation,
    Tensor,
    as_tensor,
    name_scope,
)
from tensorbow.kinds import AsDType, Count, Flag, Name, Text, checked
from tensorbow.queues.queue_ops import COMPONENTS, KEY, found, handle_of, shared_or_own
from tensorbow.queues.queues import DTypes, Shapes, SharedName, shared_attrs
from tensorbow.queues.waiting_calls import WaitingCalls, define_object_op
from tensorbow.specs import Array, Dims, DType, TensorSpec, compatible, int32, int64, render_dims

FIRST_INDEX = -(1 << 63)  # position of the first key, as in TensorFlow


@dataclass
class _Element:
    index: int  # position of the key among all that came
    components: dict[int, Any] = field(default_factory=dict)


class KeyedElements:
    """State of a barrier: incomplete elements by key, and complete ones in the order of their keys."""

    def __init__(self, label: str, components: int, shapes: Sequence[Dims | None]):
        self.calls = WaitingCalls(label)
        self.handle = self.calls.handle
        self.shapes = shapes
        self.incomplete: dict[Any, _Element] = {}
        self.ready: dict[Any, _Element] = {}
        self._components = components
        self._count = 0
        self._takes_new = True
        self._takes_any = True

    def close(self) -> None:
        """Ends the calls that wait; called when the session is closed."""
        self.calls.close()

    def end(self, cancels: bool) -> None:
        """Refuses new keys from now on; `cancels`: also components of known ones."""
        self._takes_new = False
        if cancels:
            self._takes_any = False
            self.incomplete.clear()

    def insert(self, component: int, keys: Array, values: Array) -> None:
        """Adds a component to the element of each key. Raises CancelledError, InvalidArgumentError."""
        label = self.calls.label
        dims = self.shapes[component] if self.shapes else None
        if values.shape[:1] != keys.shape or not compatible(dims, values.shape[1:]):
            raise InvalidArgumentError(
                f"{label}: values are {render_dims(values.shape)} for {render_dims(keys.shape)} keys; "
                f"expected a value {render_dims(dims or ())} for each key"
            )
        names = keys.tolist()
        known = [self.incomplete.get(key) for key in names]
        if not self._takes_any or (not self._takes_new and None in known):
            raise CancelledError(f"{label} is closed: nothing new can be inserted")
        twice = len(set(names)) < len(names) or any(
            e is not None and component in e.components for e in known
        )
        if twice or any(key in self.ready for key in names):
            raise InvalidArgumentError(f"{label}: a key has component {component} already; give each once")
        for key, value in zip(names, values, strict=True):
            if key not in self.incomplete:
                self.incomplete[key] = _Element(FIRST_INDEX + self._count)
                self._count += 1
            element = self.incomplete[key]
            element.components[component] = np.array(value)
            if len(element.components) == self._components:
                self.ready[key] = self.incomplete.pop(key)

    def take(self, count: int, allow_small: bool) -> list[tuple[Any, _Element]] | None:
        """The `count` complete elements whose keys came first, or None to wait for more of them.

        Of a closed barrier without so many: with `allow_small` what there is, else OutOfRangeError.
        """
        if len(self.ready) < count:
            if self._takes_new or self.incomplete:
                return None
            if not (allow_small and self.ready):
                raise OutOfRangeError(
                    f"{self.calls.label} is closed and has insufficient elements (requested {count}, "
                    f"current size {len(self.ready)})"
                )
        chosen = sorted(self.ready.items(), key=lambda item: item[1].index)[:count]
        for key, _ in chosen:
            del self.ready[key]
        return chosen


# Ops ----------------------------------------------------------------------------------------------------


def _make(call: HostCall) -> list[Array]:
    attrs = call.attrs
    label = f"barrier '{attrs['shared_name'] or call.name}'"
    settings = ("Barrier", attrs["component_types"], attrs["shapes"], attrs["key_type"])

    def make() -> KeyedElements:
        return KeyedElements(label, len(attrs["component_types"]), attrs["shapes"])

    return handle_of(call, shared_or_own(call, make, settings))


def _now(call: HostCall, function: Callable[[KeyedElements], Sequence[Array]]) -> None:
    """Runs a function of the barrier with its lock."""
    barrier: KeyedElements = found(call, KeyedElements, "barrier")

    def attempt() -> Callable[[], None]:
        results = function(barrier)
        return lambda: call.done(results)

    barrier.calls.call(attempt, call)


def _insert(call: HostCall) -> None:
    def insert(barrier: KeyedElements) -> list[Array]:
        barrier.insert(call.attrs["component_index"], call.inputs[1], call.inputs[2])
        return []

    _now(call, insert)


def _take(call: HostCall) -> None:
    barrier: KeyedElements = found(call, KeyedElements, "barrier")
    count, attrs = int(call.inputs[1]), call.attrs
    if count < 1:
        raise InvalidArgumentError(f"take_many: num_elements is {count}, expected at least 1")

    def attempt() -> Callable[[], None] | None:
        taken = barrier.take(count, attrs["allow_small_batch"])
        if taken is None:
            return None
        outputs = [
            np.array([element.index for _, element in taken], np.int64),
            np.array([key for key, _ in taken], attrs["key_type"].as_numpy_dtype),
        ]
        for number, dtype in enumerate(attrs["component_types"]):
            column = [element.components[number] for _, element in taken]
            if len({each.shape for each in column}) > 1:
                raise InvalidArgumentError(
                    f"{barrier.calls.label}: values of component {number} differ in shape, so they cannot be "
                    "stacked; take one at a time"
                )
            outputs.append(np.stack(column).astype(dtype.as_numpy_dtype, copy=False))
        return lambda: call.done(outputs)

    barrier.calls.call(attempt, call)


def _end(call: HostCall) -> None:
    def end(barrier: KeyedElements) -> list[Array]:
        barrier.end(call.attrs["cancel_pending_enqueues"])
        return []

    _now(call, end)


def _taken_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    types, shapes = attrs["component_types"], attrs["shapes"]
    values = [
        TensorSpec(None if dims is None else (None, *dims), dtype)
        for dims, dtype in zip(shapes or [None] * len(types), types, strict=True)
    ]
    return [TensorSpec((None,), int64), TensorSpec((None,), attrs["key_type"]), *values]


_define = partial(define_object_op, strings=True)
_SETTINGS = {**COMPONENTS, "key_type": int64}
BarrierHandle = _define(
    "Barrier",
    _make,
    "A barrier, as a handle.",
    spec=lambda inputs, attrs: TensorSpec((), int64),
    attrs={**_SETTINGS, **KEY},
)
BarrierInsertMany = _define(
    "BarrierInsertMany",
    _insert,
    "Adds a component to the element of each key.",
    *("handle", "keys", "values"),
    attrs={"component_index": REQUIRED},
    asynchronous=True,
)
BarrierTakeMany = _define(
    "BarrierTakeMany",
    _take,
    "Removes complete elements; waits for them.",
    *("handle", "num_elements"),
    spec=_taken_spec,
    attrs={**_SETTINGS, "allow_small_batch": False},
    asynchronous=True,
)
BarrierClose = _define(
    "BarrierClose",
    _end,
    "Refuses new keys.",
    "handle",
    attrs={"cancel_pending_enqueues": False},
    asynchronous=True,
)
BarrierReadySize, BarrierIncompleteSize = (
    _define(
        f"Barrier{which}Size",
        lambda call, size=size: _now(call, lambda barrier: [np.asarray(size(barrier), np.int32)]),
        f"The number of {which.lower()} elements.",
        "handle",
        spec=lambda inputs, attrs: TensorSpec((), int32),
        asynchronous=True,
    )
    for which, size in (("Ready", lambda b: len(b.ready)), ("Incomplete", lambda b: len(b.incomplete)))
)


class Barrier:
    """A queue of elements whose components are inserted one by one, under keys; in the dynamic mode.

    An element can be taken when it has all its components. Elements are taken in the order in which their
    keys came first.
    """

    @checked
    def __init__(
        self,
        types: DTypes,
        shapes: Shapes = None,
        shared_name: SharedName = None,
        name: Text = "barrier",
        key_dtype: AsDType = int64,
    ):
        """types, shapes: of the components. key_dtype: of the keys.

        shared_name: sessions of the process share the barrier of that name and `tb.container`.
        Raises InvalidArgumentError for numbers of types and shapes that differ.
        """
        if not types or (shapes is not None and len(shapes) != len(types)):
            raise InvalidArgumentError(
                f"Barrier: got {len(types)} types and {len(shapes or ())} shapes, expected one of each for "
                "every component, at least one"
            )
        self._types = tuple(types)
        self._shapes = tuple(shapes or ())
        self._keys = key_dtype
        self._ref: Tensor = BarrierHandle(**self._settings(), **shared_attrs(shared_name), name=name)

    def _settings(self) -> dict[str, Any]:
        return {"component_types": self._types, "shapes": self._shapes, "key_type": self._keys}

    @property
    def barrier_ref(self) -> Tensor:
        """The handle of the barrier, an int64 scalar."""
        return self._ref

    @property
    def name(self) -> str:
        """The name of the operation that makes the barrier."""
        return self._ref.op.name

    @property
    def dtypes(self) -> list[DType]:
        """Dtypes of the components."""
        return list(self._types)

    @checked
    def insert_many(self, component_index: Count, keys: Any, values: Any, name: Name = None) -> Operation:
        """An operation that adds component `component_index` to the elements of `keys` `[n]`.

        values: `[n, ...]`. Raises InvalidArgumentError when it runs for a key that has the component, and
        CancelledError for a new key in a closed barrier.
        """
        if component_index >= len(self._types):
            raise InvalidArgumentError(
                f"insert_many: component_index is {component_index}, expected less than {len(self._types)}"
            )
        with self._ref.graph.as_default(), name_scope(name or f"{self.name}_insert_many"):
            names, rows = as_tensor(keys, self._keys), as_tensor(values, self._types[component_index])
            dims = self._shapes[component_index] if self._shapes else None
            known = rows.spec.shape
            if names.shape.ndims not in (1, None) or (
                known is not None and (not known or not compatible(dims, known[1:]))
            ):
                raise InvalidArgumentError(
                    f"insert_many: keys are {names.spec}, values {rows.spec}; expected [n] and [n] + "
                    f"{render_dims(dims or ())}"
                )
            result: Operation = BarrierInsertMany(self._ref, names, rows, component_index=component_index)
        return result

    @checked
    def take_many(
        self, num_elements: Any, allow_small_batch: Flag = False, timeout: Any = None, name: Name = None
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Removes `num_elements` complete elements: positions of the keys (int64), keys, and values.

        Waits for them. Of a closed barrier that gets no more: with `allow_small_batch` those that there are,
        if any, else OutOfRangeError. timeout: milliseconds are given by `tb.RunOptions`, so only None.
        """
        if timeout is not None:
            raise InvalidArgumentError(
                "take_many: timeout has no effect; give session.run options=tb.RunOptions(timeout_in_ms=...)"
            )
        with self._ref.graph.as_default(), name_scope(name or f"{self.name}_take_many"):
            count = as_tensor(num_elements)
            if count.dtype not in (int32, int64) or count.spec.shape not in ((), None):
                raise InvalidArgumentError(
                    f"take_many: num_elements is {count.spec}, expected an integer scalar"
                )
            indices, keys, *values = BarrierTakeMany(
                self._ref, count, allow_small_batch=allow_small_batch, **self._settings()
            )
        return indices, keys, values

    @checked
    def close(self, cancel_pending_enqueues: Flag = False, name: Name = None) -> Operation:
        """An operation that refuses new keys from then on; elements that have begun may be completed.

        cancel_pending_enqueues: these too are dropped.
        """
        with self._ref.graph.as_default():
            result: Operation = BarrierClose(
                self._ref, cancel_pending_enqueues=cancel_pending_enqueues, name=name
            )
        return result

    @checked
    def ready_size(self, name: Name = None) -> Tensor:
        """The number of complete elements, int32."""
        with self._ref.graph.as_default():
            result: Tensor = BarrierReadySize(self._ref, name=name)
        return result

    @checked
    def incomplete_size(self, name: Name = None) -> Tensor:
        """The number of elements that lack components, int32."""
        with self._ref.graph.as_default():
            result: Tensor = BarrierIncompleteSize(self._ref, name=name)
        return result
