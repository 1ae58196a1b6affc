"""The wider zoo: sizes, shapes, learning, inputs and labels of bytes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.models import MODELS, get_model, imagenet_resnet, vgg
from tensorbow.models.fast_resnet import whitening

IMAGENET = (224, 224, 3)


@pytest.fixture(autouse=True)
def graph():
    with tb.Graph().as_default() as graph:
        tb.set_random_seed(1)
        yield graph


def built(model, shape, classes, dtype=tb.float32, training=True):
    return model.logits(tb.placeholder(dtype, [None, *shape]), classes, training)


def parameters():
    return sum(math.prod(v.shape) for v in tb.trainable_variables())


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("mlp", (28, 28, 1), 10, 101_770),
        ("resnet18", IMAGENET, 1000, 11_689_512),  # torchvision's
        slow("resnet34", IMAGENET, 1000, 21_797_672),
        slow("resnet50", IMAGENET, 1000, 25_557_032),
        slow("resnet101", IMAGENET, 1000, 44_549_160),
        slow("resnet152", IMAGENET, 1000, 60_192_808),
        slow("resnet9", (32, 32, 3), 10, 1_646_112),
        ("fast_resnet", (32, 32, 3), 10, 1_972_504),
        ("vgg11", (32, 32, 3), 10, 9_231_114),  # of the usual networks for CIFAR-10
        slow("vgg13", (32, 32, 3), 10, 9_416_010),
        slow("vgg16", (32, 32, 3), 10, 14_728_266),
        ("mobilenet", IMAGENET, 1000, 1_968_680),  # torchvision's mobilenet_v2 with width_mult=0.5
        ("alexnet", IMAGENET, 1000, 61_100_840),  # torchvision's
        ("overfeat", (231, 231, 3), 1000, 145_920_872),  # convnet-benchmarks'
        ("vgg_a", IMAGENET, 1000, 132_863_336),  # torchvision's vgg11
        ("googlenet", IMAGENET, 1000, 6_998_552),  # Caffe's, without auxiliary classifiers
        ("inception_v3", (299, 299, 3), 1000, 23_834_568),  # torchvision's with aux_logits=False
        ("vit-tiny", IMAGENET, 1000, 5_717_416),  # timm's vit_tiny_patch16_224
        ("char-rnn", (64,), 97, 249_121),
        slow("lstm-lm", (20,), 10_000, 14_448_400),  # 2 tables of 512, biases, 2 LSTMs of 1024 x 2048 + 2048
        ("transformer-tiny", (64,), 97, 826_465),
    ],
)
def test_parameters(name, shape, classes, count):
    model = get_model(name)
    logits = built(model, shape, classes, tb.int32 if len(shape) == 1 else tb.float32)
    assert model.name == name
    assert logits.shape == [None, *shape[: len(shape) == 1], classes]
    assert parameters() == count


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "side", "expected"),
    [
        ("alexnet", 224, [6, 6, 256]),
        ("overfeat", 231, [6, 6, 1024]),
        ("vgg_a", 224, [7, 7, 512]),
        ("googlenet", 224, [7, 7, 1024]),
        ("inception_v3", 299, [8, 8, 2048]),
    ],
)
def test_features_before_the_dense_layers_have_the_published_sizes(graph, name, side, expected):
    built(get_model(name), (side, side, 3), 10)
    shapes = [t.shape.as_list() for op in graph.get_operations() for t in op.outputs if t.shape.ndims == 4]
    pictures = [shape[1:] for shape in shapes if shape[0] is None]
    assert pictures[-1] == expected


@pytest.mark.parametrize("name", ["alexnet", "overfeat", "vgg_a", "googlenet", "inception_v3"])
def test_pictures_that_are_too_small_are_refused(name):
    with pytest.raises(tb.errors.InvalidArgumentError, match=f"{name}: expected images of at least"):
        built(get_model(name), (28, 28, 1), 10)


@pytest.mark.slow
def test_mobilenet_at_full_width():
    built(tb.models.MobileNet(1.0), IMAGENET, 1000)
    assert parameters() == 3_504_872  # torchvision's


def test_the_recurrent_network_by_its_formula():
    """Two LSTMs of 128 units behind vectors of 64, each gate with weights of inputs, outputs, and a bias."""
    built(get_model("char-rnn"), (8,), 97, tb.uint8)
    lstm = 4 * 128 * (64 + 128 + 1) + 4 * 128 * (128 + 128 + 1)
    assert parameters() == 97 * 64 + lstm + 129 * 97


def test_stages_of_resnet50(graph):
    built(get_model("resnet50"), IMAGENET, 1000)
    shapes = {f"{op.name}/": op.outputs[0].shape.as_list()[1:] for op in graph.get_operations() if op.outputs}
    outputs = {
        name: next(shape for key, shape in reversed(shapes.items()) if key.startswith(f"{name}/"))
        for name in ("pool1", "stage2_block3", "stage3_block4", "stage5_block3")
    }
    assert outputs == {
        "pool1": [56, 56, 64],
        "stage2_block3": [56, 56, 256],
        "stage3_block4": [28, 28, 512],
        "stage5_block3": [7, 7, 2048],
    }
    trained = {v.op.name: v for v in tb.trainable_variables()}
    convolutions = {name for name in trained if name.endswith("conv/kernel")}
    assert len(convolutions) == 49 + 4  # and the dense layer; four shortcuts are projected
    assert {name for name, v in trained.items() if v.op.attrs["decayed"]} == convolutions | {"fc/kernel"}


def test_blocks_begin_as_their_shortcuts(monkeypatch):
    monkeypatch.setitem(imagenet_resnet.BLOCKS, 50, (2, 1))
    monkeypatch.setattr(imagenet_resnet, "CHANNELS", (8, 8))
    built(get_model("resnet50"), (32, 32, 3), 10)
    gammas = [v for v in tb.trainable_variables() if v.op.name.endswith("gamma")]
    with tb.Session() as session:
        session.run(tb.variables_initializer(gammas))
        zero = {v.op.name for v, value in zip(gammas, session.run(gammas), strict=True) if not value.any()}
    assert len(zero) == 3
    assert zero == {v.op.name for v in gammas if "/conv3/" in v.op.name}


def small(monkeypatch):
    """Small forms of the models, each with inputs and labels of a batch."""
    monkeypatch.setitem(imagenet_resnet.BLOCKS, 18, (1, 1))
    monkeypatch.setattr(imagenet_resnet, "CHANNELS", (8, 16))
    monkeypatch.setattr(vgg, "CHANNELS", (8, 16, 16, 16, 16))
    draw = np.random.default_rng(0)
    pictures, symbols = draw.integers(0, 256, (8, 16, 16, 3)), draw.integers(0, 7, (8, 5))
    classes, followers = draw.integers(0, 7, 8), draw.integers(0, 7, (8, 5))
    return {
        "mlp": (tb.models.MLP((16, 12), dropout=0.1), pictures, classes),
        "resnet18": (tb.models.ImageNetResNet(18), pictures, classes),
        "resnet9": (tb.models.ResNet9(4), pictures, classes),
        "fast_resnet": (tb.models.FastResNet(4), pictures, classes),
        "vgg11": (tb.models.VGG(11), pictures, classes),
        "mobilenet": (tb.models.MobileNet(0.1, dropout=0.0), pictures, classes),
        "googlenet": (tb.models.GoogLeNet(dropout=0.0), draw.integers(0, 256, (8, 32, 32, 3)), classes),
        "vit-tiny": (tb.models.VisionTransformer(16, 2, 2), pictures, classes),
        "char-rnn": (tb.models.CharacterRNN(12, 1, "gru"), symbols, followers),
        "lstm-lm": (tb.models.LSTMLanguageModel(12, 1, shards=2), symbols, followers),
        "transformer-tiny": (tb.models.TinyTransformer(16, 1, 2, dropout=0.1), symbols, followers),
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "name",
    [
        *("mlp", "char-rnn", "transformer-tiny"),
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in (
                "resnet18",
                "resnet9",
                "fast_resnet",
                "vgg11",
                "mobilenet",
                "vit-tiny",
                "googlenet",
                "lstm-lm",
            )
        ),
    ],
)
def test_a_batch_of_bytes_is_learned_by_heart(name, monkeypatch, reference_kernels):
    """Pictures and symbols of uint8, labels of uint8; evaluation has the same variables."""
    model, inputs, labels = small(monkeypatch)[name]
    x = tb.placeholder(tb.uint8, [None, *inputs.shape[1:]])
    y = tb.placeholder(tb.uint8, [None, *labels.shape[1:]])
    outputs = model(x, y, training=True, classes=7)
    variables = [v.op.name for v in tb.global_variables()]
    with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
        rate = 0.001 if name == "googlenet" else 0.02  # without batch normalisation
        update = tb.train.AdamOptimizer(rate).minimize(outputs.loss)
    feeds = {x: inputs, y: labels}
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        first = session.run(outputs.loss, feeds)
        assert first == pytest.approx(math.log(7), rel=0.6)
        for _ in range(20):
            session.run(update, feeds)
        assert session.run(outputs.loss, feeds) < 0.8 * first
    with tb.Graph().as_default():
        of_evaluation = [tb.placeholder(t.dtype, t.shape) for t in (x, y)]
        model(*of_evaluation, classes=7)
        assert [v.op.name for v in tb.global_variables()] == variables


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: tb.models.ImageNetResNet(20), "depth to be one of 18, 34, 50, 101, 152, got 20"),
        (lambda: tb.models.VGG(12), "depth to be 11, 13 or 16, got 12"),
        (lambda: built(get_model("vit-tiny"), (30, 30, 3), 10), "sides that patches of 7 pixels divide"),
        (lambda: built(get_model("char-rnn"), (28, 28, 1), 10), "expected tokens to be whole numbers"),
        (lambda: built(get_model("transformer-tiny"), (None,), 10, tb.int32), "of known steps"),
        (lambda: get_model("vgg19"), "model: expected one of .*vgg16"),
    ],
)
def test_misuse(build, words):
    with pytest.raises(InvalidArgumentError, match=words):
        build()


@pytest.mark.slow
def test_resnet9_at_full_width():
    """Parameters of the usual implementations."""
    built(tb.models.ResNet9(64), (32, 32, 3), 10)
    assert sum(math.prod(v.shape) for v in tb.trainable_variables()) == 6_573_120


def test_names():
    """ImageNet's ResNet has the name of a depth that both families have."""
    assert {name: get_model(name).name for name in MODELS} == {name: name for name in MODELS}
    assert isinstance(get_model("resnet50"), tb.models.ImageNetResNet)
    assert isinstance(get_model("resnet56"), tb.models.ResNet)
    assert get_model("resnet146").blocks == 24


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_filters_of_the_fast_resnet_decorrelate_patches(channels):
    """Where all pixels of a patch are as much alike; of two channels each is whitened by itself."""
    filters = whitening(channels)
    assert filters.shape == (2, 2, channels, 8 * channels)
    np.testing.assert_array_equal(filters[..., : 4 * channels], -filters[..., 4 * channels :])
    columns = filters.reshape(4 * channels, -1)[:, : 4 * channels]
    of_channel = np.kron(
        np.ones((4, 4)), np.eye(channels) if channels == 2 else np.ones((channels, channels))
    )
    covariance = columns.T @ (0.05 * of_channel + 0.01 * np.eye(4 * channels)) @ columns
    deviations = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(covariance / np.outer(deviations, deviations), np.eye(4 * channels), atol=1e-5)
