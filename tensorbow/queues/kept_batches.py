"""Batches of the examples that a condition keeps (TensorFlow 1's tf.train.maybe_batch and others)."""

from __future__ import annotations

from typing import Any

from tensorbow.kinds import Count, Flag, Name, Positive, Seed, checked
from tensorbow.ops.argument_kinds import PositiveCountOrTensor
from tensorbow.queues.batch_queues import in_order, make_batches, shuffled, sources
from tensorbow.queues.queues import Shapes

__all__ = ["maybe_batch", "maybe_batch_join", "maybe_shuffle_batch", "maybe_shuffle_batch_join"]


@checked
def maybe_batch(
    tensors: Any,
    keep_input: Any,
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
    """`tb.train.batch` of the examples for which `keep_input` is true.

    keep_input: a bool; with `enqueue_many` also a vector with one for each example.
    """
    make = in_order(capacity, dynamic_pad, shared_name)
    return make_batches(
        "maybe_batch", [tensors], batch_size, make, enqueue_many, shapes, allow_smaller_final_batch, name,
        num_threads, dynamic_pad, [keep_input],
    )  # fmt: skip


@checked
def maybe_batch_join(
    tensors_list: Any,
    keep_input: Any,
    batch_size: PositiveCountOrTensor,
    capacity: Positive = 32,
    enqueue_many: Flag = False,
    shapes: Shapes = None,
    dynamic_pad: Flag = False,
    allow_smaller_final_batch: Flag = False,
    shared_name: Name = None,
    name: Name = None,
) -> Any:
    """`tb.train.batch_join` of the examples for which `keep_input` is true; it belongs to all sources."""
    lists = sources("maybe_batch_join", tensors_list)
    make = in_order(capacity, dynamic_pad, shared_name)
    return make_batches(
        "maybe_batch_join", lists, batch_size, make, enqueue_many, shapes, allow_smaller_final_batch, name,
        1, dynamic_pad, [keep_input] * len(lists),
    )  # fmt: skip


@checked
def maybe_shuffle_batch(
    tensors: Any,
    batch_size: PositiveCountOrTensor,
    capacity: Positive,
    min_after_dequeue: Count,
    keep_input: Any,
    num_threads: Positive = 1,
    seed: Seed = None,
    enqueue_many: Flag = False,
    shapes: Shapes = None,
    allow_smaller_final_batch: Flag = False,
    shared_name: Name = None,
    name: Name = None,
) -> Any:
    """`tb.train.shuffle_batch` of the examples for which `keep_input` is true, as `maybe_batch` has it."""
    make = shuffled(capacity, min_after_dequeue, seed, shared_name)
    return make_batches(
        "maybe_shuffle_batch", [tensors], batch_size, make, enqueue_many, shapes, allow_smaller_final_batch,
        name, num_threads, keep=[keep_input],
    )  # fmt: skip


@checked
def maybe_shuffle_batch_join(
    tensors_list: Any,
    batch_size: PositiveCountOrTensor,
    capacity: Positive,
    min_after_dequeue: Count,
    keep_input: Any,
    seed: Seed = None,
    enqueue_many: Flag = False,
    shapes: Shapes = None,
    allow_smaller_final_batch: Flag = False,
    shared_name: Name = None,
    name: Name = None,
) -> Any:
    """`maybe_shuffle_batch` of several sources: a thread for each member of `tensors_list`."""
    lists = sources("maybe_shuffle_batch_join", tensors_list)
    make = shuffled(capacity, min_after_dequeue, seed, shared_name)
    return make_batches(
        "maybe_shuffle_batch_join", lists, batch_size, make, enqueue_many, shapes, allow_smaller_final_batch,
        name, 1, keep=[keep_input] * len(lists),
    )  # fmt: skip
