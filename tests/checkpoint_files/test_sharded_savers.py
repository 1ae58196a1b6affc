"""Checkpoints in shards: files by device, the operations that write and read them, faults, meta graphs."""

import json

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.checkpoint_files import load_arrays
from tensorbow.checkpoint_files.checkpoint_reader import CheckpointReader
from tensorbow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError

pytestmark = pytest.mark.usefixtures("session")

PATH, SAVE, RESTORE = "save/Const:0", "save/control_dependency:0", "save/restore_all"


def model():
    """Variables on two devices, a partitioned one on both, and a slot that lives with its variable."""
    with tb.device("/cpu:0"):
        v = tb.Variable([1.0, 2.0], name="v")
    with tb.device("/cpu:1"):
        tb.Variable(np.int64(7), name="n", trainable=False)
    with tb.device(lambda op: f"/cpu:{int('part_1' in op.name)}"):
        tb.get_variable(
            "w", [5, 2], partitioner=tb.fixed_size_partitioner(2), initializer=tb.ones_initializer()
        )
    return tb.train.MomentumOptimizer(0.1, 0.9).minimize(tb.reduce_sum(v * v))


def values(session):
    return {v.op.name: np.asarray(session.run(v)).tolist() for v in tb.global_variables()}


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".meta")


def shards(prefix, count=2):
    return [f"{prefix}-{n:05d}-of-{count:05d}.safetensors" for n in range(count)]


def test_a_file_for_each_device_and_back(session, tmp_path):
    train = model()
    saver = tb.train.Saver(sharded=True, max_to_keep=1, best_metric="m")
    session.run(tb.global_variables_initializer())
    session.run(train)
    before = values(session)
    path = saver.save(session, tmp_path / "new" / "model", 3, metrics={"m": 0.5})
    folder = tmp_path / "new"
    assert path == str(folder / "model-3")
    assert names(folder) == ["checkpoint", *shards("model-3"), "model-3.index"]
    first, second = (load_arrays(folder / name)[0] for name in shards("model-3"))
    assert sorted(first) == ["v", "v/Momentum", "w 5 2 0,3:0,2"]
    assert sorted(second) == ["n", "w 5 2 3,2:0,2"]
    assert tb.train.latest_checkpoint(folder) == tb.train.best_checkpoint(folder) == path
    assert tb.train.checkpoint_exists(path)
    assert tb.train.list_variables(path) == [("n", []), ("v", [2]), ("v/Momentum", [2]), ("w", [5, 2])]
    session.run(train)
    assert values(session) != before
    saver.restore(session, path)
    assert values(session) == before
    session.run(train)
    tb.train.Saver().restore(session, path)  # one that writes a single file reads shards, too
    assert values(session) == before
    later = tb.train.Saver(sharded=True, max_to_keep=1, best_metric="m")
    later.recover_last_checkpoints([path])
    assert (later.last_checkpoints, later.best_checkpoint, later.best_value) == ([path], path, 0.5)
    newest = later.save(session, folder / "model", 4, metrics={"m": 0.7})
    assert names(folder) == ["checkpoint", *shards("model-4"), "model-4.index"]
    assert tb.train.latest_checkpoint(folder) == newest


def test_operations_alone_write_the_same_files(session, tmp_path):
    train = model()
    saver = tb.train.Saver(sharded=True)
    session.run(tb.global_variables_initializer())
    session.run(train)
    before = values(session)
    own = saver.save(session, tmp_path / "m")
    kept = {name: (tmp_path / name).read_bytes() for name in shards("m")}
    path = str(tmp_path / "other" / "m")
    assert session.run(SAVE, {PATH: path}) == path.encode()
    assert {name: (tmp_path / "other" / name).read_bytes() for name in shards("m")} == kept
    for source in (path, own, f"{own}.index"):
        session.run(train)
        session.run(RESTORE, {PATH: source})
        assert values(session) == before


def test_a_checkpoint_of_one_name_is_in_one_form(session, tmp_path):
    v = tb.Variable([1.0, 2.0], name="v")
    with tb.device("/cpu:1"):
        u = tb.Variable(3.0, name="u")
    one, both, single = tb.train.Saver(), tb.train.Saver(sharded=True), tb.train.Saver([v], sharded=True)
    session.run(tb.global_variables_initializer())
    one.save(session, tmp_path / "m")
    both.save(session, tmp_path / "m")
    assert names(tmp_path) == ["checkpoint", *shards("m"), "m.index"]
    single.save(session, tmp_path / "m")
    assert names(tmp_path) == ["checkpoint", *shards("m", 1), "m.index"]
    with pytest.raises(NotFoundError, match=r"Key u not found in checkpoint .*m\.index"):
        both.restore(session, tmp_path / "m")
    one.save(session, tmp_path / "m")
    assert names(tmp_path) == ["checkpoint", "m.safetensors"]
    session.run([v.assign([0.0, 0.0]), u.assign(0.0)])
    both.restore(session, tmp_path / "m")
    assert values(session) == {"v": [1, 2], "u": 3}


