"""Tensors by name of a checkpoint in one file or in shards; shards that are not needed are not read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tensorbow.checkpoint_files.arrays_file import load_arrays
from tensorbow.checkpoint_files.checkpoint_paths import existing_file
from tensorbow.checkpoint_files.shards import INDEX, ShardIndex
from tensorbow.checkpoint_files.slice_texts import index_of_slice
from tensorbow.errors import DataLossError, NotFoundError
from tensorbow.kinds import AsPath, checked
from tensorbow.missing_names import did_you_mean
from tensorbow.specs import Array, DType, as_dtype


class CheckpointReader:
    """Tensors and metadata of a checkpoint.

    Raises NotFoundError with TensorFlow's message if there is none, DataLossError for a damaged one.
    """

    def __init__(self, save_path: str | os.PathLike[str]):
        self.path = existing_file(save_path)
        self._index: ShardIndex | None = None
        self._shards: dict[int, Mapping[str, Array]] = {}
        self._arrays: dict[str, Array] = {}  # whole ones that were read
        try:
            if self.path.suffix == INDEX:
                self._index = ShardIndex.read(self.path)
                self.metadata: Mapping[str, Any] = self._index.metadata
            else:
                self._arrays, self.metadata = load_arrays(self.path)
        except NotFoundError:
            raise NotFoundError(
                f"The passed save_path is not a valid checkpoint: there is no file {self.path}"
            ) from None

    def extents(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors, by name."""
        if self._index is None:
            return {name: array.shape for name, array in self._arrays.items()}
        return {name: extents for name, (extents, _) in self._index.tensors.items()}

    def has_tensor(self, tensor_str: str) -> bool:
        """True if the checkpoint has a tensor of that name."""
        return tensor_str in self.extents()

    def get_tensor(self, tensor_str: str) -> Array:
        """The tensor of that name. Raises NotFoundError."""
        if not self.has_tensor(tensor_str):
            raise NotFoundError(
                f"Key {tensor_str} not found in checkpoint {self.path}"
                f"{did_you_mean(tensor_str, self.extents())}"
            )
        return self.tensor(tensor_str)

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Shapes of all tensors, as lists, by name."""
        return {name: list(extents) for name, extents in self.extents().items()}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """Dtypes of all tensors, by name."""
        return {name: as_dtype(self.tensor(name).dtype) for name in self.extents()}

    def tensor(self, name: str, cut: str = "") -> Array:
        """A tensor of that name, or a slice of it, as text. Raises DataLossError."""
        if self._index is None:
            return self._arrays[name][index_of_slice(cut)] if cut else self._arrays[name]
        extents, parts = self._index.tensors[name]
        for number, key, stored in parts:
            if stored == cut:
                return self._stored(number, key)
        whole = self._arrays.get(name)
        if whole is None:
            whole = self._arrays[name] = self._joined(name, extents, parts)
        return whole[index_of_slice(cut)] if cut else whole

    def tensors(self) -> dict[str, Array]:
        """All tensors, by name."""
        return {name: self.tensor(name) for name in self.extents()}

    def _joined(self, name: str, extents: tuple[int, ...], parts: Any) -> Array:
        first = self._stored(*parts[0][:2])
        if not parts[0][2]:
            return first
        whole = np.empty(extents, first.dtype)
        filled = 0
        for number, key, cut in parts:
            part, index = self._stored(number, key), index_of_slice(cut)
            if part.shape != whole[index].shape:
                raise DataLossError(f"{self.path}: {key} does not fit its slice; use an earlier checkpoint")
            whole[index] = part
            filled += part.size
        if filled != whole.size:
            raise DataLossError(
                f"{self.path}: {name} has {whole.size} elements, its slices {filled}; use an earlier "
                "checkpoint"
            )
        return whole

    def _stored(self, number: int, key: str) -> Array:
        if self._index is None:
            return self._arrays[key]
        if number not in self._shards:
            name, checksum = self._index.shards[number]
            path = self.path.with_name(name)
            try:
                self._shards[number] = load_arrays(path, checksum=checksum)[0]
            except NotFoundError:
                raise DataLossError(
                    f"{self.path}: its shard {path} is missing; use an earlier checkpoint"
                ) from None
        try:
            return self._shards[number][key]
        except KeyError:
            raise DataLossError(
                f"{self.path}: {key} is not in its shard; use an earlier checkpoint"
            ) from None


def load_checkpoint(save_path: str | os.PathLike[str]) -> tuple[Path, dict[str, Array], Mapping[str, Any]]:
    """Reads a checkpoint: its file, arrays by name, and metadata. Raises what `CheckpointReader` raises."""
    reader = CheckpointReader(save_path)
    return reader.path, reader.tensors(), reader.metadata


@checked
def list_variables(save_path: AsPath) -> list[tuple[str, list[int]]]:
    """(name, shape) of all variables of a checkpoint, sorted by name. Raises NotFoundError, DataLossError."""
    extents = CheckpointReader(save_path).extents()
    return [(name, list(extents[name])) for name in sorted(extents)]
