"""Transformations for `Dataset.apply`, under the names of TensorFlow 1's `tf.data.experimental`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tensorbow.data.pipeline import AUTOTUNE, Dataset, MapThreads
from tensorbow.kinds import Count, Flag, Function, Positive, checked

Transformation: TypeAlias = Callable[[Dataset], Dataset]

__all__ = ["AUTOTUNE", "map_and_batch", "shuffle_and_repeat"]


@checked
def map_and_batch(
    map_func: Function,
    batch_size: Positive,
    num_parallel_batches: Positive | None = None,
    drop_remainder: Flag = False,
    num_parallel_calls: MapThreads | None = None,
) -> Transformation:
    """`map`, then `batch`. num_parallel_batches: TensorFlow's; has no effect."""
    return lambda dataset: dataset.map(map_func, num_parallel_calls).batch(batch_size, drop_remainder)


@checked
def shuffle_and_repeat(
    buffer_size: Positive, count: Count | None = None, seed: Count | None = None
) -> Transformation:
    """`shuffle`, then `repeat`: each repetition has an order of its own."""
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)
