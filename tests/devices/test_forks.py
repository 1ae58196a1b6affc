"""Objects made before `os.fork()` refuse work in the child, and objects made in the child work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOST = "got one that was forked from it, without its threads"
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

PROGRAM = """
import os, sys, time, warnings
import numpy as np
import tensorbow as tb
from tensorbow.devices import CpuDevice

warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, for a fork with threads
kind, what = sys.argv[1:]
x = tb.placeholder(tb.float32, [None, 3])
w = tb.Variable(np.ones((3, 2), np.float32), name="w")
loss = tb.reduce_mean(tb.matmul(x, w))
update = tb.train.AdamOptimizer(0.1).minimize(loss)
feeds = {x: np.ones((4, 3))}
if kind == "plain":
    session = tb.Session()
else:  # with the averaging still in flight when the process forks
    device = CpuDevice("/cpu:7", delay=lambda: time.sleep(0.03))
    session = tb.TensorBowSession(devices=[device], replicas_per_device=2)
session.run(tb.global_variables_initializer())
session.run(update, feeds)


def tried(act):
    try:
        return act()
    except tb.errors.FailedPreconditionError as error:
        return f"refused: {error}"


child = os.fork()
if child == 0:
    if what == "new":
        with tb.Session() as own:
            own.run(tb.global_variables_initializer())
            print("child:", own.run(loss, feeds), flush=True)
    elif what == "close":
        print("child:", tried(session.close), flush=True)
    else:
        for _ in range(2):
            print("child:", tried(lambda: session.run(loss if what == "loss" else update, feeds)), flush=True)
    os._exit(0)
status = os.waitpid(child, 0)[1]
session.run(update, feeds)  # the parent goes on
session.close()
print("parent:", status)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "replicas"])
@pytest.mark.parametrize("what", ["loss", "update", "close", "new"])
@pytest.mark.parametrize("backend", [pytest.param("reference", marks=pytest.mark.slow), "native"])
def test_a_session_after_a_fork(kind: str, what: str, backend: str) -> None:
    if backend == "native":
        pytest.importorskip("llvmlite")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, what],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TENSORBOW_CPU": backend},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    *child, parent = done.stdout.splitlines()
    assert parent == "parent: 0"
    if what == "close":
        assert child == ["child: None"]
    elif what == "new":
        assert child == ["child: 3.0"]
    else:
        assert len(child) == 2
        assert all(line.startswith("child: refused: ") and LOST in line for line in child), child
        assert all("make a new one" in line for line in child)


ROUNDS = """
import os, sys, threading, warnings
import numpy as np
import tensorbow as tb

warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, for a fork with threads
data, _ = tb.data.make_synthetic(64, 8, height=4, width=4)
with tb.Graph().as_default():
    images = tb.placeholder(tb.float32, [None, 4, 4, 1])
    labels = tb.placeholder(tb.int64, [None])
    logits = tb.layers.dense(tb.layers.flatten(images), 10)
    loss = tb.reduce_mean(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    update = tb.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    program = tb.StepProgram((images, labels), loss, update)


def made():
    engine = tb.LearningEngine(program, 4, ["/cpu:0", "/cpu:1"], 1, steps_per_launch=8)
    engine.initialize()
    return engine, tb.DatasetBatches(data, 4, 2, seed=1, steps_per_launch=8)


engine, batches = made()
engine.run(batches.open, 0, 16)
trained = threading.Thread(target=engine.run, args=(batches.open, 16, 20_000))
trained.start()  # rounds are in flight when the process forks
child = os.fork()
if child == 0:
    try:
        engine.run(batches.open, 16, 32)
    except tb.errors.FailedPreconditionError as error:
        print("child: refused", flush=True)
    own, batches = made()
    print("child:", own.run(batches.open, 0, 16), flush=True)
    os._exit(0)
status = os.waitpid(child, 0)[1]
engine.request_stop()
trained.join()
print("parent:", status, engine.run(batches.open, 20_000, 20_008))
engine.close()
"""


@pytest.mark.slow
def test_rounds_in_flight_at_a_fork() -> None:
    pytest.importorskip("llvmlite")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", ROUNDS],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TENSORBOW_CPU": "native"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == ["child: refused", "child: 16", "parent: 0 20008"]
