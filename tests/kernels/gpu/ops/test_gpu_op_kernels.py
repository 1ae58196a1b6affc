"""Every GPU kernel agrees with the reference kernel on the contract samples, on an emulated GPU."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.ops.definition import kernel_for
from tensorbow.ops.linalg import MatrixDeterminant, MatrixInverse
from tests.gpu_rig.cuda_compiler import compiler
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench, GpuResult, every_gpu_kernel, run_on_gpu
from tests.gpu_rig.recording import compile_ahead, every_source, gpu_samples, in_float64
from tests.gpu_rig.runtimes import needs_compiler
from tests.ops_contract.collection import each, product_ops
from tests.ops_contract.exceptions import STRUCTURAL
from tests.ops_contract.harness import Call, same_bits, specs_of

pytestmark = needs_compiler
OF_FLOAT32 = ("Narrow16", "Quantize", "Dequantize")  # ops that take no float64
SAMPLES = gpu_samples()
SMALL = [s for s in SAMPLES if not s.large]
WRITING = [s for s in SAMPLES if s.op.writes]

# Relative to the element, and to the largest element of the result (sums that cancel).
TOLERANCE = {"float32": (1e-5, 1e-6), "float64": (1e-12, 1e-13)}
LOOSER = {"Prod": 10.0}  # factors: errors of long products add up, in another order here than there

# Where a filter's tap lies in the padding, it is multiplied by zero there and left out here, or the reverse.
NAN_IN_PADDING = ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")
UNDEFINED = ("Cast", "Orthonormal")  # NaN as an integer; LAPACK's factors of a matrix with NaN


@pytest.fixture(scope="module", autouse=True)
def compiled(request):
    """Compiles the kernels on all cores first, in the process that runs most of this file."""
    selected = sum(item.module is request.module for item in request.session.items)
    if compiler() is not None and selected > 50:
        compile_ahead(every_source())


def run(runtime, sample, inputs=None, backwards=False, captured=False, **options) -> GpuResult:
    if isinstance(runtime, EmulatedCuda):
        runtime.backwards = backwards
    with GpuBench(runtime) as bench:
        arrays = sample.inputs if inputs is None else inputs
        call = BoundGpuCall(bench, sample.op, arrays, sample.complete_attrs, sample.state, **options)
        return call.run(captured=captured and call.capturable)


def reference(sample, inputs=None) -> GpuResult:
    arrays = [np.array(a) for a in (sample.inputs if inputs is None else inputs)]
    call = Call(sample.op, arrays, sample.complete_attrs, sample.state)
    call.run()
    return GpuResult(call.outputs, tuple(arrays[i] for i in sample.op.writes), call.state)


def assert_agree(actual: GpuResult, expected: GpuResult, sample) -> None:
    for what in ("outputs", "written"):
        pairs = zip(getattr(actual, what), getattr(expected, what), strict=True)
        for i, (got, wanted) in enumerate(pairs):
            close(got, wanted, f"{what} {i}", LOOSER.get(sample.op.name, 1.0))
    for key, value in expected.state.items():
        assert actual.state[key] == value, key


def close(actual, expected, what, factor) -> None:
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), what
    relative, of_largest = TOLERANCE.get(actual.dtype.name, (0.0, 0.0))
    finite = np.abs(expected[np.isfinite(expected)])
    largest = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(
        actual, expected, rtol=relative * factor, atol=of_largest * factor * largest, err_msg=what
    )


def assert_same(first: GpuResult, second: GpuResult) -> None:
    for what in ("outputs", "written"):
        for i, (a, b) in enumerate(zip(getattr(first, what), getattr(second, what), strict=True)):
            assert same_bits(a, b), f"{what} {i}"


@each(SAMPLES, few=2)
@pytest.mark.sampled(4)
def test_agrees_with_the_reference_kernel(sample, runtime):
    """And gives the same bits from a graph, with all blocks and threads in reverse order."""
    result = run(runtime, sample)
    assert_agree(result, reference(sample), sample)
    assert_same(run(runtime, sample, backwards=True, captured=True), result)


@pytest.mark.slow
@each([s for s in SAMPLES if s.op.name not in OF_FLOAT32 and any(a.dtype == np.float32 for a in s.inputs)])
def test_agrees_in_float64(sample, runtime):
    inputs = in_float64(sample)
    assert_agree(run(runtime, sample, inputs), reference(sample, inputs), sample)


@pytest.mark.sampled(1)
@each(WRITING)
def test_changes_nothing_while_the_status_is_set(sample, runtime):
    stopped = run(runtime, sample, status=1)
    for i, after in zip(sample.op.writes, stopped.written, strict=True):
        assert same_bits(after, np.asarray(sample.inputs[i]))
    assert_agree(run(runtime, sample, status=0), reference(sample), sample)


def _shared(sample):
    """The pairs of an output and an input that its kernel may put in one place."""
    specs = specs_of(sample.inputs)
    results = sample.op.infer(specs, sample.complete_attrs)
    pairs = kernel_for(sample.op, "gpu").inplace
    return [(output, source) for output, source in pairs if results[output] == specs[source]]


@pytest.mark.sampled(6)
@each([s for s in SMALL if _shared(s)], few=2)
def test_declared_inplace_pairs(sample, runtime):
    for output, source in _shared(sample):
        result = run(runtime, sample, shared={output: source})
        plain = run(runtime, sample)
        assert all(same_bits(a, b) for a, b in zip(result.outputs, plain.outputs, strict=True)), source


def _with(sample, value):
    inputs = [np.array(a) for a in sample.inputs]
    for i, array in enumerate(inputs):
        if array.dtype.kind == "f" and array.size and i not in sample.op.shape_inputs:
            array.reshape(-1)[-1:] = value
    return inputs


def _takes_nan(sample):
    excluded = (*NAN_IN_PADDING, *UNDEFINED)
    return sample.op.name not in excluded and any(a.dtype.kind == "f" and a.size for a in sample.inputs)


@each([s for s in SMALL if _takes_nan(s)], few=2)
@pytest.mark.sampled(1)
def test_nan_and_infinity_are_the_reference_kernels(sample, runtime):
    for value in (np.nan, np.inf):
        inputs = _with(sample, value)
        assert_agree(run(runtime, sample, inputs), reference(sample, inputs), sample)


def test_every_op_has_a_kernel():
    """Or a reason why it has none: then it is placed on a CPU. Compiled steps have no TransposeBy."""
    ops = {name for name, op in product_ops().items() if not op.is_view and name not in STRUCTURAL}
    without = {name for name in ops if product_ops()[name].why_cpu}
    assert ops - set(every_gpu_kernel()) == without | {"TransposeBy"}


def test_the_inverse_of_a_singular_matrix_is_nan(runtime):
    stack = np.stack([np.ones((3, 3)), np.eye(3), np.zeros((3, 3))]).astype(np.float32)
    (inverse,) = run_on_gpu(MatrixInverse, [stack], runtime=runtime).outputs
    assert np.isnan(inverse[[0, 2]]).all()
    np.testing.assert_array_equal(inverse[1], np.eye(3))
    (found,) = run_on_gpu(MatrixDeterminant, [stack], runtime=runtime).outputs
    assert found.tolist() == [0, 1, 0]


def test_every_kernel_has_samples():
    assert {s.op.name for s in SAMPLES} == set(every_gpu_kernel())
