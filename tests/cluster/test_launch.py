"""`tensorbow launch`: workers train as one process would, a fault of one ends all, restarts lose no bits."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import tensorbow as tb
from scheduler.workers import launching, memory_of_mpi
from scheduler.workers.launching import Job, JobLaunch
from scheduler.workers.mpirun import AS_ROOT, Hosts, command_of
from scheduler.workers.watch_server import WatchServer, own_port
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.training import load_arrays
from tests.cluster_rig.mpi_jobs import ROOT, mpirun
from tests.cluster_rig.two_machines import cut, two_machines

KILLS = 100
AT_STEP = r"at step \d+(?:, [\w ]+)?"  # a worker may evaluate, or write a checkpoint
OPTIONS = {"epochs": 12, "tau": 2, "staleness": 1, "checkpoint_rounds": 25}
WORDS = [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
TRAIN = ("train", "logreg", *WORDS, "--replicas-per-gpu", "1")
PROGRAM = """
import os, sys, time
import tensorbow as tb
worker, fault = int(os.environ["OMPI_COMM_WORLD_RANK"]), sys.argv[1]
class Fault(tb.Callback):
    def on_round(self, run, report):
        if report.round == 20:
            if fault == "raise": raise ValueError("of the program")
            if fault == "sleep": time.sleep(1e6)
    def on_epoch(self, run, record):
        if fault == "epoch": time.sleep(1e6)
    def on_checkpoint(self, run, path):
        if fault == "checkpoint": time.sleep(1e6)
if fault == "evaluation" and not worker:
    from scheduler.training.models.evaluation import Evaluator
    Evaluator.evaluate = lambda *_: time.sleep(1e6)
if fault == "worker" and worker == 1:
    from scheduler.engine.backup_run import BackupRun
    BackupRun._hand_out = lambda *_: time.sleep(1e6)
more = {"sync": "ssgd", "backup": 1} if "backup" in sys.argv else {}
with tb.fit("logreg", replicas=1, epochs=50, callbacks=[Fault()], progress=False, output="run", **more):
    if fault == "exit" and worker: sys.exit(3)
    if fault == "exit": time.sleep(1e6)
"""


EXCHANGING = """
import os, signal, threading
import tensorbow as tb
from scheduler import Synchronisation
from tests.scheduler_rig.programs import well
from tests.scheduler_rig.running import Prepared
workers, model = tb.worker_group(), well(1 << 21)
batch = model.batch(0, workers.rank)
engine = tb.LearningEngine(model.program, model.shapes, ["/cpu:0"], 1, workers=workers)
engine.initialize(model.initial)
def kill(results):
    if workers.rank == 1 and results.rounds[0] == 9:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
engine.run(Prepared(lambda round, replica: batch, 1).open, 0, 4000, on_results=kill)
"""


@contextlib.contextmanager
def launched(folder, *words, prefix=("-m", "tensorbow", "launch", "-n", "2")):
    """A job under way, which does not outlive the test."""
    mpirun()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, *prefix, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)  # twice: all workers are killed
            time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        for pipe in (process.stdout, process.stderr):
            pipe.close()


def rounds(folder):
    found = (re.match(r"checkpoint-(\d+)\.safetensors$", path.name) for path in folder.glob("checkpoint-*"))
    return [int(match[1]) for match in found if match]


def worker_process(number, folder):
    """The process of a worker, by its environment; None while it starts."""
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{int(entry)}/environ", "rb") as file:
                environment = file.read().split(b"\0")
            here = os.readlink(f"/proc/{entry}/cwd") == folder
            if here and f"OMPI_COMM_WORLD_RANK={number}".encode() in environment:
                return int(entry)
    return None


def under_mpirun(*words, watchdog=300, workers=2):
    """What starts a Python program, or what the words say, in workers by mpirun itself."""
    environment = {"TENSORBOW_WATCHDOG": str(watchdog), **AS_ROOT}
    started = f"import os, sys; os.environ.update({environment}); os.execv(sys.argv[1], sys.argv[1:])"
    return ("-c", started, mpirun(), "-n", str(workers), "--oversubscribe", sys.executable, *words)


def said_by(job):
    """What a job that has ended has printed; MPI's helper on another machine may still hold the pipes."""
    said = []
    for pipe in (job.stdout, job.stderr):
        os.set_blocking(pipe.fileno(), False)
        said.append(pipe.read() or "")
    return said


