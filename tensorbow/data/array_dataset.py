"""One split of a data set in memory: arrays of any shape, one or several inputs, with labels or without."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorbow.array_likes import as_array
from tensorbow.data.array_rows import ArrayRows
from tensorbow.data.augmentation import BatchKey
from tensorbow.data.image_dataset import ImageDataset
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import Kind, Names, Positive, RefusedError, Text, checked, instance
from tensorbow.nest import flatten, map_leaves, named_leaves
from tensorbow.ops.elementwise import is_nan, multiply, subtract
from tensorbow.ops.selection import select
from tensorbow.specs import COMPILED, Array, TensorSpec, as_dtype

_MOST_CLASSES = 1 << 20
LabelScale: TypeAlias = tuple[Array, Array]
"""Mean and standard deviation of labels that are numbers, float64 [] or [columns]."""


def _read_standardisation(value: Any) -> tuple[Array, Array]:
    if not isinstance(value, (list, tuple)) or len(value) != 2 or np.shape(value[0]) != np.shape(value[1]):
        raise RefusedError
    return np.asarray(value[0], np.float64), np.asarray(value[1], np.float64)


Standardisation: TypeAlias = Annotated[
    tuple[Array, Array], Kind("a pair, mean and standard deviation", _read_standardisation)
]
_KEPT = {np.dtype(dtype.as_numpy_dtype) for dtype in COMPILED} - {np.dtype(np.float64)}
_AS = {"f": np.float32, "i": np.int64, "u": np.int64, "b": np.bool_}  # other dtypes become these, by kind


class ArrayDataset(ArrayRows):
    """One split of a data set: nests of arrays `[examples, ...]`, the inputs of a model and its labels.

    Floating arrays of another precision become float32, as models compute in it; integers of dtypes that
    tensors do not have, and integer labels [examples], become int64.
    """

    unit = "examples"  # what a throughput counts: rows, sequences, or else

    @checked
    def __init__(
        self,
        inputs: Any,
        labels: Any = None,
        *,
        name: Text = "arrays",
        classes: Positive | None = None,
        class_names: Names = (),
        feature_names: Names = (),
        standardisation: Standardisation | None = None,
        label_scale: LabelScale | None = None,
    ):
        """inputs, labels: an array, or a dictionary or tuple of arrays; labels may be None.

        classes: number of classes of labels 0..classes-1; by default one more than the greatest, if the
        labels are one array of integers of at least 0. class_names: by class; labels [examples] that are
        texts have themselves as names, in their order, and are numbered by it. feature_names: of the columns
        of inputs [examples, columns]. standardisation: mean and standard deviation `[columns]`; the model
        gets (inputs - mean) / std, and 0 for NaN, a missing value.
        label_scale: mean and standard deviation of labels that are numbers, given
        to models that have an argument of this name; `splits_of` sets it by the training split.
        Raises InvalidArgumentError for arrays of different numbers of examples, of no examples or no numbers.
        """
        labels, names = numbered(labels)
        class_names, classes = names or class_names, len(names) or classes
        nest = {"inputs": inputs} if labels is None else {"inputs": inputs, "labels": labels}
        arrays = map_leaves(_number_array, nest, name)
        if isinstance(arrays.get("labels"), np.ndarray) and arrays["labels"].ndim == 1:
            arrays["labels"] = _class_numbers(arrays["labels"])
        self.inputs, self.labels = arrays["inputs"], arrays.get("labels")
        self.standardisation, self.label_scale = standardisation, label_scale
        self.class_names, self.feature_names = tuple(class_names), tuple(feature_names)
        counts = {path: array.shape[:1] for path, array in named_leaves(arrays, name)}
        if not flatten(self.inputs) or len(set(counts.values())) != 1 or set(counts.values()) <= {(), (0,)}:
            got = ", ".join(f"{path} {list(shape)}" for path, shape in [*counts.items()][:4]) or "no inputs"
            if len(counts) > 4:
                got += f" and {len(counts) - 4} more; a list is taken as several inputs; use numpy.array"
            raise InvalidArgumentError(
                f"{name}: expected arrays [examples, ...] with the same number of examples, got {got}"
            )
        super().__init__(flatten(arrays))
        self.name = name
        self.classes = self._counted_classes() if classes is None else classes
        if classes is not None and (found := self._counted_classes()) is not None and found > classes:
            raise InvalidArgumentError(f"{name}: expected labels in 0..{classes - 1}, got {found - 1}")

    def _counted_classes(self) -> int | None:
        """One more than the greatest label; None if the labels are no classes."""
        labels = self.labels
        if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu" or labels.min() < 0:
            return None
        classes = int(labels.max()) + 1
        return classes if classes <= _MOST_CLASSES else None

    def __repr__(self) -> str:
        shapes = ", ".join(f"{path} {spec}" for path, spec in named_leaves(self.specs[0], "inputs"))
        return f"<tb.data.ArrayDataset {self.name!r}: {len(self):,} examples of {shapes}>"

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.arrays[0])

    @property
    def numbers(self) -> Array | None:
        """Labels that are numbers to regress, float32 [examples] or [examples, columns]; None for others."""
        labels = self.labels
        is_numbers = isinstance(labels, np.ndarray) and labels.dtype.kind == "f" and labels.ndim in (1, 2)
        return labels if is_numbers else None

    @property
    def specs(self) -> tuple[Any, Any]:
        """Specs of inputs and labels, `[None, ...]`, in nests like them; None for no labels."""
        nest = (self.inputs, self.labels) if self.labels is not None else (self.inputs,)
        inputs, *labels = map_leaves(
            lambda _, array: TensorSpec((None, *array.shape[1:]), as_dtype(array.dtype)), nest, "data"
        )
        return inputs, labels[0] if labels else None

    def write(
        self, indices: NDArray[np.int64], slot: Sequence[Array], scratch: Any, key: BatchKey | None
    ) -> None:
        """Writes the examples `indices`, int64 [n], into arrays like those of `batch_specs`."""
        for array, out in zip(self.arrays, slot, strict=True):
            np.take(array, indices, axis=0, out=out, mode="clip" if indices.size else "raise")

    def scratch(self, count: int) -> None:
        """No memory is needed by `write`."""

    def take(self, rows: NDArray[np.int64], name: str) -> ArrayDataset:
        """A data set of some of the examples, in this order, with the same classes."""
        nest = (self.inputs, self.labels) if self.labels is not None else (self.inputs,)
        inputs, *labels = map_leaves(lambda _, array: array[rows], nest, "data")
        return ArrayDataset(
            inputs,
            labels[0] if labels else None,
            name=name,
            classes=self.classes,
            class_names=self.class_names,
            feature_names=self.feature_names,
            standardisation=self.standardisation,
            label_scale=self.label_scale,
        )

    def with_labels(self, labels: NDArray[np.int64], class_names: Sequence[str]) -> ArrayDataset:
        """The same inputs with other labels, whose classes have these names."""
        return ArrayDataset(
            self.inputs,
            labels,
            name=self.name,
            classes=len(class_names),
            class_names=class_names,
            feature_names=self.feature_names,
            standardisation=self.standardisation,
        )

    def relabelled(self, labels: Array) -> ArrayDataset:
        """The same inputs with other labels, whose classes are counted anew."""
        return ArrayDataset(
            self.inputs,
            labels,
            name=self.name,
            feature_names=self.feature_names,
            standardisation=self.standardisation,
        )

    def prepared(self, inputs: Any) -> Any:
        """Inputs of the model from tensors of the inputs: standardised, if this data set is."""
        return standardised(inputs, self.standardisation)

    def facts(self) -> dict[str, Any]:
        """Number of examples and a checksum, by which a resumed run knows its data."""
        checksum = 0
        for array in self.arrays:
            checksum = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data, checksum)
        return {"examples": len(self), "crc32": checksum}

    def about(self) -> dict[str, Any]:
        """Facts that a trained model must know to compute with other examples, as JSON values."""
        inputs, labels = (map_leaves(lambda _, spec: _spec_text(spec), nest, "") for nest in self.specs)
        found: dict[str, Any] = {"inputs": inputs, "labels": labels, "classes": self.classes}
        for name in ("class_names", "feature_names"):
            if getattr(self, name):
                found[name] = list(getattr(self, name))
        if self.standardisation is not None:
            mean, std = self.standardisation
            found["standardisation"] = {"mean": mean.tolist(), "std": std.tolist()}
        if self.label_scale is not None:
            mean, std = self.label_scale
            found["label_scale"] = {"mean": mean.tolist(), "std": std.tolist()}
        return found


def standardised(inputs: Any, standardisation: tuple[Array, Array] | None) -> Any:
    """Inputs, a tensor [batch, columns], less the mean and divided by the standard deviation, if given.

    NaN, a missing value, becomes 0: the mean.
    """
    if standardisation is None:
        return inputs
    mean, std = standardisation
    scaled = multiply(subtract(inputs, mean.astype(np.float32)), (1 / std).astype(np.float32))
    return select(is_nan(scaled), 0, scaled)


def numbered(labels: Any) -> tuple[Any, Sequence[str]]:
    """Numbers int64 [examples] of labels that are texts, in their order, and the texts; else the labels."""
    try:
        array = np.asarray(labels) if isinstance(labels, (list, np.ndarray)) else labels
    except ValueError:  # rows of several lengths
        return labels, ()
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        return labels, ()
    if array.dtype.kind == "O" and all(isinstance(each, str) for each in array):
        array = array.astype(str)
    if array.dtype.kind != "U":
        return labels, ()
    names, numbers = np.unique(array, return_inverse=True)
    return numbers.astype(np.int64).reshape(-1), [str(name) for name in names]


def _class_numbers(labels: Array) -> Array:
    """Labels [examples] that are integers, of any dtype, as int64; others as they are."""
    return labels.astype(np.int64, copy=False) if labels.dtype.kind in "iu" else labels


def _number_array(path: str, leaf: Any) -> Array:
    try:
        array = as_array(leaf)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path}: {error}") from None
    if array.dtype.kind not in _AS:
        raise InvalidArgumentError(
            f"{path}: expected an array of numbers, got {array.dtype} {list(array.shape)}; encode texts"
        )
    if array.dtype in _KEPT and array.dtype.isnative:
        return array
    return array.astype(_AS[array.dtype.kind])


def _spec_text(spec: TensorSpec | None) -> str | None:
    """A spec as text, as `float32 28 28`, without the number of examples."""
    return None if spec is None else " ".join([spec.dtype.name, *map(str, spec.dims[1:])])


def spec_of_text(text: str) -> TensorSpec:
    """Spec `[None, ...]` of a text as in `ArrayDataset.about`. Raises ValueError, InvalidArgumentError."""
    dtype, *dims = text.split(" ")
    return TensorSpec((None, *map(int, dims)), as_dtype(dtype))


TrainingData: TypeAlias = ImageDataset | ArrayDataset
"""Data sets that can be trained on."""

AsTrainingData: TypeAlias = Annotated[
    TrainingData,
    instance(ImageDataset, ArrayDataset, expected="a tb.data.ImageDataset or tb.data.ArrayDataset"),
]
