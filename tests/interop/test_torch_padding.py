"""Warnings of paddings that PyTorch's layers cannot have, when a model gets weights of PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.ops.sliding_windows import make_axis
from tensorbow.torch_weights.uneven_padding import uneven_layers

pytestmark = pytest.mark.usefixtures("reference_kernels")


def uneven_in(build: Callable[[Any], Any], dims: tuple[int | None, ...]) -> list[str]:
    with tb.Graph().as_default() as graph:
        outputs = build(tb.placeholder(tb.float32, [4, *dims]))
        tb.train.GradientDescentOptimizer(0.1).minimize(tb.reduce_sum(outputs + tb.get_variable("c", [1])))
        return [str(layer) for layer in uneven_layers(graph, [v.op.name for v in tb.global_variables()])]


@pytest.mark.parametrize("stride", [2, 3])
def test_uneven_windows_are_those_of_no_padding_of_pytorch(stride: int) -> None:
    """By the definition of PyTorch: windows start at -padding, and none exceeds the padding behind."""
    for extent in (5, 6, 7, 8):
        for size in (1, 2, 3, 4, 5):
            axis = make_axis(extent, size, stride, "SAME")
            same = [
                width
                for width in range(size)
                if width == axis.before and (extent + 2 * width - size) // stride + 1 == axis.count
            ]
            found = uneven_in(
                lambda x, size=size: tb.layers.conv2d(x, 2, (size, 1), (stride, 1), "same", name="c"),  # type: ignore[misc]
                (extent, 3, 2),
            )
            assert bool(found) == (not same), (extent, size, found)


@pytest.mark.parametrize(
    ("build", "dims", "named"),
    [
        (lambda x: tb.layers.conv2d(x, 2, 3, 2, "same", name="a"), (8, 6, 2), "a (windows 3x3, strides 2x2)"),
        (lambda x: tb.layers.conv2d(x, 2, 3, 2, "same", name="a"), (7, 9, 2), ""),
        (lambda x: tb.layers.conv2d(x, 2, 3, 2, 1, name="a"), (8, 6, 2), ""),
        (lambda x: tb.layers.conv2d(x, 2, 3, 2, 1, name="a"), (7, 9, 2), ""),
        (lambda x: tb.layers.conv2d(x, 2, 4, 1, "same", name="a"), (8, 6, 2), ""),
        (
            lambda x: tb.layers.conv2d(x, 2, 3, 2, "same", name="a", groups=2),
            (None, None, 4),
            "a (windows 3x3, strides 2x2)",
        ),
        (
            lambda x: tb.layers.separable_conv2d(x, 2, 3, 2, "same", name="a"),
            (8, 6, 2),
            "a (windows 3x3, strides 2x2)",
        ),
        (
            lambda x: tb.layers.conv2d_transpose(x, 2, 3, 2, "same", name="a"),
            (4, 3, 2),
            "a (windows 3x3, strides 2x2)",
        ),
        (lambda x: tb.layers.conv2d_transpose(x, 2, 3, 2, 1, name="a", output_padding=1), (4, 3, 2), ""),
        (lambda x: tb.layers.conv1d(x, 2, 5, 2, "same", name="a"), (8, 2), "a (windows 5, strides 2)"),
        (
            lambda x: tb.layers.max_pooling2d(x, 2, 2, "same", name="a"),
            (7, 8, 2),
            "a (windows 2x2, strides 2x2)",
        ),
        (lambda x: tb.layers.average_pooling2d(x, 2, 2, "same"), (6, 8, 2), ""),
    ],
)
def test_layers_are_named_once(build: Callable[[Any], Any], dims: tuple[int | None, ...], named: str) -> None:
    """Also where gradients read the kernel, too."""
    assert uneven_in(build, dims) == ([named] if named else [])


def net(images: Any) -> Any:
    with tb.variable_scope("net"):
        hidden = tb.layers.conv2d(images, 3, 3, 2, padding="same", name="conv")
        hidden = tb.layers.max_pooling2d(hidden, 3, 2, padding="same", name="pool")
        return tb.layers.dense(tb.layers.flatten(hidden), 5, name="fc")


def test_load_weights_warns_of_weights_of_modules(tmp_path: Path) -> None:
    """Not of what `save_weights` wrote, nor where the layer keeps its own weights."""
    rng = np.random.default_rng(0)
    shapes = {"conv.weight": (3, 2, 3, 3), "conv.bias": (3,), "fc.weight": (5, 12), "fc.bias": (5,)}
    state = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    with tb.Graph().as_default(), tb.Session() as session:
        net(tb.ones([1, 8, 6, 2]))
        said = (
            r'^load_weights: padding "same" of net/conv \(windows 3x3, strides 2x2\), net/pool .* adds more '
            r"rows behind .*: outputs differ .* padding=1 \(only a pool with ceil_mode"
        )
        with pytest.warns(UserWarning, match=said):
            tb.interop.torch.load_weights(state, session)
        file = tb.interop.torch.save_weights(tmp_path / "w.safetensors", session)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tb.interop.torch.load_weights(file, session)
    with tb.Graph().as_default(), tb.Session() as session, warnings.catch_warnings():
        warnings.simplefilter("error")
        hidden = tb.layers.conv2d(tb.ones([1, 8, 6, 2]), 3, 3, 2, padding="same", name="conv")
        tb.layers.dense(tb.reduce_mean(hidden, [1, 2]), 5, name="fc")
        tb.interop.torch.load_weights(
            {"fc.weight": np.ones((5, 3), np.float32), "fc.bias": state["fc.bias"]}, session, skip=["conv/*"]
        )


def test_weights_of_another_model_are_told_by_their_names() -> None:
    state = {f"encoder.{n}.{part}": np.ones((n + 2, 7), np.float32) for n in range(4) for part in "ab"}
    with tb.Graph().as_default(), tb.Session() as session:
        net(tb.ones([1, 8, 6, 2]))
        said = (
            r"^load_weights: no name is like one of the model's, and none of its 4 variables can be found by "
            r"shape and order: expected net/conv/kernel \(there net\.conv\.weight \[3, 2, 3, 3\]\), .* and 1 "
            r"more; got encoder\.0\.a \[2, 7\], .* and 5 more\. Names are compared from their ends, .* give "
            r"names=\{variable: entry\} or \{scope: module\}$"
        )
        with pytest.raises(tb.errors.InvalidArgumentError, match=said):
            tb.interop.torch.load_weights(state, session)
