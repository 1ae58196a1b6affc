"""Samplers of candidate classes, with the classes' expected counts.

With `unique` classes are drawn until there are `num_sampled` different ones; after n draws a class of
probability p is expected 1 - (1 - p)^n times. Without, or if no class came twice, it is p * num_sampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.files import open_to_read
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    Attrs,
    HostCall,
    Kernel,
    KernelCall,
    NodeSpec,
    OpDef,
    Tensor,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.kinds import (
    Count,
    Flag,
    Name,
    NonNegative,
    Positive,
    Seed,
    Text,
    checked,
    number,
    sequence,
)
from tensorbow.ops.arrays import expand_dims, reshape
from tensorbow.ops.broadcasting import ones_like, shape
from tensorbow.ops.conditions import where
from tensorbow.ops.constant import constant
from tensorbow.ops.control import stop_gradient
from tensorbow.ops.definition import define_op, require_dtype, require_rank
from tensorbow.ops.elementwise import (
    add,
    divide,
    equal,
    exp,
    expm1,
    log,
    log1p,
    minimum,
    multiply,
    negative,
    subtract,
)
from tensorbow.ops.filling import fill
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.indexing import gather
from tensorbow.ops.philox import PhiloxBlocks, stream_key
from tensorbow.ops.random import SEEDS, get_seed, random_uniform
from tensorbow.ops.reductions import reduce_any
from tensorbow.ops.sampling import fill_uniforms
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import Array, TensorSpec, bool_, compatible, float32, float64, int32, int64

__all__ = [
    "all_candidate_sampler",
    "compute_accidental_hits",
    "fixed_unigram_candidate_sampler",
    "learned_unigram_candidate_sampler",
    "log_uniform_candidate_sampler",
    "uniform_candidate_sampler",
]

BLOCKS = 512  # blocks of random words at a time, of two numbers each
OP_ATTRS = {"num_sampled": REQUIRED, "unique": True, "range_max": REQUIRED}

Weights = Annotated[Any, sequence(number(0), "a list of numbers of at least 0")]


class SampledClasses(NamedTuple):
    """Sampled classes `[num_sampled]`, int64, and expected counts of the true and of the sampled classes."""

    sampled_candidates: Any
    true_expected_count: Any  # float32 [batch, num_true]
    sampled_expected_count: Any  # float32 [num_sampled]


# Drawing ------------------------------------------------------------------------------------------------


def _collect(draw: Callable[[int], Array], sampled: Array, seen: Array, unique: bool) -> int:
    """Fills `sampled` with drawn classes, and returns the number of draws.

    draw(i): the i-th piece of draws. seen: bool [classes], cleared here. unique: leaves out classes that are
    there already.
    """
    seen.fill(False)
    found = draws = piece = 0
    while found < len(sampled):
        classes = draw(piece)
        piece += 1
        if not unique:
            part = classes[: len(sampled) - found]
            sampled[found : found + len(part)] = part
            found += len(part)
            continue
        places = np.sort(np.unique(classes, return_index=True)[1])
        places = places[~seen[classes[places]]][: len(sampled) - found]
        fresh = classes[places]
        seen[fresh] = True
        sampled[found : found + len(fresh)] = fresh
        found += len(fresh)
        draws += int(places[-1]) + 1 if found == len(sampled) else len(classes)
    return draws if unique else len(sampled)


def _check_counts(op: str, attrs: Attrs, classes: int) -> None:
    if attrs["unique"] and attrs["num_sampled"] > classes:
        raise InvalidArgumentError(
            f"{op}: num_sampled is {attrs['num_sampled']}, expected at most the {classes} classes, as they "
            "are to differ; give fewer, or unique=False"
        )


def _log_uniform(uniforms: Array, classes: int, running: Array) -> Array:
    drawn = np.exp(uniforms * math.log(classes + 1)).astype(np.int64) - 1
    return np.minimum(drawn, classes - 1)


def _uniform(uniforms: Array, classes: int, running: Array) -> Array:
    return (uniforms * classes).astype(np.int64)


def _by_weight(uniforms: Array, classes: int, running: Array) -> Array:
    """Classes of which the running sum of weights is the first above a share of the total."""
    found = np.searchsorted(running, uniforms * running[-1], side="right")
    return np.asarray(np.minimum(found, classes - 1))


def _sampler(name: str, classes_of: Callable[[Array, int, Array], Array], inputs: Any = ()) -> OpDef:
    def spec(specs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
        _check_counts(name, attrs, attrs["range_max"])
        for x in specs:
            require_dtype(name, x, (float64,), "weights")
            if not compatible((attrs["range_max"],), x.shape):
                raise InvalidArgumentError(f"{name}: weights is {x}, expected [{attrs['range_max']}]")
        return [TensorSpec((attrs["num_sampled"],), int64), TensorSpec((), int64)]

    def scratch(node: NodeSpec) -> list[TensorSpec]:
        words, classes = [TensorSpec((2, BLOCKS), int64)] * 3, node.attrs["range_max"]
        running = TensorSpec((classes if node.inputs else 0,), float64)
        return [*words, TensorSpec((2, BLOCKS), float64), TensorSpec((classes,), bool_), running]

    def prepare(call: KernelCall) -> Callable[[], None]:
        even, odd, product = (array.view(np.uint64) for array in call.scratch[:3])
        blocks, (numbers, seen, running) = PhiloxBlocks.over(even, odd, product), call.scratch[3:]
        (sampled, draws), attrs, state = call.outputs, call.attrs, call.state

        def draw(piece: int) -> Array:
            fill_uniforms(blocks.fill(piece * BLOCKS, BLOCKS, 0, int(state["counter"])), numbers)
            return classes_of(numbers.T.reshape(-1), attrs["range_max"], running)

        def step() -> None:
            key = stream_key(int(attrs["seed"]), int(attrs["seed2"]), int(state["random_stream"]))
            blocks.set_key(key)
            for weights in call.inputs:
                np.cumsum(weights, out=running)
                _check_weights(name, weights, attrs)
            draws[...] = _collect(draw, sampled, seen, attrs["unique"])

        return step

    return define_op(
        name,
        spec=spec,
        gradient=NOT_DIFFERENTIABLE,
        kernel=Kernel(prepare=prepare, scratch=scratch),
        inputs=inputs,
        attrs={**OP_ATTRS, **SEEDS},
        random=True,
        why_cpu="NumPy draws classes until they differ",
        doc="Classes, and the number of draws that brought them.",
    )


def _check_weights(op: str, weights: Array, attrs: Attrs) -> None:
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise InvalidArgumentError(f"{op}: expected finite weights of at least 0")
    _check_counts(op, attrs, int(np.count_nonzero(weights)))


LogUniform = _sampler("LogUniformCandidateSampler", _log_uniform)
Uniform = _sampler("UniformCandidateSampler", _uniform)
FixedUnigram = _sampler("FixedUnigramCandidateSampler", _by_weight, ("weights",))


class _LearnedCounts:
    """Counts of each class as a true one, and the generator of an op's draws."""

    def __init__(self, classes: int, seeds: tuple[int, int]):
        self.counts = np.ones(classes)
        self.generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(seeds)))

    def close(self) -> None:
        """Nothing to close: called when the session ends."""


