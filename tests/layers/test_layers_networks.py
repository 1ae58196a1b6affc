"""Layers for sequences, channels and attention, against NumPy; layers around layers."""

from functools import partial

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

RANDOM = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def session():
    with tb.Graph().as_default(), tb.Session() as session:
        tb.set_random_seed(2)
        yield session


def values(session):
    session.run(tb.global_variables_initializer())
    return {v.op.name: session.run(v) for v in tb.global_variables()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [tb.uint8, tb.int32, tb.int64])
def test_embedding(session, dtype):
    ids = tb.placeholder(dtype, [None, 3])
    rows = tb.layers.embedding(ids, 7, 4)
    assert rows.shape == [None, 3, 4]
    table = values(session)["embedding/embeddings"]
    assert abs(table).max() <= 0.05
    given = np.array([[6, 0, 2], [2, 2, 5]])
    np.testing.assert_array_equal(session.run(rows, {ids: given}), table[given])
    (slices,) = tb.gradients(tb.reduce_sum(rows), tb.trainable_variables())
    counts = np.bincount(given.ravel(), minlength=7)
    np.testing.assert_allclose(
        session.run(tb.convert_to_tensor(slices), {ids: given}), np.outer(counts, np.ones(4))
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("padding", ["valid", "same", "causal"])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_conv1d(session, padding, data_format):
    x, size, rate = RANDOM.normal(size=(2, 9, 3)), 3, 2
    last = data_format == "channels_last"
    given = tb.constant(x if last else x.transpose(0, 2, 1))
    options = {"dilation_rate": rate, "bias_initializer": "ones"}
    y = tb.layers.conv1d(given, 4, size, 1, padding, data_format, **options)
    kernel = values(session)["conv1d/kernel"]
    assert kernel.shape == (3, 3, 4)
    before = {"valid": 0, "same": 2, "causal": 4}[padding]
    padded = np.pad(x, [(0, 0), (before, 4 - before if padding != "valid" else 0), (0, 0)])
    steps = padded.shape[1] - (size - 1) * rate
    expected = 1 + sum(padded[:, tap * rate : tap * rate + steps] @ kernel[tap] for tap in range(size))
    result = session.run(y)
    np.testing.assert_allclose(result if last else result.transpose(0, 2, 1), expected, rtol=1e-9, atol=1e-12)


def test_pooling1d(session):
    x = RANDOM.normal(size=(2, 7, 3))
    most, mean = tb.layers.max_pooling1d(tb.constant(x), 2, 2), tb.layers.average_pooling1d(x, 3, 2, "same")
    windows = x[:, :6].reshape(2, 3, 2, 3)
    np.testing.assert_array_equal(session.run(most), windows.max(2))
    np.testing.assert_allclose(session.run(mean)[:, 1], x[:, 1:4].mean(1))
    turned = tb.layers.max_pooling1d(x.transpose(0, 2, 1), 2, 2, data_format="channels_first")
    np.testing.assert_array_equal(session.run(turned), windows.max(2).transpose(0, 2, 1))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_convolutions_of_channels_alone_and_in_groups(session, data_format):
    x = RANDOM.normal(size=(2, 7, 6, 4))
    last = data_format == "channels_last"
    given = tb.constant(x if last else x.transpose(0, 3, 1, 2))
    options = {"padding": "same", "data_format": data_format, "dilation_rate": 2, "bias_initializer": "ones"}
    made = [
        tb.layers.depthwise_conv2d(given, 3, depth_multiplier=2, **options),
        tb.layers.separable_conv2d(given, 5, 3, depth_multiplier=2, **options),
        tb.layers.conv2d(given, 6, 3, groups=2, **options),
    ]
    found = values(session)
    assert {name: value.shape for name, value in found.items() if "bias" not in name} == {
        "depthwise_conv2d/depthwise_kernel": (3, 3, 4, 2),
        "separable_conv2d/depthwise_kernel": (3, 3, 4, 2),
        "separable_conv2d/pointwise_kernel": (1, 1, 8, 5),
        "conv2d/kernel": (3, 3, 2, 6),
    }
    alone = [
        tb.nn.depthwise_conv2d(x, found[f"{layer}/depthwise_kernel"], 1, "SAME", 2)
        for layer in ("depthwise_conv2d", "separable_conv2d")
    ]
    mixed = tb.nn.conv2d(alone[1], found["separable_conv2d/pointwise_kernel"], 1, "SAME")
    kernel = found["conv2d/kernel"]
    halves = [
        tb.nn.conv2d(x[..., 2 * n : 2 * n + 2], kernel[..., 3 * n : 3 * n + 3], 1, "SAME", dilations=2)
        for n in (0, 1)
    ]
    expected = [alone[0] + 1.0, mixed + 1.0, tb.concat(halves, 3) + 1.0]
    for result, wanted in zip(*session.run([made, expected]), strict=True):
        np.testing.assert_allclose(
            result if last else result.transpose(0, 2, 3, 1), wanted, rtol=1e-9, atol=1e-12
        )


def test_layer_normalization(session):
    x = RANDOM.normal(2, 3, (4, 5, 6))
    given = tb.placeholder(tb.float64, [None, 5, 6])
    y = tb.layers.layer_normalization(given, epsilon=1e-5)
    z = tb.layers.layer_normalization(given, axis=1, scale=False)
    assert [v.op.name for v in tb.trainable_variables()] == [
        "layer_normalization/gamma",
        "layer_normalization/beta",
        "layer_normalization_1/beta",
    ]
    assert tb.trainable_variables()[2].shape == [5, 6]
    assert not any(v.op.attrs["decayed"] for v in tb.trainable_variables())
    session.run(tb.global_variables_initializer())
    result, other = session.run([y, z], {given: x})
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    np.testing.assert_allclose(result, (x - mean) / np.sqrt(variance + 1e-5))
    mean, variance = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    np.testing.assert_allclose(other, (x - mean) / np.sqrt(variance + 1e-3))


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("known", [True, False])
def test_group_normalization(session, axis, known):
    x = RANDOM.normal(2, 3, (3, 4, 5, 6))
    moved = x if axis == -1 else x.transpose(0, 3, 1, 2)
    shape = moved.shape if known else [None, *(None if n != 6 else 6 for n in moved.shape[1:])]
    given = tb.placeholder(tb.float64, shape)
    options = {"gamma_initializer": tb.initializers.constant([1, 2, 3, 4, 5, 6]), "beta_initializer": "ones"}
    y = tb.layers.group_normalization(given, 3, axis, **options)
    assert y.shape == shape
    session.run(tb.global_variables_initializer())
    parts = x.reshape(3, 4, 5, 3, 2)
    mean, variance = parts.mean((1, 2, 4), keepdims=True), parts.var((1, 2, 4), keepdims=True)
    expected = ((parts - mean) / np.sqrt(variance + 1e-3)).reshape(x.shape) * np.arange(1, 7) + 1
    result = session.run(y, {given: moved})
    np.testing.assert_allclose(result if axis == -1 else result.transpose(0, 2, 3, 1), expected)


def attention(x, told, found, heads, mask):
    """Multi-head attention of one example after another."""

    def projected(value, label):
        return value @ found[f"multi_head_attention/{label}/kernel"]

    results = []
    for example, other in zip(x, told, strict=True):
        parts = [projected(example, "query"), projected(other, "key"), projected(other, "value")]
        q, k, v = (np.array(np.split(part, heads, -1)) for part in parts)
        scores = np.where(mask, q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]), -np.inf)
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        results.append(projected(np.concatenate(weights @ v, -1), "output"))
    return np.array(results)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("steps", [5, None])
