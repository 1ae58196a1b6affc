"""Mixup: the distribution of its shares, the mixed batch and its loss, and the bits of runs with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Trainer, TrainingConfig, TrainingResult
from scheduler.training.models.classifier_step import build_step
from scheduler.training.models.mixup import INTERVALS, beta_quantiles, mixed
from tensorbow.data import make_synthetic
from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import Array
from tests.scheduler_rig.interrupted import train_until
from tests.scheduler_rig.running import same_bits

Options = Callable[..., TrainingConfig]
Run = Callable[..., TrainingResult]


@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0, 2.0, 8.0])
def test_shares_have_the_moments_of_the_beta_distribution(alpha: float) -> None:
    """Means between neighbours stand for the shares that are drawn between them."""
    quantiles = beta_quantiles(alpha).astype(np.float64)
    assert quantiles.shape == (INTERVALS + 1,)
    assert (quantiles[0], quantiles[-1]) == (0, 1)
    assert (np.diff(quantiles) >= 0).all()
    shares = (quantiles[1:] + quantiles[:-1]) / 2
    assert shares.mean() == pytest.approx(0.5, abs=1e-6)
    assert shares.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=1e-2)
    fourth = np.mean((shares - 0.5) ** 4)
    assert fourth == pytest.approx(3 / (16 * (2 * alpha + 1) * (2 * alpha + 3)), rel=6e-2)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_a_batch_is_mixed_with_its_reverse_and_the_loss_is_of_both_labels(dtype: Any) -> None:
    random = np.random.default_rng(0)
    pictures = (255 * random.random((3, 2, 4, 1))).astype(dtype)
    weights = np.array([1.0, 2.0, 0.5], np.float32)
    with tb.Graph().as_default(), tb.Session() as session:
        tb.set_random_seed(4)
        images, labels = tb.placeholder(dtype, [None, 2, 4, 1]), tb.placeholder(tb.int64, [None])
        inputs, (others, share) = mixed(images, labels, 0.7)
        assert inputs.spec == images.spec
        built = tb.models.LogisticRegression()(
            inputs, labels, True, 3, tb.constant(weights), 0.1, mixed_labels=(others, share)
        )
        session.run(tb.global_variables_initializer())
        fed = {images: pictures, labels: [0, 2, 1]}
        found = session.run((inputs, share, built.loss, built.outputs, built.metrics["accuracy"]), fed)
        shares = [float(session.run(share)) for _ in range(40)]
    own, part, loss, logits, accuracy = found
    both = part * pictures.astype(np.float32) + (1 - part) * pictures[::-1]
    np.testing.assert_allclose(own, both if dtype == np.float32 else np.rint(both), rtol=1e-6)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))

    def losses(classes: list[int]) -> Array:
        plain = -0.9 * logs[np.arange(3), classes] - 0.1 * logs.mean(1)
        return plain * weights[classes]

    first, second = [0, 2, 1], [1, 2, 0]
    assert loss == pytest.approx(part * losses(first).mean() + (1 - part) * losses(second).mean(), rel=1e-5)
    right = [np.mean(logits.argmax(1) == each) for each in (first, second)]
    assert accuracy == pytest.approx(part * right[0] + (1 - part) * right[1], rel=1e-5)
    assert len(set(shares)) > 30
    assert 0 < min(shares) < 0.2 < 0.8 < max(shares) < 1


@pytest.mark.slow
def test_interruptions_change_no_bit(
    tmp_path: Path, options: Options, run: Run, model: Callable[[Path], dict[str, Array]]
) -> None:
    given: dict[str, Any] = {"mixup": 0.4, "epochs": 2, "replicas_per_device": 2}
    run(output=tmp_path / "whole", **given)
    for at in (1, 4):
        cut = options(output=tmp_path / "cut", resume="auto", checkpoint_rounds=2, **given)
        assert train_until(cut, at).interrupted
    run(output=tmp_path / "cut", resume="auto", **given)
    assert same_bits(model(tmp_path / "whole"), model(tmp_path / "cut"))
    run(output=tmp_path / "plain", **{**given, "mixup": 0.0})
    assert not same_bits(model(tmp_path / "whole"), model(tmp_path / "plain"))


@pytest.mark.slow
@pytest.mark.usefixtures("native_kernels")
def test_launches_of_several_steps_mix_as_single_steps_do(
    tmp_path: Path, options: Options, model: Callable[[Path], dict[str, Array]]
) -> None:
    found = []
    for steps in (1, 4):
        config = options(output=tmp_path / str(steps), mixup=0.4, epochs=1, steps_per_launch=steps)
        with Trainer(config) as trainer:
            trainer.train()
        found.append(model(tmp_path / str(steps)))
    assert same_bits(*found)


def test_all_kernels_mix_the_same_bits(request: pytest.FixtureRequest) -> None:
    pictures = np.random.default_rng(1).random((6, 3, 2, 1), np.float32)
    found = []
    for kernels in ("native_kernels", "reference_kernels"):
        request.getfixturevalue(kernels)
        with tb.Graph().as_default(), tb.Session() as session:
            tb.set_random_seed(4)
            given = mixed(tb.constant(pictures), tb.constant(np.arange(6)), 0.2)
            found += [[session.run(given) for _ in range(20)]]
    for (native, (others, share)), (plain, (same_others, same_share)) in zip(*found, strict=True):
        assert native.tobytes() == plain.tobytes()
        assert (others == same_others).all()
        assert share == same_share


def test_data_that_cannot_be_mixed_are_refused(options: Options) -> None:
    train, _ = make_synthetic(train_examples=32, test_examples=16)

    def own(inputs: Any, labels: Any, training: bool) -> Any:
        logits = tb.layers.dense(tb.layers.flatten(inputs), 10)
        return tb.losses.sparse_softmax_cross_entropy(labels, logits)

    with pytest.raises(
        InvalidArgumentError,
        match=r"mixup: model .*own has no argument mixed_labels; add mixed_l",
    ):
        build_step(options(model=own, mixup=0.2), train, 0.1)
    with tb.Graph().as_default():
        tokens, labels = tb.placeholder(tb.int32, [None, 5]), tb.placeholder(tb.int64, [None])
        numbers = tb.placeholder(tb.float32, [None])
        bytes_ = tb.placeholder(tb.uint8, [None, 5])
        pairs = [
            (tokens, labels),
            (bytes_, labels),
            (numbers, numbers),
            ((numbers, numbers), labels),
            (numbers, None),
        ]
        for given in pairs:
            message = r"mixup: expected data of one input of pictures.*; got [^{}]{,80}; leave it out$"
            with pytest.raises(InvalidArgumentError, match=message):
                mixed(*given, 0.2)
    for refused in (-0.1, 9, "often"):
        with pytest.raises(InvalidArgumentError, match="mixup: expected a number from 0 to 8"):
            options(mixup=refused)