def _learned(call: HostCall) -> list[Array]:
    """Classes, the number of draws, and the probabilities of the classes before the new ones are counted."""
    attrs = call.attrs
    seeds = int(attrs["seed"]) % (1 << 64), int(attrs["seed2"]) % (1 << 64)
    learned = call.resources.get(("object", call.name), lambda: _LearnedCounts(attrs["range_max"], seeds))
    counts, (classes,) = learned.counts, call.inputs
    if classes.size and not (classes.min() >= 0 and classes.max() < len(counts)):
        raise InvalidArgumentError(
            f"LearnedUnigramCandidateSampler: true classes from {classes.min()} to {classes.max()}, expected "
            f"numbers from 0 to {len(counts) - 1}"
        )
    running, probabilities = np.cumsum(counts), counts / counts.sum()

    def draw(piece: int) -> Array:
        return _by_weight(learned.generator.random(2 * BLOCKS), len(counts), running)

    sampled, seen = np.empty(attrs["num_sampled"], np.int64), np.empty(len(counts), bool)
    draws = _collect(draw, sampled, seen, attrs["unique"])
    np.add.at(counts, classes.ravel(), 1)
    return [sampled, np.asarray(draws, np.int64), probabilities]


def _learned_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    _check_counts("LearnedUnigramCandidateSampler", attrs, attrs["range_max"])
    require_dtype("LearnedUnigramCandidateSampler", inputs[0], (int64,), "true_classes")
    classes = TensorSpec((attrs["range_max"],), float64)
    return [TensorSpec((attrs["num_sampled"],), int64), TensorSpec((), int64), classes]


LearnedUnigram = define_op(
    "LearnedUnigramCandidateSampler",
    spec=_learned_spec,
    gradient=NOT_DIFFERENTIABLE,
    host=_learned,
    inputs=("true_classes",),
    attrs={**OP_ATTRS, **SEEDS},
    stateful=True,
    doc="Classes by how often they were true ones so far, the draws, and all probabilities.",
)


