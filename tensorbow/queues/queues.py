"""Queues of a graph: first in first out, shuffled, by priority, padded (OSDI 2016, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, as_tensor, get_default_graph, graph_of, name_scope
from tensorbow.kinds import (
    DTYPE,
    SHAPE,
    TEXT,
    AxisNumber,
    Count,
    Flag,
    Kind,
    Name,
    RefusedError,
    Seed,
    Text,
    checked,
    optional,
    refuse,
    sequence,
)
from tensorbow.ops.arrays import stack
from tensorbow.ops.indexing import gather
from tensorbow.ops.random import get_seed
from tensorbow.queues.queue_ops import (
    FifoQueueHandle,
    PaddingQueueHandle,
    PriorityQueueHandle,
    QueueClose,
    QueueDequeue,
    QueueDequeueMany,
    QueueDequeueUpTo,
    QueueEnqueue,
    QueueEnqueueMany,
    QueueIsClosed,
    QueueSize,
    ShuffleQueueHandle,
)
from tensorbow.specs import DType, TensorShape, compatible, int32, int64

__all__ = ["FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "QueueBase", "RandomShuffleQueue"]


def _read_shapes(value: Any) -> tuple[Any, ...]:
    """Shapes of components: a list of them, or one shape alone."""
    if isinstance(value, TensorShape) or (
        isinstance(value, (list, tuple)) and all(v is None or type(v) is int for v in value)
    ):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise RefusedError
    return tuple(SHAPE.read(each).dims for each in value)


DTypes: TypeAlias = Annotated[Any, sequence(DTYPE, "dtypes", lone=True)]
Shapes: TypeAlias = Annotated[Any, optional(Kind("a list of shapes", _read_shapes))]
ComponentNames: TypeAlias = Annotated[Any, optional(sequence(TEXT, "a list of names", lone=True))]
SharedName: TypeAlias = Annotated["str | None", optional(TEXT)]


_HANDLES = (FifoQueueHandle, PaddingQueueHandle, PriorityQueueHandle, ShuffleQueueHandle)


def shared_attrs(shared_name: str | None) -> dict[str, str]:
    """Attributes of an op whose object sessions share by name, in the container of the scope."""
    return {"container": get_default_graph().current_container, "shared_name": shared_name or ""}


class QueueBase:
    """A queue: elements of one or several components. `FIFOQueue` and the others make one.

    Calls that find no room, or too few elements, wait. `Session.close`, a time limit and `close` of the
    queue end the wait: CancelledError, DeadlineExceededError, or OutOfRangeError for a dequeue.
    """

    def __init__(
        self,
        queue_ref: Tensor,
        dtypes: Sequence[DType],
        shapes: Sequence[Any] | None,
        names: Sequence[str] | None,
        pads: bool = False,
    ):
        """queue_ref: the handle. shapes: dims of each component; None if they are not fixed."""
        self._ref = queue_ref
        self._dtypes = tuple(dtypes)
        self._shapes = tuple(shapes) if shapes is not None else ()
        self._names = tuple(names) if names else None
        self._pads = pads

    @property
    def queue_ref(self) -> Tensor:
        """The handle of the queue, an int64 scalar."""
        return self._ref

    @property
    def name(self) -> str:
        """The name of the operation that makes the queue."""
        return self._ref.op.name

    @property
    def dtypes(self) -> list[DType]:
        """Dtypes of the components."""
        return list(self._dtypes)

    @property
    def shapes(self) -> list[TensorShape]:
        """Shapes of the components of an element; of unknown rank if they are not fixed."""
        return [TensorShape(dims) for dims in self._shapes or [None] * len(self._dtypes)]

    @property
    def names(self) -> list[str] | None:
        """Names of the components, or None."""
        return None if self._names is None else list(self._names)

    @staticmethod
    @checked
    def from_list(index: Any, queues: Any) -> QueueBase:
        """The queue at position `index`, an integer scalar, of a list of queues of equal components.

        Raises InvalidArgumentError for queues that differ.
        """
        if not isinstance(queues, (list, tuple)) or not all(isinstance(q, QueueBase) for q in queues):
            raise refuse("from_list", "queues", "a list of queues", queues)
        if not queues or any(
            (q._dtypes, q._names, q._pads) != (queues[0]._dtypes, queues[0]._names, queues[0]._pads)
            for q in queues
        ):
            raise InvalidArgumentError(
                "from_list: expected at least one queue, all of equal dtypes and names"
            )
        first = queues[0]
        same = all(q._shapes == first._shapes for q in queues)
        with first._ref.graph.as_default(), name_scope("from_list"):
            ref = gather(stack([q._ref for q in queues]), as_tensor(index))
        return QueueBase(
            ref, first._dtypes, first._shapes or None if same else None, first._names, first._pads
        )

    # Enqueueing -------------------------------------------------------------------------------

    @checked
    def enqueue(self, vals: Any, name: Name = None) -> Operation:
        """An operation that adds one element, and waits while the queue is full.

        vals: a tensor, a list with one for each component, or with `names` a dictionary.
        Raises InvalidArgumentError for components that do not fit; when it runs, CancelledError for a closed
        queue.
        """
        with self._ref.graph.as_default(), name_scope(name or f"{self._ref.op.name.split('/')[-1]}_enqueue"):
            components = self._components(vals, 0, "enqueue")
            result: Operation = QueueEnqueue(self._ref, *components, **self._attrs())
        return result

    @checked
    def enqueue_many(self, vals: Any, name: Name = None) -> Operation:
        """An operation that adds the rows of its tensors as elements, and waits while the queue is full.

        vals: as for `enqueue`, with a leading axis of the same extent in each.
        """
        with self._ref.graph.as_default(), name_scope(name or f"{self._ref.op.name.split('/')[-1]}_enqueue"):
            components = self._components(vals, 1, "enqueue_many")
            result: Operation = QueueEnqueueMany(self._ref, *components, **self._attrs())
        return result

    def _attrs(self) -> dict[str, Any]:
        return {"component_types": self._dtypes, "shapes": self._shapes}

    def _components(self, vals: Any, skipped: int, call: str) -> list[Tensor]:
        if isinstance(vals, Mapping):
            if self._names is None or set(vals) != set(self._names):
                raise InvalidArgumentError(
                    f"{call}: got a dictionary of {sorted(map(str, vals))}, expected "
                    + ("a list, as the queue has no names" if self._names is None else f"keys {self._names}")
                )
            vals = [vals[key] for key in self._names]
        elif self._names is not None:
            raise InvalidArgumentError(f"{call}: the queue has names, give a dictionary of {self._names}")
        if not isinstance(vals, (list, tuple)) or (len(self._dtypes) == 1 and len(vals) != 1):
            vals = [vals]
        if len(vals) != len(self._dtypes):
            raise InvalidArgumentError(
                f"{call}: got {len(vals)} components, expected {len(self._dtypes)}, one for each dtype"
            )
        tensors = [as_tensor(value, dtype) for value, dtype in zip(vals, self._dtypes, strict=True)]
        for index, tensor in enumerate(tensors):
            known = tensor.spec.shape
            dims = self._shapes[index] if self._shapes else None
            if known is not None and (len(known) < skipped or not compatible(dims, known[skipped:])):
                raise InvalidArgumentError(
                    f"{call}: component {index} is {tensor.spec}, expected {'[n] + ' * skipped}"
                    f"{TensorShape(dims)!r}"
                )
        return tensors

    # Dequeueing -------------------------------------------------------------------------------

    @checked
    def dequeue(self, name: Name = None) -> Any:
        """The next element, removed from the queue: a tensor, a list of them, or a dictionary with `names`.

        Waits while there is none; raises OutOfRangeError when it runs if the queue is closed and empty.
        """
        return self._result(QueueDequeue, (), name, self._attrs())

    @checked
    def dequeue_many(self, n: Any, name: Name = None) -> Any:
        """The next n elements, stacked along a new first axis. n: an integer scalar.

        Waits until there are n; raises OutOfRangeError if the queue is closed and has fewer. A
        PaddingFIFOQueue pads with zeros to the largest extents. Raises InvalidArgumentError for a queue
        without fixed shapes.
        """
        return self._many(QueueDequeueMany, n, name, "dequeue_many")

    @checked
    def dequeue_up_to(self, n: Any, name: Name = None) -> Any:
        """The next n elements, as `dequeue_many`; of a closed queue what is left, if that is less."""
        return self._many(QueueDequeueUpTo, n, name, "dequeue_up_to")

    def _many(self, definition: Any, n: Any, name: str | None, call: str) -> Any:
        if not self._shapes or (
            not self._pads and any(dims is None or None in dims for dims in self._shapes)
        ):
            raise InvalidArgumentError(
                f"{call}: queue {self.name} has no fixed shapes, so its elements cannot be stacked; give "
                "shapes= when you make it"
            )
        with self._ref.graph.as_default():
            count = as_tensor(n)
        if count.dtype not in (int32, int64) or count.spec.shape not in ((), None):
            raise InvalidArgumentError(f"{call}: n is {count.spec}, expected an integer scalar")
        if count.spec.value is not None and int(count.spec.value) < 0:
            raise InvalidArgumentError(f"{call}: n is {int(count.spec.value)}, expected at least 0")
        return self._result(definition, (count,), name, {**self._attrs(), "pads": self._pads})

    def _result(self, definition: Any, inputs: tuple[Tensor, ...], name: str | None, attrs: Any) -> Any:
        with graph_of([self._ref]).as_default():
            made = definition(self._ref, *inputs, name=name, **attrs)
        tensors = list(made) if isinstance(made, tuple) else [made]
        if self._names is not None:
            return dict(zip(self._names, tensors, strict=True))
        return tensors[0] if len(tensors) == 1 else tensors

    # State ------------------------------------------------------------------------------------

    @checked
    def size(self, name: Name = None) -> Tensor:
        """The number of elements, int32."""
        with self._ref.graph.as_default():
            result: Tensor = QueueSize(self._ref, name=name)
        return result

    @checked
    def is_closed(self, name: Name = None) -> Tensor:
        """True once the queue is closed."""
        with self._ref.graph.as_default():
            result: Tensor = QueueIsClosed(self._ref, name=name)
        return result

    @checked
    def close(self, cancel_pending_enqueues: Flag = False, name: Name = None) -> Operation:
        """An operation that closes the queue: later enqueues fail, dequeues take what is left.

        cancel_pending_enqueues: enqueues that wait fail with CancelledError; by default they are completed,
        and the operation waits for them.
        """
        with self._ref.graph.as_default():
            result: Operation = QueueClose(
                self._ref, cancel_pending_enqueues=cancel_pending_enqueues, name=name
            )
        return result


def require_fit(kind: str, dtypes: Any, shapes: Any, names: Any, static: bool = True) -> None:
    """Raises InvalidArgumentError for another number of shapes or names than of dtypes, or equal names."""
    if not dtypes:
        raise InvalidArgumentError(f"{kind}: expected dtypes of at least one component, got none")
    for what, given in (("shapes", shapes), ("names", names)):
        if given is not None and len(given) != len(dtypes):
            raise InvalidArgumentError(
                f"{kind}: got {len(given)} {what} for {len(dtypes)} dtypes, expected one for each component"
            )
    if names is not None and len({*names}) < len(names):
        raise InvalidArgumentError(
            f"{kind}: names {list(names)} are not different; give each component its own"
        )
    for dims in shapes or ():
        if dims is None or (static and None in dims):
            raise InvalidArgumentError(
                f"{kind}: shape {TensorShape(dims)!r} is not fixed; give every extent, or leave out shapes"
                + (", or use tb.PaddingFIFOQueue" if static else "")
            )


def most(capacity: int) -> int:
    return (1 << 62) if capacity < 0 else capacity


def queue_of_handle(queue_ref: Tensor, names: Sequence[str] | None) -> QueueBase:
    """The queue of the operation that makes it, as of an imported graph.

    Raises InvalidArgumentError for a tensor that is no handle of a queue, and names of another number.
    """
    op = queue_ref.op
    if op.definition not in _HANDLES or queue_ref is not op.outputs[0]:
        raise InvalidArgumentError(f"{queue_ref.name} is no handle of a queue")
    dtypes, shapes = op.attrs["component_types"], op.attrs["shapes"]
    if names is not None and len(names) != len(dtypes):
        raise InvalidArgumentError(f"{queue_ref.name} has {len(dtypes)} components, got {len(names)} names")
    return QueueBase(queue_ref, dtypes, shapes or None, names, op.definition is PaddingQueueHandle)


class FIFOQueue(QueueBase):
    """A queue that gives back its elements in the order in which they came."""

    @checked
    def __init__(
        self,
        capacity: AxisNumber,
        dtypes: DTypes,
        shapes: Shapes = None,
        names: ComponentNames = None,
        shared_name: SharedName = None,
        name: Text = "fifo_queue",
    ):
        """capacity: most elements; negative for no limit. dtypes, names: of the components of an element.

        shapes: of the components; without them elements may differ, and `dequeue_many` is refused.
        shared_name: sessions of the process share the queue of that name and `tb.container`.
        Raises InvalidArgumentError for numbers of dtypes, shapes and names that differ.
        """
        require_fit("FIFOQueue", dtypes, shapes, names)
        ref = FifoQueueHandle(
            capacity=most(capacity),
            component_types=dtypes,
            shapes=shapes or (),
            **shared_attrs(shared_name),
            name=name,
        )
        super().__init__(ref, dtypes, shapes, names)


class RandomShuffleQueue(QueueBase):
    """A queue that gives back its elements in random order."""

    @checked
    def __init__(
        self,
        capacity: AxisNumber,
        min_after_dequeue: Count,
        dtypes: DTypes,
        shapes: Shapes = None,
        names: ComponentNames = None,
        seed: Seed = None,
        shared_name: SharedName = None,
        name: Text = "random_shuffle_queue",
    ):
        """min_after_dequeue: elements that stay for mixing, until the queue is closed; else as FIFOQueue.

        seed: with the graph's seed (`tb.set_random_seed`) for the same order in every session. Raises
        InvalidArgumentError unless min_after_dequeue is below the capacity.
        """
        require_fit("RandomShuffleQueue", dtypes, shapes, names)
        if min_after_dequeue >= most(capacity):
            raise InvalidArgumentError(
                f"RandomShuffleQueue: min_after_dequeue={min_after_dequeue} leaves no element of "
                f"capacity={capacity} to dequeue; make the capacity larger"
            )
        graph_seed, op_seed = get_seed(seed)
        ref = ShuffleQueueHandle(
            capacity=most(capacity),
            component_types=dtypes,
            shapes=shapes or (),
            min_after_dequeue=min_after_dequeue,
            seed=graph_seed,
            seed2=op_seed,
            **shared_attrs(shared_name),
            name=name,
        )
        super().__init__(ref, dtypes, shapes, names)


class PaddingFIFOQueue(QueueBase):
    """A FIFOQueue whose elements may differ in extents: `dequeue_many` pads them with zeros."""

    @checked
    def __init__(
        self,
        capacity: AxisNumber,
        dtypes: DTypes,
        shapes: Shapes,
        names: ComponentNames = None,
        shared_name: SharedName = None,
        name: Text = "padding_fifo_queue",
    ):
        """shapes: of each component, with None for extents that may differ; else as FIFOQueue."""
        require_fit("PaddingFIFOQueue", dtypes, shapes or (), names, static=False)
        ref = PaddingQueueHandle(
            capacity=most(capacity),
            component_types=dtypes,
            shapes=shapes,
            **shared_attrs(shared_name),
            name=name,
        )
        super().__init__(ref, dtypes, shapes, names, pads=True)


class PriorityQueue(QueueBase):
    """A queue that gives back the element of the smallest priority, an int64 scalar, first."""

    @checked
    def __init__(
        self,
        capacity: AxisNumber,
        types: DTypes,
        shapes: Shapes = None,
        names: ComponentNames = None,
        shared_name: SharedName = None,
        name: Text = "priority_queue",
    ):
        """types, shapes: of the components after the priority, which is the first one of each element.

        names: of all components, the priority's first. Else as FIFOQueue.
        """
        dtypes = (int64, *types)
        dims = ((), *(shapes or ())) if shapes is not None or not types else None
        require_fit("PriorityQueue", dtypes, dims, names)
        ref = PriorityQueueHandle(
            capacity=most(capacity),
            component_types=dtypes,
            shapes=dims or (),
            **shared_attrs(shared_name),
            name=name,
        )
        super().__init__(ref, dtypes, dims, names)
