"""Memory and threads go back by reference counting alone: by close, trim, and when the last user is gone."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import CpuDevice
from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.training import save_model
from tests.memory_rig.mapped import Mapped, mapped_without_collector

ROWS = 20_000
Use = Callable[[list[CpuDevice]], Any]


@pytest.fixture
def devices() -> Iterator[list[CpuDevice]]:
    with tb.Graph().as_default(), CpuDevice("/cpu:5") as first, CpuDevice("/cpu:6") as second:
        yield [first, second]


@pytest.fixture
def mapped(devices: list[CpuDevice]) -> Iterator[Mapped]:
    with mapped_without_collector() as found:
        yield found


def fed(rows: int = ROWS) -> Any:
    return np.ones((rows, 5), np.float32)


def trained(devices: list[CpuDevice]) -> tb.Session:
    x = tb.placeholder(tb.float32, [None, 5])
    w = tb.Variable(np.ones((5, 3), np.float32), name="w")
    loss = tb.reduce_mean(tb.square(tb.matmul(x, w)))
    update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    session = tb.Session(device=devices[0])
    session.run(tb.global_variables_initializer())
    for rows in (ROWS, 7, ROWS + 9):
        session.run([loss, update], {x: fed(rows)})
    session.explain(loss, {x: fed(8)})
    return session


def refused(devices: list[CpuDevice]) -> tb.Session:
    """Its steps end with errors: of native code, of a Python kernel, here and on the stream's thread."""

    def burn(call: Any) -> None:
        raise ValueError("burnt")

    op = tb.define_op(
        "TestBurn",
        inputs=("x",),
        spec=lambda inputs, attrs: inputs[0],
        kernel=burn,
        gradient=tb.NOT_DIFFERENTIABLE,
        replace=True,
    )
    x = tb.placeholder(tb.float32, [None, 5])
    session = tb.Session(device=devices[0])
    gathered, ends = tb.gather(tb.exp(x), [ROWS]), op(x + 1.0) * 2.0
    assert session.run(gathered, {x: fed(ROWS + 1)}).shape == (1, 5)
    for fetch in (gathered, ends) * 2:
        with pytest.raises(InvalidArgumentError):
            session.run(fetch, {x: fed()})
    return session


def spread(devices: list[CpuDevice]) -> tb.Session:
    x = tb.placeholder(tb.float32, [None, 5])
    with tb.device("/cpu:6"):
        v = tb.Variable(np.ones((5, 3), np.float32), name="v")
        there = tb.matmul(tb.exp(x), v)
    with tb.device("/cpu:5"):
        here = tb.gather(there, [ROWS - 1])
    session = tb.Session(device=devices[0], devices=devices[1:])
    session.run(tb.global_variables_initializer())
    for rows in (ROWS, ROWS + 1):
        assert session.run(here, {x: fed(rows)}).shape == (1, 3)
    with pytest.raises(InvalidArgumentError):
        session.run(here, {x: fed(9)})
    return session


def side_by_side(devices: list[CpuDevice]) -> tb.Session:
    x = tb.placeholder(tb.float32, [None, 5])
    y = tb.reduce_sum(tb.exp(x) * 2.0)
    session = tb.Session(device=devices[0])
    threads = [
        threading.Thread(target=lambda: [session.run(y, {x: fed()}) for _ in range(5)]) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return session


def saved(folder: Path) -> tb.train.SavedModel:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 5])
        w = tb.Variable(np.ones((5, 3), np.float32), name="w")
        save_model(folder, {"x": x}, {"y": tb.matmul(tb.exp(x), w)}, {"w": np.ones((5, 3), np.float32)})
    model = tb.train.SavedModel(folder)
    model.run(["y"], x=fed())
    return model


USES = [trained, refused, spread, side_by_side]


@pytest.mark.parametrize("use", USES)
@pytest.mark.sampled(1)
def test_close_gives_all_memory_back_at_once(use: Use, devices: list[CpuDevice], mapped: Mapped) -> None:
    session = use(devices)
    assert mapped.nbytes >= ROWS * 5 * 4
    session.close()
    assert mapped.nbytes == 0
    mapped.assert_goes_back()


@pytest.mark.parametrize("use", USES)
@pytest.mark.slow
def test_a_session_that_is_dropped_ends_its_threads_and_gives_all_back(
    use: Use, devices: list[CpuDevice], mapped: Mapped
) -> None:
    use(devices)
    mapped.assert_goes_back()
    assert [device.memory.held_nbytes for device in devices] == [0, 0]
    assert [device.memory.partitions for device in devices] == [{}, {}]


