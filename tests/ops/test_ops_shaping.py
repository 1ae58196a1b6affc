"""Public behaviour of split, unstack, tile, range, fill, top_k and random_shuffle."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.interpreter import run_graph
from tests.ops_contract.sample import apart, normal

pytestmark = pytest.mark.usefixtures("graph")

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def value(tensor, **feeds):
    return run_graph([tensor], {})[0]


def test_split_and_unstack():
    pieces = tb.split(X, [1, -1, 2], axis=1)
    assert [p.shape.as_list() for p in pieces] == [[3, 1], [3, 1], [3, 2]]
    assert value(pieces[2]).tolist() == X[:, 2:].tolist()
    rows = tb.unstack(X)
    assert [value(r).tolist() for r in rows] == X.tolist()
    columns = tb.unstack(tb.placeholder(tb.float32, [3, None]), num=4, axis=-1)
    assert [c.shape.as_list() for c in columns] == [[3]] * 4
    assert value(tb.stack(tb.unstack(X, axis=1), axis=1)).tolist() == X.tolist()
    with pytest.raises(InvalidArgumentError, match="not split into 2 equal pieces"):
        tb.split(X, 2)
    with pytest.raises(InvalidArgumentError, match="do not add up to the axis' 4"):
        tb.split(X, [1, 2], axis=1)
    with pytest.raises(InvalidArgumentError, match="give num"):
        tb.unstack(tb.placeholder(tb.float32, [None, 3]))


def test_gradients_of_pieces_that_are_not_used():
    check_gradients(lambda x: [tb.square(tb.split(x, 3, 0)[1])], [normal(6, 2)], second_order=True)
    check_gradients(lambda x: [tb.multiply(*tb.unstack(x, 2, 1))], [normal(5, 2)])


def test_ranges():
    assert value(tb.range(5)).tolist() == [0, 1, 2, 3, 4]
    assert tb.range(2, 9, 3).dtype == tb.int32
    assert tb.range(0, 1, 0.25).dtype == tb.float32
    assert value(tb.range(0, 1, 0.25)).tolist() == [0, 0.25, 0.5, 0.75]
    assert tb.range(np.int64(3)).dtype == tb.int64
    assert tb.range(3, dtype=tb.float64).dtype == tb.float64
    assert value(tb.lin_space(0.0, 1.0, 3)).tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(InvalidArgumentError, match="does not end"):
        tb.range(0, 3, 0)


def test_shapes_fold_to_constants():
    x = tb.placeholder(tb.float32, [None, 3])
    batch = tb.shape(x)[0]
    pairs, singles = tb.stack([batch, 2]), tb.stack([batch, 1])
    outputs = [tb.range(batch), tb.fill(pairs, 7.0), tb.rank(x), tb.zeros(singles)]
    with tb.Session() as session:
        results = session.run(outputs, {x: normal(4, 3)})
        assert "folded" in str(session.explain(outputs, {x: normal(4, 3)}))
    assert results[0].tolist() == [0, 1, 2, 3]
    assert results[1].tolist() == [[7, 7]] * 4
    assert results[2] == 2
    assert results[3].tolist() == [[0]] * 4


def test_fill_zeros_ones():
    assert value(tb.fill([2, 3], 5)).tolist() == [[5] * 3] * 2
    assert (tb.zeros([2], tb.int32).dtype, tb.ones([]).dtype) == (tb.int32, tb.float32)
    assert value(tb.ones([2, 1])).tolist() == [[1], [1]]
    with pytest.raises(InvalidArgumentError, match="expected a scalar"):
        tb.fill([2], [1.0, 2.0])


@pytest.mark.parametrize("known", ["shapes", "ranks", "nothing"])
def test_gradients_with_unknown_extents(known):
    check_gradients(lambda x: [tb.tile(x, [2, 3])], [normal(4, 2)], known=known)
    check_gradients(lambda x: [tb.nn.top_k(x, 2)[0]], [apart(2, 3, 5)], known=known)
    check_gradients(
        lambda x: [tb.square(tb.nn.top_k(x, 2)[0])], [apart(3, 5)], known=known, second_order=True
    )
    check_gradients(lambda x: [tb.reduce_prod(x, [0, 2])], [normal(2, 3, 4)], known=known, second_order=True)


def test_top_k():
    values, indices = tb.nn.top_k([[1.0, 3.0, 3.0, 2.0]], k=3)
    assert value(values).tolist() == [[3, 3, 2]]
    assert value(indices).tolist() == [[1, 2, 3]]
    assert indices.dtype == tb.int32
    with pytest.raises(InvalidArgumentError, match="fewer than k = 5"):
        tb.nn.top_k(X, 5)


def test_random_shuffle_is_a_function_of_seeds_and_step():
    def shuffled(runs):
        with tb.Graph().as_default():
            x = tb.placeholder(tb.float32, [None, 2])
            result = tb.random_shuffle(x, seed=5)
            with tb.Session() as session:
                rows = np.arange(40, dtype=np.float32).reshape(20, 2)
                return [session.run(result, {x: rows}) for _ in range(runs)]

    first, second = shuffled(2)
    assert sorted(first[:, 0].tolist()) == list(range(0, 40, 2))
    assert (first[:, 1] - first[:, 0] == 1).all()
    assert first.tolist() != second.tolist()
    assert shuffled(1)[0].tolist() == first.tolist()


def test_every_order_is_drawn_equally_often():
    with tb.Graph().as_default():
        result = tb.random_shuffle(tb.constant([0, 1, 2]), seed=1)
        with tb.Session() as session:
            counts: dict[tuple[int, ...], int] = {}
            for _ in range(1200):
                order = tuple(session.run(result).tolist())
                counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert all(150 < count < 250 for count in counts.values())  # 200, give or take four deviations


def test_the_gradient_of_a_shuffle_finds_its_way_back():
    x, w = normal(7, 2), normal(7, 2, seed=1)
    state = {"counter": 2, "random_stream": 0}
    source = tb.placeholder(tb.float32, [7, 2])
    result = tb.random_shuffle(source, seed=3)
    (gradient,) = tb.gradients(result, source, w)
    shuffled, back = run_graph([result, gradient], {source: x}, state)
    order = [x.tolist().index(row) for row in shuffled.tolist()]
    np.testing.assert_array_equal(back[order], w)


def test_slices_by_begin_end_and_strides():
    x, n = np.arange(60.0, dtype=np.float32).reshape(3, 4, 5), tb.placeholder(tb.int32, [])
    v = tb.placeholder(tb.int32, [3])
    cases = (
        (([1, 0, 0], [2, 3, 5]), {}, np.s_[1:2, 0:3, 0:5]),
        (([1, -1, 0], [2, -3, 3], np.array([1, -1, 2])), {}, np.s_[1:2, -1:-3:-1, 0:3:2]),
        (([0, n, 1], [n, 4, 4]), {}, np.s_[0:2, 2:4, 1:4]),
        ((v, [3, 4, 5]), {}, np.s_[1:3, 0:4, 2:5]),
        (
            ([1, 0, 0], [0, 3, 3]),
            {"begin_mask": 2, "end_mask": 4, "shrink_axis_mask": 1, "name": "part"},
            np.s_[1, :3],
        ),
        (([0, 0, 1], [0, 0, 3]), {"ellipsis_mask": 1, "new_axis_mask": 2}, np.s_[..., None, 1:3]),
        (([1], [3]), {}, np.s_[1:3]),
        (((1, ..., n),), {}, np.s_[1, ..., 2]),
    )
    for arguments, masks, index in cases:
        y = tb.strided_slice(x, *arguments, **masks)
        assert masks.get("name", y.op.name) == y.op.name
        np.testing.assert_array_equal(run_graph([y], {n: np.int32(2), v: np.int32([1, 0, 2])})[0], x[index])
    for begin, end, words in (
        ([1], [1, 2], "as many numbers in end and strides as in begin, 1, got 2 and 1"),
        ([1.5], [2], r"begin to be a list of whole numbers.*got list \[1.5\]"),
        ([1], tb.placeholder(tb.int32, [None]), "end to be .* integer vector of known length"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            tb.strided_slice(x, begin, end)


def test_running_sums_and_logic():
    assert value(tb.cumsum([1, 2, 3])).tolist() == [1, 3, 6]
    assert value(tb.cumprod([1, 2, 3], exclusive=True, reverse=True)).tolist() == [6, 3, 1]
    a, b = tb.constant([True, True, False]), tb.constant([True, False, False])
    assert value(tb.logical_xor(a, b)).tolist() == [False, True, False]
    assert value(a ^ b).tolist() == [False, True, False]
    assert value(tb.reduce_any(a)) & ~value(tb.reduce_all(a))
    assert value(tb.reverse(X, 0)).tolist() == X[::-1].tolist()


def test_the_inverse_of_a_singular_matrix_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"input \[1\] is not invertible"):
        value(tb.matrix_inverse(np.stack([np.eye(2), np.zeros((2, 2))])))
    with pytest.raises(InvalidArgumentError, match="expected square matrices"):
        tb.matrix_inverse(X)
