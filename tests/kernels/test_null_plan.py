"""Plans of the null device: nothing is computed, all that would be touched is said."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import Binding, compile_step
from tensorbow.devices import NullDevice
from tensorbow.kernels import backend_for
from tensorbow.program import Region
from tensorbow.runtime import Container
from tensorbow.specs import TensorSpec
from tests.program_rig.poisoned import update_only


@pytest.fixture
def bound():
    with tb.Graph().as_default() as graph, NullDevice("/null:7") as device:
        w = tb.Variable(np.ones((2, 3), np.float32), name="w")
        x = tb.placeholder(tb.float32, [2, 3], name="x")
        loss = tb.reduce_sum(tb.square(w - x))
        update = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
        group = device.stream_group("steps")
        container = Container(group)
        container.grow(op for op in graph.get_operations() if op.type == "Variable")
        executable = compile_step(
            [loss, update],
            {x: TensorSpec((2, 3), tb.float32)},
            container.layout,
            backend_for(device),
            rewriting=update_only,
            guard=loss,
        )
        yield Binding(executable, group, container.bases)


def touched(accesses, binding, region):
    base = binding.bases[region]
    nbytes = max(binding.executable.region_nbytes.get(region, 0), 1) * 2
    return [a for a in accesses if base <= a.address < base + nbytes]


def test_segments_say_what_they_touch(bound):
    reads, writes = bound.plan.accesses(0)
    assert touched(reads, bound, Region.INPUT)
    assert touched(reads, bound, Region.WEIGHTS)
    assert touched(writes, bound, Region.GRADIENTS)
    assert not touched(writes, bound, Region.WEIGHTS)
    assert not touched(writes, bound, Region.RING)
    reads, writes = bound.plan.accesses(1)
    assert touched(reads, bound, Region.GRADIENTS)
    assert touched(writes, bound, Region.WEIGHTS)
    assert len(touched(writes, bound, Region.RING)) == 4  # loss and status in each of two slots
    assert not touched([*reads, *writes], bound, Region.CONSTANT)


def test_a_guarded_update_reads_the_status_that_the_check_writes(bound):
    status = bound.executable.state["status"]
    address = bound.bases[Region.STATE] + status.offset
    assert address in [a.address for a in bound.plan.accesses(0)[1]]
    assert address in [a.address for a in bound.plan.accesses(1)[0]]


def test_nothing_is_computed(bound):
    bound.plan.launch(0)
    bound.plan.launch(1)
    assert [a.tolist() for a in bound.plan.fetch_arrays(0)] == [0.0, 0]
    assert bound.plan.find_nonfinite(0) is None


def test_a_session_on_the_null_device_gives_zeros():
    with tb.Graph().as_default(), NullDevice("/null:8") as device:
        v = tb.Variable(np.ones((2, 3)))
        with tb.Session(device=device) as session:
            session.run(v.initializer)
            assert not session.run(v * 2.0).any()
        launches = device.log.launches()
        assert len(launches) == 2
        assert launches[1].reads
