"""Queues of batches, and the queue runners that fill them: what `train.batch` and the like are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from tensorbow.control_flow import cond
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, as_tensor, control_dependencies, name_scope
from tensorbow.input_ops.sparse_strings import (
    deserialize_many_sparse,
    serialize_many_sparse,
    serialize_sparse,
)
from tensorbow.ops.constant import constant
from tensorbow.ops.control import identity
from tensorbow.ops.data_dependent import boolean_mask
from tensorbow.ops.sparse_tensors import SparseTensor, SparseTensorValue, as_sparse
from tensorbow.queues.queue_runner import QueueRunner, add_queue_runner
from tensorbow.queues.queues import FIFOQueue, PaddingFIFOQueue, QueueBase, RandomShuffleQueue
from tensorbow.specs import bool_

MakeQueue: TypeAlias = "Callable[[Any, Any, Any], QueueBase]"  # of dtypes, shapes and names of components


def in_order(capacity: int, pads: bool, shared_name: str | None) -> MakeQueue:
    """Maker of queues that keep the order. pads: examples of a batch may have different shapes."""
    kind = PaddingFIFOQueue if pads else FIFOQueue
    return lambda dtypes, shapes, names: kind(capacity, dtypes, shapes, names=names, shared_name=shared_name)


def shuffled(capacity: int, least: int, seed: int | None, shared_name: str | None) -> MakeQueue:
    """Maker of queues that draw at random from at least `least` others."""
    return lambda dtypes, shapes, names: RandomShuffleQueue(
        capacity, least, dtypes, shapes, names, seed, shared_name
    )


def sources(call: str, tensors_list: Any) -> Sequence[Any]:
    """A list of lists of tensors, as given. Raises InvalidArgumentError for anything else."""
    if not isinstance(tensors_list, (list, tuple)) or not tensors_list:
        raise InvalidArgumentError(f"{call}: expected tensors_list to be a list of lists of tensors")
    return tensors_list


def _is_list(tensors: Any) -> bool:
    return isinstance(tensors, (list, tuple)) and not isinstance(tensors, SparseTensorValue)


def _listed(tensors: Any, call: str) -> tuple[list[Any], list[str] | None]:
    """The tensors of a list or a dictionary, and the dictionary's keys. Sparse ones stay."""
    if isinstance(tensors, Mapping):
        names = sorted(tensors)
        given: Sequence[Any] = [tensors[key] for key in names]
    else:
        names, given = None, tensors if _is_list(tensors) else [tensors]
    if not given:
        raise InvalidArgumentError(
            f"{call}: expected tensors to hold at least one, got an empty {type(tensors).__name__}"
        )
    kinds = SparseTensor, SparseTensorValue
    return [as_sparse(each) if isinstance(each, kinds) else as_tensor(each) for each in given], names


