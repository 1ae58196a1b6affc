"""Complex numbers in sessions: functions, gradients, loops, transforms, refusals."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.samples_complex_numbers import numbers

pytestmark = pytest.mark.usefixtures("graph")

X, Y = numbers(3, 4), numbers(3, 4, seed=1)


def test_operators_and_functions():
    x, y = tb.placeholder(tb.complex64, [None, 4]), tb.constant(Y)
    cases = [
        (x + y * 2j - 1, X + Y * 2j - 1), (x / y, X / Y), (-x, -X), (x**2, X**2), (abs(x), np.abs(X)),
        (x @ tb.transpose(y), X @ Y.T), (tb.matmul(x, y, adjoint_a=True), X.conj().T @ Y),
        (tb.reduce_sum(x, 0), X.sum(0)), (tb.reduce_mean(x), X.mean()), (tb.conj(x), X.conj()),
        (tb.squared_difference(x, y), np.abs(X - Y) ** 2), (tb.angle(x), np.angle(X)),
        (tb.real(x), X.real), (tb.imag(x), X.imag), (tb.complex(tb.real(x), tb.imag(x)), X),
        (tb.tanh(x), np.tanh(X)), (tb.exp(x), np.exp(X)), (tb.log(x), np.log(X)), (tb.square(x), X * X),
        (tb.einsum("ij,kj->ik", x, y), np.einsum("ij,kj->ik", X, Y)),
        (tb.real(tb.constant([1.0, -1.0])), [1, -1]), (tb.imag(tb.constant([1.0, -1.0])), [0, 0]),
        (tb.angle(tb.constant([1.0, -1.0])), [0, np.pi]), (tb.conj(tb.constant([2])), [2]),
        (tb.not_equal(x, y), X != Y), (tb.norm(x), np.linalg.norm(X)), (tb.norm(x, 1, 0), np.abs(X).sum(0)),
    ]  # fmt: skip
    with tb.Session() as session:
        got = session.run([tensor for tensor, _ in cases], {x: X})
    for value, (tensor, expected) in zip(got, cases, strict=True):
        np.testing.assert_allclose(value, expected, 1e-4, 1e-5, err_msg=tensor.name)


def test_transforms_and_shifts():
    x, real = tb.constant(X), tb.constant(X.real)
    cases = [
        (tb.fft(x), np.fft.fft(X)), (tb.ifft(x), np.fft.ifft(X)), (tb.fft2d(x), np.fft.fft2(X)),
        (tb.spectral.rfft(real), np.fft.rfft(X.real)), (tb.spectral.irfft(x, [5]), np.fft.irfft(X, 5)),
        (tb.signal.rfft2d(real, [4, 6]), np.fft.rfft2(X.real, [4, 6])),
        (tb.signal.fftshift(x), np.fft.fftshift(X)),
        (tb.signal.irfft2d(tb.signal.rfft2d(real, [3, 4]), [3, 4]), X.real),
        (tb.signal.ifftshift(x, [0]), np.fft.ifftshift(X, 0)),
        (tb.signal.ifftshift(tb.signal.fftshift(x)), X),
    ]  # fmt: skip
    with tb.Session() as session:
        got = session.run([tensor for tensor, _ in cases])
    for value, (tensor, expected) in zip(got, cases, strict=True):
        np.testing.assert_allclose(value, expected, 1e-4, 1e-5, err_msg=tensor.name)
    with pytest.raises(InvalidArgumentError, match=r"fft_length is \[3, 4\], expected one number for each"):
        tb.signal.rfft(real, [3, 4])
    with pytest.raises(InvalidArgumentError, match=r"FFT: input has dtype float32, expected complex64 or"):
        tb.fft(real)


def test_a_variable_descends_along_its_gradient():
    """|F w - y|^2 / n of a unitary transform: one step of 1/2 of the gradient finds the minimum."""
    w = tb.Variable(tb.constant(X[0]), trainable=False)
    loss = tb.reduce_mean(tb.square(tb.abs(tb.fft(w) / 2 - Y[0])))
    (slope,) = tb.gradients(loss, [w])
    step = w.assign_sub(slope * 2)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        session.run(step)
        assert session.run(loss) < 1e-10
        np.testing.assert_allclose(session.run(w), np.fft.ifft(2 * Y[0]), 1e-5, 1e-6)


def test_gradients_flow_through_loops_and_branches():
    x = tb.placeholder(tb.complex128, [3])
    count = tb.placeholder(tb.int32, [])
    value = np.array([0.5 + 1j, -1.5j, 1.0])
    looped = tb.while_loop(lambda i, z: i < count, lambda i, z: (i + 1, z * x), [0, x])[1]
    chosen = tb.cond(count > 1, lambda: tb.exp(x), lambda: tb.conj(x))
    grads = [tb.gradients(y, [x], [tb.ones_like(x)])[0] for y in (looped, chosen)]
    with tb.Session() as session:
        power, exp = session.run(grads, {x: value, count: 3})
        np.testing.assert_allclose(power, np.conj(4 * value**3))
        np.testing.assert_allclose(exp, np.conj(np.exp(value)))
        assert session.run(grads[1], {x: value, count: 1}).tolist() == [1, 1, 1]


def test_what_has_no_meaning_is_refused():
    x = tb.constant(X)
    with pytest.raises(InvalidArgumentError, match=r"complex64 needs grad_ys, as one real number has to be"):
        tb.gradients(x * x, [x])
    with pytest.raises(InvalidArgumentError, match=r"Max: input has dtype complex64, expected"):
        tb.reduce_max(x)
    with pytest.raises(InvalidArgumentError, match=r"transpose_a and adjoint_a are both true"):
        tb.matmul(x, x, transpose_a=True, adjoint_a=True)
    with pytest.raises(InvalidArgumentError, match=r"inputs have dtypes complex64 and float32"):
        _ = x + tb.constant(1.0)


def test_explain_says_where_complex_numbers_are_computed():
    x = tb.placeholder(tb.complex64, [4])
    with tb.Session() as session:
        text = str(session.explain(tb.fft(x) * 2, {x: X[0]}))
    assert "FFT has no native code: its reference kernel runs" in text
