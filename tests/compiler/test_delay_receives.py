"""Received values: read as late as possible, and packed into the slab by their lifetimes."""

from __future__ import annotations

from itertools import combinations
from random import Random

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import VariableLayout, compile_multi_device, multi_device
from tensorbow.compiler.plan_memory import overlap, plan_memory
from tensorbow.compiler.prune import prune
from tensorbow.devices import CpuDevice, LaunchLog, NullDevice, find_races
from tensorbow.program import Region
from tensorbow.program.nodes import storage_of
from tensorbow.specs import TensorSpec
from tests.program_rig.scattered import ScatteredProgram

pytestmark = pytest.mark.usefixtures("graph")


@pytest.fixture
def cpus():
    devices = [CpuDevice(f"/cpu:{i}") for i in range(2)]
    yield devices
    for device in devices:
        device.close()


def names_by_stage(step, device):
    """Names of the ops in each stage of a device, with what the stage receives."""
    part = step.parts[device]
    return [
        ([name for g in part.segments[s.segment].groups for name in g.nodes], list(s.receives))
        for s in step.stages
        if s.device == device
    ]


def test_what_needs_nothing_runs_before_the_wait(cpus):
    x = tb.placeholder(tb.float32, [64])
    with tb.device("/cpu:1"):
        far = tb.exp(x, name="far")
    early = tb.negative(far, name="early")  # in the program before, but needed last
    for number in range(3):
        x = tb.square(x, name=f"own{number}")
    total = tb.add(early, x, name="total")
    with tb.Session(device=cpus[0], devices=cpus) as session:
        value = np.linspace(0, 1, 64, dtype=np.float32)
        feeds = {tb.get_default_graph().get_tensor_by_name("Placeholder:0"): value}
        step = session.explain(total, feeds).executable
        (own, nothing), (late, received) = names_by_stage(step, "/device:CPU:0")
        assert (own, nothing) == (["own0", "own1", "own2"], [])
        assert late == ["early", "total"]
        assert received == ["far:0 from /device:CPU:1"]
        np.testing.assert_allclose(session.run(total, feeds), value**8 - np.exp(value), rtol=1e-5)


def test_a_reader_does_not_pass_another_wait_or_a_write(cpus):
    x = tb.placeholder(tb.float32, [8], name="x")
    v = tb.Variable(np.ones(8, np.float32), name="v")
    with tb.device("/cpu:1"):
        first, second = tb.exp(x, name="first"), tb.sin(tb.exp(x), name="second")
    early = tb.negative(first, name="early")
    other = tb.negative(second, name="other")  # waits itself: `early` can run meanwhile
    sums = tb.add(v.read_value(), first, name="sums")
    with tb.control_dependencies([sums]):
        write = v.assign_add(tb.ones([8]))
    with tb.Session(device=cpus[0], devices=cpus) as session:
        session.run(v.initializer)
        fetches = [tb.add(early, other), sums, write]
        step = session.explain(fetches, {x: np.zeros(8)}).executable
        order = [name for names, _ in names_by_stage(step, "/device:CPU:0") for name in names]
        assert order.index("early") < order.index("other")
        assert order.index("sums") < order.index(write.op.name)
        values = session.run(fetches, {x: np.zeros(8)})
        np.testing.assert_allclose(values[1], 2.0)
        np.testing.assert_allclose(values[2], 2.0)


def test_a_large_value_is_received_by_a_stage_of_its_own(cpus):
    x = tb.placeholder(tb.float32, [None])
    with tb.device("/cpu:1"):
        far = [tb.exp(x), tb.sin(x)]
    with tb.control_dependencies(far):
        own = tb.square(tb.reduce_sum(x), name="own")
    ends = [tb.reduce_sum(each) * own for each in far]
    with tb.Session(device=cpus[0], devices=cpus) as session:
        for size, count in ((8, 1), (1 << 18, 2)):
            stages = names_by_stage(session.explain(ends, {x: np.zeros(size)}).executable, "/device:CPU:0")
            assert len([received for _, received in stages if received]) == count


def relay(count, width):
    """Sums on device 0 of values that device 1 makes, one after the other."""
    x = total = tb.placeholder(tb.float32, [width], name="x")
    for _ in range(count):
        with tb.device("/cpu:1"):
            far = tb.exp(total)
        total = tb.negative(far)
    return x, total


