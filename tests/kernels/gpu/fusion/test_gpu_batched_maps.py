"""Batches of small maps on an emulated GPU: the CPU's results, and which maps are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.kernels.gpu.fusion.batched_maps import MOST_ELEMENTS
from tests.gpu_rig.runtimes import needs_compiler
from tests.gpu_rig.session_steps import Build, launched_as_on_cpu

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


def batches(build: Build) -> int:
    """Batched launches of a step, which gives the CPU's values."""
    return launched_as_on_cpu(build, rtol=1e-6)["batched_maps"]


@pytest.mark.slow
def test_updates_of_one_form_are_one_launch() -> None:
    assert batches(lambda: averages(7, lambda number: 3 + 5 * number)[0]) == 1


@pytest.mark.slow
def test_a_launch_takes_as_many_as_its_arguments_hold() -> None:
    assert batches(lambda: averages(100, lambda number: 4)[0]) == 2


@pytest.mark.slow
def test_large_maps_are_left_alone() -> None:
    assert batches(lambda: averages(3, lambda number: MOST_ELEMENTS + 1)[0]) == 0


@pytest.mark.slow
def test_a_chain_is_no_batch() -> None:
    def build() -> list[Any]:
        average = tb.Variable(np.full(5, 0.5, np.float32))
        step: Any = average
        for _ in range(3):
            with tb.control_dependencies([step.op] if step is not average else []):
                step = average.assign_sub((average.read_value() - 1.0) * 0.1)
        return [step]

    assert batches(build) == 0


@pytest.mark.slow
def test_values_read_between_are_those_before_or_after_as_in_the_program() -> None:
    def build() -> list[Any]:
        (first, second), _ = averages(2, lambda number: 6)
        before = tb.global_variables()[1].read_value() * 2.0
        with tb.control_dependencies([first, before]):
            between = tb.global_variables()[0].read_value() + before
        with tb.control_dependencies([between]):
            third = tb.global_variables()[0].assign_sub(between * 0.1)
        return [before, between, second, third]

    batches(build)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [tb.float64, tb.int32], ids=["float64", "int32"])
def test_other_dtypes(kind: tb.DType) -> None:
    def build() -> list[Any]:
        values = [tb.Variable(np.arange(4) + n, dtype=kind) for n in range(4)]
        return [value.assign_add(value * value) for value in values]

    assert batches(build) == 1
