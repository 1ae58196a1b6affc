"""Losses over a sample of many classes: `nce_loss` and `sampled_softmax_loss` of TensorFlow 1."""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Flag, Kind, Name, Positive, RefusedError, Seed, checked, optional
from tensorbow.ops.arrays import concat, expand_dims, reshape
from tensorbow.ops.broadcasting import ones_like, shape, zeros_like
from tensorbow.ops.control import stop_gradient
from tensorbow.ops.elementwise import add, divide, equal, exp, log, minimum, multiply, subtract
from tensorbow.ops.indexing import gather
from tensorbow.ops.losses import sigmoid_cross_entropy_with_logits, softmax_cross_entropy_with_logits_v2
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import PartitionStrategy, embedding_lookup
from tensorbow.ops.random import random_uniform
from tensorbow.ops.reductions import reduce_any, reduce_sum
from tensorbow.ops.selection import cast, where
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import float32, float64, int64

__all__ = ["log_uniform_candidate_sampler", "nce_loss", "sampled_softmax_loss"]

_HIT = -1e30  # logit of a sampled class that is the true one, with remove_accidental_hits


class SampledClasses(NamedTuple):
    """Sampled classes `[num_sampled]`, int64, and expected counts of the true and of the sampled classes."""

    sampled_candidates: Any
    true_expected_count: Any  # float32 [batch, num_true]
    sampled_expected_count: Any  # float32 [num_sampled]


def _read_sampled(value: Any) -> SampledClasses:
    if not isinstance(value, (tuple, list)) or len(value) != len(SampledClasses._fields):
        raise RefusedError
    return SampledClasses(*value)


Sampled: TypeAlias = Annotated[
    Any, optional(Kind("(classes, expected counts of the true ones, of the sampled ones)", _read_sampled))
]


@checked
def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: Positive,
    num_sampled: Positive,
    unique: Flag,
    range_max: Positive,
    seed: Seed = None,
    name: Name = None,
) -> SampledClasses:
    """Classes drawn with probability log((k + 2) / (k + 1)) / log(range_max + 1): small numbers are frequent.

    Classes are numbered by falling frequency (Zipf's law). true_classes: `[batch, num_true]`, int32 or int64.
    Draws are independent: raises InvalidArgumentError for `unique=True`.
    """
    if unique:
        raise InvalidArgumentError(
            "log_uniform_candidate_sampler: expected unique to be False, got True; draws are independent, "
            "and the expected counts correct for classes drawn twice"
        )
    classes = _classes("log_uniform_candidate_sampler", true_classes, num_true)
    with classes.graph.as_default(), name_scope(name or "LogUniformCandidateSampler"):
        # float64: a float32 of 24 bits would not reach all classes.
        drawn = random_uniform([num_sampled], dtype=float64, seed=seed)
        sampled = subtract(cast(exp(multiply(drawn, math.log(range_max + 1))), int64), 1)
        sampled = minimum(sampled, range_max - 1)
        counts = [_expected(each, num_sampled, range_max) for each in (classes, sampled)]
        return SampledClasses(stop_gradient(sampled), *counts)


def _expected(classes: Tensor, num_sampled: int, range_max: int) -> Tensor:
    k = cast(classes, float64)
    share = divide(log(divide(add(k, 2.0), add(k, 1.0))), math.log(range_max + 1))
    return cast(multiply(share, float(num_sampled)), float32)


def _classes(op: str, labels: Any, num_true: int) -> Tensor:
    tensor = as_tensor(labels)
    dims = tensor.spec.shape
    if not tensor.dtype.is_integer or (
        dims is not None and (len(dims) != 2 or dims[1] not in (None, num_true))
    ):
        raise InvalidArgumentError(
            f"{op}: expected labels to be class numbers [batch, {num_true}] (num_true), got {tensor.spec}; "
            "use tb.expand_dims(labels, 1) for one class per example"
        )
    return cast(tensor, int64)


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

    weights: `[classes, features]`; biases: `[classes]`; labels: `[batch, num_true]`; inputs:
    `[batch, features]`. By default classes are drawn by `log_uniform_candidate_sampler`, independently of
    each other (TensorFlow's default draws different ones).
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
    classes, features = _classes(op, labels, num_true), as_tensor(inputs)
    with features.graph.as_default(), name_scope(name or op):
        if sampled_values is None:
            sampled_values = log_uniform_candidate_sampler(
                classes, num_true, num_sampled, False, num_classes, seed
            )
        sampled = cast(as_tensor(sampled_values.sampled_candidates), int64)
        true_expected = as_tensor(sampled_values.true_expected_count)
        sampled_expected = as_tensor(sampled_values.sampled_expected_count)
        all_classes = concat([reshape(classes, [-1]), sampled], 0)
        rows = embedding_lookup(weights, all_classes, partition_strategy)
        row_biases = gather(biases, all_classes)
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
            others = where(hits, _HIT, others)
        true_logits = subtract(true_logits, cast(log(true_expected), dtype))
        others = subtract(others, cast(log(sampled_expected), dtype))
        targets = [divide(ones_like(true_logits), float(num_true)), zeros_like(others)]
        return concat([true_logits, others], 1), concat(targets, 1)
