"""Asynchronous training by processes of Ray."""

from __future__ import annotations

import functools
import ipaddress
import json
import os
import pickle
import re
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

import tensorbow as tb
from replicator.asynchronous.ray_actors import _require_connection
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


def test_a_folder_that_cannot_be_made_is_refused_before_ray_starts(tmp_path):
    (tmp_path / "file").touch()
    replicator = tb.MultiWorkerAsyncReplicator(folder=tmp_path / "file" / "shards")
    with pytest.raises(tb.errors.InvalidArgumentError, match="a file is in the way; choose another one"):
        next(replicator.train(lambda: tb.get_variable("w", [2]), None, 1))


def test_what_cannot_be_sent_to_workers_is_named():
    lock = threading.Lock()

    def helper():
        return lock.locked()

    def step_fn():
        return helper()

    with tb.Graph().as_default():
        scale = tb.Variable(1.0, name="scale")

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
        ({"step_fn": len, "input_fn": Opened().read}, r"input_fn: .* its variable self\.handle \(a lock\)"),
        ({"step_fn": lambda: scale}, r"step_fn: .* its variable scale \(a Variable\) cannot be pickled"),
        ({"input_fn": functools.partial(step_fn, at=1)}, r"input_fn: .* its variable lock"),
        ({"input_fn": (each for each in ())}, r"input_fn: .* but it cannot be pickled \(TypeError"),
    ):
        with pytest.raises(tb.errors.InvalidArgumentError, match=words):
            pickled(dumps, named)


def said_by(folder, *part, seconds=120):
    """What the program of the rig has written, and its output."""
    pytest.importorskip("ray", reason="asynchronous workers need the extra async")
    program = [sys.executable, "-m", "tests.cluster_rig.asynchronous_training", str(folder), *part]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "said.json").read_text()), done


def test_workers_of_ray_train_together_and_listen_on_the_loopback_address_alone(tmp_path):
    said, _ = said_by(tmp_path, "short")
    assert len(said["losses"]) == sum(said["by worker"]) == 40
    assert sum(said["losses"][-10:]) < sum(said["losses"][:10])
    if sys.platform == "linux":
        assert said["listens"]
        assert all(ipaddress.ip_address(address).is_loopback for address in said["listens"])
    other = tb.MultiWorkerAsyncReplicator(2, folder=tmp_path / "shards")
    with pytest.raises(tb.errors.AlreadyExistsError, match=r"call restore\(folder\)"):
        other._take_over(tmp_path / "shards")
    assert other.restore(tmp_path / "shards") == 40  # of the end: one is written every 100 pushes, too
    other._take_over(tmp_path / "shards")


@pytest.mark.parametrize("address", [None, "auto", "127.0.0.1:41", "localhost:41", "ray://localhost:41"])
def test_a_connection_to_the_cluster_of_the_address_is_used(address):
    _require_connection(connected_to("127.0.0.1:41"), address)


@pytest.mark.parametrize("address", ["127.0.0.1:42", "10.1.2.3:41", "localhost"])
def test_a_connection_to_another_cluster_than_that_of_the_address_is_refused(address):
    words = rf"expected Ray at address {address}, but .* to Ray at 127\.0\.0\.1:41 since .*ray\.shutdown\(\)"
    with pytest.raises(tb.errors.FailedPreconditionError, match=words):
        _require_connection(connected_to("127.0.0.1:41"), address)


def connected_to(address):
    return SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(gcs_address=address))


@pytest.mark.slow
def test_what_cannot_go_on_ends_with_one_line(tmp_path):
    said, done = said_by(tmp_path, "dying", seconds=300)
    assert said["steps"] == 4
    assert said["address"].startswith(
        "FailedPreconditionError: MultiWorkerAsyncReplicator: expected Ray at ad"
    )
    crash = r"AbortedError: worker 0: its process has died 3 times while it traced the step: .*"
    assert re.fullmatch(crash, said["crash"]), said
    died = "AbortedError: MultiWorkerAsyncReplicator: the coordinator of the training has died: .*"
    assert re.fullmatch(died, said["coordinator"]), said
    assert "Unhandled error" not in done.stderr


@pytest.mark.slow
def test_who_has_not_the_token_does_not_get_in(tmp_path):
    said, _ = said_by(tmp_path, "guarded", seconds=300)
    assert "got in, 1 nodes" in said["the token"]
    for other in ("another token", "no token"):
        assert "got in" not in said[other]
        assert "Error" in said[other]


@pytest.mark.slow
def test_a_cluster_at_an_address_is_not_joined_without_a_token(tmp_path):
    pytest.importorskip("ray", reason="asynchronous workers need the extra async")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment |= {"HOME": str(tmp_path)}  # where a token may lie
    lines = "import tensorbow as tb; r = tb.MultiWorkerAsyncReplicator(address='127.0.0.1:1')"
    program = [sys.executable, "-c", f"{lines}; next(r.train(lambda: None))"]
    done = subprocess.run(
        program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1
    assert "AbortedError: MultiWorkerAsyncReplicator: Ray at 127.0.0.1:1: AuthenticationError" in done.stderr


@pytest.mark.slow
def test_a_fast_worker_waits_for_a_slow_one(tmp_path):
    said, _ = said_by(tmp_path, "bounded")
    order = said["order"]
    first, last = order.index(0), len(order) - 1 - order[::-1].index(0)
    ahead, most = 0, 0
    for worker in order[first + 1 : last + 1]:  # while both train
        ahead += 1 if worker else -1
        most = max(most, ahead)
    assert order.count(0) > 40  # of 120
    assert most <= 2 * (2 + 1)  # it was at most 3 steps behind at the beginning, and is as many before


@pytest.mark.slow
def test_nobody_waits_for_a_worker_that_hangs(tmp_path):
    said, _ = said_by(tmp_path, "hanging")
    assert said["steps"] == sum(said["by worker"]) == 100  # its step was done by the other
    assert said["by worker"][1] < 50
    with pytest.raises(ProcessLookupError):
        os.kill(said["process"], 0)


@pytest.mark.slow
def test_workers_and_shards_that_die_are_begun_again(tmp_path):
    said, done = said_by(tmp_path, seconds=300)
    first, last, count = said["losses"]
    assert count == 600
    assert last < first / 2
    assert sum(said["by worker"]) == 600
    assert min(said["by worker"]) > 100  # the one that was killed too
    # a shard that died has lost the pushes since its last checkpoint: at most 20, those on their way, and
    # those that came while a checkpoint was written
    assert 600 - 60 <= said["counter"] <= 603
    assert said["saved"] == said["restored"] == 600
    assert said["ended"] == 6
    assert said["counter after"] == said["counter"] + 6
    assert 600 - 80 <= said["pushes"] <= 603
    assert said["went on"] == 6
    assert any(line.startswith("train: 6 of 100 steps: the inputs of all workers") for line in said["fewer"])
    assert (
        abs(said["counter then"] - said["pushes"] - 6) <= 80
    )  # the shards' checkpoints are of other moments
    assert said["folders"] == ["shard-0-of-1"]
    assert "worker 1: the input of replica 1, batch 1, failed: ValueError: no more of these" in said["error"]
    assert "MultiWorkerAsyncReplicator: worker 1 has died, and is started again\n" in done.stderr
    assert (
        "MultiWorkerAsyncReplicator: shard 0 of 2 has died, and begins again with its newest" in done.stderr
    )
    assert "raylet" not in done.stdout + done.stderr
