"""Input pipelines of queues: producers of epochs and batches (TensorFlow 1's tf.train.batch and others)."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError, OutOfRangeError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    HostCall,
    Tensor,
    as_tensor,
    control_dependencies,
    name_scope,
)
from tensorbow.kinds import Count, Flag, Name, Positive, Seed, checked, optional, refuse, whole
from tensorbow.ops.argument_kinds import PositiveCountOrTensor
from tensorbow.ops.broadcasting import shape, size
from tensorbow.ops.checks import Assert
from tensorbow.ops.control import identity
from tensorbow.ops.definition import define_op
from tensorbow.ops.elementwise import greater
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.indexing import gather
from tensorbow.ops.random import random_shuffle
from tensorbow.ops.slicing import strided_slice
from tensorbow.queues.batch_queues import in_order, make_batches, shuffled, sources
from tensorbow.queues.queue_runner import QueueRunner, add_queue_runner
from tensorbow.queues.queues import FIFOQueue, QueueBase, Shapes
from tensorbow.specs import Array, TensorSpec, string

__all__ = [
    "batch",
    "batch_join",
    "input_producer",
    "limit_epochs",
    "range_input_producer",
    "shuffle_batch",
    "shuffle_batch_join",
    "slice_input_producer",
    "string_input_producer",
]

Epochs: TypeAlias = Annotated["int | None", optional(whole(1))]


def _limit(call: HostCall) -> list[Array]:
    passed = call.resources.get(("epochs", call.name), lambda: [0])
    if passed[0] >= call.attrs["num_epochs"]:
        raise OutOfRangeError(f"all {call.attrs['num_epochs']} epochs have been read")
    passed[0] += 1
    return [call.inputs[0]]


LimitEpochs = define_op(
    "LimitEpochs",
    spec=lambda inputs, attrs: TensorSpec(inputs[0].shape, inputs[0].dtype),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("value",),
    attrs={"num_epochs": REQUIRED},
    host=_limit,
    stateful=True,
    strings=True,
    doc="Its input, a given number of times in a session; then OutOfRangeError.",
)


@checked
def limit_epochs(tensor: Any, num_epochs: Epochs = None, name: Name = None) -> Tensor:
    """`tensor`, as often as `num_epochs` in a session; then OutOfRangeError. None: without end."""
    value = as_tensor(tensor)
    if num_epochs is None:
        return value
    result: Tensor = LimitEpochs(value, num_epochs=num_epochs, name=name)
    return result


@checked
def input_producer(
    input_tensor: Any,
    num_epochs: Epochs = None,
    shuffle: Flag = True,
    seed: Seed = None,
    capacity: Positive = 32,
    shared_name: Name = None,
    name: Name = None,
) -> QueueBase:
    """A queue that gives the rows of a tensor [n, ...], epoch after epoch, in a new order in each.

    A queue runner that fills it is added to the graph's collection. After `num_epochs` the queue is closed.
    Raises InvalidArgumentError for a tensor whose shape is not known but for n.
    """
    value = as_tensor(input_tensor)
    dims = value.spec.shape
    if not dims or None in dims[1:]:
        raise InvalidArgumentError(
            f"input_producer: input_tensor is {value.spec}, expected [n, ...] of known rows"
        )
    with value.graph.as_default(), name_scope(name or "input_producer"):
        return _producer(value, num_epochs, shuffle, seed, capacity, shared_name)


def _producer(
    value: Tensor,
    num_epochs: int | None,
    shuffle: bool,
    seed: int | None,
    capacity: int,
    shared_name: str | None,
    cancel_op: Any = None,
) -> QueueBase:
    rows = random_shuffle(value, seed=seed) if shuffle else value
    rows = limit_epochs(rows, num_epochs)
    queue = FIFOQueue(capacity, [value.dtype], [(value.spec.shape or ())[1:]], shared_name=shared_name)
    add_queue_runner(QueueRunner(queue, [queue.enqueue_many([rows])], cancel_op=cancel_op))
    return queue


@checked
def string_input_producer(
    string_tensor: Any,
    num_epochs: Epochs = None,
    shuffle: Flag = True,
    seed: Seed = None,
    capacity: Positive = 32,
    shared_name: Name = None,
    name: Name = None,
    cancel_op: Any = None,
) -> QueueBase:
    """A queue that gives the strings of a vector, such as names of files, epoch after epoch.

    See `input_producer`. cancel_op: an operation of the queue runner that ends it early.

    Raises InvalidArgumentError for an empty list and, when it runs, for an empty tensor.
    """
    texts = as_tensor(string_tensor, string)
    if texts.spec.shape == (0,):
        raise refuse("string_input_producer", "string_tensor", "at least one string", string_tensor)
    with texts.graph.as_default(), name_scope(name or "input_producer"):
        with control_dependencies(
            [Assert(greater(size(texts), 0), ["string_input_producer got no strings"])]
        ):
            texts = identity(texts)
        return _producer(texts, num_epochs, shuffle, seed, capacity, shared_name, cancel_op)


@checked
def range_input_producer(
    limit: Any,
    num_epochs: Epochs = None,
    shuffle: Flag = True,
    seed: Seed = None,
    capacity: Positive = 32,
    shared_name: Name = None,
    name: Name = None,
) -> QueueBase:
    """A queue of the whole numbers from 0 to limit - 1; see `input_producer`."""
    return input_producer(number_range(limit), num_epochs, shuffle, seed, capacity, shared_name, name)


@checked
def slice_input_producer(
    tensor_list: Any,
    num_epochs: Epochs = None,
    shuffle: Flag = True,
    seed: Seed = None,
    capacity: Positive = 32,
    shared_name: Name = None,
    name: Name = None,
) -> list[Tensor]:
    """A row of each tensor of a list, at the same position [n, ...] in all, a new one in each step.

    See `input_producer`. Raises InvalidArgumentError for an empty list.
    """
    if not isinstance(tensor_list, (list, tuple)) or not tensor_list:
        raise InvalidArgumentError("slice_input_producer: expected tensor_list to be a list of tensors")
    tensors = [as_tensor(each) for each in tensor_list]
    with tensors[0].graph.as_default(), name_scope(name or "input_producer"):
        count = strided_slice(shape(tensors[0]), 0)
        queue = range_input_producer(count, num_epochs, shuffle, seed, capacity, shared_name)
        index = queue.dequeue()
        return [gather(each, index) for each in tensors]


@checked
def batch(
    tensors: Any,
    batch_size: PositiveCountOrTensor,
    num_threads: Positive = 1,
    capacity: Positive = 32,
    enqueue_many: Flag = False,
    shapes: Shapes = None,
    dynamic_pad: Flag = False,
    allow_smaller_final_batch: Flag = False,
    shared_name: Name = None,
    name: Name = None,
) -> Any:
    """Batches [batch_size, ...] of examples that `num_threads` threads compute ahead, in their order.

    tensors: a tensor, list or dictionary of an example's tensors; with `enqueue_many` of several examples
        [n, ...]. The result has the same structure, but for a list of one tensor it is a tensor.
    capacity: most examples in the queue. dynamic_pad: pads with zeros to the largest extents of a batch.
    allow_smaller_final_batch: the last batch may be smaller; by default what is left is dropped.

    A queue runner is added to the graph's collection: `tb.train.start_queue_runners` starts it. Raises
    InvalidArgumentError for tensors whose shapes are not known.
    """
    make = in_order(capacity, dynamic_pad, shared_name)
    return make_batches(
        "batch", [tensors], batch_size, make, enqueue_many, shapes, allow_smaller_final_batch, name,
        num_threads, dynamic_pad,
    )  # fmt: skip


@checked
def batch_join(
    tensors_list: Any,
    batch_size: PositiveCountOrTensor,
    capacity: Positive = 32,
    enqueue_many: Flag = False,
    shapes: Shapes = None,
    dynamic_pad: Flag = False,
    allow_smaller_final_batch: Flag = False,
    shared_name: Name = None,
    name: Name = None,
) -> Any:
    """Batches of examples of several sources: a thread for each member of `tensors_list`; see `batch`."""
    lists = sources("batch_join", tensors_list)
    make = in_order(capacity, dynamic_pad, shared_name)
    return make_batches(
        "batch_join", lists, batch_size, make, enqueue_many, shapes, allow_smaller_final_batch, name,
        1, dynamic_pad,
    )  # fmt: skip


@checked
def shuffle_batch(
    tensors: Any,
    batch_size: PositiveCountOrTensor,
    capacity: Positive,
    min_after_dequeue: Count,
    num_threads: Positive = 1,
    seed: Seed = None,
    enqueue_many: Flag = False,
    shapes: Shapes = None,
    allow_smaller_final_batch: Flag = False,
    shared_name: Name = None,
    name: Name = None,
) -> Any:
    """Batches of examples in random order, mixed among at least `min_after_dequeue` others; see `batch`."""
    make = shuffled(capacity, min_after_dequeue, seed, shared_name)
    return make_batches(
        "shuffle_batch", [tensors], batch_size, make, enqueue_many, shapes, allow_smaller_final_batch, name,
        num_threads,
    )  # fmt: skip


@checked
def shuffle_batch_join(
    tensors_list: Any,
    batch_size: PositiveCountOrTensor,
    capacity: Positive,
    min_after_dequeue: Count,
    seed: Seed = None,
    enqueue_many: Flag = False,
    shapes: Shapes = None,
    allow_smaller_final_batch: Flag = False,
    shared_name: Name = None,
    name: Name = None,
) -> Any:
    """`shuffle_batch` of several sources: a thread for each member of `tensors_list`."""
    lists = sources("shuffle_batch_join", tensors_list)
    make = shuffled(capacity, min_after_dequeue, seed, shared_name)
    return make_batches(
        "shuffle_batch_join", lists, batch_size, make, enqueue_many, shapes, allow_smaller_final_batch,
        name, 1,
    )  # fmt: skip