def compiled(fetches, feeds, devices, **options):
    ops = prune([t.op for t in fetches], feeds)
    names = {op: op.device or str(devices[0].name) for op in ops}
    by_name = {str(device.name): device for device in devices}
    return compile_multi_device(
        ops,
        fetches,
        feeds,
        names,
        str(devices[0].name),
        by_name,
        {n: VariableLayout([]) for n in by_name},
        **options,
    )


def test_received_values_share_memory(cpus):
    x, total = relay(6, 1000)
    feeds = {x: TensorSpec((1000,), tb.float32)}
    nbytes = []
    for keeps in (True, False):
        step = compiled([total], feeds, cpus, keeps_received=keeps)
        part = step.parts["/device:CPU:0"]
        received = [ref for key, ref in part.inputs.items() if " from " in key]
        assert {ref.region for ref in received} == {Region.INPUT if keeps else Region.SLAB}
        nbytes.append(part.region_nbytes[Region.INPUT] + part.region_nbytes[Region.SLAB])
    assert nbytes[1] <= nbytes[0] - 4 * 4000
    with tb.Session(device=cpus[0], devices=cpus) as session:
        value = np.linspace(0, 1, 1000, dtype=np.float32)
        expected = value
        for _ in range(6):
            expected = -np.exp(expected)
        np.testing.assert_allclose(session.run(total, {x: value}), expected, rtol=1e-5)


def check(program, drafts, plan):
    """No two values of the slab that are live at once share a byte, unless in place."""
    lives, index = {}, 0
    for draft in drafts:
        for key in draft.receives:
            lives.setdefault(program.feeds[key], [index, index])[1] = index
        for unit in draft.units:
            for value in unit.outputs:
                if storage_of(value) is value and plan.refs[value].region is Region.SLAB:
                    lives[value] = [index, index]
            for value in unit.inputs:
                if storage_of(value) in lives:
                    lives[storage_of(value)][1] = index
            index += 1
    for value in program.fetches:
        if storage_of(value) in lives:
            lives[storage_of(value)][1] = index
    units = [unit for draft in drafts for unit in draft.units]
    for (one, (first, last)), (two, (start, stop)) in combinations(lives.items(), 2):
        a, b = (plan.refs.get(value) or plan.inputs[value.feed] for value in (one, two))
        if not overlap(a, b) or first > stop or start > last:
            continue
        older, newer = (one, two) if two.node is not None and first <= start else (two, one)
        at = lives[newer][0]
        assert lives[older][1] == at, f"{older} lives on after {newer} took its memory"
        unit = units[at]
        pairs = {(unit.outputs[o], storage_of(unit.inputs[s])) for o, s in unit.kernel.inplace}
        assert (newer, older) in pairs
    return sum(value.feed is not None for value in lives)


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.sampled(4)
def test_no_live_values_overlap_and_no_race_is_there(seed, monkeypatch):
    found = []

    def kept(program, drafts, *rest):
        plan = plan_memory(program, drafts, *rest)
        found.append((program, drafts, plan))
        return plan

    monkeypatch.setattr(multi_device, "plan_memory", kept)
    log = LaunchLog()
    devices = [NullDevice(f"/cpu:{i}", log=log) for i in range(3)]
    program = ScatteredProgram(Random(seed).randrange(1 << 30))
    with tb.Session(device=devices[0], devices=devices) as session:
        program.load(session)
        session.run(program.fetches, program.feeds(0))
    assert find_races(log) == []
    for each in found:
        check(*each)


def test_the_check_finds_an_overlap(cpus, monkeypatch):
    found = []

    def kept(program, drafts, *rest):
        plan = plan_memory(program, drafts, *rest)
        found.append((program, drafts, plan))
        return plan

    monkeypatch.setattr(multi_device, "plan_memory", kept)
    x, total = relay(2, 16)
    compiled([total], {x: TensorSpec((16,), tb.float32)}, cpus)
    program, drafts, plan = found[0]
    assert check(program, drafts, plan) == 2
    value = next(v for v in program.feeds.values() if v.feed in drafts[-1].receives)
    drafts[0].units[0].outputs[0].readers.clear()
    program.fetches.append(drafts[0].units[0].outputs[0])
    plan.refs[value] = plan.refs[drafts[0].units[0].outputs[0]]
    with pytest.raises(AssertionError, match="lives on after"):
        check(program, drafts, plan)
