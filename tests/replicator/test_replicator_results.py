"""Variables that are joined when they are read, streaming metrics, and results replica by replica."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

pytestmark = pytest.mark.filterwarnings("ignore:central_values")  # of independent replicas, replica 0's

ON_READ = tb.VariableSynchronization.ON_READ
REPLICAS, DEVICES = 3, ["/cpu:0", "/cpu:1"]
SYNCS = ["sma", "ssgd", "none"]
LABELS = np.random.default_rng(0).integers(0, 3, (6, REPLICAS, 4))  # [steps, replicas, batch]
GUESSES = np.random.default_rng(1).integers(0, 3, LABELS.shape)


def three_replicas(sync):
    return tb.MultiGpuReplicator(DEVICES, (2, 1), sync=sync)


def input_fn(replica_id):
    for labels, guesses in zip(LABELS[:, replica_id], GUESSES[:, replica_id], strict=True):
        yield labels, guesses, np.ones((4, 2), np.float32)


class Training:
    """Three replicas, with a streaming accuracy and a variable of each aggregation."""

    def __init__(self, sync, session):
        self.replicator = replicator = three_replicas(sync)
        kinds = {"sum": "SUM", "mean": "MEAN", "first": "ONLY_FIRST_REPLICA"}
        with replicator.context():
            tb.set_random_seed(1)
            optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9))
            self.w = tb.Variable(np.zeros((2, 1), np.float32), name="w")
            self.read_by = {
                name: tb.Variable(
                    np.zeros(2, np.float32),
                    name=name,
                    synchronization=ON_READ,
                    aggregation=getattr(tb.VariableAggregation, kind),
                )
                for name, kind in kinds.items()
            }

        def step_fn(labels, guesses, x):
            self.accuracy, update = tb.metrics.accuracy(labels, guesses)
            own = tb.cast(tb.stack([tb.replica_id() + 1, 10 * (tb.replica_id() + 1)]), tb.float32)
            adds = [variable.assign_add(own) for variable in self.read_by.values()]
            loss = tb.reduce_mean(tb.square(tb.matmul(x, self.w) - 1.0))
            return {"accuracy": update, "adds": adds, "update": optimizer.minimize(loss), "x": x}

        self.results = replicator.run(step_fn, input_fn)
        self.session = session
        replicator.init(session)

    def step(self, count=1):
        return [self.session.run(self.results) for _ in range(count)][-1]


def joint_accuracy(steps):
    return np.float32(np.mean(LABELS[:steps] == GUESSES[:steps]))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", SYNCS)
def test_variables_are_joined_when_they_are_read(sync, session):
    training = Training(sync, session)
    with training.replicator as replicator:
        training.step(2)
        for read in (replicator.read, lambda them: _after(replicator.shutdown, replicator.read, them)):
            values = read({"joined": training.read_by, "accuracy": training.accuracy})
            np.testing.assert_array_equal(values["joined"]["sum"], [12, 120])
            np.testing.assert_array_equal(values["joined"]["mean"], [4, 40])
            np.testing.assert_array_equal(values["joined"]["first"], [2, 20])
            np.testing.assert_allclose(values["accuracy"], joint_accuracy(2), rtol=1e-6)
    assert replicator.central_values()["sum"].tolist() == [12, 120]


def _after(call, read, them):
    call()
    return read(them)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", SYNCS)
def test_each_replica_counts_for_itself(sync, session):
    training = Training(sync, session)
    with training.replicator as replicator:
        result = training.step(3)
        own = np.mean(LABELS[:3] == GUESSES[:3], axis=(0, 2))
        np.testing.assert_allclose(result["accuracy"], own, rtol=1e-6)
        assert [value.tolist() for value in replicator.local_results(training.read_by["sum"])] == [
            [3, 30],
            [6, 60],
            [9, 90],
        ]
        assert replicator.reduce_mean(training.read_by["first"]).tolist() == [6, 60]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", SYNCS)
def test_a_restored_metric_goes_on(sync, session, tmp_path):
    training = Training(sync, session)
    with training.replicator as replicator:
        training.step(2)
        replicator.save(tmp_path / "state")
        training.step(1)
        expected = replicator.read([training.accuracy, *training.read_by.values()])
    with tb.Graph().as_default(), tb.Session() as other:
        again = Training(sync, other)
        with again.replicator as replicator:
            replicator.restore(tmp_path / "state")
            again.step(1)
            values = replicator.read([again.accuracy, *again.read_by.values()])
    assert [value.tobytes() for value in values] == [value.tobytes() for value in expected]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", SYNCS)
def test_an_assigned_value_is_what_reading_gives(sync, session):
    training = Training(sync, session)
    with training.replicator as replicator:
        training.step(2)
        before = replicator.read(training.w) if sync != "none" else None
        replicator.load_variables({"sum": [7, 8], "mean": [7, 8], "first": [7, 8]})
        for value in replicator.read(training.read_by).values():
            assert value.tolist() == [7, 8]
        assert [own.tolist() for own in replicator.local_results(training.read_by)[1].values()] == [
            [0, 0],
            [7, 8],
            [7, 8],
        ]
        training.step()
        values = replicator.read(training.read_by)
        assert {name: value.tolist() for name, value in values.items()} == {
            "sum": [13, 68],
            "mean": [9, 28],
            "first": [8, 18],
        }
        training.read_by["sum"].load([0, 0], replicator)
        assert replicator.read(training.read_by["sum"]).tolist() == [0, 0]
        if before is not None:
            assert not np.array_equal(before, replicator.read(training.w))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", SYNCS)
def test_a_metric_is_reset_by_a_step_of_its_initializers(sync, session):
    training = Training(sync, session)
    with training.replicator as replicator:
        reset = replicator.run(tb.local_variables_initializer)
        training.step(2)
        session.run(reset)
        assert replicator.read(training.accuracy) == 0
        training.step(1)
        np.testing.assert_allclose(
            replicator.read(training.accuracy), np.mean(LABELS[2] == GUESSES[2]), rtol=1e-6
        )
        assert replicator.read(training.read_by["sum"]).tolist() == [18, 180]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", SYNCS)
def test_a_session_of_replicas_reads_the_joint_metric(sync):
    with tb.Graph().as_default():
        labels, guesses = tb.placeholder(tb.int64, [None]), tb.placeholder(tb.int64, [None])
        w = tb.Variable(1.0, name="w")
        accuracy, count = tb.metrics.accuracy(labels, guesses)
        train = tb.train.GradientDescentOptimizer(0.1).minimize(tb.square(w))
        options = {"replicas_per_device": (2, 1), "synchronisation": tb.Synchronisation(sync)}
        with tb.Session("tensorbow", devices=DEVICES, **options) as session:
            session.run([tb.global_variables_initializer(), tb.local_variables_initializer()])
            for step in range(2):
                session.run(
                    [train, count], {labels: LABELS[step].reshape(-1), guesses: GUESSES[step].reshape(-1)}
                )
            np.testing.assert_allclose(session.run(accuracy), joint_accuracy(2), rtol=1e-6)
            session.run(tb.local_variables_initializer())
            assert session.run(accuracy) == 0
            session.run([train, count], {labels: LABELS[2].reshape(-1), guesses: GUESSES[2].reshape(-1)})
            np.testing.assert_allclose(session.run(accuracy), np.mean(LABELS[2] == GUESSES[2]), rtol=1e-6)


def test_results_by_replica_as_tensors_and_arrays(session):
    training = Training("ssgd", session)
    with training.replicator as replicator:
        wanted = {"of": training.results["accuracy"], "rows": training.results["x"] * 2.0}
        local = replicator.local_results({**wanted, "update": training.results["update"]})
        assert len(local) == REPLICAS
        total = replicator.reduce_sum(wanted["rows"], axis=0)
        assert total.shape.as_list() == [2]
        values, own, mean, sums = session.run([wanted, local, replicator.reduce_mean(wanted), total])
        assert [each["of"] for each in own] == values["of"].tolist()
        assert [each["update"] for each in own] == [None] * REPLICAS
        np.testing.assert_allclose(mean["of"], values["of"].mean(), rtol=1e-6)
        assert mean["rows"].tolist() == replicator.reduce_mean(values["rows"]).tolist()
        assert sums.tolist() == replicator.reduce_sum(values["rows"], axis=0).tolist() == [24, 24]
        assert replicator.reduce_sum(values["rows"]).dtype == np.float32
        assert replicator.local_results(np.arange(3)) == (0, 1, 2)
        with pytest.raises(InvalidArgumentError, match="an axis below 0, the rank of a replica's value"):
            replicator.reduce_sum(values["of"], axis=0)


def test_reading_is_refused_for_what_has_no_value_outside_of_a_step(session):
    training = Training("none", session)
    replicator = training.replicator
    with pytest.raises(InvalidArgumentError, match=r"w has no value of all replicas.*sync 'none'"):
        replicator.read(training.w * 2.0)
    with replicator.context():
        fed = tb.placeholder(tb.float32, [])
        written = training.read_by["sum"].assign_add([1, 1])
        late = tb.Variable(0.0, name="late")
    with pytest.raises(InvalidArgumentError, match="an input of the step; return what depends on it"):
        replicator.read(fed + 1.0)
    with pytest.raises(InvalidArgumentError, match=r"AssignAdd .* is a write of a variable"):
        replicator.read(written)
    with pytest.raises(InvalidArgumentError, match="late is made after init"):
        replicator.read(late)
    with pytest.raises(InvalidArgumentError, match="to be variables and tensors of this replicator's steps"):
        replicator.read(training.results["accuracy"])
    with pytest.raises(InvalidArgumentError, match="is a tensor of the step; return it from step_fn"):
        replicator.local_results(training.accuracy)
    with pytest.raises(
        InvalidArgumentError, match=r"expected value to be a result of run or train, \[3, ...\]"
    ):
        replicator.reduce_sum(np.zeros((2, 3)))
    with pytest.raises(InvalidArgumentError, match=r"floating numbers in value.*int64; cast it"):
        replicator.reduce_mean(np.arange(3))
    with pytest.raises(InvalidArgumentError, match="value to be a variable of this replicator's graph"):
        replicator.local_results(tb.Variable(0.0))
    with pytest.raises(NotFoundError, match="other"):
        replicator.load_variables({"other": 0})
    with pytest.raises(FailedPreconditionError, match=r"use outside of steps; in step_fn, tb.all_reduce"):
        replicator.run(lambda: replicator.reduce_sum(training.w))
    replicator.shutdown()
    with pytest.raises(FailedPreconditionError, match="load_variables: the replicas are not there: they"):
        replicator.load_variables({"sum": [0, 0]})
    with pytest.raises(FailedPreconditionError, match="read: there are no values before init"):
        three_replicas("sma").read([])


def test_one_replica_is_what_is_read():
    with tb.NonReplicator() as replicator:
        with replicator.context():
            w = tb.Variable([1.0, 2.0], name="w")
            optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.5))
        step = replicator.train(lambda: optimizer.minimize(tb.reduce_sum(tb.square(w))), steps=1)
        assert [*step] == [None]
        values = replicator.read({"w": w, "twice": w * 2.0})
    assert values["w"].tolist() == [0, 0] == values["twice"].tolist()
