"""Losses over a sample of many classes: `nce_loss` and `sampled_softmax_loss` of TensorFlow 1."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Flag, Kind, Name, Positive, RefusedError, Seed, checked, optional
from tensorbow.ops.arrays import concat, expand_dims, reshape
from tensorbow.ops.broadcasting import ones_like, shape, zeros_like
from tensorbow.ops.candidate_samplers import (
    SampledClasses,
    log_uniform_candidate_sampler,
    true_classes_of,
)
from tensorbow.ops.control import stop_gradient
from tensorbow.ops.elementwise import add, divide, equal, log, multiply, subtract
from tensorbow.ops.losses import sigmoid_cross_entropy_with_logits, softmax_cross_entropy_with_logits_v2
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import PartitionStrategy, embedding_lookup
from tensorbow.ops.reductions import reduce_any, reduce_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import int64

__all__ = ["nce_loss", "sampled_softmax_loss"]

_HIT = -1e30  # logit of a sampled class that is the true one, with remove_accidental_hits


def _read_sampled(value: Any) -> SampledClasses:
    if not isinstance(value, (tuple, list)) or len(value) != len(SampledClasses._fields):
        raise RefusedError
    return SampledClasses(*value)


Sampled: TypeAlias = Annotated[
    Any, optional(Kind("(classes, expected counts of the true ones, of the sampled ones)", _read_sampled))
]


@checked
def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: Positive,
    num_classes: Positive,
    num_true: Positive = 1,
    sampled_values: Sampled = None,
    remove_accidental_hits: Flag = False,
    partition_strategy: PartitionStrategy = "mod",
    name: Name = "nce_loss",
) -> Tensor:
    """Noise-contrastive estimation of each example (Gutmann and Hyvärinen, 2010), `[batch]`.

    weights: `[classes, features]`; biases: `[classes]`; both may be in parts, as in `embedding_lookup`;
    labels: `[batch, num_true]`; inputs: `[batch, features]`. By default different classes are drawn by
    `log_uniform_candidate_sampler` (on a CPU; with `sampled_values` of its `unique=False` on the device of
    the step).
    Raises InvalidArgumentError for labels of another shape, or that are not whole numbers.
    """
    logits, targets = _sampled_logits(
        "nce_loss", weights, biases, labels, inputs, num_sampled, num_classes, num_true,
        sampled_values, remove_accidental_hits, partition_strategy, name,
    )  # fmt: skip
    return reduce_sum(sigmoid_cross_entropy_with_logits(labels=targets, logits=logits), 1)


@checked
def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: Positive,
    num_classes: Positive,
    num_true: Positive = 1,
    sampled_values: Sampled = None,
    remove_accidental_hits: Flag = True,
    partition_strategy: PartitionStrategy = "mod",
    name: Name = "sampled_softmax_loss",
    seed: Seed = None,
) -> Tensor:
    """Softmax cross-entropy over the true and `num_sampled` other classes (Jean et al., 2014), `[batch]`.

    An estimate of the full softmax's for training; evaluate with that one. Arguments: see `nce_loss`.
    """
    logits, targets = _sampled_logits(
        "sampled_softmax_loss", weights, biases, labels, inputs, num_sampled, num_classes, num_true,
        sampled_values, remove_accidental_hits, partition_strategy, name, seed,
    )  # fmt: skip
    return softmax_cross_entropy_with_logits_v2(labels=stop_gradient(targets), logits=logits)


def _shards_or_vector(biases: Any) -> Any:
    """A list of numbers is one vector; any other list has the shards."""
    is_list = isinstance(biases, (list, tuple)) and bool(biases)
    return as_tensor(biases) if is_list and all(isinstance(each, (int, float)) for each in biases) else biases


def _sampled_logits(
    op: str,
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int,
    sampled_values: SampledClasses | None,
    remove_accidental_hits: bool,
    partition_strategy: str,
    name: str | None,
    seed: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Logits `[batch, num_true + num_sampled]`, less the logs of expected counts, and their targets."""
    classes, features = true_classes_of(op, labels, num_true), as_tensor(inputs)
    with features.graph.as_default(), name_scope(name or op):
        if sampled_values is None:
            sampled_values = log_uniform_candidate_sampler(
                classes, num_true, num_sampled, True, num_classes, seed
            )
        sampled = cast(as_tensor(sampled_values.sampled_candidates), int64)
        true_expected = as_tensor(sampled_values.true_expected_count)
        sampled_expected = as_tensor(sampled_values.sampled_expected_count)
        all_classes = concat([reshape(classes, [-1]), sampled], 0)
        rows = embedding_lookup(weights, all_classes, partition_strategy)
        row_biases = embedding_lookup(_shards_or_vector(biases), all_classes, partition_strategy)
        dtype = features.dtype
        first = strided_slice(rows, np.s_[:-num_sampled])
        width = strided_slice(shape(rows), 1)
        first = reshape(first, [-1, num_true, width if rows.shape[1] is None else rows.shape[1]])
        true_logits = reduce_sum(multiply(expand_dims(features, 1), first), 2)
        true_logits = add(
            true_logits, reshape(strided_slice(row_biases, np.s_[:-num_sampled]), [-1, num_true])
        )
        others = matmul(features, strided_slice(rows, np.s_[-num_sampled:]), transpose_b=True)
        others = add(others, strided_slice(row_biases, np.s_[-num_sampled:]))
        if remove_accidental_hits:
            hits = reduce_any(equal(expand_dims(classes, 2), reshape(sampled, [1, 1, -1])), 1)
            others = select(hits, _HIT, others)
        true_logits = subtract(true_logits, cast(log(true_expected), dtype))
        others = subtract(others, cast(log(sampled_expected), dtype))
        targets = [divide(ones_like(true_logits), float(num_true)), zeros_like(others)]
        return concat([true_logits, others], 1), concat(targets, 1)
