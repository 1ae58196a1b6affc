"""Replicas that span several devices: `num_gpus_per_replica`, `logical_device`."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NumericsError
from tests.scheduler_rig.running import same_bits

pytestmark = pytest.mark.filterwarnings("ignore:central_values")  # of independent replicas, replica 0's

CPUS = [f"/cpu:{index}" for index in range(8)]
ROWS = np.random.default_rng(5).normal(size=(64, 6)).astype(np.float32)
WORDS = np.random.default_rng(6).integers(0, 9, (64, 3))


@pytest.fixture(autouse=True)
def own_graph():
    with tb.Graph().as_default():
        tb.set_random_seed(2)
        yield


def made(split, devices=CPUS, per=2, **options):
    """A Replicator over groups of devices, or over the first one of each, and a context for parts."""
    if not split:
        replicator = tb.MultiGpuReplicator(devices[::per], **options)
        return replicator, lambda index: replicator.logical_device(0)
    replicator = tb.MultiGpuReplicator(devices, num_gpus_per_replica=per, **options)
    return replicator, replicator.logical_device


def embedded(replicator, part, collective=False):
    """A step with a table of embeddings and a dense layer on device 1, the rest on device 0."""
    with replicator.context():
        optimizer = replicator.wrap_optimizer(tb.train.AdamOptimizer(0.02))
        with part(1):
            table = tb.Variable(tb.random_normal([9, 4], seed=1), name="table")

    def step_fn(rows, words):
        hidden = tb.layers.dense(rows, 5, activation=tb.nn.relu, name="hidden")
        with part(1):
            found = tb.reduce_sum(tb.gather(table, words), 1)
            both = tb.layers.dense(tb.concat([hidden, found], 1), 3, name="joint")
            if collective:
                both = both - tb.all_sum(tb.reduce_mean(both, 0)) / replicator.num_replicas
        loss = tb.reduce_mean(tb.square(both - tb.reduce_sum(rows, 1, keepdims=True)))
        return {"loss": loss, "update": optimizer.minimize(loss)}

    return step_fn


def batches(replica_id):
    draw = np.random.default_rng(replica_id)
    while True:
        picks = draw.integers(0, 64, 8)
        yield ROWS[picks], WORDS[picks]


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["ssgd", "sma", "easgd", "none"])
@pytest.mark.parametrize("collective", [False, True])
def test_four_replicas_of_two_devices_have_the_bits_of_four_on_one_each(sync, collective):
    found = []
    for split in (False, True):
        with tb.Graph().as_default():
            tb.set_random_seed(2)
            replicator, part = made(split, sync=sync)
            assert replicator.num_replicas == 4
            step_fn = embedded(replicator, part, collective)
            losses = [each["loss"] for each in replicator.train(step_fn, batches, 12)]
            found.append(({"losses": np.array(losses)}, replicator.central_values()))
    assert same_bits(found[0][0], found[1][0])
    assert same_bits(found[0][1], found[1][1])
    assert found[0][0]["losses"][-3:].mean() < found[0][0]["losses"][:3].mean()


def test_the_default_is_the_mean_gradient_as_in_the_paper():
    replicator, _ = made(True)
    assert replicator.synchronisation.sync == "ssgd"
    assert "1 on /cpu:0+/cpu:1, 1 on /cpu:2+/cpu:3" in repr(replicator)


@pytest.mark.slow
def test_several_replicas_share_a_group_of_devices():
    replicator, part = made(True, CPUS[:4], replicas_per_gpu=(2, 1))
    assert (replicator.num_replicas, replicator.synchronisation.sync) == (3, "sma")
    (*_, last) = replicator.train(embedded(replicator, part), batches, 3)
    assert last["loss"].shape == (3,)


@pytest.mark.slow
def test_what_a_replica_holds_is_on_its_own_devices():
    replicator, part = made(True, CPUS[:6], per=3)

    def step_fn(rows, words):
        hidden = rows
        for index, width in enumerate((5, 4, 3)):
            with part(index):
                hidden = tb.layers.dense(hidden, width, name=f"layer{index}")
        loss = tb.reduce_mean(tb.square(hidden))
        return replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9)).minimize(loss)

    replicator.run(step_fn, batches)
    replicator.init()
    weights = [6 * 5 + 5, 5 * 4 + 4, 4 * 3 + 3]
    for replica in replicator._running.stepper.engine.learners.replicas:
        for number, held in enumerate(replica.parts):
            assert held.device is replicator.devices[3 * replica.index + number]
            assert sum(ref.nbytes for ref in held.layout.refs().values()) == 2 * 4 * weights[number]
    for number, executable in enumerate(replicator._running.stepper.engine.executables_of(0)):
        names = {group.name for segment in executable.segments for group in segment.groups}
        products = {name for name in names if name.startswith("gradients/layer") and "MatMul_grad" in name}
        assert products
        assert all(name.startswith(f"gradients/layer{number}/") for name in products)
    replicator.shutdown()


@pytest.mark.slow
def test_a_run_goes_on_from_its_file_bit_for_bit(tmp_path):
    found = []
    for resumes in (False, True):
        with tb.Graph().as_default(), tb.Session() as session:
            tb.set_random_seed(2)
            replicator, part = made(True, CPUS[:4], sync="sma")
            results = replicator.run(embedded(replicator, part), batches)
            replicator.init(session)
            if resumes:
                replicator.restore(tmp_path / "state")
            for step in range(4 if resumes else 0, 9):
                if step == 4 and not resumes:
                    replicator.save(tmp_path / "state")
                session.run(results["loss"])
            found.append([replicator.replica_values(replica, slots=True) for replica in range(2)])
            replicator.shutdown()
    assert all(same_bits(*pair) for pair in zip(*found, strict=True))


@pytest.mark.slow
def test_evaluation_beside_training_and_steps_that_come_later():
    replicator, part = made(True, CPUS[:4])
    train = replicator.run(embedded(replicator, part), batches)

    def count_step():
        with part(1):
            count = tb.Variable(np.float32(0), trainable=False, name="count", combine="sum")
            return count.assign_add(1.0)

    with tb.Session() as session:
        replicator.init(session)
        first = session.run(train["loss"])
        counts = replicator.run(count_step)
        with pytest.raises(FailedPreconditionError, match="call replicator"):
            session.run(counts)
        replicator.init(session)
        assert [*session.run(counts), *session.run(counts)] == [1, 1, 2, 2]
        losses = [session.run(train["loss"]).mean() for _ in range(20)]
        assert np.mean(losses[-5:]) < first.mean()
        assert replicator.central_values()["count"] == 4
    replicator.shutdown()


@pytest.mark.slow
def test_a_smaller_last_batch_is_compiled():
    replicator, part = made(True, CPUS[:4])

    def input_fn(replica_id):
        for size in (8, 8, 3):
            yield ROWS[:size], WORDS[:size]

    losses = list(replicator.train(embedded(replicator, part), input_fn, smaller_batch="compile"))
    assert len(losses) == 3


def test_misuse():
    replicator, part = made(True, CPUS[:4])
    with pytest.raises(InvalidArgumentError, match=r"expected 0 to 1, as a replica has 2 device\(s\), got 2"):
        part(2)
    with pytest.raises(FailedPreconditionError, match="inside a step_fn"):
        part(1)
    with pytest.raises(InvalidArgumentError, match="a multiple of num_gpus_per_replica=2, got 3"):
        tb.MultiGpuReplicator(CPUS[:3], num_gpus_per_replica=2)

    def other_device(rows, words):
        with tb.device("/cpu:5"):
            return tb.reduce_sum(rows, name="there")

    words = r"Sum there requests device .*CPU:5, which is no device of a replica \(/cpu:0, /cpu:1 .*logical_d"
    with pytest.raises(InvalidArgumentError, match=words) as told:
        replicator.run(other_device, batches)
    assert __file__ in str(told.value)
    for alone in (tb.NonReplicator(), tb.MultiGpuReplicator(CPUS[:2])):
        with pytest.raises(InvalidArgumentError, match="no device of a replica"):
            alone.run(other_device, batches)
        with alone.context(), pytest.raises(InvalidArgumentError, match="expected 0 to 0"):
            alone.logical_device(1)


def test_kinds_of_devices_may_be_named():
    def step_fn(rows, words):
        with tb.device("/cpu:*"):
            return tb.reduce_sum(rows)

    assert len(list(tb.MultiGpuReplicator(CPUS[:2]).train(step_fn, batches, 2))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["ssgd", "sma", "easgd", "none"])
@pytest.mark.parametrize("steps_per_launch", [1, 5])
def test_a_weight_that_another_device_reads_behind_the_update_is_read_before_the_averaging(
    sync, steps_per_launch
):
    found = []
    for split in (False, True):
        with tb.Graph().as_default():
            tb.set_random_seed(2)
            replicator, part = made(split, CPUS[:4], sync=sync)

            def step_fn(rows, words, part=part, replicator=replicator):
                w = tb.get_variable("w", [6, 3])
                with part(1):
                    target = tb.get_variable(
                        "target", [6, 3], trainable=False, initializer=tb.initializers.zeros()
                    )
                loss = tb.reduce_mean(tb.square(tb.matmul(rows, w) - 1.0))
                update = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9)).minimize(loss)
                with tb.control_dependencies([update]), part(1):
                    return target.assign(target * 0.5 + w.read_value() * 0.5)

            loop = replicator.train(step_fn, batches, 10, steps_per_launch=steps_per_launch if split else 1)
            found.append(np.array([*loop]))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("steps_per_launch", [1, 4, "auto"])
@pytest.mark.parametrize("bad", [5, 38])
@pytest.mark.sampled(1)
def test_a_loss_that_is_not_finite_raises_at_its_step(steps_per_launch, bad):
    def inputs(replica_id):
        for step, (rows, words) in enumerate(batches(replica_id)):
            yield rows * (np.nan if step == bad and replica_id else 1.0), words

    replicator, part = made(True, CPUS[:4], sync="sma")
    loop = replicator.train(embedded(replicator, part), inputs, 60, steps_per_launch=steps_per_launch)
    for _ in range(bad):
        next(loop)
    with pytest.raises(NumericsError, match=f"of replica 1 is not finite at step {bad}; its batch has NaN"):
        next(loop)
