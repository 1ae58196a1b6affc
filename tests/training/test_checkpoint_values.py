"""Values of checkpoints by name, and as initial values of variables; TensorFlow's names of readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, NotFoundError

pytestmark = pytest.mark.usefixtures("session")

W, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([7.0, 8.0, 9.0], np.float32)


@pytest.fixture(params=[False, True], ids=["one file", "shards"])
def saved(tmp_path: Path, request: Any) -> str:
    with tb.Graph().as_default(), tb.Session() as session:
        with tb.variable_scope("bert"):
            tb.get_variable("w", initializer=W)
            tb.get_variable("b", initializer=B)
        session.run(tb.initialize_all_variables())
        return tb.train.Saver(sharded=request.param).save(session, tmp_path / "model", global_step=3)


def test_values_by_name(saved: str) -> None:
    folder = Path(saved).parent
    for reader in (tb.train.NewCheckpointReader(saved), tb.train.load_checkpoint(folder)):
        assert reader.get_variable_to_shape_map() == {"bert/w": [2, 3], "bert/b": [3]}
        assert reader.get_variable_to_dtype_map()["bert/w"] is tb.float32
        assert reader.has_tensor("bert/b")
        assert not reader.has_tensor("bert")
        np.testing.assert_array_equal(reader.get_tensor("bert/w"), W)
        with pytest.raises(NotFoundError, match=r"Key bert/c not found in checkpoint .*; did you mean bert/"):
            reader.get_tensor("bert/c")
    np.testing.assert_array_equal(tb.train.load_variable(folder, "bert/b:0"), B)
    with pytest.raises(NotFoundError, match="there is no checkpoint in"):
        tb.train.load_checkpoint(folder.parent / folder.name / "..")


def _model() -> list[tb.Variable]:
    with tb.variable_scope("model/bert"):
        made = [tb.get_variable("w", [2, 3]), tb.get_variable("b", [3], tb.float64)]
    return [*made, tb.get_variable("head", initializer=[1.0])]


@pytest.mark.parametrize("by", ["scopes", "names", "variables"])
def test_variables_begin_with_the_values_of_a_checkpoint(saved: str, session: tb.Session, by: str) -> None:
    w, b, head = _model()
    maps: dict[str, dict[str, Any]] = {
        "scopes": {"bert/": "model/bert/"},
        "names": {"bert/w": "model/bert/w", "bert/b": "model/bert/b:0"},
        "variables": {"bert/w": w, "bert/b": [b]},
    }
    tb.train.init_from_checkpoint(saved, maps[by])
    session.run(tb.global_variables_initializer())
    for variable, expected in ((w, W), (b, B), (head, [1])):
        np.testing.assert_array_equal(session.run(variable), expected)
        np.testing.assert_array_equal(session.run(variable.initial_value), expected)
    (again,) = tb.import_graph_def(
        tb.get_default_graph().as_graph_def(), return_elements=["model/bert/w:0"], name="x"
    )
    assert again.shape == [2, 3]


@pytest.mark.parametrize("by", ["parts", "variable", "name", "scope", "root"])
def test_parts_of_a_variable_begin_with_slices(saved: str, session: tb.Session, by: str) -> None:
    with tb.variable_scope("bert"):
        whole = tb.get_variable("w", [2, 3], partitioner=tb.fixed_size_partitioner(2))
        tb.get_variable("b", [3])
    maps: dict[str, dict[str, Any]] = {
        "parts": {"bert/w": list(whole)},
        "variable": {"bert/w": whole},
        "name": {"bert/w": "bert/w"},
        "scope": {"bert/": "bert/"},
        "root": {"/": "/"},
    }
    tb.train.init_from_checkpoint(saved, maps[by])
    session.run(tb.global_variables_initializer())
    np.testing.assert_array_equal(session.run(whole.as_tensor()), W)


def test_parts_that_were_saved_as_variables_are_found_by_scope(tmp_path: Path) -> None:
    with tb.Graph().as_default(), tb.Session() as first:
        for part in range(2):
            tb.get_variable(f"old/w/part_{part}", initializer=W[part : part + 1])
        first.run(tb.global_variables_initializer())
        path = tb.train.Saver().save(first, tmp_path / "model")
    with tb.Graph().as_default(), tb.Session() as session:
        whole = tb.get_variable("new/w", [2, 3], partitioner=tb.fixed_size_partitioner(2))
        tb.train.init_from_checkpoint(path, {"old/": "new/"})
        session.run(tb.global_variables_initializer())
        np.testing.assert_array_equal(session.run(whole.as_tensor()), W)


def test_maps_that_do_not_fit_are_refused(saved: str) -> None:
    w, _, _ = _model()
    for wrong, kind, words in (
        ({"bert/b": w}, InvalidArgumentError, r"model/bert/w:0 is \[2, 3\], but bert/b in .* is \[3\]"),
        ({"bert/c": w}, NotFoundError, "Key bert/c not found"),
        ({"bert/w": "w"}, NotFoundError, "the graph has no variable 'w'"),
        ({"bert/": "none/"}, NotFoundError, "no variable in scope 'none/'"),
        ({"bert/": w}, InvalidArgumentError, "a scope that ends in / for a scope"),
        ({1: w}, InvalidArgumentError, "names of the checkpoint as keys"),
        ({"bert/w": 1}, InvalidArgumentError, "variables, or names of them"),
    ):
        with pytest.raises(kind, match=words):
            tb.train.init_from_checkpoint(saved, wrong)


def test_events_of_a_file(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    with tb.summary.FileWriter(tmp_path) as writer:
        writer.add_summary(tb.Summary(value=[tb.Summary.Value(tag="loss", simple_value=0.5)]), 7)
    (path,) = tmp_path.iterdir()
    events = list(tb.train.summary_iterator(path))
    found = [(each.step, v.tag, v.simple_value) for each in events for v in each.summary.value]
    assert found == [(7, "loss", 0.5)]
