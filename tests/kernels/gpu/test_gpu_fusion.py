"""A step whose element-wise nodes are fused and whose updates are merged, on a GPU."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import compile_step
from tensorbow.graph import Kernel
from tensorbow.kernels.gpu.fusion.fuse import fuse
from tensorbow.kernels.gpu.runtime.call import DeviceArray, GpuCall
from tensorbow.kernels.merging import merge_updates
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.program import Region
from tensorbow.specs import TensorSpec, float32, uint8
from tests.gpu_rig.gpu_kernels import GpuBench, every_gpu_kernel
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.program_rig.poisoned import PoisonedStep

pytestmark = needs_compiler


@pytest.fixture(scope="module", params=[False, True], ids=["forwards", "backwards"])
def bench(request):
    every_gpu_kernel()
    with emulated_runtime(backwards=request.param) as runtime, GpuBench(runtime) as bench:
        yield bench


@pytest.fixture(autouse=True)
def freed(bench):
    yield
    bench.free_arrays()


def numbered(*shape, dtype=np.float32, start=1):
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) + start).astype(dtype)


class FusingForGpu(ReferenceBackend):
    """Plans for a GPU; `run_plan` below launches what it planned."""

    kernel_kind = "gpu"

    def fuse(self, nodes):
        return fuse(nodes, self._kernel)


@pytest.mark.slow
def test_a_fused_and_merged_step_equals_the_reference(bench):
    with tb.Graph().as_default():
        x, row = tb.placeholder(tb.float32, [6, 8]), tb.placeholder(tb.float32, [8])
        w, b = tb.Variable(numbered(6, 8) / 50, name="w"), tb.Variable(numbered(5) / 9, name="b")
        hidden = tb.nn.relu(x * w + row)
        gradients = [(tb.sigmoid(hidden) * (1.0 - tb.tanh(hidden)) / 3.0, w), (tb.square(b) - 0.5, b)]
        train = tb.train.MomentumOptimizer(0.1, 0.9).apply_gradients(gradients)
        average = tb.Variable(numbered(8), name="average", trainable=False)
        train = tb.group(train, average.assign_sub((average - row) * 0.25))
        fetched = tb.exp(-hidden)
        feeds = {x: np.sin(numbered(6, 8)), row: numbered(8) / 4 - 1}
        start = {"w": numbered(6, 8) / 50, "b": numbered(5) / 9, "average": numbered(8)}
        with PoisonedStep([fetched, train], feeds) as step:
            slots = {v.name: np.full(v.attrs["shape"], 0.5, np.float32) for v in step.layout.variables}
            step.container.load({**slots, **start})
            expected = step.run()[0]
            after = {v.name: step.container.read(v.name) for v in step.layout.variables}
            layout, specs = step.layout, {t: TensorSpec(a.shape, float32) for t, a in feeds.items()}
        executable = compile_step([fetched, train], specs, layout, FusingForGpu())
        groups = merge_updates(executable.segments[0].groups)
        made = ["ApplyMomentum", "AssignSub", "Exp", "RealDiv", "Relu", "Sub"]
        assert sorted(g.definition.name for g in groups) == made
        fed = {t.name: a for t, a in feeds.items()}
        fetches, values = run_plan(bench, executable, groups, layout, fed, {**slots, **start})
    np.testing.assert_allclose(fetches[0], expected, rtol=1e-6)
    for name, value in after.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-5, err_msg=name)


def run_plan(bench, executable, groups, layout, feeds, variables):
    """Launches groups; the fetched values, and the variables afterwards."""
    nbytes = {**executable.region_nbytes, Region.RING: 0}
    regions = {region: bench.memory(TensorSpec((max(nbytes.get(region, 0), 1),), uint8)) for region in Region}
    constants = np.frombuffer(executable.constants, np.uint8)
    bench.upload(constants, DeviceArray(regions[Region.CONSTANT].address, constants.shape, constants.dtype))

    def at(ref):
        dtype = np.dtype(ref.dtype.as_numpy_dtype)
        return DeviceArray(regions[ref.region].address + ref.offset, ref.shape, dtype)

    given = [(executable.inputs[name], array) for name, array in feeds.items()]
    given += [(layout.ref(name), array) for name, array in variables.items()]
    given += [(ref, np.asarray(executable.scalars.get(key, 0), ref.dtype.as_numpy_dtype))
              for key, ref in executable.state.items()]  # fmt: skip
    for ref, array in given:
        bench.upload(array, at(ref))
    for group in groups:
        kernel: Kernel = group.kernel
        inputs, outputs, scratch = (
            tuple(map(at, refs)) for refs in (group.inputs, group.outputs, group.scratch)
        )
        state = {key: at(ref) for key, ref in group.state}
        call = GpuCall(group.attrs, inputs, outputs, bench.context, scratch, state)
        kernel.prepare(call)()
    return (
        [bench.download(at(ref)) for ref in executable.fetch_sources],
        {name: bench.download(at(layout.ref(name))) for name in variables},
    )
