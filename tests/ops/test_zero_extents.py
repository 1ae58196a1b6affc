"""Functions of arrays without elements, of known and of unknown extents, beside NumPy's results."""

import numpy as np
import pytest

import tensorbow as tb

MATRICES = ((3, 0), (0, 3), (0, 0), (2, 3, 0), (0, 2, 3))
CALLS = {
    "roll": (lambda x: tb.roll(x, 1, 0), lambda x: x),
    "roll of two axes": (lambda x: tb.roll(x, [1, -2], [0, 1]), lambda x: x),
    "matrix_set_diag": (lambda x: tb.matrix_set_diag(x, tb.matrix_diag_part(x)), lambda x: x),
    "matrix_diag_part": (tb.matrix_diag_part, lambda x: np.zeros([*x.shape[:-2], min(x.shape[-2:])])),
    "matmul": (lambda x: tb.matmul(x, x, transpose_b=True), lambda x: x @ x.swapaxes(-1, -2)),
    "sort": (tb.sort, lambda x: x),
    "argsort": (lambda x: tb.argsort(x, 0), lambda x: x),
    "softmax": (lambda x: tb.nn.softmax(x, 0), lambda x: x),
    "reduce_prod": (lambda x: tb.reduce_prod(x, -1), lambda x: x.prod(-1)),
    "reduce_max": (lambda x: tb.reduce_max(x, 0), lambda x: x.max(0, initial=-np.inf)),
    "tile": (lambda x: tb.tile(x, [2] * x.shape.ndims), lambda x: np.tile(x, [2] * x.ndim)),
    "pad": (lambda x: tb.pad(x, [[1, 2]] * x.shape.ndims), lambda x: np.pad(x, (1, 2))),
    "gather": (lambda x: tb.gather(x, tb.zeros([0], "int32"), axis=1), lambda x: x[:, :0]),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CALLS)
def test_arrays_without_elements(name):
    function, expected = CALLS[name]
    with tb.Graph().as_default(), tb.Session() as session:
        for shape in MATRICES:
            x = np.zeros(shape, np.float32)
            for known in (shape, [None] * len(shape)):
                fed = tb.placeholder(tb.float32, known)
                result = function(fed)
                fetches = [result, *tb.gradients(result, fed)] if result.dtype.is_floating else [result]
                got, *slopes = session.run(fetches, {fed: x})
                np.testing.assert_array_equal(got, expected(x))
                assert [slope.shape for slope in slopes if slope is not None] in ([], [shape])


def test_no_pictures_are_standardised():
    with tb.Graph().as_default(), tb.Session() as session:
        fed = tb.placeholder(tb.uint8, [None, 4, 5, 3])
        result = tb.image.per_image_standardization(fed)
        assert session.run(result, {fed: np.zeros((0, 4, 5, 3), np.uint8)}).shape == (0, 4, 5, 3)


def test_order_along_an_extent_that_comes_with_the_feeds():
    x = np.random.default_rng(0).permutation(30).reshape(5, 6).astype(np.float32)
    with tb.Graph().as_default(), tb.Session() as session:
        fed = tb.placeholder(tb.float32, [None, None])
        for axis in (0, 1):
            found = tb.sort(fed, axis), tb.argsort(fed, axis, "DESCENDING"), tb.argsort(fed, axis)
            ascending, down, up = session.run(found, {fed: x})
            np.testing.assert_array_equal(ascending, np.sort(x, axis))
            np.testing.assert_array_equal(down, np.argsort(-x, axis))
            np.testing.assert_array_equal(up, np.argsort(x, axis))
            assert found[0].shape == [None, None]
