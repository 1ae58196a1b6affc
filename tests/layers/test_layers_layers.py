"""Layers: shapes, names, sharing; batch normalisation's moving averages, in sessions and in replicas."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.scheduler_rig.running import Prepared

pytestmark = pytest.mark.usefixtures("session")

RANDOM = np.random.default_rng(2)


def test_dense(session):
    x = RANDOM.normal(size=(5, 3))
    y = tb.layers.dense(tb.constant(x), 4, tb.nn.relu, bias_initializer=tb.initializers.constant(0.5))
    plain = tb.layers.dense(tb.constant(x), 2, use_bias=False, kernel_initializer="ones", name="plain")
    assert [v.name for v in tb.trainable_variables()] == ["dense/kernel:0", "dense/bias:0", "plain/kernel:0"]
    session.run(tb.global_variables_initializer())
    kernel = session.run(tb.global_variables()[0])
    np.testing.assert_allclose(session.run(y), np.maximum(x @ kernel + 0.5, 0))
    np.testing.assert_allclose(session.run(plain), np.repeat(x.sum(1, keepdims=True), 2, 1))
    assert tb.layers.dense(tb.placeholder(tb.float32, [None, 7, 3]), 2).shape == [None, 7, 2]


def test_layers_share_by_name(session):
    x = tb.placeholder(tb.float32, [None, 3])
    tb.layers.dense(x, 4, name="one")
    tb.layers.dense(x, 4, name="one", reuse=True)
    assert len(tb.trainable_variables()) == 2
    with pytest.raises(InvalidArgumentError, match="one/kernel is there already"):
        tb.layers.dense(x, 4, name="one")
    tb.layers.dense(x, 4)
    tb.layers.dense(x, 4)
    assert [v.op.name for v in tb.trainable_variables()][2::2] == ["dense/kernel", "dense_1/kernel"]


def conv2d(*arguments):
    return tb.layers.conv2d(arguments[0], 5, *arguments[1:], bias_initializer="ones")


def conv2d_op(x, size, strides, padding):
    kernel = tb.trainable_variables()[0]
    assert kernel.shape == [3, 2, 3, 5]
    return tb.nn.conv2d(x, kernel, strides, padding) + 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize(
    ("layer", "op"),
    [
        (conv2d, conv2d_op),
        (tb.layers.max_pooling2d, tb.nn.max_pool2d),
        (tb.layers.average_pooling2d, tb.nn.avg_pool2d),
    ],
    ids=["conv2d", "max_pooling2d", "average_pooling2d"],
)
def test_windows_over_images(session, layer, op, data_format):
    x = RANDOM.normal(size=(2, 9, 8, 3))
    channels_last = data_format == "channels_last"
    given = tb.constant(x if channels_last else x.transpose(0, 3, 1, 2))
    for padding, rows in (("valid", 4), ("same", 5)):
        with tb.variable_scope("shared", reuse=tb.AUTO_REUSE):
            made = layer(given, (3, 2), 2, padding, data_format)
        expected = op(tb.constant(x), (3, 2), 2, padding.upper())
        session.run(tb.global_variables_initializer())
        result, expected = session.run([made, expected])
        assert expected.shape[1:3] == (rows, 4)
        np.testing.assert_allclose(result if channels_last else result.transpose(0, 2, 3, 1), expected)
    with pytest.raises(InvalidArgumentError, match="expected data_format to be 'channels_last' or"):
        layer(given, 2, 2, "valid", "NHWC")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("batch", [2, None])
def test_conv2d_transpose_is_the_gradient_of_a_convolution(session, padding, data_format, batch):
    x = RANDOM.normal(size=(2, 4, 5, 3))
    moved = (lambda y: y) if data_format == "channels_last" else (lambda y: y.transpose(0, 3, 1, 2))
    given = tb.placeholder(tb.float64, [batch, *moved(x).shape[1:]])
    y = tb.layers.conv2d_transpose(given, 6, (3, 2), (2, 3), padding, data_format, bias_initializer="ones")
    kernel, _ = tb.trainable_variables("conv2d_transpose/")
    assert kernel.shape == [3, 2, 6, 3]
    image = tb.zeros([2, 9 if padding == "valid" else 8, 15, 6], tb.float64)
    strided = tb.nn.conv2d(image, kernel, (2, 3), padding.upper())
    (expected,) = tb.gradients(tb.reduce_sum(strided * x), [image])
    session.run(tb.global_variables_initializer())
    result, expected = session.run([y, expected], {given: moved(x)})
    assert y.shape == [batch, *result.shape[1:]]
    np.testing.assert_allclose(result, moved(expected) + 1, rtol=1e-9, atol=1e-12)


def test_conv2d_transpose_needs_known_sides():
    with pytest.raises(InvalidArgumentError, match=r"conv2d_transpose: axis 1 .* must be known"):
        tb.layers.conv2d_transpose(tb.placeholder(tb.float32, [2, None, 5, 3]), 6, 3)


def test_flatten():
    assert tb.layers.flatten(tb.placeholder(tb.float32, [None, 3, 4])).shape == [None, 12]


def normalized(x, training, **more):
    y = tb.layers.batch_normalization(x, training=training, name="norm", **more)
    return y, tb.group(*tb.get_collection(tb.GraphKeys.UPDATE_OPS))


def test_moving_averages_follow_the_batches(session):
    x = tb.placeholder(tb.float64, [None, 4, 3])
    y, update = normalized(x, True, momentum=0.75, epsilon=1e-3)
    z, _ = normalized(x, False, epsilon=1e-3, reuse=True)
    session.run(tb.global_variables_initializer())
    mean, variance = np.zeros(3), np.ones(3)
    for seed in range(4):
        batch = np.random.default_rng(seed).normal(2, 3, (6, 4, 3))
        result, _ = session.run([y, update], {x: batch})
        flat = batch.reshape(-1, 3)
        expected = (batch - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-3)
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)
        mean = 0.75 * mean + 0.25 * flat.mean(0)
        variance = 0.75 * variance + 0.25 * flat.var(0, ddof=1)
    found = {v.op.name: session.run(v) for v in tb.global_variables()}
    np.testing.assert_allclose(found["norm/moving_mean"], mean)
    np.testing.assert_allclose(found["norm/moving_variance"], variance)
    batch = RANDOM.normal(size=(2, 4, 3))
    evaluated = (batch - mean) / np.sqrt(variance + 1e-3)
    np.testing.assert_allclose(session.run(z, {x: batch}), evaluated, rtol=1e-9)


def test_what_it_declares():
    normalized(tb.placeholder(tb.float32, [None, 3]), True)
    attrs = {v.op.name: v.op.attrs for v in tb.global_variables()}
    assert list(attrs) == ["norm/gamma", "norm/beta", "norm/moving_mean", "norm/moving_variance"]
    assert [a["role"] for a in attrs.values()] == ["weights", "weights", "statistics", "statistics"]
    assert [a["combine"] for a in attrs.values()] == ["sma", "sma", "mean", "mean"]
    assert not any(a["decayed"] for a in attrs.values())
    assert len(tb.get_collection(tb.GraphKeys.UPDATE_OPS)) == 2


def test_nchw_and_missing_scale(session):
    x = RANDOM.normal(size=(2, 3, 4, 5))
    y, _ = normalized(tb.constant(x), True, axis=1, center=False, scale=False)
    assert [v.op.name for v in tb.trainable_variables()] == []
    session.run(tb.global_variables_initializer())
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(session.run(y), (x - mean) / np.sqrt(variance + 1e-3))


def test_updates_run_with_a_training_step_the_way_tensorflow_wants_it(session):
    x = tb.placeholder(tb.float32, [None, 3])
    y, _ = normalized(x, True, momentum=0.5)
    loss = tb.reduce_mean(tb.square(y))
    with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
        train = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
    session.run(tb.global_variables_initializer())
    session.run(train, {x: np.ones((4, 3)) * [1, 2, 3]})
    mean = next(v for v in tb.global_variables() if v.op.name == "norm/moving_mean")
    assert session.run(mean).tolist() == [0.5, 1.0, 1.5]


def normalizing_program():
    x = tb.placeholder(tb.float32, [None, 3], name="x")
    y, updates = normalized(x, True, momentum=0.5)
    loss = tb.reduce_mean(tb.square(tb.layers.dense(y, 2)))
    return tb.StepProgram((x,), loss, tb.group(tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss), updates))


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["sma", "ssgd", "none"])
def test_replicas_have_statistics_of_their_own_and_z_their_mean(sync):
    feeds = RANDOM.normal(size=(2, 3, 8, 3)).astype(np.float32)  # [round, replica, ...]
    source = Prepared(lambda round, replica: (feeds[round, replica],), 3)
    options = {"replicas_per_device": 3, "synchronisation": tb.Synchronisation(sync)}
    with tb.LearningEngine(normalizing_program(), 8, **options) as engine:
        engine.initialize()
        engine.run(source.open, 0, 2)
        each = [engine.learners.values.replica_values(i)["norm/moving_mean"] for i in range(3)]
        central = engine.central_values()["norm/moving_mean"]
    means = feeds.mean(2)
    np.testing.assert_allclose(each, 0.25 * means[0] + 0.5 * means[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(central, each[0] if sync == "none" else np.mean(each, 0), rtol=1e-6)


def test_a_bad_loss_leaves_the_statistics():
    source = Prepared(lambda round, replica: (np.full((8, 3), np.nan, np.float32),), 1)
    with tb.LearningEngine(normalizing_program(), 8, replicas_per_device=1, on_nan="skip") as engine:
        engine.initialize()
        engine.run(source.open, 0, 1)
        assert engine.skipped_updates == 1
        values = engine.central_values()
    assert not values["norm/moving_mean"].any()
    assert (values["norm/moving_variance"] == 1).all()


@pytest.mark.slow
def test_dropout_works_in_training_only(session):
    x = tb.ones([40, 50])
    rate = tb.placeholder(tb.float32, [])
    np.testing.assert_array_equal(session.run(tb.layers.dropout(x, 0.25)), np.ones((40, 50)))
    dropped = session.run(tb.layers.dropout(x, 0.25, seed=1, training=True))
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 0.2 < (dropped == 0).mean() < 0.3
    columns = session.run(tb.layers.dropout(x, noise_shape=[1, 50], seed=1, training=True))
    np.testing.assert_array_equal(columns, np.broadcast_to(columns[0], columns.shape))
    assert len(np.unique(columns)) == 2
    fed = tb.layers.dropout(x, rate, seed=1, training=True)
    np.testing.assert_array_equal(session.run(fed, {rate: 0.0}), np.ones((40, 50)))


def test_misuse():
    x = tb.placeholder(tb.float32, [None, 4, 3])
    for layer, arguments, words in (
        (tb.layers.batch_normalization, {"axis": 1}, "axis must be the last one"),
        (
            tb.layers.dense,
            {"units": 4, "activation": "relu"},
            "such as tb.nn.relu or None, got str",
        ),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            layer(x, **arguments)
    with pytest.raises(InvalidArgumentError, match="must be known; use set_shape"):
        tb.layers.dense(tb.placeholder(tb.float32, [4, None]), 3)


def test_regularizers_of_convolutions_of_sequences_and_channels(session):
    """Each is the sum of its variable's squares; in the order of the variables."""
    squares = {f"{part}_regularizer": lambda v: tb.reduce_sum(tb.square(v)) for part in ("kernel", "bias")}
    given = {"bias_initializer": "ones", "bias_regularizer": squares["bias_regularizer"]}
    tb.layers.conv1d(tb.ones([1, 5, 2]), 3, 2, kernel_regularizer=squares["kernel_regularizer"], **given)
    of_channels = {"depthwise_regularizer": squares["kernel_regularizer"], **given}
    tb.layers.depthwise_conv2d(tb.ones([1, 5, 5, 2]), 3, **of_channels)
    pointwise = {"pointwise_regularizer": squares["kernel_regularizer"]}
    tb.layers.separable_conv2d(tb.ones([1, 5, 5, 2]), 3, 3, **of_channels, **pointwise)
    session.run(tb.global_variables_initializer())
    values = session.run(tb.trainable_variables())
    assert len(values) == 7
    found = session.run(tb.losses.get_regularization_losses())
    np.testing.assert_allclose(found, [np.sum(value**2) for value in values], 1e-6)