def test_damage_is_found_and_nothing_is_assigned(session, tmp_path):
    model()
    saver = tb.train.Saver(sharded=True)
    session.run(tb.global_variables_initializer())
    path = saver.save(session, tmp_path / "m")
    session.run("v/Assign", {"v/initial_value:0": [9, 9]})
    changed = values(session)
    other = saver.save(session, tmp_path / "other")
    first, second = ((tmp_path / name) for name in shards("m"))
    good = first.read_bytes(), second.read_bytes()
    first.write_bytes((tmp_path / shards("other")[0]).read_bytes())
    with pytest.raises(DataLossError, match="it is of another save than the other files of the checkpoint"):
        saver.restore(session, path)
    first.write_bytes(good[0])
    second.unlink()
    with pytest.raises(DataLossError, match=r"its shard .*m-00001-of-00002\.safetensors is missing"):
        saver.restore(session, path)
    second.write_bytes(good[1])
    assert values(session) == changed
    index = json.loads((tmp_path / "m.index").read_text())
    for key, value in (
        ("format", "other"),
        ("shards", [["../m", 1]]),
        ("shards", [["m", "1"]]),
        ("tensors", {"v": [[2], [[7, "v", ""]]]}),
        ("tensors", {"v": [[2], [[0, "v", "3 0,1"]]]}),
        ("tensors", {"v": [[-2], [[0, "v", ""]]]}),
        ("tensors", {"v": [[2], []]}),
        ("metadata", 3),
    ):
        (tmp_path / "m.index").write_text(json.dumps({**index, key: value}))
        with pytest.raises(DataLossError, match="is damaged or no index of a checkpoint"):
            CheckpointReader(path)
    index["tensors"]["w"] = [[5, 2], [[0, "w 5 2 0,3:0,2", "5 2 0,3:0,2"]]]
    (tmp_path / "m.index").write_text(json.dumps(index))
    with pytest.raises(DataLossError, match="w has 10 elements, its slices 6"):
        tb.train.Saver().restore(session, path)
    index["tensors"]["w"][1][0][2] = "5 2 0,2:0,2"
    (tmp_path / "m.index").write_text(json.dumps(index))
    with pytest.raises(DataLossError, match="does not fit its slice"):
        tb.train.Saver().restore(session, path)
    saver.restore(session, other)
    assert values(session) == changed


def test_a_failed_save_leaves_the_checkpoint_as_it_was(session, tmp_path):
    train = model()
    saver = tb.train.Saver(sharded=True)
    session.run(tb.global_variables_initializer())
    saver.save(session, tmp_path / "m")
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    session.run(train)
    (tmp_path / "m_temp-00001-of-00002.safetensors").mkdir()
    with pytest.raises(InvalidArgumentError, match="m_temp-00001-of-00002"):
        saver.save(session, tmp_path / "m")
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_what_shards_cannot_be(session, tmp_path):
    from tensorbow.checkpoint_files.save_ops import MergeCheckpoints, Save, ShardedFilename

    path = str(tmp_path / "m")
    assert session.run(ShardedFilename(path, 1, 3)) == f"{path}-00001-of-00003".encode()
    for name in ("a", "b"):
        session.run(Save(str(tmp_path / name), ["x"], [""], tb.zeros([2])))
    parts = [str(tmp_path / name) for name in ("a", "b")]
    with pytest.raises(InvalidArgumentError, match="'x' is in two shards; save it once"):
        session.run(MergeCheckpoints(parts, path))
    with pytest.raises(NotFoundError, match=r"there is no shard .*c\.safetensors: the tasks that save"):
        session.run(MergeCheckpoints([parts[0], str(tmp_path / "c")], path))
    tb.get_default_graph().finalize()
    with pytest.raises(InvalidArgumentError, match="no variables to save"):
        tb.train.Saver(sharded=True)
    with tb.Graph().as_default() as graph:
        tb.Variable(1.0, name="v")
        graph.finalize()
        with pytest.raises(FailedPreconditionError, match="the graph was finalized when this Saver was made"):
            tb.train.Saver(sharded=True)


@pytest.mark.parametrize("as_text", [True, False])
def test_a_meta_graph_brings_the_savers_options_back(session, tmp_path, as_text):
    model()
    saver = tb.train.Saver(sharded=True, max_to_keep=2, keep_checkpoint_every_n_hours=0.5)
    file = tmp_path / "model.meta"
    tb.train.export_meta_graph(file, saver_def=saver.saver_def, as_text=as_text)
    session.run(tb.global_variables_initializer())
    path = saver.save(session, tmp_path / "model")
    before = values(session)
    with tb.Graph().as_default(), tb.Session() as session:
        again = tb.train.import_meta_graph(file)
        assert again.saver_def == saver.saver_def
        assert (again.saver_def.sharded, again.saver_def.keep_checkpoint_every_n_hours) == (True, 0.5)
        again.restore(session, path)
        assert values(session) == before
        assert again.save(session, tmp_path / "later") == str(tmp_path / "later")
        assert f"{shards('later')[0]}" in names(tmp_path)


def test_an_older_meta_graph_has_the_default_options(tmp_path):
    tb.Variable(1.0, name="v")
    fields = json.loads(tb.train.export_meta_graph(saver_def=tb.train.Saver().saver_def).to_json())
    del fields["saver_def"]["sharded"], fields["saver_def"]["keep_checkpoint_every_n_hours"]
    (tmp_path / "m").write_text(json.dumps(fields))
    with tb.Graph().as_default():
        definition = tb.train.import_meta_graph(tmp_path / "m").saver_def
    assert (definition.sharded, definition.keep_checkpoint_every_n_hours) == (False, 10_000.0)
    fields["saver_def"]["keep_checkpoint_every_n_hours"] = -1
    (tmp_path / "m").write_text(json.dumps(fields))
    with tb.Graph().as_default(), pytest.raises(InvalidArgumentError, match="other fields than a SaverDef"):
        tb.train.import_meta_graph(tmp_path / "m")