def wait_for(what, job, seconds=60):
    ends = time.monotonic() + seconds
    while not (found := what()):
        assert job.poll() is None, said_by(job)
        assert time.monotonic() < ends, "it takes too long"
        time.sleep(0.02)
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_a_killed_worker_is_named_and_the_restarted_job_has_the_bits_of_one_process(tmp_path):
    with launched(tmp_path, "--restarts", "2", *TRAIN, "--output", "run") as job:
        wait_for(lambda: rounds(tmp_path / "run"), job)
        os.kill(wait_for(lambda: worker_process(1, str(tmp_path)), job), signal.SIGKILL)
        out, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    assert re.search(rf"tensorbow: worker 1 \(\S+, process \d+\) was killed or has crashed {AT_STEP}\n", err)
    assert "tensorbow: restart 1 of 2, from the last checkpoint in " in err
    assert "resumed from " in out
    assert out.count("epoch  12/12") == 1
    with tb.fit("logreg", replicas=2, progress=False, **OPTIONS) as whole:
        values, _ = load_arrays(tmp_path / "run" / "model.safetensors")
        assert whole.values.keys() == values.keys()
        for name, value in whole.values.items():
            np.testing.assert_allclose(values[name], value, rtol=1e-6, atol=1e-7)
        assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == len(whole.history)


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["shared", "mpi"])
def test_a_worker_that_waits_in_an_exchange_ends_when_the_other_is_killed(tmp_path, exchange, monkeypatch):
    monkeypatch.setenv("TENSORBOW_EXCHANGE", exchange)
    (tmp_path / "program.py").write_text(EXCHANGING)
    with launched(tmp_path, "program.py") as job:
        _, err = job.communicate(timeout=40)
    assert job.returncode != 0
    assert re.search(
        rf"tensorbow: worker 1 \(\S+, process \d+\) was killed or has crashed {AT_STEP}\n", err
    ), err
    assert not worker_process(0, str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("raise", r"worker 0 .*callback Fault.on_round failed at round 21: ValueError: of the program"),
        ("exit", r"worker 1 .*: ended with status 3"),
        ("sleep", r"worker 0 .* hangs at step 2\d: no step of the job has ended for 3 s"),
        ("epoch", r"worker 0 .* hangs at step \d+: no step of the job has ended for 3 s"),
        ("checkpoint", r"worker 0 .* hangs at step \d+: no step of the job has ended for 3 s"),
        ("evaluation", r"worker 0 .* hangs at step \d+, evaluating: it has done so for 30 s"),
    ],
)
@pytest.mark.parametrize("launcher", ["launch", "mpirun"])
def test_a_fault_of_a_program_ends_all_workers_with_a_line(tmp_path, fault, line, launcher):
    if launcher == "mpirun" and fault == "exit":
        pytest.skip("by mpirun an end of a worker is a fault when others need it: see the next test")
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ("-m", "tensorbow", "launch", "-n", "2", "--watchdog", "3")
    if launcher == "mpirun":
        words = under_mpirun(watchdog=3)
    with launched(tmp_path, "program.py", fault, prefix=words) as job:
        _, err = job.communicate(timeout=100)
    assert job.returncode != 0
    assert len(re.findall(rf"tensorbow: {line}", err)) == 1, err


