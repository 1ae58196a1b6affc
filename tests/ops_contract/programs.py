"""Small programs of ops of the host, for the op contract: what no call of one op shows, as of TensorArrays.

A program is a function of tensors, one for each array, that returns tensors. Every op that `needs_programs`
names must occur in one, and in one with an input of no elements unless `NEVER_EMPTY_PROGRAMS` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tensorbow as tb
from tensorbow.graph import NOT_DIFFERENTIABLE, Graph, Tensor
from tensorbow.ops.control import placeholder
from tensorbow.ops.control_flow import RequireAtMostOne
from tensorbow.specs import Array
from tests.ops_contract.collection import product_ops
from tests.ops_contract.exceptions import STRUCTURAL
from tests.ops_contract.sample import normal, vector


@dataclass(frozen=True, eq=False)
class Program:
    """A computation of arrays, its expected results, and what its gradient is checked by.

    wrt: inputs to differentiate by; None for every floating one.
    """

    label: str
    function: Callable[..., Sequence[Tensor]]
    inputs: tuple[Array, ...]
    expected: Callable[..., Sequence[Any]]
    wrt: tuple[int, ...] | None = None

    @property
    def differentiable(self) -> bool:
        """True if a floating input of some elements has a gradient."""
        targets = range(len(self.inputs)) if self.wrt is None else self.wrt
        return any(self.inputs[i].dtype.kind == "f" and self.inputs[i].size for i in targets)

    def build(
        self, graph: Graph, shape: Callable[[Array], Any] = np.shape
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Placeholders for the inputs, and the results."""
        with graph.as_default():
            inputs = [placeholder(a.dtype, shape(a)) for a in self.inputs]
            return inputs, list(self.function(*inputs))

    def ops(self) -> set[str]:
        """Names of the ops that it needs, with those of its gradient."""
        graph = Graph()
        inputs, outputs = self.build(graph)
        floating = [t for t in outputs if t.dtype.is_floating]
        targets = [t for t in inputs if t.dtype.is_floating]
        if targets and floating:
            first = [g for g in tb.gradients(floating, targets) if g is not None]
            if first:
                tb.gradients(first, targets)
        return {op.type for op in graph.get_operations()}


def needs_programs() -> set[str]:
    """Ops without samples that have a gradient, or whose host function computes values from values alone.

    Those with tests of their own, which the exceptions name, are left out.
    """
    ops = product_ops()
    return {
        name
        for name in STRUCTURAL
        if "tests/" not in STRUCTURAL[name]
        and (
            ops[name].gradient is not NOT_DIFFERENTIABLE
            or (ops[name].host is not None and not ops[name].stateful)
        )
    } - set(NEVER_IN_PROGRAMS)


_USERS = "calls a function of the user's: tests/queues"
NEVER_IN_PROGRAMS = {
    "PyFuncStateless": _USERS,
    "Call": "stands for a function, as a graph and not as a kernel: tests/test_functions.py",
    **dict.fromkeys(
        ("CTCBeamSearchDecoder", "CTCGreedyDecoder"), "their references are long: tests/ops/test_ctc.py"
    ),
}
NEVER_EMPTY_PROGRAMS = {
    "TensorArrayWriteV3": "writes an element",
    "TensorArrayReadV3": "reads an element",
    "RequireAtMostOne": "takes scalars",
}


def _array(x: Tensor, size: int, **options: Any) -> tb.TensorArray:
    return tb.TensorArray(x.dtype, size, **options)


def _writes_and_reads(x: Tensor, y: Tensor) -> list[Tensor]:
    array = _array(x, 3).write(2, x * y).write(0, y)
    first, last = array.read(0), array.read(2)
    return [first * last, last, array.size()]


def _scatters_and_gathers(x: Tensor, y: Tensor) -> list[Tensor]:
    array = _array(x, 5).scatter([3, 0], x).scatter([2, 1, 4], y * y)
    return [array.gather([3, 1, 3]), array.stack()]


def _joins_and_splits(x: Tensor, y: Tensor) -> list[Tensor]:
    written = _array(x, 2, infer_shape=False).write(1, x * x).write(0, y)
    split = _array(y, 3, infer_shape=False).split(y, [2, 0, 1])
    return [written.concat(), split.concat() * split.concat(), split.read(2)]


