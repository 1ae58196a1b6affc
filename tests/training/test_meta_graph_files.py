"""The graph that a Saver writes beside a checkpoint: read back without the program, linked, deleted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import NotFoundError, ResourceExhaustedError


def _metas(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix == ".meta")


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """The path of a checkpoint of a graph with a placeholder, a variable and a collection."""
    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.placeholder(tb.float32, [None], name="x")
        v = tb.get_variable("v", initializer=np.array([3.0, 4.0], np.float32))
        tb.add_to_collection("results", tb.multiply(x, v, name="y"))
        session.run(v.assign([5.0, 6.0]))
        return tb.train.Saver().save(session, tmp_path / "model", global_step=5)


@pytest.mark.parametrize("name", ["{}.meta", "{}/../model-5.meta"])
def test_a_program_goes_on_with_the_graph_of_a_checkpoint(saved: str, name: str) -> None:
    folder = Path(saved).parent
    path = name.format(saved if name == "{}.meta" else folder / "any")
    (folder / "any").mkdir()
    with tb.Graph().as_default(), tb.Session() as session:
        saver = tb.train.import_meta_graph(path)
        saver.restore(session, tb.train.latest_checkpoint(folder))
        (y,) = tb.get_collection("results")
        np.testing.assert_array_equal(session.run(y, {"x:0": [1.0, 2.0]}), [5.0, 12.0])


def test_a_missing_graph_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"model-7\.meta"):
        tb.train.import_meta_graph(f"{tmp_path}/model-7.safetensors.meta")


@pytest.mark.parametrize("sharded", [False, True])
def test_graphs_go_with_their_checkpoints(tmp_path: Path, sharded: bool) -> None:
    """A graph that stays the same is one file under several names; it is written anew once it grows."""
    with tb.Graph().as_default(), tb.Session() as session:
        v = tb.Variable(1.0, name="v")
        session.run(v.initializer)
        saver = tb.train.Saver(max_to_keep=3, sharded=sharded)
        for step in (1, 2):
            saver.save(session, tmp_path / "m", step)
        assert (tmp_path / "m-1.meta").samefile(tmp_path / "m-2.meta")
        tb.add_to_collection("more", v)
        saver.save(session, tmp_path / "m", 3)
        assert not (tmp_path / "m-2.meta").samefile(tmp_path / "m-3.meta")
        saver.save(session, tmp_path / "m", 4, write_meta_graph=False)
        assert _metas(tmp_path) == ["m-2.meta", "m-3.meta"]
        saver.save(session, tmp_path / "m", 4)
        saver.save(session, tmp_path / "m", 4)
        assert _metas(tmp_path) == ["m-2.meta", "m-3.meta", "m-4.meta"]
    with tb.Graph().as_default(), tb.Session() as session:
        saver = tb.train.import_meta_graph(tmp_path / "m-4.meta")
        saver.restore(session, tmp_path / "m-4")
        assert session.run("v:0") == 1.0


def test_without_a_state_the_newest_checkpoint_stays_named(saved: str) -> None:
    folder = Path(saved).parent
    with tb.Graph().as_default(), tb.Session() as session:
        v = tb.get_variable("v", [2])
        session.run(v.initializer)
        tb.train.Saver().save(session, folder / "other", write_state=False)
    assert tb.train.latest_checkpoint(folder) == saved


def test_a_graph_that_cannot_be_written_has_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tb.Graph().as_default(), tb.Session() as session:
        v = tb.Variable(1.0, name="v")
        tb.py_func(np.negative, [v], tb.float32)
        session.run(v.initializer)
        with caplog.at_level("INFO", "tensorbow"):
            tb.train.Saver().save(session, tmp_path / "m")
    assert _metas(tmp_path) == []
    assert "m.meta is not written: " in caplog.text


def test_a_saver_of_nothing_does_nothing_where_that_is_allowed(tmp_path: Path) -> None:
    with tb.Graph().as_default(), tb.Session() as session:
        saver = tb.train.Saver(allow_empty=True)
        assert saver.save(session, tmp_path / "m") == ""
        saver.restore(session, tmp_path / "m")
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(tb.errors.InvalidArgumentError, match="no variables to save"):
            tb.train.Saver()


def test_a_checkpoint_is_whole_where_its_graph_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, blob: bytes) -> None:
        raise ResourceExhaustedError("the disk is full")

    monkeypatch.setattr("tensorbow.training.meta_graph_def.write_file", full)
    with tb.Graph().as_default(), tb.Session() as session:
        v = tb.Variable(1.0, name="v")
        session.run(v.initializer)
        saver = tb.train.Saver()
        path = saver.save(session, tmp_path / "m", 1)
        assert tb.train.latest_checkpoint(tmp_path) == path
        assert _metas(tmp_path) == []
        saver.restore(session, path)
