"""The shipped models: TensorBow's table 5.1, shapes, gradients, initial values."""

import math

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import VariableLayout
from tensorbow.errors import InvalidArgumentError
from tensorbow.models import get_model
from tensorbow.program import Region

pytestmark = pytest.mark.usefixtures("graph")


def inputs(*extents):
    return tb.placeholder(tb.float32, [None, *(extents or (28, 28, 1))]), tb.placeholder(tb.int64, [None])


@pytest.mark.parametrize(
    ("name", "parameters", "size", "unit"),
    [("logreg", 7_850, "0.0314", 1e6), ("lenet", 1_111_946, "4.24", 2**20)],
)
def test_parameters_and_sizes_of_table_5_1(graph, name, parameters, size, unit):
    images, labels = inputs()
    get_model(name)(images, labels, classes=10)
    count = sum(math.prod(v.shape) for v in tb.trainable_variables())
    assert count == parameters
    digits = len(size.partition(".")[2])
    assert f"{count * 4 / unit:.{digits}f}" == size
    layout = VariableLayout.of_graph(graph)
    assert sum(ref.nbytes for ref in layout.flat(Region.WEIGHTS)) == parameters * 4


def test_the_layers_of_lenet():
    images, labels = inputs()
    get_model("lenet")(images, labels, classes=10)
    assert {v.op.name: v.shape.as_list() for v in tb.trainable_variables()} == {
        "conv1/weights": [5, 5, 1, 32],
        "conv1/biases": [32],
        "conv2/weights": [5, 5, 32, 64],
        "conv2/biases": [64],
        "fc1/weights": [1024, 1024],
        "fc1/biases": [1024],
        "fc2/weights": [1024, 10],
        "fc2/biases": [10],
    }


SMALL = ("logreg", "lenet", pytest.param("resnet8", marks=pytest.mark.slow))  # one of each kind


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", SMALL)
def test_outputs(name):
    tb.set_random_seed(1)
    images, labels = inputs()
    outputs = get_model(name)(images, labels, classes=10)
    accuracy = outputs.metrics["accuracy"]
    assert (outputs.loss.shape, outputs.outputs.shape.as_list()) == ([], [None, 10])
    assert (accuracy.shape, accuracy.dtype) == ([], tb.float32)
    random = np.random.default_rng(0)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        for batch_size in (1, 5, 32):
            feeds = {
                images: random.random((batch_size, 28, 28, 1)),
                labels: random.integers(0, 10, batch_size),
            }
            loss, logits, share = session.run([outputs.loss, outputs.outputs, accuracy], feeds)
            assert 0.5 < loss < 10
            assert share == pytest.approx(np.mean(logits.argmax(1) == feeds[labels]))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_training_learns_a_batch_by_heart(name):
    tb.set_random_seed(3)
    images, labels = inputs()
    outputs = get_model(name)(images, labels, training=True, classes=10)
    with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
        update = tb.train.MomentumOptimizer(0.01, 0.9).minimize(outputs.loss)
    random = np.random.default_rng(0)
    feeds = {images: random.random((8, 28, 28, 1)), labels: random.integers(0, 10, 8)}
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        first = session.run(outputs.loss, feeds)
        for _ in range(80):
            session.run(update, feeds)
        assert session.run(outputs.loss, feeds) < 0.2 * first
        assert session.run(outputs.metrics["accuracy"], feeds) == 1


def test_logistic_regression_starts_at_even_odds():
    images, labels = inputs()
    outputs = get_model("logreg")(images, labels, classes=10)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        loss = session.run(outputs.loss, {images: np.ones((3, 28, 28, 1)), labels: [1, 2, 3]})
        assert loss == pytest.approx(math.log(10))


def test_initial_values_follow_the_seed_and_the_layers_width():
    values = []
    for seed in (1, 1, 2):
        with tb.Graph().as_default():
            tb.set_random_seed(seed)
            images, labels = inputs()
            get_model("lenet")(images, labels, classes=10)
            with tb.Session() as session:
                session.run(tb.global_variables_initializer())
                values.append({v.op.name: session.run(v) for v in tb.global_variables()})
    assert all(np.array_equal(values[0][n], values[1][n]) for n in values[0])
    assert not np.array_equal(values[0]["fc1/weights"], values[2]["fc1/weights"])
    assert not values[0]["fc1/biases"].any()
    for name, inputs_and_outputs in (("conv2/weights", 25 * (32 + 64)), ("fc1/weights", 1024 + 1024)):
        deviation = math.sqrt(2 / inputs_and_outputs)  # Glorot and Bengio, 2010
        assert values[0][name].std() == pytest.approx(deviation, rel=0.02)


