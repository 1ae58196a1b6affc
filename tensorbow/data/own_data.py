"""Data of a user's own: array archives, tables, folders of pictures by class, Python functions."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorbow.data.array_dataset import ArrayDataset
from tensorbow.data.dataset_files import mode_of
from tensorbow.data.image_dataset import ImageDataset, pixel_statistics
from tensorbow.data.numpy_files import read_numpy_archive, read_numpy_file
from tensorbow.data.prediction_inputs import (
    SUFFIXES,
    image_extents_of,
    is_hidden,
    picture_files,
    read_pictures,
)
from tensorbow.data.tables import features_of, read_table, table_dataset
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.files import shown
from tensorbow.kinds import shown as shown_value
from tensorbow.nest import flatten
from tensorbow.specs import Array
from tensorbow.user_code import called_by_name, errors_of_user, find_object, is_object_name

TABLES = (".csv", ".parquet")
_PARTS = {
    "train": "train",
    "test": "test",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
}
_INPUTS, _LABELS = (
    ("x", "inputs", "input", "images", "data", "features"),
    ("y", "labels", "label", "targets", "target"),
)


def name_of_data(data: str) -> str:
    """Short name of data: of a file its stem, of FILE.py:FUNCTION the function's."""
    name = data.rpartition(":")[2] if is_object_name(data) else Path(data).resolve().stem
    return re.sub(r"[^\w.-]+", "_", name) or "data"


def load_own(
    data: str,
    *,
    target: str | None = None,
    ignored: Sequence[str] = (),
    image_size: tuple[int, int] | None = None,
    feature_names: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
) -> Any:
    """Data as `splits_of` takes it: of a .npz, .csv or .parquet file, a folder of pictures, or a function.

    target: the column of a table, or the array of an archive, to predict. ignored: columns of a table to
    leave out. image_size: (height, width) of a folder's pictures. feature_names: of the model that a table is
    for. say: called with a line about a table's texts and missing values. Raises NotFoundError,
    InvalidArgumentError with the line for a user's function, DataLossError for damaged files.
    """
    if is_object_name(data):
        return _made_by_user(data)
    path = Path(os.path.expanduser(data))
    mode = mode_of(path)
    if mode is None:
        raise NotFoundError(
            f"data: there is no file or folder {shown(path)}; give a file, a folder, or FILE.py:FUNCTION"
        )
    if stat.S_ISDIR(mode):
        return _from_folder(path, image_size)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _from_archive(path, target)
    if suffix in TABLES:
        return table_dataset(read_table(path), target, shown(path), ignored, feature_names, say)
    raise InvalidArgumentError(
        "data: expected a .npz, .csv or .parquet file, a folder of pictures or FILE.py:FUNCTION, got "
        f"{shown(path)}"
    )


def read_inputs(path: Path, specs: Any, feature_names: Sequence[str] = ()) -> tuple[list[str], Any]:
    """Names (indices) of examples, and inputs of a model in the nest of `specs`, from a file.

    path: .npy of one input, .npz with inputs by name, .csv or .parquet. feature_names: columns of the table
    that the model was trained with. Raises NotFoundError, InvalidArgumentError, DataLossError.
    """
    if mode_of(path) is None:
        raise NotFoundError(f"there is no file or folder {shown(path)}")
    suffix = path.suffix.lower()
    inputs: Any = None
    if suffix in TABLES:
        inputs = features_of(read_table(path), feature_names, shown(path))
    elif suffix == ".npy":
        inputs = read_numpy_file(path, lambda dtype, shape: None)
    elif suffix == ".npz":
        arrays = read_numpy_archive(path)
        wanted = specs if isinstance(specs, Mapping) else None
        if wanted is not None and set(wanted) <= set(arrays):
            inputs = {name: arrays[name] for name in wanted}
        elif wanted is None:
            inputs = next((arrays[name] for name in arrays if name.lower() in _INPUTS), None)
            inputs = next(iter(arrays.values())) if inputs is None and len(arrays) == 1 else inputs
        if inputs is None:
            expected = ", ".join(wanted) if wanted is not None else "x"
            raise InvalidArgumentError(
                f"{shown(path)}: expected arrays {expected}, got {', '.join(arrays) or 'none'}"
            )
    else:
        raise InvalidArgumentError(f"expected a .npy, .npz, .csv or .parquet file, got {shown(path)}")
    return [str(number) for number in range(len(next(iter(flatten(inputs)))))], inputs


def _made_by_user(data: str) -> Any:
    found = find_object(data, "data")
    if not callable(found.value):
        return found.value
    with errors_of_user(f"data {data}", found.file):
        made = called_by_name(found.value)
    if made is None:
        raise InvalidArgumentError(
            f"data {data}: expected the function to return (train, test) or (train, validation, test), "
            f"got {shown_value(made)}"
        )
    return made


