"""All memory comes from the device's allocators, and all of it is returned."""

import gc
import weakref

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import CpuDevice
from tensorbow.errors import FailedPreconditionError, NotFoundError

pytestmark = pytest.mark.usefixtures("graph")


@pytest.fixture
def device():
    with CpuDevice("/cpu:5") as device:
        yield device


@pytest.mark.slow
def test_close_gives_everything_back(device):
    v = tb.Variable(np.zeros((100, 100)), name="v")
    x = tb.placeholder(tb.float64, [None, 100])
    y = tb.matmul(x, v) + 1.0
    session = tb.Session(device=device)
    session.run(v.initializer)
    for rows in (1, 50, 7):
        session.run(y, {x: np.ones((rows, 100))})
    group = session._cache.groups[0]
    statistics = group.allocator.statistics()
    assert statistics.in_use_nbytes >= 80_000
    session.close()
    assert group.allocator.statistics().in_use_nbytes == 0
    assert group.allocator.statistics().pool_nbytes == 0
    assert device.memory.held_nbytes == 0
    assert not device.memory.partitions
    assert not device._groups


def test_with_closes_after_an_error_too(device):
    with pytest.raises(NotFoundError), tb.Session(device=device) as session:
        session.run("nothing:0")
    assert session.closed
    assert not device._groups
    assert tb.get_default_session() is not session


@pytest.mark.slow
def test_growing_leaves_no_old_memory_behind(device):
    with tb.Session(device=device) as session:
        allocator = session._cache.groups[0].allocator
        for i in range(10):
            v = tb.Variable(np.full(1000, float(i)), name=f"v{i}")
            session.run(v.initializer)
            session.run(tb.reduce_sum(v))
        held = [h for h in allocator.holders() if "variables" in h.owner]
        assert sum(h.nbytes for h in held) <= 2 * 10 * 8000  # a block may be twice what was asked for
        for i in range(10):
            np.testing.assert_array_equal(session.container.read(f"v{i}"), np.full(1000, float(i)))


def test_a_device_may_close_before_its_session():
    session = tb.Session(device=(device := CpuDevice("/cpu:5")))
    v = tb.Variable(1.0)
    session.run(v.initializer)
    device.close()
    session.close()


def test_a_closed_session_is_collected(device):
    session = tb.Session(device=device)
    x = tb.placeholder(tb.float32, [2])
    session.run(x + 1.0, {x: [1.0, 2.0]})
    session.close()
    reference = weakref.ref(session)
    del session
    gc.collect()
    assert reference() is None


def test_repeated_runs_allocate_nothing_more(device):
    x = tb.placeholder(tb.float32, [64, 64])
    y = tb.reduce_sum(tb.matmul(tb.tanh(x), x))
    with tb.Session(device=device) as session:
        session.run(y, {x: np.ones((64, 64))})
        allocator = session._cache.groups[0].allocator
        count = allocator.statistics().num_allocations
        for _ in range(20):
            session.run(y, {x: np.ones((64, 64))})
        assert allocator.statistics().num_allocations == count


def test_trim_gives_back_what_no_step_uses(device):
    v = tb.Variable(np.full((100, 100), 2.0), name="v")
    x = tb.placeholder(tb.float64, [None, 100])
    y = tb.reduce_sum(tb.matmul(x, v))
    with tb.Session(device=device) as session:
        session.run(v.initializer)
        for rows in (3, 9000):
            assert session.run(y, {x: np.ones((rows, 100))}) == rows * 20_000
        before, steps = device.memory.held_nbytes, len(session._cache)
        given_back = session.trim()
        assert given_back >= 9000 * 100 * 8
        assert device.memory.held_nbytes <= before - given_back
        assert session.trim() == 0
        assert len(session._cache) == steps
        assert session.run(y, {x: np.ones((3, 100))}) == 60_000
    with pytest.raises(FailedPreconditionError, match="closed"):
        session.trim()