def test_other_pictures_and_classes():
    images, _ = inputs(32, 36, 3)
    logits = get_model("lenet").logits(images, 7)
    assert logits.shape == [None, 7]
    assert get_model("logreg").logits(images, 7).shape == [None, 7]


def test_what_is_no_picture():
    with pytest.raises(InvalidArgumentError, match=r"images must be \[batch, height, width, channels\]"):
        get_model("lenet").logits(tb.placeholder(tb.float32, [None, 784]), 10)
    with pytest.raises(InvalidArgumentError, match=r"features must be .* got float32\[\?, \?, 28, 1\]"):
        get_model("logreg").logits(tb.placeholder(tb.float32, [None, None, 28, 1]), 10)
    with pytest.raises(InvalidArgumentError, match=r"model: expected one of logreg, .*got 'squeezenet'"):
        get_model("squeezenet")


def test_rates_rise_with_the_replicas():
    model = get_model("lenet")
    rates = [model.default_learning_rate(k) for k in (1, 2, 4)]
    assert rates == sorted(rates)
    assert rates[0] == model.learning_rate
    assert model.default_learning_rate(1, "synthetic") == rates[0]
    assert model.default_learning_rate(1, "digits") == dict(model.defaults.learning_rates)["digits"]
    assert model.default_learning_rate(4, "mnist") == 2 * dict(model.defaults.learning_rates)["mnist"]
    by_batch = [model.default_learning_rate(1, None, batch) / rates[0] for batch in (4, 16, 64, 1 << 20)]
    assert by_batch == [0.25, 1, 4, 16]
    known = [model.default_learning_rate(1, "mnist", batch) for batch in (4, 16, 64)]
    assert [rate / known[1] for rate in known] == [0.25, 1, 2]
    of_adam = get_model("char-rnn")
    assert of_adam.default_learning_rate(1, None, 64) == 2 * of_adam.learning_rate
    with pytest.raises(InvalidArgumentError, match="learning_rates to be pairs of a data set and a rate"):
        tb.models.Defaults(0.1, learning_rates=(("mnist", 0.0),))


class Hiding(tb.models.LeNet):
    def __init__(self, name, value):
        setattr(self, name, value)


@pytest.mark.parametrize("name", ["logits", "default_learning_rate", "learning_rate"])
def test_an_attribute_that_hides_a_method_is_refused(name):
    with pytest.raises(InvalidArgumentError, match=f"Hiding: expected .* got self.{name} = float 0.5"):
        Hiding(name, 0.5)
    assert Hiding("heads", 4).heads == 4


@pytest.mark.parametrize("drops", [((0, 0.1),), 3, (("mnist", 0.1),)])
def test_drops_of_data_sets_are_checked(drops):
    with pytest.raises(InvalidArgumentError, match="dataset_drops to be pairs of a data set and drops"):
        tb.models.Defaults(0.1, dataset_drops=(("mnist", drops),) if drops != 3 else 3)


def test_rates_for_numbers_are_lower():
    model = get_model("mlp")
    assert model.default_learning_rate(4, of_numbers=True) == pytest.approx(0.004)
    adaptive = get_model("vit-tiny")
    assert adaptive.default_learning_rate(4, of_numbers=True) == adaptive.default_learning_rate(4)


def test_a_call_needs_the_number_of_classes():
    with pytest.raises(InvalidArgumentError, match=r"model lenet: .* and classes None; .* as classes=10"):
        get_model("lenet")(*inputs())


def test_labels_that_are_no_integers_are_refused():
    images, labels = tb.placeholder(tb.float32, [None, 28, 28, 1]), tb.placeholder(tb.float32, [None, 2, 2])
    with pytest.raises(InvalidArgumentError, match=r"model logreg: expected .* that are classes, integers"):
        get_model("logreg")(images, labels, classes=10)
