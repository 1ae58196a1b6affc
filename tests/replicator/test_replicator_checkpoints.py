"""Periodic checkpoints of monitored sessions, with Replicators and without: a killed run goes on."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.training import RollingCheckpoints


class LostError(Exception):
    """A failure in the middle of a run."""


def replicated(folder, steps, fails_at=None, every=2):
    """Losses of a monitored run that goes on from what is in the folder."""
    with tb.Graph().as_default():
        repl = tb.MultiGpuReplicator(["/cpu:0"], 2, tau=2)
        with repl.context():
            tb.set_random_seed(1)
            optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.05, 0.9))
            w = tb.Variable(np.ones((3, 2), np.float32), name="w")

        def input_fn(replica_id):
            draw = np.random.default_rng(replica_id)
            while True:
                yield draw.normal(size=(4, 3)).astype(np.float32)

        def step_fn(x):
            loss = tb.reduce_mean(tb.square(tb.matmul(tb.nn.dropout(x, rate=0.2), w)))
            with tb.control_dependencies([optimizer.minimize(loss)]):
                return tb.identity(loss)

        losses = repl.run(step_fn, input_fn)
        found = []
        session = tb.train.MonitoredTrainingSession(checkpoint_dir=folder, save_checkpoint_steps=every)
        with session:
            repl.init(session)
            for step in range(steps):
                if step == fails_at:
                    raise LostError
                found.append(session.run(losses).tolist())
            repl.shutdown(session)
        return found


@pytest.mark.slow
def test_a_replicator_goes_on_from_the_newest_checkpoint(tmp_path):
    whole = replicated(tmp_path / "whole", 10)
    folder = tmp_path / "parts"
    with pytest.raises(LostError):
        replicated(folder, 10, fails_at=5)  # saved at 2 and 4
    assert [round for round, _ in RollingCheckpoints(folder / "replicator0").paths()] == [2, 4]
    assert replicated(folder, 3) == whole[4:7]  # and saved at its end, at 7
    assert replicated(folder, 3) == whole[7:]  # at 9 and 10
    (folder / "replicator0" / "checkpoint-000000010.safetensors").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="passed over an unusable checkpoint"):
        assert replicated(folder, 1, every=100) == whole[9:]


def counted(folder, steps, fails_at=None, **options):
    with tb.Graph().as_default():
        step = tb.train.get_or_create_global_step()
        total = tb.Variable(0.0, name="total")
        with tb.control_dependencies([total.assign_add(1.5)]):
            update = step.assign_add(1)
        with tb.train.MonitoredTrainingSession(checkpoint_dir=folder, **options) as session:
            for number in range(steps):
                if number == fails_at:
                    raise LostError
                session.run(update)
            return [float(session.run(total)), int(session.run(step))]


def test_variables_of_a_session_go_on(tmp_path):
    with pytest.raises(LostError):
        counted(tmp_path, 9, fails_at=7, save_checkpoint_steps=3)  # saved at 3 and 6
    assert counted(tmp_path, 2, save_checkpoint_steps=3) == [12, 8]
    assert counted(tmp_path, 0, save_checkpoint_secs=1000) == [12, 8]
    assert counted(tmp_path, 1, save_checkpoint_secs=1e-9) == [13.5, 9]
    assert counted(None, 2) == [3, 2]


def test_what_is_refused(tmp_path):
    with tb.Graph().as_default():
        for options in ({}, {"save_secs": 1, "save_steps": 1}):
            with pytest.raises(InvalidArgumentError, match="expected save_secs or save_steps"):
                tb.train.CheckpointSaverHook(tmp_path, **options)
        with pytest.raises(InvalidArgumentError, match="need a checkpoint_dir"):
            tb.train.MonitoredTrainingSession(save_checkpoint_steps=3)
