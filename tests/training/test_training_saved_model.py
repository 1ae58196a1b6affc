"""Saved models: a folder that computes what the program did, and that is not believed."""

import json

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import DataLossError, InvalidArgumentError, NotFoundError, TensorBowError

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.placeholder(tb.float32, [None, 4], name="x")
        w = tb.Variable(tb.random_normal([4, 2], seed=1), name="w")
        tb.Variable(0.0, name="unused")
        y = tb.nn.softmax(tb.matmul(x, w), name="y")
        session.run(w.initializer)
        values = {"w": session.run(w), "unused": np.float32(1)}
        np.save(tmp_path / "y.npy", session.run(y, {x: X}))
        tb.train.save_model(path, {"x": x}, {"y": y}, values, {"by": "me"})
        with pytest.raises(NotFoundError, match="no value for w"):
            tb.train.save_model(path, {"x": x}, {"y": y}, {})
        for wrong in (values["w"].T, values["w"].astype(np.float64)):
            with pytest.raises(InvalidArgumentError, match=r"variable w: expected float32\[4, 2\], got"):
                tb.train.save_model(path, {"x": x}, {"y": y}, {"w": wrong})
        with pytest.raises(InvalidArgumentError, match="expected outputs to be at least one"):
            tb.train.save_model(path, {"x": x}, {}, {})
    return path


def test_the_same_bits_without_the_program(folder, tmp_path):
    with tb.train.SavedModel(folder) as model:
        np.testing.assert_array_equal(model.run(["y"], x=X)[0], np.load(tmp_path / "y.npy"))
        assert model.about == {"by": "me"}
        assert [op.name for op in model.graph.get_operations()] == ["x", "w", "w/read", "MatMul", "y"]
        with pytest.raises(InvalidArgumentError, match="there is no 'z' among outputs and inputs, only y"):
            model.run(["z"], x=X)
        with pytest.raises(InvalidArgumentError, match="there is no 'z' among outputs and inputs, only x"):
            model.run(["y"], z=X)
        with pytest.raises(InvalidArgumentError, match=r"feed x:0.*expected shape \[\?, 4\]"):
            model.run(["y"], x=X.T)


def test_folders_that_are_none(folder, tmp_path):
    with pytest.raises(NotFoundError, match="nowhere"):
        tb.train.SavedModel(tmp_path / "nowhere")
    graph, variables = folder / "graph.json", folder / "variables.safetensors"
    whole, values = graph.read_bytes(), variables.read_bytes()
    for damaged in (whole[:-9], whole.replace(b'"MatMul"', b'"MatMool"'), b""):
        graph.write_bytes(damaged)
        with pytest.raises(DataLossError, match=r"graph\.json is damaged, or of another export"):
            tb.train.SavedModel(folder)
    graph.write_bytes(whole)
    variables.write_bytes(values[:-1])
    with pytest.raises(DataLossError, match=r"variables\.safetensors"):
        tb.train.SavedModel(folder)
    with tb.Graph().as_default(), tb.Session() as session:
        v = tb.Variable(1.0, name="w")
        session.run(v.initializer)
        tb.train.Saver().save(session, folder / "variables")
    with pytest.raises(DataLossError, match="not of a saved model"):
        tb.train.SavedModel(folder)
    graph.unlink()
    with pytest.raises(TensorBowError, match="graph"):
        tb.train.read_graph(graph)


def test_write_graph_and_read_graph(tmp_path):
    with tb.Graph().as_default() as graph:
        tb.constant([1.0, 2.0], name="c")
    path = tb.train.write_graph(graph, tmp_path / "logs", "graph.json")
    assert tb.train.read_graph(path) == graph.as_graph_def()
    assert json.loads((tmp_path / "logs" / "graph.json").read_text())["format"] == "tensorbow-graph"
    (tmp_path / "junk.json").write_text("{}")
    with pytest.raises(InvalidArgumentError, match=r"junk\.json: GraphDef: expected"):
        tb.train.read_graph(tmp_path / "junk.json")