LEAVING = """
import sys
import numpy as np
import tensorbow as tb
replicator, how = tb.MultiWorkerReplicator(["/cpu:0"]), sys.argv[2]
class Leave(tb.Callback):
    def on_round(self, run, report):
        if report.round == 20: leave()
def leave():
    if how == "text": sys.exit("no data")
    if how == "raise": raise SystemExit(3)
    sys.exit(int(how))
def step_fn(x):
    optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))
    return optimizer.minimize(tb.reduce_mean(tb.square(tb.layers.dense(x, 3))))
def input_fn(context):
    while True:
        yield np.ones([4, 5], np.float32)
if sys.argv[1] == "callback":
    tb.fit("logreg", replicas=1, epochs=10000, callbacks=[Leave()], progress=False)
for n, _ in enumerate(replicator.train(step_fn, input_fn, 10**7)):
    if n == 20 and replicator.worker_id == int(sys.argv[1]):
        leave()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "where", "how", "said"),
    [
        ("mpirun", "callback", "3", "with status 3"),
        ("mpirun", "callback", "0", "with status 0"),
        ("mpirun", "0", "3", "with status 3"),
        ("mpirun", "1", "3", "with status 3"),
        ("mpirun", "1", "0", "with status 0"),
        ("mpirun", "1", "text", r"with status 1 \(no data\)"),
        ("mpirun", "1", "raise", "at the end of its program"),  # Python tells nobody the status
        ("launch", "callback", "0", "with status 0"),
        ("launch", "1", "0", "with status 0"),
    ],
)
def test_a_worker_whose_program_leaves_while_the_other_trains_ends_the_job(
    tmp_path, launcher, where, how, said
):
    (tmp_path / "program.py").write_text(LEAVING)
    words = ("-m", "tensorbow", "launch", "-n", "2") if launcher == "launch" else under_mpirun()
    number = 0 if where == "callback" else int(where)
    with launched(tmp_path, "program.py", where, how, prefix=words) as job:
        _, err = job.communicate(timeout=60)  # the watchdog takes 300
    assert job.returncode != 0
    (line,) = re.findall(r"^tensorbow: .*", err, re.MULTILINE)
    left = rf"tensorbow: worker {number} \(.*\) left the job {AT_STEP} {said}, while the other one needs it"
    assert re.match(left, line), err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("raise", r"worker 0 .*callback Fault.on_round failed at round 21: ValueError: of the program"),
        ("sleep", r"worker 0 .* hangs at step \d+: no step of the job has ended for 8 s"),
        ("worker", r"worker 1 .* hangs at step \d+: no step of the job has ended for 8 s"),
    ],
)
def test_a_fault_beside_backup_workers_ends_all_with_a_line(tmp_path, fault, line):
    """Others do without a worker that hangs, but for the end of an epoch, where all are to be there."""
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ("-m", "tensorbow", "launch", "-n", "3", "--watchdog", "8")
    with launched(tmp_path, "program.py", fault, "backup", prefix=words) as job:
        _, err = job.communicate(timeout=100)
    assert job.returncode != 0
    assert len(re.findall(rf"tensorbow: {line}", err)) == 1, err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_a_job_with_backup_workers_goes_on_behind_a_kill(tmp_path):
    words = ("train", "logreg", "--epochs", "12", "--checkpoint-rounds", "25", "--replicas-per-gpu", "1")
    words = (*words, "--sync", "ssgd", "--backup", "1", "--output", "run")
    prefix = ("-m", "tensorbow", "launch", "-n", "3")
    with launched(tmp_path, "--restarts", "2", *words, prefix=prefix) as job:
        wait_for(lambda: rounds(tmp_path / "run"), job)
        os.kill(wait_for(lambda: worker_process(2, str(tmp_path)), job), signal.SIGKILL)
        out, err = job.communicate(timeout=100)
    assert job.returncode == 0, err
    assert re.search(rf"tensorbow: worker 2 \(\S+, process \d+\) was killed or has crashed {AT_STEP}\n", err)
    assert "resumed from " in out
    assert out.count("epoch  12/12") == 1


LOOP = """
import sys
import numpy as np
import tensorbow as tb
replicator = tb.MultiWorkerReplicator(["/cpu:0"])
with replicator.context():
    optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))
def step_fn(x):
    x = tb.layers.batch_normalization(x, training=True)  # its averages are means over all workers
    loss = tb.reduce_mean(tb.square(tb.layers.dense(x, 3)))
    updates = tb.get_collection(tb.GraphKeys.UPDATE_OPS)
    with tb.control_dependencies([optimizer.minimize(loss), *updates]):
        return tb.identity(loss)
def input_fn(context):
    rng = np.random.default_rng(context.replica_id)
    while True:
        yield rng.normal(size=(4, 5)).astype(np.float32)
for n, loss in enumerate(replicator.train(step_fn, input_fn, 50, steps_per_launch=8)):
    if n == 20 and replicator.worker_id == int(sys.argv[1]):
        raise ValueError("of the loop")
