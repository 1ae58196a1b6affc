"""Real GPU for the tests of the emulated one: counts its calls and finds resources that were not released."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

from tensorbow.devices.cuda_runtime import CudaRuntime

OpenedGpu = Callable[..., AbstractContextManager[Any]]  # options of the emulated one -> a GPU for one test

FIXTURES = {"opened", "runtime", "device"}
PAIRS = {  # what opens -> what closes
    "allocate": "free",
    "allocate_pinned": "free_pinned",
    "make_stream": "destroy_stream",
    "make_event": "destroy_event",
    "end_capture": "destroy_graph",
}


METHODS = [name for name, member in vars(CudaRuntime).items() if name[0] != "_" and callable(member)]


def _counted(name: str) -> Callable[..., Any]:
    def call(self: CountedCuda, *arguments: Any, **options: Any) -> Any:
        result = getattr(self.counted, name)(*arguments, **options)
        with self._lock:
            self.counts[name] += 1
        return result

    return call


class CountedCuda(CudaRuntime):
    """Counts a runtime's successful calls by name, as EmulatedCuda does."""

    vars().update({name: _counted(name) for name in METHODS})

    def __init__(self, counted: CudaRuntime):
        self.counted = counted
        self.index, self.properties = counted.index, counted.properties
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def compiler(self) -> str:
        return self.counted.compiler

    def check_clean(self) -> None:
        """Raises AssertionError when memory, streams, events or graphs are left."""
        gc.collect()
        left = {opens: self.counts[opens] - self.counts[closes] for opens, closes in PAIRS.items()}
        assert not any(left.values()), f"left open, by the call that opened it: {left}"


def of_any_gpu(module: ModuleType) -> dict[str, Callable[..., None]]:
    """Tests of a module that use a GPU, by name, without those that ask for an `EmulatedCuda`."""
    tests = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    chosen = {}
    for name, test in tests.items():
        takes = {argument: str(kind) for argument, kind in test.__annotations__.items()}
        if FIXTURES & takes.keys() and not any("EmulatedCuda" in kind for kind in takes.values()):
            chosen[name] = test
    assert chosen, f"no test of {module.__name__} takes one of {', '.join(sorted(FIXTURES))}"
    return chosen


def opened_on(runtime: CudaRuntime) -> OpenedGpu:
    """Opens the same GPU for every test, whatever the options; afterwards nothing may be left open on it."""

    @contextmanager
    def opened(**_: object) -> Iterator[CountedCuda]:
        counted = CountedCuda(runtime)
        yield counted
        counted.check_clean()

    return opened
