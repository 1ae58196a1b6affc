"""Native code of While and Cond: values of the reference kernels, at any alignment of what they read."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.kernels import ReferenceBackend
from tensorbow.kernels.native.backend import NativeBackend
from tests.scalar_rig.numpy_backend import used


def loop_of(x, n, w):
    """Three variables that change places, a captured matrix, a view, and a loop inside."""

    def body(i, a, b, c):
        inner = tb.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, tb.tanh(tb.matmul(t, w))), [0, a])[1]
        return i + 1, b, tb.reshape(tb.reshape(c, [-1]) + 1.0, [5, 3]), inner + tb.cast(i, tb.float32)

    return tb.while_loop(lambda i, a, b, c: i < n, body, [0, x, x * 2.0, -x])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("limit", [0, 1, 2, 7])
def test_native_loops(limit):
    rows = np.random.default_rng(limit).standard_normal((5, 3)).astype(np.float32)
    results = []
    for backend in (ReferenceBackend(), NativeBackend()):
        with tb.Graph().as_default(), used(backend):
            odd = tb.Variable(np.zeros(3, np.float32), name="odd")  # so that w is not aligned
            w = tb.Variable(np.eye(3, dtype=np.float32) * 0.7 + 0.1, name="w")
            x, n = tb.placeholder(tb.float32, [5, 3]), tb.placeholder(tb.int32, [])
            found = [*loop_of(x, n, w), odd.read_value()]
            with tb.Session() as session:
                session.run(tb.global_variables_initializer())
                text = str(session.explain(found, {x: rows, n: limit}))
                assert "compiled as one call" in text
                results.append(session.run(found, {x: rows, n: limit}))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_native_loop_is_cached_with_its_plan_only_by_its_code():
    """Two loops that differ in a constant share no code."""
    n = tb.placeholder(tb.int32, [])
    a, b = (
        tb.while_loop(lambda i, t: i < n, lambda i, t, step=step: (i + 1, t + step), [0, 1.0])[1]
        for step in (2.0, 3.0)
    )
    with tb.Session() as session:
        assert session.run([a, b], {n: 4}) == [9.0, 13.0]


def test_native_conds_arrays_and_stacks():
    """A cond, an array and a stack in one loop, and its gradient."""
    rows = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    results = []
    for backend in (ReferenceBackend(), NativeBackend()):
        with tb.Graph().as_default(), used(backend):
            x, n = tb.placeholder(tb.float32, [5, 3]), tb.placeholder(tb.int32, [])
            read = tb.TensorArray(tb.float32, 5).unstack(x)

            def body(i, made, h, read=read):
                h = tb.cond(h[0] > 0.0, lambda: h * read.read(i), lambda: h - read.read(i))
                return i + 1, made.write(i, h), h

            loop = tb.while_loop(lambda i, *_, n=n: i < n, body, [0, tb.TensorArray(tb.float32, 5), x[0]])
            total = tb.reduce_sum(loop[1].stack() ** 2) + tb.reduce_sum(loop[2])
            with tb.Session() as session:
                call = session.make_callable([total, tb.gradients(total, x)[0]], [x, n])
                results.append(call(rows, 5))
                with pytest.raises(InvalidArgumentError, match="element 2 of 5 is read before it is written"):
                    call(rows, 2)
                assert call(rows, 5)[0] == results[-1][0]
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
