"""Networks of table 1 in PyTorch are ours layer for layer, and the benchmark's table names the best peer."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tensorbow as tb


@pytest.fixture
def script() -> Any:
    import convnets

    return convnets


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alexnet", "overfeat", "vgg_a", "googlenet", "inception_v3"])
def test_the_peers_networks_have_our_parameters(script: Any, name: str) -> None:
    pytest.importorskip("torch")
    from convnets_torch import CLASSES, convnet

    side = script.SIDES[name]
    with tb.Graph().as_default():
        images = tb.placeholder(tb.float32, [None, side, side, 3])
        tb.models.get_model(name).logits(images, CLASSES, training=True)
        ours = sorted(math.prod(v.shape) for v in tb.trainable_variables())
    assert sorted(each.numel() for each in convnet(name).parameters()) == ours


def test_the_table_has_the_step_and_the_best_peer(script: Any) -> None:
    rates = {"TensorBow 2 replicas": 16.0, "PyTorch eager, 2 threads": 4.0, "PyTorch compile, 2 threads": 8.0}
    row = {
        "model": "alexnet",
        "batch_size": 4,
        "ours": "TensorBow 2 replicas",
        "images_per_second": {name: {"median": rate, "samples": [rate]} for name, rate in rates.items()},
        "left_out": {"PyTorch compile, channels-last, 2 threads": "no compiler"},
    }
    made = script.table({"cells": [row], "replicas": 2, "windows": 5, "seconds_per_window": 4.0})
    assert made.rows == [["AlexNet", 500.0, 16.0, "PyTorch compile, 2 threads", 8.0, 2.0, 81]]
    assert "AlexNet without PyTorch compile, channels-last, 2 threads: no compiler" in made.remarks
