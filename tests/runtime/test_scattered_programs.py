"""Random programs over three devices: the values of one device and of the interpreter, run after run."""

import random
import time

import pytest

import tensorbow as tb
from tensorbow.compiler import multi_device
from tensorbow.compiler.partition import Send
from tensorbow.compiler.plan_memory import plan_memory
from tensorbow.devices import CpuDevice, LaunchLog, NullDevice, find_races
from tests.compiler.test_compiler_memory import check
from tests.program_rig.scattered import ScatteredProgram

FIRST = 650  # 658 and 1222 lost a sent value to a kept read, 681 and 903 read one before it had arrived


def long(*arguments):
    return pytest.param(*arguments, marks=pytest.mark.slow)


@pytest.fixture
def cpus(request):
    request.getfixturevalue(f"{request.param}_kernels")
    generator = random.Random(0)

    def late():
        if generator.random() < 0.1:
            time.sleep(generator.random() * 5e-4)

    devices = [CpuDevice(f"/cpu:{i}", delay=late) for i in range(3)]
    yield devices
    for device in devices:
        device.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cpus", "count"),
    [("reference", 40), ("native", 10), long("reference", 5000), long("native", 5000)],
    indirect=["cpus"],
)
def test_random_programs_compute_the_same_anywhere(cpus, count):
    for seed in range(FIRST, FIRST + count):
        with tb.Graph().as_default():
            program = ScatteredProgram(seed)
            for devices in (cpus, cpus[:1]):
                with tb.Session(device=cpus[0], devices=devices, allow_soft_placement=True) as session:
                    program.check(session)


@pytest.mark.slow
@pytest.mark.parametrize("count", [60, long(5000)])
def test_random_programs_have_no_races_and_keep_what_is_sent(monkeypatch, count):
    plans = []

    def noted(program, drafts, *rest):
        units = [unit for draft in drafts for unit in draft.units]
        plans.append((program, units, plan_memory(program, drafts, *rest)))
        return plans[-1][-1]

    monkeypatch.setattr(multi_device, "plan_memory", noted)
    for seed in range(FIRST, FIRST + count):
        log = LaunchLog()
        devices = [NullDevice(f"/cpu:{i}", log=log) for i in range(3)]
        with tb.Graph().as_default(), tb.Session(device=devices[0], devices=devices) as session:
            program = ScatteredProgram(seed)
            program.load(session)
            for run in range(2):
                session.run(program.fetches, program.feeds(run))
            explanation = session.explain(program.fetches, program.feeds(0))
        assert find_races(log) == []
        while plans:
            check(*plans.pop())
        for part in getattr(explanation, "parts", {}).values():
            for segment in part.executable.segments:
                are_sends = [group.definition is Send for group in segment.groups]
                assert are_sends == sorted(are_sends)  # so that what they send lives to the stage's end
