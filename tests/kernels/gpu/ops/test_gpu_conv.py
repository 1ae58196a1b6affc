"""The ways a convolution can go on a GPU, each against the CPU's kernels, and which one is taken when."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tensorbow.kernels.gpu.ops.conv
import tensorbow.kernels.gpu.ops.depthwise  # noqa: F401 - these register the kernels
from tensorbow.kernels.gpu.runtime.call import DeviceArray
from tensorbow.kernels.gpu.runtime.context import GpuContext, GpuOptions
from tensorbow.kernels.gpu.source.direct_convolution import Convolution
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.depthwise import (
    DepthwiseConv2dNative,
    DepthwiseConv2dNativeBackpropFilter,
    DepthwiseConv2dNativeBackpropInput,
)
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def bench() -> Iterator[GpuBench]:
    with emulated_runtime() as runtime, GpuBench(runtime) as made:
        yield made


@pytest.fixture(scope="module")
def first_bench() -> Iterator[GpuBench]:
    """A cuDNN that does not support NHWC."""
    with emulated_runtime(nhwc=False) as runtime, GpuBench(runtime) as made:
        yield made


def attrs_of(strides=(1, 1), padding="SAME", dilations=(1, 1)):
    return {"strides": (1, *strides, 1), "padding": padding, "dilations": (1, *dilations, 1)}


def three(images, filters, attrs, dtype="float32", depthwise=False):
    """Calls of a convolution and its two derivatives: op, inputs."""
    draw = np.random.default_rng([*images, *filters])
    forward, to_input, to_filter = (
        (DepthwiseConv2dNative, DepthwiseConv2dNativeBackpropInput, DepthwiseConv2dNativeBackpropFilter)
        if depthwise
        else (Conv2D, Conv2DBackpropInput, Conv2DBackpropFilter)
    )
    x, w = draw.standard_normal(images).astype(dtype), draw.standard_normal(filters).astype(dtype)
    flow = draw.standard_normal(run_reference_kernel(forward, [x, w], attrs)[0].shape).astype(dtype)
    sizes = [np.array(shape, np.int32) for shape in (images, filters)]
    return [(forward, [x, w]), (to_input, [sizes[0], w, flow]), (to_filter, [x, sizes[1], flow])]


def way(bench: GpuBench, op, inputs, attrs, rtol=1e-5) -> list[str]:
    """Work enqueued by one step: library calls by their kind, kernels by name. Asserts the CPU's result.

    The error is compared with the result's largest element, since sums may cancel.
    """
    (expected,) = run_reference_kernel(
        op, [a.astype(np.float64) if a.dtype.kind == "f" else a for a in inputs], attrs
    )
    call = BoundGpuCall(bench, op, inputs, attrs)
    call.reset()
    bench.runtime.synchronize_stream(bench.stream)
    bench.runtime.log.clear()
    call.enqueue()
    bench.runtime.synchronize_stream(bench.stream)
    kinds = ("launch", "gemm", "convolution")
    taken = [e.name if e.kind == "launch" else e.kind for e in bench.runtime.log if e.kind in kinds]
    (actual,) = call.result().outputs
    assert actual.dtype == inputs[-1].dtype
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=rtol * max(np.abs(expected).max(initial=0), 1e-30)
    )
    (again,) = call.run(captured=True).outputs
    assert again.tobytes() == actual.tobytes()
    bench.free_arrays()
    return taken


SHAPES = {
    "same": ((2, 6, 7, 5), (3, 3, 5, 9), attrs_of()),
    "even": ((2, 6, 7, 5), (2, 4, 5, 9), attrs_of()),  # padding is odd
    "one axis odd": ((2, 8, 7, 5), (3, 3, 5, 9), attrs_of((2, 2))),
    "strides": ((2, 8, 8, 5), (3, 3, 5, 9), attrs_of((2, 2))),
    "valid": ((3, 9, 11, 5), (3, 2, 5, 4), attrs_of((2, 3), "VALID")),
    "dilated": ((2, 9, 8, 6), (3, 2, 6, 4), attrs_of((1, 1), "SAME", (2, 3))),
    "dilated strides": ((2, 9, 8, 6), (3, 2, 6, 4), attrs_of((2, 3), "SAME", (3, 2))),
    "strided pixels": ((2, 6, 7, 5), (1, 1, 5, 9), attrs_of((2, 2))),
    "wider strides than windows": ((2, 9, 7, 5), (2, 1, 5, 3), attrs_of((3, 4), "VALID")),
}
FRAMED = ("even", "one axis odd", "strides", "dilated strides", "dilated")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", SHAPES)
def test_cudnn_in_nhwc_transposes_the_filter_only(bench, case, dtype):
    images, filters, attrs = SHAPES[case]
    forward, to_input, to_filter = (
        way(bench, op, inputs, attrs) for op, inputs in three(images, filters, attrs, dtype)
    )
    frame = {"padded_copy"} if case in FRAMED else set()
    for taken in (forward, to_input, to_filter):
        assert taken.count("convolution") == 1
        assert len(taken) <= (3 if frame else 2)
    assert set(forward) - {"convolution", "tiled_copy", "strided_copy"} <= frame
    assert forward[-1] == "convolution"
    assert to_filter[-1] in ("tiled_copy", "strided_copy")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", [case for case in SHAPES if case != "strided pixels"])
def test_cudnn_in_nchw_where_nhwc_is_not_supported(first_bench, case):
    """But for a filter of one element, which the emulated cuDNN takes for NHWC: both are one memory."""
    images, filters, attrs = SHAPES[case]
    for op, inputs in three(images, filters, attrs):
        taken = way(first_bench, op, inputs, attrs)
        assert taken.count("convolution") == 1
        assert sum("copy" in name for name in taken) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", SHAPES)
def test_direct_sums_where_the_workspace_is_too_small(case, dtype):
    images, filters, attrs = SHAPES[case]
    kernels = {"convolve", "to_images", "to_filters", "sum_parts"}
    with emulated_runtime() as runtime, GpuBench(runtime) as bench:
        small = DeviceArray(bench.context.workspace.address, (64,), np.dtype(np.uint8))
        bench.context = GpuContext(runtime, bench.stream, bench.programs, small, GpuOptions())
        ways = [way(bench, op, inputs, attrs) for op, inputs in three(images, filters, attrs, dtype)]
    # Forward there is an algorithm that needs no workspace; what the derivatives have without one is not
    # the same every time.
    assert [set(taken) <= kernels for taken in ways] == [False, True, True]


def test_what_cudnn_only_claims_to_support_is_not_taken():
    """Each candidate runs once, however many plans are bound; the next one that runs is taken."""
    images, filters, attrs = SHAPES["same"]
    calls = three(images, filters, attrs)
    with emulated_runtime() as runtime, GpuBench(runtime) as bench:
        library = runtime.library("cudnn")
        library.broken = frozenset({("forward", 1), ("data", 1), ("filter", 1)})
        forward, to_input, to_filter = (way(bench, op, inputs, attrs) for op, inputs in calls)
        assert forward[-1] == "convolution"  # IMPLICIT_GEMM
        assert not {"convolution"} & {*to_input, *to_filter}
        tried = dict(library.counts)
        for op, inputs in calls:
            BoundGpuCall(bench, op, inputs, attrs)
        for function in ("Forward", "BackwardData", "BackwardFilter"):
            assert library.counts[f"cudnnConvolution{function}"] == tried[f"cudnnConvolution{function}"]
        assert tried["cudnnConvolutionBackwardData"] == 2  # in NHWC and NCHW


def test_without_memory_to_try_it_cudnns_word_is_taken():
    images, filters, attrs = SHAPES["same"]
    op, inputs = three(images, filters, attrs)[0]
    with emulated_runtime() as runtime, GpuBench(runtime) as bench:
        runtime.fail_next("allocate", after=5)  # the five before are the arrays and the call's scratch
        assert way(bench, op, inputs, attrs)[-1] == "convolution"
        assert not runtime._faults["allocate"]


def test_windows_of_one_element_are_a_product(bench):
    attrs = attrs_of()
    for op, inputs in three((3, 4, 5, 6), (1, 1, 6, 7), attrs):
        assert way(bench, op, inputs, attrs) == ["gemm"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("images", "filters"),
    [((4, 28, 28, 1), (5, 5, 1, 32)), ((2, 9, 8, 3), (3, 3, 3, 5)), ((2, 5, 6, 4), (2, 4, 4, 70))],
)
def test_small_windows_in_few_channels_are_direct_sums(bench, images, filters):
    attrs = attrs_of()
    ways = [way(bench, op, inputs, attrs) for op, inputs in three(images, filters, attrs)]
    assert ways[:2] == [["convolve"], ["to_images"]]
    assert ways[2][0] == "to_filters"


@pytest.mark.parametrize("multiplier", [1, 3])
@pytest.mark.parametrize(
    "attrs",
    [attrs_of(), attrs_of((2, 2)), attrs_of((1, 1), "VALID", (2, 3)), attrs_of((2, 3), "VALID")],
    ids=str,
)
def test_depthwise_takes_one_launch(bench, attrs, multiplier):
    for op, inputs in three((2, 9, 8, 37), (3, 2, 37, multiplier), attrs, depthwise=True):
        assert len(way(bench, op, inputs, attrs)) == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("depthwise", "images", "filters"),
    [(True, (5, 40, 41, 20), (3, 3, 20, 2)), (False, (9, 33, 34, 3), (3, 3, 3, 16))],
)
def test_gradients_of_filters_over_many_windows_are_summed_in_parts(bench, depthwise, images, filters):
    attrs = attrs_of()
    op, inputs = three(images, filters, attrs, depthwise=depthwise)[2]
    assert Convolution.of(images, filters, {**op.attrs, **attrs}, depthwise).parts > 1
    assert way(bench, op, inputs, attrs) == ["to_filters", "sum_parts"]


def test_parts_need_little_memory():
    """A large filter has blocks enough; parts of it would cost its size each."""
    what = Convolution.of((64, 56, 56, 512), (3, 3, 512, 512), attrs_of())
    assert what.parts == 1
    assert Convolution.of((64, 56, 56, 16), (3, 3, 16, 16), attrs_of()).parts > 1


def test_all_ways_give_the_same_bits_for_any_number_of_multiprocessors():
    images, filters, attrs = (5, 40, 41, 3), (3, 3, 3, 16), attrs_of()
    results = []
    for multiprocessors in (1, 7):
        with emulated_runtime(multiprocessors=multiprocessors) as runtime, GpuBench(runtime) as bench:
            calls = [BoundGpuCall(bench, op, i, attrs) for op, i in three(images, filters, attrs)]
            results.append([call.run().outputs[0].tobytes() for call in calls])
    assert results[0] == results[1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("compute", "by", "bits"), [("tf32", "convolution", 10), ("bf16", "implicit_gemm", 7)]
)
def test_tensor_cores_read_fewer_bits(compute, by, bits):
    """cuDNN does not read float32 as bf16: the own kernel does."""
    attrs = attrs_of()
    with emulated_runtime() as runtime, GpuBench(runtime, compute) as bench:
        for op, inputs in three((2, 6, 7, 8), (3, 3, 8, 9), attrs):
            with pytest.raises(AssertionError, match="Not equal to tolerance"):
                way(bench, op, inputs, attrs, rtol=2.0 ** -(bits + 6))
            assert by in way(bench, op, inputs, attrs, rtol=2.0**-bits)


@pytest.mark.parametrize(
    ("images", "filters"),
    [((0, 7, 6, 5), (3, 3, 5, 9)), ((2, 7, 6, 5), (3, 3, 5, 0)), ((2, 7, 6, 0), (3, 3, 0, 4))],
)
def test_without_elements(bench, images, filters):
    attrs = attrs_of()
    for op, inputs in three(images, filters, attrs):
        assert "convolution" not in way(bench, op, inputs, attrs)
