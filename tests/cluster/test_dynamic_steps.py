"""Steps in the dynamic mode over tasks: queues, loops and conds on one task each, strings, shards."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.cluster.string_messages import pack_strings, unpack_strings
from tensorbow.errors import (
    CancelledError,
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
    UnavailableError,
)
from tests.cluster.servers import cluster_of, end, servers_here, start_process

pytestmark = pytest.mark.usefixtures("graph")

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


@pytest.fixture
def servers():
    with servers_here(ps=2, worker=2) as servers:
        yield servers


def await_wait(session):
    """Waits until a step runs that may wait."""
    while not session._waiting:
        time.sleep(0.001)


def queue_on_ps(capacity=4, name="tokens", **options):
    with tb.device(PS):
        return tb.FIFOQueue(capacity, [tb.float32], [[2]], shared_name=name, **options)


def test_sessions_of_different_tasks_share_a_queue_on_a_third(servers):
    def program(task):
        queue = queue_on_ps(name="shared")
        with tb.device(task):
            x = tb.placeholder(tb.float32, [2])
            return x, queue.enqueue([x * 2.0]), queue.dequeue() + 1.0, queue.size(), queue.close()

    x, put, *_ = program(WORKER)
    with tb.Graph().as_default() as other:
        *_, take, size, close = program("/job:worker/task:1")
    with (
        tb.Session(servers["worker0"].target) as one,
        tb.Session(servers["worker1"].target, other) as two,
    ):
        for number in range(3):
            one.run(put, {x: [number, 7.0]})
        assert two.run(size) == 3
        found = [two.run(take).tolist() for _ in range(3)]
        assert found == [[2 * number + 1, 15.0] for number in range(3)]
        two.run(close)
        with pytest.raises(OutOfRangeError, match=r"^/job:ps/task:0: .*FIFOQueue 'shared' is closed"):
            two.run(take)


def test_a_dequeue_waits_for_an_enqueue_of_another_session(servers):
    queue = queue_on_ps(name="waited")
    take, put = queue.dequeue(), queue.enqueue([tb.constant([1.0, 2.0])])
    with tb.Session(servers["worker0"].target) as one, tb.Session(servers["ps1"].target) as two:
        got = []
        thread = threading.Thread(target=lambda: got.append(one.run(take).tolist()))
        thread.start()
        await_wait(one)
        two.run(put)
        thread.join(60)
        assert got == [[1.0, 2.0]]


def test_runs_of_several_threads_lose_nothing(servers):
    with tb.device("/job:ps/task:1"):
        scale = tb.Variable(np.float32(2.0), name="scale")
    queue = queue_on_ps(1000, "counted")
    with tb.device(WORKER):
        x = tb.placeholder(tb.float32, [None, 2])
        kept = tb.boolean_mask(x, x[:, 0] > 0.0) * scale
        put = queue.enqueue_many([kept])
    everything = queue.dequeue_up_to(1000)
    with tb.Session(servers["worker0"].target) as session:
        session.run(scale.initializer)

        def add(first):
            for rows in (1, 2, 3):
                session.run(put, {x: [[first + row, -1.0] for row in range(rows)] + [[-5.0, 0.0]]})

        threads = [threading.Thread(target=add, args=(10.0 * n,)) for n in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        session.run(queue.close())
        got = sorted(session.run(everything)[:, 0].tolist())
    assert got == sorted(20.0 * n + 2 * row for n in range(1, 5) for rows in (1, 2, 3) for row in range(rows))


def test_an_error_in_a_loop_names_op_loop_and_task(servers):
    with tb.device("/job:worker/task:1"):
        x = tb.placeholder(tb.float32, [2])

        def body(i, a):
            return i + 1, a + tb.cast(
                tb.where(tb.check_numerics(1.0 / (2.0 - i) * x, "here") > 9.0)[:0, 0], tb.float32
            )

        found = tb.while_loop(lambda i, a: i < 4.0, body, [0.0, tb.zeros([0])])[1]
    with tb.device(PS):
        result = tb.reduce_sum(found) * 2.0
    with tb.Session(servers["worker0"].target) as session:
        with pytest.raises(
            InvalidArgumentError, match=r"^/job:worker/task:1: .*CheckNumerics.*here.*in iteration 2 of loop"
        ):
            session.run(result, {x: [1.0, 1.0]})
        assert session.run(tb.identity(tb.constant(1.0))) == 1.0


def test_closing_a_session_ends_what_waits_on_another_task(servers):
    take = queue_on_ps(name="empty").dequeue()
    session = tb.Session(servers["worker0"].target)
    errors = []

    def wait():
        try:
            session.run(take)
        except CancelledError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    await_wait(session)
    session.close()
    thread.join()
    assert [error.removeprefix(f"{PS}: ") for error in errors] == [
        "the session was closed while the step ran"
    ]


def test_loops_and_conds_run_whole_on_the_task_that_has_them(servers):
    with tb.device(PS):
        w = tb.Variable(np.array([2.0, 3.0], np.float32), name="w")
    with tb.device(WORKER):
        x = tb.placeholder(tb.float32, [None])
        until = tb.while_loop(lambda a: tb.reduce_sum(a) < 50.0, lambda a: a * w, [x])
        chosen = tb.cond(tb.reduce_sum(x) > 0.0, lambda: tb.where(until > 30.0), lambda: tb.where(x < 0.0))
        (slope,) = tb.gradients(until, [x])
    with tb.device("/job:worker/task:1"):
        after = tb.reduce_sum(tb.cast(chosen, tb.float32)) + tb.reduce_max(until)
    with tb.device(PS):
        update = tb.assign_add(w, tb.zeros([2]) + tb.cast(tb.shape(chosen)[0], tb.float32))
    fetches = {
        "until": until,
        "chosen": chosen,
        "after": after,
        "slope": slope,
        "w": w,
        "x": x,
        "c": tb.constant(5),
    }
    with tb.Session(servers["worker0"].target) as session, tb.Session(allow_soft_placement=True) as plain:
        for each in (session, plain):
            each.run(w.initializer)
        for value in ([1.0, 1.0], [4.0, 2.0], [-1.0, 1.0]):
            got, expected = session.run(fetches, {x: value}), plain.run(fetches, {x: value})
            for key in fetches:
                np.testing.assert_array_equal(got[key], expected[key], err_msg=key)
        for each in (session, plain):
            each.run(update, {x: [1.0, 1.0]})
        np.testing.assert_array_equal(session.run(w), plain.run(w))


def test_an_op_with_objects_of_two_tasks_is_refused(servers):
    with tb.device(PS):
        queue = tb.FIFOQueue(4, [tb.string], [[]], name="q")
    with tb.device(WORKER):
        _, value = tb.WholeFileReader(name="reader").read(queue)
    words = r"on /job:worker/task:0 uses FIFOQueue q on /job:ps/task:0: it is used on its own task only"
    with (
        tb.Session(servers["worker0"].target) as session,
        pytest.raises(InvalidArgumentError, match=words),
    ):
        session.run(value)


def test_a_compiled_branch_of_a_task_says_that_its_variable_has_no_value(servers):
    with tb.device(PS):
        w = tb.Variable(np.float32([3.0, 4.0]), name="w")
        x = tb.placeholder(tb.float32, [2])
        grown = tb.cond(
            x[0] > 9.0,
            lambda: x * w,
            lambda: tb.while_loop(lambda a: tb.reduce_sum(a) < 50.0, lambda a: a * 2.0, [x]),
        )
    with tb.device(WORKER):
        result = grown + 1.0
    with tb.Session(servers["worker0"].target) as session:
        with pytest.raises(FailedPreconditionError, match=r"^/job:ps/task:0: variables without a value: w"):
            session.run(result, {x: [10.0, 1.0]})
        session.run(w.initializer)
        assert session.run(result, {x: [1.0, 30.0]}).tolist() == [3.0, 61.0]
        assert session.run(result, {x: [10.0, 1.0]}).tolist() == [31.0, 5.0]


def test_strings_cross_tasks(servers):
    with tb.device(PS):
        names = tb.constant([["a", "bc"], ["", "d\0e"]])
        joined = tb.string_join([names, tb.placeholder(tb.string, [], "suffix")])
    with tb.device(WORKER):
        lengths = tb.string_length(joined)
        first = tb.string_join([joined[0, 1], "!"])
    with tb.Session(servers["worker1"].target) as session:
        got = session.run([joined, lengths, first], {"suffix:0": b"\xff"})
    assert got[0].tolist() == [[b"a\xff", b"bc\xff"], [b"\xff", b"d\0e\xff"]]
    assert got[1].tolist() == [[2, 3], [1, 4]]
    assert got[2] == b"bc\xff!"


def test_messages_of_strings():
    for array in (
        np.array(b"x", object),
        np.empty((0, 3), object),
        np.array([[b"", b"ab"], [b"c", b""]], object),
    ):
        data = pack_strings(array).tobytes()
        got = unpack_strings(data, array.shape)
        assert (got.shape, got.tolist()) == (array.shape, array.tolist())
        for wrong in (data + b"x", data[:-1]):
            if wrong != data:
                with pytest.raises(DataLossError, match="strings"):
                    unpack_strings(wrong, array.shape)


def test_random_ops_draw_anew_with_the_bits_of_one_process(servers):
    with tb.device(PS):
        noise = tb.random_normal([3], seed=7)
        kept = tb.boolean_mask(noise, noise < 100.0)
    with tb.Session(servers["worker0"].target) as session, tb.Session(allow_soft_placement=True) as plain:
        for _ in range(2):
            np.testing.assert_array_equal(session.run(kept), plain.run(kept))


def test_reset_drops_queues(servers):
    queue = queue_on_ps(name="dropped")
    put, size = queue.enqueue([[1.0, 2.0]]), queue.size()
    with tb.Session(servers["worker0"].target) as session:
        session.run(put)
        assert session.run(size) == 1
        tb.Session.reset(servers["worker0"].target)
        assert session.run(size) == 0
        with tb.Graph().as_default() as other, tb.device(PS):
            another = tb.FIFOQueue(4, [tb.int32], [[2]], shared_name="dropped").size()
        with (
            tb.Session(servers["worker0"].target, other) as two,
            pytest.raises(
                InvalidArgumentError, match="'dropped' belongs to an object made with other settings"
            ),
        ):
            two.run(another)


def test_each_task_writes_its_shard(servers, tmp_path):
    variables = []
    for task in range(2):
        with tb.device(f"/job:ps/task:{task}"):
            variables.append(tb.Variable(np.full(3, task + 1.0, np.float32), name=f"v{task}"))
    saver = tb.train.Saver(sharded=True)
    with tb.Session(servers["worker0"].target) as session:
        session.run(tb.global_variables_initializer())
        path = saver.save(session, tmp_path / "m")
        before = session.run(variables)
        session.run([tb.assign(v, v * 0.0) for v in variables])
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(variables), before)
        one = tb.train.Saver()
        session.run(one.saver_def.save_tensor_name, {one.saver_def.filename_tensor_name: str(tmp_path / "n")})
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "checkpoint",
        "m-00000-of-00002.safetensors",
        "m-00001-of-00002.safetensors",
        "m.index",
        "m.meta",
        "n.safetensors",
    ]
    assert tb.train.list_variables(tmp_path / "n") == [("v0", [3]), ("v1", [3])]


def test_input_pipelines_run_on_a_task(servers):
    with tb.device(PS):
        numbers = tb.train.range_input_producer(6, num_epochs=1, shuffle=False)
        batch = tb.train.batch([numbers.dequeue()], 4, allow_smaller_final_batch=True)
    with tb.device(WORKER):
        total = tb.reduce_sum(batch)
    with tb.Session(servers["worker0"].target) as session:
        session.run(tb.local_variables_initializer())
        coordinator = tb.train.Coordinator()
        threads = tb.train.start_queue_runners(session, coordinator)
        assert [session.run(total) for _ in range(2)] == [6, 9]
        with pytest.raises(OutOfRangeError):
            session.run(total)
        coordinator.request_stop()
        coordinator.join(threads)


def test_functions_of_python_stay_in_their_process(servers):
    called = tb.py_func(lambda: np.float32(2.0), [], tb.float32)
    with (
        tb.Session(servers["worker0"].target) as session,
        pytest.raises(InvalidArgumentError, match="PyFunc: a function of Python stays in its process"),
    ):
        session.run(called)


@pytest.mark.slow
def test_a_queue_of_tokens_on_a_task_in_another_process():
    """As in synchronous training with backup workers: who takes a token has the chief's step in it."""
    cluster = cluster_of(ps=1, worker=1)
    process = start_process(cluster, "ps", 0)
    try:
        with tb.device(PS):
            tokens = tb.FIFOQueue(-1, [tb.int64], [[]], shared_name="tokens")
            step = tb.Variable(np.int64(0), name="step")
        with tb.device(WORKER):
            with tb.control_dependencies([tb.assign_add(step, np.int64(1)).op]):
                put = tokens.enqueue_many([tb.fill([3], tb.identity(step) * 2)])
            token = tokens.dequeue() + 1
            written = tb.train.Saver(sharded=True).saver_def
        with tb.train.Server(cluster, "worker", 0) as server, tb.Session(server.target) as session:
            session.run(step.initializer)
            session.run(put)
            assert [session.run(token) for _ in range(3)] == [3, 3, 3]
            assert written.sharded
            errors = []

            def wait():
                try:
                    session.run(token)
                except UnavailableError as error:
                    errors.append(str(error))

            thread = threading.Thread(target=wait)
            thread.start()
            await_wait(session)
            end(process)
            thread.join()
            assert "/job:ps/task:0 is unavailable" in errors[0]
    finally:
        end(process)


@pytest.mark.slow
def test_a_task_in_another_process_writes_its_shard(tmp_path):
    cluster = cluster_of(ps=1, worker=1)
    process = start_process(cluster, "ps", 0)
    try:
        with tb.device(PS):
            w = tb.Variable([1.0, 2.0], name="w")
        with tb.device(WORKER):
            v = tb.Variable([3.0], name="v")
        saver = tb.train.Saver(sharded=True)
        with tb.train.Server(cluster, "worker", 0) as server, tb.Session(server.target) as session:
            session.run(tb.global_variables_initializer())
            path = saver.save(session, tmp_path / "m")
            session.run([w.assign([0.0, 0.0]), v.assign([0.0])])
            saver.restore(session, path)
            assert [value.tolist() for value in session.run([w, v])] == [[1, 2], [3]]
    finally:
        end(process)
