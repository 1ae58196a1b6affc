"""A training loop of a Replicator by first come, first served, whose values follow from who took what."""

from __future__ import annotations

from collections import Counter

import numpy as np

import tensorbow as tb
from tests.scheduler_rig.programs import Fuse, well
from tests.scheduler_rig.reference import FirstComeAveraging

MODEL = well()
SIZE = 7


def input_fn(rounds=None, batch=MODEL.batch):
    """The model's batches, in the same array each time, with their numbers in the whole run."""

    def batches(context):
        i, k, x = context.replica_id, context.num_replicas, np.empty(SIZE, np.float32)
        round = 0
        while rounds is None or round < rounds:
            x[...] = batch(round, i)[0]
            yield x, np.int64(round * k + i)
            round += 1

    return batches


class Training:
    """A loop over the steps of `programs.well`, which count themselves and add up their batches' numbers."""

    def __init__(
        self, devices=("/cpu:0",), per_device=2, steps=None, inputs=None, fuse=False, rate=0.1, **options
    ):
        options = {"dispatch": "fcfs", **options}
        train = {name: options.pop(name) for name in ("prefetch", "steps_per_launch") if name in options}
        with tb.Graph().as_default():
            self.replicator = repl = tb.MultiGpuReplicator(list(devices), per_device, **options)
            with repl.context():
                optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(rate, 0.9))
                w = tb.Variable(MODEL.initial["w"], name="w")
                self.tasks = tb.Variable(0, trainable=False, combine="sum", name="tasks")
                self.numbers = tb.Variable(np.int64(0), trainable=False, combine="sum", name="numbers")

            def step_fn(x, number):
                seen = Fuse(x, name="the_fuse") if fuse else x
                loss = tb.reduce_sum(tb.square(w - seen)) * 0.5
                done = [optimizer.minimize(loss), self.tasks.assign_add(1), self.numbers.assign_add(number)]
                with tb.control_dependencies(done):
                    return {"number": tb.identity(number), "more": (tb.group(*done), tb.identity(loss))}

            self.loop = repl.train(step_fn, inputs or input_fn(), steps, **train)
        self.numbers_seen = []

    def rounds(self, count=None):
        """Takes results; checks that they are in order, row i of batch i."""
        k = self.replicator.num_replicas
        for result in self.loop if count is None else (next(self.loop) for _ in range(count)):
            expected = len(self.numbers_seen) + np.arange(k)
            assert result["number"].tolist() == expected.tolist()
            assert result["more"][0] is None
            assert result["more"][1].shape == (k,)
            self.numbers_seen += expected.tolist()
        return len(self.numbers_seen) // k

    def check_values(self, takers, device_count=1, restarts_before=()):
        """Compares with what follows from who took what; returns the rounds that the values have."""
        repl = self.replicator
        k, central = repl.num_replicas, repl.central_values()
        rounds, rest = divmod(len(takers), k)
        assert not rest
        reference = FirstComeAveraging(MODEL.initial["w"], k, repl.synchronisation, device_count)
        reference.run(MODEL.batch, takers, 0, restarts_before)
        if repl.synchronisation.averages(k):
            assert central["w"].tobytes() == reference.z.tobytes()
        assert repl.read(self.tasks) == rounds * k
        assert repl.read(self.numbers) == sum(range(rounds * k))
        if rounds and repl._running.stepper is not None:
            counts = Counter(takers)
            for index in range(k):
                values = repl.replica_values(index)
                assert values["w"].tobytes() == reference.w[index].tobytes()
                assert values["tasks"] == counts[index]
        return rounds


def spoilt(round, batch_number, number):
    """The model's batches, one of which holds a number it should not."""

    def batch(t, i):
        (x,) = MODEL.batch(t, i)
        if (t, i) == (round, batch_number):
            x[-1] = number
        return (x,)

    return input_fn(None, batch)
