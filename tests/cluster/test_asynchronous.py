"""Asynchronous training by processes of Ray."""

from __future__ import annotations

import functools
import json
import pickle
import subprocess
import sys
import threading

import pytest

import tensorbow as tb
from replicator.asynchronous.sent_functions import pickled
from tests.cluster_rig.mpi_jobs import ROOT


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(tb.errors.UnimplementedError, match=r"pip install 'tensorbow\[async\]'"):
        next(tb.MultiWorkerAsyncReplicator().train(lambda: tb.no_op(), None, 1))
    with pytest.raises(tb.errors.FailedPreconditionError, match="before train"):
        tb.MultiWorkerAsyncReplicator().central_values()


def test_only_its_own_files_are_restored(tmp_path):
    path = tmp_path / "other.safetensors"
    with tb.NonReplicator() as replicator:
        for _ in replicator.train(lambda: tb.get_variable("w", [2], initializer="ones"), None, 1):
            replicator.save(path)
    with pytest.raises(tb.errors.InvalidArgumentError, match=r"expected a file of MultiWorkerAsync"):
        tb.MultiWorkerAsyncReplicator().restore(path)


def test_what_cannot_be_sent_to_workers_is_named():
    lock = threading.Lock()

    def helper():
        return lock.locked()

    def step_fn():
        return helper()

    class Opened:
        def __init__(self):
            self.handle = lock

        def read(self):
            yield self.handle

    dumps = pytest.importorskip("cloudpickle", reason="pickles functions by value").dumps
    steps, _, more = pickle.loads(pickled(dumps, {"step_fn": lambda: 3, "input_fn": None}, 5))
    assert (steps(), more) == (3, 5)
    for named, words in (
        ({"step_fn": step_fn}, r"step_fn: .* its variable lock \(a lock\) cannot be pickled"),
        ({"step_fn": len, "input_fn": Opened().read}, r"input_fn: .* its variable handle \(a lock\)"),
        ({"input_fn": functools.partial(step_fn, at=1)}, r"input_fn: .* its variable lock"),
        ({"input_fn": (each for each in ())}, r"input_fn: .* but it cannot be pickled \(TypeError"),
    ):
        with pytest.raises(tb.errors.InvalidArgumentError, match=words):
            pickled(dumps, named)


def test_workers_of_ray_train_together(tmp_path):
    pytest.importorskip("ray", reason="asynchronous workers need the extra async")
    program = [sys.executable, "-m", "tests.cluster_rig.asynchronous_training", str(tmp_path), "short"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads((tmp_path / "said.json").read_text())
    assert len(said["losses"]) == sum(said["by worker"]) == 40
    assert sum(said["losses"][-10:]) < sum(said["losses"][:10])


@pytest.mark.slow
def test_workers_and_shards_that_die_are_begun_again(tmp_path):
    pytest.importorskip("ray", reason="asynchronous workers need the extra async")
    program = [sys.executable, "-m", "tests.cluster_rig.asynchronous_training", str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads((tmp_path / "said.json").read_text())
    first, last, count = said["losses"]
    assert count == 600
    assert last < first / 2
    assert sum(said["by worker"]) == 600
    assert min(said["by worker"]) > 100  # the one that was killed too
    # a shard that died has lost the pushes since its last checkpoint, at most 20 and those on their way
    assert 600 - 30 <= said["counter"] <= 603
    assert said["saved"] == said["restored"] == 600
    assert said["ended"] == 6
    assert said["counter after"] == said["counter"] + 6
    assert "worker 1: the input of replica 1, batch 1, failed: ValueError: no more of these" in said["error"]
    assert "MultiWorkerAsyncReplicator: worker 1 has died, and is started again\n" in done.stderr
    assert "MultiWorkerAsyncReplicator: shard 0 has died, and begins again with its newest" in done.stderr
    assert "raylet" not in done.stdout + done.stderr
