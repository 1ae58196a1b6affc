"""Ops of queues. A queue is a handle, an int64 scalar; its elements are the session's or the process's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall, OpDef
from tensorbow.ops.definition import define_op
from tensorbow.queues.element_queue import ElementQueue
from tensorbow.queues.element_stores import (
    ElementStore,
    FirstInFirstOut,
    QueueElement,
    RandomOrder,
    SmallestFirst,
)
from tensorbow.queues.named_objects import NamedObjects
from tensorbow.specs import Array, Dims, TensorSpec, bool_, compatible, int32, int64, render_dims

KEY = {"container": "", "shared_name": ""}
COMPONENTS = {"component_types": REQUIRED, "shapes": ()}  # shapes: () if they are not fixed
_HANDLE = TensorSpec((), int64)

_of_process = NamedObjects()


class Borrowed:
    """Something of the process that a session uses and does not close."""

    def __init__(self, value: Any):
        self.value = value


def shared_or_own(call: HostCall, make: Callable[[], Any], settings: object) -> Any:
    """The object of an op: its session's own, or with `shared_name` the one of the process.

    On a task of a cluster sessions share all objects, by `shared_name` or else the op's name.
    Raises InvalidArgumentError if a shared one was made with other settings.
    """
    container, name = call.attrs["container"], call.attrs["shared_name"]
    if call.resources.named is not None:
        return call.resources.named.get(container, name or call.name, make, settings)
    if not name:
        return call.resources.get(("object", call.name), make)
    value = _of_process.get(container, name, make, settings)
    return call.resources.get(("object", call.name), lambda: Borrowed(value)).value


def shared_containers() -> set[str]:
    """Names of the containers that have shared objects."""
    return _of_process.containers()


def forget_shared(containers: Collection[str] | None) -> None:
    """Closes the shared objects of these containers (None: of all); the next use makes new ones."""
    _of_process.forget(containers)


def handle_of(call: HostCall, value: Any) -> list[Array]:
    """The handle as output, after which `found` finds the object in this session."""
    call.resources.get(("handle", value.handle), lambda: Borrowed(value))
    return [np.asarray(value.handle, np.int64)]


def found(call: HostCall, kind: type[Any], what: str) -> Any:
    """The object of the handle that is the first input. Raises NotFoundError."""
    handle = int(call.inputs[0])

    def missing() -> Any:
        raise NotFoundError(
            f"{handle} is no handle of a {what} that this session has made; pass the tensor of the {what}"
        )

    value = call.resources.get(("handle", handle), missing).value
    if not isinstance(value, kind):
        raise InvalidArgumentError(f"expected the handle of a {what}, got that of a {type(value).__name__}")
    return value


# Making queues --------------------------------------------------------------------------------


def _handle(kind: str, store: Callable[[Attrs], ElementStore], call: HostCall) -> list[Array]:
    """The handle of a queue; a session makes it once, a task of a cluster asks for the shared one anew."""
    if call.resources.named is not None:
        return _make(kind, store, call)
    made: list[Array] = call.resources.get(("output", call.name), lambda: _make(kind, store, call))
    return made


def _make(kind: str, store: Callable[[Attrs], ElementStore], call: HostCall) -> list[Array]:
    attrs = call.attrs

    def make() -> ElementQueue:
        keeps = int(attrs.get("min_after_dequeue", 0))
        label = f"{kind} '{attrs['shared_name'] or call.name}'"
        return ElementQueue(label, store(attrs), attrs["capacity"], keeps, int(attrs.get("memory_limit", 0)))

    settings = (kind, *((k, v) for k, v in sorted(attrs.items()) if k not in (*KEY, "seed", "seed2")))
    return handle_of(call, shared_or_own(call, make, settings))


def _seed(attrs: Attrs) -> tuple[int, int] | None:
    seeds = attrs["seed"], attrs["seed2"]
    return None if None in seeds else (seeds[0] % (1 << 64), seeds[1] % (1 << 64))


def _define_queue(
    kind: str, store: Callable[[Attrs], ElementStore], doc: str, attrs: dict[str, Any] | None = None
) -> OpDef:
    return define_op(
        kind,
        spec=lambda inputs, attrs: _HANDLE,
        gradient=NOT_DIFFERENTIABLE,
        attrs={"capacity": REQUIRED, **COMPONENTS, **(attrs or {}), **KEY},
        host=partial(_handle, kind, store),
        stateful=True,
        doc=doc,
    )


FifoQueueHandle = _define_queue(
    "FIFOQueue", lambda attrs: FirstInFirstOut(), "A queue in the order in which its elements came."
)
StagingAreaHandle = _define_queue(
    "StagingArea",
    lambda attrs: FirstInFirstOut(),
    "A queue in the order in which its elements came, with a limit of bytes.",
    {"memory_limit": 0},
)
PaddingQueueHandle = _define_queue(
    "PaddingFIFOQueue", lambda attrs: FirstInFirstOut(), "A queue whose batches are padded with zeros."
)
PriorityQueueHandle = _define_queue(
    "PriorityQueue", lambda attrs: SmallestFirst(), "A queue in the order of an int64 component."
)
ShuffleQueueHandle = _define_queue(
    "RandomShuffleQueue",
    lambda attrs: RandomOrder(_seed(attrs)),
    "A queue in random order.",
    {"min_after_dequeue": 0, "seed": None, "seed2": None},
)


# Using queues ---------------------------------------------------------------------------------


def _queue(call: HostCall) -> ElementQueue:
    queue: ElementQueue = found(call, ElementQueue, "queue")
    return queue


def _check(call: HostCall, arrays: Sequence[Array], skipped: int) -> None:
    """Raises InvalidArgumentError unless the components fit; skipped: axes before an element's."""
    types, shapes = call.attrs["component_types"], call.attrs["shapes"]
    for index, array in enumerate(arrays):
        dims: Dims | None = shapes[index] if shapes else None
        if not compatible(dims, array.shape[skipped:]):
            raise InvalidArgumentError(
                f"component {index} is {types[index].name}{render_dims(array.shape[skipped:])}, expected "
                f"{render_dims(dims or ())} as the queue's elements have it"
            )


