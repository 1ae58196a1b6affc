"""Checkpoints in several files: shards, and an index that says which array is in which of them.

A checkpoint `model-7` of two shards is `model-7-00000-of-00002.safetensors`,
`model-7-00001-of-00002.safetensors` and `model-7.index`, JSON text that is written last. It has the shards'
checksums, so that shards of another save are not taken for those of this one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorbow.checkpoint_files.arrays_file import describe_arrays
from tensorbow.checkpoint_files.slice_texts import parse_slice
from tensorbow.errors import DataLossError, InvalidArgumentError, NotFoundError
from tensorbow.files import read_file, write_file
from tensorbow.strict_json import parse_json

INDEX = ".index"
SHARD = ".safetensors"
FORMAT = "tensorbow-shards-1"
INDEX_LIMIT = 1 << 28  # bytes
MOST_VALUES = 1 << 24  # of JSON
SLICES = "slices"  # in a shard's metadata: by the name of an array, the tensor and slice that it is
KEPT = ("kind", "momentum")  # of a shard's metadata, what the index has, too

ShardPart = tuple[
    int, str, str
]  # number of the shard, name there, and slice as text ("" for the whole tensor)


@dataclass(frozen=True)
class ShardIndex:
    """Contents of an index.

    shards: name of each file and its checksum. tensors: extents and parts by the tensor's name.
    """

    shards: tuple[tuple[str, int], ...]
    tensors: Mapping[str, tuple[tuple[int, ...], tuple[ShardPart, ...]]]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Writes the file. Equal contents give equal bytes."""
        content = {
            "format": FORMAT,
            "shards": self.shards,
            "tensors": {name: self.tensors[name] for name in sorted(self.tensors)},
            "metadata": dict(self.metadata),
        }
        write_file(path, json.dumps(content, allow_nan=False).encode())

    @classmethod
    def read(cls, path: Path) -> ShardIndex:
        """Reads a file. Raises NotFoundError if it is missing, DataLossError if it is damaged."""
        try:
            content = parse_json(read_file(path, INDEX_LIMIT).decode(), MOST_VALUES)
            if content["format"] != FORMAT or not isinstance(content["metadata"], dict):
                raise ValueError("it was not written by this library")
            shards = tuple(_shard(entry) for entry in content["shards"])
            tensors = {
                name: (_naturals(extents), tuple(_part(part, len(shards), extents) for part in parts))
                for name, (extents, parts) in content["tensors"].items()
            }
            if not all(parts for _, parts in tensors.values()):
                raise ValueError("a tensor without parts")
        except (InvalidArgumentError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataLossError(
                f"{path} is damaged or no index of a checkpoint: {str(error)[:200]}; use an earlier "
                "checkpoint"
            ) from None
        return cls(shards, tensors, content["metadata"])


def _shard(entry: Any) -> tuple[str, int]:
    name, checksum = entry
    if not isinstance(name, str) or os.path.basename(name) != name or "\0" in name or not name:
        raise ValueError(f"a shard {name!r:.80}")
    if type(checksum) is not int:
        raise ValueError(f"a checksum {checksum!r:.80}")
    return name, checksum


def _part(entry: Any, count: int, extents: Any) -> ShardPart:
    number, key, cut = entry
    texts = isinstance(key, str) and isinstance(cut, str)
    if type(number) is not int or not 0 <= number < count or not texts:
        raise ValueError(f"a part {entry!r:.80}")
    if cut and list(parse_slice(cut)[0]) != extents:
        raise ValueError(f"a slice {cut!r:.80} of another shape")
    return number, key, cut


def _naturals(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        raise ValueError(f"extents {value!r:.80}")
    return tuple(value)


def shard_name(prefix: str, number: int, count: int) -> str:
    """TensorFlow's name of a shard: `prefix-00000-of-00002`."""
    return f"{prefix}-{number:05d}-of-{count:05d}"


def merge_shards(shards: Sequence[Path], prefix: Path) -> None:
    """Makes files that were written under other names the shards of a checkpoint, and writes its index.

    Files of an earlier checkpoint of that name are replaced, and deleted if they are no part of this one.
    Raises NotFoundError for one missing, DataLossError for a damaged one, InvalidArgumentError for a tensor
    that is in two of them.
    """
    described = []
    for path in shards:
        try:
            described.append(describe_arrays(path))
        except NotFoundError:
            raise NotFoundError(
                f"there is no shard {path}: the tasks that save and the one that merges need one file system"
            ) from None
    tensors: dict[str, tuple[tuple[int, ...], tuple[ShardPart, ...]]] = {}
    for number, (_, extents, metadata) in enumerate(described):
        slices = metadata.get(SLICES, {})
        for key, own in extents.items():
            name, whole, cut = slices.get(key, (key, own, ""))
            known = tensors.get(name, (tuple(whole), ()))
            if known[0] != tuple(whole) or (known[1] and not (cut and known[1][0][2])):
                raise InvalidArgumentError(f"MergeV2Checkpoints: {name!r:.80} is in two shards; save it once")
            tensors[name] = (known[0], (*known[1], (number, key, cut)))
    names = [f"{shard_name(prefix.name, number, len(shards))}{SHARD}" for number in range(len(shards))]
    metadata = {key: described[0][2][key] for key in KEPT if described and key in described[0][2]}
    for path, name in zip(shards, names, strict=True):
        os.replace(path, prefix.with_name(name))
    checksums = [checksum for checksum, _, _ in described]
    index = ShardIndex(tuple(zip(names, checksums, strict=True)), tensors, metadata)
    index.write(prefix.with_name(f"{prefix.name}{INDEX}"))
    _delete(path for path in _shards_of(prefix) if path.name not in names)
    _delete([prefix.with_name(f"{prefix.name}{SHARD}")])


def remove_shards(prefix: Path) -> None:
    """Deletes the index and the shards of a checkpoint, if there is an index."""
    index = prefix.with_name(f"{prefix.name}{INDEX}")
    if index.is_file():
        _delete([index, *_shards_of(prefix)])


def _shards_of(prefix: Path) -> list[Path]:
    pattern = re.compile(re.escape(prefix.name) + r"-\d{5,}-of-\d{5,}" + re.escape(SHARD))
    return [prefix.with_name(name) for name in os.listdir(prefix.parent) if pattern.fullmatch(name)]


def _delete(paths: Any) -> None:
    for path in paths:
        with suppress(OSError):
            os.unlink(path)
