"""Pytest plugin: a line of JSON per test, a time limit for each, and an end to a worker that lost its GPU.

    pytest -p tests.gpu_rig.one_line_per_test --lines FILE --most-seconds 60 -n 4 ...

A test that takes longer ends its process, after the stacks of its threads were written to standard error;
pytest-xdist then starts a new worker for the tests that are left, as it does after a crash. The same happens
after a sticky CUDA error, behind which every test of the same process would fail. Without pytest-xdist the
run ends there: --finished tells, and --without gives a further run the names of the tests that were begun.
"""

from __future__ import annotations

import faulthandler
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

STICKY_STATUS = 87


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--lines", required=True, help="file to which the lines are appended")
    parser.addoption("--without", help="file with names of tests that are not run, one a line")
    parser.addoption("--finished", help="file that is made when all tests have run")
    parser.addoption("--most-seconds", type=float, default=60.0, help="time limit of each test")


def pytest_configure(config: Any) -> None:
    config.pluginmanager.register(Watch(config), "one line per test")


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leaves out the tests of --without."""
    path = config.getoption("--without")
    if path and Path(path).exists():
        known = set(Path(path).read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in known])
        items[:] = [item for item in items if item.nodeid not in known]


def pytest_sessionfinish(session: Any) -> None:
    """Makes the file of --finished, in the process that leads the workers."""
    path = session.config.getoption("--finished")
    if path and not hasattr(session.config, "workerinput"):
        Path(path).touch()


class Watch:
    """Watches the tests of one process."""

    def __init__(self, config: Any):
        self._path, self._most_s = config.getoption("--lines"), config.getoption("--most-seconds")
        self._stderr = os.dup(2)  # pytest captures the other one
        self._lost = False

    def _write(self, **entry: Any) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, (json.dumps(entry) + "\n").encode())
        finally:
            os.close(descriptor)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        """Writes that a test begins, and sets its limit."""
        self._write(event="begun", name=item.nodeid, at=time.time(), most_s=self._most_s)
        faulthandler.dump_traceback_later(self._most_s, exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
            if self._lost:
                os._exit(STICKY_STATUS)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        """Writes the outcome of a test: that of its call, or an error or skip before or after."""
        report = yield
        if report.when == "call" or report.outcome != "passed":
            text = ""
            if call.excinfo is not None:
                text = (
                    f"{call.excinfo.typename}: {str(call.excinfo.value).strip().partition(chr(10))[0]:.300}"
                )
                self._lost = self._lost or _is_sticky(call.excinfo.value)
            seconds = round(call.duration, 3)
            self._write(event="ended", name=item.nodeid, status=report.outcome, seconds=seconds, error=text)
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Writes in the process that leads the workers that one has died, which makes a report of its own."""
        if report.when not in ("setup", "call", "teardown"):
            self._write(event="died", name=report.nodeid, at=time.time())


def _is_sticky(error: BaseException | None) -> bool:
    """True if the error, or one that caused it, says that the CUDA context is lost."""
    while error is not None:
        if getattr(error, "sticky", False):
            return True
        error = error.__cause__ or error.__context__
    return False