def _grows(x: Tensor, y: Tensor) -> list[Tensor]:
    array = _array(x, 0, dynamic_size=True, infer_shape=False).split(x * x, [1, 1]).write(2, y)
    return [array.concat(), array.read(2) * y]


def _parts(sparse: tb.SparseTensor) -> list[Tensor]:
    return [sparse.indices, sparse.values, sparse.dense_shape]


def _rows(rows: Sequence[Any]) -> list[Array]:
    """Indices, values and dense shape of rows of different lengths."""
    indices = [(number, i) for number, row in enumerate(rows) for i in range(len(row))]
    values = [value for row in rows for value in row]
    shape = np.array([len(rows), max(map(len, rows))])
    return [np.array(indices, np.int64).reshape(-1, 2), np.array(values, np.int64), shape]


# Scores [time, batch, classes] of two examples: 1, blank (2), 0 and 0, 0, 1.
_DECODED = [[1, 0], [0, 1]]
_SURE = np.full((3, 2, 3), -9, np.float32)
_SURE[[0, 1, 2], 0, [1, 2, 0]] = _SURE[[0, 1, 2], 1, [0, 0, 1]] = 4
_PAIR = (normal(2, 3), normal(3, 3, seed=1))
_NONE = (normal(2, 0), normal(3, 0))
_EMPTY_ROWS = normal(0, 3)

