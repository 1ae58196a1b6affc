"""Save and Restore as ops: the subgraph of a Saver, its files beside the Saver's own, faults, meta graphs."""

import json
from pathlib import Path

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.checkpoint_files import load_arrays, save_arrays
from tensorbow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from tensorbow.graph.protobuf.message_classes import message_classes

pytestmark = pytest.mark.usefixtures("graph")

PATH, SAVE, RESTORE = "save/Const:0", "save/control_dependency:0", "save/restore_all"


def model():
    """Variables of several dtypes, a partitioned one, and slots of momentum."""
    w = tb.get_variable(
        "w", [5, 2], partitioner=tb.fixed_size_partitioner(2), initializer=tb.ones_initializer()
    )
    v = tb.Variable([1.0, 2.0], name="v")
    tb.Variable(np.int64(7), name="n", trainable=False)
    tb.Variable(True, name="flag", trainable=False)
    loss = tb.reduce_sum(v * v) + tb.reduce_sum(tb.convert_to_tensor(w))
    return tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def values(session):
    return {v.op.name: np.asarray(session.run(v)).tolist() for v in tb.global_variables()}


def test_a_session_saves_and_restores_by_names_alone(tmp_path):
    train = model()
    saver = tb.train.Saver()
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        session.run(train)
        before = values(session)
        path = str(tmp_path / "new" / "model")
        assert session.run(SAVE, {PATH: path}) == path.encode()
        own = saver.save(session, tmp_path / "own")
        assert (tmp_path / "new" / "model.safetensors").read_bytes() == Path(own).read_bytes()
        assert sorted(load_arrays(tmp_path / "own.safetensors")[0])[-1] == "w/Momentum"
        session.run(train)
        assert values(session) != before
        session.run(RESTORE, {PATH: path})
        assert values(session) == before
        session.run(train)
        session.run(RESTORE, {PATH: own})
        assert values(session) == before
        session.run(train)
        saver.restore(session, path)
        assert values(session) == before


def test_names_of_the_operations():
    tb.Variable(1.0, name="v")
    first, second = tb.train.Saver(), tb.train.Saver(max_to_keep=None)
    assert first.as_saver_def() == tb.train.SaverDef(PATH, SAVE, RESTORE, 5, {"v": "v"})
    assert second.saver_def == tb.train.SaverDef(
        "save_1/Const:0", "save_1/control_dependency:0", "save_1/restore_all", 0, {"v": "v"}
    )
    tb.get_default_graph().finalize()
    late = tb.train.Saver()
    with pytest.raises(FailedPreconditionError, match="the graph was finalized when this Saver was made"):
        late.saver_def  # noqa: B018


def test_the_operations_belong_to_no_scope_of_control():
    with tb.control_dependencies([tb.Print(tb.constant(1.0), [], "never").op]):
        v = tb.Variable(1.0, name="v")
        tb.train.Saver([v])
    save = tb.get_default_graph().get_operation_by_name("save/SaveV2")
    assert save.control_inputs == ()


def test_nothing_changes_if_a_file_does_not_fit(tmp_path):
    tb.Variable([1.0, 2.0], name="a")
    tb.Variable(3, name="b")
    tb.train.Saver()
    good = {"a": np.float32([5, 6]), "b": np.int32(4)}
    described = {"kind": "saver", "momentum": "sum of gradients", "metrics": {}}
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        for arrays, kind, words in (
            ({"a": good["a"]}, NotFoundError, "Key b not found in checkpoint"),
            ({**good, "b": np.int64(4)}, InvalidArgumentError, "tensor_name = b; expected dtype int32"),
            ({**good, "a": np.float32([1])}, InvalidArgumentError, r"lhs shape= \[2\] rhs shape= \[1\]"),
        ):
            save_arrays(tmp_path / "m.safetensors", arrays, described)
            with pytest.raises(kind, match=words):
                session.run(RESTORE, {PATH: str(tmp_path / "m")})
        with pytest.raises(NotFoundError, match="not a valid checkpoint: there is no file"):
            session.run(RESTORE, {PATH: str(tmp_path / "none")})
        (tmp_path / "m.safetensors").write_bytes(b"garbage")
        with pytest.raises(DataLossError, match="truncated, damaged or no file of arrays"):
            session.run(RESTORE, {PATH: str(tmp_path / "m")})
        assert values(session) == {"a": [1, 2], "b": 3}
        save_arrays(tmp_path / "m.safetensors", good, described)
        session.run(RESTORE, {PATH: str(tmp_path / "m")})
        assert values(session) == {"a": [5, 6], "b": 4}


def test_momentum_of_an_earlier_version_is_refused(tmp_path):
    v = tb.Variable([1.0], name="v")
    tb.train.MomentumOptimizer(0.1, 0.9).minimize(tb.reduce_sum(v))
    tb.train.Saver()
    arrays = {"v": np.float32([1]), "v/Momentum": np.float32([2])}
    save_arrays(tmp_path / "m.safetensors", arrays, {"kind": "saver"})
    with (
        tb.Session() as session,
        pytest.raises(InvalidArgumentError, match="is of an earlier version"),
    ):
        session.run(RESTORE, {PATH: str(tmp_path / "m")})