def _from_archive(path: Path, target: str | None) -> Any:
    """Splits of the arrays in a .npz file, which their names assign."""
    arrays = read_numpy_archive(path)
    parts: dict[str, dict[str, Array]] = {}
    for name, array in arrays.items():
        part, role = _part_and_role(name)
        parts.setdefault(part, {})[role] = array
    if "train" not in parts:
        raise InvalidArgumentError(
            f"{shown(path)}: expected arrays as x and y, or x_train, y_train, x_test, y_test; it has "
            f"{', '.join(arrays) or 'none'}"
        )
    wanted = None if target is None else _part_and_role(target)[1] or target
    return {part: _roles(found, f"{shown(path)}/{part}", wanted) for part, found in parts.items()}


def _part_and_role(name: str) -> tuple[str, str]:
    """Split and role of an array: of x_train `train` and `x`."""
    words = re.split(r"[_./-]", name)
    part = next((_PARTS[word.lower()] for word in words if word.lower() in _PARTS), "train")
    return part, "_".join(word for word in words if word.lower() not in _PARTS)


def _roles(arrays: Mapping[str, Array], name: str, target: str | None) -> ArrayDataset:
    """Inputs and labels among the arrays of one split. target: name of the labels, if it was given."""
    if target is not None and target not in arrays:
        raise InvalidArgumentError(
            f"target: expected an array of {name}, one of {', '.join(arrays)}; got {target!r:.60}"
        )
    labels = [key for key in arrays if key.lower() in _LABELS] if target is None else [target]
    others = {key: array for key, array in arrays.items() if key not in labels}
    if len(labels) > 1 or not others or (not labels and len(others) > 1):
        raise InvalidArgumentError(
            f"{name}: expected inputs, by the name {', '.join(_INPUTS)} or several arrays, and labels, by "
            f"the name {', '.join(_LABELS)}; got {', '.join(arrays)}; choose the labels by --target NAME "
            "(inputs without labels: one array, or a function that returns them)"
        )
    only = next(iter(others))
    inputs: Any = others[only] if len(others) == 1 and only.lower() in _INPUTS else others
    if len(others) == 1 and only.lower() not in _INPUTS and labels:
        inputs = others[only]
    return ArrayDataset(inputs, arrays[labels[0]] if labels else None, name=name)


def _from_folder(path: Path, image_size: tuple[int, int] | None) -> Any:
    """Splits of pictures in folders by class, below train, validation and test where these are."""
    below = {each.name.lower(): each for each in sorted(path.iterdir()) if each.is_dir()}
    parts = {_PARTS[name]: folder for name, folder in below.items() if name in _PARTS}
    folders = {"train": path} if "train" not in parts else parts
    classes = sorted(
        each.name for each in folders["train"].iterdir() if each.is_dir() and not is_hidden(each.name)
    )
    if not classes:
        raise NotFoundError(
            f"data: {shown(path)} has no folders of pictures, one for each class, as {shown(path)}/cat/1.png"
        )
    files = [file for name in classes for file in picture_files(folders["train"] / name)]
    if not files:
        raise NotFoundError(
            f"data: the folders of {shown(folders['train'])} hold no picture ({', '.join(SUFFIXES)})"
        )
    height, width, channels = image_extents_of(files[0])
    if any(image_extents_of(file)[2] > channels for file in (files if channels == 1 else ())):
        channels = 3  # some are grey, others not
    extents = (*(image_size or (height, width)), channels)
    found = {
        part: _of_classes(folder, classes, extents, image_size is not None)
        for part, folder in folders.items()
    }
    mean, std = pixel_statistics(found["train"][0])
    return {
        part: ImageDataset(
            f"{path.name}/{part}", *arrays, len(classes), mean, std or 1.0, class_names=tuple(classes)
        )
        for part, arrays in found.items()
    }


def _of_classes(
    folder: Path, classes: list[str], extents: tuple[int, int, int], resize: bool
) -> tuple[Array, Array]:
    found = {each.name for each in folder.iterdir() if each.is_dir() and not is_hidden(each.name)}
    unknown = sorted(found - {*classes})
    if unknown:
        raise InvalidArgumentError(
            f"data: {shown(folder)} has a class to train no example of: {', '.join(unknown)}"
        )
    pictures, labels = [], []
    for number, name in enumerate(classes):
        if not (folder / name).is_dir():
            continue
        try:
            _, images = read_pictures(folder / name, extents, resize)
        except InvalidArgumentError as error:
            text = (
                str(error)
                .replace("the model takes", "the first picture has")
                .replace("add --resize", f"give --image-size {extents[0]}x{extents[1]}")
            )
            raise InvalidArgumentError(f"data: {text}") from None
        except NotFoundError as error:
            raise NotFoundError(f"data: {error}; remove it, or put pictures of its class there") from None
        pictures.append(images)
        labels.append(np.full(len(images), number, np.int64))
    return np.concatenate(pictures), np.concatenate(labels)
