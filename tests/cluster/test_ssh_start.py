"""Workers that `ssh` starts on another machine: a program of that name on the PATH runs what it is given,
here, with another host name, another home, and the bare environment that a login has.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from tests.cluster.test_launch import AT_STEP, TRAIN, launched, rounds, wait_for, worker_process

HOSTS = "127.0.0.1:1,127.0.0.2:1"  # the second address is another machine for MPI
SSH = """#!/bin/sh
echo "$@" >> {folder}/calls
while [ "${{1#-}}" != "$1" ]; do shift; done
[ "$1" = 127.0.0.2 ] || exit 255
shift
mkdir -p {folder}/home && cd {folder}/home
exec env -i HOME={folder}/home USER=far PATH=/usr/bin:/bin TMPDIR={folder}/home {inside} sh -c "$*"
"""
INSIDE = "unshare --uts sh -c 'hostname far; exec \"$@\"' -"
PROGRAM = """
import os, socket, sys
import tensorbow as tb
workers = tb.worker_group()
print(workers.rank, socket.gethostname(), os.environ["HOME"], os.getcwd(), sys.argv[1:], flush=True)
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a machine of another name is one of Linux")


@contextlib.contextmanager
def by_ssh(folder, monkeypatch, text):
    """Context in which `ssh` is a program of this text."""
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(text)
    (folder / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    yield ("-m", "tensorbow", "launch", "--hosts", HOSTS)


@pytest.fixture
def far(tmp_path, monkeypatch):
    """First words of a launch on this machine and on one whose name is far."""
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "--uts", "true"], check=False).returncode
    ):
        pytest.skip("a second host name on this machine needs root and `unshare --uts`")
    with by_ssh(tmp_path, monkeypatch, SSH.format(folder=tmp_path, inside=INSIDE)) as prefix:
        yield prefix


@pytest.mark.slow
def test_ssh_starts_a_worker_with_the_folder_and_settings_of_the_launch(far, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "program.py").write_text(PROGRAM)
    with launched(tmp_path / "work", "program.py", "two words", "$HOME", "a'b", prefix=far) as job:
        out, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    words = ["two words", "$HOME", "a'b"]
    here, there = sorted(out.splitlines())
    assert here.endswith(f"{os.environ['HOME']} {tmp_path / 'work'} {words}")
    assert there == f"worker 1: 1 far {tmp_path / 'home'} {tmp_path / 'work'} {words}"


@pytest.mark.slow
def test_a_worker_that_ssh_starts_trains_with_the_bits_of_one_machine(far, tmp_path):
    with launched(tmp_path, *TRAIN, "--output", "run", prefix=far) as job:
        _, err = job.communicate(timeout=120)
    assert job.returncode == 0, err
    with launched(tmp_path, *TRAIN, "--output", "here") as job:
        job.communicate(timeout=120)
    files = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("run", "here")]
    assert files[0] == files[1]
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


@pytest.mark.slow
def test_a_worker_that_ssh_has_started_is_killed_and_started_again(far, tmp_path):
    words = ("train", "logreg", "--epochs", "60", "--checkpoint-rounds", "50", "--replicas-per-gpu", "1")
    with launched(tmp_path, "--restarts", "1", *words, "--output", "run", prefix=far) as job:
        wait_for(lambda: rounds(tmp_path / "run"), job)
        os.kill(worker_process(1, str(tmp_path)), signal.SIGKILL)
        _, err = job.communicate(timeout=120)
    assert job.returncode == 0, err
    assert re.search(rf"worker 1 \(far, process \d+\) was killed or has crashed {AT_STEP}", err), err
    assert f"restart 1 of 1, from the last checkpoint in {tmp_path / 'run'}" in err
    assert len((tmp_path / "calls").read_text().splitlines()) == 2
    with launched(tmp_path, *words, "--output", "whole") as job:
        job.communicate(timeout=120)
    files = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("run", "whole")]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("echo 'far: Permission denied (publickey).' >&2; exit 255", 255, "Permission denied (publickey)."),
        ("echo 'sh: 1: prted: not found' >&2; exit 127", 127, "prted: not found"),
    ],
)
def test_what_a_refused_ssh_says_is_shown(tmp_path, monkeypatch, text, status, said):
    with (
        by_ssh(tmp_path, monkeypatch, f"#!/bin/sh\n{text}\n") as prefix,
        launched(tmp_path, *TRAIN, prefix=prefix) as job,
    ):
        _, err = job.communicate(timeout=60)
    assert job.returncode == 1
    assert said in err
    assert f"launch: mpirun ended with status {status} before any worker had started" in err, err


@pytest.mark.slow
def test_an_ssh_that_waits_for_an_answer_is_given_up(tmp_path, monkeypatch):
    text = f"#!/bin/sh\necho $$ > {tmp_path}/waits\nexec sleep 1000\n"
    with (
        by_ssh(tmp_path, monkeypatch, text) as prefix,
        launched(tmp_path, "--start-limit", "3", *TRAIN, prefix=(*prefix,)) as job,
    ):
        _, err = job.communicate(timeout=60)
    assert job.returncode == 1
    assert "launch: no worker has started within 3 s" in err
    process = int((tmp_path / "waits").read_text())  # of a group of its own
    assert not os.path.exists(f"/proc/{process}/exe")