def test_a_saved_model_gives_all_back(tmp_path: Path, mapped: Mapped) -> None:
    model = saved(tmp_path)
    model.close()
    assert mapped.nbytes == 0
    saved(tmp_path)
    mapped.assert_goes_back()


@pytest.mark.parametrize("use", USES)
@pytest.mark.slow
def test_trim_says_what_came_back(use: Use, devices: list[CpuDevice], mapped: Mapped) -> None:
    session = use(devices)
    before = mapped.nbytes
    came_back = session.trim()
    assert came_back == before - mapped.nbytes
    assert came_back >= ROWS * 5 * 4
    assert session.trim() == 0
    session.close()


@pytest.mark.slow
def test_sessions_in_turn_take_the_memory_of_one(devices: list[CpuDevice], mapped: Mapped) -> None:
    most = []
    for _ in range(4):
        session = trained(devices)
        most.append(mapped.nbytes)
        session.close()
    assert most == [most[0]] * 4


@pytest.mark.slow
def test_the_last_reference_may_go_in_work_of_the_sessions_own_stream(
    devices: list[CpuDevice], mapped: Mapped
) -> None:
    held = [trained(devices)]
    stream, gone = held[0]._cache.groups[0].compute, threading.Event()

    def work() -> None:
        held.clear()
        gone.set()

    stream.enqueue(work, label="drop")
    del stream
    assert gone.wait(20)
    mapped.assert_goes_back()


def test_the_last_reference_may_go_while_its_thread_holds_the_devices_locks(
    devices: list[CpuDevice], mapped: Mapped
) -> None:
    """The garbage collector may find the session in the middle of a call."""
    held = [trained(devices)]
    (device, _), allocator = devices, held[0]._cache.groups[0].allocator
    with device._lock, device.memory._lock, device._source._lock, allocator._guard:
        held.clear()
    mapped.assert_goes_back()


def test_a_group_that_nobody_holds_ends_only_after_its_work(devices: list[CpuDevice], mapped: Mapped) -> None:
    group = devices[0].stream_group("steps")
    block = group.allocate(4096)
    assert block is not None
    view, go_on, seen = devices[0].view(block.address, (4096,), np.uint8), threading.Event(), []

    def work() -> None:
        assert go_on.wait(20)
        seen.append(devices[0].memory.held_nbytes)

    group.compute.enqueue(work, label="work")
    del group, view
    go_on.set()
    mapped.assert_goes_back()
    assert seen == [2 << 20]


def test_a_device_closes_beside_the_end_of_a_group_that_was_dropped() -> None:
    for _ in range(20):
        device = CpuDevice("/cpu:5")
        device.stream_group("steps").allocate(4096)
        device.close()
        assert (device.memory.partitions, device.memory.held_nbytes) == ({}, 0)


ENDINGS = """
import gc, sys, threading
import numpy as np
import tensorbow as tb

x = tb.placeholder(tb.float32, [None, 3])
w = tb.Variable(np.ones((3, 2), np.float32), name="w")
loss = tb.reduce_mean(tb.square(tb.matmul(x, w)))
update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
feeds = {x: np.ones((4, 3), np.float32)}


class Cycle:
    pass


def used(kind):
    session = tb.Session() if kind == "plain" else tb.TensorBowSession(replicas_per_device=2)
    session.run(tb.global_variables_initializer())
    session.run(update, feeds)
    return session


left_open = [used("plain"), used("replicas")]
cycles = [Cycle(), Cycle()]
for cycle, kind in zip(cycles, ("plain", "replicas")):
    cycle.own, cycle.session = cycle, used(kind)
dropped = used("replicas")
threading.Thread(target=lambda: [left_open[0].run(loss, feeds) for _ in range(10**6)], daemon=True).start()
del cycles, cycle, dropped  # some are found by the collector, some are at work, when the interpreter ends
"""


@pytest.mark.slow
def test_sessions_that_are_left_open_end_with_the_interpreter_without_a_word() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", ENDINGS],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_failed_step_left_does_not_depend_on_the_collector(devices: list[CpuDevice]) -> None:
    """The error, its frames and the event that kept it are no cycle."""
    gc.collect()
    before = sum(issubclass(type(thing), TensorBowError) for thing in gc.get_objects())
    gc.disable()
    try:
        session = refused(devices)
        session.close()
        del session
        assert sum(issubclass(type(thing), TensorBowError) for thing in gc.get_objects()) == before
    finally:
        gc.enable()
