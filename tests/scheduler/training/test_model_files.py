"""Model files that say other than they hold: refused in a line, before memory is taken for what they say."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scheduler.training.models.trained_model import TrainedModel
from tensorbow.errors import DataLossError, InvalidArgumentError, TensorBowError
from tensorbow.training import load_arrays, save_arrays
from tests.memory_rig.peak import growing_by_less_than

MB = 1 << 20
ABOUT = {
    "model": "logreg",
    "dataset": "digits",
    "classes": 10,
    "image_shape": [28, 28, 1],
    "mean": 30.0,
    "std": 70.0,
}
WEIGHTS = {"weights": np.zeros((784, 10), np.float32), "biases": np.zeros(10, np.float32)}
IMAGES = np.zeros((2, 28, 28, 1), np.uint8)


def written(folder: Path, about: dict[str, Any], arrays: dict[str, Any] | None = None) -> Path:
    path = folder / "model.safetensors"
    save_arrays(path, WEIGHTS if arrays is None else arrays, about)
    return path


def nested(depth: int, leaf: str) -> Any:
    return leaf if depth == 0 else [nested(depth - 1, leaf)]


GRAPH = {"crc32": 0, "inputs": {"inputs": "x:0"}, "outputs": {"loss": "l:0"}}
SIGNATURE = {"inputs": "inputs", "labels": None, "outputs": None, "metrics": []}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "change",
    [
        {"inputs": {"a": 3}},
        {"inputs": [["float32 2"], None]},
        {"inputs": "float99 2"},
        {"inputs": "float32 -2"},
        {"inputs": nested(500, "float32 2")},
        {"labels": 7},
        {"labels": {"a": "no spec"}},
        {"class_names": "abc"},
        {"model_options": []},
        {"standardisation": {"mean": [0.0, 1.0], "std": [1.0]}},
        {"standardisation": {"mean": [0.0], "std": [0]}},
        {"graph": {"crc32": 0}},
        {"graph": {**GRAPH, "signature": {**SIGNATURE, "inputs": [1]}}},
        {"graph": {**GRAPH, "signature": {**SIGNATURE, "outputs": "elsewhere"}}},
        {"graph": {**GRAPH, "signature": {**SIGNATURE, "metrics": ["accuracy"]}}},
    ],
    ids=lambda change: str(change)[:60],
)
def test_nests_and_names_that_are_none(change: dict[str, Any], tmp_path: Path) -> None:
    about = {"model": "logreg", "inputs": "float32 784", "labels": "int64", "classes": 10}
    with TrainedModel(written(tmp_path, about)) as model:
        assert model.probabilities(np.zeros((2, 784), np.float32)).shape == (2, 10)
    with pytest.raises(DataLossError, match=r"is no trained model|cannot be read|damaged"):
        TrainedModel(written(tmp_path, {**about, **change}))


@pytest.fixture(scope="module", autouse=True)
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Loads modules and code that are loaded once, before memory is measured."""
    with TrainedModel(written(tmp_path_factory.mktemp("sound"), ABOUT)) as classifier:
        assert classifier.probabilities(IMAGES).shape == (2, 10)


LIES = [
    (
        {"image_shape": [1024, 1024, 1], "classes": 1024},
        r"weights: expected shape \[1048576, 1024\], got \[784",
    ),
    ({"image_shape": [28, 28, 1 << 16], "classes": 1 << 20}, "weights: expected shape"),
    ({"classes": 1 << 20}, r"weights: expected shape \[784, 1048576\], got \[784, 10\]"),
    (
        {"model": "lenet", "image_shape": [1024, 1024, 1024]},
        "does not fit model lenet: variables without a val",
    ),
    (
        {"model": "resnet8", "image_shape": [4096, 4096, 64]},
        "without a value: conv1/conv/kernel, .* and 42 more",
    ),
    ({"image_shape": [65536] * 3}, "is no trained model"),
    ({"image_shape": [65536, 32768, 1]}, "is no trained model"),
    ({"image_shape": [2**62, 4, 1]}, "is no trained model"),
    ({"image_shape": [28, 28, 0]}, "is no trained model"),
    ({"classes": 2**40}, "is no trained model"),
    ({"classes": 10.0}, "is no trained model"),
    ({"model": "resnet" + "9" * 5000}, "model: expected"),
    ({"model": "resnet1208"}, "the nearest is resnet1202"),
]


