"""Warnings of a job's workers: which are shown, and by whom."""

import json
import math
import re
import socket
import sys
import warnings

import pytest

from scheduler.workers import job_warnings, watch_client
from scheduler.workers.job_warnings import HELD_S, JobWarnings, share_warnings
from scheduler.workers.watch_client import WatchClient, is_shown
from tests.cluster.test_launch import launched, under_mpirun

PROGRAM = """
import warnings
import tensorbow as tb
group = tb.worker_group()
warnings.warn("of all", stacklevel=1)
if group.rank == 1:
    warnings.warn("of one", stacklevel=1)
"""


def test_a_warning_of_worker_0_too_is_not_shown_again_whoever_has_it_first():
    job = JobWarnings()
    job.heard(1, "same\n", 0.0)
    job.heard(0, "same\n", 0.5)
    job.heard(2, "same\n", 3.0)
    assert job.due(math.inf) == ""


def test_a_warning_of_others_is_shown_once_with_the_first_of_them_when_worker_0_has_had_time_to_have_it():
    job = JobWarnings()
    job.heard(2, "two\nlines\n", 1.0)
    job.heard(1, "two\nlines\n", 1.1)
    assert job.due(1.0 + HELD_S / 2) == ""
    assert job.due(1.0 + HELD_S) == "worker 2: two\nworker 2: lines\n"
    assert job.due(math.inf) == ""


def test_a_warning_is_shown_as_often_as_one_worker_has_it():
    job = JobWarnings()
    for number in (0, 1, 1, 1, 2, 2):
        job.heard(number, "same", 0.0)
    assert job.due(math.inf) == 2 * "worker 1: same\n"


def test_texts_without_end_need_no_memory_without_end(monkeypatch):
    monkeypatch.setattr(job_warnings, "MOST_TEXTS", 3)
    job = JobWarnings()
    for number in range(10):
        job.heard(1, f"{number}\n", 0.0)
        job.heard(2, f"{number}\n", 0.0)
    assert job.due(math.inf) == "".join(f"worker 1: {number}\n" for number in range(10))
    assert len(job._had) <= 3


@pytest.mark.parametrize("number", [0, 1])
def test_the_watch_hears_of_warnings_and_worker_0_shows_its_own(monkeypatch, number):
    monkeypatch.setattr(watch_client, "_clients", [])
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = WatchClient(f"127.0.0.1:{server.getsockname()[1]}:secret:0", number)
        connection, _ = server.accept()
        with connection, connection.makefile() as lines:
            with client._sending:  # an object that Python collects while a message is made may warn
                assert is_shown("one\n") == bool(number)
            client.tell_end(0)
            assert not is_shown("late\n")  # nobody listens any more
            connection.sendall(b'{"bye": 1}\n')
            client.await_others()
            client.close()
            told = [json.loads(line) for line in lines]
    assert [each["warning"] for each in told if "warning" in each] == ["one\n"]


def test_a_process_shows_what_the_watch_does_not(monkeypatch):
    shown = []

    def usual(message, *_):
        shown.append(message)

    monkeypatch.setattr(warnings, "showwarning", usual)
    monkeypatch.setattr(warnings, "_showwarning_orig", usual)
    share_warnings(lambda text: "theirs" in text)
    for text in ("own", "theirs"):
        warnings.showwarning(text, UserWarning, "program.py", 7)
    warnings.showwarning("theirs, for a file", UserWarning, "program.py", 7, sys.stdout)
    assert shown == ["own", "theirs, for a file"]


def test_a_program_that_shows_warnings_by_itself_goes_on_to(monkeypatch):
    monkeypatch.setattr(warnings, "showwarning", own := lambda *_: None)
    share_warnings(pytest.fail)
    assert warnings.showwarning is own


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["launch", "mpirun"])
def test_a_job_shows_each_warning_once(tmp_path, launcher):
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ("-m", "tensorbow", "launch", "-n", "3") if launcher == "launch" else under_mpirun(workers=3)
    with launched(tmp_path, "program.py", prefix=words) as job:
        _, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    ends = [line for line in err.splitlines() if "UserWarning" in line]
    place = r"\S*program.py"
    assert len(ends) == 2, err
    of_0, of_1 = sorted(ends)
    assert re.fullmatch(rf"{place}:5: UserWarning: of all", of_0)
    assert re.fullmatch(rf"worker 1: {place}:7: UserWarning: of one", of_1)
