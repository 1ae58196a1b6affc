"""ResNets: TensorBow's table 5.1, the family, gradients everywhere, evaluation by moving averages."""

import math

import numpy as np
import pytest

import tensorbow as tb
import tensorbow.data.registry as registry
from scheduler import Trainer, TrainingConfig, build_program
from scheduler.training.models.evaluation import Evaluator
from tensorbow.data import ImageDataset, make_synthetic
from tensorbow.devices import get_device
from tensorbow.errors import InvalidArgumentError
from tensorbow.models import MODELS, ResNet, get_model

pytestmark = pytest.mark.usefixtures("graph")


def inputs():
    return tb.placeholder(tb.float32, [None, 32, 32, 3]), tb.placeholder(tb.int64, [None])


def elements(variables):
    return sum(math.prod(v.shape) for v in variables)


def test_resnet_32_of_table_5_1():
    get_model("resnet32").logits(inputs()[0], 10)
    assert elements(tb.trainable_variables()) == 466_906
    assert f"{elements(tb.global_variables()) * 4 / 2**20:.2f}" == "1.79"
    names = {v.op.name: v.shape.as_list() for v in tb.global_variables()}
    assert names["conv1/conv/kernel"] == [3, 3, 3, 16]
    assert names["stage2_block1/projection/conv/kernel"] == [1, 1, 16, 32]
    assert names["stage3_block5/conv2/norm/moving_variance"] == [64]
    assert "stage2_block2/projection/conv/kernel" not in names
    assert names["fc/kernel"] == [64, 10]


def test_names_of_any_depth():
    assert [get_model(f"resnet{layers}").blocks for layers in (8, 26, 62, 1202)] == [1, 4, 10, 200]
    for layers, nearest in (
        (24, 26),
        (36, 38),
        (102, 104),
        (158, 158),
        (2, 8),
        (0, 8),
        (1203, 1202),
        (9999, 1202),
    ):
        name = f"resnet{layers}"
        if layers == nearest:
            assert get_model(name).name == name
            continue
        message = f"of 6n.2 layers, n from 1 to 200, got '{name}'; the nearest is resnet{nearest}$"
        with pytest.raises(InvalidArgumentError, match=message):
            get_model(name)
    for name in ("resnet", "resnet-20", "resnet020", "resnet20 ", "resnet٢٠", "Resnet20", "vgg"):
        with pytest.raises(
            InvalidArgumentError, match=r"model: expected one of logreg, linear, lenet, mlp, resnet8, .*got "
        ):
            get_model(name)


@pytest.mark.slow
@pytest.mark.usefixtures("reference_kernels")
def test_a_depth_that_no_table_has_is_trained(monkeypatch):
    data = make_synthetic(24, 10, height=8, width=8, channels=3)
    monkeypatch.setitem(registry.DATASETS, "synthetic", lambda data_dir: data)
    config = TrainingConfig(model="resnet14", dataset="synthetic", batch_size=4, epochs=1)
    with Trainer(config) as trainer:
        result = trainer.train()
    assert (result.model, result.steps) == ("resnet14", 3)
    assert config.batch_size == 4
    assert config.learning_rate_drops == ResNet.defaults.learning_rate_drops


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [*(n for n in MODELS if isinstance(get_model(n), ResNet)), "resnet26"])
def test_the_family(name):
    """6n + 2 layers with parameters: convolutions but for projections, and the last layer."""
    logits = get_model(name).logits(inputs()[0], 7)
    assert logits.shape == [None, 7]
    kernels = [v for v in tb.trainable_variables() if v.op.name.endswith("kernel")]
    layers = [v for v in kernels if "projection" not in v.op.name]
    assert f"resnet{len(layers)}" == name
    n = (len(layers) - 2) // 6
    assert len(kernels) - len(layers) == 2
    # A stage's block more: 2 * (9 c^2 + 2 c) for each of its widths.
    more = sum(2 * (9 * c * c + 2 * c) for c in (16, 32, 64))
    assert elements(tb.trainable_variables()) == 466_906 - 65 * 3 + (n - 5) * more


def test_sizes_of_the_stages(graph):
    ResNet(1).logits(inputs()[0], 10)
    shapes = {op.name: op.outputs[0].shape for op in graph.get_operations() if op.type == "Conv2D"}
    extents = sorted({tuple(shape.as_list()[1:]) for shape in shapes.values()})
    assert extents == [(8, 8, 64), (16, 16, 32), (32, 32, 16)]


