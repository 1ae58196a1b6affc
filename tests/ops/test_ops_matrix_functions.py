"""Functions of matrices, factors and determinants: identities, gradients, errors."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.sample import normal

pytestmark = pytest.mark.usefixtures("session")

JORDAN = np.array([[4.0, 1.0], [0.0, 4.0]])
TURN = np.array([[0.0, 1.0], [-1.0, 0.0]])


def matrices(*shape):
    """Matrices whose eigenvalues are positive."""
    x = normal(*shape, dtype=np.float64)
    gram = x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])
    return gram @ (np.swapaxes(x, -1, -2) @ x + np.eye(shape[-1]))


def test_each_undoes_the_other(session):
    for x in (matrices(3, 5, 5), matrices(40, 40), JORDAN, matrices(4, 4) * 1e4, matrices(4, 4) * 1e-4):
        root, logarithm = session.run([tb.linalg.sqrtm(x), tb.linalg.logm(x)])
        largest = np.abs(x).max()
        np.testing.assert_allclose(root @ root, x, atol=1e-11 * largest)
        back = session.run(tb.linalg.expm(logarithm))
        np.testing.assert_allclose(back, x, atol=1e-10 * largest)
    np.testing.assert_allclose(session.run(tb.linalg.expm(np.pi / 2 * TURN)), TURN, atol=1e-14)
    np.testing.assert_allclose(session.run(tb.linalg.logm(TURN)), np.pi / 2 * TURN, atol=1e-14)
    np.testing.assert_allclose(session.run(tb.linalg.expm(JORDAN)), np.exp(4) * np.array([[1, 1], [0, 1]]))
    large = session.run(tb.linalg.expm(30 * TURN))
    np.testing.assert_allclose(large, [[np.cos(30), np.sin(30)], [-np.sin(30), np.cos(30)]], atol=1e-12)


def test_roots_of_matrices_that_are_not_invertible(session):
    x = normal(4, 2, dtype=np.float64)
    for singular in (x @ x.T, x @ (x.T @ matrices(4, 4)), np.zeros((3, 3)), np.diag([0.0, 4.0, 9.0])):
        root = session.run(tb.matrix_square_root(singular))
        np.testing.assert_allclose(root @ root, singular, atol=1e-6 * max(np.abs(singular).max(), 1))
    x = normal(20, 4, dtype=np.float32)
    rounded = x @ x.T  # its eigenvalues of 0 are a little negative
    assert np.linalg.eigvalsh(rounded.astype(np.float64))[0] < 0
    root = session.run(tb.matrix_square_root(rounded))
    np.testing.assert_allclose(root @ root, rounded, atol=1e-4 * np.abs(rounded).max())


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[-1.0, 0.0], [0.0, 2.0]], "has an eigenvalue of -1, expected "),
        ([[-1.0, 2.0], [0.0, 3.0]], "eigenvalue .*is real and"),
        ([[0.0, 1.0], [0.0, 0.0]], "eigenvalue .*is real and"),
        (np.stack([np.eye(2), [[-2.0, 1.0], [3.0, -9.0]]]), r"the input \[1\] .*is real and"),
    ],
)
def test_matrices_without_a_real_result(session, matrix, words):
    for function in (tb.linalg.sqrtm, tb.linalg.logm):
        fed = tb.placeholder(tb.float64)
        with pytest.raises(InvalidArgumentError, match=words):
            session.run(function(fed), {fed: matrix})


@pytest.mark.parametrize("function", [tb.linalg.expm, tb.linalg.logm, tb.linalg.sqrtm])
def test_a_steep_gradient_keeps_its_digits(session, function):
    x = tb.constant(matrices(3, 3))
    (slope,) = tb.gradients(tb.reduce_sum(function(x)), x)
    (steep,) = tb.gradients(1e12 * tb.reduce_sum(function(x)), x)
    plain, large = session.run([slope, steep])
    np.testing.assert_allclose(large, 1e12 * plain, rtol=1e-9)
    (none,) = tb.gradients(0.0 * tb.reduce_sum(function(x)), x)
    assert not session.run(none).any()


def test_factors_and_determinants(session):
    x = normal(2, 5, 5, dtype=np.float64)
    found = tb.linalg.lu(x, output_idx_type=tb.int64)
    factors, order = session.run([found.lu, found.p])
    product = (np.tril(factors, -1) + np.eye(5)) @ np.triu(factors)
    np.testing.assert_allclose(product, np.take_along_axis(x, order[..., None], 1), atol=1e-14)
    assert (np.abs(np.tril(factors, -1)) <= 1).all()
    result = tb.linalg.slogdet(x)
    sign, logarithm = session.run([result.sign, result.log_abs_determinant])
    np.testing.assert_allclose(sign * np.exp(logarithm), np.linalg.det(x))
    assert session.run(tb.linalg.slogdet(np.zeros((2, 2)))) == (0, -np.inf)
    with pytest.raises(InvalidArgumentError, match="the input is not invertible"):
        session.run(tb.linalg.lu(np.ones((2, 2))))
    check_gradients(lambda a: [tb.linalg.lu(a).lu], [x])
    with pytest.raises(InvalidArgumentError, match="expected square matrices"):
        tb.linalg.expm(np.ones((2, 3)))


def test_adjoints_and_products_with_vectors(session):
    x = (normal(2, 3, 4) + 1j * normal(2, 3, 4, seed=1)).astype(np.complex64)
    turned = np.conj(np.swapaxes(x, -1, -2))
    np.testing.assert_array_equal(session.run(tb.linalg.adjoint(x)), turned)
    np.testing.assert_array_equal(session.run(tb.matrix_transpose(x, conjugate=True)), turned)
    vector = normal(2, 4).astype(np.complex64)
    np.testing.assert_allclose(
        session.run(tb.linalg.matvec(x, vector)), np.einsum("bij,bj->bi", x, vector), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        session.run(tb.linalg.matvec(turned, vector, adjoint_a=True)),
        np.einsum("bij,bj->bi", x, vector),
        rtol=1e-5,
        atol=1e-6,
    )
