from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml

from scheduler import TrainingConfig
from scheduler.training.running.notices import ignored_options
from tensorbow.errors import InvalidArgumentError


def test_defaults_are_a_sound_run_that_no_machine_changes() -> None:
    config = TrainingConfig()
    assert (config.model, config.dataset, config.replicas, config.batch_size) == ("lenet", "digits", 2, 16)
    assert (config.momentum, config.mu, config.tau, config.alpha) == (0.9, 0.0, 1, None)


def test_what_is_written_is_read_again() -> None:
    config = TrainingConfig(
        devices=("cpu:0", "cpu:1"), learning_rate_drops=((2, 0.1), (3, 0.01)), alpha=0.2, max_seconds=3
    )
    assert TrainingConfig.from_dict(yaml.safe_load(yaml.safe_dump(config.to_dict()))) == config


def test_lists_and_numpy_numbers_are_taken() -> None:
    config = TrainingConfig(devices=["cpu:0"], learning_rate_drops=[[np.int64(1), 1]], seed=np.int64(3), mu=0)
    assert config.devices == ("cpu:0",)
    assert config.learning_rate_drops == ((1, 1.0),)
    assert isinstance(config.mu, float)
    assert isinstance(config.seed, int)
    assert config.synchronisation.alpha_for(config.replicas) == 0.5


NAN, INF = float("nan"), float("inf")
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": "resnet"}, "model: expected one of logreg, linear, lenet, mlp, resnet8, .*, got 'resnet'"),
    ({"batch_size": True}, "batch_size: expected a whole number from 1 to 2147483647, got True"),
    ({"seed": -1}, "seed: expected a whole number from 0 to 18446744073709551615, got -1"),
    ({"launch_ahead": 10**9}, "launch_ahead: expected a whole number from 1 to 64"),
    ({"alpha": 0.7}, "alpha: expected 0 < alpha < .*0.6667"),
    ({"alpha": NAN}, "alpha: expected a positive number, from 1.2e-38 to 3.4e.38, got nan"),
    ({"alpha": NAN, "sync": "none"}, "alpha: expected a positive number"),
    ({"mu": 1.0}, "mu: expected a momentum"),
    ({"momentum": 1.0}, r"momentum: expected a momentum in \[0, 1\)"),
    ({"learning_rate": 0}, "learning_rate: expected a positive number, from 1.2e-38 to 3.4e.38, got 0"),
    ({"learning_rate": INF}, "learning_rate"),
    ({"learning_rate": 10**400}, "learning_rate: expected a positive number"),
    ({"weight_decay": NAN}, "weight_decay: expected a number of at least 0, up to 3.4e.38, got nan"),
    ({"weight_decay": -1}, "weight_decay"),
    (
        {"learning_rate": 1e300},
        "learning_rate: expected a positive number, from 1.2e-38 to 3.4e.38, got 1e.300",
    ),
    ({"learning_rate": 1e-50}, "learning_rate: expected a positive number"),
    ({"weight_decay": 1e39}, "weight_decay: expected a number of at least 0, up to 3.4e.38, got 1e.39"),
    ({"target_accuracy": 98}, r"target_accuracy: expected a fraction in \(0, 1\], as 0.99, got 98"),
    ({"devices": []}, "devices: expected at least one"),
    ({"devices": ["cpu:0", "/device:CPU:0"]}, "devices: expected different ones"),
    ({"devices": [0]}, "devices: expected names of devices"),
    ({"devices": 3}, "devices: expected names of devices"),
    ({"sync": "SMA"}, "sync: expected one of sma, ssgd, easgd, diloco, none"),
    ({"learning_rate_drops": [[2, 0.1], [1, 0.01]]}, "learning_rate_drops: expected EPOCH:FACTOR pairs"),
    (
        {"learning_rate_drops": [[0, 0.1]]},
        "of rising epochs above 0, up to 1000000, and positive factors, got",
    ),
    ({"learning_rate_drops": [[10**25, 0.5]]}, "of rising epochs"),
    ({"learning_rate_drops": [[1, NAN]]}, "positive factors"),
    ({"learning_rate_drops": [3]}, "EPOCH:FACTOR pairs"),
    ({"learning_rate_drops": "1;2"}, "EPOCH:FACTOR pairs"),
    ({"output": ""}, "output: expected a path"),
    ({"ssgd_epoch": 2, "sync": "none"}, "ssgd_epoch: expected sync sma"),
    ({"devices": ["gpu:0"]}, "expected names such as cpu:0,cpu:1; got 'gpu:0': "),
    ({"devices": ["/task:1/cpu:0"]}, "a run trains on this process's devices"),
    ({"colour": "red"}, "unknown option 'colour'; `tensorbow train --help` lists all options"),
    ({"lr": 0.1}, "unknown option 'lr'; did you mean learning_rate?"),
    ({"weigth_decay": 0.1}, "unknown option 'weigth_decay'; did you mean weight_decay?"),
    ({"optimizer": "adam", "optimizer_options": "beta3=0.1"}, "options of adam .*; did you mean beta1?"),
    ({"optimizer_options": "momentum=0.1"}, "options of momentum .it has none., got 'momentum'"),
    ({"optimizer": "adam", "optimizer_options": {"beta1": 2.0}}, "^optimizer_options: .* below 1, got"),
    ({"final_rate": 0}, "^final_rate: expected a fraction above 0, up to 1, got 0"),
]


