"""Products and equations of tridiagonal matrices: formats of the diagonals, shapes, gradients, errors."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")

ABOVE, MAIN, BELOW = np.float32([1, 2, -1]), np.float32([4, 5, 6, 7]), np.float32([3, 1, 2])
MATRIX = np.diag(MAIN) + np.diag(ABOVE, 1) + np.diag(BELOW, -1)
COMPACT = np.stack([np.append(ABOVE, 9), MAIN, np.append(8, BELOW)]).astype(np.float32)
RHS = np.arange(8, dtype=np.float32).reshape(4, 2) - 3
FORMATS = {
    "compact": COMPACT,
    "matrix": MATRIX,
    "sequence": [ABOVE, MAIN, BELOW],
}


def run(*fetches, **feeds):
    with tb.Session() as session:
        return session.run(fetches, **feeds)


@pytest.mark.parametrize("kind", FORMATS)
def test_formats(kind):
    solved = tb.linalg.tridiagonal_solve(FORMATS[kind], RHS, kind)
    vector = tb.linalg.tridiagonal_solve(FORMATS[kind], RHS[:, 0], kind)
    rows = tb.linalg.tridiagonal_solve(FORMATS[kind], RHS.T, kind, transpose_rhs=True)
    product = tb.linalg.tridiagonal_matmul(FORMATS[kind], RHS, kind)
    expected = np.linalg.solve(MATRIX, RHS)
    for got, values in zip(
        run(solved, vector, rows, product), (expected, expected[:, 0], expected, MATRIX @ RHS), strict=True
    ):
        np.testing.assert_allclose(got, values, rtol=1e-4, atol=1e-5)
    long = tb.linalg.tridiagonal_solve(list(COMPACT), RHS, "sequence")
    np.testing.assert_allclose(run(long)[0], expected, rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_dense_matrices():
    compact, rhs, matrix = tb.constant(COMPACT), tb.constant(RHS), tb.constant(MATRIX)
    pairs = [
        (tb.linalg.tridiagonal_solve(compact, rhs), tb.matrix_solve(matrix, rhs)),
        (tb.linalg.tridiagonal_matmul(compact, rhs), tb.matmul(matrix, rhs)),
    ]
    for ours, dense in pairs:
        of_diagonals, of_rhs = tb.gradients(tb.square(ours), [compact, rhs])
        of_matrix, of_dense = tb.gradients(tb.square(dense), [matrix, rhs])
        got, slope, whole, expected = run(of_diagonals, of_rhs, of_matrix, of_dense)
        np.testing.assert_allclose(slope, expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(got[1], np.diag(whole), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(got[0], np.append(np.diag(whole, 1), 0), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(got[2], np.append(0, np.diag(whole, -1)), rtol=1e-3, atol=1e-4)


def test_extents_that_come_with_the_feeds():
    compact, rhs = tb.placeholder(tb.float32, [3, None]), tb.placeholder(tb.float32, [None, None])
    solved = tb.linalg.tridiagonal_solve(compact, rhs)
    again = tb.linalg.tridiagonal_matmul(compact, solved)
    (got,) = run(again, feed_dict={compact: COMPACT, rhs: RHS})
    np.testing.assert_allclose(got, RHS, atol=1e-5)


def test_refusals():
    with pytest.raises(InvalidArgumentError, match=r"diagonals are float32\[4, 4\], expected \[..., 3, n\]"):
        tb.linalg.tridiagonal_solve(MATRIX, RHS)
    with pytest.raises(InvalidArgumentError, match="expected diagonals to be a list of the three diagonals"):
        tb.linalg.tridiagonal_solve(COMPACT[:2], RHS, "sequence")
    with pytest.raises(InvalidArgumentError, match=r"expected \[..., 3, n\] and \[..., n, k\]"):
        tb.linalg.tridiagonal_solve(COMPACT, RHS[:3])
    with pytest.raises(InvalidArgumentError, match="a matrix is not invertible; add a multiple"):
        run(tb.linalg.tridiagonal_solve(np.zeros((3, 4), np.float32), RHS))


def test_diagonals_of_another_graph_than_the_default_one(graph):
    with tb.Graph().as_default() as other:
        diagonals = tb.constant(COMPACT)
    solution, product = (
        tb.linalg.tridiagonal_solve(diagonals, RHS),
        tb.linalg.tridiagonal_matmul(diagonals, RHS),
    )
    assert {solution.graph, product.graph} == {other}
