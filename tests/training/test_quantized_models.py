"""Saved models of 8-bit integers: what is folded and multiplied, how near results are, what is refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.training.quantization.calibration import Coding

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(24, 8, 9, 3)).astype(np.float32)


def save(folder, build, images=IMAGES):
    """Saves a model, with variables that are no zeros and ones; returns its folder."""
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, *images.shape[1:]], name="x")
        y = tb.identity(build(x), name="y")
        values = {}
        for index, variable in enumerate(tb.global_variables()):
            draw = np.random.default_rng(index).uniform(0.5, 1.5, variable.shape.as_list())
            sign = np.random.default_rng(index).choice([-1, 1], draw.shape)
            is_variance = "variance" in variable.op.name
            values[variable.op.name] = (draw if is_variance else draw * sign).astype(np.float32)
        return tb.train.save_model(folder / "float", {"x": x}, {"y": y}, values)


def quantized(folder, build, images=IMAGES):
    """Kinds of operations of the quantised model, its result, and that of the float one."""
    source = save(folder, build, images)
    target = tb.quantization.quantize_model(source, folder / "int8", {"x": images})
    with tb.train.SavedModel(source) as before, tb.train.SavedModel(target) as after:
        kinds = Counter(op.type for op in after.graph.get_operations())
        (expected,), (found,) = before.run(["y"], x=images), after.run(["y"], x=images)
    return kinds, found, expected


def assert_near(found, expected, share=0.03):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert np.abs(found - expected).mean() < share * expected.std()


def normalised(x, channels, strides=1, activation=None):
    x = tb.layers.conv2d(x, channels, 3, strides=strides, padding="same", use_bias=False)
    x = tb.layers.batch_normalization(x, training=False)
    return activation(x) if activation else x


def residual(x):
    """Two convolutions with normalisation, a shortcut, pooling and a dense layer."""
    x = normalised(x, 8, activation=tb.nn.relu)
    x = tb.nn.relu(normalised(x, 8) + x)
    x = tb.nn.max_pool2d(normalised(x, 16, 2, tb.nn.relu), 2, 2, "VALID")
    return tb.layers.dense(tb.layers.flatten(x), 10)


def test_a_residual_network(tmp_path):
    kinds, found, expected = quantized(tmp_path, residual)
    assert_near(found, expected)
    assert kinds["QuantizedConv2D"] == 3
    assert kinds["QuantizedMatMul"] == 1
    # Only the input and the sum with the shortcut are converted beside the products, which are read as bytes.
    assert (kinds["Quantize"], kinds["Dequantize"]) == (2, 2)
    assert not kinds["FusedBatchNorm"] + kinds["Conv2D"] + kinds["BiasAdd"]


def test_maps_of_channels_are_folded(tmp_path):
    def build(x):
        x = tb.nn.conv2d(x, tb.Variable(np.ones((3, 2, 3, 6), np.float32)), 2, "VALID", dilations=None)
        x = tb.nn.bias_add(x, tb.Variable(np.ones(6, np.float32)))
        x = 2.0 - x * tb.Variable(np.ones(6, np.float32)) / 3.0 + tb.Variable(np.ones((1, 1, 6), np.float32))
        x = tb.reshape(tb.nn.relu(x), [-1, 72])
        return tb.matmul(x, tb.Variable(np.ones((5, 72), np.float32)), transpose_b=True) + 1.0

    kinds, found, expected = quantized(tmp_path, build)
    assert_near(found, expected)
    assert set(kinds) <= {
        *("Placeholder", "Const", "Variable", "ReadVariable", "Identity", "Reshape", "StopGradient"),
        *("Quantize", "QuantizedConv2D", "QuantizedMatMul"),
    }


def test_what_cannot_be_folded_stays(tmp_path):
    def build(x):
        x = tb.nn.conv2d(x, tb.Variable(np.ones((2, 2, 3, 4), np.float32)), 1, "SAME", dilations=[1, 2])
        total = tb.reduce_mean(x, [1, 2]) + tb.reduce_max(tb.nn.relu(x), [1, 2])
        return tb.nn.softmax(total) * tb.Variable(np.ones([1, 4], np.float32))

    kinds, found, expected = quantized(tmp_path, build)
    assert_near(found, expected, 0.05)
    assert kinds["QuantizedConv2D"] == 1
    assert kinds["Relu"] == 1  # its input is read by another operation, too


@pytest.mark.parametrize("images", [np.zeros_like(IMAGES), np.abs(IMAGES), -np.abs(IMAGES), IMAGES * 1e-4])
def test_ranges_of_other_signs_and_sizes(tmp_path, images):
    def build(x):
        return tb.layers.conv2d(x, 5, 3, padding="same")

    _, found, expected = quantized(tmp_path, build, images)
    largest = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=0.03 * largest)


def test_codings_have_an_exact_zero():
    assert Coding.of(-1.0, 3.0) == Coding(float(np.float32(4 / 255)), 64)
    assert Coding.of(0.5, 3.0).zero_point == 0
    assert Coding.of(-2.0, -1.0).zero_point == 255
    assert Coding.of(0.0, 0.0).scale > 0


def test_what_is_refused(tmp_path):
    source = save(tmp_path, residual)
    target = tmp_path / "int8"

    def refused(match, inputs, model=source):
        with pytest.raises(InvalidArgumentError, match=match):
            tb.quantization.quantize_model(model, target, inputs)

    refused("expected inputs to hold examples of x, got none", {})
    refused("at least one example", {"x": IMAGES[:0]})
    refused("there is no input 'z', only x", {"x": IMAGES, "z": IMAGES})
    refused("is not finite for these examples", {"x": np.full_like(IMAGES, np.nan)})
    refused("no convolution or matrix product", {"x": IMAGES}, save(tmp_path / "other", tb.nn.relu))
    tb.quantization.quantize_model(source, target, {"x": IMAGES})
    refused("quantised already", {"x": IMAGES}, target)


def accuracies(model, dataset, options, tmp_path):
    """Accuracy on all examples of a data set, of a model trained on its training split, in float and int8."""
    outcome = tb.fit(model, dataset=dataset, output=str(tmp_path / "run"), **options)
    assert outcome is not None
    train, test = tb.data.load(dataset)
    with tb.train.load_model(tmp_path / "run") as trained:
        target = trained.export(tmp_path / "int8", quantized_on=train.images[:256])
        before = [trained.evaluate(data).accuracy for data in (train, test)]
    with tb.train.load_model(target) as quantised:
        after = [quantised.evaluate(data).accuracy for data in (train, test)]
    weights = [len(train), len(test)]
    return np.average(before, weights=weights), np.average(after, weights=weights)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "epochs"), [("lenet", 4), ("resnet32", 12)])
def test_accuracy_is_that_of_floats_within_half_a_percent(model, epochs, tmp_path):
    before, after = accuracies(model, "digits", {"epochs": epochs}, tmp_path)
    assert before > 0.95
    assert abs(after - before) <= 0.005