def _enqueue(call: HostCall) -> None:
    arrays = call.inputs[1:]
    _check(call, arrays, 0)
    element = tuple(np.array(array) if array.ndim else array[()] for array in arrays)
    _queue(call).put([element], lambda: call.done([]), call.fail, call.on_cancel)


def _enqueue_many(call: HostCall) -> None:
    arrays = call.inputs[1:]
    counts = {array.shape[0] if array.ndim else None for array in arrays}
    if None in counts or len(counts) != 1:
        got = ", ".join(render_dims(array.shape) for array in arrays)
        raise InvalidArgumentError(f"components are {got}, expected one leading extent for all of them")
    _check(call, arrays, 1)
    columns = [array.tolist() if _plain(array) else list(np.array(array)) for array in arrays]
    elements: list[QueueElement] = list(zip(*columns, strict=True))
    _queue(call).put(elements, lambda: call.done([]), call.fail, call.on_cancel)


def _plain(array: Array) -> bool:
    """True if Python's numbers hold its elements exactly."""
    return array.ndim == 1 and array.dtype.kind in "iubfO"


def _dequeue(call: HostCall) -> None:
    _queue(call).take(1, False, _first_to(call), call.fail, call.on_cancel)


def _peek(call: HostCall) -> None:
    index = int(call.inputs[1])
    if index < 0:
        raise InvalidArgumentError(f"index is {index}, expected at least 0")
    _queue(call).peek(index, _first_to(call), call.fail, call.on_cancel)


def _first_to(call: HostCall) -> Callable[[list[QueueElement]], None]:
    """Ends a call with the components of the first element."""
    types = call.attrs["component_types"]

    def done(elements: list[QueueElement]) -> None:
        call.done([np.array(each, t.as_numpy_dtype) for each, t in zip(elements[0], types, strict=True)])

    return done


def _clear(call: HostCall) -> list[Array]:
    _queue(call).clear()
    return []


def _dequeue_many(up_to: bool, call: HostCall) -> None:
    count = int(call.inputs[1])
    if count < 0:
        raise InvalidArgumentError(f"n is {count}, expected at least 0")

    def done(elements: list[QueueElement]) -> None:
        try:
            outputs = _stacked(elements, call.attrs)
        except Exception as error:
            call.fail(error)
        else:
            call.done(outputs)

    _queue(call).take(count, up_to, done, call.fail, call.on_cancel)


