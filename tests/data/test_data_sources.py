import gzip
import hashlib
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorbow import data
from tensorbow.data import load, make_synthetic, register_dataset, resize_bilinear
from tensorbow.errors import AlreadyExistsError, DataLossError, InvalidArgumentError, NotFoundError


def checksum(*datasets):
    sums = hashlib.sha256()
    for dataset in datasets:
        sums.update(dataset.images.tobytes())
        sums.update(dataset.labels.astype("<i8").tobytes())
    return sums.hexdigest()[:16]


def ridge_accuracy(train, test):
    """Test accuracy of a linear classifier, fitted in closed form."""
    inputs = train.images.reshape(len(train), -1) / 255
    weights = np.linalg.solve(
        inputs.T @ inputs + np.eye(inputs.shape[1]), inputs.T @ np.eye(train.classes)[train.labels]
    )
    guesses = (test.images.reshape(len(test), -1) / 255 @ weights).argmax(axis=1)
    return float((guesses == test.labels).mean())


needs_digits = pytest.mark.skipif(find_spec("sklearn") is None, reason="digits come with scikit-learn")


@needs_digits
def test_digits_are_the_same_bytes_in_the_same_split_everywhere(monkeypatch):
    """Read without importing scikit-learn, which takes seconds."""
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    train, test = load("digits")
    assert train.images.shape == (1437, 28, 28, 1)
    assert test.images.shape == (360, 28, 28, 1)
    assert checksum(train, test) == "65f91b834e7132d7"
    assert (train.mean, train.std) == (test.mean, test.std)
    assert train.classes == 10


