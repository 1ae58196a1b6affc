"""Runs one op's GPU kernel on arrays: copied to a GPU, prepared, enqueued or captured, copied back."""

from __future__ import annotations

import ctypes
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tensorbow.kernels.gpu
from tensorbow.devices.cuda_runtime import CopyKind, CudaRuntime
from tensorbow.graph import Kernel, NodeSpec, OpDef
from tensorbow.kernels.gpu.runtime.call import DeviceArray, GpuCall
from tensorbow.kernels.gpu.runtime.context import GpuContext, GpuOptions
from tensorbow.kernels.gpu.runtime.program import ProgramCache
from tensorbow.ops.definition import OPS, kernel_for
from tensorbow.specs import Array, TensorSpec, as_dtype
from tests.ops_contract.collection import product_ops

WORKSPACE_NBYTES = 2 << 20


@cache
def every_gpu_kernel() -> dict[str, OpDef]:
    """Ops with a GPU kernel, by name, after loading every module of the GPU backend."""
    product_ops()
    for module in pkgutil.walk_packages(tensorbow.kernels.gpu.__path__, "tensorbow.kernels.gpu."):
        importlib.import_module(module.name)
    return {name: op for name, op in sorted(OPS.items()) if "gpu" in op.kernels}


class GpuBench:
    """Stream, context and pinned memory of a runtime; copies arrays to the GPU and back. Close it."""

    def __init__(self, runtime: CudaRuntime, compute: str = "fp32"):
        self.runtime = runtime
        self.stream = runtime.make_stream()
        self.programs = ProgramCache(runtime, None)
        self._addresses: list[int] = []
        self._pinned, self._pinned_nbytes = 0, 0
        workspace = self.memory(TensorSpec((WORKSPACE_NBYTES,), as_dtype(np.uint8)))
        self._addresses.clear()
        self.context = GpuContext(runtime, self.stream, self.programs, workspace, GpuOptions(compute))

    def memory(self, spec: TensorSpec) -> DeviceArray:
        """New memory for an array, filled with NaN or set bits where the runtime supports it."""
        nbytes = int(np.prod(spec.extents)) * spec.dtype.size
        address = self.runtime.allocate(max(nbytes, 1))
        self._addresses.append(address)
        self.runtime.fill(address, 0xFF, max(nbytes, 1), self.stream)
        return DeviceArray(address, spec.extents, np.dtype(spec.dtype.as_numpy_dtype))

    def upload(self, array: Array, target: DeviceArray) -> None:
        """Copies an array to the GPU, and waits."""
        self._through_pinned(target, np.ascontiguousarray(array))

    def download(self, source: DeviceArray) -> Array:
        """Copies an array from the GPU after the stream's work."""
        return self._through_pinned(source, None)

    def poison(self, array: DeviceArray) -> None:
        """Sets all bits."""
        if array.nbytes:
            self.runtime.fill(array.address, 0xFF, array.nbytes, self.stream)

    def _through_pinned(self, memory: DeviceArray, array: Array | None) -> Array:
        result = np.empty(memory.shape, memory.dtype) if array is None else array
        if memory.nbytes:
            runtime, stream = self.runtime, self.stream
            pinned = self._pinned_memory(memory.nbytes)
            if array is None:
                runtime.copy(pinned, memory.address, memory.nbytes, CopyKind.DEVICE_TO_HOST, stream)
                runtime.synchronize_stream(stream)
                ctypes.memmove(result.ctypes.data, pinned, memory.nbytes)
            else:
                ctypes.memmove(pinned, array.ctypes.data, memory.nbytes)
                runtime.copy(memory.address, pinned, memory.nbytes, CopyKind.HOST_TO_DEVICE, stream)
                runtime.synchronize_stream(stream)
        return result

    def _pinned_memory(self, nbytes: int) -> int:
        """Pinned memory of at least so many bytes, valid until the next call."""
        if nbytes > self._pinned_nbytes:
            self._free_pinned()
            self._pinned, self._pinned_nbytes = self.runtime.allocate_pinned(2 * nbytes), 2 * nbytes
        return self._pinned

    def _free_pinned(self) -> None:
        if self._pinned:
            self.runtime.free_pinned(self._pinned)
        self._pinned = self._pinned_nbytes = 0

    def free_arrays(self) -> None:
        """Frees the arrays of `memory`, which finds writes outside their bounds."""
        self.runtime.synchronize_stream(self.stream)
        while self._addresses:
            self.runtime.free(self._addresses.pop())

    def close(self) -> None:
        """Releases everything. Nothing may be running."""
        self.free_arrays()
        self._free_pinned()
        self.context.close()
        self.programs.close()
        self.runtime.free(self.context.workspace.address)
        self.runtime.destroy_stream(self.stream)

    def __enter__(self) -> GpuBench:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None:  # else the runtime may be broken: its owner gives everything back
            self.close()


