"""Parts of asynchronous training, each in this process: shards, workers and the count of steps."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbow as tb
from replicator.asynchronous import PushingOptimizer
from replicator.asynchronous.async_worker import AsyncWorker
from replicator.asynchronous.coordinator import END, GO, WAIT, StepCoordinator
from replicator.asynchronous.parameter_shard import ParameterShard, first_sequence, shared_out
from replicator.asynchronous.ray_actors import CoordinatorActor
from replicator.asynchronous.shard_files import other_folders, shard_folders, state_in
from replicator.input_functions import InputOptions
from tensorbow.training import RollingCheckpoints

OPTIMIZERS = {
    "momentum": lambda: tb.train.MomentumOptimizer(0.1, 0.9, weight_decay=1e-2),
    "adam": lambda: tb.train.AdamOptimizer(0.01),
    "scheduled": lambda: tb.train.GradientDescentOptimizer(
        tb.train.PiecewiseConstant([3, 6], [0.3, 0.1, 0.05])
    ),
}


def batches(context):
    random = np.random.default_rng(context.replica_id)
    while True:
        yield random.normal(size=(8, 4)).astype(np.float32), random.integers(0, 3, 8).astype(np.int32)


def loss_of(images, labels):
    hidden = tb.layers.batch_normalization(tb.layers.dense(images, 8, name="hidden"), training=True)
    logits = tb.layers.dense(tb.nn.relu(hidden), 3, name="logits")
    return tb.losses.sparse_softmax_cross_entropy(labels, logits)


def step_with(make_optimizer):
    def step(images, labels):
        loss = loss_of(images, labels)
        with tb.control_dependencies(tb.get_default_graph().get_collection(tb.GraphKeys.UPDATE_OPS)):
            train = PushingOptimizer(make_optimizer()).minimize(loss)
        return {"loss": loss, "train": train}

    return step


opened: list[AsyncWorker | ParameterShard] = []


@pytest.fixture(autouse=True)
def _closed():
    yield
    while opened:
        opened.pop().close()


def kept(made):
    opened.append(made)
    return made


def worker_of(step, input_fn=batches, **options):
    return kept(AsyncWorker(step, InputOptions(input_fn, **options), 0, 1, seed=3))


def shards_of(worker, count, **options):
    step = worker.shared_step
    owned = shared_out(step, count)
    return [(names, kept(ParameterShard(step, names, **options))) for names in owned]


def pulled(shards):
    return {name: value for _, shard in shards for name, value in shard.pull().items()}


def pushed(shards, sequence, contribution, worker=0):
    values = {}
    for names, shard in shards:
        values |= shard.push(worker, sequence, contribution.of(names))
    return values


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("count", [1, 3])
def test_one_worker_trains_as_a_session_does(name, count):
    worker = worker_of(step_with(OPTIMIZERS[name]))
    shards = shards_of(worker, count)
    values, losses = pulled(shards), []
    begun = values
    for sequence in range(10):
        result, contribution = worker.step(values)
        assert result["train"] is None
        losses.append(result["loss"])
        values = pushed(shards, sequence, contribution)
    with tb.Graph().as_default() as graph:
        graph.seed = 3
        images, labels = tb.placeholder(tb.float32, [8, 4]), tb.placeholder(tb.int32, [8])
        loss = loss_of(images, labels)
        with tb.control_dependencies(graph.get_collection(tb.GraphKeys.UPDATE_OPS)):
            train = OPTIMIZERS[name]().minimize(loss)
        with tb.Session() as session:
            session.run(tb.global_variables_initializer())
            session.load_variables(begun)
            drawn = batches(tb.InputContext(0, 1, 1))
            for expected in losses:
                fed = dict(zip((images, labels), next(drawn), strict=True))
                found, _ = session.run([loss, train], fed)
                np.testing.assert_allclose(expected, [found], rtol=1e-6)
            for variable in tb.global_variables():
                if variable.op.name in values:
                    np.testing.assert_allclose(
                        session.run(variable), values[variable.op.name], rtol=2e-6, atol=1e-7
                    )


def test_rows_of_an_embedding_are_pushed_alone():
    def step(words):
        table = tb.get_variable("table", [1000, 2], initializer="ones")
        loss = tb.reduce_sum(tb.nn.embedding_lookup(table, words))
        return loss, PushingOptimizer(tb.train.GradientDescentOptimizer(0.5)).minimize(loss)

    worker = worker_of(step, lambda: iter([np.array([7, 7, 9], np.int32)] * 2))
    shards = shards_of(worker, 1)
    _, contribution = worker.step(pulled(shards))
    values, indices = contribution.gradients[0]["table"]
    assert values.shape == (3, 2)
    assert indices.tolist() == [7, 7, 9]
    table = pushed(shards, 0, contribution)["table"]
    assert table[7].tolist() == [0.0, 0.0]
    assert table[9].tolist() == [0.5, 0.5]
    assert table.sum() == 2 * 1000 - 3


def test_a_push_that_comes_again_changes_nothing():
    worker = worker_of(step_with(OPTIMIZERS["momentum"]))
    shards = shards_of(worker, 2)
    _, contribution = worker.step(pulled(shards))
    first = pushed(shards, 0, contribution)
    for sequence in (0, -1):
        again = pushed(shards, sequence, contribution)
        assert all((again[name] == first[name]).all() for name in first)
    other = pushed(shards, 0, contribution, worker=1)
    assert any((other[name] != first[name]).any() for name in first)
    assert [shard.pushes for _, shard in shards] == [2, 2]


def test_a_late_push_of_a_process_that_died_passes_for_none_of_its_successor():
    worker = worker_of(step_with(OPTIMIZERS["momentum"]))
    ((_, shard),) = shards_of(worker, 1)
    _, contribution = worker.step(shard.pull())
    begun = first_sequence(shard.last_of(0))
    assert begun == 0
    shard.push(0, begun, contribution)
    again = first_sequence(shard.last_of(0))  # the successor asks
    shard.push(0, begun + 1, contribution)  # was on its way
    shard.push(0, again, contribution)
    assert shard.pushes == 3
    values = shard.pull()
    late = shard.push(0, begun + 2, contribution)  # comes after the successor's
    assert shard.pushes == 3
    assert all((value == values[name]).all() for name, value in late.items())
    assert first_sequence(again) > again


def test_a_shard_begins_again_with_its_newest_checkpoint(tmp_path):
    worker = worker_of(step_with(OPTIMIZERS["adam"]))
    step = worker.shared_step
    names = [variable.name for variable in step.variables]

    def shard(name):
        return kept(ParameterShard(step, names, folder=tmp_path / name, save_every=2))

    first = shard("first")
    for sequence in range(3):
        _, contribution = worker.step(first.pull())
        values = first.push(0, sequence, contribution)
        if sequence == 1:
            saved = first.state()
            while RollingCheckpoints(tmp_path / "first").newest()[0].metadata["round"] < 2:
                time.sleep(0.01)
            shutil.copytree(tmp_path / "first", tmp_path / "as one that dies here leaves it")
    second = shard("as one that dies here leaves it")
    assert second.pushes == 2
    assert second.last_of(0) == 1
    assert all((value == saved[name]).all() for name, value in second.state().items())
    again = second.push(0, 2, contribution)  # the one that was lost
    assert all((value == values[name]).all() for name, value in again.items())


def test_pushes_do_not_wait_for_a_checkpoint_that_is_written(tmp_path, monkeypatch):
    worker = worker_of(step_with(OPTIMIZERS["momentum"]))
    step = worker.shared_step
    names = [variable.name for variable in step.variables]
    shard = kept(ParameterShard(step, names, folder=tmp_path / "shard", save_every=1))
    _, contribution = worker.step(shard.pull())
    may_write, written, save = threading.Event(), [], RollingCheckpoints.save

    def slow_save(checkpoints, round, *content):
        may_write.wait(60)
        written.append(round)
        return save(checkpoints, round, *content)

    monkeypatch.setattr(RollingCheckpoints, "save", slow_save)
    for sequence in range(4):
        shard.push(0, sequence, contribution)
    assert written == []
    may_write.set()
    shard.close()
    assert written[-1] == 4
    newest, _ = RollingCheckpoints(tmp_path / "shard").newest()
    assert newest.metadata == {"round": 4, "applied": {"0": 3}}


def test_a_checkpoint_that_cannot_be_written_is_told_by_a_later_push(tmp_path, monkeypatch):
    worker = worker_of(step_with(OPTIMIZERS["momentum"]))
    step = worker.shared_step
    names = [variable.name for variable in step.variables]
    shard = ParameterShard(step, names, folder=tmp_path / "shard", save_every=1)
    _, contribution = worker.step(shard.pull())

    def full(*arguments):
        raise tb.errors.ResourceExhaustedError("the disk is full")

    monkeypatch.setattr(RollingCheckpoints, "save", full)

    def push_until_it_is_told():
        for sequence in itertools.count():
            shard.push(0, sequence, contribution)

    with pytest.raises(tb.errors.ResourceExhaustedError, match="the disk is full"):
        push_until_it_is_told()
    with contextlib.suppress(tb.errors.ResourceExhaustedError):  # of a push after that
        shard.close()


def test_what_shards_have_saved_is_read_for_another_number_of_shards(tmp_path):
    worker = worker_of(step_with(OPTIMIZERS["adam"]))
    step = worker.shared_step
    folders = shard_folders(tmp_path, 2)
    shards = [
        (names, kept(ParameterShard(step, names, folder=folder, save_every=2)))
        for names, folder in zip(shared_out(step, 2), folders, strict=True)
    ]
    for sequence in range(3):
        _, contribution = worker.step(pulled(shards))
        pushed(shards, sequence, contribution)
    saved = {name: value for _, shard in shards[::-1] for name, value in shard.state().items()}
    for _, shard in shards:
        shard.close()
    state, pushes = state_in(tmp_path)
    assert pushes == 3  # a last checkpoint is written at the end
    assert set(state) == set(saved)
    assert all((value == saved[name]).all() for name, value in state.items())
    assert len(state) > 2 * len(step.variables)  # slots too
    one = kept(ParameterShard(step, [variable.name for variable in step.variables], state))
    assert all((value == saved[name]).all() for name, value in one.state().items())

    assert other_folders(tmp_path, 1) == folders
    assert other_folders(tmp_path, 2) == []
    for folder in shard_folders(tmp_path, 3)[:2]:  # a later training that died before all shards had begun
        folder.mkdir()
        RollingCheckpoints(folder).save(0, saved, {"round": 0, "applied": {}})
    assert state_in(tmp_path)[1] == 3
    for folder in (folders[1], *shard_folders(tmp_path, 3)[:2]):
        shutil.rmtree(folder)
    with pytest.raises(tb.errors.DataLossError, match="2 shards, of which shard-1-of-2 is missing"):
        state_in(tmp_path)
    with pytest.raises(tb.errors.NotFoundError, match="no checkpoints of shards"):
        state_in(folders[0])


def test_a_training_that_cannot_begin_keeps_what_it_would_go_on_from(tmp_path, monkeypatch):
    def fail(*arguments):
        raise tb.errors.UnavailableError("no cluster")

    module = "replicator.asynchronous.multi_worker_async"
    monkeypatch.setattr(f"{module}.ray_library", lambda address: None)
    monkeypatch.setattr(f"{module}.AsyncProcesses", fail)
    (folder,) = shard_folders(tmp_path, 1)
    folder.mkdir()
    RollingCheckpoints(folder).save(7, {"w": np.ones(2, np.float32)}, {"round": 7, "applied": {}})
    replicator = tb.MultiWorkerAsyncReplicator(2, folder=tmp_path)
    assert replicator.restore(tmp_path) == 7
    for _ in range(2):
        with pytest.raises(tb.errors.UnavailableError, match="no cluster"):
            next(replicator.train(lambda batch: batch, lambda context: iter([1.0])))
    assert state_in(tmp_path)[1] == 7


def test_a_folder_with_checkpoints_of_other_variables_is_refused(tmp_path):
    worker = worker_of(step_with(OPTIMIZERS["momentum"]))
    step = worker.shared_step
    names = [variable.name for variable in step.variables]
    kept(ParameterShard(step, names[1:], folder=tmp_path / "shard"))
    with pytest.raises(tb.errors.InvalidArgumentError, match=f"has no {names[0]}"):
        ParameterShard(step, names, folder=tmp_path / "shard")


def test_shards_get_equal_shares():
    def step():
        made = [
            tb.get_variable(f"w{n}", [size], initializer="ones") for n, size in enumerate((100, 60, 50, 1))
        ]
        loss = tb.add_n([tb.reduce_sum(each) for each in made])
        return PushingOptimizer(tb.train.GradientDescentOptimizer(0.5)).minimize(loss)

    shared = worker_of(step, None).shared_step
    assert [sorted(names) for names in shared_out(shared, 2)] == [["w0", "w3"], ["w1", "w2"]]
    assert all(len(names) == 1 for names in shared_out(shared, 4))
    with pytest.raises(tb.errors.InvalidArgumentError, match=r"num_shards: expected at most 4, .* got 100"):
        shared_out(shared, 100)


def test_steps_that_cannot_be_asynchronous_are_refused():
    images = np.ones((2, 2), np.float32)

    def optimizer():
        return PushingOptimizer(tb.train.GradientDescentOptimizer(0.5))

    def weights():
        return tb.get_variable("w", [2], initializer="ones")

    def meets(x):
        return optimizer().minimize(tb.reduce_sum(tb.all_sum(x) * weights()))

    def asks(x):
        number = tb.cast(tb.replica_id(), tb.float32)
        return optimizer().minimize(tb.reduce_sum(x * weights()) * number)

    def trains_nothing(x):
        return tb.reduce_sum(x * weights())

    def assigns(x):
        train = optimizer().minimize(tb.reduce_sum(x * weights()))
        with tb.variable_scope(tb.get_variable_scope(), reuse=True):
            return train, tb.get_variable("w", [2]).assign([1.0, 2.0])

    def unwrapped(x):
        return tb.train.GradientDescentOptimizer(0.5).minimize(tb.reduce_sum(x * weights()))

    for step, error, message in (
        (meets, tb.errors.UnimplementedError, "collectives"),
        (asks, tb.errors.UnimplementedError, "replica_id"),
        (trains_nothing, tb.errors.InvalidArgumentError, "trains nothing"),
        (assigns, tb.errors.InvalidArgumentError, "trainable variable w"),
        (unwrapped, tb.errors.InvalidArgumentError, "wrap_optimizer"),
    ):
        with pytest.raises(error, match=message):
            worker_of(step, lambda: images)
    rate = tb.constant(0.5)
    with pytest.raises(
        tb.errors.InvalidArgumentError, match="learning_rate: expected a number or a schedule"
    ):
        PushingOptimizer(tb.train.GradientDescentOptimizer(rate))


# The count of steps ---------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "finish", "join", "leave", "late"]), st.integers(0, 2)), max_size=60
    ),
    st.integers(0, 8),
    st.one_of(st.none(), st.integers(0, 2)),
)
def test_steps_are_begun_so_often_and_not_far_apart(calls, steps, staleness):
    counted = StepCoordinator(3, steps, staleness, timeout_s=10.0)
    now_s, heard_s, active = 0.0, dict[int, float](), set()
    in_step, given_up = set(), set()
    for call, worker in calls:
        if call == "join":
            counted.join(worker, now_s)
            active.add(worker)
            in_step.discard(worker)
            given_up.discard(worker)
        elif call == "late":
            now_s += 11.0
        elif call == "leave" and worker in active:
            counted.leave(worker)
            active.discard(worker)
            in_step.discard(worker)
            given_up.discard(worker)
        elif call == "finish" and worker in in_step | given_up:
            counts = worker in in_step or counted.begun < steps
            before = counted.done
            counted.finish(worker, worker, now_s)
            assert counted.done == before + counts
            in_step.discard(worker)
            given_up.discard(worker)
        elif call == "ask" and worker in active - in_step - given_up:
            silent = {each for each in in_step if now_s - heard_s[each] > 10.0}
            if counted.begun == steps > counted.done:
                in_step -= silent
                given_up |= silent
            answer = counted.ask(worker, now_s)
            if answer == GO:
                in_step.add(worker)
            assert answer != END or counted.done == steps
            assert answer != WAIT or counted.begun == steps or staleness is not None
        if call != "late":
            heard_s[worker] = now_s
        assert counted.begun == counted.done + len(in_step) <= steps
        assert len(counted.results) == counted.done == sum(counted.steps_by_worker)
    assert counted.is_over == (counted.done >= steps)


def test_a_worker_far_ahead_waits_for_the_slowest_unless_that_is_silent():
    counted = StepCoordinator(2, None, 1, timeout_s=10.0)
    for worker in (0, 1):
        counted.join(worker, 0.0)
        assert counted.ask(worker, 0.0) == GO
    for _ in range(2):
        counted.finish(0, None, 1.0)
        answer = counted.ask(0, 1.0)
    assert answer == WAIT
    assert counted.ask(0, 11.0) == GO  # worker 1 has been silent for 11 s
    counted.finish(0, None, 11.0)
    counted.finish(1, None, 12.0)
    assert counted.ask(1, 12.0) == GO  # and goes on with the others
    assert counted.ask(0, 12.0) == GO


def test_the_last_step_of_a_silent_worker_is_taken_by_another_and_counts_once():
    counted = StepCoordinator(2, 2, timeout_s=10.0)
    for worker in (0, 1):
        counted.join(worker, 0.0)
        assert counted.ask(worker, 0.0) == GO
    counted.finish(0, "first", 1.0)
    assert counted.ask(0, 9.0) == WAIT
    assert counted.ask(0, 11.0) == GO  # worker 1 has been silent for 11 s in the last step
    counted.finish(1, "late", 12.0)  # which another does now
    assert not counted.is_over
    counted.finish(0, "second", 13.0)
    assert counted.is_over
    assert [value for _, value in counted.results] == ["first", "second"]


def test_nobody_waits_for_a_worker_that_is_lost_and_its_step_is_taken_by_another():
    async def told():
        actor = CoordinatorActor(2, 3, 0, 1e6)  # 3 steps; both workers keep together
        first, second = await actor.join(0), await actor.join(1)
        assert await actor.next(0, first, None)
        assert await actor.next(1, second, None)  # and dies in its step
        waits = asyncio.create_task(actor.next(0, first, ("a",)))
        await asyncio.sleep(0)
        assert not waits.done()
        await actor.lose(1)
        assert await waits
        assert not await actor.next(1, second, ("late",))
        assert not await actor.is_current(1, second)
        assert await actor.next(0, first, ("b",))  # the third step, which was begun by the lost one
        assert not await actor.next(0, first, ("c",))
        again = await actor.join(1)
        assert await actor.is_current(1, again)
        assert not await actor.next(1, again, None)
        return await actor.take()

    results, is_over, steps, news = asyncio.run(told())
    assert news == ["worker 1 has died, and is started again"]
    assert ([value for _, value in results], is_over, steps) == (["a", "b", "c"], True, [3, 0])


def test_a_worker_whose_inputs_end_before_the_steps_are_done_is_told_of():
    async def news():
        actor = CoordinatorActor(2, 2, None, 1e6)
        lives = [await actor.join(number) for number in range(2)]
        assert await actor.next(1, lives[1], None)
        await actor.leave(1)
        first = (await actor.take())[-1]
        for result in (None, ("a",), ("b",)):
            more = await actor.next(0, lives[0], result)
        assert not more
        await actor.leave(0)
        return first, (await actor.take())[-1]

    line = "the inputs of worker 1 have ended after 0 steps; others go on"
    assert asyncio.run(news()) == ([line], [])


def test_results_that_nobody_takes_hold_the_workers_up():
    counted = StepCoordinator(1, None, most_results=2)
    counted.join(0, 0.0)
    for _ in range(2):
        assert counted.ask(0, 0.0) == GO
        counted.finish(0, "result", 0.0)
    assert counted.ask(0, 0.0) == WAIT
    counted.results.clear()
    assert counted.ask(0, 0.0) == GO
