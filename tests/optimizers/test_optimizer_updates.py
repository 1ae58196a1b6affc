"""Optimisers against NumPy, and what they add to a graph."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.train import Constant, GradientDescentOptimizer, MomentumOptimizer, PiecewiseConstant
from tests.optimizers.regression import B, Regression, W

pytestmark = pytest.mark.usefixtures("session")

RANDOM = np.random.default_rng(5)


def reference(steps, rate, momentum=0.0, nesterov=False, decay=0.0):
    """The updates as TensorFlow has them: the slot holds the sum of gradients."""
    w, b, v, u = W.copy(), B.copy(), np.zeros_like(W), np.zeros_like(B)
    for step in range(steps):
        eta = rate(step) if callable(rate) else rate
        by_w, by_b = Regression.gradients(w, b)
        by_w = by_w + decay * w
        v, u = momentum * v + by_w, momentum * u + by_b
        w = w - eta * (momentum * v + by_w if nesterov else v)
        b = b - eta * (momentum * u + by_b if nesterov else u)
    return w, b, v, u


@pytest.mark.sampled(1)
@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradient_descent(session, decay, dtype, as_tensor):
    model = Regression(dtype)
    given = tb.constant(decay, dtype) if as_tensor else decay
    update = GradientDescentOptimizer(0.3, weight_decay=given).minimize(model.loss)
    session.run(tb.global_variables_initializer())
    for _ in range(6):
        session.run(update)
    w, b, _, _ = reference(6, 0.3, decay=decay)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(session.run(model.w), w, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(session.run(model.b), b, rtol=tolerance, atol=tolerance)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_momentum(session, nesterov, decay):
    model = Regression()
    optimizer = MomentumOptimizer(0.2, 0.9, use_nesterov=nesterov, weight_decay=decay)
    update = optimizer.minimize(model.loss)
    session.run(tb.global_variables_initializer())
    for _ in range(6):
        session.run(update)
    w, b, v, u = reference(6, 0.2, 0.9, nesterov, decay)
    slots = [optimizer.get_slot(variable, "Momentum") for variable in (model.w, model.b)]
    for variable, expected in zip((model.w, model.b, *slots), (w, b, v, u), strict=True):
        np.testing.assert_allclose(session.run(variable), expected, rtol=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("rows", [None, [0, 2, 2]])
def test_momentum_at_a_changing_rate_is_tensorflows(session, nesterov, rows):
    """The slot holds the sum of gradients, without the rate: a new rate counts for all of the next step."""
    w = tb.Variable(np.ones((3, 2)), name="w")
    seen = w if rows is None else tb.gather(w, rows)
    rate, push = tb.placeholder(tb.float64, []), tb.placeholder(tb.float64, [])
    optimizer = MomentumOptimizer(rate, 0.5, use_nesterov=nesterov)
    update = optimizer.minimize(push * tb.reduce_sum(seen))
    session.run(tb.global_variables_initializer())
    counts = np.ones(3) if rows is None else np.bincount(rows, minlength=3)
    expected, slot = np.ones((3, 2)), np.zeros((3, 2))
    for eta, gradient in ((1.0, 3.0), (0.125, -1.0), (4.0, 0.5)):
        session.run(update, {rate: eta, push: gradient})
        slot = 0.5 * slot + gradient * counts[:, None]
        expected = expected - eta * (0.5 * slot + gradient * counts[:, None] if nesterov else slot)
    np.testing.assert_array_equal(session.run(w), expected)
    np.testing.assert_array_equal(session.run(optimizer.get_slot(w, "Momentum")), slot)


def test_large_variables_are_updated_whole(session):
    start = RANDOM.normal(size=(300, 401))
    w = tb.Variable(start)
    update = MomentumOptimizer(0.1, 0.5, weight_decay=0.01).minimize(tb.reduce_sum(tb.square(w)))
    session.run(tb.global_variables_initializer())
    session.run(update)
    session.run(update)
    slot = 2.01 * start
    once = start - 0.1 * slot
    np.testing.assert_allclose(session.run(w), once - 0.1 * (0.5 * slot + 2.01 * once))


@pytest.mark.parametrize(
    "decay", [lambda: 0.1, lambda: tb.constant(0.1, tb.float64)], ids=["number", "tensor"]
)
def test_which_variables_are_decayed(session, decay):
    names = {"matrix": np.ones((2, 2)), "vector": np.ones(2)}
    variables = [tb.Variable(value, name=name) for name, value in names.items()]
    variables.append(tb.Variable(np.ones(2), name="forced", decayed=True))
    variables.append(tb.Variable(np.ones((2, 2)), name="spared", decayed=False))
    loss = tb.reduce_sum(tb.stack([tb.reduce_sum(v) * 0.0 for v in variables]))
    session.run(tb.group(tb.global_variables_initializer()))
    session.run(GradientDescentOptimizer(0.5, weight_decay=decay()).minimize(loss))
    after = [session.run(v).flat[0] for v in variables]
    np.testing.assert_allclose(after, [0.95, 1.0, 0.95, 1.0])


def test_a_weight_decay_that_is_a_tensor_leaves_gradients_of_other_variables_sparse(session):
    tables = [
        tb.Variable(np.ones((4, 2)), name=name, decayed=name == "decayed") for name in ("decayed", "other")
    ]
    loss = tb.add_n([tb.reduce_sum(tb.gather(table, [1, 3])) for table in tables])
    optimizer = MomentumOptimizer(0.5, 0.9, weight_decay=tb.placeholder(tb.float64, [], name="decay"))
    update = optimizer.minimize(loss)
    applied = [op.type for op in tb.get_default_graph().get_operations() if "ApplyMomentum" in op.type]
    assert applied == ["ApplyMomentum", "SparseApplyMomentum"]
    session.run(tb.global_variables_initializer())
    session.run(update, {"decay:0": 0.25})
    decayed, other = session.run(tables)
    np.testing.assert_allclose(decayed[:, 0], [0.875, 0.375, 0.875, 0.375])
    np.testing.assert_allclose(other[:, 0], [1.0, 0.5, 1.0, 0.5])


def test_names_and_slots():
    model = Regression()
    optimizer = MomentumOptimizer(0.1, 0.9)
    update = optimizer.minimize(model.loss)
    assert update.name == "Momentum"
    assert [v.name for v in optimizer.variables()] == ["w/Momentum:0", "b/Momentum:0"]
    assert optimizer.get_slot_names() == ["Momentum"]
    assert optimizer.get_slot(model.w, "Other") is None
    assert tb.trainable_variables() == [model.w, model.b]
    assert len(tb.global_variables()) == 4
    named = MomentumOptimizer(0.1, 0.9, name="Mine").minimize(model.loss)
    assert named.name == "Mine"
    assert GradientDescentOptimizer(0.1).minimize(model.loss).name == "GradientDescent"


def test_global_step_counts_after_the_updates(session):
    model = Regression()
    step = tb.Variable(0, name="global_step")
    update = GradientDescentOptimizer(0.1).minimize(model.loss, global_step=step)
    session.run(tb.global_variables_initializer())
    for expected in (1, 2, 3):
        session.run(update)
        assert session.run(step) == expected


def test_a_schedule_follows_the_global_step(session):
    model = Regression()
    step = tb.Variable(0, name="global_step")
    schedule = PiecewiseConstant([1, 3], [0.3, 0.2, 0.05])
    update = MomentumOptimizer(schedule, 0.9).minimize(model.loss, global_step=step)
    session.run(tb.global_variables_initializer())
    for _ in range(6):
        session.run(update)
    w, b, _, _ = reference(6, schedule, 0.9)
    np.testing.assert_allclose(session.run(model.w), w, rtol=1e-6)
    np.testing.assert_allclose(session.run(model.b), b, rtol=1e-6)


def test_numbers_become_the_step_scalar_and_schedules_count_by_themselves(session):
    model = Regression()
    numbers = [GradientDescentOptimizer(rate).minimize(model.loss) for rate in (0.25, Constant(0.25))]
    optimizer = GradientDescentOptimizer(PiecewiseConstant([10], [0.25, 0.1]))
    update = optimizer.minimize(model.loss)
    assert update.name == "GradientDescent_2"
    assert [v.name for v in optimizer.variables()] == ["GradientDescent/iterations:0"]
    assert tb.global_variables()[-1] is optimizer.variables()[0]
    for number in numbers:
        assert session.explain(number).executable.scalars == {"learning_rate": 0.25}
    assert session.explain(update).executable.scalars == {}


def test_two_optimisers_keep_their_own_rates(session):
    a, b = tb.Variable(np.ones(3), name="a"), tb.Variable(np.ones(3), name="b")
    loss = tb.reduce_sum(a) + tb.reduce_sum(b)
    one = GradientDescentOptimizer(0.5).minimize(loss, var_list=[a])
    two = GradientDescentOptimizer(0.125).minimize(loss, var_list=[b])
    three = GradientDescentOptimizer(0.5).minimize(loss, var_list=[b])
    session.run(tb.global_variables_initializer())
    assert session.explain([one, two, three]).executable.scalars == {
        "learning_rate": 0.5,
        "learning_rate_1": 0.125,
    }
    session.run([one, two])
    np.testing.assert_array_equal(session.run([a, b]), [np.full(3, 0.5), np.full(3, 0.875)])


def test_two_momentum_optimisers_on_the_same_variables(session):
    model = Regression()
    optimizers = [MomentumOptimizer(0.1, 0.9), MomentumOptimizer(0.1, 0.5)]
    first, second = (o.minimize(model.loss) for o in optimizers)
    session.run(tb.global_variables_initializer())
    session.run(first)
    session.run(first)
    slots = [o.get_slot(model.w, "Momentum") for o in optimizers]
    assert slots[0].name != slots[1].name
    np.testing.assert_allclose(session.run(slots[0]), reference(2, 0.1, 0.9)[2])
    assert not session.run(slots[1]).any()
    session.run(second)
    assert session.run(slots[1]).any()


def test_rates_may_be_tensors_and_variables_of_another_dtype(session):
    model = Regression()
    rate = tb.Variable(0.5, trainable=False, name="rate")
    by_variable = GradientDescentOptimizer(rate).minimize(model.loss)
    by_tensor = GradientDescentOptimizer(tb.constant(0.5) * 0.5).minimize(model.loss)
    session.run(tb.global_variables_initializer())
    session.run(by_variable)
    np.testing.assert_allclose(session.run(model.w), reference(1, 0.5)[0])
    session.run(rate.assign(0.25))
    session.run(tb.variables_initializer([model.w, model.b]))
    session.run([by_tensor])
    np.testing.assert_allclose(session.run(model.w), reference(1, 0.25)[0])


def test_variables_of_two_dtypes(session):
    a, b = tb.Variable(np.ones(3, np.float32)), tb.Variable(np.ones(3, np.float64))
    loss = tb.cast(tb.reduce_sum(a), tb.float64) + tb.reduce_sum(b)
    update = MomentumOptimizer(0.1, 0.9).minimize(loss)
    session.run(tb.global_variables_initializer())
    session.run(update)
    np.testing.assert_allclose(session.run(a), np.full(3, 0.9, np.float32))
    np.testing.assert_allclose(session.run(b), np.full(3, 0.9), rtol=1e-15)


def test_the_loss_fetched_with_the_update_is_from_before_it(session):
    w = tb.Variable(np.array([3.0]))
    loss = tb.reduce_sum(tb.square(w))
    update = GradientDescentOptimizer(0.25).minimize(loss)
    session.run(w.initializer)
    assert session.run([loss, update, w]) == [9.0, None, 1.5]


def test_clipped_training(session):
    model = Regression()
    optimizer = GradientDescentOptimizer(1.0)
    pairs = optimizer.compute_gradients(model.loss)
    clipped, norm = tb.clip_by_global_norm([g for g, _ in pairs], 0.1)
    update = optimizer.apply_gradients(zip(clipped, (v for _, v in pairs), strict=True))
    session.run(tb.global_variables_initializer())
    length, _ = session.run([norm, update])
    by_w, by_b = Regression.gradients(W, B)
    assert length == pytest.approx(np.sqrt((by_w**2).sum() + (by_b**2).sum()))
    np.testing.assert_allclose(session.run(model.w), W - by_w * 0.1 / length)


def test_pairs_without_gradients():
    w, unused = tb.Variable([1.0], name="used"), tb.Variable([1.0], name="unused")
    optimizer = MomentumOptimizer(0.1, 0.9)
    loss = tb.reduce_sum(w)
    assert [g is None for g, _ in optimizer.compute_gradients(loss)] == [False, True]
    optimizer.minimize(loss)
    assert optimizer.get_slot(unused, "Momentum") is None
    with pytest.raises(InvalidArgumentError, match=r"no gradient leads from .* to any of unused:0"):
        optimizer.minimize(loss, var_list=[unused])
    with pytest.raises(InvalidArgumentError, match="no variable has a gradient"):
        optimizer.apply_gradients([(None, w)])
    with pytest.raises(
        InvalidArgumentError, match=r"expected grads_and_vars to be \(gradient, variable\) pairs, got tuple"
    ):
        optimizer.apply_gradients([(loss, loss)])


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_rates_that_are_none(rate):
    with pytest.raises(InvalidArgumentError, match="expected learning_rate to be a finite number above 0"):
        GradientDescentOptimizer(rate)


def test_options_out_of_range():
    with pytest.raises(
        InvalidArgumentError, match=r"expected momentum to be .* below 1, or a scalar tensor, got float 1.0"
    ):
        MomentumOptimizer(0.1, 1.0)
    with pytest.raises(
        InvalidArgumentError, match="expected weight_decay to be a finite number of at least 0"
    ):
        GradientDescentOptimizer(0.1, weight_decay=-1.0)
    with pytest.raises(
        InvalidArgumentError, match=r"expected weight_decay to be .*, or a scalar tensor, got"
    ):
        GradientDescentOptimizer(0.1, weight_decay=tb.ones([2]))