@needs_digits
def test_digits_are_split_by_class_and_lose_no_example():
    train, test = load("digits")
    counts = np.bincount(np.concatenate([train.labels, test.labels]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.abs(np.bincount(test.labels) - counts / 5).max() < 1
    assert ridge_accuracy(train, test) > 0.9


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(NotFoundError, match=r"scikit-learn.*pip install 'tensorbow\[data\]'") as raised:
        load("digits")
    assert "\n" not in str(raised.value)


@pytest.fixture
def other_scikit_learn(tmp_path, monkeypatch):
    """A folder of a package `sklearn` that has no file of digits, and no modules."""
    (tmp_path / "sklearn/datasets/data").mkdir(parents=True)
    (tmp_path / "sklearn/__init__.py").touch()
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "sklearn/datasets/data/digits.csv.gz"


@pytest.mark.parametrize(
    "written",
    [b"", gzip.compress(b"0,1\n" * 9)[:-9], gzip.compress(b"a,b\n"), b"1,2\n"],
    ids=["empty", "truncated", "letters", "not compressed"],
)
def test_a_file_of_digits_that_is_no_such_file(other_scikit_learn, written):
    other_scikit_learn.write_bytes(written)
    with pytest.raises(DataLossError, match=r"data set 'digits': .*scikit-learn") as raised:
        load("digits")
    assert "\n" not in str(raised.value)


def test_digits_of_a_scikit_learn_that_keeps_them_somewhere_else(other_scikit_learn, monkeypatch):
    pictures, labels = np.tile([0.0, 16.0], (1797, 8, 4)), np.arange(1797) % 10
    module = SimpleNamespace(load_digits=lambda: SimpleNamespace(images=pictures, target=labels))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", module)
    train, test = load("digits")
    assert (len(train), len(test)) == (1437, 360)
    assert (train.images.min(), train.images.max()) == (0, 255)


def test_synthetic_is_deterministic_balanced_and_learnable():
    train, test = load("synthetic")
    assert train.images.shape == (4096, 28, 28, 1)
    assert test.images.shape == (1024, 28, 28, 1)
    assert checksum(train, test) == "0972a381fd302842"
    for split in (train, test):
        counts = np.bincount(split.labels, minlength=10)
        assert counts.max() - counts.min() <= 1
    assert ridge_accuracy(train, test) > 0.95
    assert not (train.images[:1024] == test.images).all(axis=(1, 2, 3)).any()


def test_synthetic_in_another_shape():
    train, test = make_synthetic(33, 7, height=6, width=9, channels=3, classes=4)
    assert train.images.shape == (33, 6, 9, 3)
    assert test.images.shape == (7, 6, 9, 3)
    assert set(train.labels) == {0, 1, 2, 3}


def test_synthetic_refuses_sizes_that_make_no_sense():
    with pytest.raises(
        InvalidArgumentError, match="expected height to be a whole number of at least 1, got int 0"
    ):
        make_synthetic(height=0)
    with pytest.raises(InvalidArgumentError, match="3 training examples cannot show 10 classes"):
        make_synthetic(3, 3)


def reference_bilinear(image, height, width):
    """Interpolates one [h, w] picture in float64 by the definition."""
    result = np.empty((height, width))
    for row in range(height):
        for column in range(width):
            y = np.clip((row + 0.5) * image.shape[0] / height - 0.5, 0, image.shape[0] - 1)
            x = np.clip((column + 0.5) * image.shape[1] / width - 0.5, 0, image.shape[1] - 1)
            top, left = int(y), int(x)
            bottom, right = min(top + 1, image.shape[0] - 1), min(left + 1, image.shape[1] - 1)
            upper = image[top, left] * (1 - (x - left)) + image[top, right] * (x - left)
            lower = image[bottom, left] * (1 - (x - left)) + image[bottom, right] * (x - left)
            result[row, column] = upper * (1 - (y - top)) + lower * (y - top)
    return result


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(1, 4), st.integers(1, 9), st.integers(1, 8))
def test_resize_agrees_with_the_definition(data, rows, columns, height, width):
    values = data.draw(st.lists(st.integers(0, 16), min_size=rows * columns, max_size=rows * columns))
    image = np.array(values).reshape(1, rows, columns)
    resized = resize_bilinear(image, height, width, maximum=16)
    expected = reference_bilinear(image[0], height, width) * 255 / 16
    assert resized.dtype == np.uint8
    assert np.abs(resized[0] - expected).max() <= 0.5 + 1e-9


def test_resize_to_the_same_size_changes_nothing_and_bad_input_is_named():
    image = np.arange(12, dtype=np.uint8).reshape(1, 3, 4)
    np.testing.assert_array_equal(resize_bilinear(image, 3, 4), image)
    with pytest.raises(InvalidArgumentError, match=r"0\.\.11 with maximum 10"):
        resize_bilinear(image, 3, 4, maximum=10)
    with pytest.raises(InvalidArgumentError, match=r"expected images to be integers \[n, h, w\]"):
        resize_bilinear(image[0], 3, 4)
    with pytest.raises(InvalidArgumentError, match="expected height to be a whole number from 1"):
        resize_bilinear(image, 0, 4)


def test_an_unknown_name_lists_the_known():
    with pytest.raises(
        NotFoundError, match="no data set of the name 'minst'; known are cifar10, digits, mnist"
    ):
        load("minst")


def test_a_user_can_register_a_data_set_once(monkeypatch, tmp_path):
    monkeypatch.setattr("tensorbow.data.registry.DATASETS", dict(data.DATASETS))
    asked = []

    def loader(data_dir):
        asked.append(data_dir)
        return make_synthetic(12, 3)

    register_dataset("mine", loader)
    train, test = load("mine", tmp_path)
    assert (len(train), len(test), asked) == (12, 3, [tmp_path])
    with pytest.raises(AlreadyExistsError, match="'mine' is registered already"):
        register_dataset("mine", loader)


def test_every_public_name_is_there():
    assert data.DEFAULT_DATASET in data.DATASETS
    assert sorted(data.__all__) == sorted(set(data.__all__))
    for name in data.__all__:
        assert getattr(data, name) is not None
