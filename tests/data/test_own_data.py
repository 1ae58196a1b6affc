"""Data of a user's own: archives, tables, folders of pictures, functions; splits of any of them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.data import CropAndFlip, PictureChanges
from tensorbow.data.augmentation_names import augmentation_of
from tensorbow.data.own_data import load_own, read_inputs
from tensorbow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 3)), np.arange(20) % 3


def splits(path: Path | str, **options: Any) -> tb.data.DataSplits:
    return tb.data.splits_of(load_own(str(path), **options), "own")


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_an_archive_with_splits_and_named_inputs(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y, x_test=X[:5], y_test=Y[:5])
    found = splits(tmp_path / "a.npz")
    assert (len(found.train), len(found.test), found.train.classes) == (20, 5, 3)
    assert found.train.specs[0] == tb.TensorSpec([None, 3], tb.float32)  # not float64
    np.savez_compressed(tmp_path / "b.npz", age=X[:, :1], size=X[:, 1:], target=X[:, :1])
    found = splits(tmp_path / "b.npz")
    assert {*found.train.specs[0]} == {"age", "size"}
    assert (len(found.train), len(found.test), found.train.classes) == (16, 4, None)
    np.savez(tmp_path / "c.npz", y=Y)
    with pytest.raises(InvalidArgumentError, match=r"expected inputs, by the name x, .*; got y; choose"):
        splits(tmp_path / "c.npz")


def test_an_archive_with_names_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, pixels=X, digit=Y, test_pixels=X[:5], test_digit=Y[:5])
    with pytest.raises(InvalidArgumentError, match=r"name y, labels.*; got pixels, digit; .* --target NAME"):
        splits(path)
    with pytest.raises(InvalidArgumentError, match=r"expected an array .*one of pixels, digit; got 'digits'"):
        splits(path, target="digits")
    for target in ("digit", "test_digit"):
        found = splits(path, target=target)
        assert (found.train.classes, len(found.test)) == (3, 5)
        assert found.train.specs[0] == tb.TensorSpec([None, 3], tb.float32)


def test_labels_of_an_archive_that_are_texts(tmp_path: Path) -> None:
    path, names = tmp_path / "a.npz", np.array(["ant", "bee", "cat"])
    np.savez(path, x_train=X, y_train=names[Y], x_test=X[:4], y_test=names[[2, 1, 2, 2]])
    found = splits(path)
    assert (found.train.class_names, found.train.labels.tolist()) == (("ant", "bee", "cat"), Y.tolist())
    assert (found.test.classes, found.test.labels.tolist()) == (3, [2, 1, 2, 2])
    np.savez(path, x=np.zeros((20, 4, 4), np.uint8), y=names[Y])
    assert splits(path).test.class_names == ("ant", "bee", "cat")
    np.savez(path, x_train=X, y_train=names[Y], x_test=X[:1], y_test=["dog"])
    with pytest.raises(InvalidArgumentError, match=r"classes that are trained \(ant, bee, cat\), got dog"):
        splits(path)
    given = tb.data.splits_of(((X, [*names[Y]]), (X[:2], names[[2, 2]].astype(object))), "given")
    assert (given.test.classes, given.test.labels.tolist()) == (3, [2, 2])
    np.savez(path, x=X, y=names[Y].astype(object))
    with pytest.raises(
        DataLossError, match=r"holds object, no numbers; save texts as numpy.array\(texts, str"
    ):
        splits(path)


def test_pictures_of_bytes_are_normalised_as_those_of_data_sets(tmp_path: Path) -> None:
    images = RNG.integers(0, 256, (20, 4, 5), np.uint8)
    np.savez(tmp_path / "p.npz", x=images, y=Y.astype(np.int32))
    train = splits(tmp_path / "p.npz").train
    assert isinstance(train, tb.data.ImageDataset)
    assert (train.image_shape, train.classes) == ((4, 5, 1), 3)
    assert train.labels.dtype == np.int64


def test_a_table_is_standardised_by_its_training_rows(tmp_path: Path) -> None:
    rows = "\n".join(f"{100 + n},{n % 2},{'yes' if n % 2 else 'no'}" for n in range(10))
    found = splits(written(tmp_path / "t.csv", f"a,b,label\n{rows}\n"))
    train = found.train
    assert isinstance(train, tb.data.ArrayDataset)
    assert (train.class_names, train.feature_names, train.classes) == (("no", "yes"), ("a", "b"), 2)
    assert train.standardisation is not None
    assert train.standardisation[0] == pytest.approx(train.inputs.mean(0))
    x = tb.placeholder(tb.float32, [None, 2])
    with tb.Session() as session:
        values = session.run(train.prepared(x), {x: train.inputs})
    assert values.mean(0) == pytest.approx([0, 0], abs=1e-5)
    assert values.std(0) == pytest.approx([1, 1], rel=1e-5)


def test_targets_of_a_table(tmp_path: Path) -> None:
    table = written(tmp_path / "t.csv", "a,price,n\n1,2.5,0\n2,3.5,1\n3,1.25,2\n4,0,1\n5,1,0\n")
    regression = splits(table, target="price").train
    assert regression.classes is None
    assert regression.specs[1] == tb.TensorSpec([None], tb.float32)
    assert splits(table, target="n").train.classes == 3


TABLES: list[tuple[str, str | None, str]] = [
    ("a,b\n1,2\n", None, "expected a column of .*one of a, b; give --target COLUMN"),
    ("a,b\n1,2\n", "c", "got 'c'"),
    ("a,y\nred,2\n3,4\n", None, "row 2: column a has 'red', no number, where other rows have numbers"),
    ("a,y\n1,2\n2,\n", None, "row 3: column y has no value; fill it in, or drop the row"),
    ("a,y\n1,yes\n2,\n", None, "row 3: column y has no value"),
    ("a,y\n1,2\ninf,4\n", None, "row 3: column a has an infinite number"),
    ("a,b,y\n1,,2\n3,NA,4\n", None, "column b has no values; leave it out by --ignore-columns b"),
    (
        "a,y\n" + "".join(f"t{n},{n}\n" for n in range(101)),
        None,
        "column a has 101 different texts, .*most 100",
    ),
    ("a,y\n1,2\n3\n", None, "row 3: expected 2 values, as the header, got 1"),
    ("1,2\n3,4\n", "y", "expected a header of different names, got 1, 2"),
    ("a,y\n", None, "expected a header and rows"),
]


HOUSES = (
    "area,town,built,id,price\n"
    + "".join(
        f"{50 + n},{town},{1950 + n},h{n},{n}.5\n" for n, town in enumerate(["Ulm", "Bonn", "", "Kiel"] * 5)
    )
    + ",Ulm,NA,h20,1.5\n?,,2000,h21,2.5\n"
)


def test_texts_of_a_table_become_columns_and_missing_numbers_the_mean(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, said = written(tmp_path / "t.csv", HOUSES), list[str]()
    own = load_own(str(table), target="price", ignored=["id"], say=said.append)
    assert "area (2 missing), town (3 texts, 6 missing), built (1 missing); texts become" in said[0]
    names = ("area", "town=Bonn", "town=Kiel", "town=Ulm", "built")
    assert own.feature_names == names
    train = tb.data.splits_of(own, "t").train
    assert isinstance(train, tb.data.ArrayDataset)
    assert train.standardisation is not None
    area = train.inputs[:, 0]
    assert train.standardisation[0] == pytest.approx(
        [np.nanmean(area), 0, 0, 0, np.nanmean(train.inputs[:, 4])]
    )
    assert train.standardisation[1][:4] == pytest.approx([np.nanstd(area), 1, 1, 1])
    x = tb.placeholder(tb.float32, [None, 5])
    with tb.Session() as session:
        values = session.run(train.prepared(x), {x: own.inputs})
    assert values[1, 1:4].tolist() == [1, 0, 0]
    assert values[2, 1:4].tolist() == [0, 0, 0]
    assert values[20].tolist() == [0, 0, 0, 1, 0]
    # Another table, with other texts, has the features of the first.
    other = written(tmp_path / "o.csv", "town,built,area,x\nJena,1990,,a\nKiel,,70,b\n")
    _, inputs = read_inputs(other, None, names)
    assert inputs[:, 1:4].tolist() == [[0, 0, 0], [0, 1, 0]]
    assert np.isnan(inputs[0, 0])
    assert inputs[1, 0] == 70
    warned = "column town has texts that were not in the training data: Jena; they count as missing"
    assert warned in caplog.text
    with pytest.raises(InvalidArgumentError, match=r"ignore_columns: .*got 'price'"):
        load_own(str(table), target="price", ignored=["price"])


@pytest.mark.parametrize(("text", "target", "words"), TABLES)
def test_tables_that_are_refused(tmp_path: Path, text: str, target: str | None, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        load_own(str(written(tmp_path / "t.csv", text)), target=target)


def test_parquet_needs_pyarrow_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(FailedPreconditionError, match=r"needs pyarrow; pip install 'tensorbow\[parquet\]'"):
        load_own(str(written(tmp_path / "t.parquet", "")))


def test_a_table_in_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"a": [1.0, 2.0, 3.0, 4.0, 5.0], "kind": ["x", "y", "x", "y", "x"]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    assert splits(tmp_path / "t.parquet", target="kind").train.classes == 2
    prices = [Decimal("1.5"), None, Decimal("2.5"), Decimal("4"), Decimal("3")]
    parquet.write_table(pyarrow.table({**columns, "price": prices}), tmp_path / "d.parquet")
    found = splits(tmp_path / "d.parquet", target="kind").train
    assert isinstance(found, tb.data.ArrayDataset)
    assert found.feature_names == ("a", "price")


def test_a_folder_of_pictures_by_class(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for split, count in (("train", 3), ("test", 1)):
        for number, name in enumerate(("cat", "dog")):
            (tmp_path / split / name).mkdir(parents=True)
            for index in range(count):
                picture = image.new("RGB", (6, 5), (90 * number, index, 0))
                picture.save(tmp_path / split / name / f"{index}.png")
    found = splits(tmp_path)
    train = found.train
    assert isinstance(train, tb.data.ImageDataset)
    assert (train.image_shape, train.class_names) == ((5, 6, 3), ("cat", "dog"))
    assert (train.labels.tolist(), found.test.arrays[1].tolist()) == ([0, 0, 0, 1, 1, 1], [0, 1])
    assert splits(tmp_path, image_size=(4, 4)).train.specs[0].dims == (None, 4, 4, 3)
    image.new("RGB", (9, 9)).save(tmp_path / "train" / "dog" / "big.png")
    with pytest.raises(InvalidArgumentError, match="the first picture has 6x5; give --image-size 5x6"):
        load_own(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match="no folders of pictures, one for each class"):
        load_own(str(tmp_path / "empty"))


def test_a_function_that_makes_the_data(tmp_path: Path) -> None:
    code = "import numpy as np\ndef make():\n    x = np.ones((6, 2))\n    return (x, x), (x, x), (x, x)\n"
    path = written(tmp_path / "made.py", f"{code}def bad():\n    return 1 / 0\ndef none(): pass\n")
    found = splits(f"{path}:make")
    assert found.validation is not None
    assert (len(found.train), len(found.validation), len(found.test)) == (6, 6, 6)
    with pytest.raises(InvalidArgumentError, match=r"made\.py:6 in bad: ZeroDivisionError"):
        load_own(f"{path}:bad")
    with pytest.raises(InvalidArgumentError, match="expected the function to return"):
        load_own(f"{path}:none")


SPLITS: list[tuple[Any, tuple[int, int | None, int]]] = [
    ((X, Y), (16, None, 4)),
    (((X, Y), (X[:6], Y[:6])), (20, None, 6)),
    (((X, Y), None, (X[:6], Y[:6])), (20, None, 6)),
    ({"train": (X, Y), "test": (X[:5], Y[:5])}, (20, None, 5)),
    (tb.data.Dataset.from_tensor_slices((X, Y)), (16, None, 4)),
    (({"a": X, "b": X}, Y), (16, None, 4)),
    (X, (16, None, 4)),
]


@pytest.mark.parametrize(("data", "sizes"), SPLITS)
def test_forms_of_data(data: Any, sizes: tuple[int, int | None, int]) -> None:
    found = tb.data.splits_of(data)
    validation = None if found.validation is None else len(found.validation)
    assert (len(found.train), validation, len(found.test)) == sizes


def test_held_out_examples_are_drawn_by_the_seed_and_said() -> None:
    said: list[str] = []
    first, same, other = (
        tb.data.splits_of((X, Y), validation_split=0.25, seed=seed, say=said.append) for seed in (1, 1, 2)
    )
    assert said[:2] == [
        "data/test: 4 of 20 examples, drawn by split seed 1",
        "data/validation: 4 of 16 examples, drawn by split seed 1",
    ]
    parts = [first.train, first.validation, first.test]
    rows = np.concatenate([part.arrays[0] for part in parts if part is not None])
    assert sorted(rows[:, 0]) == pytest.approx(sorted(X[:, 0]))
    assert (first.test.arrays[0] == same.test.arrays[0]).all()
    assert not (first.test.arrays[0] == other.test.arrays[0]).all()


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: tb.data.splits_of("x"), r"expected \(train, test\) or"),
    (lambda: tb.data.splits_of(((X, Y), (X[:, :2], Y))), "expected examples like those to train with"),
    (lambda: tb.data.splits_of((X, Y[:4])), "with the same number of examples"),
    (lambda: tb.data.ArrayDataset(X.tolist(), Y), r"^.{,400}more; a list is taken as several inputs"),
    (lambda: tb.data.splits_of((np.array(["a", "b"]), Y[:2])), "expected an array of numbers"),
    (lambda: tb.data.splits_of((X[:1], Y[:1])), "test_split: .*leaves none to train with"),
    (lambda: tb.data.ArrayDataset(X, Y, classes=2), r"expected labels in 0\.\.1, got 2"),
    (lambda: augmentation_of("flip:2"), "expected no number behind flip, got 'flip:2'"),
    (lambda: augmentation_of("cutout:-1"), "expected a whole number of pixels, 0 to 9999 behind cutout"),
    (lambda: augmentation_of("colour:2"), "expected a number from 0 to 1 behind colour, got 'colour:2'"),
    (lambda: augmentation_of("rotate:x"), "expected a number from 0 to 180 behind rotate"),
    (lambda: augmentation_of("cutout,erase"), "expected cutout or erase, got cutout 8 and erase 0.5"),
    (lambda: augmentation_of("flop"), r"expected flip, .* or none, got 'flop'; did you mean flip\?"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_data_that_are_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        make()


def test_augmentations_by_name() -> None:
    assert augmentation_of("flip, crop:2") == CropAndFlip(2, flip=True)
    assert augmentation_of("none") is None
    assert augmentation_of("cutout:6,flip", 0.5) == PictureChanges(
        CropAndFlip(0, flip=True), cutout=6, level=128
    )
    assert augmentation_of("cutout") == PictureChanges(cutout=8)
    assert augmentation_of("rotate:20,vflip,erase,crop") == PictureChanges(
        CropAndFlip(4, flip=False), flip_vertical=True, rotation=20, erase=0.5
    )
    assert augmentation_of("colour:0.3,contrast:0") == PictureChanges(brightness=0.3, saturation=0.3)


def test_inputs_to_predict_from(tmp_path: Path) -> None:
    spec = tb.TensorSpec([None, 2], tb.float32)
    table = written(tmp_path / "t.csv", "b,other,a\n1,x,2\n3,y,4\n")
    names, inputs = read_inputs(table, spec, ("a", "b"))
    assert (names, inputs.tolist()) == (["0", "1"], [[2, 1], [4, 3]])
    np.savez(tmp_path / "n.npz", a=X, b=X, y=Y)
    assert {*read_inputs(tmp_path / "n.npz", {"a": spec, "b": spec})[1]} == {"a", "b"}
    with pytest.raises(InvalidArgumentError, match="expected arrays x, got a, b, y"):
        read_inputs(tmp_path / "n.npz", spec)
    with pytest.raises(InvalidArgumentError, match=r"expected the columns of the training data \(a, c\)"):
        read_inputs(table, spec, ("a", "c"))


def test_loaders_of_pytorch_get_a_hint() -> None:
    loader = type("DataLoader", (), {"__module__": "torch.utils.data.dataloader"})()
    for data in (loader, (loader, loader)):
        with pytest.raises(InvalidArgumentError, match="a DataLoader goes into the input_fn"):
            tb.data.splits_of(data)
