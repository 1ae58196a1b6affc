"""Adaptive and regularised optimisers over many steps against NumPy, in TensorFlow 1's formulas."""

from typing import ClassVar

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.optimizers.regression import B, Regression, W, Y

pytestmark = pytest.mark.usefixtures("session")

STEPS = 7


class Adagrad:
    slots: ClassVar = {"Adagrad": 0.1}

    def make(self, **more):
        return tb.train.AdagradOptimizer(0.3, **more)

    def update(self, w, g, s, step):
        s["Adagrad"] = s["Adagrad"] + g**2
        return w - 0.3 * g / np.sqrt(s["Adagrad"])


class Adadelta:
    slots: ClassVar = {"accum": 0.0, "accum_update": 0.0}

    def make(self, **more):
        return tb.train.AdadeltaOptimizer(0.5, rho=0.9, epsilon=1e-4, **more)

    def update(self, w, g, s, step):
        s["accum"] = 0.9 * s["accum"] + 0.1 * g**2
        d = np.sqrt(s["accum_update"] + 1e-4) / np.sqrt(s["accum"] + 1e-4) * g
        s["accum_update"] = 0.9 * s["accum_update"] + 0.1 * d**2
        return w - 0.5 * d


class RMSProp:
    slots: ClassVar = {"rms": 1.0, "momentum": 0.0}

    def make(self, **more):
        return tb.train.RMSPropOptimizer(0.1, decay=0.8, momentum=0.7, epsilon=1e-3, **more)

    def update(self, w, g, s, step):
        s["rms"] = 0.8 * s["rms"] + 0.2 * g**2
        s["momentum"] = 0.7 * s["momentum"] + 0.1 * g / np.sqrt(s["rms"] + 1e-3)
        return w - s["momentum"]


class Centered:
    slots: ClassVar = {"mg": 0.0, "rms": 1.0, "momentum": 0.0}

    def make(self, **more):
        return tb.train.RMSPropOptimizer(0.1, decay=0.8, momentum=0.7, epsilon=1e-3, centered=True, **more)

    def update(self, w, g, s, step):
        s["mg"] = 0.8 * s["mg"] + 0.2 * g
        s["rms"] = 0.8 * s["rms"] + 0.2 * g**2
        s["momentum"] = 0.7 * s["momentum"] + 0.1 * g / np.sqrt(s["rms"] - s["mg"] ** 2 + 1e-3)
        return w - s["momentum"]


class Adam:
    slots: ClassVar = {"m": 0.0, "v": 0.0}

    def make(self, **more):
        return tb.train.AdamOptimizer(0.1, beta1=0.8, beta2=0.9, epsilon=1e-3, **more)

    def update(self, w, g, s, step):
        s["m"] = 0.8 * s["m"] + 0.2 * g
        s["v"] = 0.9 * s["v"] + 0.1 * g**2
        rate = 0.1 * np.sqrt(1 - 0.9 ** (step + 1)) / (1 - 0.8 ** (step + 1))
        return w - rate * s["m"] / (np.sqrt(s["v"]) + 1e-3)


class Ftrl:
    slots: ClassVar = {"accum": 0.2, "linear": 0.0}

    def make(self, **more):
        return tb.train.FtrlOptimizer(0.3, -0.6, 0.2, 0.05, 0.02, False, None, None, None, 0.01, **more)

    def update(self, w, g, s, step):
        before, s["accum"] = s["accum"] ** 0.6, s["accum"] + g**2
        scale = s["accum"] ** 0.6
        s["linear"] = s["linear"] + g + 2 * 0.01 * w - (scale - before) / 0.3 * w
        z = s["linear"]
        return np.where(np.abs(z) > 0.05, (np.sign(z) * 0.05 - z) / (scale / 0.3 + 2 * 0.02), 0.0)


def proximal(w, step, rate, l1, l2):
    w = w - step
    return np.sign(w) * np.maximum(np.abs(w) - rate * l1, 0) / (1 + rate * l2)


class ProximalDescent:
    slots: ClassVar = {}

    def make(self, **more):
        return tb.train.ProximalGradientDescentOptimizer(0.1, 0.5, 0.3, **more)

    def update(self, w, g, s, step):
        return proximal(w, 0.1 * g, 0.1, 0.5, 0.3)


class ProximalAdagrad:
    slots: ClassVar = {"accumulator": 0.1}

    def make(self, **more):
        return tb.train.ProximalAdagradOptimizer(0.3, 0.1, 0.2, 0.1, **more)

    def update(self, w, g, s, step):
        s["accumulator"] = s["accumulator"] + g**2
        rate = 0.3 / np.sqrt(s["accumulator"])
        return proximal(w, rate * g, rate, 0.2, 0.1)


