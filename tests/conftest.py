"""Configuration of all tests: every test closes the streams that it opened."""

from __future__ import annotations

import gc
import os
import time
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import tensorbow as tb
from tensorbow.devices.blas_threads import streams_limiting_blas
from tensorbow.kernels import ReferenceBackend, backends
from tensorbow.ops.definition import OPS
from tensorbow.program import Backend

if TYPE_CHECKING:
    from tests.gpu_rig.counted import OpenedGpu
    from tests.gpu_rig.emulated_cuda import EmulatedCuda

settings.register_profile("no clock", deadline=None)  # an example may take as long as the machine lets it
settings.load_profile("no clock")
gc.disable()  # until all tests are collected: a third of that time


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps n cases of a test marked `sampled(n)` in the default suite and marks all others slow.

    The choice depends on the cases' names alone and is pseudo-random, so that all parameters occur.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for members in cases.values():
        members.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        marker = members[0].get_closest_marker("sampled")
        for item in members[marker.args[0] if marker else 0 :]:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Excludes the many thousands of collected tests from garbage collection, which goes on now."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def graph() -> Iterator[tb.Graph]:
    """A default graph of the test's own; a file in which all tests want one says so with `usefixtures`."""
    with tb.Graph().as_default() as made:
        yield made


@pytest.fixture
def session(graph: tb.Graph) -> Iterator[tb.Session]:
    """A session over a default graph of the test's own."""
    with tb.Session() as made:
        yield made


@pytest.fixture
def runtime() -> Iterator[EmulatedCuda]:
    """An emulated GPU; in `tests/gpu` the GPU of the machine."""
    from tests.gpu_rig.runtimes import emulated_runtime

    with emulated_runtime() as made:
        yield made


@pytest.fixture
def opened() -> OpenedGpu:
    """Opens emulated GPUs; the tests that take it run in `tests/gpu` on the GPU of the machine."""
    from tests.gpu_rig.runtimes import emulated_runtime

    return emulated_runtime


@pytest.fixture
def ops_of_the_test() -> Iterator[None]:
    """Removes ops defined by a test."""
    before = dict(OPS)
    yield
    OPS.clear()
    OPS.update(before)


@pytest.fixture
def reference_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs CPU devices with one reference kernel per op, whatever is installed, for tests of such plans."""
    monkeypatch.setitem(backends._backends, "cpu", ReferenceBackend())


@pytest.fixture
def native_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs CPU devices with native code, whatever TENSORBOW_CPU says; skips where llvmlite is missing."""
    pytest.importorskip("llvmlite", reason="native code needs llvmlite")
    monkeypatch.setitem(backends._backends, "cpu", _native_backend())


@cache
def _native_backend() -> Backend:
    from tensorbow.kernels.native.backend import NativeBackend

    return NativeBackend()


@pytest.fixture(params=["native", "reference"])
def kernels(request: pytest.FixtureRequest) -> str:
    """Runs CPU devices with native code and with the reference kernels, one after the other."""
    request.getfixturevalue(f"{request.param}_kernels")
    return str(request.param)


@pytest.fixture(autouse=True)
def every_stream_is_closed() -> Iterator[None]:
    before = streams_limiting_blas()
    yield
    if streams_limiting_blas() > before:
        gc.collect()
    until = time.monotonic() + 60
    while streams_limiting_blas() > before and time.monotonic() < until:
        time.sleep(0.001)  # the thread of a stream that nobody holds any more ends by itself
    assert streams_limiting_blas() <= before, "a CPU stream is left open: close the session or engine"


@pytest.fixture(scope="session", autouse=True)
def modules_are_compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Shares object code among the processes of a test run, which saves much of the tests' time."""
    if find_spec("llvmlite") is None:
        yield
        return
    from tensorbow.kernels.native.codegen import compiler
    from tests.native_rig.object_code import compiled_once

    own = tmp_path_factory.getbasetemp()
    of_run = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "_compiled", compiled_once(compiler._compiled, of_run / "object-code"))
        yield