def make_batches(
    call: str,
    tensors_list: Sequence[Any],
    batch_size: Any,
    make: MakeQueue,
    enqueue_many: bool,
    shapes: Any,
    smaller: bool,
    name: str | None,
    copies: int,
    pads: bool = False,
    keep: Sequence[Any] | None = None,
) -> Any:
    """Batches from a queue; each of `tensors_list` fills it by `copies` threads.

    keep: for each of them a bool that says if its example is taken; with `enqueue_many` also a vector with
    one for each of its examples.

    The queue holds sparse tensors as strings.
    """
    given = [_listed(tensors, call) for tensors in tensors_list]
    model, names = given[0]
    for tensors, others in given[1:]:
        if others != names or [(type(t), t.dtype) for t in tensors] != [(type(t), t.dtype) for t in model]:
            raise InvalidArgumentError(
                f"{call}: expected lists of tensors of the same dtypes and names in all"
            )
    lists = [([_packed(t, enqueue_many) for t in tensors], keys) for tensors, keys in given]
    first = lists[0][0]
    if shapes is None:
        found = []
        for each in zip(*(tensors for tensors, _ in lists), strict=True):
            dims = [None if t.spec.shape is None else t.spec.shape[int(enqueue_many) :] for t in each]
            for tensor, extents in zip(each, dims, strict=True):
                if extents is None or len(extents) != len(dims[0] or ()) or (None in extents and not pads):
                    raise InvalidArgumentError(
                        f"{call}: {tensor.name} is {tensor.spec}, expected a known shape; use set_shape, "
                        "shapes=, or dynamic_pad=True for extents that differ"
                    )
            found.append(tuple(axes[0] if len(set(axes)) == 1 else None for axes in zip(*dims, strict=True)))
            if None in found[-1] and not pads:
                raise InvalidArgumentError(f"{call}: expected equal shapes in all lists, got {dims}")
        shapes = found
    else:
        shapes = [[3] if isinstance(t, SparseTensor) else s for t, s in zip(model, shapes, strict=False)]
    with first[0].graph.as_default(), name_scope(name or call):
        queue = make([t.dtype for t in first], shapes, names)
        enqueues = []
        for number, (tensors, keys) in enumerate(lists):
            put = partial(_put, queue, keys, enqueue_many)
            op = put(tensors) if keep is None else _put_some(call, put, tensors, keep[number], enqueue_many)
            enqueues += [op] * copies
        add_queue_runner(QueueRunner(queue, enqueues))
        taken = (queue.dequeue_up_to if smaller else queue.dequeue_many)(batch_size)
        return _unpacked(taken, [tensors for tensors, _ in given], enqueue_many)


def _packed(tensor: Any, many: bool) -> Tensor:
    if not isinstance(tensor, SparseTensor):
        return as_tensor(tensor)
    return serialize_many_sparse(tensor) if many else serialize_sparse(tensor)


def _unpacked(taken: Any, lists: Sequence[Sequence[Any]], many: bool) -> Any:
    """An element of a queue in its structure, with the sparse tensors of its strings."""
    if not isinstance(taken, dict):
        values = taken if isinstance(taken, list) else [taken]
        made = [_read(value, parts, many) for value, *parts in zip(values, *lists, strict=True)]
        return made if isinstance(taken, list) else made[0]
    return {key: _read(taken[key], parts, many) for key, *parts in zip(sorted(taken), *lists, strict=True)}


def _read(value: Tensor, parts: Sequence[Any], many: bool) -> Any:
    """A dequeued tensor, as those that were enqueued in each list."""
    if not isinstance(parts[0], SparseTensor):
        return value
    rank = parts[0].rank if len({each.rank for each in parts}) == 1 else None
    return deserialize_many_sparse(value, parts[0].dtype, rank - many if rank is not None else None)


def _put(
    queue: QueueBase, keys: Sequence[str] | None, enqueue_many: bool, tensors: Sequence[Tensor]
) -> Operation:
    values: Any = tensors if keys is None else dict(zip(keys, tensors, strict=True))
    return queue.enqueue_many(values) if enqueue_many else queue.enqueue(values)


def _put_some(
    call: str,
    put: Callable[[Sequence[Tensor]], Operation],
    tensors: Sequence[Tensor],
    keep: Any,
    enqueue_many: bool,
) -> Operation:
    """An operation that enqueues what `keep` says."""
    chosen = as_tensor(keep)
    if chosen.dtype != bool_ or chosen.shape.ndims not in ((0, 1) if enqueue_many else (0,)):
        expected = "a bool, or a vector of one for each example" if enqueue_many else "a bool"
        raise InvalidArgumentError(f"{call}: keep_input is {chosen.spec}, expected {expected}")
    if chosen.shape.ndims == 1:
        return put([boolean_mask(tensor, chosen) for tensor in tensors])

    def taken() -> Tensor:
        with control_dependencies([put(tensors)]):
            return identity(constant(True))

    made: Operation = cond(chosen, taken, lambda: identity(constant(False))).op
    return made
