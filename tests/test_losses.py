"""`tb.losses` and regularizers: values by NumPy, collections, gradients where nothing is counted."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")

RANDOM = np.random.default_rng(3)
LABELS = RANDOM.uniform(0.1, 0.9, (4, 3))
GIVEN = RANDOM.uniform(0.1, 0.9, (4, 3))
WEIGHTS = np.array([[2.0], [0.0], [1.0], [3.0]])


def softplus(x):
    return np.log1p(np.exp(x))


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize(
    ("loss", "each"),
    [
        (tb.losses.absolute_difference, lambda y, p: abs(p - y)),
        (tb.losses.mean_squared_error, lambda y, p: (p - y) ** 2),
        (tb.losses.hinge_loss, lambda y, p: np.maximum(0, 1 - (2 * y - 1) * p)),
        (tb.losses.log_loss, lambda y, p: -y * np.log(p + 1e-7) - (1 - y) * np.log(1 - p + 1e-7)),
        (tb.losses.sigmoid_cross_entropy, lambda y, p: softplus(p) - y * p),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_losses_of_elements_are_weighted_and_reduced(session, loss, each):
    losses = each(LABELS, GIVEN) * WEIGHTS
    by_reduction = {
        "weighted_sum_by_nonzero_weights": losses.sum() / 9,
        "weighted_sum": losses.sum(),
        "weighted_sum_over_batch_size": losses.mean(),
        "weighted_mean": losses.sum() / (3 * WEIGHTS.sum()),
        "none": losses,
    }
    for reduction, expected in by_reduction.items():
        result = loss(tb.constant(LABELS), tb.constant(GIVEN), WEIGHTS, reduction=reduction)
        np.testing.assert_allclose(session.run(result), expected, rtol=1e-12)
    assert len(tb.losses.get_losses()) == len(by_reduction)


@pytest.mark.parametrize("weights", [0.5, [0.5, 2.0, 0.0]])
def test_squared_errors_of_pairs(session, weights):
    """Of all pairs of different elements of an example, also where its number is known at run time only."""
    labels, given = (np.random.default_rng(seed).normal(size=(3, 2, 2)) for seed in (1, 2))
    differences = (given - labels).reshape(3, 4)
    pairs = (differences[:, :, None] - differences[:, None, :]) ** 2
    each = pairs.sum((1, 2)) / 12
    fed = tb.placeholder(tb.float64, [None, None, 2])
    for predictions in (tb.constant(given), fed):
        loss = tb.losses.mean_pairwise_squared_error(labels, predictions, weights)
        found = session.run(loss, {fed: given})
        np.testing.assert_allclose(found, (each * np.array(weights)).sum(), rtol=1e-12)
    assert len(tb.losses.get_losses()) == 2
    lone = tb.losses.mean_pairwise_squared_error(tb.constant([[1.0], [2.0]]), tb.constant([[3.0], [5.0]]))
    assert session.run(lone) == 0
    for refused in (np.ones((3, 2, 2)), np.ones((3, 4))):
        with pytest.raises(InvalidArgumentError, match="expected weights to be a number, or one for each"):
            tb.losses.mean_pairwise_squared_error(labels, given, refused)
    with pytest.raises(InvalidArgumentError, match=r"predictions \[batch, ...\] of known rank"):
        tb.losses.mean_pairwise_squared_error(1.0, 2.0)


def test_huber_and_cosine(session):
    error = abs(GIVEN - LABELS)
    huber = np.where(error <= 0.2, error**2 / 2, 0.2 * error - 0.02)
    made = tb.losses.huber_loss(tb.constant(LABELS), tb.constant(GIVEN), delta=0.2)
    np.testing.assert_allclose(session.run(made), huber.mean(), rtol=1e-12)
    distance = tb.losses.cosine_distance(tb.constant(LABELS), tb.constant(GIVEN), 1)
    np.testing.assert_allclose(session.run(distance), (1 - (LABELS * GIVEN).sum(1)).mean(), rtol=1e-12)


def test_losses_of_classes(session):
    logits, classes = tb.constant(GIVEN), np.array([2, 0, 1, 1])
    hot = np.eye(3)[classes]
    expected = -(hot * log_softmax(GIVEN)).sum(1)
    sparse = tb.losses.sparse_softmax_cross_entropy(classes, logits, WEIGHTS[:, 0])
    np.testing.assert_allclose(session.run(sparse), (expected * WEIGHTS[:, 0]).sum() / 3, rtol=1e-12)
    smooth = -((hot * 0.7 + 0.1) * log_softmax(GIVEN)).sum(1)
    dense = tb.losses.softmax_cross_entropy(hot, logits, label_smoothing=0.3)
    np.testing.assert_allclose(session.run(dense), smooth.mean(), rtol=1e-12)


def test_no_weight_gives_no_loss_and_a_finite_gradient(session):
    given = tb.constant(GIVEN)
    loss = tb.losses.mean_squared_error(tb.constant(LABELS), given, 0.0)
    assert session.run(loss) == 0
    assert not session.run(tb.gradients(loss, given)[0]).any()


def test_total_loss_adds_those_of_regularizers(session):
    tb.set_random_seed(1)
    x = tb.constant(GIVEN.astype(np.float32))
    with tb.variable_scope("net", regularizer=tb.layers.l2_regularizer(0.1)):
        y = tb.layers.dense(x, 2, bias_regularizer=tb.layers.l1_regularizer(0.5), bias_initializer="ones")
    with tb.variable_scope("net", reuse=True):  # found variables are not counted twice
        tb.layers.dense(x, 2)
    kernel, _ = tb.trainable_variables()
    own = tb.losses.mean_squared_error(tb.zeros([4, 2]), y)
    session.run(tb.global_variables_initializer())
    decay = 0.05 * (session.run(kernel) ** 2).sum()
    np.testing.assert_allclose(session.run(tb.losses.get_regularization_loss()), decay + 1.0, rtol=1e-6)
    total, loss = session.run([tb.losses.get_total_loss(), own])
    np.testing.assert_allclose(total, loss + decay + 1.0, rtol=1e-6)
    assert tb.losses.get_regularization_losses("elsewhere") == []
    assert len(tb.losses.get_regularization_losses("net")) == 2


def test_misuse():
    with pytest.raises(InvalidArgumentError, match="expected labels and predictions of one shape"):
        tb.losses.mean_squared_error(tb.zeros([2, 3]), tb.zeros([2]))
    with pytest.raises(InvalidArgumentError, match="expected weights to be a number or a tensor"):
        tb.losses.absolute_difference(LABELS, GIVEN, weights=np.ones(4))
    with pytest.raises(InvalidArgumentError, match=r"get_total_loss: no loss is in the collection"):
        tb.losses.get_total_loss()
    with pytest.raises(InvalidArgumentError, match=r"result of the regularizer of w to be a scalar tensor"):
        tb.get_variable("w", [2], regularizer=lambda w: w)
