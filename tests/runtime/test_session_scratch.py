"""All cached steps of a session share one scratch per stream group, as large as the largest needs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import Scratch
from tensorbow.devices import CpuDevice, GpuDevice, NullDevice
from tensorbow.devices.race_checker import find_races
from tensorbow.errors import ResourceExhaustedError
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

MIB = 1 << 20
SIZES = (900, 5, 400, 1000, 3, 1000, 400, 1100, 900, 5)  # rows: up, down, and again


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    with tb.Graph().as_default(), CpuDevice("/cpu:5") as device:
        yield device


def rows(count: int) -> Any:
    return np.random.default_rng(count).normal(size=(count, 64)).astype(np.float32)


class Model:
    """A step whose results tell every row of its input, with a constant and a variable."""

    def __init__(self) -> None:
        self.x = tb.placeholder(tb.float32, [None, 64])
        self.w = tb.Variable(np.eye(64, dtype=np.float32) * 2.0, name="w")
        self.hidden = tb.matmul(tb.tanh(self.x), self.w) + np.arange(64, dtype=np.float32)
        self.y = tb.reduce_sum(self.hidden * self.x, 1)

    def check(self, session: tb.Session, count: int) -> None:
        hidden, y = session.run([self.hidden, self.y], {self.x: rows(count)})
        expected = np.tanh(rows(count)) * 2.0 + np.arange(64, dtype=np.float32)
        np.testing.assert_allclose(hidden, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(y, (expected * rows(count)).sum(1), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:session. one step has been compiled for:UserWarning")
def test_many_batch_sizes_take_the_memory_of_the_largest(device: CpuDevice, reference_kernels: None) -> None:
    model = Model()
    with tb.Session(device=device) as session:
        session.run(model.w.initializer)
        model.check(session, 1000)
        one = device.memory.held_nbytes
        for count in range(1000, 960, -1):
            model.check(session, count)
        assert len(session._cache) == 41
        assert device.memory.held_nbytes == one
        for count in range(1001, 1020):
            model.check(session, count)
        assert device.memory.held_nbytes < one * 1.03
        for count in SIZES:
            model.check(session, count)
        holders = session._cache.groups[0].allocator.holders()
        assert sum("slab" in holder.owner for holder in holders) == 1


@pytest.mark.slow
def test_what_was_fetched_stays_as_it_was(device: CpuDevice) -> None:
    model = Model()
    with tb.Session(device=device) as session:
        session.run(model.w.initializer)
        fetched = [(count, session.run(model.hidden, {model.x: rows(count)})) for count in SIZES]
        for count, values in fetched:
            np.testing.assert_array_equal(values, session.run(model.hidden, {model.x: rows(count)}))


@pytest.mark.slow
def test_step_scalars_and_constants_are_each_steps_own(device: CpuDevice) -> None:
    """Random ops draw on, whatever else has run in between, and was bound anew."""
    x = tb.placeholder(tb.float32, [None])
    y = tb.nn.dropout(x, rate=0.5, seed=3)
    plain, mixed = [], []
    with tb.Session(device=device) as session:
        plain = [session.run(y, {x: np.ones(500)}) for _ in range(6)]
    with tb.Session(device=device) as session:
        for turn in range(6):
            mixed.append(session.run(y, {x: np.ones(500)}))
            session.run(x * 3.0 + 1.0, {x: np.ones(600 * (turn + 1))})
    np.testing.assert_array_equal(mixed, plain)


@pytest.mark.slow
def test_threads_have_a_scratch_each_while_it_grows(device: CpuDevice) -> None:
    model = Model()
    with tb.Session(device=device) as session:
        session.run(model.w.initializer)
        errors: list[BaseException] = []

        def work(shift: int) -> None:
            try:
                for count in (*SIZES[shift:], *SIZES[:shift]):
                    model.check(session, count)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(shift,)) for shift in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        for group in session._cache.groups:
            assert sum("slab" in holder.owner for holder in group.allocator.holders()) <= 1


@pytest.mark.slow
def test_a_step_that_finds_no_room_leaves_the_others_usable(device: CpuDevice) -> None:
    with CpuDevice("/cpu:7", limit_nbytes=8 * MIB) as small:
        model = Model()
        with tb.Session(device=small) as session:
            session.run(model.w.initializer)
            for _ in range(2):
                model.check(session, 900)
                with pytest.raises(ResourceExhaustedError, match=r"steps needs \d+ bytes for slab, inputs"):
                    session.run(model.y, {model.x: rows(90_000)})
                model.check(session, 5)


@pytest.mark.slow
def test_steps_over_two_devices_share_each_ones(device: CpuDevice) -> None:
    with CpuDevice("/cpu:6") as other:
        x = tb.placeholder(tb.float32, [None, 64])
        with tb.device("/cpu:6"):
            there = tb.tanh(x) * 2.0
        with tb.device("/cpu:5"):
            y = tb.reduce_sum(there + x, 1)
        with tb.Session(device=device, devices=[other]) as session:
            for count in SIZES * 2:
                expected = (np.tanh(rows(count)) * 2.0 + rows(count)).sum(1)
                found = session.run(y, {x: rows(count)})
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
            for group in session._cache.groups:
                assert sum("slab" in holder.owner for holder in group.allocator.holders()) == 1


@pytest.mark.slow
def test_explain_and_run_take_the_same_one(device: CpuDevice) -> None:
    model = Model()
    with tb.Session(device=device) as session:
        session.run(model.w.initializer)
        model.check(session, 1000)
        before = device.memory.held_nbytes
        assert "slab+" in str(session.explain(model.y, {model.x: rows(30)}))
        assert device.memory.held_nbytes == before
        model.check(session, 30)


def test_the_null_device_sees_every_access_in_order() -> None:
    with tb.Graph().as_default(), NullDevice("/null:5") as device:
        model = Model()
        with tb.Session(device=device) as session:
            session.run(model.w.initializer)
            for count in SIZES:
                session.run(model.y, {model.x: rows(count)})
        assert find_races(device.log) == []


@pytest.mark.slow
@needs_compiler
def test_captured_steps_of_a_gpu_are_captured_anew_in_a_larger_one() -> None:
    with (
        emulated_runtime() as runtime,
        tb.Graph().as_default(),
        GpuDevice("/gpu:0", runtime, limit_nbytes=64 * MIB) as device,
    ):
        model = Model()
        with tb.Session(device=device) as session:
            session.run(model.w.initializer)
            for count in (50, 5, 50, 5, 60, 50, 50, 5, 60, 60):
                model.check(session, count)
            assert runtime.counts["launch_graph"] >= 3
            held = device.memory.held_nbytes
            model.check(session, 7)
            assert device.memory.held_nbytes == held


def test_regions_of_a_scratch_do_not_overlap(device: CpuDevice) -> None:
    model = Model()
    with tb.Session(device=device) as session:
        session.run(model.w.initializer)
        model.check(session, 30)
        (step,) = [step for step in session._cache._steps.values() if step.executable.inputs]
        (bound,) = step.idle
        binding = bound.binding
        nbytes = {**step.executable.region_nbytes, "ring": step.executable.ring_nbytes}
        ends = sorted(
            (binding.bases[region], binding.bases[region] + step.executable.region_nbytes.get(region, 0))
            for region in binding.bases
        )
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))
        assert Scratch.nbytes_for(step.executable, session.container.bases, 1) <= sum(nbytes.values()) + 1024
