"""`predict`, `evaluate`, `export`: a trained model outside of training; one line for what is wrong."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scheduler import Trainer, TrainingConfig
from tensorbow.cli.inference import _line
from tensorbow.data import load
from tensorbow.models import MODELS
from tensorbow.pictures import has_matplotlib
from tensorbow.training import SavedModel, load_arrays, save_arrays, save_model
from tests.scheduler_rig.interrupted import train_until

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    config = TrainingConfig(model="logreg", dataset="digits", epochs=1, output=str(folder))
    with Trainer(config) as trainer:
        trainer.train()
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


@pytest.mark.slow
def test_evaluate_repeats_what_training_found(call: Call, run: Path) -> None:
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    result = json.loads(call("evaluate", run, "--json").out)
    assert (result["loss"], result["accuracy"]) == (last["test_loss"], last["test_accuracy"])
    assert (result["model"], result["dataset"], result["split"]) == ("logreg", "digits", "test")
    on_train = json.loads(call("evaluate", run / "model.safetensors", "--split", "train", "--json").out)
    assert on_train["examples"] == len(load("digits")[0])
    shown = call("evaluate", run, "--dataset", "digits")
    assert shown.out.splitlines()[2] == f"accuracy  {result['accuracy']:.2%}"


@pytest.mark.slow
def test_the_best_model_of_a_run_is_used_instead_of_the_last(call: Call, tmp_path: Path) -> None:
    """Its best evaluation is the first, as the loss of training is turned upside down."""
    config = {"model": "logreg", "dataset": "digits", "epochs": 3}
    with Trainer(TrainingConfig(**config, output="run", best_metric="loss:max")) as trainer:
        trainer.train()
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    best, *_ = records
    asked = call("evaluate", "run", "--best", "--json")
    assert json.loads(asked.out)["loss"] == best["test_loss"]
    assert f"(test, 360 examples; best, of step {best['round']})" in call("evaluate", "run", "--best").out
    assert call("export", "run", "--best").out == "run/export-best\n"
    assert call("evaluate", "run/export-best", "--json").out == asked.out
    np.save("x.npy", load("digits")[1].images)
    assert call("predict", "run", "x.npy", "--best").out == call("predict", "run/export-best", "x.npy").out
    assert "--best: expected without --ema" in call("evaluate", "run", "--best", "--ema").line
    assert "run/export-best holds no best model" in call("predict", "run/export-best", "x.npy", "--best").line


@pytest.mark.slow
def test_evaluate_with_more_metrics(call: Call, run: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    picture = tmp_path / "confusion.svg"
    asked = ("evaluate", "run", "--metrics", "top3,f1,auc,confusion", "--picture", picture)
    facts = json.loads(call(*asked, "--json").out)
    counts = np.array(facts["confusion"])
    assert counts.sum() == facts["examples"]
    assert counts.trace() / counts.sum() == pytest.approx(facts["accuracy"])
    assert facts["accuracy"] < facts["top3"] < 1
    told = call(*asked).out
    assert (
        f"top3      {facts['top3']:.2%}\nf1        {facts['f1']:.2%}\nauc       {facts['auc']:.4f}\n" in told
    )
    assert told.splitlines()[-1].split()[1:11] == [str(count) for count in facts["confusion"][9]]
    assert picture.read_text().startswith("<?xml")
    assert call("evaluate", "run", "--metrics", "f1,kappa").status == 2


@pytest.mark.slow
def test_classes_have_their_names_in_tables_pictures_and_predictions(call: Call, tmp_path: Path) -> None:
    """Other data may have some of the classes only."""
    images, names = load("digits")[0].images, np.array([f"class {index}" for index in range(10)])
    labels = load("digits")[0].labels
    np.savez("all.npz", x=images, y=names[labels])
    np.savez(
        "some.npz", x_train=images[:9], y_train=["class 7"] * 9, x_test=images[:9], y_test=["class 7"] * 9
    )
    asked = ("train", "logreg", "--data", "all.npz", "--epochs", 1, "--metrics", "confusion")
    assert call(*asked, "--output", "run").status == 0
    assert (tmp_path / "run" / "confusion.csv").read_text().startswith("label,class 0,class 1,")
    counts = json.loads(call("evaluate", "run", "--data", "some.npz", "--metrics", "confusion", "--json").out)
    assert np.flatnonzero(np.sum(counts["confusion"], 1)).tolist() == [7]
    assert counts["class_names"] == names.tolist()
    table = call("evaluate", "run", "--metrics", "confusion").out.splitlines()
    assert "class 3        " in table[-7]
    np.save("x.npy", images[:5])
    assert {row[1] for row in rows(call("predict", "run", "x.npy").out)} <= {*names}
    if has_matplotlib():
        call("evaluate", "run", "--picture", "picture.svg")
        assert "class 9" in (tmp_path / "picture.svg").read_text()


@pytest.mark.slow
def test_an_exported_model_does_the_same(call: Call, run: Path, tmp_path: Path) -> None:
    assert call("export", run, "--output", "model").out == "model\n"
    assert call("evaluate", "model", "--json").out == call("evaluate", run, "--json").out
    np.save("x.npy", load("digits")[1].images)
    assert call("predict", "model", "x.npy").out == call("predict", run, "x.npy").out
    call("export", run, "--output", "again")
    for name in ("graph.json", "variables.safetensors"):
        assert (tmp_path / "model" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert call("export", run).out == f"{run / 'export'}\n"
    assert "exported model already" in call("export", "model").line


@pytest.mark.slow
def test_an_exported_model_of_integers(call: Call, run: Path) -> None:
    assert call("export", run, "--quantize", "int8", "--calibration", "64").out == f"{run / 'export-int8'}\n"
    found = json.loads(call("evaluate", run / "export-int8", "--json").out)
    expected = json.loads(call("evaluate", run, "--json").out)
    assert abs(found["accuracy"] - expected["accuracy"]) <= 0.01
    assert 0 < abs(found["loss"] - expected["loss"]) < 0.02
    assert "--dataset: expected with --quantize" in call("export", run, "--dataset", "digits").line
    again = ("export", run, "--quantize", "int8", "--dataset", "mnist")
    assert call(*again, "--data-dir", "nowhere").status != 0


@pytest.mark.slow
def test_a_run_s_other_models_are_chosen_by_options(call: Call, tmp_path: Path) -> None:
    options = ("--dataset", "synthetic", "--epochs", "1", "--batch-size", "32", "--ema", "0.9")
    call("train", "logreg", *options, "--output", "run")
    z = json.loads(call("evaluate", "run", "--json").out)
    np.save("x.npy", load("synthetic")[1].images[:5])
    for choice, shown in {
        ("--replica", "1"): "; replica 1)",
        ("--ema",): "; moving average)",
        ("--ensemble",): "; mean of 2 replicas)",
    }.items():
        assert shown in call("evaluate", "run", *choice).out
        assert json.loads(call("evaluate", "run", *choice, "--json").out)["loss"] != z["loss"]
        assert call("predict", "run", "x.npy", *choice).out != call("predict", "run", "x.npy").out
    assert call("export", "run", "--ema").out == "run/export-ema\n"
    assert call("export", "run", "--replica", "1").out == "run/export-replica1\n"
    for exported, choice in {"run/export-ema": ["--ema"], "run/export-replica1": ["--replica", "1"]}.items():
        assert call("evaluate", exported, "--json").out == call("evaluate", "run", *choice, "--json").out
    assert "--ensemble: expected without --ema" in call("predict", "run", "x.npy", "--ema", "--ensemble").line
    assert "--ema: expected without --replica" in call("export", "run", "--ema", "--replica", "0").line


@pytest.mark.slow
def test_predict_takes_arrays_and_idx(call: Call, run: Path, tmp_path: Path) -> None:
    images = load("digits")[1].images
    np.save("four.npy", images)
    np.save("three.npy", images[..., 0])
    np.save("one.npy", images[0])
    np.savez_compressed("x.npz", images=images, labels=np.arange(3))
    idx = struct.pack(">HBBIII", 0, 8, 3, len(images), 28, 28) + images.tobytes()
    Path("images-idx3-ubyte").write_bytes(idx)
    Path("images.gz").write_bytes(gzip.compress(idx))
    expected = call("predict", run, "four.npy", "--output", "p.npy").out
    for name in ("three.npy", "x.npz", "images-idx3-ubyte", "images.gz"):
        assert call("predict", run, name).out == expected, name
    assert call("predict", run, "one.npy").out == expected.splitlines()[0] + "\n"
    wrong = call("predict", run, "four.npy", "--output", "p.txt")
    assert wrong.status == 2
    assert "--output: expected a file that ends in .npy or .npz, got 'p.txt'" in wrong.line
    assert not Path("p.txt").exists()
    Path("linked.npy").symlink_to("four.npy")
    for name in ("four.npy", "linked.npy"):
        line = call("predict", run, "four.npy", "--output", name).line
        assert f"--output: '{name}' is INPUT, which is kept; choose another path" in line
    assert np.array_equal(np.load("four.npy"), images)
    Path("folder.npy").mkdir()
    os.mkfifo("pipe.npy")
    for path, reason in (
        ("none/p.npy", "No such file or directory; choose a path in a folder that is there"),
        ("folder.npy", "expected a regular file, got a folder; choose another path"),
        ("pipe.npy", "expected a regular file, got a FIFO; choose another path"),
    ):
        wrong = call("predict", run, "four.npy", "--output", path)
        assert (wrong.status, wrong.out) == (2, "")
        assert f"--output: cannot write '{path}': {reason}" in wrong.line
    assert not Path("none").exists()
    table = np.load("p.npy")
    assert (table.dtype, table.shape) == (np.float32, (len(images), 10))
    np.testing.assert_allclose(table.sum(1), 1, rtol=1e-5)
    read = rows(expected)
    assert [int(row[0]) for row in read] == list(range(len(images)))
    assert [int(row[1]) for row in read] == table.argmax(1).tolist()
    accuracy = np.mean(table.argmax(1) == load("digits")[1].labels)
    assert accuracy == json.loads(call("evaluate", run, "--json").out)["accuracy"]


@pytest.mark.slow
def test_predict_takes_several_files(call: Call, run: Path, tmp_path: Path) -> None:
    _, test = load("digits")
    np.save(tmp_path / "a.npy", test.images[:2])
    np.save(tmp_path / "b.npy", test.images[2:5])
    one = rows(call("predict", run, tmp_path / "a.npy").out) + rows(
        call("predict", run, tmp_path / "b.npy").out
    )
    both = rows(call("predict", run, tmp_path / "a.npy", tmp_path / "b.npy").out)
    assert [row[0] for row in both] == ["a.npy:0", "a.npy:1", "b.npy:0", "b.npy:1", "b.npy:2"]
    assert [row[1:] for row in both] == [row[1:] for row in one]


def test_predict_takes_a_folder_of_pictures(call: Call, run: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pictures = load("digits")[1].images[:3, ..., 0]
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name, picture in zip(("b.png", "a.bmp", "c.PNG"), pictures, strict=True):
        image.fromarray(picture).save(folder / name)
    (folder / "notes.txt").write_text("no picture")
    np.save("x.npy", pictures[[1, 0, 2]])
    expected = [row[1:] for row in rows(call("predict", run, "x.npy").out)]
    found = rows(call("predict", run, folder).out)
    assert [row[0] for row in found] == ["a.bmp", "b.png", "c.PNG"]
    assert [row[1:] for row in found] == expected
    shutil.copytree(folder, tmp_path / "classes" / "seven")
    by_class = rows(call("predict", run, tmp_path / "classes").out)
    assert by_class == [[f"seven/{name}", *others] for name, *others in found]
    record = json.loads(call("predict", run, folder / "b.png", "--json").out)
    assert (record["input"], str(record["class"])) == ("b.png", found[1][1])
    image.fromarray(pictures[0]).convert("RGB").resize((56, 56)).save("large.png")
    assert "has 56x56 pixels, the model takes 28x28; add --resize" in call("predict", run, "large.png").line
    assert call("predict", run, "large.png", "--resize").out.startswith("large.png\t")
    whole = (folder / "b.png").read_bytes()
    for damaged in (whole[:60], whole[: len(whole) // 2], b"", b"\x89PNG\r\n\x1a\n" + b"\0" * 60):
        Path("damaged.png").write_bytes(damaged)
        assert "'damaged.png' is damaged or no picture" in call("predict", run, "damaged.png").line
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no picture (.png" in call("predict", run, empty).line


@pytest.mark.slow
def test_sound_pictures_of_every_kind(call: Call, run: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    picture = load("digits")[1].images[0, ..., 0]
    folder = tmp_path / "kinds"
    folder.mkdir()
    grey = image.fromarray(picture)
    clear = bytes([0] * 10 + [255] * 246)
    grey.save(folder / "a.png")
    grey.convert("P").save(folder / "palette.png", transparency=clear)  # of which Pillow warns
    image.fromarray(picture.astype(np.uint16) * 257).save(folder / "deep.png")  # 16 bits
    for mode in ("RGB", "RGBA", "LA", "P"):
        grey.convert(mode).save(folder / f"{mode}.png")
    found = rows(call("predict", run, folder).out)
    assert len(found) == 7
    assert {tuple(row[1:]) for row in found} == {tuple(found[0][1:])}
    image.fromarray(picture.astype(np.int32) * 70_000).save("wide.tif")
    Path("wide.tif").rename("wide.png")  # what the file holds counts, not its name
    assert "'wide.png' has pixels of more than 16 bits" in call("predict", run, "wide.png").line
    image.fromarray(picture.astype(np.float32)).save("float.tif")
    Path("float.tif").rename("float.png")
    assert "'float.png' has pixels of floating point" in call("predict", run, "float.png").line


def test_saved_models_that_are_no_classifiers(call: Call, run: Path, tmp_path: Path) -> None:
    call("export", run, "--output", "model")
    with SavedModel("model") as model:
        inputs, outputs, about = dict(model.inputs), dict(model.outputs), model.about
    values = load_arrays(tmp_path / "model" / "variables.safetensors")[0]
    for more_inputs, more_outputs, more_about, words in (
        (
            {},
            {"probabilities": outputs["loss"]},
            {},
            "its probabilities is float32[], expected float32[?, 10]",
        ),
        ({"images": inputs["labels"]}, {}, {}, "its images is int64[?], expected uint8[?, 28, 28, 1]"),
        ({}, {}, {"classes": 11}, "its logits is float32[?, 10], expected float32[?, 11]"),
        ({}, {}, {"mean": 10**400}, "where a number within float64 is expected"),
        ({}, {}, {"std": 1e-300}, "is no trained model"),
    ):
        save_model("bad", inputs | more_inputs, outputs | more_outputs, values, {**about, **more_about})
        assert words in call("evaluate", "bad").line
    save_model("bad", inputs, {"loss": outputs["loss"]}, values, about)
    assert "is no trained model: it has no accuracy, logits" in call("predict", "bad", "x").line


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 28, 27), np.uint8), "uint8 [2, 28, 27]; the model takes uint8 [n, 28, 28, 1]"),
        (np.zeros((2, 28, 28), np.float32), "holds float32 [2, 28, 28]"),
        (np.zeros((0, 28, 28), np.uint8), "holds uint8 [0, 28, 28]"),
        (np.array([{}]), "damaged or no array of numbers"),
    ],
)
def test_arrays_that_do_not_fit(call: Call, run: Path, array: Any, words: str) -> None:
    np.save("x.npy", array, allow_pickle=True)
    assert words in call("predict", run, "x.npy").line


def test_inputs_that_are_none(call: Call, run: Path, tmp_path: Path) -> None:
    assert "there is no file or folder 'gone.npy'" in call("predict", run, "gone.npy").line
    np.save("x.npy", np.zeros((9, 28, 28), np.uint8))
    whole = Path("x.npy").read_bytes()
    for damaged in (whole[:-1], whole[:20], b"", b"\x93NUMPY\x01\0\xff\xff" + b"(" * 70000):
        Path("x.npy").write_bytes(damaged)
        assert "'x.npy' is damaged" in call("predict", run, "x.npy").line
    Path("x.npz").write_bytes(whole)
    assert "'x.npz' is damaged" in call("predict", run, "x.npz").line
    Path("x.txt").write_text("hello")
    assert "IDX" in call("predict", run, "x.txt").line
    np.savez("two.npz", a=np.zeros(2), b=np.zeros(3))
    assert "holds 2 arrays (a, b), none named 'images'" in call("predict", run, "two.npz").line


def test_models_that_are_none(call: Call, run: Path, tmp_path: Path) -> None:
    assert "nowhere holds no trained model" in call("evaluate", "nowhere").line
    model = run / "model.safetensors"
    arrays, about = load_arrays(model)
    for change, words in (
        ({"image_shape": [28, 28]}, "is no trained model"),
        ({"std": 0}, "is no trained model"),
        ({"model": "gone"}, "expected one of logreg, linear, lenet"),
        ({"image_shape": [8, 8, 1]}, "does not fit model logreg"),
        ({"model": "lenet"}, "does not fit model lenet"),
    ):
        save_arrays(tmp_path / "m.safetensors", arrays, {**about, **change})
        assert words in call("evaluate", "m.safetensors").line
    missing = {name: value for name, value in arrays.items() if name != "weights"}
    save_arrays(tmp_path / "m.safetensors", missing, about)
    assert "without a value: weights" in call("evaluate", "m.safetensors").line
    checkpoint = next(run.glob("checkpoint-*"))
    line = call("evaluate", checkpoint).line
    assert f"is a checkpoint to go on from, no trained model; give {model}" in line
    model.write_bytes(model.read_bytes()[:-1])
    line = call("predict", run, "x.npy").line
    assert "truncated" in line
    assert "; train the model again" in line
    assert "checkpoint" not in line
    model.unlink()
    assert "if the run was killed, go on with --resume auto" in call("evaluate", run).line


@pytest.mark.slow
def test_an_interrupted_run_has_its_model(call: Call, tmp_path: Path) -> None:
    config = TrainingConfig(model="logreg", dataset="digits", epochs=3, steps_per_launch=1, output="stopped")
    result = train_until(config, 60)
    assert result.interrupted
    values, about = load_arrays(tmp_path / "stopped" / "model.safetensors")
    assert (about["round"], about["test_accuracy"]) == (result.steps, None)
    assert about["round"] % 44  # within an epoch
    checkpoint, _ = load_arrays(tmp_path / "stopped" / f"checkpoint-{result.steps:09d}.safetensors")
    slots = [name.partition("/")[0] for name in checkpoint if name.endswith("/weights") and "central" in name]
    assert any(np.array_equal(checkpoint[f"{slot}/weights"], values["weights"]) for slot in slots)
    found = json.loads(call("evaluate", "stopped", "--json").out)
    assert found["accuracy"] > 0.5
    np.save("x.npy", load("digits")[1].images)
    table = [int(row[1]) for row in rows(call("predict", "stopped", "x.npy").out)]
    assert np.mean(np.array(table) == load("digits")[1].labels) == found["accuracy"]


def test_data_of_another_kind(call: Call, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from tensorbow.data import make_synthetic, registry

    data = [replace(split, classes=12) for split in make_synthetic(train_examples=10, test_examples=10)]
    monkeypatch.setitem(registry.DATASETS, "other", lambda data_dir: (data[0], data[1]))
    line = call("evaluate", run, "--dataset", "other").line
    assert "the model is for pictures [28, 28, 1] of 10 classes; " in line
    assert "of 12" in line
    assert "--dataset: expected one of digits, " in call("evaluate", run, "--dataset", "gone").line


@pytest.mark.parametrize("columns", ["80", "100", "60"])
def test_no_help_breaks_the_name_of_a_model(
    call: Call, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for command in ("train", "explain", "tune"):
        shown = call(command, "--help").out
        words = set(shown.replace(",", " ").split())
        assert {*MODELS, "6n+2"} <= words, command
        assert shown.splitlines()[0].endswith(("MODEL", "[MODEL]"))


def test_help_says_what_a_model_is(call: Call) -> None:
    for command in ("predict", "evaluate", "export"):
        assert "MODEL: the folder of a run" in call(command, "--help").out
        assert command in call("--help").out


def test_outputs_for_each_step_are_a_field_for_each_step() -> None:
    row = {"mean": np.float32(0.5), "steps": np.arange(6, dtype=np.float32).reshape(3, 2)}
    assert _line("0", row, None) == "0\t0.5\t0 1\t2 3\t4 5"
    assert _line("a", np.array([1.5, 2.0]), None) == "a\t1.5\t2"
