"""Parameters, shapes and operations that a summary counts."""

from __future__ import annotations

import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.models import ModelSummary, get_model, summarize


def summary(model: str, shape: list[int | None], classes: int = 10, depth: int | None = None) -> ModelSummary:
    with tb.Graph().as_default():
        return summarize([get_model(model).logits(tb.placeholder(tb.float32, shape), classes)], depth)


def test_layers_of_lenet() -> None:
    found = summary("lenet", [None, 28, 28, 1])
    assert [(layer.name, layer.parameters) for layer in found.layers] == [
        ("conv1", 25 * 32 + 32),
        ("conv2", 25 * 32 * 64 + 64),
        ("fc1", 1024 * 1024 + 1024),
        ("fc2", 10240 + 10),
        ("", 0),
    ]
    conv2 = 2 * 8 * 8 * 64 * 25 * 32  # multiplications and additions of the convolution
    assert conv2 < found.layers[1].flops < 1.01 * conv2
    assert found.layers[2].outputs == (None, 1024)
    assert found.trainable == found.parameters == 1_111_946
    lines = str(found).splitlines()
    assert lines[0].split() == ["layer", "outputs", "parameters", "flop"]
    assert lines[3].split() == ["fc1", "?x1024", "1,049,600", "2.1", "M"]
    assert lines[-1].split()[:2] == ["all", "1,111,946"]


def test_statistics_are_not_trainable_and_blocks_are_joined() -> None:
    found = summary("resnet32", [None, 32, 32, 3])
    assert found.parameters - found.trainable == 2 * sum(  # moving mean and variance of each channel
        channels * convolutions for channels, convolutions in ((16, 11), (32, 11), (64, 11))
    )
    assert len(found.layers) <= 33
    assert [layer.name for layer in summary("resnet32", [None, 32, 32, 3], depth=1).layers][
        1
    ] == "stage1_block1"
    assert sum(layer.parameters for layer in found.layers) == found.parameters


def test_products_of_batches_and_sums_over_axes() -> None:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [2, 3, 4])
        scores = tb.matmul(x, tb.placeholder(tb.float32, [2, 5, 4]), transpose_b=True)
        across = tb.matmul(
            tb.placeholder(tb.float32, [7, 3]), tb.placeholder(tb.float32, [7, 5]), transpose_a=True
        )
        assert summarize([scores]).flops == 2 * 2 * 3 * 5 * 4
        assert summarize([across]).flops == 2 * 3 * 5 * 7
        assert summarize([tb.reduce_sum(x, [1])]).flops == 2 * 3 * 4
        assert summarize([tb.reshape(x, [24])]).flops == 0
        with pytest.raises(InvalidArgumentError, match="outputs: expected at least one tensor, got none"):
            summarize([])


@pytest.mark.parametrize("is_loop", [False, True])
def test_steps_of_a_recurrent_cell_count_as_its_layer(is_loop: bool) -> None:
    """All steps of an unrolled one, and one step of a loop."""
    batch, time, size, units = 2, 3, 4, 5
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [batch, time, size])
        lengths = tb.placeholder(tb.int32, [batch]) if is_loop else None
        outputs, _ = tb.nn.dynamic_rnn(tb.nn.rnn_cell.GRUCell(units), x, lengths, dtype=tb.float32)
        found = summarize([tb.layers.dense(outputs[:, -1], 7)])
    gates, candidate, _, others = found.layers
    assert [layer.name for layer in found.layers] == [
        "rnn/gru_cell/gates",
        "rnn/gru_cell/candidate",
        "dense",
        "",
    ]
    assert [layer.outputs for layer in found.layers[1:3]] == [(batch, units), (batch, 7)]
    steps, product = 1 if is_loop else time, 2 * batch * (size + units) * units
    assert 2 * steps * product < gates.flops < 4 * steps * product
    assert steps * product < candidate.flops < 3 * steps * product
    assert others.flops < 2 * product


def test_a_layer_used_twice_counts_twice() -> None:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [2, 3])
        for reuse in (False, True):
            with tb.variable_scope("shared", reuse=reuse):
                x = tb.layers.dense(x, 3, name="fc")
        (layer,) = summarize([x]).layers
    assert (layer.name, layer.parameters, layer.flops) == ("shared/fc", 12, 2 * (2 * 2 * 9 + 6))
