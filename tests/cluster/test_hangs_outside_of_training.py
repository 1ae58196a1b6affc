"""Hangs before the first step, and long work of one worker after the last: what the watch of a job says."""

import os
import re
import sys
import threading

import pytest

from scheduler.workers import joining
from scheduler.workers.pulse import PULSE, waiting
from tests.cluster.test_launch import launched, under_mpirun

WATCHDOG_S = 5
PROGRAM = """
import os, sys, time
how, rank = sys.argv[1], int(os.environ["OMPI_COMM_WORLD_RANK"])
if how == "join" and rank: time.sleep(1e6)
if how == "quit" and rank: sys.exit()
import numpy as np
import tensorbow as tb
replicator = tb.MultiWorkerReplicator(["/cpu:0"])
if how == "data" and rank: time.sleep(1e6)
if how == "leave" and rank: sys.exit()
def step_fn(x):
    optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))
    return optimizer.minimize(tb.reduce_mean(tb.square(tb.layers.dense(x, 3))))
def input_fn(context):
    if how == "input" and rank: time.sleep(1e6)
    while True:
        yield np.ones([4, 5], np.float32)
for _ in replicator.train(step_fn, input_fn, 20):
    pass
if not rank:
    time.sleep(11)
    print("worker 0 is done")
"""
WAITS = "no step of the job has ended for 5 s, and it has not come to its first step"
JOINS = (
    r"hangs or has ended at step 0: it has not joined the job \(tb.worker_group\(\)\), and worker 0 .* has"
)
LEFT = "left the job at step 0 with status 0, while the other one needs it"


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["launch", "mpirun"])
@pytest.mark.parametrize("how", ["join", "quit", "data", "leave", "input", "late"])
def test_a_worker_that_does_not_come_to_the_first_step_is_named_and_one_that_works_on_alone_is_not(
    tmp_path, launcher, how
):
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ("-m", "tensorbow", "launch", "-n", "2", "--watchdog", str(WATCHDOG_S))
    if launcher == "mpirun":
        words = under_mpirun(watchdog=WATCHDOG_S)
    with launched(tmp_path, "program.py", how, prefix=words) as job:
        out, err = job.communicate(timeout=60)
    if how == "late":
        assert (job.returncode, out.strip()) == (0, "worker 0 is done"), err
        return
    assert job.returncode != 0
    (line,) = re.findall(r"^tensorbow: .*", err, re.MULTILINE)
    said = LEFT if how in ("quit", "leave") else f"hangs at step 0: {WAITS}"
    if launcher == "mpirun" and how in ("join", "quit"):  # nobody watches yet
        said = f"{JOINS} waited {WATCHDOG_S} s for it in MPI_Init"
    assert re.match(rf"tensorbow: worker 1 \(\S+(, process \d+)?\) {said}", line), err


@pytest.mark.skipif(sys.platform != "linux", reason="marks are sockets of Linux")
def test_the_first_process_without_a_mark_is_named_when_joining_takes_too_long(monkeypatch, capfd):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3")
    monkeypatch.setenv("PMIX_NAMESPACE", f"of-a-test-{os.getpid()}")
    monkeypatch.setattr(joining, "IMPORTS_S", 0.0)
    monkeypatch.setattr(joining, "MPI_S", 0.0)
    ended, over = [], threading.Event()
    monkeypatch.setattr(os, "_exit", ended.append)

    def line():
        joining._end_late(0.01, 0, over)
        return capfd.readouterr().err

    with joining._mark(0), joining._mark(2):
        said = r"tensorbow: worker 1 \(\S+\) hangs or has ended at step 0: .* has waited 0\.01 s for it .*\n"
        assert re.fullmatch(said, line())
        with joining._mark(1):
            assert re.search(r"worker 0 \(.*\) hangs in MPI_Init, which all workers have called", line())
    assert joining._absent() == [0, 1, 2]  # a process that has ended leaves no mark
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
    assert line().startswith("tensorbow: a worker hangs")  # it may be on another machine
    assert ended == [1, 1, 1]
    over.set()
    assert (line(), len(ended)) == ("", 3)


def test_a_call_that_others_have_to_make_counts_as_waiting_whatever_rounds_do():
    assert not PULSE.waits_for_others
    moved, inside, goes_on = PULSE.moved, threading.Event(), threading.Event()

    def call():
        with waiting():
            inside.set()
            goes_on.wait()

    thread = threading.Thread(target=call)
    thread.start()
    inside.wait()
    PULSE.settled.clear()
    PULSE.settle()  # a run has ended
    assert PULSE.settled.is_set()
    assert PULSE.waits_for_others
    goes_on.set()
    thread.join()
    assert not PULSE.waits_for_others
    assert PULSE.moved[2:] == (moved[2] + 1, moved[3] + 1)
