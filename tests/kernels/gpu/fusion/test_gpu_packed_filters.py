"""Convolutions with packed filters on an emulated GPU, against the CPU."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import Device, GpuDevice
from tensorbow.kernels.gpu.source.packed_filters import MOST_FILTERS
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.running import cpu_devices

pytestmark = needs_compiler

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "same": ((2, 6, 7, 5), (3, 3, 5, 9), {"strides": 1, "padding": "SAME"}),
    "even": ((2, 6, 7, 5), (2, 4, 5, 9), {"strides": 1, "padding": "SAME"}),
    "one axis odd": ((2, 8, 7, 5), (3, 3, 5, 9), {"strides": 2, "padding": "SAME"}),
    "strides": ((2, 8, 8, 35), (3, 3, 35, 33), {"strides": 2, "padding": "SAME"}),
    "valid": ((3, 9, 11, 5), (3, 2, 5, 4), {"strides": (2, 3), "padding": "VALID"}),
    "dilated": ((2, 9, 8, 6), (3, 2, 6, 4), {"strides": 1, "padding": "SAME", "dilations": (2, 3)}),
    "strided pixels": ((2, 6, 7, 5), (1, 1, 5, 9), {"strides": 2, "padding": "SAME"}),
}


def results(device: Device, case: str, dtype: tb.DType = tb.float32, layers: int = 1) -> list[Any]:
    """Two convolutions by one filter, and the gradients of their images and filter; for each layer."""
    images, filters, options = CASES[case]
    draw = np.random.default_rng(len(case))
    graph = tb.Graph()
    with graph.as_default():
        fetched: list[tb.Tensor] = []
        for _ in range(layers):
            x = tb.constant(draw.standard_normal(images), dtype)
            w = tb.Variable(draw.standard_normal(filters), dtype=dtype)
            y = tb.nn.conv2d(x, w, **options)
            again = tb.nn.conv2d(tb.square(x), w, **options)
            flow = tb.constant(draw.standard_normal(y.shape.as_list()), dtype)
            fetched += [y, *tb.gradients(tb.reduce_sum((y + tb.square(again)) * flow), [x, w])]
        with tb.Session(graph=graph, device=device) as session:
            session.run(tb.global_variables_initializer())
            found = session.run(fetched)
    gc.collect()
    return list(found)


def compare(found: list[Any], expected: list[Any]) -> None:
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def launched(runtime: EmulatedCuda) -> Counter[str]:
    return Counter(call.name for call in runtime.log if call.kind == "launch")


@pytest.mark.parametrize("case", CASES)
def test_it_agrees_with_the_cpu_and_copies_nothing_else(case: str) -> None:
    (cpu,) = cpu_devices(1)
    expected = results(cpu, case)
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27) as gpu:
        compare(results(gpu, case), expected)
        found = launched(runtime)
    if case == "dilated":  # no zeros in front make its padding symmetric
        assert found["padded_copy"]
        assert not found["pack_filters"]
    else:
        assert (found["pack_filters"], found["unpack_filters"]) == (1, 1)
        assert not found.keys() & {"padded_copy", "tiled_copy", "strided_copy"}


@pytest.mark.parametrize("case", CASES)
def test_a_cudnn_without_nhwc(case: str) -> None:
    """Copies to NCHW, or direct sums where the emulated cuDNN takes a filter of one element for NHWC."""
    (cpu,) = cpu_devices(1)
    expected = results(cpu, case)
    with emulated_runtime(nhwc=False) as runtime, GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27) as gpu:
        compare(results(gpu, case), expected)
        assert bool(launched(runtime)["to_filters"]) == (case == "strided pixels")


def test_doubles_are_not_packed() -> None:
    (cpu,) = cpu_devices(1)
    expected = results(cpu, "same", tb.float64)
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27) as gpu:
        found = results(gpu, "same", tb.float64)
        assert not launched(runtime).keys() & {"pack_filters", "unpack_filters"}
    compare(found, expected)


def test_a_launch_takes_so_many_filters_at_most() -> None:
    (cpu,) = cpu_devices(1)
    layers = MOST_FILTERS + 1
    expected = results(cpu, "strided pixels", layers=layers)
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27) as gpu:
        found = results(gpu, "strided pixels", layers=layers)
        assert launched(runtime)["pack_filters"] == 2
    compare(found, expected)


def test_a_filter_that_is_written_before_it_is_read_again_is_not_packed() -> None:
    def run(device: Device) -> list[Any]:
        graph = tb.Graph()
        with graph.as_default():
            x = tb.constant(np.linspace(0, 1, 2 * 6 * 6 * 5).reshape(2, 6, 6, 5), tb.float32)
            w = tb.Variable(np.linspace(-1, 1, 3 * 3 * 5 * 9).reshape(3, 3, 5, 9), dtype=tb.float32)
            first = tb.nn.conv2d(x, w, strides=1, padding="SAME")
            with tb.control_dependencies([first]), tb.control_dependencies([w.assign_add(w * 0.5)]):
                second = tb.nn.conv2d(x, w.read_value(), strides=1, padding="SAME")
            with tb.Session(graph=graph, device=device) as session:
                session.run(tb.global_variables_initializer())
                found = session.run([first, second])
        gc.collect()
        return list(found)

    (cpu,) = cpu_devices(1)
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27) as gpu:
        compare(run(gpu), run(cpu))
