"""Stacks of compiled loops whose iterations have a known bound: their frames lie in the slab."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.kernels import ReferenceBackend
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.program import stacks
from tests.scalar_rig.numpy_backend import used
from tests.scheduler_rig.running import Prepared

BACKENDS = [ReferenceBackend, NativeBackend]
ROWS, WIDTH, MOST = 5, 16, 12


def powers(bound=True, **options):
    """The product with a matrix again and again, and its gradient, for a number of iterations that is fed."""
    x, n = tb.placeholder(tb.float32, [ROWS, WIDTH]), tb.placeholder(tb.int32, [])
    w = tb.Variable(np.eye(WIDTH, dtype=np.float32) * 0.9 + 0.01, name="w")
    _, y = tb.while_loop(
        lambda i, h: i < n,
        lambda i, h: (i + 1, tb.tanh(tb.matmul(h, w))),
        [0, x],
        maximum_iterations=MOST if bound else None,
        **options,
    )
    return [y, *tb.gradients(tb.reduce_sum(tb.square(y)), [x, w])], x, n


@pytest.fixture
def grown(monkeypatch):
    """Counts the stacks that have grown outside of slabs."""
    before = set(stacks._BUFFERS)
    return lambda: len(set(stacks._BUFFERS) - before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_frames_of_a_bounded_loop_lie_in_the_slab(backend, grown):
    rows = np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32)
    found, peaks = [], []
    for bound in (False, True):
        with tb.Graph().as_default(), used(backend()), tb.Session() as session:
            fetches, x, n = powers(bound)
            session.run(tb.global_variables_initializer())
            values = [session.run(fetches, {x: rows, n: count}) for count in (3, MOST, 0, 1)]
            found.append([value.tobytes() for each in values for value in each])
            explained = session.explain(fetches, {x: rows, n: 3})
            peaks.append(explained.peak_nbytes)
            text = str(explained)
            assert ("bytes of the slab" in text) is bound
            assert ("in memory of its own, which grows" in text) is not bound
            assert grown() == (0 if bound else 1)
    assert found[0] == found[1]
    frame = ROWS * WIDTH * 4
    assert peaks[1] - peaks[0] >= 2 * MOST * frame  # of the product's input and of tanh's result


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loop_in_a_loop_has_the_product_of_the_bounds(backend, grown):
    rows = np.random.default_rng(2).normal(size=(ROWS, WIDTH)).astype(np.float32)
    with tb.Graph().as_default(), used(backend()), tb.Session() as session:
        x, n = tb.placeholder(tb.float32, [ROWS, WIDTH]), tb.placeholder(tb.int32, [])

        def outer(i, h):
            inner = tb.while_loop(
                lambda j, t: j < n, lambda j, t: (j + 1, tb.sin(t)), [0, h], maximum_iterations=3
            )
            return i + 1, inner[1] * 1.5

        _, y = tb.while_loop(lambda i, h: i < n, outer, [0, x], maximum_iterations=4)
        fetches = [y, *tb.gradients(y, x)]
        expected = rows
        slope = np.ones_like(rows)
        for _ in range(3):
            for _ in range(3):
                slope, expected = slope * np.cos(expected), np.sin(expected)
            slope, expected = slope * 1.5, expected * 1.5
        found = session.run(fetches, {x: rows, n: 3})
        assert grown() == 0
        assert session.explain(fetches, {x: rows, n: 3}).peak_nbytes >= 4 * 3 * rows.nbytes
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)
    np.testing.assert_allclose(found[1], slope, rtol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sequences_of_several_lengths_are_bounded_by_their_steps(backend, grown):
    given = np.random.default_rng(3).normal(size=(4, 9, 3)).astype(np.float32)
    with tb.Graph().as_default(), used(backend()), tb.Session() as session:
        tb.set_random_seed(1)
        x, lengths = tb.placeholder(tb.float32, [4, None, 3]), tb.placeholder(tb.int32, [4])
        y, _ = tb.nn.dynamic_rnn(tb.nn.rnn_cell.GRUCell(6), x, lengths, dtype=tb.float32)
        fetches = [y, *tb.gradients(tb.reduce_sum(y), x)]
        session.run(tb.global_variables_initializer())
        feeds = {x: given, lengths: [2, 9, 1, 4]}
        found = session.run(fetches, feeds)
        text = str(session.explain(fetches, feeds))
        assert "for the gradient, in " in text
        assert grown() == 0
    assert np.count_nonzero(found[1].any(-1)) == 2 + 9 + 1 + 4


@pytest.mark.parametrize("backend", [ReferenceBackend, pytest.param(NativeBackend, marks=pytest.mark.slow)])
def test_frames_of_a_gradient_have_the_bound_of_its_forward_loop(backend, grown):
    """A second derivative takes back what the loop of the first one keeps."""
    rows = np.random.default_rng(2).normal(size=(2, 3)).astype(np.float32)
    found = []
    for most in (6, None):
        with tb.Graph().as_default(), used(backend()), tb.Session() as session:
            x, n = tb.placeholder(tb.float32, [2, 3]), tb.placeholder(tb.int32, [])
            y = tb.while_loop(
                lambda i, h, n=n: i < n,
                lambda i, h, x=x: (i + 1, tb.sin(h) * x),
                [0, x],
                maximum_iterations=most,
            )[1]
            slope = tb.gradients(y, x)[0]
            fetches = [y, slope, tb.gradients(tb.square(slope), x)[0]]
            found.append([v.tobytes() for n_ in (4, 6, 0) for v in session.run(fetches, {x: rows, n: n_})])
            text = str(session.explain(fetches, {x: rows, n: 3}))
            assert ("in memory of its own, which grows" in text) is (most is None)
            assert text.count("bytes of the slab") == (0 if most is None else 3)
            assert (grown() > 0) is (most is None)
    assert found[0] == found[1]


def test_long_loops_grow_as_before(monkeypatch, grown):
    monkeypatch.setattr("tensorbow.compiler.whole_loops.MOST_PLANNED_NBYTES", 1000)
    with tb.Graph().as_default(), tb.Session() as session:
        fetches, x, n = powers()
        session.run(tb.global_variables_initializer())
        session.run(fetches, {x: np.ones((ROWS, WIDTH)), n: 3})
        assert "in memory of its own, which grows" in str(
            session.explain(fetches, {x: np.ones((ROWS, WIDTH)), n: 3})
        )
        assert grown() == 1


def test_steps_that_share_a_block_keep_their_stacks_when_it_moves(grown):
    """A larger step makes a session's block move; the words of the first step's stack follow."""
    rows = np.random.default_rng(4).normal(size=(ROWS, WIDTH)).astype(np.float32)
    with tb.Graph().as_default(), tb.Session() as session:
        fetches, x, n = powers()
        big = tb.reduce_sum(
            tb.matmul(
                tb.placeholder_with_default(np.ones((700, 64), np.float32), [None, 64]), tb.ones([64, 640])
            )
        )
        session.run(tb.global_variables_initializer())
        before = session.run(fetches, {x: rows, n: 7})
        session.run(big)
        after = session.run(fetches, {x: rows, n: 7})
        assert grown() == 0
    assert [value.tobytes() for value in before] == [value.tobytes() for value in after]


def test_replicas_have_stacks_of_their_own(grown):
    rows = np.random.default_rng(5).normal(size=(2, ROWS, WIDTH)).astype(np.float32)
    losses = []
    for bound in (False, True):
        with tb.Graph().as_default():
            fetches, x, n = powers(bound)
            loss = tb.reduce_mean(tb.square(fetches[0] - 0.3))
            program = tb.StepProgram((x, n), loss, tb.train.GradientDescentOptimizer(0.1).minimize(loss))
            shapes = [tb.TensorSpec((ROWS, WIDTH), tb.float32), tb.TensorSpec((), tb.int32)]
            with tb.LearningEngine(program, shapes, replicas_per_device=2) as engine:
                engine.initialize()
                assert bool(engine.learners.replicas[0].step.stacks) is bound
                source = Prepared(lambda step, replica: (rows[replica], np.int32(2 + 3 * replica + step)), 2)
                losses.append([])
                engine.run(source.open, 0, 5, losses[-1].append)
                assert grown() == (0 if bound else 2)
    first, second = ([result.losses for result in each] for each in losses)
    assert first == second