class AdagradDA:
    slots: ClassVar = {"gradient_accumulator": 0.0, "gradient_squared_accumulator": 0.1}

    def make(self, **more):
        return tb.train.AdagradDAOptimizer(0.3, tb.train.get_or_create_global_step(), 0.1, 0.02, 0.01, **more)

    def update(self, w, g, s, step):
        total = s["gradient_accumulator"] = s["gradient_accumulator"] + g
        squares = s["gradient_squared_accumulator"] = s["gradient_squared_accumulator"] + g**2
        shrunk = np.sign(total) * np.maximum(np.abs(total) - 0.02 * (step + 1), 0)
        return -0.3 * shrunk / (0.01 * (step + 1) * 0.3 + np.sqrt(squares))


KINDS = [
    *(Adagrad, Adadelta, RMSProp, Centered, Adam),
    *(Ftrl, ProximalDescent, ProximalAdagrad, AdagradDA),
]


def reference(kind, decay=0.0):
    values = [W.copy(), B.copy()]
    slots = [{name: np.full_like(v, start) for name, start in kind.slots.items()} for v in values]
    for step in range(STEPS):
        by_w, by_b = Regression.gradients(*values)
        gradients = by_w + decay * values[0], by_b
        pairs = zip(values, gradients, slots, strict=True)
        values = [kind().update(v, g, s, step) for v, g, s in pairs]
    return values, slots


@pytest.mark.sampled(1)
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_many_steps(session, kind, decay):
    model = Regression()
    optimizer = kind().make(weight_decay=decay)
    update = optimizer.minimize(model.loss, tb.train.get_global_step())
    session.run(tb.global_variables_initializer())
    for _ in range(STEPS):
        session.run(update)
    values, slots = reference(kind, decay)
    assert optimizer.get_slot_names() == sorted(kind.slots)
    for variable, expected, owned in zip((model.w, model.b), values, slots, strict=True):
        np.testing.assert_allclose(session.run(variable), expected, rtol=1e-9)
        for name in kind.slots:
            got = session.run(optimizer.get_slot(variable, name))
            np.testing.assert_allclose(got, owned[name], rtol=1e-9, atol=1e-15)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_in_single_precision(session, kind):
    model = Regression("float32")
    update = kind().make().minimize(model.loss, tb.train.get_global_step())
    session.run(tb.global_variables_initializer())
    for _ in range(STEPS):
        session.run(update)
    np.testing.assert_allclose(session.run(model.w), reference(kind)[0][0], rtol=1e-4, atol=1e-5)


def test_adam_w_decays_the_weights_and_not_their_averages(session):
    model = Regression()
    options = {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3}
    update = tb.train.AdamWOptimizer(0.1, weight_decay=0.3, **options).minimize(model.loss)
    session.run(tb.global_variables_initializer())
    values, slots = [W.copy(), B.copy()], [{"m": 0.0, "v": 0.0}, {"m": 0.0, "v": 0.0}]
    for step in range(STEPS):
        session.run(update)
        gradients, values[0] = Regression.gradients(*values), values[0] * (1 - 0.1 * 0.3)
        pairs = zip(values, gradients, slots, strict=True)
        values = [Adam().update(v, g, s, step) for v, g, s in pairs]
    np.testing.assert_allclose(session.run(model.w), values[0], rtol=1e-9)
    np.testing.assert_allclose(session.run(model.b), values[1], rtol=1e-9)


def test_adam_has_one_pair_of_powers_moved_on_after_all_updates(session):
    model = Regression()
    optimizer = tb.train.AdamOptimizer(0.1, beta1=0.5, beta2=0.75)
    update = optimizer.minimize(model.loss)
    names = [v.op.name for v in optimizer.variables()]
    assert names == ["w/m", "w/v", "b/m", "b/v", "beta1_power", "beta2_power"]
    session.run(tb.global_variables_initializer())
    for _ in range(3):
        session.run(update)
    powers = {v.op.name: session.run(v) for v in optimizer.variables()}
    assert powers["beta1_power"] == 0.5**4
    assert powers["beta2_power"] == 0.75**4


def test_two_adams_and_two_dtypes(session):
    a = tb.Variable(np.ones(3, np.float32), name="a")
    b = tb.Variable(np.ones(3, np.float64), name="b")
    loss = tb.cast(tb.reduce_sum(a * a), tb.float64) + tb.reduce_sum(b * b)
    first = tb.train.AdamOptimizer(0.1).minimize(loss)
    second = tb.train.AdamOptimizer(0.1).minimize(loss, var_list=[b])
    session.run(tb.global_variables_initializer())
    session.run(first)
    np.testing.assert_allclose(session.run(a), np.full(3, 0.9), rtol=1e-5)
    session.run(second)
    np.testing.assert_allclose(session.run(b), np.full(3, 0.8), rtol=1e-3)


