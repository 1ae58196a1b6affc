"""Names that load on first use, as type checkers, editors and completers see them."""

from __future__ import annotations

import ast
import re
import rlcompleter
from pathlib import Path

import pytest

import tensorbow as tb

PROGRAM = """\
import numpy as np
import tensorbow as tb

x = tb.placeholder(tb.float32, [None, 3])
w = tb.Variable(np.zeros((3, 2), np.float32), name="w")
y = 2.0 * tb.nn.relu(tb.matmul(x, w) + 1.0) - w[0] / 3
loss = tb.losses.mean_squared_error(y, x[:, 1] ** 2)
train = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
with tb.Session() as session, tb.Session("tensorbow", replicas_per_device=2) as replicated:
    session.run(tb.global_variables_initializer())
reveal_type(tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2))
reveal_type(tb.data.load("digits"))
reveal_type(tb.train.Saver())
reveal_type(tb.reshape(y, [-1]))
tb.nn.sofmax(y)
tb.Multi
tb.layers.Denser
tb.MultiGpuReplicator(["/cpu:0"], replica_per_gpu=2)
"""
REVEALED = [
    "replicator.multi_gpu.MultiGpuReplicator",
    "tuple[tensorbow.data.image_dataset.ImageDataset, tensorbow.data.image_dataset.ImageDataset]",
    "tensorbow.training.saver.Saver",
    "tensorbow.graph.operation.Tensor",
]


def test_type_checkers_get_all_names_that_load_on_first_use():
    tree = ast.parse(Path(tb.__file__).read_text(encoding="utf-8"))
    blocks = [
        node.body for node in tree.body if isinstance(node, ast.If) and "TYPE_" in ast.unparse(node.test)
    ]
    imported = {
        (alias.asname, node.module if node.module != "tensorbow" else f"tensorbow.{alias.name}")
        for block in blocks
        for node in block
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == set(tb._LATER.items())


def test_completers_find_names_before_they_are_loaded():
    assert "tb.MultiGpuReplicator(" in rlcompleter.Completer({"tb": tb}).attr_matches("tb.Multi")


@pytest.mark.slow
def test_mypy_knows_the_types_of_a_program(tmp_path, monkeypatch):
    """Wrong names and arguments are errors, right ones are not."""
    from mypy import api

    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setenv("MYPYPATH", str(Path(tb.__file__).parent.parent))
    monkeypatch.chdir(tmp_path)
    said, _, _ = api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), program.name])
    assert re.findall(r'note: Revealed type is "(.*)"', said) == REVEALED
    wrong = {int(line): text for line, text in re.findall(r"program\.py:(\d+): error: (.*)", said)}
    assert list(wrong) == [15, 16, 17, 18], said
    assert '"sofmax"' in wrong[15]
    assert '"replica_per_gpu"' in wrong[18]