@pytest.mark.parametrize(("values", "words"), REFUSED, ids=[str(values) for values, _ in REFUSED])
def test_what_is_refused_and_how(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        TrainingConfig.from_dict(values)
    assert len(str(caught.value)) < 800


def test_a_seed_has_64_bits() -> None:
    assert TrainingConfig.from_dict({"seed": 2**64 - 1}).seed == 2**64 - 1


def test_a_value_that_would_fill_the_screen_is_shortened() -> None:
    bomb: Any = "x" * 100
    for _ in range(20):
        bomb = [bomb] * 9
    with pytest.raises(InvalidArgumentError) as caught:
        TrainingConfig.from_dict({"seed": bomb})
    assert len(str(caught.value)) < 2000


def test_one_replica_needs_no_alpha() -> None:
    assert TrainingConfig(replicas_per_device=1, alpha=3.0).replicas == 1


def test_differences_of_another_run() -> None:
    config = TrainingConfig()
    assert config.differences(config.to_dict()) == []
    assert config.differences({**config.to_dict(), "learning_rate": 3.0, "epochs": 1}) == []
    other = {**config.to_dict(), "model": "logreg", "seed": 4}
    assert config.differences(other) == ["model was 'logreg', is 'lenet'", "seed was 4, is 0"]
    lacking = [line.split()[0] for line in config.differences({})]
    assert lacking == ["dataset", "batch_size"]  # others that older versions lacked have their defaults


def test_a_model_has_drops_of_its_own_for_a_data_set() -> None:
    """They go with the default rate: whoever gives a rate, or drops, decides alone."""
    of_mnist = TrainingConfig("lenet", dataset="mnist")
    assert of_mnist.learning_rate_drops == ((0.3, 0.6), (0.5, 0.4), (0.65, 0.25), (0.8, 0.12))
    assert of_mnist.schedule == "piecewise"
    assert TrainingConfig("lenet", dataset="mnist", learning_rate=0.02).learning_rate_drops == ()
    assert TrainingConfig("lenet", dataset="mnist", learning_rate_drops=[]).learning_rate_drops == ()
    assert TrainingConfig("lenet").learning_rate_drops == ((8, 0.3), (12, 0.1))
    assert TrainingConfig("lenet", dataset="synthetic").learning_rate_drops == ()
    for config in (of_mnist, TrainingConfig("lenet", dataset="mnist", epochs=1, schedule="cosine")):
        assert not [text for text in ignored_options(config) if "drops" in text]
