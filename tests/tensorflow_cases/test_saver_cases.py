"""Savers: TensorFlow 1's cases of `saver_test` and `checkpoint_management_test`."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.checkpoint_files.checkpoint_paths import existing_file
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, TensorBowError
from tensorbow.training import saver as saver_module


def saved(folder):
    """Names of the checkpoints of a folder."""
    kept = (name for name in os.listdir(folder) if name.endswith(".safetensors"))
    return sorted(name.removesuffix(".safetensors") for name in kept)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "model")


# Values: SaverTest --------------------------------------------------------------------------------------


def test_save_and_restore(session, path):  # testBasics
    v0, v1 = tb.Variable(10.0, name="v0"), tb.Variable([1, 2, 3], name="v1")
    saver = tb.train.Saver()
    session.run(tb.global_variables_initializer())
    written = saver.save(session, path)
    assert os.path.exists(written)
    session.run([v0.assign(1.0), v1.assign([0, 0, 0])])
    saver.restore(session, written)
    assert session.run(v0) == 10.0
    np.testing.assert_array_equal(session.run(v1), [1, 2, 3])


def test_a_session_that_was_not_initialised_restores(graph, path):  # testBasics, second half
    v0, v1 = tb.Variable(10.0, name="v0"), tb.Variable(20.0, name="v1")
    saver = tb.train.Saver([v0, v1])
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        saver.save(session, path)
    with tb.Session() as session:
        with pytest.raises(FailedPreconditionError, match="v0"):
            session.run(v0)
        saver.restore(session, path)
        assert session.run([v0, v1]) == [10.0, 20.0]


def test_another_graph_restores(kernels_of_cases, path):
    for value in (3.0, 0.0):
        with tb.Graph().as_default(), tb.Session() as session:
            v = tb.Variable(value, name="v")
            saver = tb.train.Saver()
            session.run(v.initializer)
            if value:
                saver.save(session, path)
            else:
                saver.restore(session, path)
            assert session.run(v) == 3.0


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "int32", "int64", "uint8", "int8", "int16", "bool", "complex64", "float16"],
)
def test_dtypes(session, path, dtype):  # testInt64, testSaveRestoreAndValidateVariableDtype
    value = np.array([[1, 0, 1]], tb.as_dtype(dtype).as_numpy_dtype)
    v = tb.Variable(value, name="v", trainable=False)
    saver = tb.train.Saver()
    session.run(v.initializer)
    saver.save(session, path)
    session.run(v.assign(np.zeros_like(value)))
    saver.restore(session, path)
    got = session.run(v)
    np.testing.assert_array_equal(got, value)
    assert got.dtype == value.dtype


def test_a_dtype_that_does_not_fit(kernels_of_cases, path):  # testSaveRestoreAndValidateVariableDtype
    for dtype in (tb.float32, tb.float64):
        with tb.Graph().as_default(), tb.Session() as session:
            v = tb.Variable(tb.ones([2], dtype), name="v")
            saver = tb.train.Saver()
            session.run(v.initializer)
            if dtype == tb.float32:
                saver.save(session, path)
            else:
                with pytest.raises(InvalidArgumentError, match="dtype"):
                    saver.restore(session, path)
                np.testing.assert_array_equal(session.run(v), [1, 1])


def test_a_shape_that_does_not_fit(kernels_of_cases, path):
    for extent in (2, 3):
        with tb.Graph().as_default(), tb.Session() as session:
            v = tb.Variable(tb.ones([extent]), name="v")
            saver = tb.train.Saver()
            session.run(v.initializer)
            if extent == 2:
                saver.save(session, path)
            else:
                with pytest.raises(InvalidArgumentError, match="shapes"):
                    saver.restore(session, path)


def test_another_shape_of_as_many_elements(graph, tmp_path):  # testReshape
    v = tb.Variable(np.arange(6, dtype=np.float32).reshape(2, 3), name="v")
    with tb.Session() as session:
        session.run(v.initializer)
        path = tb.train.Saver([v]).save(session, tmp_path / "model")
    with tb.Graph().as_default(), tb.Session() as session:
        w, u = (tb.Variable(np.zeros(shape, np.float32)) for shape in ((3, 2), (5,)))
        saver = tb.train.Saver({"v": w}, reshape=True, restore_sequentially=True)
        saver.restore(session, path)
        assert session.run(w).tolist() == [[0, 1], [2, 3], [4, 5]]
        with pytest.raises(InvalidArgumentError, match="requires shapes of both tensors to match"):
            tb.train.Saver({"v": u}, reshape=True).restore(session, path)
        with pytest.raises(InvalidArgumentError, match="expected reshape to be False for sharded files"):
            tb.train.Saver({"v": w}, reshape=True, sharded=True)


@pytest.mark.parametrize("bad", ["", ".", "folder/"])
def test_paths_that_are_none(session, tmp_path, bad):  # testInvalidPath
    v = tb.Variable(1.0, name="v")
    saver = tb.train.Saver()
    session.run(v.initializer)
    with pytest.raises(TensorBowError):
        saver.save(session, bad)


def test_a_checkpoint_that_is_not_there(session, path):
    tb.Variable(1.0, name="v")
    saver = tb.train.Saver()
    with pytest.raises(NotFoundError, match="not a valid checkpoint"):
        saver.restore(session, path)
    with pytest.raises((TensorBowError, ValueError)):
        saver.restore(session, None)


def test_saving_into_a_folder_that_is_not_there(session, tmp_path):  # testSaveToNonexistingPath
    v = tb.Variable(1.0, name="v")
    saver = tb.train.Saver()
    session.run(v.initializer)
    written = saver.save(session, tmp_path / "a" / "b" / "model")
    saver.restore(session, written)


def test_saving_where_a_file_is_in_the_way(session, tmp_path):
    v = tb.Variable(1.0, name="v")
    saver = tb.train.Saver()
    session.run(v.initializer)
    (tmp_path / "file").write_text("")
    with pytest.raises(TensorBowError):
        saver.save(session, tmp_path / "file" / "model")


def test_a_variable_without_a_value_is_not_saved(session, path):
    tb.Variable(1.0, name="unset")
    with pytest.raises(FailedPreconditionError, match="unset"):
        tb.train.Saver().save(session, path)


def test_nothing_to_save(graph):  # testAllowEmpty
    with pytest.raises((TensorBowError, ValueError)):
        tb.train.Saver()


@pytest.mark.parametrize("wrong", [3, [3], {"v": 3}, ["v"]], ids=str)
def test_what_cannot_be_saved(graph, wrong):  # testSomeErrors
    tb.Variable(1.0, name="v")
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.train.Saver(wrong)


def test_two_variables_of_one_name(graph, tmp_path):  # testSameName, testSomeErrors
    v, w = tb.Variable(1.0, name="v"), tb.Variable(2.0, name="v")
    assert (v.name, w.name) == ("v:0", "v_1:0")  # names of a graph are different
    both = tb.train.Saver({"one": v, "other": v})  # one variable under two names
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        path = both.save(session, tmp_path / "model")
    assert tb.train.list_variables(path) == [("one", []), ("other", [])]


def test_a_list_of_variables(session, path):  # testBasicsWithListOfVariables
    v0, v1 = tb.Variable(10.0, name="v0"), tb.Variable(20.0, name="v1")
    saver = tb.train.Saver([v0])
    session.run(tb.global_variables_initializer())
    saver.save(session, path)
    session.run([v0.assign(0.0), v1.assign(0.0)])
    saver.restore(session, path)
    assert session.run([v0, v1]) == [10.0, 0.0]
    assert tb.train.list_variables(path) == [("v0", [])]


def test_names_in_the_file(kernels_of_cases, path):  # SaveRestoreWithVariableNameMap.testNonReshape
    with tb.Graph().as_default(), tb.Session() as session:
        v0, v1 = tb.Variable(10.0, name="v0"), tb.Variable(20.0, name="v1")
        session.run(tb.global_variables_initializer())
        tb.train.Saver({"save_prefix/v0": v0, "save_prefix/v1": v1}).save(session, path)
    assert [name for name, _ in tb.train.list_variables(path)] == ["save_prefix/v0", "save_prefix/v1"]
    with tb.Graph().as_default(), tb.Session() as session:
        v0 = tb.Variable(-1.0, name="v0")
        with pytest.raises(NotFoundError, match="v0"):
            tb.train.Saver({"v0": v0}).restore(session, path)
        tb.train.Saver({"save_prefix/v0": v0}).restore(session, path)
        assert session.run(v0) == 10.0
    with tb.Graph().as_default(), tb.Session() as session:
        other = tb.Variable(-1.0, name="restore_prefix/v1")
        tb.train.Saver({"save_prefix/v1": other}).restore(session, path)
        assert session.run(other) == 20.0


def test_a_part_of_a_checkpoint(kernels_of_cases, path):
    with tb.Graph().as_default(), tb.Session() as session:
        tb.Variable(1.0, name="a"), tb.Variable(2.0, name="b")
        session.run(tb.global_variables_initializer())
        tb.train.Saver().save(session, path)
    with tb.Graph().as_default(), tb.Session() as session:
        b, c = tb.Variable(0.0, name="b"), tb.Variable(9.0, name="c")
        with pytest.raises(NotFoundError, match="c"):
            tb.train.Saver().restore(session, path)
        session.run(c.initializer)
        tb.train.Saver([b]).restore(session, path)
        assert session.run([b, c]) == [2.0, 9.0]


def test_optimisers_go_on_where_they_were(kernels_of_cases, path):
    def build():
        w = tb.Variable([1.0, -1.0], name="w")
        return w, tb.train.AdamOptimizer(0.1).minimize(tb.reduce_sum(tb.square(w - 3.0)))

    with tb.Graph().as_default(), tb.Session() as session:
        w, step = build()
        session.run(tb.global_variables_initializer())
        for number in range(4):
            if number == 2:
                tb.train.Saver().save(session, path)
            session.run(step)
        expected = session.run(w)
    with tb.Graph().as_default(), tb.Session() as session:
        w, step = build()
        tb.train.Saver().restore(session, path)
        session.run(step)
        session.run(step)
        np.testing.assert_array_equal(session.run(w), expected)


def test_variables_on_several_devices(graph, path):  # SaveRestoreShardedTest.testBasics
    with tb.device("/cpu:0"):
        a = tb.Variable(10.0, name="a")
    with tb.device("/cpu:1"):
        b = tb.Variable([20.0, 30.0], name="b")
    saver = tb.train.Saver()
    with tb.Session(devices=["/cpu:1"]) as session:
        session.run(tb.global_variables_initializer())
        saver.save(session, path)
        session.run([a.assign(0.0), b.assign([0.0, 0.0])])
        saver.restore(session, path)
        assert session.run(a) == 10.0
        np.testing.assert_array_equal(session.run(b), [20, 30])


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_partitioned_variables(kernels_of_cases, path, parts):  # testPartitionedVariables, testSliceVariable
    value = np.arange(10, dtype=np.float32).reshape(5, 2)

    def build(count):
        partitioner = tb.fixed_size_partitioner(count) if count > 1 else None
        with tb.variable_scope("root", partitioner=partitioner):
            return tb.get_variable("v", initializer=value)

    with tb.Graph().as_default(), tb.Session() as session:
        build(2)
        session.run(tb.global_variables_initializer())
        tb.train.Saver().save(session, path)
    with tb.Graph().as_default(), tb.Session() as session:
        v = build(parts)
        tb.train.Saver().restore(session, path)
        np.testing.assert_array_equal(session.run(tb.convert_to_tensor(v)), value)


# Steps and names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int", "variable", "tensor", "numpy"])
def test_the_global_step_in_the_name(session, tmp_path, kind):  # testSaveWithGlobalStep
    v, step = tb.Variable(1.0, name="v"), tb.Variable(5, name="global_step", trainable=False)
    session.run(tb.global_variables_initializer())
    given = {"int": 5, "variable": step, "tensor": tb.constant(2) + 3, "numpy": np.int64(5)}[kind]
    written = tb.train.Saver([v]).save(session, tmp_path / "model", global_step=given)
    assert os.path.basename(written).startswith("model-5")
    assert saved(tmp_path) == ["model-5"]


@pytest.mark.parametrize("step", [2.5, "five", [5]], ids=str)
def test_steps_that_are_none(session, path, step):
    v = tb.Variable(1.0, name="v")
    session.run(v.initializer)
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.train.Saver().save(session, path, global_step=step)


def test_two_savers_of_one_folder(session, tmp_path):  # testNameCollision
    v = tb.Variable(1.0, name="v")
    session.run(v.initializer)
    one, two = tb.train.Saver(), tb.train.Saver()
    one.save(session, tmp_path / "one", latest_filename="first")
    two.save(session, tmp_path / "two", latest_filename="second")
    assert os.path.basename(tb.train.latest_checkpoint(tmp_path, "first")).startswith("one")
    assert os.path.basename(tb.train.latest_checkpoint(tmp_path, "second")).startswith("two")


# max_to_keep: MaxToKeepTest -----------------------------------------------------------------------------


@pytest.fixture
def v(session):
    v = tb.Variable(1.0, name="v")
    session.run(v.initializer)
    return v


def test_the_newest_are_kept(session, v, tmp_path):  # testNonSharded
    saver = tb.train.Saver([v], max_to_keep=2)
    assert saver.last_checkpoints == []
    paths = [saver.save(session, tmp_path / f"s{number}") for number in (1, 2, 3)]
    assert saver.last_checkpoints == paths[1:]
    assert saved(tmp_path) == ["s2", "s3"]
    assert tb.train.latest_checkpoint(tmp_path) == paths[2]


def test_saving_the_same_path_again(session, v, tmp_path):
    saver = tb.train.Saver([v], max_to_keep=2)
    one = saver.save(session, tmp_path / "s1")
    two = saver.save(session, tmp_path / "s2")
    assert saver.save(session, tmp_path / "s1") == one
    assert saver.last_checkpoints == [two, one]
    three = saver.save(session, tmp_path / "s3")
    assert saver.last_checkpoints == [one, three]
    assert saved(tmp_path) == ["s1", "s3"]


@pytest.mark.parametrize("most", [None, 0])
def test_all_are_kept(session, v, tmp_path, most):  # testNoMaxToKeep
    saver = tb.train.Saver([v], max_to_keep=most)
    for number in range(7):
        saver.save(session, tmp_path / f"s{number}")
    assert saved(tmp_path) == [f"s{number}" for number in range(7)]


def test_five_are_kept_by_default(session, v, tmp_path):
    saver = tb.train.Saver()
    for number in range(7):
        saver.save(session, tmp_path / "model", global_step=number)
    assert saved(tmp_path) == [f"model-{number}" for number in range(2, 7)]


@pytest.mark.parametrize("most", [-1, 2.5, "two"], ids=str)
def test_numbers_to_keep_that_are_none(graph, most):
    tb.Variable(1.0)
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.train.Saver(max_to_keep=most)


def test_checkpoints_of_an_earlier_process(session, v, tmp_path):  # RecoverLastCheckpointsTest
    first = tb.train.Saver([v], max_to_keep=2)
    paths = [first.save(session, tmp_path / f"s{number}") for number in (1, 2)]
    second = tb.train.Saver([v], max_to_keep=2)
    second.recover_last_checkpoints(paths)
    assert second.last_checkpoints == paths
    third = second.save(session, tmp_path / "s3")
    assert second.last_checkpoints == [paths[1], third]
    assert saved(tmp_path) == ["s2", "s3"]
    other = tb.train.Saver([v])
    other.recover_last_checkpoints([*paths, third])
    assert other.last_checkpoints == [paths[1], third]  # the first one is gone


# The state of a folder: LatestCheckpointWithRelativePaths, CheckpointStateTest --------------------------


def test_a_folder_without_a_checkpoint(tmp_path):
    assert tb.train.latest_checkpoint(tmp_path) is None
    assert tb.train.latest_checkpoint(tmp_path / "missing") is None


def test_relative_paths(session, v, tmp_path, monkeypatch):  # testRelativePath
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    saver = tb.train.Saver([v])
    written = saver.save(session, "here/model", global_step=1)
    newest = tb.train.latest_checkpoint("here")
    assert os.path.samefile(newest, written)
    saver.restore(session, newest)
    monkeypatch.chdir(tmp_path / "here")
    saver.restore(session, tb.train.latest_checkpoint("."))


def test_a_folder_may_be_moved(session, v, tmp_path):
    saver = tb.train.Saver([v])
    saver.save(session, tmp_path / "old" / "model", global_step=3)
    os.rename(tmp_path / "old", tmp_path / "new")
    saver.restore(session, tb.train.latest_checkpoint(tmp_path / "new"))


def test_the_state_names_all_checkpoints(session, v, tmp_path):
    saver = tb.train.Saver([v], max_to_keep=2)
    paths = [saver.save(session, tmp_path / "model", global_step=number) for number in range(3)]
    state = tb.train.get_checkpoint_state(tmp_path)
    assert state.model_checkpoint_path == paths[2]
    assert list(state.all_model_checkpoint_paths) == paths[1:]
    assert tb.train.get_checkpoint_state(tmp_path / "missing") is None


@pytest.mark.parametrize("absolute", [False, True])
def test_the_state_is_written(tmp_path, absolute):  # testAbsPath, testRelPath, testUpdateCheckpointState
    names = ["model-1.safetensors", "model-2.safetensors"]
    paths = [str(tmp_path / name) if absolute else name for name in names]
    tb.train.update_checkpoint_state(tmp_path, paths[1], all_model_checkpoint_paths=paths)
    state = tb.train.get_checkpoint_state(tmp_path)
    assert state.model_checkpoint_path == str(tmp_path / names[1])
    assert list(state.all_model_checkpoint_paths) == [str(tmp_path / name) for name in names]


def test_the_newest_is_among_all_of_the_state(tmp_path):
    tb.train.update_checkpoint_state(tmp_path, "model-2", all_model_checkpoint_paths=["model-1"])
    state = tb.train.get_checkpoint_state(tmp_path)
    assert [os.path.basename(path) for path in state.all_model_checkpoint_paths] == ["model-1", "model-2"]


def test_a_state_that_is_damaged(tmp_path):  # testCheckPointStateFailsWhenIncomplete
    (tmp_path / "checkpoint").write_text("no state at all")
    with pytest.raises(TensorBowError):
        tb.train.get_checkpoint_state(tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model-1\n')
    with pytest.raises(TensorBowError):
        tb.train.get_checkpoint_state(tmp_path)


def test_whether_a_checkpoint_exists(session, v, path):
    assert not tb.train.checkpoint_exists(path)
    written = tb.train.Saver([v]).save(session, path)
    assert tb.train.checkpoint_exists(path)
    assert tb.train.checkpoint_exists(written)
    (found,) = tb.train.get_checkpoint_mtimes([written, f"{path}-other"])
    assert found == pytest.approx(existing_file(written).stat().st_mtime)
    tb.train.remove_checkpoint(written)
    assert not tb.train.checkpoint_exists(path)
    assert tb.train.get_checkpoint_mtimes([written]) == []


def test_checkpoints_as_they_are_written(session, v, tmp_path):
    saver = tb.train.Saver([v])
    found, asked = [], []

    def is_over():
        asked.append(len(found))
        if len(asked) < 3:
            saver.save(session, tmp_path / "model", global_step=len(asked))
        return len(asked) == 3

    for path in tb.train.checkpoints_iterator(tmp_path, timeout=0, timeout_fn=is_over):
        found.append(path)
    assert asked == [0, 1, 2]
    assert found[-1] == tb.train.latest_checkpoint(tmp_path) != found[0]
    assert len(found) == 2
    assert [*tb.train.checkpoints_iterator(tmp_path, timeout=0)] == found[-1:]


# keep_checkpoint_every_n_hours: KeepCheckpointEveryNHoursTest -------------------------------------------


def test_one_is_kept_for_ever_every_n_hours(session, v, tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(saver_module, "time", SimpleNamespace(time=lambda: now[0]))
    saver = tb.train.Saver([v], max_to_keep=2, keep_checkpoint_every_n_hours=1.0)
    for number in range(1, 10):
        now[0] += 1500.0
        saver.save(session, tmp_path / f"s{number}")
        if number == 7:  # s3 was written after the first hour, s5 after the second
            assert saved(tmp_path) == ["s3", "s5", "s6", "s7"]
            assert [os.path.basename(each)[:2] for each in saver.last_checkpoints] == ["s6", "s7"]
    assert saved(tmp_path) == ["s3", "s5", "s8", "s9"]


def test_the_best_that_is_kept_for_ever_is_not_removed_by_a_better_one(session, v, tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(saver_module, "time", SimpleNamespace(time=lambda: now[0]))
    saver = tb.train.Saver([v], max_to_keep=1, best_metric="m", keep_checkpoint_every_n_hours=1.0)
    for number, value in enumerate((5.0, 1.0, 9.0, 2.0)):
        now[0] += 4000.0
        saver.save(session, tmp_path / f"s{number}", metrics={"m": value})
    assert saved(tmp_path) == ["s0", "s1", "s2", "s3"]  # each is of another hour
    saver.save(session, tmp_path / "s4", metrics={"m": 0.0})
    saver.save(session, tmp_path / "s5", metrics={"m": 0.0})
    assert saved(tmp_path) == ["s0", "s1", "s2", "s3", "s5"]


@pytest.mark.parametrize("hours", [0, -1, "often"], ids=str)
def test_hours_that_are_none(graph, hours):
    tb.Variable(1.0)
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.train.Saver(keep_checkpoint_every_n_hours=hours)
