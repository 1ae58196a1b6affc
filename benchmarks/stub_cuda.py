"""A CUDA runtime whose calls do nothing: what is left of a GPU's rounds is the host's work."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorbow.devices.cuda_runtime import CopyKind, CudaRuntime, GpuProperties


class StubCuda(CudaRuntime):
    """Hands out numbers for streams, events, programs and graphs, and host memory, all zeros, for memory.

    `on_graph` is called at each launch of a graph, in place of what it would compute.
    """

    index = 0

    def __init__(self) -> None:
        self.properties = GpuProperties("nothing", 90, 132, 1 << 30, 48 << 10)
        self.on_graph: Callable[[], object] = lambda: None
        self.graph_launches = 0
        self._numbers = itertools.count(1)
        self._memory: dict[int, Any] = {}

    def _number(self, *_: Any, **__: Any) -> int:
        return next(self._numbers)

    def _nothing(self, *_: Any) -> None:
        return

    def memory_info(self) -> tuple[int, int]:
        return self.properties.memory_nbytes, self.properties.memory_nbytes

    def allocate(self, nbytes: int) -> int:
        block = np.zeros(nbytes + 256, np.uint8)
        address = -(-block.ctypes.data // 256) * 256
        self._memory[address] = block
        return address

    def free(self, address: int) -> None:
        del self._memory[address]

    def is_done(self, event: int) -> bool:
        return True

    def elapsed_ms(self, start: int, end: int) -> float:
        return 0.0

    def copy(self, target: int, source: int, nbytes: int, kind: CopyKind, stream: int) -> None:
        return

    @property
    def compiler(self) -> str:
        return "none"

    def compile(self, source: str, name: str) -> bytes:
        return b"nothing"

    def launch_graph(self, graph: int, stream: int) -> None:
        self.graph_launches += 1
        self.on_graph()

    def library(self, name: str) -> Any:
        return _Functions()

    allocate_pinned, free_pinned = allocate, free
    make_stream = make_event = load_module = function = end_capture = _number
    destroy_stream = synchronize_stream = destroy_event = record = synchronize_event = wait = fill = _nothing
    unload_module = launch = begin_capture = destroy_graph = copy_to_peer = _nothing


class _Functions:
    """A library whose functions succeed and do nothing."""

    def __getattr__(self, name: str) -> Any:
        def function(*_: Any) -> int:
            return 0

        return function
