"""Saver: what is kept, what restoring refuses and in which words, what a new process takes over."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from tensorbow.training import load_arrays, save_arrays

pytestmark = pytest.mark.usefixtures("session")

ROOT = Path(tb.__file__).resolve().parent.parent


@pytest.fixture
def w():
    return tb.Variable(np.arange(6.0).reshape(2, 3), name="w")


@pytest.fixture
def n():
    return tb.Variable(3, name="n", trainable=False)


def names(folder):
    """Files in a folder, without graphs."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".meta")


def test_save_and_restore(session, w, n, tmp_path):
    session.run(tb.global_variables_initializer())
    saver = tb.train.Saver()
    path = saver.save(session, tmp_path / "new" / "model", global_step=n)
    assert path == str(tmp_path / "new" / "model-3.safetensors")
    assert names(tmp_path / "new") == ["checkpoint", "model-3.safetensors"]
    session.run([w.assign(np.zeros((2, 3))), n.assign(0)])
    saver.restore(session, path)
    np.testing.assert_array_equal(session.run(w), np.arange(6.0).reshape(2, 3))
    assert session.run(n) == 3
    saver.restore(session, tmp_path / "new" / "model-3")  # as TensorFlow names it
    assert tb.train.list_variables(path) == [("n", []), ("w", [2, 3])]


