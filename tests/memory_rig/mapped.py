"""Count of mapped host memory and of streams' threads while Python's cyclic collector is off."""

from __future__ import annotations

import gc
import mmap
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tensorbow.devices import host_memory

PATIENCE_S = 20.0


class Mapped:
    """Memory regions mapped since this object was made, by any code, while a view of them exists."""

    def __init__(self) -> None:
        self._regions: list[tuple[weakref.ref[mmap.mmap], int]] = []
        self._threads = self.threads()

    @property
    def nbytes(self) -> int:
        return sum(nbytes for region, nbytes in self._regions if region() is not None)

    def threads(self) -> set[str]:
        return {thread.name for thread in threading.enumerate() if thread.name.startswith("tensorbow")}

    def assert_goes_back(self) -> None:
        """Asserts that all of it is unmapped, at the latest when threads without references have ended."""
        deadline = time.monotonic() + PATIENCE_S
        while (self.nbytes or self.threads() - self._threads) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert (self.nbytes, self.threads() - self._threads) == (0, set())


@contextmanager
def mapped_without_collector() -> Iterator[Mapped]:
    gc.collect()
    found, make = Mapped(), host_memory._map

    def recorded(nbytes: int) -> mmap.mmap:
        pages = make(nbytes)
        found._regions.append((weakref.ref(pages), nbytes))
        return pages

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_memory, "_map", recorded)
        gc.disable()
        try:
            yield found
        finally:
            gc.enable()