PROGRAMS = (
    Program(
        "writes and reads",
        _writes_and_reads,
        (normal(2, 3), normal(2, 3, seed=1)),
        lambda x, y: [x * y * y, x * y, 3],
    ),
    *(
        Program(
            label,
            _scatters_and_gathers,
            arrays,
            lambda x, y: [
                np.stack([x[0], y[1] ** 2, x[0]]),
                np.stack([x[1], y[1] ** 2, y[0] ** 2, x[0], y[2] ** 2]),
            ],
        )
        for label, arrays in (("scatters and gathers", _PAIR), ("scatters and gathers nothing", _NONE))
    ),
    *(
        Program(
            label,
            _joins_and_splits,
            arrays,
            lambda x, y: [np.concatenate([y, x**2]), y**2, y[2:]],
        )
        for label, arrays in (("joins and splits", _PAIR), ("joins and splits nothing", _NONE))
    ),
    Program("grows", _grows, _PAIR, lambda x, y: [np.concatenate([x**2, y]), y**2]),
    *(
        Program(
            f"partitions and stitches {label}",
            lambda x, n: [
                *(parts := tb.dynamic_partition(x, n, 3)),
                tb.dynamic_stitch([n[:0], tb.range(tb.shape(x)[0])], [x[:0], x * x]),
                parts[0] * parts[0],
            ],
            arrays,
            lambda x, n: [x[n == 0], x[n == 1], x[n == 2], x**2, x[n == 0] ** 2],
        )
        for label, arrays in (
            ("rows", (normal(5, 2), vector(2, 0, 1, 0, 0))),
            ("nothing", (normal(0, 2), np.zeros(0, np.int32))),
        )
    ),
    *(
        Program(
            f"stitches {label}",
            lambda i, x, j, y: [tb.dynamic_stitch([i, j], [x, y * y])],
            arrays,
            lambda i, x, j, y: [_stitched((*i, *j), [*x, *y * y])],
        )
        for label, arrays in (
            ("rows", (vector(2, 0), normal(2, 3), vector(1, 3, 0), normal(3, 3, seed=1))),
            ("no elements", (vector(2, 0), normal(2, 0), vector(1), normal(1, 0))),
        )
    ),
    *(
        Program(
            f"chooses {label}",
            lambda x, c: [tb.where(c), tb.boolean_mask(x * x, c)],
            arrays,
            lambda x, c: [np.argwhere(c), (x * x)[c]],
        )
        for label, arrays in (
            ("elements", (normal(3, 4), normal(3, 4, seed=2) > 0)),
            ("nothing", (normal(0, 4), np.zeros((0, 4), bool))),
        )
    ),
    *(
        Program(
            f"finds {label}",
            lambda x, y: [*tb.unique_with_counts(x), *tb.setdiff1d(x, y)],
            arrays,
            _different,
        )
        for label, arrays, _different in (
            (
                "different elements",
                (vector(3, 1, 3, 7, 1), vector(7, 9)),
                lambda x, y: [vector(3, 1, 7), vector(0, 1, 0, 2, 1), vector(2, 2, 1), vector(3, 1, 3, 1),
                              vector(0, 1, 2, 4)],
            ),
            ("none", (vector(), vector()), lambda x, y: [vector()] * 5),
        )
    ),
    *(
        Program(
            f"orders {label}",
            lambda i, v: [
                (ordered := tb.sparse_reorder(tb.SparseTensor(i, v * v, [4, 3]))).indices,
                ordered.values,
            ],
            arrays,
            lambda i, v: [i[np.lexsort(i.T[::-1])], (v * v)[np.lexsort(i.T[::-1])]],
        )
        for label, arrays in (
            ("sparse elements", (np.array([[2, 1], [0, 2], [2, 0], [0, 1]]), normal(4))),
            ("none", (np.zeros((0, 2), np.int64), normal(0))),
        )
    ),
    *(
        Program(
            f"sets of {label}",
            lambda a, b: [
                *_parts(tb.sets.set_union(a, b)),
                *_parts(tb.sets.set_difference(a, b)),
                tb.sets.set_size(a),
            ],
            arrays,
            lambda a, b: [
                *_rows([np.union1d(x, y) for x, y in zip(a, b, strict=True)]),
                *_rows([np.setdiff1d(x, y) for x, y in zip(a, b, strict=True)]),
                np.array([len(set(x.tolist())) for x in a]),
            ],
        )
        for label, arrays in (
            ("rows", (np.array([[3, 1, 3], [2, 2, 2]]), np.array([[1, 9], [5, 0]]))),
            ("no elements", (np.zeros((2, 0), np.int64), np.zeros((2, 1), np.int64))),
        )
    ),
    *(
        Program(
            f"edit distances of {label}",
            lambda i, a, j, b: [
                tb.edit_distance(tb.SparseTensor(i, a, [2, 4]), tb.SparseTensor(j, b, [2, 4]), False)
            ],
            arrays,
            lambda i, a, j, b, distances=distances: [np.array(distances)],
        )
        for label, arrays, distances in (
            (
                "sequences",
                (
                    np.array([[0, 0], [0, 1], [1, 0]]),
                    vector(3, 1, 2),
                    np.array([[0, 0], [0, 1], [0, 2]]),
                    vector(1, 5, 1),
                ),
                [2, 1],
            ),
            (
                "none",
                (np.zeros((0, 2), np.int64), vector(), np.zeros((0, 2), np.int64), vector()),
                [0, 0],
            ),
        )
    ),
    *(
        Program(
            f"boxes of which none overlap, {label}",
            lambda boxes, scores: [tb.image.non_max_suppression(boxes, scores, 9)],
            arrays,
            lambda boxes, scores, kept=kept: [np.array(kept)],
            wrt=(),
        )
        for label, arrays, kept in (
            (
                "some",
                (
                    np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3]], np.float32),
                    np.array([0.5, 0.9, 0.7], np.float32),
                ),
                [1, 2],
            ),
            ("none", (normal(0, 4), normal(0)), []),
        )
    ),
    *(
        Program(
            f"CTC decoders of {label}",
            lambda scores, lengths: [
                *_parts((greedy := tb.nn.ctc_greedy_decoder(scores, lengths))[0][0]),
                greedy[1],
                *_parts(tb.nn.ctc_beam_search_decoder(scores, lengths, 9)[0][0]),
            ],
            arrays,
            lambda scores, lengths: [*_rows(_DECODED), -scores.max(2).sum(0)[:, None], *_rows(_DECODED)]
            if scores.size
            else [*_rows([[], []]), np.zeros((2, 1)), *_rows([[], []])],
            wrt=(),
        )
        for label, arrays in (("scores", (_SURE, vector(3, 3))), ("nothing", (normal(0, 2, 3), vector(0, 0))))
    ),
    Program(
        "requires at most one",
        lambda a, b: [RequireAtMostOne(a, b)],
        (np.asarray(True), np.asarray(False)),
        lambda a, b: [True],
    ),
)  # fmt: skip


def _stitched(numbers: Sequence[int], rows: Sequence[Array]) -> Array:
    last = dict(zip(numbers, rows, strict=True))
    return np.stack([last[number] for number in range(len(last))])
