"""Files and dictionaries of PyTorch's weights."""

from __future__ import annotations

import json
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import DataLossError
from tensorbow.torch_weights import arrays_of, read_state


def written(path, dtype, shape, content):
    """A safetensors file of one entry, x."""
    header = json.dumps({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(content)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + content)
    return path


def test_halves_are_read(tmp_path):
    """float16 and bfloat16 fill variables of float32."""
    values = np.array([1.5, -2.25, 1e-3], ml_dtypes.bfloat16)
    file = written(tmp_path / "w", "BF16", [3], values.tobytes())
    assert read_state(file)["x"].dtype == ml_dtypes.bfloat16
    with tb.Graph().as_default(), tb.Session() as session:
        variable = tb.get_variable("x", [3])
        for source in (file, {"x": values.astype(np.float16)}):
            tb.interop.torch.load_weights(source, session)
            np.testing.assert_allclose(session.run(variable.value()), values.astype(np.float32), 1e-3)


def test_files_that_are_not_read(tmp_path):
    with pytest.raises(DataLossError, match=r"x is F8_E4M3, expected F64, .*; convert it in PyTorch"):
        read_state(written(tmp_path / "f8", "F8_E4M3", [1], b"0"))
    with zipfile.ZipFile(tmp_path / "weights", "w") as archive:
        archive.writestr("data.pkl", b"")
    (tmp_path / "old.pth").write_bytes(b"\x80\x02" * 20)
    for name in ("weights", "old.pth"):
        with pytest.raises(DataLossError, match=r"is no safetensors file: .*torch\.save .*save_file\(model"):
            read_state(tmp_path / name)


class Parameter:
    """What a state dict of PyTorch holds, as far as it is read."""

    dtype = "torch.bfloat16"

    def __init__(self, values, detached=False):
        self.values, self.detached = values, detached

    def detach(self):
        return Parameter(self.values, True)

    def float(self):
        assert self.detached
        return np.asarray(self.values, np.float32)


def test_tensors_of_dtypes_that_numpy_lacks_are_converted():
    state = {"fc.weight": Parameter([1.5]), "bn.num_batches_tracked": np.int64(3)}
    arrays = arrays_of(state)
    assert list(arrays) == ["fc.weight"]
    assert arrays["fc.weight"].tolist() == [1.5]
