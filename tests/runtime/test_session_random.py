"""Random ops in a session: new numbers in every run, the same ones in every process that asks for them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorbow as tb

pytestmark = pytest.mark.usefixtures("session")

PROGRAM = """
import numpy as np, tensorbow as tb
tb.set_random_seed(1234)
a = tb.random_uniform([3]); b = tb.random_normal([2, 2]); c = tb.truncated_normal([4], seed=5)
d = tb.nn.dropout(tb.constant(np.ones(20, np.float32)), rate=0.5)
with tb.Session() as session:
    print([x.tobytes().hex() for _ in range(3) for x in session.run([a, b, c, d])])
"""


@pytest.mark.slow
def test_two_processes_agree():
    root = Path(tb.__file__).parent.parent
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 400


def test_each_run_draws_anew_and_new_sessions_start_over(session):
    tb.set_random_seed(7)
    x = tb.random_normal([5])
    first, second = session.run(x), session.run(x)
    assert not np.array_equal(first, second)
    with tb.Session() as other:
        np.testing.assert_array_equal(other.run(x), first)
        np.testing.assert_array_equal(other.run(x), second)


def test_two_fetches_of_one_op_agree_and_two_ops_do_not(session):
    tb.set_random_seed(7)
    x, y = tb.random_uniform([5]), tb.random_uniform([5])
    a, b, c = session.run([x, x + 0.0, y])
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_without_seeds_sessions_differ():
    drawn = []
    for _ in range(2):
        with tb.Graph().as_default(), tb.Session() as session:
            drawn.append(session.run(tb.random_uniform([5])))
    assert not np.array_equal(*drawn)


def test_other_steps_do_not_disturb_an_ops_sequence(session):
    tb.set_random_seed(7)
    x, y = tb.random_uniform([3]), tb.random_uniform([3])
    alone = [session.run(x) for _ in range(3)]
    with tb.Session() as other:
        mixed = []
        for _ in range(3):
            other.run(y)
            mixed.append(other.run([x, y])[0])
    np.testing.assert_array_equal(alone, mixed)


def test_a_dropped_gradient_uses_the_same_mask(session):
    x = tb.placeholder(tb.float32, [1000])
    y = tb.nn.dropout(x, rate=0.5)
    (grad,) = tb.gradients(y, [x])
    output, mask = session.run([y, grad], {x: np.ones(1000)})
    np.testing.assert_array_equal(output, mask)
    assert 300 < (mask > 0).sum() < 700
