"""Decompositions and linear equations: products give the input back, gradients, errors, placement."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, UnimplementedError
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.sample import normal

pytestmark = pytest.mark.usefixtures("session")


def turned(x):
    return np.swapaxes(x, -1, -2)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 3), (2, 0, 3)])
@pytest.mark.parametrize("full", [False, True])
def test_factors_give_the_matrix_back(session, shape, full):
    x = normal(*shape, dtype=np.float64)
    rows, columns = shape[-2:]
    small = min(rows, columns)
    q, r = session.run(tb.qr(x, full_matrices=full))
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    np.testing.assert_allclose(
        turned(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], *q.shape[-1:] * 2)), atol=1e-12
    )
    assert q.shape[-1] == (rows if full else small)
    np.testing.assert_array_equal(r, np.triu(r))
    s, u, v = session.run(tb.svd(x, full_matrices=full))
    np.testing.assert_allclose((u[..., :small] * s[..., None, :]) @ turned(v[..., :small]), x, atol=1e-12)
    assert (u.shape[-1], v.shape[-1]) == ((rows, columns) if full else (small, small))
    assert (np.diff(s) <= 0).all()
    np.testing.assert_allclose(session.run(tb.svd(x, compute_uv=False)), s, atol=1e-12)


def test_eigenvectors_and_cholesky(session):
    x = normal(3, 4, 4, dtype=np.float64)
    gram = x @ turned(x) + np.eye(4)
    e, v = session.run(tb.self_adjoint_eig(gram))
    np.testing.assert_allclose(gram @ v, v * e[:, None, :], atol=1e-11)
    np.testing.assert_allclose(session.run(tb.self_adjoint_eigvals(gram)), e)
    factor = tb.cholesky(gram)
    np.testing.assert_allclose(session.run(tb.matmul(factor, factor, transpose_b=True)), gram, atol=1e-12)
    rhs = normal(3, 4, 2, dtype=np.float64)
    np.testing.assert_allclose(session.run(tb.cholesky_solve(factor, rhs)), np.linalg.solve(gram, rhs))
    np.testing.assert_allclose(session.run(tb.logdet(gram)), np.log(np.linalg.det(gram)))


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (2, 5, 5)])
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_least_squares(session, shape, fast, weight):
    a, b = normal(*shape, dtype=np.float64), normal(*shape[:-1], 2, dtype=np.float64)
    x = session.run(tb.matrix_solve_ls(a, b, l2_regularizer=weight, fast=fast))
    inverse = np.linalg.pinv(a)
    expected = (
        np.linalg.solve(turned(a) @ a + weight * np.eye(shape[-1]), turned(a) @ b) if weight else inverse @ b
    )
    np.testing.assert_allclose(x, expected, atol=1e-8)


@pytest.mark.parametrize("full", [False, True])
def test_gradients_of_a_wide_qr(full):
    check_gradients(lambda x: tb.qr(x, full_matrices=full), [normal(2, 3, 5, dtype=np.float64)])


@pytest.mark.parametrize("dims", [(2, 3, 5), (2, 5, 3), (3, 3)])
def test_gradients_of_a_qr_of_unknown_extents(session, dims):
    value = normal(*dims, dtype=np.float64)
    found = []
    for known in (dims, [None] * len(dims), None):
        x = tb.placeholder(tb.float64, known)
        q, r = tb.qr(x)
        (slope,) = tb.gradients([tb.sin(q), tb.cos(r)], x)
        found.append(session.run(slope, {x: value}))
    np.testing.assert_allclose(found[1], found[0], atol=1e-12)
    np.testing.assert_allclose(found[2], found[0], atol=1e-12)


def test_gradients_of_compositions():
    x = normal(2, 3, 3, dtype=np.float64)
    gram = x @ turned(x) + np.eye(3)
    check_gradients(lambda a: [tb.logdet(a)], [gram])
    check_gradients(lambda a, b: [tb.matrix_solve_ls(a, b, 0.1, fast=False)], [normal(5, 3), normal(5, 2)])
    check_gradients(lambda a, d: [tb.matrix_set_diag(a, d), tb.diag(d)], [x, normal(2, 3)])


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
def test_a_triangle_of_small_pivots(session, lower, adjoint):
    """Exchanges of rows would make one of them 0."""
    triangle = np.array([[1e-25, 0.0, 0.0], [1.0, 2e-25, 0.0], [3.0, 1.0, 1.0]], np.float32)
    triangle = triangle if lower else turned(triangle)
    expected = np.array([[1e-10, 2e-10], [3e-12, 0.0], [2.0, 1.0]], np.float32)
    wide = (turned(triangle) if adjoint else triangle).astype(np.float64)
    rhs = (wide @ expected).astype(np.float32)
    x = session.run(tb.matrix_triangular_solve(triangle, rhs, lower=lower, adjoint=adjoint))
    assert np.isfinite(x).all()
    np.testing.assert_allclose(wide @ x, rhs, rtol=1e-5)
    huge = session.run(tb.matrix_triangular_solve([[1e-30, 0.0], [1.0, 1e-30]], [[1.0], [1.0]]))
    assert huge[:, 0].tolist() == [np.float32(1e30), -np.inf]


@pytest.mark.parametrize("dims", [(2, 3, 4), (2, 4, 3), (1, 5), (2, 0, 3), (3, 3)])
@pytest.mark.parametrize("known", [True, False, None])
def test_diagonals_of_matrices_that_are_not_square(session, dims, known):
    least = min(dims[-2:])
    value, diagonal = normal(*dims), normal(*dims[:-2], least)
    expected, inside = value.copy(), np.zeros_like(value)
    expected[..., range(least), range(least)], inside[..., range(least), range(least)] = diagonal, 1
    x = tb.placeholder(tb.float32, dims if known else None if known is None else [None] * len(dims))
    d = tb.placeholder(tb.float32, [*dims[:-2], least] if known else None)
    part, written = tb.matrix_diag_part(x), tb.matrix_set_diag(x, d)
    found = session.run(
        [part, tb.trace(x), written, *tb.gradients(tb.square(written), [x, d]), *tb.gradients(part, x)],
        {x: value, d: diagonal},
    )
    own = np.diagonal(value, axis1=-2, axis2=-1)
    for got, wanted in zip(
        found, [own, own.sum(-1), expected, 2 * value * (1 - inside), 2 * diagonal, inside], strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
    if not known and least > 1:
        with pytest.raises(InvalidArgumentError, match="MatrixSetDiag"):
            session.run(written, {x: value, d: diagonal[..., :1]})


def test_bands_and_diagonals(session):
    x = normal(2, 4, 6)
    np.testing.assert_array_equal(session.run(tb.matrix_band_part(x, 1, 2)), np.triu(np.tril(x, 2), -1))
    np.testing.assert_array_equal(session.run(tb.matrix_band_part(x, -1, 0)), np.tril(x))
    np.testing.assert_array_equal(session.run(tb.matrix_band_part(x, 0, -1)), np.triu(x))
    np.testing.assert_array_equal(session.run(tb.matrix_band_part(x, -1, -1)), x)
    square, diagonal = normal(3, 4, 4), normal(3, 4)
    expected = square.copy()
    expected[:, range(4), range(4)] = diagonal
    np.testing.assert_array_equal(session.run(tb.matrix_set_diag(square, diagonal)), expected)
    np.testing.assert_array_equal(session.run(tb.matrix_diag_part(expected)), diagonal)
    np.testing.assert_array_equal(session.run(tb.matrix_diag(diagonal))[1], np.diag(diagonal[1]))
    full = session.run(tb.diag(diagonal))
    assert full.shape == (3, 4, 3, 4)
    np.testing.assert_array_equal(full.reshape(12, 12), np.diag(diagonal.ravel()))
    np.testing.assert_array_equal(session.run(tb.diag_part(full)), diagonal)


def test_errors_say_which_matrix_and_what_to_do(session):
    stack = np.stack([np.eye(3), -np.eye(3)])
    with pytest.raises(InvalidArgumentError, match=r"Cholesky.*input \[1\] is not positive definite; add a"):
        session.run(tb.cholesky(stack))
    with pytest.raises(InvalidArgumentError, match=r"MatrixSolve.*not invertible; use tb.matrix_solve_ls"):
        session.run(tb.matrix_solve(np.zeros((2, 2)), np.ones((2, 1))))
    with pytest.raises(InvalidArgumentError, match=r"element \[1, 1\] of a matrix is 0"):
        session.run(tb.matrix_triangular_solve([[1.0, 0.0], [2.0, 0.0]], [[1.0], [1.0]]))
    with pytest.raises(
        InvalidArgumentError, match=r"matrix float32\[2, 2\] and rhs float32\[3, 1\], expected"
    ):
        tb.matrix_solve(tb.ones([2, 2]), tb.ones([3, 1]))
    with pytest.raises(InvalidArgumentError, match=r"expected matrices \[..., m, n\]"):
        tb.qr(tb.ones([3]))
    x = tb.constant(normal(5, 3))
    with pytest.raises(UnimplementedError, match="for more rows than columns"):
        tb.gradients(tb.qr(x, full_matrices=True)[0], x)
    with pytest.raises(UnimplementedError, match=r"u and v of tb.svd have none with full_matrices"):
        tb.gradients(tb.svd(x, full_matrices=True)[1], x)