"""


LOSING = """
import itertools, sys
import numpy as np
import tensorbow as tb
replicator = tb.MultiWorkerReplicator(["/cpu:0"])
def step_fn(x):
    optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))
    return optimizer.minimize(tb.reduce_mean(tb.square(tb.layers.dense(x, 3))))
def input_fn(context):
    for n in itertools.count():
        if n == 30 and context.replica_id == 1:
            raise ValueError("of the input")
        yield np.ones([4, 5], np.float32)
for _ in replicator.train(step_fn, input_fn, 100000):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["launch", "mpirun"])
def test_an_input_that_fails_on_one_worker_is_all_that_is_said(tmp_path, launcher):
    (tmp_path / "program.py").write_text(LOSING)
    words = ("-m", "tensorbow", "launch", "-n", "2") if launcher == "launch" else under_mpirun()
    with launched(tmp_path, "program.py", prefix=words) as job:
        _, err = job.communicate(timeout=60)
    assert job.returncode != 0
    (line,) = re.findall(r"^tensorbow: .*", err, re.MULTILINE)
    cause = r"the input of replica 1, batch 30, failed: ValueError: of the input"
    assert re.match(rf"tensorbow: worker 1 \(.*\), {AT_STEP}: AbortedError: {cause}", line), err
    assert "the input of worker 1" not in err


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_exception_in_the_loop_of_one_worker_is_all_that_is_said(tmp_path, number):
    (tmp_path / "program.py").write_text(LOOP)
    with launched(tmp_path, "program.py", str(number)) as job:
        _, err = job.communicate(timeout=60)
    assert job.returncode == 1
    before = f"worker {number}: " if number else ""
    assert err.startswith(f"{before}Traceback"), err
    assert err.count("Traceback") == 1, err
    assert re.search(rf"tensorbow: worker {number} \(.*\), {AT_STEP}: ValueError: of the loop\n$", err), err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("launcher", ["launch", "mpirun"])
@pytest.mark.parametrize(
    ("sent", "said"),
    [(signal.SIGSTOP, r"hangs .*: nothing heard for \d+ s"), (signal.SIGKILL, "was killed or has crashed")],
)
def test_a_stopped_or_killed_worker_is_named_and_does_not_stay(tmp_path, number, launcher, sent, said):
    words = ("train", "logreg", "--epochs", "100000", "--output", "run")
    prefix = ("-m", "tensorbow", "launch", "-n", "2", "--watchdog", "3")
    if launcher == "mpirun":
        prefix = under_mpirun("-m", "tensorbow", watchdog=3)
    with launched(tmp_path, *words, prefix=prefix) as job:
        wait_for(lambda: rounds(tmp_path / "run"), job)
        process = worker_process(number, str(tmp_path))
        os.kill(process, sent)
        _, err = job.communicate(timeout=20)
    assert job.returncode != 0
    (line,) = re.findall(r"^tensorbow: worker .*", err, re.MULTILINE)
    assert re.match(rf"tensorbow: worker {number} \(.*\) {said}", line), err
    ends = time.monotonic() + 5
    while os.path.exists(f"/proc/{process}") and time.monotonic() < ends:  # killed, and not yet reaped
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{process}")


@pytest.mark.slow
def test_two_machines_train_together_until_their_link_is_cut(tmp_path):
    with contextlib.ExitStack() as stack:
        try:
            hosts = stack.enter_context(two_machines(tmp_path)).words
        except PermissionError as error:
            pytest.skip(str(error))
        prefix = ("-m", "tensorbow", "launch", *hosts, "--watchdog", "4")
        words = ("train", "logreg", "--epochs", "100000", "--output", "run")
        job = stack.enter_context(launched(tmp_path, *words, prefix=prefix))
        wait_for(lambda: rounds(tmp_path / "run"), job)
        cut()
        job.wait(timeout=4 + 10 + 10)
        _, err = said_by(job)
        assert re.search(rf"worker 1 \(far, process \d+\) hangs {AT_STEP}: nothing heard for \d+ s", err), err
        ends = time.monotonic() + 10
        while worker_process(0, str(tmp_path)) or worker_process(1, str(tmp_path)):
            assert time.monotonic() < ends
            time.sleep(0.1)
    assert job.returncode == 1