def embedding_loss(table):
    rows = tb.gather(table, tb.constant([1, 4, 1]))
    return tb.reduce_sum(rows * tb.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], tb.float64))


def test_adagrad_touches_the_rows_of_a_sparse_gradient_only(session):
    table = tb.Variable(np.arange(12.0).reshape(6, 2), name="table", decayed=False)
    optimizer = tb.train.AdagradOptimizer(0.5, initial_accumulator_value=0.25)
    update = optimizer.minimize(embedding_loss(table))
    assert any(op.type == "SparseApplyAdagrad" for op in table.graph.get_operations())
    session.run(tb.global_variables_initializer())
    session.run(update)
    session.run(update)
    expected, accumulator = np.arange(12.0).reshape(6, 2), np.full((6, 2), 0.25)
    gradient = np.zeros((6, 2))
    gradient[1], gradient[4] = (6, 8), (3, 4)
    for _ in range(2):
        accumulator += gradient**2
        expected -= 0.5 * gradient / np.sqrt(accumulator)
    np.testing.assert_allclose(session.run(table), expected)
    np.testing.assert_allclose(session.run(optimizer.get_slot(table, "Adagrad")), accumulator)


def row_loss(table, rows):
    """A gradient that depends on the rows, of which one comes twice in the first step only."""
    return tb.reduce_sum(tb.square(tb.gather(table, rows)) * tb.constant([[1.0], [2.0], [3.0]], tb.float64))


ROWS = [np.array([1, 4, 1]), np.array([4, 0, 2]), np.array([0, 1, 4])]
START = np.random.default_rng(3).normal(size=(6, 2))


def row_gradient(table, rows):
    result = np.zeros_like(table)
    for row, weight in zip(rows, (1, 2, 3), strict=True):
        result[row] += 2 * weight * table[row]
    return result


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_rows_that_a_sparse_gradient_does_not_name(session, kind):
    """Their weights and slots do not change, but Adam uses zero gradients for them. Equal rows add up."""
    table = tb.Variable(START, name="table", decayed=False)
    rows = tb.placeholder(tb.int32, [3])
    optimizer = kind().make()
    update = optimizer.minimize(row_loss(table, rows), tb.train.get_global_step())
    session.run(tb.global_variables_initializer())
    expected = START.copy()
    slots = {name: np.full_like(expected, start) for name, start in kind.slots.items()}
    for step, chosen in enumerate(ROWS):
        session.run(update, {rows: chosen})
        gradient = row_gradient(expected, chosen)
        kept = np.unique(chosen) if kind is not Adam else np.arange(len(expected))
        owned = {name: slot[kept] for name, slot in slots.items()}
        expected[kept] = kind().update(expected[kept], gradient[kept], owned, step)
        for name, slot in slots.items():
            slot[kept] = owned[name]
    np.testing.assert_allclose(session.run(table), expected, rtol=1e-9)
    for name, slot in slots.items():
        np.testing.assert_allclose(session.run(optimizer.get_slot(table, name)), slot, rtol=1e-9, atol=1e-15)
    sparse = any(op.type.startswith("SparseApply") for op in table.graph.get_operations())
    assert sparse == (kind is not Adam)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_decay_reaches_every_row(session, kind):
    table = tb.Variable(START, name="table")
    update = kind().make(weight_decay=0.1).minimize(row_loss(table, tb.constant([1, 4, 1])))
    session.run(tb.global_variables_initializer())
    session.run(update)
    slots = {name: np.full_like(START, start) for name, start in kind.slots.items()}
    gradient = row_gradient(START, [1, 4, 1]) + 0.1 * START
    np.testing.assert_allclose(session.run(table), kind().update(START, gradient, slots, 0), rtol=1e-9)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_decay_of_all_variables(session, kind):
    """Also of those made without decay, as biases are."""
    results = []
    for decayed, decay_all in ((True, False), (False, True), (False, False)):
        b = tb.Variable(B, decayed=decayed)
        optimizer = kind().make(weight_decay=0.1, decay_all=decay_all)
        update = optimizer.minimize(tb.reduce_sum(b * Y[0]), var_list=[b])
        session.run(tb.global_variables_initializer())
        session.run(update)
        results.append(session.run(b))
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] != results[2]).all()


