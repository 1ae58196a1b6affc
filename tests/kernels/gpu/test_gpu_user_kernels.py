"""Kernels of users' own ops on a GPU: CUDA source, within steps, gradients and training; what is refused.

As long as the list of its cases, some with their sources.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram
from tensorbow.devices import Device, GpuDevice
from tensorbow.devices.cupy_runtime import compile_with_nvrtc, nvrtc_identity
from tensorbow.errors import InvalidArgumentError, NotFoundError, UnimplementedError
from tensorbow.kernels.backends import backend_of_kind
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, same_bits

pytestmark = [needs_compiler, pytest.mark.usefixtures("ops_of_the_test")]

CUBE = """
extern "C" __global__ void cube(const TB_INPUT0* x, TB_OUTPUT0* y, int count) {
    TB_FOR_EACH(int, i, count) y[i] = x[i] * x[i] * x[i];
}
"""
CUBE_GRADIENT = """
extern "C" __global__ void cube_gradient(
    const TB_INPUT0* x, const TB_INPUT0* g, TB_OUTPUT0* result, int count
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) result[i] = 3 * x[i] * x[i] * g[i];
}
"""


def define_cube(*, gpu: bool = True) -> Any:
    gradient = tb.define_op(
        "CubeGradient",
        inputs=("x", "g"),
        spec=lambda inputs, attrs: inputs[0],
        kernel=lambda call: np.multiply(3 * call.inputs[0] ** 2, call.inputs[1], out=call.outputs[0]),
        gradient=tb.NOT_DIFFERENTIABLE,
    )
    cube = tb.define_op(
        "Cube",
        inputs=("x",),
        spec=lambda inputs, attrs: inputs[0],
        kernel=lambda call: np.power(call.inputs[0], 3, out=call.outputs[0]),
        gradient=lambda op, g: [gradient(op.inputs[0], g)],
    )
    if gpu:
        tb.register_kernel(cube, "gpu", tb.CudaKernel(CUBE, "cube"))
        tb.register_kernel(gradient, "gpu", tb.CudaKernel(CUBE_GRADIENT, "cube_gradient", block=64))
    return cube


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [tb.float32, tb.float64])
@pytest.mark.parametrize("shape", [(7, 41), (0, 3), ()])
def test_a_step_with_gradient_gives_what_the_cpu_gives(
    runtime: Any, dtype: Any, shape: tuple[int, ...]
) -> None:
    cube, graph = define_cube(), tb.Graph()
    with graph.as_default():
        x = tb.placeholder(dtype, shape)
        y = tb.reduce_sum(cube(x) * 0.5)
        results = [y, *tb.gradients(y, [x])]
    value = np.random.default_rng(1).normal(size=shape)
    with GpuDevice("/gpu:0", runtime) as gpu:
        found = []
        for device in ("/cpu:0", gpu):
            with tb.Session(graph=graph, device=device) as session:
                found.append([session.run(results, {x: value}) for _ in range(3)])
    for on_cpu, on_gpu in zip(*found, strict=True):
        for a, b in zip(on_cpu, on_gpu, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5 if dtype is tb.float32 else 1e-12)
    assert runtime.counts["launch_graph"] == 2


def cubic(cube: Any) -> Model:
    """loss = mean((cube(x w) - y)^2)"""
    rng = np.random.default_rng(7)
    initial = {"w": rng.normal(size=(5, 3)).astype(np.float32) * 0.5}
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [None, 5], name="x")
        y = tb.placeholder(tb.float32, [None, 3], name="y")
        w = tb.Variable(initial["w"], name="w")
        loss = tb.reduce_mean(tb.square(cube(tb.matmul(x, w)) - y))
        update = tb.train.MomentumOptimizer(0.02, 0.9).minimize(loss)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        own = np.random.default_rng((11, round, replica))
        return tuple(own.normal(size=(4, size)).astype(np.float32) for size in (5, 3))

    shapes = [tb.TensorSpec((4, 5), tb.float32), tb.TensorSpec((4, 3), tb.float32)]
    return Model(StepProgram((x, y), loss, update, {}), shapes, initial, batch)


def trained(model: Model, devices: list[Device], per_device: int) -> tuple[list[float], dict[str, Any]]:
    losses: list[float] = []
    with engine_of(model, devices, per_device, tb.train.Constant(0.02)) as engine:
        source = Prepared(model.batch, engine.learners.count)
        engine.run(source.open, 0, 8, lambda results: losses.extend(results.losses))
        return losses, engine.learners.values.state_arrays()


@pytest.mark.slow
def test_two_replicas_train_with_it_and_graphs_have_the_bits_of_single_launches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = cubic(define_cube())
    losses, state = trained(model, cpu_devices(1), 2)
    with emulated_runtime() as runtime:
        captured = trained(model, [GpuDevice("/gpu:0", runtime)], 2)
        assert runtime.counts["launch_graph"] >= 7  # one a round, after the first
        assert not [call for call in list(runtime.log)[-20:] if call.name == "cube"]
    np.testing.assert_allclose(captured[0], losses, rtol=1e-4)
    for name, value in state.items():
        np.testing.assert_allclose(captured[1][name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    monkeypatch.setattr(backend_of_kind("gpu"), "capture", False)
    with emulated_runtime() as runtime:
        eager = trained(model, [GpuDevice("/gpu:0", runtime)], 2)
        assert runtime.counts["launch_graph"] == 0
    assert eager[0] == captured[0]
    assert same_bits(eager[1], captured[1])


def test_without_a_gpu_kernel_the_step_does_not_compile(runtime: Any) -> None:
    cube, graph = define_cube(gpu=False), tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [3])
        y = cube(x)
    with GpuDevice("/gpu:0", runtime) as gpu, tb.Session(graph=graph, device=gpu) as session:
        with pytest.raises(
            UnimplementedError, match=r"Cube has no kernel for gpu devices .*cpu.*register one"
        ):
            session.run(y, {x: np.ones(3)})
        tb.register_kernel(cube, "gpu", tb.CudaKernel(CUBE, "cube"))
        np.testing.assert_array_equal(session.run(y, {x: np.ones(3)}), np.ones(3))


ROWS = """
extern "C" __global__ void scaled_rows(
    const float* __restrict__ x, float* sums, float* kept, int columns, double factor, bool negate
) {
    extern __shared__ float parts[];
    const float* row = x + blockIdx.x * columns;  // one block for each row
    float sum = 0;
    const int me = threadIdx.y * blockDim.x + threadIdx.x;
    for (int i = me; i < columns; i += blockDim.x * blockDim.y) sum += row[i];
    parts[me] = sum;
    __syncthreads();
    if (threadIdx.x + threadIdx.y == 0) {
        for (int i = 1; i < blockDim.x * blockDim.y; ++i) sum += parts[i];
        kept[blockIdx.x] = sum;
        sums[blockIdx.x] = kept[blockIdx.x] * (float)(negate ? -factor : factor);
    }
}
"""


def test_grids_shared_memory_scratch_and_scalars(runtime: Any) -> None:
    op = tb.define_op(
        "ScaledRows",
        inputs=("x",),
        attrs={"factor": 1.0, "negate": False},
        spec=lambda inputs, attrs: tb.TensorSpec(inputs[0].shape[:1], inputs[0].dtype),
        kernel=lambda call: None,
        gradient=tb.NOT_DIFFERENTIABLE,
    )
    kernel = tb.CudaKernel(
        ROWS,
        "scaled_rows",
        grid=lambda call: call.inputs[0].shape[0],
        block=(8, 4),
        shared_nbytes=lambda call: 32 * call.inputs[0].dtype.itemsize,
        scalars=lambda call: (call.inputs[0].shape[1], call.attrs["factor"], call.attrs["negate"]),
        scratch=lambda node: [node.outputs[0]],
    )
    tb.register_kernel(op, "gpu", kernel)
    value = np.random.default_rng(2).normal(size=(5, 77)).astype(np.float32)
    with GpuBench(runtime) as bench:
        for captured in (False, True):
            found = BoundGpuCall(bench, op, [value], {"factor": 2.5, "negate": True}).run(captured)
            np.testing.assert_allclose(found.outputs[0], -2.5 * value.sum(axis=1), rtol=1e-5)


DECAY = """
extern "C" __global__ void decay(
    const long long* status, float* w, const float* rate, float* out, int count
) {
    TB_PREDICATED(status);
    TB_FOR_EACH(int, i, count) w[i] -= *rate * w[i];
}
"""


def define_decay(source: str = DECAY) -> Any:
    op = tb.define_op(
        "UserDecay",
        inputs=("w", "rate"),
        spec=lambda inputs, attrs: inputs[0],
        kernel=lambda call: np.multiply(call.inputs[0], 1 - call.inputs[1], out=call.inputs[0]),
        gradient=tb.NOT_DIFFERENTIABLE,
        alias=[(0, 0)],
        writes=[0],
    )
    tb.register_kernel(op, "gpu", tb.CudaKernel(source, "decay", elements=lambda call: call.inputs[0].size))
    return op


def test_an_op_that_writes_does_nothing_while_the_status_is_set(runtime: Any) -> None:
    op = define_decay()
    w, rate = np.arange(5, dtype=np.float32), np.float32(0.5)
    with GpuBench(runtime) as bench:
        for status, wanted in ((0, w / 2), (1, w), (None, w / 2)):
            found = BoundGpuCall(bench, op, [w, rate], status=status).run()
            np.testing.assert_array_equal(found.written[0], wanted)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (DECAY.replace("const long long* status, ", ""), "expected 'const long long\\* status' as first"),
        (DECAY.replace("TB_PREDICATED(status);", ""), r"and TB_PREDICATED\(status\); in the first line"),
        (DECAY.replace("const long long", "const int"), r"'const int\* status': expected 'const long long"),
    ],
)
def test_an_op_that_writes_must_look_at_the_status(runtime: EmulatedCuda, source: str, message: str) -> None:
    op = define_decay(source)
    with GpuBench(runtime) as bench, pytest.raises(InvalidArgumentError, match=message):
        BoundGpuCall(bench, op, [np.ones(3, np.float32), np.float32(1)], status=0)


def refused(runtime: Any, source: str, **options: Any) -> str:
    """Error of a step that runs this kernel of `Cube`."""
    cube, graph = define_cube(gpu=False), tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [2, 3])
        y = cube(x, name="cubed")
    tb.register_kernel(cube, "gpu", tb.CudaKernel(source, "cube", **options))
    with GpuDevice("/gpu:0", runtime) as gpu, tb.Session(graph=graph, device=gpu) as session:
        with pytest.raises(InvalidArgumentError) as raised:
            session.run(y, {x: np.ones((2, 3))})
        return str(raised.value)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("const double* x, float* y, int n", "'const double* x': expected 'const float* x' for input 0"),
        ("const float* x, TB_INPUT0 y, int n", "'float y': expected 'float* y' for output 0"),
        (
            "float* x, float* y, int n",
            "'float* x': expected 'const float* x' for input 0, which the op does not",
        ),
        ("const float* x, float* y", "expected 3 parameters (input 0, output 0, scalar 6), got 2"),
        ("const float* x, float* y, int* n", "'int* n': expected one of bool, "),
        ("const float* x, float* y, my_type n", "'my_type n': expected one of bool, "),
        ("const float* x, float& y, int n", "'float& y': expected a type and a name"),
        ("const float* x, float** y, int n", "'float** y': expected a type and a name"),
        ("const float* x, float y[], int n", "'float y[]': expected a type and a name"),
        ("const float*, float* y, int n", "'const float*': expected a type and a name"),
    ],
)
def test_parameters_must_fit(runtime: Any, parameters: str, said: str) -> None:
    text = refused(runtime, f'extern "C" __global__ void cube({parameters}) {{}}')
    assert said in text
    assert text.startswith("op Cube cubed") or "cubed" in text.partition(":")[0]
    assert "test_gpu_user_kernels.py" in text


@pytest.mark.parametrize(
    ("type", "value", "said"),
    [
        ("int", 2**31, "expected a value that int holds, got 2147483648"),
        ("int", 1.5, "expected a value that int holds, got 1.5"),
        ("unsigned int", -1, "expected a value that unsigned holds, got -1"),
        ("bool", 1, "expected a value that bool holds, got 1"),
        ("float", "much", "expected a value that float holds, got 'much'"),
    ],
)
def test_scalars_must_fit(runtime: Any, type: str, value: Any, said: str) -> None:
    source = f'extern "C" __global__ void cube(const float* x, float* y, {type} n) {{}}'
    assert said in refused(runtime, source, scalars=lambda call: [value])


def test_a_compile_error_names_the_op_and_the_line_of_the_source(runtime: Any) -> None:
    wrong = CUBE.replace("y[i] =", "y[i] = undeclared +")
    text = refused(runtime, wrong)
    assert "cubed" in text
    assert "does not compile" in text
    assert "kernel cube:3:" in text  # the third line of the text, the first of which is empty
    assert "undeclared" in text


def test_nvrtc_counts_the_lines_alike(runtime: EmulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        nvrtc_identity(80)
    except (NotFoundError, RuntimeError, OSError) as error:
        pytest.skip(f"no NVRTC: {str(error).splitlines()[0]:.150}")
    monkeypatch.setattr(runtime, "compile", lambda source, name: compile_with_nvrtc(source, name, 80))
    text = refused(runtime, CUBE.replace("y[i] =", "y[i] = undeclared +"))
    assert 'kernel cube(3): error: identifier "undeclared" is undefined' in text


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("int x;", "cube"), {}, r"expected 'extern \"C\" __global__ void cube\(\.\.\.\)' .* got no kernel"),
        ((CUBE, "cub"), {}, "void cub.* got cube"),
        ((b"int x;", "cube"), {}, "expected source as a text, got b'int x;'"),
        ((CUBE.replace('extern "C" ', ""), "cube"), {}, 'expected extern "C" before __global__'),
        ((f"/* {CUBE} */", "cube"), {}, "got no kernel"),
        ((CUBE, "cube"), {"block": 2048}, r"expected a block of 1 to 1024 threads, got \(2048,\)"),
        ((CUBE, "cube"), {"block": (8, 8)}, r"a block of several dimensions, \(8, 8\), needs a grid"),
        ((CUBE, "cube"), {"block": "large"}, "block: expected a number, or up to three, got 'large'"),
        ((CUBE, "cube"), {"grid": lambda c: 1, "elements": lambda c: 1}, "elements or grid, got both"),
    ],
)
def test_what_can_be_said_at_once(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        tb.CudaKernel(*arguments, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"elements": lambda call: -1}, "expected a number of elements of at least 0, got -1"),
        ({"elements": lambda call: 1.5}, "expected a number of elements of at least 0, got 1.5"),
        ({"grid": lambda call: (2, -2)}, "expected a grid of at least 0 blocks, got (2, -2)"),
        ({"grid": lambda call: (1, 1, 1, 1)}, "grid of CudaKernel cube: expected a number, or up to three"),
    ],
)
def test_sizes_must_be_numbers(runtime: EmulatedCuda, options: dict[str, Any], said: str) -> None:
    assert said in refused(runtime, CUBE, **options)