def test_self_attention(session, steps):
    x = RANDOM.normal(size=(2, 5, 6))
    given = tb.placeholder(tb.float64, [None, steps, 6])
    y = tb.layers.multi_head_attention(given, 3, causal=True)
    assert y.shape == [None, steps, 6]
    expected = attention(x, x, values(session), 3, np.tri(5, dtype=bool))
    np.testing.assert_allclose(session.run(y, {given: x}), expected)


@pytest.mark.slow
def test_attention_to_others(session):
    x, told = RANDOM.normal(size=(2, 5, 6)), RANDOM.normal(size=(2, 4, 7))
    mask = RANDOM.random((5, 4)) < 0.7
    mask[:, 0] = True
    options = {"key_dim": 4, "value_dim": 3, "output_dim": 5, "mask": mask, "use_bias": False}
    y = tb.layers.multi_head_attention(tb.constant(x), 2, told, dropout=0.5, **options)
    expected = attention(x, told, values(session), 2, mask)
    np.testing.assert_allclose(session.run(y), expected)
    dropped = tb.layers.multi_head_attention(
        *(tb.constant(x), 2, told), dropout=0.5, training=True, reuse=True, **options
    )
    assert not np.allclose(session.run(dropped), session.run(y))


def test_sequential_and_residual(session):
    x = tb.constant(RANDOM.normal(size=(4, 6)))
    dense = partial(tb.layers.dense, bias_initializer="ones")

    def block(inputs):
        return tb.layers.sequential(inputs, [partial(dense, units=3), tb.nn.relu, partial(dense, units=6)])

    y = tb.layers.residual(x, block)
    z = tb.layers.residual(x, tb.layers.flatten, lambda inputs: -2 * inputs, tb.nn.relu)
    assert [v.op.name for v in tb.trainable_variables()][::2] == [
        "residual/sequential/dense/kernel",
        "residual/sequential/dense_1/kernel",
    ]
    found = values(session)
    first, second = (found[f"residual/sequential/{layer}/kernel"] for layer in ("dense", "dense_1"))
    given, result, other = session.run([x, y, z])
    np.testing.assert_allclose(result, given + np.maximum(given @ first + 1, 0) @ second + 1)
    np.testing.assert_allclose(other, np.maximum(-given, 0))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: tb.layers.conv2d(tb.zeros([1, 5, 5, 4]), 6, 3, groups=4), "groups that divide 4 channels"),
        (
            lambda: tb.layers.depthwise_conv2d(tb.zeros([1, 5, 5, 4]), 3, 2, dilation_rate=2),
            "one of the two must be 1",
        ),
        (lambda: tb.layers.conv1d(tb.zeros([1, 5]), 6, 3), "conv1d"),
        (lambda: tb.layers.group_normalization(tb.zeros([1, 5, 5, 4]), 3), "groups that divide 4 channels"),
        (lambda: tb.layers.group_normalization(tb.zeros([1, 5, 5, 4]), 2, axis=2), "axis must be the last"),
        (lambda: tb.layers.multi_head_attention(tb.zeros([1, 5, 4]), 3), "num_heads that divide 4 features"),
        (lambda: tb.layers.multi_head_attention(tb.zeros([5, 4]), 2), r"expected \[batch, steps, features\]"),
        (
            lambda: tb.layers.multi_head_attention(tb.zeros([1, 5, 4]), 2, mask=tb.ones([5, 5])),
            "expected a mask of bool",
        ),
        (
            lambda: tb.layers.residual(tb.zeros([2, 4]), partial(tb.layers.dense, units=3)),
            "give a shortcut that projects",
        ),
        (lambda: tb.layers.residual(tb.zeros([2, 4]), lambda x: None), "one returned NoneType"),
        (lambda: tb.layers.sequential(tb.zeros([2, 4]), tb.nn.relu), "expected layers to be a list"),
    ],
)
def test_misuse(build, words):
    with pytest.raises(InvalidArgumentError, match=words):
        build()
