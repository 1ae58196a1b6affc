"""Ops whose result shapes depend on data, and shape arguments that do: values, gradients, errors."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.executor.slopes import check_slopes
from tests.ops_contract.sample import normal

pytestmark = pytest.mark.usefixtures("session")


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 0, 3), ()])
def test_coordinates(session, shape):
    x = tb.placeholder(tb.float32, [None] * len(shape))
    value = np.round(normal(*shape))
    np.testing.assert_array_equal(session.run(tb.where(x > 0.0), {x: value}), np.argwhere(value > 0))
    for y in (tb.nonzero(x), tb.where(x), tb.where(tb.cast(x, tb.int8)), tb.where(tb.cast(x, tb.complex64))):
        np.testing.assert_array_equal(session.run(y, {x: value}), np.argwhere(value))
    assert tb.where(x > 0.0).shape.as_list() == [None, len(shape)]


def test_where_takes_both_values_or_none():
    with pytest.raises(InvalidArgumentError, match="only one of x and y"):
        tb.where([True], [1.0])


@pytest.mark.parametrize(
    ("mask_shape", "axis"), [((4,), None), ((4, 3), 0), ((3,), 1), ((3, 5), 1), ((5,), -1)]
)
def test_masks(session, mask_shape, axis):
    x = normal(4, 3, 5)
    fed, mask = tb.placeholder(tb.float32, [None, 3, None]), tb.placeholder(tb.bool, [None] * len(mask_shape))
    chosen = normal(*mask_shape) > 0
    masked = tb.boolean_mask(fed, mask, axis=axis)
    start = (axis or 0) % 3
    expected = x[(slice(None),) * start + (chosen,)]
    np.testing.assert_array_equal(session.run(masked, {fed: x, mask: chosen}), expected)
    assert masked.shape.ndims == expected.ndim
    empty = session.run(masked, {fed: x, mask: np.zeros_like(chosen)})
    assert empty.size == 0


def test_gradient_of_a_mask_reaches_what_it_keeps(session):
    mask = tb.placeholder(tb.bool, [None])
    x = tb.placeholder(tb.float32, [None, 2])
    (gradient,) = tb.gradients(tb.reduce_sum(tb.square(tb.boolean_mask(x, mask))), x)
    value = normal(3, 2)
    found = session.run(gradient, {x: value, mask: [True, False, True]})
    np.testing.assert_allclose(found, 2 * value * [[1], [0], [1]])
    with pytest.raises(
        InvalidArgumentError, match=r"the mask is bool\[3\], expected the shape of axes 1 to 1"
    ):
        tb.boolean_mask(tb.ones([3, 2]), tb.constant([True] * 3), axis=1)
    with pytest.raises(InvalidArgumentError, match="known rank"):
        tb.boolean_mask(x, tb.placeholder(tb.bool))


def test_unique_values_in_order_of_appearance(session):
    x = tb.placeholder(tb.int32, [None])
    y, numbers, counts = tb.unique_with_counts(x, out_idx=tb.int64)
    for value in ([1, 1, 2, 4, 4, 4, 7, 8, 8], [5, 3, 5, 5, 1], []):
        found, indices, times = session.run([y, numbers, counts], {x: value})
        assert found.tolist() == list(dict.fromkeys(value))
        assert found[indices].tolist() == value
        assert times.tolist() == [value.count(each) for each in found]
        assert indices.dtype == times.dtype == np.int64
    values, numbers = session.run(tb.unique(tb.constant([2.5, 1.0, 2.5])))
    assert (values.tolist(), numbers.tolist()) == ([2.5, 1.0], [0, 1, 0])
    assert session.run(tb.unique([np.nan, 1.0, np.nan]).idx).tolist() == [0, 1, 2]  # no NaN equals another
    with pytest.raises(InvalidArgumentError, match="out_idx is float32, expected int32 or int64"):
        tb.unique(x, out_idx=tb.float32)


def test_difference_of_lists(session):
    x, y = tb.placeholder(tb.int32, [None]), tb.placeholder(tb.int32, [None])
    out, positions = session.run(tb.setdiff1d(x, y), {x: [1, 2, 3, 4, 5, 6, 2], y: [1, 3, 5]})
    assert (out.tolist(), positions.tolist()) == ([2, 4, 6, 2], [1, 3, 5, 6])


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_partitions_and_stitching_are_inverse(session, count, shape):
    x, numbers = normal(*shape, 2), (np.arange(6) * 5 % count).reshape(shape).astype(np.int32)
    fed, parts_of = tb.placeholder(tb.float32, [*shape, 2]), tb.placeholder(tb.int32, shape)
    parts = tb.dynamic_partition(fed, parts_of, count)
    where = tb.dynamic_partition(tb.reshape(tb.range(6), shape), parts_of, count)
    again = tb.dynamic_stitch(where, [part * 2.0 for part in parts])
    values, stitched = session.run([parts, again], {fed: x, parts_of: numbers})
    for number, value in enumerate(values):
        np.testing.assert_array_equal(value, x[numbers == number])
    np.testing.assert_array_equal(stitched, 2 * x.reshape(6, 2))
    weights = normal(6, 2, seed=1)
    (gradient,) = tb.gradients(tb.reduce_sum(again * weights), fed)
    np.testing.assert_allclose(
        session.run(gradient, {fed: x, parts_of: numbers}), 2 * weights.reshape(x.shape)
    )


def test_stitching_takes_the_last_of_equal_rows(session):
    first, second = tb.placeholder(tb.float32, [2]), tb.placeholder(tb.float32, [2])
    result = tb.dynamic_stitch([[0, 1], [1, 2]], [first, second])
    fed = {first: [1.0, 2.0], second: [3.0, 4.0]}
    assert session.run(result, fed).tolist() == [1.0, 3.0, 4.0]
    gradients = session.run(tb.gradients(tb.reduce_sum(result * [1.0, 10.0, 100.0]), [first, second]), fed)
    assert [g.tolist() for g in gradients] == [[1.0, 0.0], [10.0, 100.0]]


def test_bad_positions_are_named(session):
    numbers = tb.placeholder(tb.int32, [None])
    parts = tb.dynamic_partition(tb.range(3), numbers, 2)
    with pytest.raises(InvalidArgumentError, match=r"partitions 2 at 1, expected numbers from 0 to 1"):
        session.run(parts, {numbers: [0, 2, 1]})
    stitched = tb.dynamic_stitch([numbers], [tb.range(2)])
    with pytest.raises(InvalidArgumentError, match=r"no index 1, expected all from 0 to 2"):
        session.run(stitched, {numbers: [0, 2]})
    with pytest.raises(InvalidArgumentError, match=r"index -1, expected numbers of at least 0"):
        session.run(stitched, {numbers: [0, -1]})
    with pytest.raises(InvalidArgumentError, match="2 indices and 1 data"):
        tb.dynamic_stitch([numbers, numbers], [numbers])


def test_shape_arguments_that_depend_on_data(session):
    n = tb.placeholder(tb.int32, [])
    x = tb.placeholder(tb.float32, [None])
    chosen = tb.boolean_mask(x, x > 0.0)
    fed = {x: [1.0, -1.0, 2.0, 3.0, 4.0], n: 2}
    shaped = tb.reshape(chosen, tb.stack([n, -1]))
    np.testing.assert_array_equal(session.run(shaped, fed), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(session.run(tb.tile(chosen, [n]), fed), [1, 2, 3, 4] * 2)
    np.testing.assert_array_equal(session.run(tb.range(tb.size(chosen)) * n, fed), [0, 2, 4, 6])
    np.testing.assert_array_equal(session.run(tb.range(n, 10, n), fed), [2, 4, 6, 8])
    np.testing.assert_allclose(session.run(tb.linspace(0.0, 1.0, n + 3), fed), np.linspace(0, 1, 5))
    assert session.run(tb.linspace(2.0, 3.0, n - 1), fed).tolist() == [2.0]
    np.testing.assert_array_equal(session.run(tb.fill([n, n], 5.0), fed), np.full((2, 2), 5.0))
    np.testing.assert_array_equal(session.run(tb.ones(tb.stack([n]) * 2), fed), np.ones(4))
    gradients = tb.gradients(tb.reduce_sum(tb.square(shaped)), x)
    np.testing.assert_allclose(session.run(gradients[0], fed), [2, 0, 4, 6, 8])


def test_a_reversed_sequence_of_data_dependent_length(session):
    x, lengths = tb.placeholder(tb.float32, [None, None, 2]), tb.placeholder(tb.int32, [None])
    value = normal(2, 4, 2)
    kept = tb.boolean_mask(x, lengths > 0)
    turned = tb.reverse_sequence(kept, tb.boolean_mask(lengths, lengths > 0))
    found = session.run(turned, {x: value, lengths: [0, 3]})
    np.testing.assert_array_equal(found[0], value[1][[2, 1, 0, 3]])
    every = tb.reverse_sequence(x, lengths)
    for wrong in ([5, 0], [-1, 0]):
        with pytest.raises(InvalidArgumentError, match=r"ReverseSequence.*is not in \[0, 8\)"):
            session.run(every, {x: value, lengths: wrong})
    for rows, wrong in ((2, [4]), (1, [4, 4])):
        with pytest.raises(InvalidArgumentError, match="ReverseSequence"):
            session.run(every, {x: value[:rows], lengths: wrong})


def test_masks_in_loops_and_branches(session):
    x = tb.placeholder(tb.float32, [None])

    def body(i, total):
        return i + 1, total + tb.reduce_sum(tb.boolean_mask(x, x > tb.cast(i, tb.float32)))

    total = tb.while_loop(lambda i, total: i < 3, body, [0, 0.0])[1]
    assert session.run(total, {x: [0.5, 1.5, 2.5]}) == 4.5 + 4.0 + 2.5
    y = tb.cond(tb.size(x) > 2, lambda: tb.size(tb.unique(x)[0]), lambda: -1)
    assert session.run(y, {x: [1.0, 1.0, 2.0]}) == 2


def test_gradients_are_right_numerically(session):
    mask = np.array([[True, False, True], [False, True, True]])
    check_slopes(session, lambda x: [tb.boolean_mask(x, mask)], [normal(2, 3, 2)])
    check_slopes(session, lambda x: tb.dynamic_partition(x, mask.astype(np.int32), 2), [normal(2, 3)])
    stitch = [[2, 0], [[1, 3]]]
    check_slopes(session, lambda x, y: [tb.dynamic_stitch(stitch, [x, y])], [normal(2, 3), normal(1, 2, 3)])


def test_a_variable_is_trained_through_a_mask(session):
    w = tb.Variable(np.ones((4, 2), np.float32))
    mask = tb.placeholder(tb.bool, [4])
    update = tb.train.GradientDescentOptimizer(0.5).minimize(tb.reduce_sum(tb.boolean_mask(w, mask)))
    session.run(w.initializer)
    session.run(update, {mask: [True, False, False, True]})
    np.testing.assert_array_equal(session.run(w), [[0.5] * 2, [1] * 2, [1] * 2, [0.5] * 2])


@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod"])
def test_segments_by_fed_ids(session, name):
    """There are as many as the last id says, another number in each step, as by ids that are constant."""
    reduce = getattr(tb, f"segment_{name}")
    x, ids = tb.placeholder(tb.float32, [None, 2]), tb.placeholder(tb.int32, [None])
    unknown_x, unknown_ids = tb.placeholder(tb.float32), tb.placeholder(tb.int64)
    data = np.array([[3, -1], [0.5, 2], [-4, 6], [1, 7]], np.float32)
    for given in ([0, 0, 2, 5], [0, 1, 1, 1], [2, 2, 2, 2]):
        results = [reduce(x, np.array(given)), reduce(x, ids), reduce(unknown_x, unknown_ids)]
        gradients = [
            tb.gradients(tb.reduce_sum(result**2), source)[0]
            for result, source in zip(results, (x, x, unknown_x), strict=True)
        ]
        feeds = {x: data, ids: given, unknown_x: data, unknown_ids: given}
        values, slopes = session.run([results, gradients], feeds)
        assert values[0].shape == (given[-1] + 1, 2)
        for value, slope in zip(values[1:], slopes[1:], strict=True):
            np.testing.assert_allclose(value, values[0], rtol=1e-6)
            np.testing.assert_allclose(slope, slopes[0], rtol=1e-6)


@pytest.mark.usefixtures("reference_kernels")
def test_segments_by_wrong_or_no_ids(session):
    x, ids = tb.placeholder(tb.float32, [None, 2]), tb.placeholder(tb.int32, [None])
    total = tb.segment_sum(x, ids)
    assert session.run(total, {x: np.zeros((0, 2)), ids: []}).shape == (0, 2)
    for wrong in ([0, 2, 1], [-1, 0, 1]):
        with pytest.raises(InvalidArgumentError, match="segment_sum: segment_ids must be sorted"):
            session.run(total, {x: np.ones((3, 2)), ids: wrong})
    with pytest.raises(InvalidArgumentError, match=r"float32\[3, 2\] has 6 elements, expected 4"):
        session.run(total, {x: np.ones((3, 2)), ids: [0, 1]})


def fed(*values):
    """Placeholders of unknown shapes for arrays of int32, and their feeds."""
    tensors = [tb.placeholder(tb.int32, [None] * np.ndim(value)) for value in values]
    return [*tensors, dict(zip(tensors, values, strict=True))]


@pytest.mark.usefixtures("reference_kernels")
def test_masks_of_sequences_by_data(session):
    lengths, most, feeds = fed([1, 3, 0], 5)
    masks = [tb.sequence_mask(lengths), tb.sequence_mask(lengths, most), tb.sequence_mask(lengths, 2)]
    found = session.run([*masks, tb.sequence_mask([[1], [2]], most, tb.float32)], feeds)
    for value, width in zip(found, (3, 5, 2), strict=False):
        np.testing.assert_array_equal(value, np.arange(width) < np.array([[1], [3], [0]]))
    np.testing.assert_array_equal(found[3], np.float32([[[1, 0, 0, 0, 0]], [[1, 1, 0, 0, 0]]]))
    assert session.run(masks[0], {lengths: []}).shape == (0, 0)
    assert tb.sequence_mask(lengths, tb.constant(4)).shape.as_list() == [None, 4]


@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize(
    "more", [{}, {"axis": 0}, {"axis": 1, "on_value": 2.5, "off_value": -1.0}, {"dtype": tb.int64}]
)
def test_one_hot_of_a_depth_by_data(session, more):
    indices, depth, feeds = fed([[0, 2, -1], [5, 1, 3]], 4)
    found, wanted = session.run([tb.one_hot(indices, depth, **more), tb.one_hot(indices, 4, **more)], feeds)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(InvalidArgumentError, match="one_hot: depth is -1, expected the number of classes"):
        session.run(tb.one_hot(indices, depth), {indices: [[0]], depth: -1})


@pytest.mark.usefixtures("reference_kernels")
def test_identity_matrices_and_bands_of_sizes_by_data(session):
    rows, columns, feeds = fed(2, 3)
    x = normal(3, 4)
    found = session.run([tb.eye(rows), tb.eye(rows, columns, [2]), tb.eye(3, columns, dtype=tb.int32)], feeds)
    for value, wanted in zip(found, (np.eye(2), [np.eye(2, 3)] * 2, np.eye(3)), strict=True):
        np.testing.assert_array_equal(value, wanted)
    band = tb.matrix_band_part(x, rows, columns)
    for lower, upper in ((0, 1), (-1, 0), (1, -1), (-1, -1)):
        value, wanted = session.run(
            [band, tb.matrix_band_part(x, lower, upper)], {rows: lower, columns: upper}
        )
        np.testing.assert_array_equal(value, wanted)


@pytest.mark.usefixtures("reference_kernels")
def test_the_greatest_of_a_number_by_data(session):
    k, feeds = fed(2)
    x = tb.placeholder(tb.float32, [None, None])
    data = np.array([[1, 5, 5, 0], [4, 2, 3, 9]], np.float32)
    values, indices = tb.nn.top_k(x, k)
    slope = tb.gradients(tb.reduce_sum(values**2), x)[0]
    wanted, places = tb.nn.top_k(x, 2)
    wanted_slope = tb.gradients(tb.reduce_sum(wanted**2), x)[0]
    results = session.run([values, indices, slope, wanted, places, wanted_slope], {x: data, **feeds})
    for value, other in zip(results[:3], results[3:], strict=True):
        np.testing.assert_array_equal(value, other)
    with pytest.raises(InvalidArgumentError, match=r"top_k: k is 5 for rows of \[2, 4\]"):
        session.run(values, {x: data, k: 5})


@pytest.mark.usefixtures("reference_kernels")
def test_confusions_of_classes_by_data(session):
    labels, predictions, n, feeds = fed([0, 2, 2, 1], [0, 1, 1, 3], 5)
    found = session.run(
        [tb.confusion_matrix(labels, predictions), tb.confusion_matrix(labels, predictions, n)], feeds
    )
    wanted = np.zeros((5, 5), int)
    np.add.at(wanted, ([0, 2, 2, 1], [0, 1, 1, 3]), 1)
    np.testing.assert_array_equal(found[0], wanted[:4, :4])
    np.testing.assert_array_equal(found[1], wanted)
    assert tb.confusion_matrix([0, 1], [2, 1]).shape.as_list() == [3, 3]


@pytest.mark.usefixtures("reference_kernels")
def test_pieces_of_sizes_by_data(session):
    sizes, first = tb.placeholder(tb.int32, [3]), tb.placeholder(tb.int32, [])
    x = tb.placeholder(tb.float32, [None, None])
    data = normal(2, 6)
    pieces, others = tb.split(x, sizes, 1), tb.split(x, [first, -1], -1)
    slope = tb.gradients(tb.reduce_sum(pieces[1] ** 2), x)[0]
    for given in ([1, 3, 2], [2, -1, 4], [0, 6, 0]):
        found, slopes = session.run([pieces, slope], {x: data, sizes: given})
        starts = np.cumsum([0, given[0], 6 - given[0] - given[2]])
        for piece, wanted in zip(found, np.split(data, starts[1:], 1), strict=True):
            np.testing.assert_array_equal(piece, wanted)
        inside = (np.arange(6) >= starts[1]) & (np.arange(6) < starts[2])
        np.testing.assert_allclose(slopes, 2 * data * inside, rtol=1e-6)
    assert [piece.shape for piece in session.run(others, {x: data, first: 4})] == [(2, 4), (2, 2)]
    for wrong in ([1, 1, 1], [-1, -1, 2], [5, 5, -1], [-2, 6, 2]):
        with pytest.raises(InvalidArgumentError, match="sizes do not add up to the extent of axis 1"):
            session.run(pieces, {x: data, sizes: wrong})
    with pytest.raises(InvalidArgumentError, match=r"split: sizes int32\[\?\].*of a known length"):
        tb.split(x, tb.placeholder(tb.int32, [None]), 1)


def test_results_have_names(session):
    greatest = tb.nn.top_k([1.0, 3.0, 2.0], 2)
    unique, counted = tb.unique([5, 5, 4]), tb.unique_with_counts([5, 5, 4])
    left = tb.setdiff1d([1, 2, 3], [2])
    assert session.run([greatest.values, greatest.indices])[1].tolist() == [1, 2]
    found = session.run({"u": unique, "c": counted, "l": left})
    assert (found["u"].y.tolist(), found["u"].idx.tolist()) == ([5, 4], [0, 0, 1])
    assert found["c"].count.tolist() == [2, 1]
    assert (found["l"].out.tolist(), found["l"].idx.tolist()) == ([1, 3], [0, 2])
