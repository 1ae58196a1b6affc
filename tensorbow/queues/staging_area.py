"""Staging areas: values that one step puts for a later one (TensorFlow 1's StagingArea)."""

from __future__ import annotations

from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, as_tensor
from tensorbow.kinds import Count, Name, checked
from tensorbow.queues.queue_ops import QueueClear, QueuePeek, StagingAreaHandle
from tensorbow.queues.queues import (
    ComponentNames,
    DTypes,
    QueueBase,
    Shapes,
    SharedName,
    most,
    require_fit,
    shared_attrs,
)
from tensorbow.specs import DType, TensorShape, int32, int64


class StagingArea:
    """Elements in the order in which they were put, of which a step may also read one without removing it.

    A training step that takes the batch that the step before has put overlaps its input with its computation.
    Runs in the dynamic mode, as queues do, and waits and ends as they do.
    """

    @checked
    def __init__(
        self,
        dtypes: DTypes,
        shapes: Shapes = None,
        names: ComponentNames = None,
        shared_name: SharedName = None,
        capacity: Count = 0,
        memory_limit: Count = 0,
    ):
        """dtypes, shapes, names: of the components of an element, as of `FIFOQueue`.

        capacity, memory_limit: most elements and bytes, beyond which `put` waits; 0 for no limit. A larger
        element raises ResourceExhaustedError when it is put.
        """
        require_fit("StagingArea", dtypes, shapes, names)
        ref = StagingAreaHandle(
            capacity=most(capacity or -1),
            memory_limit=memory_limit,
            component_types=dtypes,
            shapes=shapes or (),
            **shared_attrs(shared_name),
            name="staging_area",
        )
        self._queue = QueueBase(ref, dtypes, shapes, names)

    @property
    def name(self) -> str:
        """The name of the operation that makes the staging area."""
        return self._queue.name

    @property
    def dtypes(self) -> list[DType]:
        """Dtypes of the components."""
        return self._queue.dtypes

    @property
    def shapes(self) -> list[TensorShape]:
        """Shapes of the components; of unknown rank if they are not fixed."""
        return self._queue.shapes

    @property
    def names(self) -> list[str] | None:
        """Names of the components, or None."""
        return self._queue.names

    @checked
    def put(self, values: Any, name: Name = None) -> Operation:
        """An operation that adds an element. values: as for `FIFOQueue.enqueue`."""
        return self._queue.enqueue(values, name)

    @checked
    def get(self, name: Name = None) -> Any:
        """The oldest element, removed; waits while there is none. As `FIFOQueue.dequeue`."""
        return self._queue.dequeue(name)

    @checked
    def peek(self, index: Any, name: Name = None) -> Any:
        """The element at position `index`, an integer scalar, which stays; waits while there are fewer.

        Raises InvalidArgumentError for another index.
        """
        with self._queue.queue_ref.graph.as_default():
            position = as_tensor(index)
        if position.dtype not in (int32, int64) or position.spec.shape not in ((), None):
            raise InvalidArgumentError(f"peek: index is {position.spec}, expected an integer scalar")
        return self._queue._result(QueuePeek, (position,), name, self._queue._attrs())

    @checked
    def size(self, name: Name = None) -> Tensor:
        """The number of elements, int32."""
        return self._queue.size(name)

    @checked
    def clear(self, name: Name = None) -> Operation:
        """An operation that removes all elements."""
        with self._queue.queue_ref.graph.as_default():
            result: Operation = QueueClear(self._queue.queue_ref, name=name)
        return result