def _stacked(elements: list[QueueElement], attrs: Attrs) -> list[Array]:
    """The elements, [n, ...] for each component; padded with zeros to the largest where `pads`."""
    outputs = []
    for index, (dtype, dims) in enumerate(zip(attrs["component_types"], attrs["shapes"], strict=True)):
        column, numpy_dtype = [element[index] for element in elements], dtype.as_numpy_dtype
        if not dims:
            outputs.append(np.array(column, numpy_dtype))
        elif attrs["pads"] and None in dims:
            extents = [max((each.shape[axis] for each in column), default=0) for axis in range(len(dims))]
            extents = [extent if dim is None else dim for extent, dim in zip(extents, dims, strict=True)]
            padding: Any = b"" if numpy_dtype.kind == "O" else 0
            batch = np.full((len(column), *extents), padding, numpy_dtype)
            for row, each in zip(batch, column, strict=True):
                row[tuple(map(slice, each.shape))] = each
            outputs.append(batch)
        else:
            outputs.append(np.stack(column) if column else np.empty((0, *dims), numpy_dtype))
    return outputs


def spec_of_element(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    """Specs of an element's components, by the op's attributes; shapes are unknown where none are given."""
    types = attrs["component_types"]
    return [TensorSpec(s, t) for s, t in zip(attrs["shapes"] or [None] * len(types), types, strict=True)]


def _spec_of_many(up_to: bool, inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    value = None if up_to else inputs[1].value
    count = None if value is None else int(value)
    return [
        TensorSpec((count, *s), t) for s, t in zip(attrs["shapes"], attrs["component_types"], strict=True)
    ]


def _close(call: HostCall) -> None:
    _queue(call).end(call.attrs["cancel_pending_enqueues"], lambda: call.done([]))


def _define_use(
    name: str,
    host: Callable[[HostCall], Any],
    inputs: tuple[str, ...],
    doc: str,
    *,
    spec: Any = lambda inputs, attrs: (),
    attrs: dict[str, Any] | None = None,
    asynchronous: bool = True,
    shape_inputs: tuple[int, ...] = (),
) -> OpDef:
    return define_op(
        name,
        spec=spec,
        gradient=NOT_DIFFERENTIABLE,
        inputs=inputs,
        attrs=attrs,
        host=host,
        asynchronous=asynchronous,
        stateful=True,
        strings=True,
        shape_inputs=shape_inputs,
        doc=doc,
    )


QueueEnqueue = _define_use(
    "QueueEnqueue", _enqueue, ("handle", "*components"), "Adds an element; waits for room.", attrs=COMPONENTS
)
QueueEnqueueMany = _define_use(
    "QueueEnqueueMany",
    _enqueue_many,
    ("handle", "*components"),
    "Adds the rows of its inputs; waits for room.",
    attrs=COMPONENTS,
)
QueueDequeue = _define_use(
    "QueueDequeue",
    _dequeue,
    ("handle",),
    "Removes an element; waits for it.",
    spec=spec_of_element,
    attrs=COMPONENTS,
)
QueueDequeueMany = _define_use(
    "QueueDequeueMany",
    partial(_dequeue_many, False),
    ("handle", "n"),
    "Removes n elements, [n, ...]; waits for them.",
    spec=lambda inputs, attrs: _spec_of_many(False, inputs, attrs),
    attrs={**COMPONENTS, "pads": False},
    shape_inputs=(1,),
)
QueueDequeueUpTo = _define_use(
    "QueueDequeueUpTo",
    partial(_dequeue_many, True),
    ("handle", "n"),
    "Removes n elements, or what a closed queue still has.",
    spec=lambda inputs, attrs: _spec_of_many(True, inputs, attrs),
    attrs={**COMPONENTS, "pads": False},
)
QueueSize = _define_use(
    "QueueSize",
    lambda call: [np.asarray(_queue(call).size(), np.int32)],
    ("handle",),
    "The number of elements.",
    spec=lambda inputs, attrs: TensorSpec((), int32),
    asynchronous=False,
)
QueueIsClosed = _define_use(
    "QueueIsClosed",
    lambda call: [np.asarray(_queue(call).is_ended())],
    ("handle",),
    "True if the queue is closed.",
    spec=lambda inputs, attrs: TensorSpec((), bool_),
    asynchronous=False,
)
QueueClose = _define_use(
    "QueueClose",
    _close,
    ("handle",),
    "Closes the queue.",
    attrs={"cancel_pending_enqueues": False},
)
QueuePeek = _define_use(
    "QueuePeek",
    _peek,
    ("handle", "index"),
    "An element, which stays in the queue; waits for it.",
    spec=spec_of_element,
    attrs=COMPONENTS,
)
QueueClear = _define_use("QueueClear", _clear, ("handle",), "Removes all elements.", asynchronous=False)
