"""State dicts of PyTorch, and safetensors files of them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tensorbow.array_likes import as_array
from tensorbow.errors import DataLossError, InvalidArgumentError
from tensorbow.files import read_file
from tensorbow.specs import Array

LARGEST = 1 << 40  # bytes of a file
WRITER = "written_by"  # in files' metadata
METADATA = {"format": "pt", WRITER: "tensorbow"}  # "pt": the layout is PyTorch's, as other readers ask for
IGNORED = ("num_batches_tracked",)  # counters of PyTorch's batch normalisation
DTYPES: Mapping[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
    "C64": np.complex64,
}


def read_state(file: Path) -> dict[str, Array]:
    """The arrays of a safetensors file by their names. Raises NotFoundError, DataLossError."""
    return parse_state(file, read_file(file, LARGEST))


def parse_state(file: Path, content: bytes) -> dict[str, Array]:
    """The arrays of a safetensors file's content. Raises DataLossError."""
    from safetensors import SafetensorError, deserialize

    try:
        found = deserialize(content)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise DataLossError(f"{file} is no safetensors file: {error}{_remedy(file)}") from None
    state: dict[str, Array] = {}
    for name, entry in found:
        if entry["dtype"] not in DTYPES:
            raise DataLossError(
                f"{file}: {name} is {entry['dtype']}, expected {', '.join(DTYPES)}; convert it in PyTorch"
            )
        state[name] = np.frombuffer(entry["data"], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return state


def render_state(state: Mapping[str, Array]) -> bytes:
    """Content of a safetensors file."""
    from safetensors.numpy import save

    content: bytes = save(dict(state), METADATA)
    return content


def is_written_here(file: Path) -> bool:
    """True for a file of `render_state`: its weights are of a model of this library, in PyTorch's layout.

    The file is one that `read_state` has read.
    """
    from safetensors import safe_open

    with safe_open(file, "numpy") as opened:
        return (opened.metadata() or {}).get(WRITER) == METADATA[WRITER]


def _remedy(file: Path) -> str:
    """Remedy for a file of `torch.save`, which is a ZIP archive, as the end of a message; else empty."""
    if file.suffix in (".pt", ".pth", ".ckpt", ".bin") or zipfile.is_zipfile(file):
        return (
            "; a file of torch.save is written anew in PyTorch by "
            "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
        )
    return ""


def arrays_of(state: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays of a state dict, without counters that only PyTorch has.

    Raises InvalidArgumentError, also for a dict of a whole checkpoint, that has state dicts as its values.
    """
    for name, value in state.items():
        if isinstance(value, Mapping) and any(hasattr(each, "shape") for each in value.values()):
            raise InvalidArgumentError(
                f"expected a state dict, whose entries are tensors, got a dict in its entry {name!r}; give "
                f"this one, as checkpoint[{name!r}]"
            )
    return {
        name: as_array(_plain(value))
        for name, value in state.items()
        if name.rpartition(".")[2] not in IGNORED
    }


def _plain(value: Any) -> Any:
    """A tensor of PyTorch without its gradient, and as float32 where NumPy lacks its dtype."""
    value = value.detach() if hasattr(value, "detach") else value
    return value.float() if str(getattr(value, "dtype", "")) == "torch.bfloat16" else value
