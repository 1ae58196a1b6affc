import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from tensorbow.data import DATA_DIR_VARIABLE, BatchOrder, load
from tensorbow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
TRAIN, TEST = 13, 5


def idx(values):
    shape = values.shape
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + values.tobytes()


def contents(train=TRAIN, test=TEST):
    generator = np.random.default_rng(5)
    arrays = []
    for examples in (train, test):
        arrays.append(generator.integers(0, 256, (examples, 28, 28), dtype=np.uint8))
        arrays.append((np.arange(examples) % 10).astype(np.uint8))
    return dict(zip(NAMES, arrays, strict=True))


def write(folder, packed=False, dotted=False, without=(), **changes):
    folder.mkdir(parents=True, exist_ok=True)
    arrays = contents()
    for name, values in {**arrays, **changes}.items():
        if name in without:
            continue
        path = folder / (name.replace("-idx", ".idx") if dotted else name)
        content = values if isinstance(values, bytes) else idx(values)
        if packed:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(content, mtime=0))
        else:
            path.write_bytes(content)
    return arrays


@pytest.mark.parametrize("below", ["", "mnist", "MNIST/raw", "MNIST", "raw"])
@pytest.mark.parametrize(("packed", "dotted"), [(False, False), (True, False), (False, True), (True, True)])
def test_every_place_and_form_is_found(tmp_path, below, packed, dotted):
    arrays = write(tmp_path / below, packed, dotted)
    train, test = load("mnist", tmp_path)
    np.testing.assert_array_equal(train.images[..., 0], arrays[NAMES[0]])
    np.testing.assert_array_equal(train.labels, arrays[NAMES[1]])
    np.testing.assert_array_equal(test.images[..., 0], arrays[NAMES[2]])
    np.testing.assert_array_equal(test.labels, arrays[NAMES[3]])
    assert train.images.shape == (TRAIN, 28, 28, 1)
    assert train.mean == test.mean == pytest.approx(arrays[NAMES[0]].mean() / 255)
    assert train.std == test.std == pytest.approx(arrays[NAMES[0]].std() / 255)


def test_the_environment_names_the_folder_and_the_option_wins(tmp_path, monkeypatch):
    write(tmp_path / "one")
    (tmp_path / "two").mkdir()
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "one"))
    assert len(load("mnist")[0]) == TRAIN
    assert len(load("mnist", "")[0]) == TRAIN
    with pytest.raises(NotFoundError, match="two"):
        load("mnist", tmp_path / "two")


def test_a_home_folder_is_expanded(tmp_path, monkeypatch):
    write(tmp_path / "sets")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert len(load("mnist", "~/sets")[0]) == TRAIN


def assert_says_where_to_get_it(message):
    assert "torchvision.datasets.MNIST(root, download=True)" in message
    assert "https://ossci-datasets.s3.amazonaws.com/mnist/" in message
    assert "'digits' needs no download" in message
    assert "\n" not in message


def test_no_folder_given(monkeypatch):
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    with pytest.raises(
        NotFoundError, match="no folder was given: pass --data-dir or set TENSORBOW_DATA"
    ) as raised:
        load("mnist")
    assert_says_where_to_get_it(str(raised.value))


def test_a_folder_that_does_not_exist_is_named_with_its_origin(tmp_path, monkeypatch):
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(NotFoundError, match=r"gone' \(from TENSORBOW_DATA\) does not exist") as raised:
        load("mnist")
    assert_says_where_to_get_it(str(raised.value))
    with pytest.raises(NotFoundError, match=r"other' \(from --data-dir\) does not exist"):
        load("mnist", tmp_path / "other")


def test_an_empty_folder_says_what_was_looked_for_and_where(tmp_path):
    with pytest.raises(NotFoundError) as raised:
        load("mnist", tmp_path)
    message = str(raised.value)
    for words in (*NAMES, "MNIST", "raw", "plain or .gz", str(tmp_path)):
        assert words in message
    assert_says_where_to_get_it(message)


def test_only_what_is_missing_is_named(tmp_path):
    write(tmp_path / "MNIST" / "raw", without=[NAMES[2]])
    with pytest.raises(NotFoundError, match=f"'mnist': {NAMES[2]} not found .*raw' has the others"):
        load("mnist", tmp_path)