@dataclass(frozen=True)
class GpuResult:
    """written: values of the inputs in `definition.writes` after the run, in order; state: STATE scalars."""

    outputs: tuple[Array, ...]
    written: tuple[Array, ...]
    state: dict[str, Array]


class BoundGpuCall:
    """An op's GPU kernel bound to memory of its own on a bench; `run` may be called repeatedly."""

    def __init__(
        self,
        bench: GpuBench,
        definition: OpDef,
        inputs: Sequence[Array],
        attrs: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        *,
        status: int | None = None,
        shared: Mapping[int, int] | None = None,
    ):
        """status: value of the predicate, for ops that write; shared: outputs in an input's memory."""
        self.bench, self.definition = bench, definition
        complete = {**definition.attrs, **(attrs or {})}
        self.arrays = tuple(np.asarray(a) for a in inputs)
        specs = tuple(TensorSpec(a.shape, as_dtype(a.dtype), a) for a in self.arrays)
        results = definition.infer(specs, complete)
        kernel: Kernel = kernel_for(definition, "gpu")
        self.inputs = tuple(bench.memory(spec) for spec in specs)
        given = {o: self.inputs[i] for o, i in (*definition.alias, *(shared or {}).items())}
        self._shared = set(given)
        self.outputs = tuple(given[i] if i in given else bench.memory(r) for i, r in enumerate(results))
        node = NodeSpec(complete, specs, results)
        self.scratch = tuple(bench.memory(spec) for spec in kernel.scratch_specs(node))
        self.values = {key: np.asarray(value) for key, value in (state or {}).items()}
        self.state = {key: self._scalar(value) for key, value in self.values.items()}
        self.status = None if status is None else np.asarray(status, np.int64)
        predicate = None if self.status is None else self._scalar(self.status)
        call = GpuCall(
            complete, self.inputs, self.outputs, bench.context, self.scratch, self.state, predicate
        )
        if kernel.prepare is None:
            raise TypeError(f"{definition.name}: its gpu kernel has no prepare; register it with gpu_kernel")
        self.enqueue = kernel.prepare(call)  # type: ignore[arg-type]  # a GpuCall, by gpu_kernel
        self.capturable = kernel.capturable

    def _scalar(self, value: Array) -> DeviceArray:
        memory = self.bench.memory(TensorSpec((), as_dtype(value.dtype)))
        self.bench.upload(value, memory)
        return memory

    def reset(self) -> None:
        """Restores the inputs, and fills everything else with garbage."""
        for i, output in enumerate(self.outputs):
            if i not in self._shared:
                self.bench.poison(output)
        for memory in (*self.scratch, self.bench.context.workspace):
            self.bench.poison(memory)
        for array, memory in zip(self.arrays, self.inputs, strict=True):
            self.bench.upload(array, memory)
        for key, value in self.values.items():
            self.bench.upload(value, self.state[key])

    def run(self, captured: bool = False) -> GpuResult:
        """Runs one step from fresh inputs. captured: by a graph that has run once before."""
        runtime, stream = self.bench.runtime, self.bench.stream
        self.reset()
        if not captured:
            self.enqueue()
            return self.result()
        runtime.begin_capture(stream)
        try:
            self.enqueue()
        finally:
            graph = runtime.end_capture(stream)
        try:
            runtime.launch_graph(graph, stream)
            runtime.synchronize_stream(stream)
            self.reset()
            runtime.launch_graph(graph, stream)
            return self.result()
        finally:
            runtime.synchronize_stream(stream)
            runtime.destroy_graph(graph)

    def result(self) -> GpuResult:
        """Result in memory. Raises AssertionError when a read-only input was changed."""
        shared = {id(self.outputs[i]) for i in self._shared}
        after = [self.bench.download(memory) for memory in self.inputs]
        for i, (memory, array) in enumerate(zip(self.inputs, self.arrays, strict=True)):
            if i not in self.definition.writes and id(memory) not in shared:
                assert after[i].tobytes() == array.tobytes(), f"the kernel changed input {i}"
        outputs = tuple(self.bench.download(memory) for memory in self.outputs)
        state = {key: self.bench.download(memory) for key, memory in self.state.items()}
        return GpuResult(outputs, tuple(after[i] for i in self.definition.writes), state)


def run_on_gpu(
    definition: OpDef,
    inputs: Sequence[Array],
    attrs: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    runtime: CudaRuntime | None = None,
    captured: bool = False,
    *,
    status: int | None = None,
    compute: str = "fp32",
) -> GpuResult:
    """Runs the GPU kernel of an op once, by default on an emulated GPU; see BoundGpuCall."""
    from tests.gpu_rig.emulated_cuda import EmulatedCuda

    own = EmulatedCuda() if runtime is None else None
    used: CudaRuntime = own if own is not None else runtime  # type: ignore[assignment]
    try:
        with GpuBench(used, compute) as bench:
            return BoundGpuCall(bench, definition, inputs, attrs, state, status=status).run(captured)
    finally:
        if own is not None:
            own.close()
