"""What holds for every test: it closes the streams it opened."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tensorbow.devices.blas_threads import streams_limiting_blas
from tensorbow.kernels import ReferenceBackend, backends


@pytest.fixture
def reference_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU devices run one reference kernel per op, whatever is installed: for tests of that very shape."""
    monkeypatch.setitem(backends._backends, "cpu", ReferenceBackend())


@pytest.fixture(autouse=True)
def every_stream_is_closed() -> Iterator[None]:
    before = streams_limiting_blas()
    yield
    if streams_limiting_blas() > before:
        gc.collect()
    assert streams_limiting_blas() <= before, "a CPU stream is left open: close the session or engine"
