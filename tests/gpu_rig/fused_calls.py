"""One call of an op for several replicas at once on a GPU, as a fused plan makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tensorbow.devices import GpuDevice, StreamGroup
from tensorbow.devices.cuda_runtime import CudaRuntime
from tensorbow.graph import NodeSpec, OpDef
from tensorbow.kernels import backend_for
from tensorbow.kernels.gpu.backend import GpuBackend
from tensorbow.kernels.gpu.fused.context import FusedContext
from tensorbow.kernels.gpu.fused.memory import ReplicaMemory
from tensorbow.kernels.gpu.runtime.call import DeviceArray, GpuCall
from tensorbow.ops.definition import kernel_for
from tensorbow.program import Region
from tensorbow.specs import Array, TensorSpec, as_dtype
from tests.gpu_rig.gpu_kernels import GpuResult

POISON = 0xFF


class FusedBench:
    """A device, and memory for replicas that lie at unequal distances. Close it."""

    def __init__(self, runtime: CudaRuntime, replicas: int, compute: str = "fp32"):
        self.runtime, self.replicas = runtime, replicas
        self.device = GpuDevice("/gpu:0", runtime, compute=compute)
        self.group: StreamGroup = self.device.stream_group("fused")
        backend = backend_for(self.device)
        assert isinstance(backend, GpuBackend)
        self.plain = backend.context_of(self.group)

    def memory(self, nbytes: int, unequal: bool = True) -> tuple[ReplicaMemory, list[int]]:
        """Poisoned memory of so many bytes for each replica, and where it begins."""
        stride = -(-nbytes // 256) * 256 + 256
        block = self.group.allocate(stride * self.replicas + 4096 * self.replicas**2)
        assert block is not None
        steps = [n * stride + (256 * n * n if unequal else 0) for n in range(self.replicas)]
        bases = [block.address + step for step in steps]
        for base in bases:
            self.device.write(base, np.full(nbytes, POISON, np.uint8))
        regions = [{Region.SLAB: base} for base in bases]
        return ReplicaMemory(self.group, regions, {Region.SLAB: nbytes}), bases

    def synchronize(self) -> None:
        self.runtime.synchronize_stream(self.plain.stream)

    def close(self) -> None:
        self.device.close()


@contextmanager
def fused_bench(runtime: CudaRuntime, replicas: int, compute: str = "fp32") -> Any:
    bench = FusedBench(runtime, replicas, compute)
    try:
        yield bench
    finally:
        bench.close()


def run_fused(
    bench: FusedBench,
    op: OpDef,
    inputs: Sequence[Sequence[Array]],
    attrs: Mapping[str, Any],
    state: Mapping[str, Any] | None = None,
    status: int | None = None,
    *,
    unequal: bool = True,
    offset: int = 0,
) -> list[GpuResult]:
    """Results by replica. inputs: by replica; of equal shapes.

    unequal: replicas lie at unequal distances. offset: bytes from an aligned address to each array.
    """
    complete = {**op.attrs, **attrs}
    specs = tuple(TensorSpec(a.shape, as_dtype(a.dtype), a) for a in inputs[0])
    results = op.infer(specs, complete)
    kernel = kernel_for(op, "gpu")
    scalars = {key: np.asarray(value) for key, value in (state or {}).items()}
    if status is not None:
        scalars["status"] = np.asarray(status, np.int64)
    end = 0

    def place(shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        nonlocal end
        made = DeviceArray(end + offset, shape, np.dtype(dtype))
        end += -(-(offset + made.nbytes) // 256) * 256
        return made

    given = [place(a.shape, a.dtype) for a in inputs[0]]
    shared = dict(op.alias)
    made = [
        given[shared[i]] if i in shared else place(r.extents, r.dtype.as_numpy_dtype)
        for i, r in enumerate(results)
    ]
    scratch = [
        place(s.extents, s.dtype.as_numpy_dtype)
        for s in kernel.scratch_specs(NodeSpec(complete, specs, results))
    ]
    kept = {key: place(value.shape, value.dtype) for key, value in scalars.items()}
    memory, bases = bench.memory(max(end, 1), unequal)

    def at(array: DeviceArray, replica: int = 0) -> DeviceArray:
        return DeviceArray(bases[replica] + array.address, array.shape, array.dtype)

    def read(array: DeviceArray, replica: int) -> Array:
        return bench.device.read(at(array, replica).address, array.shape, array.dtype)

    for replica, own in enumerate(inputs):
        for target, value in [*zip(given, own, strict=True), *((kept[k], v) for k, v in scalars.items())]:
            if value.size:
                bench.device.write(at(target, replica).address, value)
    try:
        context = FusedContext(bench.plain, memory)
        call = GpuCall(
            complete,
            tuple(map(at, given)),
            tuple(map(at, made)),
            context,
            tuple(map(at, scratch)),
            {key: at(kept[key]) for key in state or {}},
            None if status is None else at(kept["status"]),
        )
        enqueue = kernel.bind(call)  # type: ignore[arg-type]
        taken = {array.address for array in call.inputs}
        new = [array for array in call.outputs if array.nbytes and array.address not in taken]
        assert all(map(context.reaches, new))
        enqueue()
        bench.synchronize()
        return [
            GpuResult(
                tuple(read(array, replica) for array in made),
                tuple(read(given[i], replica) for i in op.writes),
                {key: read(kept[key], replica) for key in state or {}},
            )
            for replica in range(len(inputs))
        ]
    finally:
        memory.close()