def test_an_uninitialised_variable_writes_no_file(tmp_path):
    tb.Variable(1.0, name="v")
    tb.train.Saver()
    with tb.Session() as session, pytest.raises(FailedPreconditionError, match="v"):
        session.run(SAVE, {PATH: str(tmp_path / "m")})
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_left_as_it_was(tmp_path):
    tb.Variable(1.0, name="v")
    tb.train.Saver()
    (tmp_path / "file").touch()
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        with pytest.raises(FailedPreconditionError, match="cannot make the folder"):
            session.run(SAVE, {PATH: str(tmp_path / "file" / "m")})
        with pytest.raises(InvalidArgumentError, match="expected save_path to be the path of a file"):
            session.run(SAVE, {PATH: f"{tmp_path}/"})


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("scope", [None, "again"])
def test_a_meta_graph_brings_a_saver_back(tmp_path, as_text, scope):
    train = model()
    saver = tb.train.Saver(max_to_keep=2)
    file = tmp_path / "graph.meta"
    meta = tb.train.export_meta_graph(file, saver_def=saver.saver_def, as_text=as_text)
    assert meta.saver_def == saver.saver_def
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        session.run(train)
        before = values(session)
        path = saver.save(session, tmp_path / "model")
    with tb.Graph().as_default() as copy:
        again = tb.train.import_meta_graph(file, import_scope=scope)
        prefix = f"{scope}/" if scope else ""
        assert len(copy.get_operations()) == len(meta.graph_def.node)
        with tb.Session() as session:
            again.restore(session, path)
            assert values(session) == {f"{prefix}{name}": value for name, value in before.items()}
            session.run(tb.global_variables_initializer())
            session.run(f"{prefix}{RESTORE}", {f"{prefix}{PATH}": path})
            assert values(session) == {f"{prefix}{name}": value for name, value in before.items()}
            session.run(f"{prefix}{train.name}")
            for number in range(3):
                again.save(session, tmp_path / f"later{number}")
        assert len(again.last_checkpoints) == 2
        assert again.saver_def.restore_op_name == f"{prefix}{RESTORE}"


def test_a_meta_graph_without_a_saver_or_devices(tmp_path):
    with tb.device("/cpu:3"):
        tb.constant(1.0, name="c")
    meta = tb.train.export_meta_graph(tmp_path / "m", clear_devices=True, as_text=True)
    assert meta.graph_def.node[0].device == ""
    kept = tb.train.export_meta_graph()
    assert kept.graph_def.node[0].device != ""
    with tb.Graph().as_default() as copy:
        assert tb.train.import_meta_graph(tmp_path / "m") is None
        assert copy.get_tensor_by_name("c:0").op.device == ""
    with tb.Graph().as_default() as copy:
        assert tb.train.import_meta_graph(kept, clear_devices=True) is None
        assert copy.get_tensor_by_name("c:0").op.device == ""


def test_the_protocol_buffer_is_tensorflows():
    tb.Variable(1.0, name="v")
    meta = tb.train.export_meta_graph(saver_def=tb.train.Saver().saver_def)
    theirs = message_classes(
        "theirs",
        {
            "NodeDef": "string name 1, string op 2",
            "GraphDef": "repeated NodeDef node 1",
            "SaverDef": "string filename_tensor_name 1, string save_tensor_name 2, string restore_op_name 3, "
            "int32 max_to_keep 4, bool sharded 5, float keep_checkpoint_every_n_hours 6, int32 version 7",
            "MetaGraphDef": "GraphDef graph_def 2, SaverDef saver_def 3",
        },
        {},
        {},
    )
    message = theirs("MetaGraphDef").FromString(meta.SerializeToString())
    assert next(node.name for node in message.graph_def.node).startswith("v/")
    assert (message.saver_def.filename_tensor_name, message.saver_def.restore_op_name) == (PATH, RESTORE)
    assert (message.saver_def.max_to_keep, message.saver_def.version) == (5, 2)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{}", "MetaGraphDef: 'graph_def'"),
        (b"\xff\xff", "the bytes are no meta graph"),
        (b"{not json", "MetaGraphDef: "),
        (b'{"graph_def": {}, "saver_def": 3}', "GraphDef"),
    ],
)
def test_files_that_are_no_meta_graphs(tmp_path, content, words):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=words):
        tb.train.import_meta_graph(tmp_path / "m")
    with pytest.raises(NotFoundError, match="missing"):
        tb.train.import_meta_graph(tmp_path / "missing")


def test_a_saver_def_of_another_graph_is_refused(tmp_path):
    tb.Variable(1.0, name="v")
    meta = tb.train.export_meta_graph(saver_def=tb.train.Saver().saver_def)
    with tb.Graph().as_default(), pytest.raises(NotFoundError, match="the default graph has no variable 'v'"):
        tb.train.Saver(saver_def=meta.saver_def)
    fields = json.loads(meta.to_json())
    fields["saver_def"]["max_to_keep"] = "many"
    (tmp_path / "m").write_text(json.dumps(fields))
    with tb.Graph().as_default(), pytest.raises(InvalidArgumentError, match="other fields than a SaverDef"):
        tb.train.import_meta_graph(tmp_path / "m")


def test_slices_that_are_none(tmp_path):
    from tensorbow.checkpoint_files.save_ops import Save

    with tb.Session() as session:
        for text in ("4 3", "4 0,5", "x 0,1", "4 3 0,1"):
            with pytest.raises(InvalidArgumentError, match="is no slice, expected one as '4 3 0,2:0,3'"):
                session.run(Save(str(tmp_path / "m"), ["a"], [text], tb.zeros([2])))
        with pytest.raises(InvalidArgumentError, match="tensor_names has 1 strings, expected one"):
            session.run(Save(str(tmp_path / "m"), ["a"], [""], tb.zeros([2]), tb.zeros([2])))
