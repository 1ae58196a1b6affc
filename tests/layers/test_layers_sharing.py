"""Layers without names in scopes that are entered again: they share their variables as in TensorFlow 1."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")

RANDOM = np.random.default_rng(4)


def discriminator(images, reuse, training=True):
    with tb.variable_scope("discriminator", reuse=reuse):
        y = tb.layers.conv2d(images, 2, 3, activation=tb.nn.leaky_relu)
        y = tb.layers.batch_normalization(y, training=training)
        y = tb.layers.conv2d(y, 3, 2)
        y = tb.layers.dropout(tb.layers.flatten(y), 0.0, training=training)
        y = tb.layers.dense(y, 4, tb.nn.relu)
        with tb.variable_scope("head"):
            return tb.layers.dense(tb.layers.dense(y, 3), 1)


def generator(noise):
    with tb.variable_scope("generator"):
        return tb.reshape(tb.layers.dense(tb.layers.dense(noise, 8, tb.nn.relu), 36), [-1, 6, 6, 1])


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize(
    "reuses",
    [
        (False, True),
        pytest.param((None, True), marks=pytest.mark.slow),
        (tb.AUTO_REUSE, tb.AUTO_REUSE),
    ],
)
def test_both_applications_of_a_discriminator_share_its_variables(reuses):
    """In a GAN the gradient is the sum of those from real and from generated images."""
    tb.set_random_seed(3)
    real = tb.constant(RANDOM.normal(size=(5, 6, 6, 1)))
    made = generator(tb.constant(RANDOM.normal(size=(4, 2))))
    of_real = tb.reduce_mean(tb.nn.softplus(-discriminator(real, reuses[0])))
    variables = tb.global_variables()
    of_made = tb.reduce_mean(tb.nn.softplus(discriminator(made, reuses[1])))
    assert tb.global_variables() == variables
    of_layers = {v.op.name.rpartition("/")[0]: v for v in variables}
    assert [name for name in of_layers if name.startswith("d")] == [
        "discriminator/conv2d",
        "discriminator/batch_normalization",
        "discriminator/conv2d_1",
        "discriminator/dense",
        "discriminator/head/dense",
        "discriminator/head/dense_1",
    ]
    assert [name for name in of_layers if name.startswith("g")] == ["generator/dense", "generator/dense_1"]
    assert len(tb.get_collection(tb.GraphKeys.UPDATE_OPS)) == 4  # of each application its own

    own = [v for v in tb.trainable_variables() if v.op.name.startswith("discriminator")]
    parts = [tb.gradients(loss, own) for loss in (of_real, of_made, of_real + of_made)]
    others = [v for v in tb.trainable_variables() if v not in own]
    with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
        train = tb.train.AdamOptimizer(0.01).minimize(of_real + of_made, var_list=own)
    fool = tb.train.AdamOptimizer(0.01).minimize(-of_made, var_list=others)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        by_real, by_made, by_both = session.run(parts)
        for a, b, both in zip(by_real, by_made, by_both, strict=True):
            np.testing.assert_allclose(a + b, both, rtol=1e-10, atol=1e-15)
        assert all(a.any() and b.any() for a, b in zip(by_real[-2:], by_made[-2:], strict=True))
        before, made_before = session.run([of_real + of_made, of_made])
        for _ in range(5):
            session.run(train)
        assert session.run(of_real + of_made) < before
        for _ in range(20):
            session.run(fool)
        assert session.run(of_made) > made_before


def test_without_reuse_a_second_application_is_refused():
    images = tb.zeros([2, 6, 6, 1])
    discriminator(images, False)
    with pytest.raises(
        InvalidArgumentError, match=r"discriminator/conv2d/kernel is there already .*reuse=True"
    ):
        discriminator(images, None)
    discriminator(images, True)  # the refused one has left nothing behind
    missing = pytest.raises(
        InvalidArgumentError, match="there is no variable other/dense/kernel to be shared"
    )
    with missing, tb.variable_scope("other", reuse=True):
        tb.layers.dense(tb.zeros([1, 2]), 3)


def names_of(*defaults):
    """The whole names that scopes with these default names get here."""
    found = []
    for default in defaults:
        with tb.variable_scope(None, default) as scope:
            found.append(scope.name)
    return found


def test_default_names_are_counted_in_the_scope_around_them():
    assert names_of("dense", "dense", "conv") == ["dense", "dense_1", "conv"]
    with tb.variable_scope("a"):
        assert names_of("dense", "dense") == ["a/dense", "a/dense_1"]
        with tb.variable_scope("dense_2"), tb.variable_scope(None, "dense"):
            assert names_of("dense") == ["a/dense_2/dense/dense"]
        assert names_of("dense") == ["a/dense_3"]
        with tb.name_scope("not_counted"):
            assert names_of("dense") == ["a/dense_4"]
    for reuse in (None, True, tb.AUTO_REUSE):
        with tb.variable_scope("a", reuse=reuse):
            assert names_of("dense", "dense") == ["a/dense", "a/dense_1"]
    with tb.variable_scope("x/y"):
        assert names_of("dense") == ["x/y/dense"]
    with tb.variable_scope("x"), tb.variable_scope("y"):
        assert names_of("dense") == ["x/y/dense"]
    assert names_of("dense", "a") == ["dense_2", "a_1"]


def test_a_scope_that_is_entered_by_itself_counts_anew_and_leaves_the_count_as_it_was():
    with tb.variable_scope("a") as a:
        assert names_of("dense") == ["a/dense"]
        with tb.variable_scope(a):  # while it is entered
            assert names_of("dense", "dense") == ["a/dense_1", "a/dense_2"]
        assert names_of("dense") == ["a/dense_1"]
    with tb.variable_scope("b"):
        assert names_of("dense") == ["b/dense"]
        with tb.variable_scope(a, reuse=True) as again:
            assert names_of("dense", "dense") == ["a/dense", "a/dense_1"]
        assert names_of("dense") == ["b/dense_1"]
    assert again.reuse
    assert not a.reuse
    with tb.variable_scope(again, reuse=False) as same, tb.variable_scope(a) as own:
        assert same.reuse
        assert not own.reuse


def test_reuse_of_a_layer_without_a_name_is_of_the_first_one():
    x = tb.zeros([1, 3])
    tb.layers.dense(x, 2)
    tb.layers.dense(x, 2)
    tb.layers.dense(x, 2, reuse=True)
    tb.layers.dense(x, 2, reuse=tb.AUTO_REUSE)
    assert [v.op.name for v in tb.trainable_variables()][::2] == ["dense/kernel", "dense_1/kernel"]
    with pytest.raises(InvalidArgumentError, match=r"variable_scope: reuse=True needs a name, got None"):
        tb.variable_scope(None, "dense", reuse=True).__enter__()


@pytest.mark.slow
def test_steps_of_a_replicator_share_what_they_build_in_one_scope():
    replicator = tb.MultiGpuReplicator(["/cpu:0"], 2)
    with replicator.context():
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))

    def model(x):
        with tb.variable_scope("model", reuse=tb.AUTO_REUSE):
            return tb.layers.dense(tb.layers.dense(x, 3), 1)

    batch = np.ones((4, 2), np.float32)
    train = replicator.run(lambda x: optimizer.minimize(tb.reduce_mean(model(x))), lambda: batch)
    look = replicator.run(lambda x: tb.reduce_mean(model(x)), lambda: batch)
    with replicator, tb.Session(graph=tb.get_default_graph()) as session:
        replicator.init(session)
        before = session.run(look)
        session.run(train)
        assert (session.run(look) < before).all()
    assert len(replicator.central_values()) == 4
