"""A Replicator's state in a file: what is restored goes on with the same bits."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from tensorbow.training import load_arrays, save_arrays

pytestmark = pytest.mark.filterwarnings("ignore:central_values. replicas with sync='none'")
STEPS, SAVED = 9, 4
OPTIONS = [
    {"sync": "sma", "tau": 2, "staleness": 1, "mu": 0.3},
    {"sync": "sma", "ssgd_from": 6},
    {"sync": "ssgd"},
    {"sync": "easgd"},
    {"sync": "diloco", "tau": 3, "staleness": 1},
    {"sync": "none"},
]


def input_fn(replica_id):
    draw = np.random.default_rng(replica_id)
    while True:
        yield draw.normal(size=(4, 5)).astype(np.float32), draw.normal(size=(4, 3)).astype(np.float32)


class Program:
    """A training step with dropout and a schedule, and an evaluation with a counter, in a session."""

    def __init__(self, devices=("/cpu:0", "/cpu:1"), per_device=2, steps=2, **options):
        self.graph = tb.Graph()
        with self.graph.as_default():
            self.replicator = tb.MultiGpuReplicator(list(devices), per_device, **options)
            with self.replicator.context():
                tb.set_random_seed(3)
                rate = tb.train.ExponentialDecay(0.1, 2, 0.8)
                optimizer = self.replicator.wrap_optimizer(tb.train.MomentumOptimizer(rate, 0.9))
                w = tb.Variable(np.full((5, 3), 0.2, np.float32), name="w")
                seen = tb.Variable(0, trainable=False, combine="sum", name="seen")

            def train_fn(x, y):
                hidden = tb.nn.dropout(x, rate=0.3)
                loss = tb.reduce_mean(tb.square(tb.matmul(hidden, w) - y))
                with tb.control_dependencies([optimizer.minimize(loss), seen.assign_add(4)]):
                    return tb.identity(loss)

            def noise_fn(x, y):
                return tb.reduce_sum(x) + tb.random_uniform([])

            self.fetches = [self.replicator.run(each, input_fn) for each in (train_fn, noise_fn)[:steps]]
            self.session = tb.Session()
        self.replicator.init(self.session)

    def run(self, steps):
        return np.array(
            [[each.tolist() for each in map(self.session.run, self.fetches)] for _ in range(steps)]
        )

    def values(self):
        count = self.replicator.num_replicas
        replicas = [self.replicator.replica_values(number, slots=True) for number in range(count)]
        return [*replicas, self.replicator.central_values()]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.replicator.shutdown()
        self.session.close()


def equal(first, second):
    pairs = zip(first, second, strict=True)
    return all(
        one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)
        for one, other in pairs
    )


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_restored_replicator_goes_on_with_the_same_bits(tmp_path, options):
    with Program(**options) as whole:
        expected = whole.run(SAVED)
        assert whole.replicator.save(tmp_path / "state") == SAVED
        expected = np.concatenate([expected, whole.run(STEPS - SAVED)])
        values = whole.values()
    with Program(**options) as resumed:
        assert resumed.replicator.restore(tmp_path / "state") == SAVED
        np.testing.assert_array_equal(resumed.run(STEPS - SAVED), expected[SAVED:])
        assert equal(resumed.values(), values)
        again = tmp_path / "again"
        resumed.replicator.save(again)
    with Program(**options) as third:
        third.replicator.restore(again)
        assert equal(third.values(), values)


@pytest.mark.slow
def test_restoring_after_steps_of_other_values(tmp_path):
    """Restoring replaces values trained before; the inputs are not further on than in the file."""
    with Program(sync="sma") as first:
        first.run(SAVED)
        first.replicator.save(tmp_path / "state")
        expected = first.run(2)
    with Program(sync="sma") as other:
        other.run(2)
        other.replicator.restore(tmp_path / "state")
        np.testing.assert_array_equal(other.run(2), expected)
        with pytest.raises(
            InvalidArgumentError, match=r"further on than those of the file, 6 rounds and not 4"
        ):
            other.replicator.restore(tmp_path / "state")
        other.run(1)


def test_the_same_inputs_in_every_step_can_go_back(tmp_path):
    with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2) as replicator, tb.Session() as session:

        def step_fn(x):
            w = tb.get_variable("w", [3], initializer="ones")
            loss = tb.reduce_sum(tb.square(w * x))
            optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9))
            return loss, optimizer.minimize(loss)

        loss, _ = replicator.run(step_fn, lambda replica_id: np.full(3, replica_id + 1, np.float32))
        replicator.init(session)
        session.run(loss)
        replicator.save(tmp_path / "state")
        expected = [session.run(loss).tolist() for _ in range(3)]
        for _ in range(2):
            replicator.restore(tmp_path / "state")
            assert [session.run(loss).tolist() for _ in range(3)] == expected


@pytest.mark.slow
def test_what_is_refused(tmp_path):
    path = tmp_path / "state"
    with Program(sync="sma") as saved:
        saved.replicator.save(path)
    for arguments, message in (
        (
            {"sync": "sma", "per_device": 1},
            r"per device \[2, 2\], and this replicator has \[1, 1\]; make",
        ),
        ({"sync": "ssgd"}, "saved with sync='sma', and this replicator has sync='ssgd'; make"),
        (
            {"sync": "sma", "tau": 3, "mu": 0.1},
            "with tau=1, mu=0.0, and .* has tau=3, mu=0.1; make",
        ),
        ({"sync": "sma", "steps": 1}, "saved with steps 2, and this replicator has 1; make"),
    ):
        with Program(**arguments) as other:
            before = other.values()
            with pytest.raises(InvalidArgumentError, match=message):
                other.replicator.restore(path)
            assert equal(other.values(), before)
            other.run(1)
    with Program(sync="sma") as other:
        with pytest.raises(NotFoundError):
            other.replicator.restore(tmp_path / "nothing")
        content = bytearray(path.read_bytes())
        content[-9] ^= 255
        (tmp_path / "damaged").write_bytes(content)
        with pytest.raises(DataLossError):
            other.replicator.restore(tmp_path / "damaged")
    arrays, metadata = load_arrays(path)
    arrays["replica0/w"] = arrays["replica0/w"][:2]
    save_arrays(tmp_path / "smaller", arrays, metadata)
    with Program(sync="sma") as other:
        before = other.values()
        with pytest.raises(InvalidArgumentError, match=r"does not fit: replica0/w is float32\[2, 3\]"):
            other.replicator.restore(tmp_path / "smaller")
        assert equal(other.values(), before)
        other.run(1)
    with tb.Graph().as_default(), tb.NonReplicator() as none:
        with pytest.raises(FailedPreconditionError, match="save: the replicas are not there: call train"):
            none.save(path)
        with pytest.raises(FailedPreconditionError, match="restore: the replicas are not there: call train"):
            none.restore(path)


@pytest.mark.slow
@pytest.mark.parametrize("steps_per_launch", [1, "auto"])
def test_a_training_loop_goes_on_from_a_file_restored_before_its_first_step(tmp_path, steps_per_launch):
    def loop(steps):
        with tb.Graph().as_default():
            tb.set_random_seed(3)
            replicator = tb.MultiGpuReplicator(["/cpu:0"], 2)
            optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9))

            def step_fn(x, y):
                found = tb.layers.dense(tb.nn.dropout(x, rate=0.3), 3, name="out")
                loss = tb.reduce_mean(tb.square(found - y))
                return loss, optimizer.minimize(loss)

            return replicator, replicator.train(step_fn, input_fn, steps, steps_per_launch=steps_per_launch)

    replicator, steps = loop(STEPS)
    losses = []
    for number, (loss, _) in enumerate(steps, 1):
        losses.append(loss)
        if number == SAVED:
            replicator.save(tmp_path / "state")
    again, steps = loop(STEPS - SAVED)
    again.restore(tmp_path / "state")
    np.testing.assert_array_equal([loss for loss, _ in steps], losses[SAVED:])
    for name, value in replicator.central_values().items():
        np.testing.assert_array_equal(again.central_values()[name], value)
    with pytest.raises(FailedPreconditionError, match=r"train\(\) ends, by Ctrl-C too: call it in"):
        again.save(tmp_path / "state")


@pytest.mark.slow
def test_an_interrupted_training_is_saved_in_the_loop(tmp_path):
    """A handler of Ctrl-C sets a flag, where the loop saves and ends; behind it the replicas are gone."""
    interrupted = threading.Event()

    def loop(steps, interrupt_at=None, file=None):
        with tb.Graph().as_default():
            repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
            with repl.context():
                tb.set_random_seed(0)
                w = tb.get_variable("w", [5, 3])
                optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.05, 0.9))

            def step_fn(x, y):
                return optimizer.minimize(tb.reduce_mean(tb.square(tb.matmul(x, w) - y)))

            training = repl.train(step_fn, input_fn, steps)
            if file is not None:
                assert repl.restore(file) == interrupt_at
            for step, _ in enumerate(training, 1):
                if file is None and step == interrupt_at:
                    signal.raise_signal(signal.SIGINT)
                if interrupted.is_set():
                    assert repl.save(tmp_path / "state") == step
                    break
        return repl

    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        first = loop(30, 17)
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(FailedPreconditionError, match=r"save: the replicas .* by Ctrl-C too: call it in"):
        first.save(tmp_path / "late")
    interrupted.clear()
    resumed, whole = loop(13, 17, tmp_path / "state").central_values(), loop(30).central_values()
    assert equal([resumed], [whole])
