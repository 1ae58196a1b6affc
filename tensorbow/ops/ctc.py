"""Connectionist temporal classification (Graves et al., 2006): the loss of unaligned labels, and decoders.

Scores are [time, batch, classes] before softmax, and the last class is the blank. A path has a class at each
step; its labels are what is left without repetitions and blanks. The loss is minus the logarithm of the
probability of all paths with the given labels, summed by the forward-backward recurrences of section 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError, UnimplementedError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    Attrs,
    HostCall,
    Kernel,
    KernelCall,
    Operation,
    Tensor,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.kinds import Flag, Name, Positive, checked
from tensorbow.ops.arrays import expand_dims, transpose
from tensorbow.ops.definition import define_op, require_dtype, require_rank
from tensorbow.ops.elementwise import multiply
from tensorbow.ops.selection import cast
from tensorbow.ops.sparse_tensors import Sparse, SparseTensor
from tensorbow.specs import FLOATING, Array, TensorSpec, compatible, int32, int64, render_dims

__all__ = ["ctc_beam_search_decoder", "ctc_greedy_decoder", "ctc_loss"]

OPTIONS = {
    "preprocess_collapse_repeated": False,
    "ctc_merge_repeated": True,
    "ignore_longer_outputs_than_inputs": False,
}


def _log_softmax(scores: Array) -> Array:
    """Over the last axis, in float64."""
    shifted = scores.astype(np.float64) - scores.max(-1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def _check_lengths(op: str, lengths: Array, times: int) -> None:
    if lengths.size and (lengths.min() < 0 or lengths.max() > times):
        raise InvalidArgumentError(
            f"{op}: sequence_length {lengths.tolist()[:8]}, expected numbers from 0 to {times}, the "
            "extent of time"
        )


# Loss -----------------------------------------------------------------------------------------------------


def _loss_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    scores, indices, values, lengths = inputs
    require_dtype("CTCLoss", scores, FLOATING, "inputs")
    require_dtype("CTCLoss", indices, (int64,), "the labels' indices")
    require_dtype("CTCLoss", values, (int32,), "the labels")
    require_dtype("CTCLoss", lengths, (int32,), "sequence_length")
    for spec, rank, what in ((scores, 3, "inputs"), (indices, 2, "indices"), (lengths, 1, "sequence_length")):
        if spec.shape is not None:
            require_rank("CTCLoss", spec, rank, what)
    if scores.shape is None:
        return [TensorSpec((None,), scores.dtype), TensorSpec(None, scores.dtype)]
    if scores.shape[2] == 0:
        raise InvalidArgumentError("CTCLoss: expected at least one class, the blank")
    count = None if indices.shape is None else indices.shape[0]
    for spec, dims, what in (
        (lengths, (scores.shape[1],), "sequence_length"),
        (indices, (None, 2), "the labels' indices"),
        (values, (count,), "the labels"),
    ):
        if not compatible(dims, spec.shape):
            raise InvalidArgumentError(
                f"CTCLoss: expected {what} to have shape {render_dims(dims)} beside {scores}, got {spec}"
            )
    return [TensorSpec(scores.shape[1:2], scores.dtype), TensorSpec(scores.shape, scores.dtype)]


def _labels_of(indices: Array, values: Array, batch: int, classes: int, collapses: bool) -> list[Array]:
    """The labels of each example, in order."""
    if indices.size and (indices.min() < 0 or indices[:, 0].max() >= batch):
        raise InvalidArgumentError(f"CTCLoss: labels of examples that are not in [0, {batch})")
    if values.size and (values.min() < 0 or values.max() >= classes - 1):
        raise InvalidArgumentError(
            f"CTCLoss: labels from {values.min()} to {values.max()}, expected numbers from 0 to "
            f"{classes - 2}; class {classes - 1} is the blank"
        )
    order = np.lexsort((indices[:, 1], indices[:, 0]))
    rows, sorted_values = indices[order, 0], values[order]
    found = [sorted_values[slice(*np.searchsorted(rows, [b, b + 1]))] for b in range(batch)]
    return [_without_repeats(each) if collapses else each for each in found]


def _without_repeats(labels: Array) -> Array:
    return labels[np.diff(labels, prepend=-1) != 0] if len(labels) else labels


def _paths(log_p: Array, classes: Array, stays: Array, skips: Array) -> Array:
    """Logarithms of the sums over the beginnings of paths, [steps, states].

    log_p: [steps, classes]; classes: of the states. stays: 0 where a state may follow itself, else -infinity;
    skips: likewise where it may follow the state two before.
    """
    sums = np.full((len(log_p), len(classes)), -np.inf)
    sums[0, :2] = log_p[0, classes[:2]]
    for t in range(1, len(log_p)):
        before = sums[t - 1]
        total = before + stays
        total[1:] = np.logaddexp(total[1:], before[:-1])
        total[2:] = np.logaddexp(total[2:], before[:-2] + skips[2:])
        sums[t] = total + log_p[t, classes]
    return sums


def _allowed(classes: Array, blank: int, merges: bool) -> tuple[Array, Array]:
    is_blank = classes == blank
    stays = np.where(is_blank | merges, 0.0, -np.inf)
    same = np.zeros(len(classes), bool)
    same[2:] = classes[2:] == classes[:-2]
    return stays, np.where(is_blank | (same & merges), -np.inf, 0.0)


def _loss_of(log_p: Array, labels: Array, merges: bool) -> tuple[float, Array]:
    """Loss of one example, and its gradient by the scores, [steps, classes]."""
    blank = log_p.shape[1] - 1
    classes = np.full(2 * len(labels) + 1, blank)
    classes[1::2] = labels
    stays, skips = _allowed(classes, blank, merges)
    ahead = _paths(log_p, classes, stays, skips)
    # Behind: the same recurrence from the end, whose states are those of the reversed labels.
    stays, skips = _allowed(classes[::-1], blank, merges)
    behind = _paths(log_p[::-1], classes[::-1], stays, skips)[::-1, ::-1]
    total = np.logaddexp.reduce(ahead[-1, -2:])
    p = np.exp(log_p)
    if total == -np.inf:  # no path: as in TensorFlow
        return np.inf, p
    through = np.exp(ahead + behind - log_p[:, classes] - total)  # probability of each state at each step
    for state, number in enumerate(classes):
        p[:, number] -= through[:, state]
    return -total, p


def _prepare_loss(call: KernelCall) -> Callable[[], None]:
    (scores, indices, values, lengths), (losses, gradient) = call.inputs, call.outputs
    times, batch, classes = scores.shape
    collapses, merges, ignores = (call.attrs[key] for key in OPTIONS)

    def run() -> None:
        _check_lengths("CTCLoss", lengths, times)
        gradient.fill(0)
        losses.fill(0)
        for b, labels in enumerate(_labels_of(indices, values, batch, classes, collapses)):
            steps = int(lengths[b])
            if len(labels) > steps:
                if ignores:
                    continue
                raise InvalidArgumentError(
                    f"CTCLoss: example {b} has {len(labels)} labels and {steps} steps (sequence_length), "
                    "expected as many steps at least; or give ignore_longer_outputs_than_inputs=True"
                )
            if steps:
                losses[b], gradient[:steps, b] = _loss_of(_log_softmax(scores[:steps, b]), labels, merges)

    return run


def _loss_gradient(op: Operation, g: Tensor | None, of_gradient: Tensor | None) -> list[Tensor | None]:
    if of_gradient is not None:
        raise UnimplementedError("CTCLoss has no second derivative; stop it by tb.stop_gradient")
    if g is None:
        return [None] * 4
    return [multiply(op.outputs[1], expand_dims(expand_dims(g, 0), 2)), None, None, None]


CTCLoss = define_op(
    "CTCLoss",
    spec=_loss_spec,
    gradient=_loss_gradient,
    kernel=Kernel(prepare=_prepare_loss),
    inputs=("inputs", "labels_indices", "labels_values", "sequence_length"),
    attrs=OPTIONS,
    why_cpu="NumPy sums over the paths",
    doc="The loss of each example, and its gradient by the inputs.",
)


def _made(labels: Any) -> SparseTensor:
    return labels if isinstance(labels, SparseTensor) else SparseTensor(*labels)


@checked
def ctc_loss(
    labels: Sparse,
    inputs: Any,
    sequence_length: Any,
    preprocess_collapse_repeated: Flag = False,
    ctc_merge_repeated: Flag = True,
    ignore_longer_outputs_than_inputs: Flag = False,
    time_major: Flag = True,
    name: Name = None,
) -> Tensor:
    """The CTC loss `[batch]`: minus the logarithm of the probability of the labels over all alignments.

    labels: a sparse tensor [batch, most labels] of int32 in [0, classes - 1). inputs: scores before softmax
    [time, batch, classes], or [batch, time, classes] without `time_major`; the last class is the blank.
    sequence_length: int32 [batch], the steps that count. preprocess_collapse_repeated: drops repetitions from
    the labels first. ctc_merge_repeated: paths merge repetitions. ignore_longer_outputs_than_inputs: examples
    with more labels than steps have a loss of 0, without it InvalidArgumentError is raised at run time.
    A loss without any path is infinite. Runs on a CPU.
    """
    sparse = _made(labels)
    with sparse.graph.as_default(), name_scope(name or "CTCLoss"):
        scores = as_tensor(inputs)
        if not time_major:
            scores = transpose(scores, [1, 0, 2])
        loss, _ = CTCLoss(
            scores,
            sparse.indices,
            sparse.values,
            cast(as_tensor(sequence_length), int32),
            preprocess_collapse_repeated=preprocess_collapse_repeated,
            ctc_merge_repeated=ctc_merge_repeated,
            ignore_longer_outputs_than_inputs=ignore_longer_outputs_than_inputs,
        )
        result: Tensor = loss
        return result


# Decoders ---------------------------------------------------------------------------------------------------


def _sparse(rows: Sequence[Sequence[int]]) -> list[Array]:
    """Indices, values and dense shape of lists of labels."""
    indices = [(b, i) for b, row in enumerate(rows) for i in range(len(row))]
    values = [label for row in rows for label in row]
    widest = max(map(len, rows), default=0)
    return [
        np.array(indices, np.int64).reshape(-1, 2),
        np.array(values, np.int64),
        np.array([len(rows), widest], np.int64),
    ]


def _greedy(call: HostCall) -> list[Array]:
    scores, lengths = call.inputs
    _check_lengths("CTCGreedyDecoder", lengths, len(scores))
    rows, sums, blank = [], np.zeros((scores.shape[1], 1), scores.dtype), scores.shape[2] - 1
    for b, steps in enumerate(lengths.tolist()):
        path = scores[:steps, b].argmax(-1)
        sums[b, 0] = -scores[:steps, b].max(-1).sum() if steps else 0
        path = _without_repeats(path) if call.attrs["merge_repeated"] else path
        rows.append(path[path != blank].tolist())
    return [*_sparse(rows), sums]


def _beam_search(log_p: Array, width: int) -> list[tuple[tuple[int, ...], float]]:
    """The most probable labels and the logarithms of their probabilities, of prefixes kept at each step."""
    blank = log_p.shape[1] - 1
    beams: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -np.inf)}  # ending in a blank, in a label
    for step in log_p:
        following: dict[tuple[int, ...], list[float]] = {}
        for prefix, (by_blank, by_label) in beams.items():
            total = np.logaddexp(by_blank, by_label)
            same = following.setdefault(prefix, [-np.inf, -np.inf])
            same[0] = np.logaddexp(same[0], total + step[blank])
            if prefix:
                same[1] = np.logaddexp(same[1], by_label + step[prefix[-1]])
            for label in range(blank):
                before = by_blank if prefix and prefix[-1] == label else total
                if before > -np.inf:
                    longer = following.setdefault((*prefix, label), [-np.inf, -np.inf])
                    longer[1] = np.logaddexp(longer[1], before + step[label])
        best = sorted(following.items(), key=lambda item: -np.logaddexp(item[1][0], item[1][1]))[:width]
        beams = {prefix: (ends[0], ends[1]) for prefix, ends in best}
    return [(prefix, float(np.logaddexp(*ends))) for prefix, ends in beams.items()]


def _beams(call: HostCall) -> list[Array]:
    scores, lengths = call.inputs
    attrs, batch = call.attrs, scores.shape[1]
    _check_lengths("CTCBeamSearchDecoder", lengths, len(scores))
    paths: list[list[list[int]]] = [[] for _ in range(attrs["top_paths"])]
    log_probabilities = np.full((batch, attrs["top_paths"]), -np.inf, scores.dtype)
    for b, steps in enumerate(lengths.tolist()):
        found = _beam_search(_log_softmax(scores[:steps, b]), attrs["beam_width"]) if steps else [((), 0.0)]
        for number, rows in enumerate(paths):
            labels, log_probability = found[number] if number < len(found) else ((), -np.inf)
            array = np.array(labels, np.int64)
            rows.append((_without_repeats(array) if attrs["merge_repeated"] else array).tolist())
            log_probabilities[b, number] = log_probability
    return [*(part for rows in paths for part in _sparse(rows)), log_probabilities]


def _decoder_spec(paths: Callable[[Attrs], int], columns: Callable[[Attrs], int], name: str) -> Any:
    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
        scores, lengths = inputs
        require_dtype(name, scores, FLOATING, "inputs")
        require_dtype(name, lengths, (int32,), "sequence_length")
        if scores.shape is not None:
            require_rank(name, scores, 3, "inputs")
        batch = None if scores.shape is None else scores.shape[1]
        sparse = [TensorSpec((None, 2), int64), TensorSpec((None,), int64), TensorSpec((2,), int64)]
        return [*sparse * paths(attrs), TensorSpec((batch, columns(attrs)), scores.dtype)]

    return spec


CTCGreedyDecoder = define_op(
    "CTCGreedyDecoder",
    spec=_decoder_spec(lambda attrs: 1, lambda attrs: 1, "CTCGreedyDecoder"),
    gradient=NOT_DIFFERENTIABLE,
    host=_greedy,
    inputs=("inputs", "sequence_length"),
    attrs={"merge_repeated": False},
)
CTCBeamSearchDecoder = define_op(
    "CTCBeamSearchDecoder",
    spec=_decoder_spec(
        lambda attrs: int(attrs["top_paths"]), lambda attrs: int(attrs["top_paths"]), "CTCBeamSearchDecoder"
    ),
    gradient=NOT_DIFFERENTIABLE,
    host=_beams,
    inputs=("inputs", "sequence_length"),
    attrs={"beam_width": 100, "top_paths": 1, "merge_repeated": True},
)


@checked
def ctc_greedy_decoder(
    inputs: Any, sequence_length: Any, merge_repeated: Flag = True, name: Name = None
) -> tuple[list[SparseTensor], Tensor]:
    """The labels of the most probable class at each step, a list of one sparse tensor, and minus its scores.

    inputs: [time, batch, classes], the last class being the blank; sequence_length: int32 [batch].
    merge_repeated: drops repetitions. Returns int64 labels [batch, most labels] and `[batch, 1]`, minus the
    sum of the greatest scores. In the dynamic mode.
    """
    with graph_of([inputs, sequence_length]).as_default():
        lengths = cast(as_tensor(sequence_length), int32)
        *parts, sums = CTCGreedyDecoder(inputs, lengths, merge_repeated=merge_repeated, name=name)
        return [SparseTensor(*parts)], sums


@checked
def ctc_beam_search_decoder(
    inputs: Any,
    sequence_length: Any,
    beam_width: Positive = 100,
    top_paths: Positive = 1,
    merge_repeated: Flag = True,
    name: Name = None,
) -> tuple[list[SparseTensor], Tensor]:
    """The most probable labels by a beam search over prefixes, and the logarithms of their probabilities.

    inputs, sequence_length: see `ctc_greedy_decoder`. beam_width: prefixes kept at each step. top_paths: how
    many results, at most beam_width. merge_repeated: drops repetitions from the results, also those that a
    blank had parted. Returns a list of sparse tensors of int64 [batch, most labels], and [batch, top_paths].
    In the dynamic mode.
    """
    if top_paths > beam_width:
        raise InvalidArgumentError(
            f"ctc_beam_search_decoder: top_paths is {top_paths}, expected at most beam_width, {beam_width}"
        )
    with graph_of([inputs, sequence_length]).as_default():
        lengths = cast(as_tensor(sequence_length), int32)
        *parts, log_probabilities = CTCBeamSearchDecoder(
            inputs,
            lengths,
            beam_width=beam_width,
            top_paths=top_paths,
            merge_repeated=merge_repeated,
            name=name,
        )
        paths = [SparseTensor(*parts[i : i + 3]) for i in range(0, 3 * top_paths, 3)]
        return paths, log_probabilities