# Expected counts ------------------------------------------------------------------------------------------


def _expected(probability: Tensor, draws: Tensor, num_sampled: int) -> Tensor:
    """float32, of float64 probabilities."""
    alone = multiply(probability, float(num_sampled))
    of_draws = negative(expm1(multiply(cast(draws, float64), log1p(negative(probability)))))
    return cast(select(equal(draws, num_sampled), alone, of_draws), float32)


def _log_uniform_probability(classes: Tensor, range_max: int) -> Tensor:
    k = cast(classes, float64)
    return divide(log(divide(add(k, 2.0), add(k, 1.0))), math.log(range_max + 1))


def _results(
    sampled: Tensor, draws: Tensor, true_classes: Tensor, probability: Callable[[Tensor], Tensor]
) -> SampledClasses:
    (count,) = sampled.spec.extents
    counts = [_expected(probability(each), draws, count) for each in (true_classes, sampled)]
    return SampledClasses(stop_gradient(sampled), *map(stop_gradient, counts))


def true_classes_of(op: str, labels: Any, num_true: int) -> Tensor:
    """Class numbers `[batch, num_true]` as int64. Raises InvalidArgumentError."""
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


# Functions ------------------------------------------------------------------------------------------------


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
    unique: draws different classes, on a CPU. Raises InvalidArgumentError for more of them than there are.
    """
    classes = true_classes_of("log_uniform_candidate_sampler", true_classes, num_true)
    with classes.graph.as_default(), name_scope(name or "LogUniformCandidateSampler"):
        if unique:
            sampled, draws = _drawn(LogUniform, (), num_sampled, unique, range_max, seed)
        else:  # on any device; float64, as a float32 of 24 bits would not reach all classes
            drawn = random_uniform([num_sampled], dtype=float64, seed=seed)
            sampled = subtract(cast(exp(multiply(drawn, math.log(range_max + 1))), int64), 1)
            sampled, draws = minimum(sampled, range_max - 1), constant(num_sampled, int64)
        return _results(sampled, draws, classes, lambda each: _log_uniform_probability(each, range_max))


@checked
def uniform_candidate_sampler(
    true_classes: Any,
    num_true: Positive,
    num_sampled: Positive,
    unique: Flag,
    range_max: Positive,
    seed: Seed = None,
    name: Name = None,
) -> SampledClasses:
    """Classes drawn with equal probabilities; arguments: see `log_uniform_candidate_sampler`."""
    classes = true_classes_of("uniform_candidate_sampler", true_classes, num_true)
    with classes.graph.as_default(), name_scope(name or "UniformCandidateSampler"):
        sampled, draws = _drawn(Uniform, (), num_sampled, unique, range_max, seed)
        share = 1 / range_max
        return _results(sampled, draws, classes, lambda each: multiply(ones_like(each, float64), share))


@checked
def fixed_unigram_candidate_sampler(
    true_classes: Any,
    num_true: Positive,
    num_sampled: Positive,
    unique: Flag,
    range_max: Positive,
    vocab_file: Text = "",
    distortion: NonNegative = 1.0,
    num_reserved_ids: Count = 0,
    num_shards: Positive = 1,
    shard: Count = 0,
    unigrams: Weights = (),
    seed: Seed = None,
    name: Name = None,
) -> SampledClasses:
    """Classes drawn with probabilities proportional to given counts to the power of `distortion`.

    unigrams: the counts of the classes after `num_reserved_ids` that are never drawn; or vocab_file, whose
    lines end in a comma and the count of a class. num_shards, shard: draws only the classes with a number
    that is `shard` modulo `num_shards`, which then count from 0. The others: see
    `log_uniform_candidate_sampler`. Raises InvalidArgumentError unless there are counts of all `range_max`
    classes, not all 0.
    """
    op = "fixed_unigram_candidate_sampler"
    classes = true_classes_of(op, true_classes, num_true)
    if bool(vocab_file) == bool(unigrams):
        raise InvalidArgumentError(f"{op}: give either vocab_file or unigrams")
    if shard >= num_shards:
        raise InvalidArgumentError(f"{op}: shard is {shard}, expected less than num_shards, {num_shards}")
    counts = [0.0] * num_reserved_ids
    given = [float(each) for each in unigrams] or _counts_in(vocab_file)
    try:
        counts += [each**distortion for each in given]
    except OverflowError:
        raise InvalidArgumentError(
            f"{op}: distortion: a count to the power of {distortion:g} is too large; give at most 1, or so"
        ) from None
    kept = np.array([c for i, c in enumerate(counts) if i < num_reserved_ids or i % num_shards == shard])
    drawable = int(np.count_nonzero(kept))
    if len(kept) != range_max or not drawable:
        raise InvalidArgumentError(
            f"{op}: got counts of {len(kept)} classes, {drawable} of them above 0; expected those of all "
            f"{range_max} classes (range_max)"
        )
    _check_counts(op, {"unique": unique, "num_sampled": num_sampled}, drawable)
    with classes.graph.as_default(), name_scope(name or "FixedUnigramCandidateSampler"):
        weights, probability = constant(kept), constant(kept / kept.sum())
        sampled, draws = _drawn(FixedUnigram, (weights,), num_sampled, unique, range_max, seed)
        return _results(sampled, draws, classes, lambda each: gather(probability, each))


def _counts_in(path: str) -> list[float]:
    with open_to_read(path) as file:
        lines = [line.decode("utf-8", "replace").strip() for line in file]
    try:
        return [float(line.rpartition(",")[2]) for line in lines if line]
    except ValueError:
        raise InvalidArgumentError(
            f"fixed_unigram_candidate_sampler: {path}: expected each line to end in a comma and a count"
        ) from None


@checked
def learned_unigram_candidate_sampler(
    true_classes: Any,
    num_true: Positive,
    num_sampled: Positive,
    unique: Flag,
    range_max: Positive,
    seed: Seed = None,
    name: Name = None,
) -> SampledClasses:
    """Classes drawn with probabilities proportional to how often they were true classes, plus 1.

    Each step counts its own true classes after drawing. The session keeps the counts; runs in the dynamic
    mode. Arguments: see `log_uniform_candidate_sampler`.
    """
    classes = true_classes_of("learned_unigram_candidate_sampler", true_classes, num_true)
    with classes.graph.as_default(), name_scope(name or "LearnedUnigramCandidateSampler"):
        sampled, draws, probabilities = _drawn(
            LearnedUnigram, (classes,), num_sampled, unique, range_max, seed
        )
        return _results(sampled, draws, classes, lambda each: gather(probabilities, each))


@checked
def all_candidate_sampler(
    true_classes: Any,
    num_true: Positive,
    num_sampled: Positive,
    unique: Flag,
    seed: Seed = None,
    name: Name = None,
) -> SampledClasses:
    """All classes from 0 to num_sampled - 1, each expected once: to try a loss without sampling.

    `unique` and `seed` have no effect.
    """
    classes = true_classes_of("all_candidate_sampler", true_classes, num_true)
    with classes.graph.as_default(), name_scope(name or "AllCandidateSampler"):
        every = number_range(constant(num_sampled, int64))
        return SampledClasses(every, ones_like(classes, float32), ones_like(every, float32))


def _drawn(
    definition: OpDef,
    inputs: Sequence[Tensor],
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None,
) -> tuple[Tensor, ...]:
    seeds: dict[str, Any] = dict(zip(SEEDS, get_seed(seed), strict=True))
    counts: dict[str, Any] = {"num_sampled": num_sampled, "unique": unique, "range_max": range_max}
    result: tuple[Tensor, ...] = definition(*inputs, **counts, **seeds)
    return result


@checked
def compute_accidental_hits(
    true_classes: Any,
    sampled_candidates: Any,
    num_true: Positive,
    seed: Seed = None,
    name: Name = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sampled classes that are true classes of an example: rows int32 `[n]`, columns int64 `[n]`, weights.

    true_classes: `[batch, num_true]`; sampled_candidates: `[num_sampled]`. The weights, the most negative
    float32, are to be added to the logits at [row, column]. `seed` has no effect. In the dynamic mode.
    """
    classes = true_classes_of("compute_accidental_hits", true_classes, num_true)
    with graph_of([classes, sampled_candidates]).as_default(), name_scope(name or "ComputeAccidentalHits"):
        sampled = cast(as_tensor(sampled_candidates), int64)
        require_rank("compute_accidental_hits", sampled.spec, 1, "sampled_candidates")
        places = where(reduce_any(equal(expand_dims(classes, 2), reshape(sampled, [1, 1, -1])), 1))
        rows, columns = strided_slice(places, np.s_[:, 0]), strided_slice(places, np.s_[:, 1])
        weights = fill(reshape(strided_slice(shape(places), 0), [1]), float(np.finfo(np.float32).min))
        return cast(rows, int32), columns, weights