def test_files_of_two_folders_are_not_mixed(tmp_path):
    write(tmp_path, without=NAMES[:2])
    write(tmp_path / "raw", without=NAMES[2:])
    with pytest.raises(NotFoundError, match="all four in one folder"):
        load("mnist", tmp_path)


def test_a_folder_that_bears_a_file_name_is_passed_over(tmp_path):
    (tmp_path / NAMES[0]).mkdir()
    write(tmp_path, dotted=True)
    assert len(load("mnist", tmp_path)[0]) == TRAIN


def test_a_file_instead_of_the_folder(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidArgumentError, match=r"file' \(from --data-dir\) is not a folder"):
        load("mnist", tmp_path / "file")


def test_paths_that_are_none(tmp_path):
    with pytest.raises(InvalidArgumentError, match="load: expected data_dir to be a path or None") as raised:
        load("mnist", "bad\0name\n")
    assert "\n" not in str(raised.value)
    with pytest.raises(NotFoundError) as missing:
        load("mnist", tmp_path / "two\nlines")
    assert "\n" not in str(missing.value)


@pytest.mark.skipif(not hasattr(os, "symlink") or os.name == "nt", reason="needs symbolic links")
def test_a_loop_of_links_is_told(tmp_path):
    write(tmp_path)
    (tmp_path / NAMES[0]).unlink()
    (tmp_path / NAMES[0]).symlink_to(NAMES[0])
    with pytest.raises((FailedPreconditionError, NotFoundError), match=NAMES[0]):
        load("mnist", tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    write(tmp_path, without=[NAMES[1]])
    os.mkfifo(tmp_path / NAMES[1])
    with pytest.raises(FailedPreconditionError, match=f"{NAMES[1]}' is not a regular file"):
        load("mnist", tmp_path)


def test_a_truncated_gzip_file_is_named(tmp_path):
    write(tmp_path, packed=True)
    path = tmp_path / f"{NAMES[0]}.gz"
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DataLossError, match=rf"{NAMES[0]}\.gz' is damaged.*truncated or corrupt"):
        load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({NAMES[3]: np.array([0, 1, 10, 3, 4], np.uint8)}, f"{NAMES[3]}' is damaged: label 2 is 10"),
        ({NAMES[1]: np.zeros(TRAIN + 1, np.uint8)}, "holds 13 pictures and .* 14 labels: they do not belong"),
        (
            {NAMES[2]: np.zeros((TEST, 27, 28), np.uint8)},
            f"{NAMES[2]}' is damaged.*dimension 1 is 27 where 28",
        ),
        ({NAMES[2]: np.zeros(TEST, np.uint8)}, "has 1 dimensions where 3"),
        ({NAMES[0]: np.full((TRAIN, 28, 28), 7, np.uint8)}, "all its pixels are equal"),
        ({NAMES[0]: b"<html>not found</html>"}, f"{NAMES[0]}' is damaged or not the file expected"),
    ],
)
def test_damaged_content_names_the_file(tmp_path, changes, words):
    write(tmp_path, **changes)
    with pytest.raises(DataLossError, match=words) as raised:
        load("mnist", tmp_path)
    assert "\n" not in str(raised.value)


def published_folder():
    """The folder with the published files: the environment's, or `shared/data` beside the repository."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    for folder in (os.environ.get(DATA_DIR_VARIABLE), beside):
        if folder and Path(folder).is_dir():
            try:
                load("mnist", folder)
            except NotFoundError:
                continue
            return Path(folder)
    return pytest.skip(f"the published MNIST files are not here: set {DATA_DIR_VARIABLE} to their folder")


def test_the_published_files():
    train, test = load("mnist", published_folder())
    assert train.images.shape == (60000, 28, 28, 1)
    assert test.images.shape == (10000, 28, 28, 1)
    assert (round(train.mean, 4), round(train.std, 4)) == (0.1307, 0.3081)
    assert train.labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert test.labels[:8].tolist() == [7, 2, 1, 0, 4, 1, 4, 9]
    assert np.bincount(train.labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]

    images, labels = np.empty((16, 28, 28, 1), np.float32), np.empty(16, np.int64)
    train.fill(BatchOrder(len(train), 16, seed=1).indices(0, 3749), images, labels)
    assert np.isfinite(images).all()
