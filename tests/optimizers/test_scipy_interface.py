"""`ScipyOptimizerInterface` beside SciPy on the same function."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.train import ScipyOptimizerInterface

optimize = pytest.importorskip("scipy.optimize")


def rosenbrock(start):
    x = tb.Variable(start[:2], name="x")
    y = tb.Variable(start[2:], name="y")
    w = tb.concat([x, y], 0)
    loss = tb.reduce_sum(100.0 * tb.square(w[1:] - tb.square(w[:-1])) + tb.square(1.0 - w[:-1]))
    return loss, [x, y]


@pytest.mark.parametrize("method", ["L-BFGS-B", "CG"])
def test_path_is_that_of_scipy(method):
    start = np.array([-1.2, 1.0, 0.7, 1.5])
    with tb.Graph().as_default(), tb.Session() as session:
        loss, variables = rosenbrock(start)
        session.run(tb.global_variables_initializer())
        result = ScipyOptimizerInterface(loss, method=method).minimize(session)
        values = np.concatenate(session.run(variables))
    expected = optimize.minimize(optimize.rosen, start, jac=optimize.rosen_der, method=method)
    np.testing.assert_allclose(values, expected.x, rtol=1e-4)
    np.testing.assert_array_equal(values, result.x)
    assert result.success


def test_feeds_reach_each_evaluation_and_other_variables_stay():
    with tb.Graph().as_default(), tb.Session() as session:
        target = tb.placeholder(tb.float32, [3])
        w = tb.Variable(np.zeros(3, np.float32))
        other = tb.Variable(np.float32(2.0))
        session.run(tb.global_variables_initializer())
        loss = tb.reduce_sum(tb.square(other * w - target))
        ScipyOptimizerInterface(loss, [w]).minimize(session, {target: np.float32([2, 4, 6])})
        np.testing.assert_allclose(session.run(w), [1, 2, 3], rtol=1e-5)
        assert session.run(other) == 2


def test_losses_it_refuses():
    with tb.Graph().as_default():
        w = tb.Variable(np.zeros(3, np.float32))
        with pytest.raises(tb.errors.InvalidArgumentError, match="floating scalar"):
            ScipyOptimizerInterface(tb.square(w))
        with pytest.raises(tb.errors.InvalidArgumentError, match="no gradient"):
            ScipyOptimizerInterface(tb.constant(1.0), [w])


def test_bounds_callbacks_and_the_default_session():
    start = np.array([-1.2, 1.0, 0.7, 1.5])
    low = np.array([-2.0, 0.5])
    with tb.Graph().as_default(), tb.Session() as session:
        loss, (x, y) = rosenbrock(start)
        session.run(tb.global_variables_initializer())
        seen = []
        interface = ScipyOptimizerInterface(loss, var_to_bounds={x: (low, 0.8)})
        interface.minimize(fetches=[[x, y], loss], loss_callback=lambda *each: seen.append(each))
        values = np.concatenate(session.run([x, y]))
        with pytest.raises(tb.errors.InvalidArgumentError, match="variables of var_list"):
            ScipyOptimizerInterface(loss, [y], var_to_bounds={x: (0, 1)})
        for pair in (0.5, (0, [1, 2, 3]), (1, 0), ("low", 1)):
            with pytest.raises(tb.errors.InvalidArgumentError, match=r"var_to_bounds\['.*'\] to be \(least"):
                ScipyOptimizerInterface(loss, var_to_bounds={x: pair})
    expected = optimize.minimize(
        optimize.rosen,
        start,
        jac=optimize.rosen_der,
        method="L-BFGS-B",
        bounds=[(-2, 0.8), (0.5, 0.8), (None, None), (None, None)],
    )
    np.testing.assert_allclose(values, expected.x, rtol=1e-4)
    assert values[:2].max() <= 0.8
    assert len(seen) > 1
    for (at, below), value in seen:
        assert value == pytest.approx(optimize.rosen([*at, *below]), rel=1e-6)
