"""Training, looking and growing by turns: the same bits whatever the timing, and every access ordered."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import CpuDevice, LaunchLog, NullDevice, find_races

pytestmark = pytest.mark.usefixtures("graph")


def history(devices):
    """All values after training, looking, and growing by turns."""
    repl = tb.MultiGpuReplicator(devices, 2, staleness=1, tau=2)
    rng = np.random.default_rng(0)
    start, batches = rng.normal(size=(3, 2)).astype(np.float32), rng.normal(size=(8, 4, 3)).astype(np.float32)
    with repl.context():
        w = tb.Variable(start, name="w")
        optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.05, 0.9))

    def step(x):
        loss = tb.reduce_mean(tb.square(tb.matmul(x, w) - 1.0))
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    train = repl.run(step, lambda replica_id: iter([batches[(replica_id + t) % 8] for t in range(40)]))
    look = repl.run(lambda x: tb.matmul(x, w), lambda: np.ones((2, 3), np.float32))
    seen = []
    with repl, tb.Session() as session:
        repl.init(session)
        for turn in range(3):
            for _ in range(3):
                seen += [session.run(train), session.run(look)]
            with repl.context():
                late = tb.Variable(start[turn], name=f"late{turn}")
            more = repl.run(lambda late=late: optimizer.minimize(tb.reduce_sum(tb.square(late))))
            repl.init(session)
            session.run([more, train])
        values = repl.central_values()
        seen += [values[name] for name in sorted(values)]
        seen += [
            repl.replica_values(1, slots=True)[name] for name in sorted(repl.replica_values(1, slots=True))
        ]
    return b"".join(value.tobytes() for value in seen)


@pytest.mark.slow
def test_the_same_bits_under_random_delays():
    rng = random.Random(1)
    expected = history(["/cpu:0", "/cpu:1"])
    for _ in range(3):
        devices = [
            CpuDevice(f"/cpu:{i}", delay=lambda: time.sleep(rng.choice([0, 0, 3e-4]))) for i in range(2)
        ]
        with tb.Graph().as_default():
            assert history(devices) == expected
        for device in devices:
            device.close()


def test_no_races_between_training_and_looking():
    log = LaunchLog()
    devices = [NullDevice(f"/null:{index}", log=log) for index in range(2)]
    history(devices)
    assert len(log.launches()) > 3 * 6 * 4
    assert find_races(log) == []
    for device in devices:
        device.close()
