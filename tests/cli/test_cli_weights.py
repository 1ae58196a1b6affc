"""`tensorbow train --weights`: what it says, and errors in the words of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tensorbow.training import load_arrays

Call = Callable[..., Any]
QUICK = ("train", "logreg", "--dataset", "synthetic", "--epochs", "1", "--batch-size", "500")


@pytest.fixture
def state(tmp_path: Path) -> dict[str, Any]:
    """A state of PyTorch's nn.Linear(784, 10), in w.safetensors."""
    rng = np.random.default_rng(0)
    values = {"weight": rng.normal(size=(10, 784)), "bias": rng.normal(size=10)}
    state = {name: value.astype(np.float32) for name, value in values.items()}
    save_file(state, tmp_path / "w.safetensors")
    return state


@pytest.mark.slow
def test_training_begins_with_the_weights_of_a_file(
    call: Call, tmp_path: Path, state: dict[str, Any]
) -> None:
    ended = call(*QUICK, "--weights", "w.safetensors", "--learning-rate", "1e-30", "--output", "run")
    assert (ended.status, ended.err) == (0, "")
    assert "weights: w.safetensors: taken by 2 variables" in ended.out.splitlines()
    values, _ = load_arrays(tmp_path / "run" / "model.safetensors")
    np.testing.assert_allclose(values["weights"], state["weight"].T, rtol=1e-6)
    again = call("train", "--resume", "auto", "--output", "run", "--epochs", "2", "--weights", "other")
    assert "weights are not read: the checkpoint has the run's own" in again.out.splitlines()
    assert "weights: other" in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--weights-names", "weights=w"),
            "--weights: w.safetensors: names gives 'w' for 'weights': there is no such entry; ",
        ),
        (
            ("--weights-skip", "bias"),
            None,
        ),
        (
            ("--weights-skip", "fc.*"),
            "--weights: w.safetensors: 'fc.*' is to be left out: nothing has such a name. Leave weights out "
            "by --weights-skip (as fc.*), or give --weights-names (as conv1=features.0, a scope and its "
            "module in PyTorch)",
        ),
        (("--weights-names", "x"), "--weights-names: expected pairs of names, as conv1=features.0"),
    ],
)
def test_what_does_not_fit_is_said_in_options(
    call: Call, state: dict[str, Any], words: tuple[str, ...], said: str | None
) -> None:
    ended = call(*QUICK, "--weights", "w.safetensors", *words, "--output", "run", "--max-seconds", "0.001")
    if said is None:
        assert "weights: w.safetensors: taken by 1 variable; biases begin without" in ended.out
    else:
        assert said in ended.line


def test_options_of_weights_without_weights_are_ignored(call: Call) -> None:
    ended = call(*QUICK, "--weights-skip", "fc.*", "--output", "run", "--max-seconds", "0.001")
    assert "--weights-skip is ignored: it is for --weights" in ended.err
    ended = call(*QUICK, "--weights", "nowhere", "--output", "run2")
    assert "nowhere" in ended.line


@pytest.mark.usefixtures("reference_kernels")
def test_what_data_and_weights_are_not_is_said_as_a_warning(call: Call, tmp_path: Path) -> None:
    """On standard error, once, for each."""
    (tmp_path / "net.py").write_text(
        "import tensorbow as tb\n"
        "def net(inputs, labels, training):\n"
        "    hidden = tb.layers.conv2d(inputs, 2, 3, 2, padding='same', name='conv')\n"
        "    logits = tb.layers.dense(tb.reduce_mean(hidden, [1, 2]), 2, name='fc')\n"
        "    return tb.losses.sparse_softmax_cross_entropy(labels, logits), logits\n"
    )
    np.savez(tmp_path / "d.npz", x=np.zeros((40, 3, 8, 8), np.uint8), y=np.arange(40) % 2)
    shapes = {"conv.weight": (2, 8, 3, 3), "conv.bias": (2,), "fc.weight": (2, 2), "fc.bias": (2,)}
    save_file({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, tmp_path / "w")
    words = ("train", "net.py:net", "--data", "d.npz", "--weights", "w", "--epochs", 1, "--batch-size", 8)
    ended = call(*words, "--output", "run", "--max-seconds", 0.001)
    assert ended.status == 0
    of_data, of_padding = ended.err.splitlines()
    assert of_data.startswith(
        "tensorbow: warning: 'd.npz'/train: inputs [examples, 3, 8, 8] look like pictures w"
    )
    assert of_padding.startswith('tensorbow: warning: weights: w: padding "same" of conv (windows 3x3, str')