def test_l1_strengths_make_weights_zero(session):
    """A model with features that carry nothing: their weights are exactly zero, as in McMahan's algorithm."""
    w = tb.Variable(np.zeros(20), name="w")
    x = tb.placeholder(tb.float64, [None, 20])
    loss = tb.reduce_mean(tb.square(tb.tensordot(x, w, 1) - 3.0 * x[:, 2] + x[:, 7]))
    optimizer = tb.train.FtrlOptimizer(
        0.5, l1_regularization_strength=4.0, accum_name="sums", linear_name="z"
    )
    update = optimizer.minimize(loss)
    assert [v.op.name for v in optimizer.variables()] == ["w/sums", "w/z"]
    assert optimizer.get_slot_names() == ["accum", "linear"]
    session.run(tb.global_variables_initializer())
    draw = np.random.default_rng(0)
    for _ in range(60):
        session.run(update, {x: draw.normal(size=(64, 20))})
    found = session.run(w)
    assert np.flatnonzero(found).tolist() == [2, 7]
    np.testing.assert_allclose(found[[2, 7]], [3.0, -1.0], atol=0.3)


def test_elements_that_never_had_a_gradient_stay_finite(session):
    w = tb.Variable([0.0, 1.0])
    update = tb.train.FtrlOptimizer(0.1, initial_accumulator_value=0.0).minimize(w[1])
    session.run(tb.global_variables_initializer())
    session.run(update)
    np.testing.assert_allclose(session.run(w), [0.0, 0.9])


def test_strengths_of_each_replica():
    """Replicas with an L1 strength each are the runs of these strengths alone, bit for bit."""

    def step():
        w = tb.get_variable("w", [3], initializer=tb.ones_initializer())
        strength = tb.per_replica([0.0, 0.3])
        optimizer = tb.train.FtrlOptimizer(0.5, l1_regularization_strength=strength)
        loss = tb.reduce_sum(tb.square(w - [0.5, 0.1, -0.2]))
        with tb.control_dependencies([replicator.wrap_optimizer(optimizer).minimize(loss)]):
            return tb.identity(w)

    def alone(strength):
        with tb.Graph().as_default(), tb.Session() as session:
            w = tb.Variable(np.ones(3, np.float32))
            loss = tb.reduce_sum(tb.square(w - [0.5, 0.1, -0.2]))
            update = tb.train.FtrlOptimizer(0.5, l1_regularization_strength=strength).minimize(loss)
            session.run(tb.global_variables_initializer())
            for _ in range(4):
                session.run(update)
            return session.run(w)

    replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2, sync="none")
    with replicator.context():
        found = replicator.run(step, None)
    with tb.train.MonitoredSession() as session:
        replicator.init(session)
        for _ in range(4):
            weights = session.run(found)
    np.testing.assert_array_equal(weights, [alone(0.0), alone(0.3)])


def test_adam_counts_rows_without_gradient_as_zero(session):
    table = tb.Variable(np.zeros((6, 2)), name="table", decayed=False)
    update = tb.train.AdamOptimizer(0.1, epsilon=1e-12).minimize(embedding_loss(table))
    session.run(tb.global_variables_initializer())
    session.run(update)
    expected = np.zeros((6, 2))
    expected[[1, 4]] = -0.1
    np.testing.assert_allclose(session.run(table), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: tb.train.AdamOptimizer(beta1=1.0),
            "AdamOptimizer: expected beta1 to be a finite number of at least 0 and below 1, got float 1.0",
        ),
        (
            lambda: tb.train.AdamOptimizer(epsilon=0.0),
            "expected epsilon to be a finite number above 0, or a scalar tensor",
        ),
        (
            lambda: tb.train.AdagradOptimizer(0.1, 0.0),
            "expected initial_accumulator_value to be a finite number above 0",
        ),
        (lambda: tb.train.RMSPropOptimizer(0.1, decay=-1.0), "expected decay to be"),
        (lambda: tb.train.FtrlOptimizer(0.1, 0.5), "learning_rate_power to be a finite number of at most 0"),
        (lambda: tb.train.FtrlOptimizer(0.1, -0.5, -1), "initial_accumulator_value to be .* of at least 0"),
        (lambda: tb.train.ProximalAdagradOptimizer(0.1, 0.1, -1), "l1_regularization_strength to be"),
        (lambda: tb.train.AdagradDAOptimizer(0.1, None), "global_step to be a scalar variable of whole"),
        (lambda: tb.train.AdadeltaOptimizer(rho=float("nan")), "expected rho to be"),
    ],
)
def test_options_out_of_range(make, words):
    with pytest.raises(InvalidArgumentError, match=words):
        make()
