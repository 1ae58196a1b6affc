"""Process to run under a memory checker: one step of LeNet, or a kernel with an overrun.

    python -m tests.gpu_rig.checked_step step|overrun

The emulated GPU checks itself: exit code 9 if something was written outside the memory that it allocated.
"""

from __future__ import annotations

import sys

import numpy as np

from tensorbow.devices import GpuDevice
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.specs import TensorSpec, as_dtype
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.gpu_models import classifier
from tests.gpu_rig.runtimes import real_runtime
from tests.scheduler_rig.running import Prepared, engine_of

OVERRUN = CudaSource.of("overrun", 'extern "C" __global__ void overrun(float* y, int n) { y[n] = 1; }')


def main(what: str) -> int:
    """Returns the exit code."""
    runtime = real_runtime()
    found = 0
    if what == "step":
        model = classifier("lenet", batch_size=4)
        device = GpuDevice("/gpu:0", runtime, allocator="cuda_malloc")  # its blocks have nothing around them
        with engine_of(model, [device], 1, sync="none") as engine:
            engine.run(Prepared(model.batch, 1).open, 0, 1)  # call by call
            engine.run(Prepared(model.batch, 1).open, 1, 2)  # captured
            found = _damaged(runtime)
        print("1 step, and 1 of graphs")
    else:
        bench = GpuBench(runtime)
        y = bench.memory(TensorSpec((60,), as_dtype(np.float32)))  # no other memory begins at its end
        bench.context.launch(OVERRUN, "overrun", 1, 1, y, np.int32(60))()
        runtime.synchronize_stream(bench.stream)
        found = _damaged(runtime)
    return 9 if found else 0


def _damaged(runtime: object) -> int:
    return len(runtime.damaged()) if isinstance(runtime, EmulatedCuda) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
