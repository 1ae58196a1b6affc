"""Batches of small maps on an emulated GPU: the CPU's results, and which maps are left alone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import Device, GpuDevice
from tensorbow.kernels.gpu.fusion.batched_maps import MOST_ELEMENTS
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.running import cpu_devices

pytestmark = needs_compiler


def averages(count: int, sizes: Callable[[int], int]) -> tuple[list[tb.Operation], list[tb.Tensor]]:
    """Moving averages of vectors: their updates, and the vectors."""
    updates, vectors = [], []
    for number in range(count):
        vector = tb.tanh(tb.constant(np.linspace(-1, number, sizes(number)), tb.float32))
        average = tb.Variable(np.full(sizes(number), 0.5, np.float32))
        updates.append(average.assign_sub((average - vector) * 0.1))
        vectors.append(vector)
    return updates, vectors


def run(
    device: Device, build: Callable[[], list[Any]], runtime: EmulatedCuda | None = None
) -> tuple[list[Any], list[Any]]:
    """What the second of two runs fetches, and all variables afterwards; the runtime logs the second."""
    graph = tb.Graph()
    with graph.as_default():
        fetched = build()
        with tb.Session(graph=graph, device=device) as session:
            session.run(tb.global_variables_initializer())
            session.run(fetched)
            if runtime is not None:
                runtime.log.clear()
            found = session.run(fetched)
            left = session.run(tb.global_variables())
    gc.collect()
    return [value for value in found if value is not None], left


def both(build: Callable[[], list[Any]]) -> int:
    """Runs a step on both kinds of devices, compares bits, returns the GPU's batched launches."""
    (cpu,) = cpu_devices(1)
    expected, kept = run(cpu, build)
    with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27) as gpu:
        found, left = run(gpu, build, runtime)
        launches = [call.name for call in runtime.log if call.kind == "launch"].count("batched_maps")
    for got, wanted in zip((*found, *left), (*expected, *kept), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)
    return launches


def test_updates_of_one_form_are_one_launch() -> None:
    assert both(lambda: averages(7, lambda number: 3 + 5 * number)[0]) == 1


def test_a_launch_takes_as_many_as_its_arguments_hold() -> None:
    assert both(lambda: averages(100, lambda number: 4)[0]) == 2


def test_large_maps_are_left_alone() -> None:
    assert both(lambda: averages(3, lambda number: MOST_ELEMENTS + 1)[0]) == 0


def test_a_chain_is_no_batch() -> None:
    def build() -> list[Any]:
        average = tb.Variable(np.full(5, 0.5, np.float32))
        step: Any = average
        for _ in range(3):
            with tb.control_dependencies([step.op] if step is not average else []):
                step = average.assign_sub((average.read_value() - 1.0) * 0.1)
        return [step]

    assert both(build) == 0


def test_values_read_between_are_those_before_or_after_as_in_the_program() -> None:
    def build() -> list[Any]:
        (first, second), _ = averages(2, lambda number: 6)
        before = tb.global_variables()[1].read_value() * 2.0
        with tb.control_dependencies([first, before]):
            between = tb.global_variables()[0].read_value() + before
        with tb.control_dependencies([between]):
            third = tb.global_variables()[0].assign_sub(between * 0.1)
        return [before, between, second, third]

    both(build)


@pytest.mark.parametrize("kind", [tb.float64, tb.int32], ids=["float64", "int32"])
def test_other_dtypes(kind: tb.DType) -> None:
    def build() -> list[Any]:
        values = [tb.Variable(np.arange(4) + n, dtype=kind) for n in range(4)]
        return [value.assign_add(value * value) for value in values]

    assert both(build) == 1
