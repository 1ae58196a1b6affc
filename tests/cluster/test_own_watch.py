"""What a worker tells the watch of its job: how often it reports, and how its program has ended."""

import json
import socket
import sys
import threading
import time

import pytest

from scheduler.workers import watch_client
from scheduler.workers.own_watch import _Ending
from scheduler.workers.pulse import PULSE
from scheduler.workers.watch_client import WatchClient


class Told:
    """A client that keeps what it is told of the program's end."""

    is_closed = False

    def __init__(self):
        self.ends = []

    def tell_end(self, *end):
        self.ends.append(end)

    def await_others(self):
        pass


@pytest.mark.parametrize(
    ("exits", "end"),
    [
        ([], (None,)),  # or by a SystemExit of its own, of which Python tells nobody the status
        ([()], (0,)),
        ([(None,)], (0,)),
        ([(3,)], (3,)),
        ([(3,), ()], (0,)),  # the first one was caught
        ([(True,)], (1,)),
        ([("no\ndata",)], (1, "no data")),
    ],
)
def test_the_status_of_a_program_is_told_where_it_is_known(monkeypatch, exits, end):
    monkeypatch.delattr(sys, "last_value", raising=False)
    client = Told()
    ending = _Ending(client)
    for words in exits:
        with pytest.raises(SystemExit):
            ending.exit(*words)
    ending.tell()
    assert client.ends == [end]


def test_worker_0_ends_after_its_watch_has_told_the_others_that_they_may(monkeypatch):
    """Python stops other threads when it ends: worker 1 would wait on, and MPI_Finalize for worker 1."""
    monkeypatch.delattr(sys, "last_value", raising=False)
    client, may_end, told = Told(), threading.Event(), []

    def serve():
        may_end.wait()  # worker 0 is told first
        time.sleep(0.02)
        told.append("worker 1")

    monkeypatch.setattr(client, "await_others", may_end.set)
    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    _Ending(client, serving).tell()
    assert told == ["worker 1"]


def test_nothing_follows_on_the_status_of_a_program(monkeypatch):
    """The server reads all before it closes: TCP would drop its good-bye otherwise."""
    monkeypatch.setattr(watch_client, "_clients", [])
    monkeypatch.setattr(watch_client, "LEAST_S", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = WatchClient(f"127.0.0.1:{server.getsockname()[1]}:secret:0.004", 1)
        connection, _ = server.accept()
        with connection, connection.makefile() as lines:
            client.tell_end(3)
            assert client.tell(round=7)
            time.sleep(0.02)  # in which it would report several times
            connection.sendall(b'{"bye": 1}\n')
            client.await_others()
            client.close()
            last = [json.loads(line) for line in lines][-1]
    assert (last["status"], last["left"]) == (0, 3)


def test_a_worker_whose_runs_are_short_reports_now_and_then(monkeypatch):
    least_s, told_s = 0.15, 0.1
    monkeypatch.setattr(watch_client, "LEAST_S", least_s)
    monkeypatch.setattr(watch_client, "_clients", [])
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = WatchClient(f"127.0.0.1:{server.getsockname()[1]}:secret:0", 1)
        began_s = time.monotonic()
        connection, _ = server.accept()
        with connection, connection.makefile() as lines:
            try:
                greeting = json.loads(lines.readline())
                assert (greeting["worker"], greeting["secret"]) == (1, "secret")
                while time.monotonic() < began_s + told_s:
                    PULSE.settle()  # a run of rounds has ended
                    time.sleep(0.001)
                client.tell(last=True)
                reports = [json.loads(lines.readline())]
                while "last" not in reports[-1]:
                    reports.append(json.loads(lines.readline()))
                assert "round" in reports[0]
                assert len(reports) - 1 <= 1 + (time.monotonic() - began_s) / least_s
            finally:
                client.close()  # a client whose connection breaks ends its process