def test_only_kernels_are_decayed():
    ResNet(1).logits(inputs()[0], 10, training=True)
    for v in tb.trainable_variables():
        assert v.op.attrs["decayed"] == v.op.name.endswith("kernel")


@pytest.mark.usefixtures("reference_kernels")
def test_a_gradient_reaches_every_variable():
    images, labels = inputs()
    loss = ResNet(2)(images, labels, training=True, classes=10).loss
    grads = tb.gradients(loss, tb.trainable_variables())
    random = np.random.default_rng(0)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        feeds = {images: random.normal(size=(6, 32, 32, 3)), labels: random.integers(0, 10, 6)}
        for variable, gradient in zip(tb.trainable_variables(), session.run(grads, feeds), strict=True):
            assert abs(gradient).max() > 1e-9, variable.name


def test_training_and_evaluation_have_the_same_variables(graph):
    images, labels = inputs()
    ResNet(1)(images, labels, training=True, classes=10)
    trained = {v.op.name: v.op.attrs for v in tb.global_variables()}
    assert len(tb.get_collection(tb.GraphKeys.UPDATE_OPS)) == 2 * 9
    with tb.Graph().as_default():
        ResNet(1)(*inputs(), classes=10)
        assert {v.op.name: v.op.attrs for v in tb.global_variables()} == trained
        assert tb.get_collection(tb.GraphKeys.UPDATE_OPS) == []


@pytest.mark.parametrize("blocks", [0, -1, 1.5, True])
def test_blocks_that_are_none(blocks):
    with pytest.raises(InvalidArgumentError, match="expected blocks to be a whole number from 1"):
        ResNet(blocks)


def small():
    train, test = make_synthetic(96, 40, height=16, width=16, channels=3)
    return tuple(ImageDataset(d.name, d.images, d.labels, 10, d.mean, d.std) for d in (train, test))


@pytest.mark.usefixtures("reference_kernels")
def test_evaluation_uses_moving_averages_and_is_blind_to_the_batch():
    train, test = small()
    model = ResNet(1)
    program = build_program(model, train, 0.9, 0.01, 0.0)
    values = {n: v for n, v in program.initial_values().items() if "Momentum" not in n}
    evaluator = Evaluator(model, test, get_device("/cpu:0"), threads=1)
    try:
        before = evaluator.evaluate(values)
        moved = {n: v + 0.5 if n.endswith("moving_mean") else v for n, v in values.items()}
        after = evaluator.evaluate(moved)
        assert before is not None
        assert after is not None
        assert before.loss != pytest.approx(after.loss)
    finally:
        evaluator.close()
    images, labels = test.batch()
    with tb.Graph().as_default(), tb.Session() as session:
        x, y = tb.placeholder(tb.float32, [None, 16, 16, 3]), tb.placeholder(tb.int64, [None])
        loss = model(x, y, classes=10).loss
        session.run(tb.global_variables_initializer())
        for v in tb.global_variables():
            v.load(moved[v.op.name])
        single = [session.run(loss, {x: images[n : n + 1], y: labels[n : n + 1]}) for n in range(len(labels))]
    assert np.mean(single) == pytest.approx(after.loss, rel=1e-4)


@pytest.mark.slow
def test_a_run_of_the_trainer_learns(monkeypatch):
    train, test = make_synthetic(192, 60, height=16, width=16, channels=3)
    monkeypatch.setitem(registry.DATASETS, "cifar10", lambda data_dir: (train, test))
    config = TrainingConfig(model="resnet8", batch_size=8, epochs=6, learning_rate=0.02)
    assert (config.dataset, config.weight_decay) == ("cifar10", 1e-4)
    with Trainer(config) as trainer:
        result = trainer.train()
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.5


def test_options_follow_the_model():
    config = TrainingConfig(model="resnet32")
    assert (config.dataset, config.batch_size, config.epochs) == ("cifar10", 32, 164)
    assert config.learning_rate_drops == ((82, 0.1), (123, 0.01))
    assert TrainingConfig(model="resnet32", epochs=3, weight_decay=0.0, learning_rate_drops=()).epochs == 3
    assert TrainingConfig(model="resnet32", learning_rate_drops=()).learning_rate_drops == ()
    assert TrainingConfig().dataset == "digits"
    assert TrainingConfig.from_dict(config.to_dict()) == config
    assert TrainingConfig.from_dict({"model": "resnet20", "epochs": None}).epochs == 164