MACHINES = """
import sys, time
from pathlib import Path
from tests.cluster_rig.two_machines import LINK, two_machines
with two_machines(Path(sys.argv[1])) as machines:
    print(LINK, *machines.far.inside, flush=True)
    time.sleep(1000)
"""


@pytest.mark.slow
def test_a_second_machine_goes_with_the_process_that_has_made_it(tmp_path):
    with launched(tmp_path, str(tmp_path), prefix=("-c", MACHINES)) as process:
        link, *inside = process.stdout.readline().split() or pytest.skip(process.stderr.read())
        unread = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}  # a pipe would stay open
        subprocess.run([*inside, "sh", "-c", "sleep 1000 & exec ip link"], check=True, **unread)
        process.kill()
    ends = time.monotonic() + 10
    while link in subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout:
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.slow
def test_a_worker_that_ssh_starts_on_another_machine_trains_with_the_first(tmp_path):
    with contextlib.ExitStack() as stack:
        try:
            hosts = stack.enter_context(two_machines(tmp_path, by_ssh=True)).words
        except (PermissionError, FileNotFoundError) as error:
            pytest.skip(str(error))
        prefix = ("-m", "tensorbow", "launch", *hosts)
        with launched(tmp_path, *TRAIN, "--output", "run", prefix=prefix) as job:
            _, err = job.communicate(timeout=120)
        assert job.returncode == 0, err
        assert "Accepted publickey" in (tmp_path / "sshd.log").read_text()
        words = ("train", "logreg", "--epochs", "100000", "--output", "again", "--replicas-per-gpu", "1")
        with launched(tmp_path, *words, prefix=prefix) as job:
            wait_for(lambda: rounds(tmp_path / "again"), job)
            os.kill(worker_process(1, str(tmp_path)), signal.SIGKILL)
            _, err = job.communicate(timeout=60)
        assert job.returncode == 1
        assert re.search(rf"worker 1 \(far, process \d+\) was killed or has crashed {AT_STEP}", err), err
    with launched(tmp_path, *TRAIN, "--output", "here") as job:
        job.communicate(timeout=120)
    files = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("run", "here")]
    assert files[0] == files[1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_many_kills_at_random_moments_lose_no_bits(tmp_path):
    words = (*TRAIN[:2], "--epochs", "60", *TRAIN[4:])
    with launched(tmp_path, *words, "--output", "whole") as job:
        job.communicate(timeout=120)
    expected = (tmp_path / "whole" / "model.safetensors").read_bytes()
    rng, kills, restarts, runs = np.random.default_rng(0), 0, 0, 0
    while kills < KILLS:  # a run may end before its workers are killed so often
        runs += 1
        folder, of_run = f"killed-{runs}", 0
        with launched(tmp_path, "--restarts", "1000", *words, "--output", folder) as job:
            while kills + of_run < KILLS and job.poll() is None:
                time.sleep(rng.uniform(0.2, 4.0))
                if process := worker_process(rng.integers(2), str(tmp_path)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                        of_run += 1
            _, err = job.communicate(timeout=120)
        assert job.returncode == 0, err
        assert (tmp_path / folder / "model.safetensors").read_bytes() == expected
        named = re.findall(r"^tensorbow: worker [01]\b.* was killed or has crashed", err, re.MULTILINE)
        restarted = err.count("tensorbow: restart ")
        assert restarted == len(named) <= of_run, err  # while a job ends, a further worker may be killed
        kills, restarts = kills + of_run, restarts + restarted
    assert kills == KILLS
    assert restarts >= KILLS / 2


@pytest.mark.slow
def test_an_interrupt_ends_all_workers_at_one_round_with_a_checkpoint(tmp_path):
    words = ("train", "logreg", "--epochs", "100000", "--output", "run")
    with launched(tmp_path, *words) as job:
        wait_for(lambda: rounds(tmp_path / "run"), job)
        job.send_signal(signal.SIGINT)
        out, err = job.communicate(timeout=60)
    assert job.returncode == 130, err
    assert err == ""
    assert "interrupted      go on with --resume auto --output run" in out
    newest = max(rounds(tmp_path / "run"))
    assert (tmp_path / "run" / f"checkpoint-{newest:09d}.worker1.safetensors").exists()


@pytest.mark.slow
def test_a_checkpoint_without_a_part_of_it_is_gone_on_with_from_z(tmp_path):
    with launched(tmp_path, *TRAIN, "--output", "run") as job:
        job.communicate(timeout=60)
    newest = max(rounds(tmp_path / "run"))
    part = tmp_path / "run" / f"checkpoint-{newest:09d}.worker1.safetensors"
    part.write_bytes(part.read_bytes()[:-1])
    with launched(tmp_path, *TRAIN, "--epochs", "13", "--output", "run", "--resume", "auto") as job:
        out, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    assert "cannot be used" in out
    assert "all replicas go on from z" in out


@pytest.mark.slow
def test_a_part_of_a_checkpoint_that_cannot_be_written_is_said_once(tmp_path):
    (tmp_path / "run" / "checkpoint-000000025.worker1.safetensors" / "in the way").mkdir(parents=True)
    with launched(tmp_path, *TRAIN, "--output", "run", "--resume", "auto") as job:
        _, err = job.communicate(timeout=60)
    assert job.returncode == 1
    (line,) = err.splitlines()
    part = tmp_path / "run" / "checkpoint-000000025.worker1.safetensors"
    assert line.startswith(f"worker 1: tensorbow: cannot write '{part}': ")
    assert not rounds(tmp_path / "run")


@pytest.mark.slow
def test_other_numbers_of_workers_go_on_from_z(tmp_path):
    for number, extra in ((2, ()), (3, ("--resume", "auto", "--epochs", "14"))):
        prefix = ("-m", "tensorbow", "launch", "-n", str(number))
        with launched(tmp_path, *TRAIN, "--output", "run", *extra, prefix=prefix) as job:
            out, err = job.communicate(timeout=60)
        assert job.returncode == 0, err
    assert "is of 2 workers, and this run has 3: all replicas go on from z" in out
    assert list((tmp_path / "run").glob("checkpoint-*.worker2.*"))
    alone = tb.fit(
        "logreg", replicas=1, **{**OPTIONS, "epochs": 16}, output=str(tmp_path / "run"), resume="auto"
    )
    assert alone.result.test_accuracy > 0.85


@pytest.mark.slow
def test_workers_tune_their_replicas_together_and_go_on_with_the_number(tmp_path):
    words = ("train", "logreg", "--epochs", "1500", "--output", "run", "--replicas-per-gpu", "auto")
    with launched(tmp_path, *words) as job:
        out, err = job.communicate(timeout=300)
    assert job.returncode == 0, err
    assert re.search(r"1 replica per device: [\d,]+ images/s; trying 2", out), out
    found = json.loads((tmp_path / "run" / "tuning.json").read_text())
    chosen = found["changes"][-1]["replicas_per_device"]
    assert re.search(rf"{chosen} replicas? per device from now on", out), out
    newest = max(rounds(tmp_path / "run"))
    names = [f"checkpoint-{newest:09d}{part}.safetensors" for part in ("", ".worker1")]
    parts = [load_arrays(tmp_path / "run" / name, remedy="")[0] for name in names]
    replicas = [{name.split("/")[0] for name in part if name.startswith("replica")} for part in parts]
    assert replicas[0] == {f"replica{number}" for number in range(chosen)}
    assert replicas[1] == {f"replica{number}" for number in range(chosen, 2 * chosen)}
    more = ("--epochs", "1502", "--resume", "auto")
    with launched(tmp_path, *words, *more) as job:
        out, err = job.communicate(timeout=200)
    assert job.returncode == 0, err
    assert "resumed from" in out
    assert "trying" not in out
    with launched(tmp_path, *words, *more, prefix=("-m", "tensorbow", "launch", "-n", "3")) as job:
        out, err = job.communicate(timeout=200)
    assert job.returncode == 1
    assert "is of 2 workers, and this run has 3; with --replicas-per-gpu auto a run goes on" in out + err


@pytest.fixture
def fake_job(tmp_path):
    """Makes a job whose mpirun starts nobody, and does not end."""
    program, process = tmp_path / "mpirun", tmp_path / "process"
    program.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {process}\nwait\n")
    program.chmod(0o755)
    said = []

    def make(**options):
        words = {"program": ["x.py"], "again": lambda folder: (), "restarts": 0, **options}
        return JobLaunch(Job(2, Hosts(), (str(program), "fake"), watchdog_s=4.0, **words), said.append), said

    yield make
    if os.path.isdir("/proc/self"):
        assert not os.path.exists(f"/proc/{process.read_text().strip()}/exe")


def test_a_job_of_which_no_worker_starts_ends_with_a_line(fake_job):
    job, said = fake_job(start_limit_s=0.3)
    assert job.run() == 1
    assert said == ["launch: no worker has started within 0.3 s"]


def test_a_job_of_which_no_worker_has_started_ends_at_the_first_signal(fake_job):
    job, said = fake_job()
    job.interrupt(signal.SIGTERM)
    assert job.run() == 128 + signal.SIGTERM
    assert said == []


def with_workers(folder, **message):
    """Has a fake mpirun start two workers that tell this message and wait."""
    program = folder / "workers.py"
    program.write_text(
        "import json, os, socket\n"
        "host, port, secret, _ = os.environ['TENSORBOW_WATCH'].rsplit(':', 3)\n"
        "for worker in range(2):\n"
        "    connection = socket.create_connection((host, int(port)))\n"
        f"    about = {{'worker': worker, 'secret': secret, **{message}}}\n"
        "    connection.sendall(json.dumps(about).encode() + b'\\n')\n"
        "    globals()[f'kept{worker}'] = connection\n"
        "while connection.recv(1 << 12):\n    pass\n"
    )
    path = folder / "mpirun"
    path.write_text(path.read_text().replace("wait", f"{sys.executable} {program}\nwait"))


def test_a_job_whose_programs_have_ended_well_ends_without_mpirun(fake_job, monkeypatch, tmp_path):
    """A launch whose mpirun hangs at its end: the programs' status is the job's."""
    monkeypatch.setattr(launching, "OVER_S", 0.1)
    monkeypatch.setattr(launching, "END_S", 0.1)
    job, said = fake_job()
    with_workers(tmp_path, status=0)
    assert job.run() == 0
    assert said == ["launch: all programs have ended well, but not mpirun within 0.1 s: ended it"]


def test_a_job_that_does_not_stop_says_how_it_is_killed(fake_job, monkeypatch, tmp_path):
    monkeypatch.setattr(launching, "TOLD_S", 0.1)
    monkeypatch.setattr(launching, "END_S", 0.1)
    job, said = fake_job()
    with_workers(tmp_path, round=3)
    monkeypatch.setattr(job, "_say", lambda line: (said.append(line), job.interrupt(signal.SIGINT)))
    step = WatchServer.step

    def interrupted(server, seconds):
        fault = step(server, seconds)
        if server.watch.all_have_started and not job._signals:
            job.interrupt(signal.SIGINT)
        return fault

    monkeypatch.setattr(WatchServer, "step", interrupted)
    assert job.run() == 128 + signal.SIGINT
    assert said == ["launch: all workers are told to stop, and some still run; a second signal kills them"]


def test_a_job_whose_mpirun_is_killed_says_so(fake_job, tmp_path):
    job, said = fake_job()
    path = tmp_path / "mpirun"
    path.write_text(path.read_text().replace("wait", "kill -9 $$"))
    assert job.run() == 1
    assert said == ["launch: mpirun was killed by SIGKILL at step 0"]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="files of Linux")
def test_a_process_that_a_program_leaves_behind_outlives_a_good_end(fake_job, tmp_path):
    job, said = fake_job()
    with_workers(tmp_path, status=0)
    for name, old, new in (
        ("workers.py", "while connection.recv(1 << 12):\n    pass", "connection.recv(1 << 12)"),
        ("mpirun", "sleep 1000", "sleep 1000 2> /dev/null"),
        ("mpirun", "\nwait", ""),
    ):
        path = tmp_path / name
        path.write_text(path.read_text().replace(old, new))
    assert (job.run(), said) == (0, [])
    left = int((tmp_path / "process").read_text())
    time.sleep(0.05)  # for a signal to arrive
    assert os.path.exists(f"/proc/{left}/exe")
    os.kill(left, signal.SIGKILL)
    while os.path.exists(f"/proc/{left}/exe"):
        time.sleep(0.001)


@pytest.mark.skipif(not os.access(memory_of_mpi.MEMORY, os.W_OK), reason="a folder of Linux")
def test_memory_of_mpi_goes_with_its_job(fake_job, monkeypatch, tmp_path):
    monkeypatch.setattr(memory_of_mpi, "MEMORY", tmp_path / "shm")
    forgotten, used = (tmp_path / "shm" / f"{memory_of_mpi.PREFIX}{name}" for name in ("forgotten", "used"))
    for folder in (forgotten, used, tmp_path / "shm" / "of another program"):
        folder.mkdir(parents=True)
        (folder / memory_of_mpi.LOCK).touch()
    handle = memory_of_mpi._locked(used)
    job, _ = fake_job()
    path = tmp_path / "mpirun"
    noted = (
        f"echo ${memory_of_mpi.SETTING} > {tmp_path}/noted; touch ${memory_of_mpi.SETTING}/segment\nkill -9"
    )
    path.write_text(path.read_text().replace("wait", f"{noted} $! $$"))
    assert job.run() == 1
    assert (tmp_path / "noted").read_text().startswith(str(tmp_path / "shm" / memory_of_mpi.PREFIX))
    assert sorted(folder.name for folder in (tmp_path / "shm").iterdir()) == ["of another program", used.name]
    os.close(handle)
    monkeypatch.setenv(memory_of_mpi.SETTING, "elsewhere")
    with memory_of_mpi.shared_memory_of_mpi(alone=True) as setting:
        assert setting == {}


def test_hosts_are_read():
    assert Hosts.read("a:2,b") == Hosts((("a", 2), ("b", 1)))
    assert Hosts.read("10.0.0.1:3").workers == 3
    for text in ("", "a:0", "a,a", "a:2;b", "-x", "a:b"):
        with pytest.raises(InvalidArgumentError, match="hosts: expected different names with their workers"):
            Hosts.read(text)


def test_other_machines_get_what_concerns_training():
    environment = {"PATH": "/bin", "TENSORBOW_DATA": "/data", "HOME": "/root", "OMP_NUM_THREADS": "1"}
    command = command_of(("mpirun", "mpirun (Open MPI) 5.0"), 3, Hosts.read("a:2,b"), ["x.py"], environment)
    passed = [command[i + 1] for i, word in enumerate(command) if word == "-x"]
    assert passed == ["OMP_NUM_THREADS", "PATH", "TENSORBOW_DATA"]
    assert command[command.index("--host") + 1] == "a:2,b:1"
    alone = command_of(("mpiexec", "HYDRA build details:"), 2, Hosts(), ["x.py"], environment, ["-v"])
    assert alone == ["mpiexec", "-n", "2", "-v", "x.py"]


def test_the_watch_listens_on_the_port_that_a_firewall_allows(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        never = ("/nowhere/mpirun", "fake")
        job = JobLaunch(Job(2, Hosts(), never, 4.0, 0, ["x.py"], lambda folder: (), watch_port=port), print)
        words = rf"cannot listen on 127\.0\.0\.1, port {port}: .*; give another port by --watch-port"
        with pytest.raises(FailedPreconditionError, match=words):
            job.run()
    server = WatchServer(1, 0.0, port=port)
    assert server.contact.startswith(f"127.0.0.1:{port}:")
    server.close()
    monkeypatch.setenv("TENSORBOW_WATCH_PORT", str(port))
    assert own_port() == port
    for text in ("-1", "65536", "000070000", "any", "9" * 5000):
        monkeypatch.setenv("TENSORBOW_WATCH_PORT", text)
        with pytest.raises(InvalidArgumentError, match="TENSORBOW_WATCH_PORT: expected a port"):
            own_port()


def test_strangers_are_not_heard():
    server = WatchServer(1, 0.0)
    host, port, *_ = server.contact.split(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b'{"worker": 0, "secret": "guess", "status": 0}\n')
        for _ in range(20):
            server.step(0.01)
        assert stranger.recv(1) == b""
    assert server.watch.status is None
    server.close()