@pytest.mark.slow
def test_another_process_restores_without_initialising(session, w, tmp_path):
    session.run(w.initializer)
    tb.train.Saver().save(session, tmp_path / "m", 7)
    program = (
        "import sys, tensorbow as tb\n"
        "w = tb.Variable(tb.zeros([2, 3], tb.float64), name='w')\n"
        "with tb.Session() as session:\n"
        "    tb.train.Saver().restore(session, tb.train.latest_checkpoint(sys.argv[1]))\n"
        "    print(session.run(w).sum())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout == "15.0\n"


def test_subsets_and_other_names(session, w, n, tmp_path):
    session.run(tb.global_variables_initializer())
    path = tb.train.Saver([w]).save(session, tmp_path / "subset")
    assert tb.train.list_variables(path) == [("w", [2, 3])]
    path = tb.train.Saver({"old/name": w}).save(session, tmp_path / "renamed")
    session.run([w.assign(np.zeros((2, 3))), n.assign(9)])
    tb.train.Saver({"old/name": w}).restore(session, path)
    assert session.run([w[1, 2], n]) == [5, 9]


def test_missing_and_mismatched_names_as_tensorflow_words_them(session, w, n, tmp_path):
    session.run(tb.global_variables_initializer())
    path = tb.train.Saver({"weights": w, "n": n}).save(session, tmp_path / "m")
    with pytest.raises(NotFoundError, match=r"^Key w not found in checkpoint .*m\.safetensors"):
        tb.train.Saver([n, w]).restore(session, path)
    with pytest.raises(NotFoundError, match=r"Key weight not found .*; it has weights"):
        tb.train.Saver({"weight": w}).restore(session, path)
    other = tb.Variable(np.zeros((3, 2)), name="other")
    words = r"^Assign requires shapes of both tensors to match. lhs shape= \[3,2\] rhs shape= \[2,3\]: .*r"
    with pytest.raises(InvalidArgumentError, match=words):
        tb.train.Saver({"n": n, "weights": other}).restore(session, path)
    single = tb.Variable(np.zeros((2, 3), np.float32), name="single")
    words = "^tensor_name = weights; expected dtype float32 does not equal original dtype float64"
    with pytest.raises(InvalidArgumentError, match=words):
        tb.train.Saver({"weights": single}).restore(session, path)
    assert session.run(n) == 3
    with pytest.raises(FailedPreconditionError):
        session.run(other)


def test_the_newest_are_kept(session, w, tmp_path):
    session.run(w.initializer)
    saver = tb.train.Saver(max_to_keep=2)
    paths = [saver.save(session, tmp_path / "m", step) for step in (1, 2, 3, 2)]
    assert saver.last_checkpoints == [paths[2], paths[1]]
    assert names(tmp_path) == ["checkpoint", "m-2.safetensors", "m-3.safetensors"]
    assert tb.train.latest_checkpoint(tmp_path) == paths[1]
    everything = tb.train.Saver(max_to_keep=0)
    for step in range(10, 20):
        everything.save(session, tmp_path / "all", step)
    assert len(everything.last_checkpoints) == 10


@pytest.mark.parametrize(("mode", "best"), [("max", 2), ("min", 4)])
def test_the_best_is_kept_beside_them(session, w, tmp_path, mode, best):
    session.run(w.initializer)
    saver = tb.train.Saver(max_to_keep=1, best_metric="accuracy", mode=mode)
    for step, value in enumerate([0.5, float("nan"), 0.9, 0.9, 0.1, 0.3]):
        saver.save(session, tmp_path / "m", step, metrics={"accuracy": value, "loss": 1})
    assert names(tmp_path) == ["checkpoint", *sorted([f"m-{best}.safetensors", "m-5.safetensors"])]
    assert (
        saver.best_checkpoint == tb.train.best_checkpoint(tmp_path) == str(tmp_path / f"m-{best}.safetensors")
    )
    assert saver.best_value == (0.9 if mode == "max" else 0.1)
    with pytest.raises(InvalidArgumentError, match="'accuracy', which is not in metrics"):
        saver.save(session, tmp_path / "m", 6)
    again = tb.train.Saver(max_to_keep=1, best_metric="accuracy", mode=mode)
    again.recover_last_checkpoints(saver.last_checkpoints)
    assert (again.best_value, again.best_checkpoint) == (saver.best_value, saver.best_checkpoint)
    again.save(session, tmp_path / "m", 7, metrics={"accuracy": 0.5})
    assert names(tmp_path) == ["checkpoint", *sorted([f"m-{best}.safetensors", "m-7.safetensors"])]
    again.save(session, tmp_path / "m", 8, metrics={"accuracy": 2.0 if mode == "max" else -2.0})
    assert names(tmp_path) == ["checkpoint", "m-8.safetensors"]


def test_what_cannot_be_saved(session, w, tmp_path):
    with pytest.raises(FailedPreconditionError, match="without a value: w"):
        tb.train.Saver().save(session, tmp_path / "m")
    assert names(tmp_path) == []
    session.run(w.initializer)
    with tb.Graph().as_default():
        with pytest.raises(InvalidArgumentError, match="no variables to save"):
            tb.train.Saver()
        tb.Variable(1.0, name="foreign")
        with pytest.raises(InvalidArgumentError, match="foreign is not of the session's graph"):
            tb.train.Saver().save(session, tmp_path / "m")
    with pytest.raises(InvalidArgumentError, match="expected var_list to be of variables, got str 'w'"):
        tb.train.Saver(["w"])
    with pytest.raises(InvalidArgumentError, match="expected mode to be 'max' or 'min'"):
        tb.train.Saver(mode="most")
    with pytest.raises(InvalidArgumentError, match=r"a whole number, or .*, got float64"):
        tb.train.Saver().save(session, tmp_path / "m", w[0, 0])
    with pytest.raises(InvalidArgumentError, match="path of a file"):
        tb.train.Saver().save(session, f"{tmp_path}/")
    saver = tb.train.Saver(max_to_keep=1)
    first = saver.save(session, tmp_path / "m", 1)
    (tmp_path / "file").write_text("")
    with pytest.raises((ResourceExhaustedError, InvalidArgumentError), match="file"):
        saver.save(session, tmp_path / "file" / "m", 2)
    assert saver.last_checkpoints == [first]
    assert Path(first).exists()


@pytest.mark.parametrize("value", ["3", 2.5, True, -1, float("nan")])
def test_max_to_keep_is_a_whole_number(w, value):
    with pytest.raises(
        InvalidArgumentError, match="expected max_to_keep to be a whole number of at least 0 or None"
    ):
        tb.train.Saver(max_to_keep=value)


@pytest.mark.parametrize("var_list", ["w", 3, object()])
def test_a_var_list_that_is_none(w, var_list):
    with pytest.raises(
        InvalidArgumentError, match="expected var_list to be a list or dictionary of variables"
    ):
        tb.train.Saver(var_list)
    with pytest.raises(
        InvalidArgumentError, match="expected var_list to be a list or dictionary of variables"
    ):
        tb.train.Saver(w)
    with pytest.raises(
        InvalidArgumentError, match="expected the name of w in var_list to be a string, got int 3"
    ):
        tb.train.Saver({3: w})


@pytest.mark.parametrize("value", ["0.5", None, [1.0, 2.0], 10**400, object()])
def test_metrics_are_numbers(session, w, tmp_path, value):
    session.run(w.initializer)
    with pytest.raises(InvalidArgumentError, match="expected 'accuracy' of metrics to be a number"):
        tb.train.Saver().save(session, tmp_path / "m", metrics={"accuracy": value})
    with pytest.raises(InvalidArgumentError, match="expected metrics to be a dictionary or None, got list"):
        tb.train.Saver().save(session, tmp_path / "m", metrics=[value])
    assert names(tmp_path) == []


@pytest.mark.parametrize("path", ["", "a/", ".", "..", "a\0b", b"m", 3, None])
def test_paths_that_can_be_no_files(session, w, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    session.run(w.initializer)
    saver = tb.train.Saver()
    with pytest.raises(InvalidArgumentError, match=r"expected save_path to be (a|the) path"):
        saver.save(session, path)
    with pytest.raises((NotFoundError, FailedPreconditionError, InvalidArgumentError)):
        saver.restore(session, path)
    assert names(tmp_path) == []
    if not isinstance(path, str) or "\0" in path:
        for function in (tb.train.latest_checkpoint, tb.train.list_variables):
            with pytest.raises(InvalidArgumentError, match="to be a path, got"):
                function(path)


def test_names_with_commas_and_brackets(session, w, tmp_path):
    session.run(w.initializer)
    saved = tb.train.Saver().save(session, tmp_path / 'a, "b" [{,,c')
    assert tb.train.latest_checkpoint(tmp_path) == saved


@pytest.mark.parametrize("name", ["", "..", "a/b", "m.safetensors", "a\0b", 3])
def test_latest_filename_is_a_name(session, w, tmp_path, name):
    session.run(w.initializer)
    with pytest.raises(InvalidArgumentError, match="expected latest_filename to be the name of a file"):
        tb.train.Saver().save(session, tmp_path / "m", latest_filename=name)
    assert names(tmp_path) == []


@pytest.mark.parametrize("step", [1.5, True, np.ones(2), "w:0"])
def test_steps_that_are_no_whole_numbers(session, w, tmp_path, step):
    session.run(w.initializer)
    with pytest.raises(InvalidArgumentError, match="expected global_step to be a whole number"):
        tb.train.Saver().save(session, tmp_path / "m", step)


def test_all_missing_names_are_told(session, w, n, tmp_path):
    session.run(tb.global_variables_initializer())
    path = tb.train.Saver([n]).save(session, tmp_path / "m")
    wanted = {"n": n, **{f"gone{i}": w for i in range(14)}}
    with pytest.raises(NotFoundError, match=r"Key gone0 not found .*; nor are gone1, .*gone9 and 4 more$"):
        tb.train.Saver(wanted).restore(session, path)


def test_two_savers_in_a_folder(session, w, n, tmp_path):
    session.run(tb.global_variables_initializer())
    first, second = tb.train.Saver([w], max_to_keep=1), tb.train.Saver([n], max_to_keep=1)
    for step in range(3):
        first.save(session, tmp_path / "w", step)
        second.save(session, tmp_path / "n", step, latest_filename="other")
    assert names(tmp_path) == ["checkpoint", "n-2.safetensors", "other", "w-2.safetensors"]
    assert tb.train.latest_checkpoint(tmp_path) == str(tmp_path / "w-2.safetensors")
    assert tb.train.latest_checkpoint(tmp_path, "other") == str(tmp_path / "n-2.safetensors")


def test_a_state_that_cannot_be_written_costs_no_checkpoint(session, w, tmp_path):
    session.run(w.initializer)
    saver = tb.train.Saver(max_to_keep=1, best_metric="a")
    first = saver.save(session, tmp_path / "m", 1, metrics={"a": 1})
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(InvalidArgumentError, match=r"cannot write .*checkpoint"):
        saver.save(session, tmp_path / "m", 2, metrics={"a": 2})
    assert (saver.last_checkpoints, saver.best_checkpoint, saver.best_value) == ([first], first, 1)
    assert Path(first).exists()
    assert tb.train.latest_checkpoint(tmp_path) is None
    (tmp_path / "checkpoint").rmdir()
    os.mkfifo(tmp_path / "checkpoint")
    assert tb.train.latest_checkpoint(tmp_path) is None


def test_a_link_is_followed_when_read_and_when_written(session, w, tmp_path):
    session.run(w.initializer)
    saver = tb.train.Saver()
    real = Path(saver.save(session, tmp_path / "real"))
    link = tmp_path / "link.safetensors"
    link.symlink_to(real)
    saver.restore(session, link)
    session.run(w.assign(np.full((2, 3), 7.0)))
    saver.save(session, link)
    assert link.is_symlink()
    session.run(w.initializer)
    saver.restore(session, real)
    assert (session.run(w) == 7).all()
    (tmp_path / "loop.safetensors").symlink_to("loop.safetensors")
    with pytest.raises(FailedPreconditionError, match=r"loop\.safetensors"):
        saver.restore(session, tmp_path / "loop")


def test_a_loaded_graph_is_trained_on_saved_and_restored(session, w, tmp_path):
    loss = tb.reduce_sum(w * w, name="loss")
    tb.train.AdamOptimizer(0.1).minimize(loss)
    graph_def = session.graph.as_graph_def()
    with tb.Graph().as_default(), tb.Session() as other:
        (loss,) = tb.import_graph_def(graph_def, None, ["loss:0"], name="")
        step = tb.train.AdamOptimizer(0.5).minimize(loss)
        other.run(tb.global_variables_initializer())
        assert [v.op.name for v in tb.trainable_variables()] == ["w"]
        for _ in range(20):
            other.run(step)
        assert other.run(loss) < 10
        path = tb.train.Saver().save(other, tmp_path / "m")
        values = other.run(tb.global_variables())
    assert {name for name, _ in tb.train.list_variables(path)} >= {"w", "w/m", "w/v", "w/m_1", "w/v_1"}
    with tb.Graph().as_default(), tb.Session() as other:
        tb.import_graph_def(graph_def, name="")
        tb.train.Saver().restore(other, path)  # those that were there before the second optimiser
        for mine, theirs in zip(tb.global_variables(), values, strict=False):
            np.testing.assert_array_equal(other.run(mine), theirs)


def test_what_is_no_session(w, tmp_path):
    for thing in (None, 3):
        with pytest.raises(InvalidArgumentError, match="expected session to be a session, got"):
            tb.train.Saver().save(thing, tmp_path / "m")


def test_hostile_checkpoints(session, w, tmp_path):
    session.run(w.initializer)
    saver = tb.train.Saver()
    path = Path(saver.save(session, tmp_path / "m"))
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"", b"\xff" * 50, whole.replace(b'"w"', b'"v"')):
        path.write_bytes(damaged)
        with pytest.raises(DataLossError, match=r"m\.safetensors"):
            saver.restore(session, path)
    path.unlink()
    with pytest.raises(NotFoundError, match=r"not a valid checkpoint: there is no file .*m\.safetensors"):
        saver.restore(session, path)
    assert tb.train.latest_checkpoint(tmp_path) is None
    assert tb.train.latest_checkpoint(tmp_path / "nowhere") is None
    for text in ("model_checkpoint_path: 3", 'model_checkpoint_path: "a\\u0000"', "model_checkpoint_path: ["):
        (tmp_path / "checkpoint").write_text(text)
        with pytest.raises(DataLossError, match="checkpoint is damaged"):
            tb.train.latest_checkpoint(tmp_path)
    (tmp_path / "checkpoint").write_bytes(b"\xff\0junk: 3\n" * 10)
    assert tb.train.latest_checkpoint(tmp_path) is None


def test_optimiser_slots_are_saved_like_variables(session, w, tmp_path):
    step = tb.train.MomentumOptimizer(0.1, 0.9).minimize(tb.reduce_sum(w * w))
    session.run(tb.global_variables_initializer())
    session.run(step)
    path = tb.train.Saver().save(session, tmp_path / "m")
    session.run(step)
    after = session.run(w)
    tb.train.Saver().restore(session, path)
    session.run(step)
    np.testing.assert_array_equal(session.run(w), after)


def test_momentum_of_an_earlier_version_is_refused(session, w, tmp_path):
    """Its slot was -learning_rate times the sum of gradients, and the file does not tell the rate."""
    optimizer = tb.train.MomentumOptimizer(0.5, 0.9)
    other = tb.train.RMSPropOptimizer(0.1, momentum=0.5)  # whose slot `momentum` is as it was
    update = tb.group(*(each.minimize(tb.reduce_sum(w)) for each in (optimizer, other)))
    session.run(tb.global_variables_initializer())
    saver = tb.train.Saver()

    def made_old(path):
        arrays, described = load_arrays(Path(path))
        assert described.pop("momentum") == "sum of gradients"
        save_arrays(Path(path), arrays, described)
        return path

    saver.restore(
        session, made_old(saver.save(session, tmp_path / "unused"))
    )  # a slot of zeros means the same
    session.run(update)
    slot, before = optimizer.get_slot(w, "Momentum"), session.run(w)
    path = saver.save(session, tmp_path / "used")
    saver.restore(session, path)
    session.run(update)
    made_old(path)
    with pytest.raises(InvalidArgumentError, match=r"earlier version: its w/Momentum is .*Saver\(var_list\)"):
        saver.restore(session, path)
    assert not np.array_equal(session.run(w), before)  # nothing was restored
    tb.train.Saver([v for v in tb.global_variables() if v is not slot]).restore(session, path)
    np.testing.assert_array_equal(session.run(w), before)
