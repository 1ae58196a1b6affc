"""GPU kernels of CheckFinite and GradientCheck, which set the status."""

from __future__ import annotations

from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.ops.averaging import GradientCheck
from tensorbow.ops.control import CheckFinite

_CHECK = """\
extern "C" __global__ void tb_check_finite(const $T* values, long long* status, $I count) {
    bool finite = true;
    TB_FOR_EACH($I, i, count) {
        const $T difference = values[i] - values[i];
        finite = finite && difference == ($T)0;  // of NaN and infinity it is NaN
    }
    if (!finite) *status = 1;  // whoever finds one writes the same
}
"""


def _prepare(call: GpuCall) -> Enqueue:
    """Sets the status, 0-d int64, if a value is NaN or infinite; otherwise leaves it unchanged."""
    values, status = call.inputs[0], call.state["status"]
    if values.dtype.kind != "f":
        return lambda: None
    index = index_for(values.size)
    source = CudaSource.of("check finite", _CHECK, T=c_type(values.dtype), I=index.name)
    count = index.make(values.size)
    return call.context.launch(
        source, "tb_check_finite", call.context.blocks(values.size), 256, values, status, count
    )


gpu_kernel(CheckFinite, _prepare)
gpu_kernel(GradientCheck, _prepare)
