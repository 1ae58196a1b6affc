"""Random numbers on a GPU: the reference's bits for every stream, step and size."""

import numpy as np
import pytest

from tensorbow.kernels.gpu.source.bitonic_sort import CHUNK
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.random import (
    DropoutMask,
    RandomPermutation,
    RandomStandardNormal,
    RandomUniform,
    RandomUniformInt,
    TruncatedNormal,
)
from tensorbow.specs import float32, float64
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench, every_gpu_kernel
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler
SEEDS = {"seed": 2**40 + 5, "seed2": -3}
FIRST = {"counter": 3, "random_stream": 1}


@pytest.fixture(scope="module", params=[False, True], ids=["forwards", "backwards"])
def bench(request):
    every_gpu_kernel()
    with emulated_runtime(backwards=request.param) as runtime, GpuBench(runtime) as bench:
        yield bench


@pytest.fixture(autouse=True)
def freed(bench):
    yield
    bench.free_arrays()


def vector(*values):
    return np.array(values, np.int32)


def both(bench, op, *inputs, state=None, **attrs):
    """The GPU's result, and the reference's."""
    given = FIRST if state is None else state
    complete = {**SEEDS, **attrs}
    (expected,) = run_reference_kernel(op, inputs, complete, given)
    return BoundGpuCall(bench, op, inputs, complete, given).run().outputs[0], expected


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000, CHUNK, CHUNK + 1, 2 * CHUNK, 5000, 16 * CHUNK - 1])
def test_permutations_of_any_size(bench, size):
    result, expected = both(bench, RandomPermutation, vector(size))
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.sort(result), np.arange(size))


@pytest.mark.parametrize(
    "state",
    [
        {"counter": 0, "random_stream": 0},
        {"counter": 2**35 + 3, "random_stream": 2},
        {"counter": 7, "random_stream": 2**33 + 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [{}, {"seed": -1, "seed2": 2**63 - 1}], ids=str)
def test_every_stream_and_step(bench, state, seed):
    for dtype in (float32, float64):
        result, expected = both(bench, RandomUniform, vector(5, 7), state=state, dtype=dtype, **seed)
        np.testing.assert_array_equal(result, expected)
    bounds = np.asarray(-5, np.int32), np.asarray(90, np.int32)
    result, expected = both(bench, RandomUniformInt, vector(33), *bounds, state=state, **seed)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("op", [RandomStandardNormal, TruncatedNormal], ids=lambda op: op.name)
@pytest.mark.parametrize(("dtype", "rtol"), [(float32, 2e-6), (float64, 1e-14)], ids=["float32", "float64"])
def test_normals_agree_to_rounding(bench, op, dtype, rtol):
    result, expected = both(bench, op, vector(40_001), dtype=dtype)
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=rtol)
    assert abs(result.mean()) < 0.02
    if op is TruncatedNormal:
        assert np.abs(result).max() <= 2
        assert (np.abs(result) > 1.9).any()


def test_the_numbers_change_with_the_counter_in_memory(bench):
    call = BoundGpuCall(bench, RandomUniform, [vector(9)], SEEDS, {"counter": 0, "random_stream": 0})
    first, again = call.run().outputs[0], call.run(captured=True).outputs[0]
    np.testing.assert_array_equal(first, again)
    call.values["counter"] = np.asarray(1)
    later = call.run(captured=True).outputs[0]
    assert not (first == later).any()
    np.testing.assert_array_equal(
        later, run_reference_kernel(RandomUniform, [vector(9)], SEEDS, {"counter": 1, "random_stream": 0})[0]
    )


@pytest.mark.parametrize("rate", [0.0, 1e-9, 0.3, 0.999999, 1.0, -0.1, np.nan])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.sampled(14)
def test_dropout_masks_of_any_rate(bench, rate, dtype):
    result, expected = both(bench, DropoutMask, vector(1003), np.asarray(rate, dtype))
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == dtype


@pytest.mark.parametrize(("low", "high"), [(5, 5), (5, 2), (0, 1), (-(2**63), 2**63 - 1), (-9, 2**40)])
def test_integers_of_any_range(bench, low, high):
    bounds = np.asarray(low, np.int64), np.asarray(high, np.int64)
    if low >= high:  # which the reference refuses, and the spec where it knows them
        call = BoundGpuCall(bench, RandomUniformInt, [vector(9), bounds[0], bounds[0] + 1], SEEDS, FIRST)
        call.arrays = (vector(9), *bounds)
        np.testing.assert_array_equal(call.run().outputs[0], np.full(9, low))
        return
    result, expected = both(bench, RandomUniformInt, vector(1003), *bounds)
    np.testing.assert_array_equal(result, expected)
