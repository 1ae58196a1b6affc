"""ResNet-50 as an example: steps on one and two replicas, scaling, options."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.models import imagenet_resnet

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "resnet50"
SMALL = ["--image-size", "32", "--batch-size", "4", "--classes", "10"]


@pytest.fixture(autouse=True)
def siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program imports its modules by plain name."""
    monkeypatch.syspath_prepend(str(FOLDER))


def test_smoothed_labels() -> None:
    from resnet50_recipe import loss_of

    logits = np.array([[2.0, -1.0, 0.5, 0.0], [0.0, 0.3, -0.2, 1.0]], np.float32)
    labels = np.array([2, 0])
    with tb.Graph().as_default(), tb.Session() as session:
        loss = session.run(loss_of(tb.constant(logits), tb.constant(labels), 0.2))
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    targets = np.full((2, 4), 0.2 / 4)
    targets[[0, 1], labels] += 0.8
    np.testing.assert_allclose(loss, -(targets * logs).sum(1).mean(), rtol=1e-6)


def test_learning_rates_of_epochs() -> None:
    from resnet50_recipe import PICTURES, learning_rates

    rates, epoch = learning_rates(0.4, 512), PICTURES / 512
    found = [rates(int(epoch * at)) for at in (3, 7, 29.9, 30.1, 60.1, 80.1)]
    np.testing.assert_allclose(found, [0.2, 0.4, 0.4, 0.04, 0.004, 0.0004], rtol=1e-3)
    assert learning_rates(0.4, 512, 0)(0) == 0.4


@pytest.mark.parametrize("devices", ["cpu:0", "cpu:0,cpu:1"])
@pytest.mark.slow
def test_the_loss_of_the_same_batches_falls(devices: str, reference_kernels: None) -> None:
    import resnet50

    options = ["--devices", devices, "--learning-rate", "0.003", "--warm-up-epochs", "0", "--steps", "8"]
    losses = resnet50.train(resnet50.parser_of_options().parse_args([*SMALL, *options]))
    assert len(losses) == 8
    assert losses[0] == pytest.approx(math.log(10), rel=0.5)
    assert np.mean(losses[-2:]) < 0.5 * np.mean(losses[:2])  # of the same two batches


@pytest.mark.slow
@pytest.mark.parametrize(("scaling", "batch_sizes"), [("weak", [4, 4]), ("strong", [4, 2])])
def test_scaling_writes_its_results(
    scaling: str,
    batch_sizes: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reference_kernels: None,
) -> None:
    pytest.importorskip("matplotlib")
    import resnet50

    monkeypatch.setitem(imagenet_resnet.BLOCKS, 50, (1, 1))  # so that it is quick
    monkeypatch.setattr(imagenet_resnet, "CHANNELS", (3, 4))
    options = ["--devices", "cpu:0,cpu:1", "--steps", "3", "--scaling", scaling, "--output", str(tmp_path)]
    resnet50.main([*SMALL, *options])
    result = json.loads((tmp_path / f"{scaling}.json").read_text())
    assert [row["batch_size"] for row in result["rows"]] == batch_sizes
    assert [row["replicas"] for row in result["rows"]] == [1, 2]
    assert all(len(row["samples_s"]) == len(row["cpu_samples_s"]) == 3 for row in result["rows"])
    assert (tmp_path / f"{scaling}.png").stat().st_size > 10_000


def test_figures_of_scaling() -> None:
    from resnet50_report import Measured, rows_of

    def of(devices: int, replicas: int, seconds: list[float]) -> Any:
        return Measured(devices, replicas, 8, seconds, [4.0], build_s=0.1, init_s=2.0, first_step_s=0.3)

    measured = [of(1, 1, [2.0, 1.0, 9.0]), of(2, 2, [2.5]), of(4, 4, [8.0])]
    rows = rows_of(measured, cores=2)
    assert [row["images_per_second"] for row in rows] == [4, 6.4, 4]
    assert [row["speed_up"] for row in rows] == [1, 1.6, 1]
    assert [row["cpu_seconds_per_image"] for row in rows] == [0.5, 0.25, 0.125]
    assert [row["efficiency"] for row in rows] == [1, 0.8, 0.25]
    assert [row["bound_of_speed_up"] for row in rows] == [1, 2, 2]
    assert [row["bound_of_speed_up"] for row in rows_of(measured, cores=None)] == [1, 2, 4]


def test_numbers_of_devices_and_their_batches(capsys: pytest.CaptureFixture[str]) -> None:
    import resnet50

    assert [resnet50.device_counts(n) for n in (1, 2, 3, 8)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 8]]
    options = ["--devices", "cpu:0,cpu:1,cpu:2", "--scaling", "strong", "--batch-size"]
    parse = resnet50.parser_of_options().parse_args
    assert resnet50.batch_sizes(parse([*options, "12"])) == {1: 12, 2: 6, 3: 4}
    with pytest.raises(InvalidArgumentError, match="1, 2, 3 devices can share, got 4; give a multiple of 6"):
        resnet50.batch_sizes(parse([*options, "4"]))
    with pytest.raises(SystemExit):
        resnet50.main([*options, "4"])
    assert "error: --scaling strong: expected" in capsys.readouterr().err


@pytest.mark.slow
def test_more_memory_than_there_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import resnet50

    import scheduler.replicas.device_plans

    monkeypatch.setattr(scheduler.replicas.device_plans, "available_memory_nbytes", lambda: 400 << 20)
    with pytest.raises(SystemExit):
        resnet50.main([*SMALL, "--devices", "cpu:0,cpu:1"])
    assert "error: 2 replicas on 2 CPU devices need " in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    import resnet50

    with pytest.raises(SystemExit):
        resnet50.main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"--{name}" in shown for name in ("devices", "replicas-per-device", "scaling", "image-size"))
    with pytest.raises(SystemExit):
        resnet50.main(["--batch-size", "0"])
    assert "--batch-size: expected a whole number of at least 1, got '0'" in capsys.readouterr().err