@pytest.mark.parametrize(("change", "said"), LIES, ids=[str(change)[:40] for change, _ in LIES])
def test_a_model_that_does_not_fit_its_file(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = written(tmp_path, {**ABOUT, **change})
    with (
        growing_by_less_than(48 * MB),
        pytest.raises((InvalidArgumentError, DataLossError), match=said) as refused,
    ):
        TrainedModel(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 700


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({**WEIGHTS, "biases": np.zeros(10, np.float64)}, "variable biases: expected float32, got float64"),
        (
            {**WEIGHTS, "biases": np.zeros((10, 1), np.float32)},
            r"variable biases: expected shape \[10\], got \[10, 1\]",
        ),
        ({**WEIGHTS, "more": np.zeros(10, np.float32)}, "no variable 'more'"),
        ({"weights": WEIGHTS["weights"]}, "variables without a value: biases"),
    ],
)
def test_arrays_that_are_not_the_model_s(arrays: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=f"does not fit model logreg: {said}"):
        TrainedModel(written(tmp_path, ABOUT, arrays))


def test_a_saved_graph_that_does_not_fit_its_values(tmp_path: Path) -> None:
    """The graph is changed, and the sum over it too: its variable would take 3 TB."""
    with TrainedModel(written(tmp_path, ABOUT)) as classifier:
        folder = Path(classifier.export(tmp_path / "saved"))
    text = (folder / "graph.json").read_text().replace("784", str(784 << 27))
    (folder / "graph.json").write_text(text)
    arrays, described = load_arrays(folder / "variables.safetensors")
    described["graph_crc32"] = zlib.crc32(text.encode())
    save_arrays(folder / "variables.safetensors", arrays, described)
    with (
        growing_by_less_than(48 * MB),
        pytest.raises(InvalidArgumentError, match=r"saved model .*: ") as refused,
    ):
        TrainedModel(folder)
    assert "\n" not in str(refused.value)


VALUES: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        1,
        10,
        28,
        1 << 20,
        (1 << 31) - 1,
        1 << 63,
        10**300,
        0.0,
        1e-300,
        1e300,
        0.5,
        "",
        "logreg",
    ),
    *(
        "lenet",
        "resnet8",
        "resnet-1",
        "\x00",
        "a\nb",
        [],
        [28, 28, 1],
        [1, 1, 1],
        [8, 8, 3],
        [65535, 32767, 1],
    ),
    *([28, 28], [28, 28, "1"], [[28], 28, 1], {}, {"a": 1}, [1024, 1024, 1]),
]


def attack(rounds: int, seed: int, folder: Path) -> int:
    """Files with odd metadata are taken or refused in a line; how many are taken."""
    rng, taken, said = random.Random(seed), 0, []
    with growing_by_less_than(256 * MB):
        for _ in range(rounds):
            about = dict(ABOUT)
            for _ in range(rng.randint(1, 3)):
                about[rng.choice([*ABOUT, "config"])] = rng.choice(VALUES)
            arrays = dict(WEIGHTS)
            if rng.random() < 0.3:
                shape = rng.choice([(784, 10), (10,), (), (1, 1), (784, 1), (0, 10)])
                arrays[rng.choice(list(arrays))] = np.zeros(shape, rng.choice(["f4", "f8", "i4"]))
            try:
                with TrainedModel(written(folder, about, arrays)) as classifier:
                    classifier.probabilities(np.zeros((1, *classifier.image_shape), np.uint8))
            except TensorBowError as error:
                said.append(str(error))
                continue
            taken += 1
            json.dumps(classifier.about)
    assert not [line for line in said if "\n" in line or len(line) > 900]
    return taken


@pytest.mark.slow
def test_odd_metadata(tmp_path: Path) -> None:
    assert 0 < attack(60, 1, tmp_path) < 50


@pytest.mark.slow
def test_much_odd_metadata(tmp_path: Path) -> None:
    assert attack(2_000, 2, tmp_path) > 50
