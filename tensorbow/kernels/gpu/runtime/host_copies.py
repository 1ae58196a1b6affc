"""Copies between device memory and pinned host memory on streams beside the compute stream."""

from __future__ import annotations

from contextlib import suppress

from tensorbow.devices.cuda_runtime import CopyKind
from tensorbow.errors import TensorBowError
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue
from tensorbow.kernels.gpu.runtime.context import GpuContext

OUT, BACK = CopyKind.DEVICE_TO_HOST, CopyKind.HOST_TO_DEVICE


class HostCopies:
    """The copy streams of a context, one each way, and an event for each copy.

    A copy begins behind what was enqueued on the compute stream before, which goes on meanwhile, up to the
    wait for it. A graph that captures a copy must capture its wait too: streams branch and join in it.
    """

    def __init__(self, context: GpuContext):
        """Raises ResourceExhaustedError or CudaError; nothing stays open then."""
        self._runtime, self._compute = context.runtime, context.stream
        self._streams: dict[CopyKind, int] = {}
        self._begun: dict[CopyKind, int] = {}
        self._ended: dict[tuple[CopyKind, int], int] = {}  # by the address in host memory, which plans reuse
        try:
            for kind in (OUT, BACK):
                self._streams[kind] = self._runtime.make_stream()
                self._begun[kind] = self._runtime.make_event()
        except BaseException:
            self.close()
            raise

    def copy(self, kind: CopyKind, device: DeviceArray, host: DeviceArray) -> Enqueue:
        """Prepares a copy between device memory and pinned memory."""
        runtime, compute, stream, begun = self._runtime, self._compute, self._streams[kind], self._begun[kind]
        ended, nbytes = self._event(kind, host), device.nbytes
        source, target = (device, host) if kind is OUT else (host, device)
        ends = target.address, source.address

        def enqueue() -> None:
            runtime.record(begun, compute)
            runtime.wait(stream, begun)
            runtime.copy(*ends, nbytes, kind, stream)
            runtime.record(ended, stream)

        return enqueue

    def wait(self, kind: CopyKind, host: DeviceArray) -> Enqueue:
        """Prepares that the compute stream goes on behind the copy from or to this pinned memory."""
        runtime, compute, ended = self._runtime, self._compute, self._event(kind, host)
        return lambda: runtime.wait(compute, ended)

    def _event(self, kind: CopyKind, host: DeviceArray) -> int:
        key = kind, host.address
        if key not in self._ended:
            self._ended[key] = self._runtime.make_event()
        return self._ended[key]

    def close(self) -> None:
        """Destroys streams and events, on which nothing may be running; idempotent."""
        events = [*self._begun.values(), *self._ended.values()]
        streams = [*self._streams.values()]
        self._begun, self._ended, self._streams = {}, {}, {}
        for event in events:
            with suppress(TensorBowError):
                self._runtime.destroy_event(event)
        for stream in streams:
            with suppress(TensorBowError):
                self._runtime.destroy_stream(stream)
