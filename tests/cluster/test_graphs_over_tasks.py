"""Steps whose parts run on several tasks, whose servers are in this process but talk over sockets."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensorbow as tb
import tensorbow as tf
from tensorbow.cluster.task import ClusterTask
from tensorbow.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
    UnimplementedError,
)
from tensorbow.runtime import long_wait
from tensorbow.runtime.prepared_variables import prepare_variables
from tests.cluster.servers import free_addresses, servers_here

pytestmark = pytest.mark.usefixtures("graph")


@pytest.fixture
def servers():
    with servers_here(ps=2, worker=2) as servers:
        yield servers


def model(ps=("/job:ps/task:0", "/job:ps/task:1"), worker="/job:worker/task:0"):
    """Input, loss and update of two layers, with weights and biases on different tasks."""
    with tb.device(ps[0]):
        w = tb.Variable(np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3), name="w")
        v = tb.Variable(np.linspace(1, 2, 6, dtype=np.float32).reshape(3, 2), name="v")
    with tb.device(ps[1]):
        b = tb.Variable(np.full(3, 0.5, np.float32), name="b")
    with tb.device(worker):
        x = tb.placeholder(tb.float32, [None, 5], name="x")
        loss = tb.reduce_mean(tb.square(tb.matmul(tb.nn.relu(tb.matmul(x, w) + b), v) - 1.0))
        update = tb.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    return x, loss, update, [w, v, b]


X = np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)


def trained(target, x, loss, update, variables):
    options = {} if target else {"allow_soft_placement": True}
    with tb.Session(target, **options) as session:
        session.run(tb.global_variables_initializer())
        losses = [session.run([loss, update], {x: X})[0] for _ in range(5)]
        return losses, session.run(variables)


@pytest.mark.slow
def test_a_step_over_three_tasks_has_the_bits_of_one_process(servers):
    parts = model()
    losses, values = trained(servers["worker0"].target, *parts)
    expected, those = trained("", *parts)
    assert losses == expected
    for value, other in zip(values, those, strict=True):
        np.testing.assert_array_equal(value, other)


def test_the_listing_of_section_2_1(servers):
    """TF-Replicator's first listing as printed; what it leaves open is filled in."""
    with tf.device("/job:ps/task:0"):
        w = tf.Variable(np.ones((3, 2), np.float32))
        b = tf.Variable(np.array([-1.0, 2.0], np.float32))
    with tf.device("/job:worker/task:0"):
        inputs = np.full((4, 3), 2, np.float32)
        y = tf.nn.relu(tf.matmul(inputs, w) + b)
    with tf.Session(servers["worker0"].target) as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(y), np.tile(np.float32([5, 8]), (4, 1)))


def test_clients_share_variables_by_name(servers):
    with tb.device("/job:ps/task:1"):
        count = tb.Variable(np.int64(0), name="count")
    with tb.Session(servers["worker0"].target) as one:
        one.run(count.initializer)
        with tb.Graph().as_default(), tb.device("/job:ps/task:1"):
            again = tb.Variable(np.int64(7), name="count")
            more = tb.assign_add(again, np.int64(5))
            with tb.Session(servers["worker1"].target.replace("tcp", "grpc")) as other:
                assert other.run(more) == 5
        assert one.run(count) == 5
        with tb.Graph().as_default(), tb.device("/job:ps/task:1"):
            wrong = tb.Variable(np.zeros(2, np.float32), name="count")
            with (
                tb.Session(servers["worker0"].target) as other,
                pytest.raises(
                    InvalidArgumentError, match=r"count on /job:ps/task:1.*as another session made it"
                ),
            ):
                other.run(wrong.initializer)
    with tb.Session(servers["ps0"].target) as later:
        assert later.run(count) == 5


def test_containers_tell_variables_of_one_name_apart(servers):
    def count_in(container, value):
        with tb.Graph().as_default() as graph, tb.container(container), tb.device("/job:ps/task:0"):
            return graph, tb.Variable(np.int64(value), name="count")

    (first, a), (second, b) = count_in("first", 1), count_in("second", 2)
    target = servers["worker0"].target
    with tb.Session(target, first) as one, tb.Session(target, second) as two:
        one.run(a.initializer)
        two.run(b.initializer)
        assert (one.run(a), two.run(b)) == (1, 2)
        tb.Session.reset(target, ["first"])
        assert two.run(b) == 2
        with pytest.raises(
            FailedPreconditionError, match=r"/job:ps/task:0.*variables without a value: first"
        ):
            one.run(a)
        one.load_variables({"count": 9})
        assert one.run(a) == 9


def test_what_a_checkpoint_lacks_is_initialised_and_asked_for_at_once(servers, monkeypatch):
    asked, without_value = [], ClusterTask.without_value

    def counted(task, names):
        asked.append(names)
        return without_value(task, names)

    monkeypatch.setattr(ClusterTask, "without_value", counted)
    with tb.device("/job:ps/task:0"), tb.container("box"):
        variables = [tb.Variable(np.int64(number), name=f"v{number}") for number in range(4)]
    with tb.device("/job:worker/task:1"):
        variables.append(tb.Variable(np.int64(4), name="v4"))
    initializer = tb.global_variables_initializer()
    with tb.Session(servers["worker0"].target) as session:

        def restore():
            session.load_variables({"v1": 10, "v3": 30})
            return True

        assert prepare_variables(session, initializer, restore)
        assert len(asked) == 2  # once for each task
        assert session.run(variables) == [0, 10, 2, 30, 4]
        session.run(tb.assign_add(variables[0], np.int64(5)).op)
        assert prepare_variables(session, initializer, lambda: True)
        assert session.run(variables) == [5, 10, 2, 30, 4]


def test_steps_of_several_threads_lose_no_update(servers):
    with tb.device("/job:ps/task:0"):
        total = tb.Variable(np.zeros(3, np.float32), name="total")
    with tb.device("/job:worker/task:1"):
        amount = tb.placeholder(tb.float32, [3], name="amount")
        update = tb.assign_add(total, amount * 2.0)
    with tb.Session(servers["worker0"].target) as session:
        session.run(total.initializer)

        def add():
            for _ in range(20):
                session.run(update.op, {amount: np.float32([1, 2, 3])})

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(session.run(total), [160, 320, 480])


@pytest.mark.slow
def test_values_go_back_and_forth(servers):
    """Stages of tasks wait for one another several times in one step; fed and constant values are fetched."""
    x = tb.placeholder(tb.float32, [2], name="x")
    y, places = x, ["/job:ps/task:0", "/job:worker/task:1/cpu:1", "/job:worker/task:1/cpu:0"]
    for turn in range(7):
        with tb.device(places[turn % 3]):
            y = tb.matmul(tb.reshape(y, [1, 2]), np.float32([[0, 1], [2, 0]])) + np.float32(turn)
    with tb.device("/job:ps/task:1"):
        noise, seven = tb.random_normal([2], seed=5), tb.constant(7.0)
    fetches = {"y": y, "x": x, "seven": seven, "noise": noise, "nothing": tb.group(y.op)}
    with tb.Session(servers["worker0"].target) as session, tb.Session(allow_soft_placement=True) as plain:
        first, second = (session.run(fetches, {"x:0": [3, 4]}) for _ in range(2))
        expected = plain.run(y, {x: [3, 4]})
        fed = session.run([y, noise], {x: [0, 0], noise: [5, 6]})
    np.testing.assert_array_equal(first["y"], expected)
    assert (first["seven"], first["x"].tolist(), first["nothing"]) == (7, [3, 4], None)
    assert (first["noise"] != second["noise"]).all()
    assert fed[1].tolist() == [5, 6]


@pytest.mark.slow
def test_variables_take_turns_on_parameter_tasks(servers):
    cluster = servers["ps0"].server_def
    setter = tb.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:1")
    with tb.device(setter):
        a, b, c = (tb.Variable(np.ones(2, np.float32), name=name) for name in "abc")
        loss = tb.reduce_sum(a * b * c)
        update = tb.train.AdamOptimizer(0.1).minimize(loss)
    assert [v.op.device for v in (a, b, c)] == ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0"]
    assert loss.op.device == "/job:worker/task:1"
    with tb.Session(servers["worker0"].target) as session:
        session.run(tb.global_variables_initializer())
        session.run(update)
        placed = {op.name: str(device.name) for op, device in session._fixed.items()}
    slots = {name: place for name, place in placed.items() if name.startswith("b/")}
    assert len(slots) >= 2
    assert set(slots.values()) == {"/job:ps/task:1/device:CPU:0"}
    assert tb.train.replica_device_setter() is None
    turns = tb.train.replica_device_setter(3, ps_strategy=lambda op: 2)
    with tb.device(turns):
        assert tb.Variable(1.0).op.device == "/job:ps/task:2"
    with pytest.raises(
        InvalidArgumentError, match=r"expected a job of the cluster as ps_device, got '/job:p'"
    ):
        tb.train.replica_device_setter(cluster=cluster, ps_device="/job:p")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_rows_are_gathered_where_the_shards_of_a_table_are(servers, strategy):
    values = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)
    cuts = [slice(0, 7, 2), slice(1, 7, 2)] if strategy == "mod" else [slice(4), slice(4, 7)]
    shards = []
    for task, cut in enumerate(cuts):
        with tb.device(f"/job:ps/task:{task}"):
            shards.append(tb.Variable(values[cut], name=f"shard{task}"))
    with tb.device("/job:worker/task:0"):
        ids = tb.placeholder(tb.int64, [None, 2], name="ids")
        rows = tb.nn.embedding_lookup(shards, ids, strategy)
        update = tb.train.GradientDescentOptimizer(1.0).minimize(tb.reduce_sum(rows))
    asked = np.array([[6, 0], [3, 3], [5, 6]])
    with tb.Session(servers["worker0"].target) as session:
        session.run(tb.global_variables_initializer())
        np.testing.assert_array_equal(session.run(rows, {ids: asked}), values[asked])
        places = session._placed(tb.get_default_graph().get_operations())
        session.run(update, {ids: asked})
        after = session.run(shards)
        for beyond in (-1, 7):
            with pytest.raises(InvalidArgumentError, match=r"^/job:ps/task:[01]: Gather"):
                session.run(rows, {ids: [[0, beyond]]})
    gathers = [place for op, place in places.items() if "Gather" in op.type and "gradients" not in op.name]
    assert gathers == [f"/job:ps/task:{task}/device:CPU:0" for task in range(2)]
    expected = values - np.bincount(asked.ravel(), minlength=7)[:, None]
    for cut, own in zip(cuts, after, strict=True):
        np.testing.assert_allclose(own, expected[cut], rtol=1e-6)
    with pytest.raises(InvalidArgumentError, match=r"with 4, 3 rows \(strategy 'div'\), got float32\[3, 3\]"):
        tb.nn.embedding_lookup([values[:3], values[3:]], [0], "div")


def test_errors_of_tasks_have_their_names_and_leave_the_session_usable(servers):
    with tb.device("/job:ps/task:0"):
        w = tb.Variable(np.ones((3, 2), np.float32), name="w")
    with tb.device("/job:worker/task:1"):
        ids = tb.placeholder(tb.int64, [None], name="ids")
        rows = tb.gather(w * 2.0, ids)
    with tb.Session(servers["worker0"].target) as session:
        with pytest.raises(FailedPreconditionError, match=r"^/job:ps/task:0: variables without a value: w;"):
            session.run(rows, {ids: [0]})
        session.run(w.initializer)
        with pytest.raises(InvalidArgumentError, match=r"^/job:worker/task:1: Gather"):
            session.run(rows, {ids: [0, 3]})
        assert session.run(rows, {ids: [2]}).tolist() == [[2, 2]]
        with tb.device("/job:ps/task:7"):
            lost = tb.constant(1.0) + w
        with pytest.raises(
            InvalidArgumentError, match=r"/job:ps/task:7, which does not exist; there are: tasks"
        ):
            session.run(lost)
        with pytest.raises(NotFoundError, match=r"no variable 'u'; there are: w"):
            session.load_variables({"u": 1})
        with pytest.raises(UnimplementedError, match=r"^explain: .* plain tb\.Session"):
            session.explain(rows)
        with pytest.raises(InvalidArgumentError, match=r"^partial_run_setup: expected a plain tb\.Session"):
            session.partial_run_setup(rows, [ids])
        with pytest.raises(InvalidArgumentError, match=r"^partial_run: expected the handle .*'none'"):
            session.partial_run("none", rows)
        session.trim()
        assert session.run(rows, {ids: [1]}).tolist() == [[2, 2]]
    with pytest.raises(FailedPreconditionError, match="the session is closed"):
        session.run(w)


@pytest.mark.slow
def test_a_saver_restores_variables_at_their_tasks(servers, tmp_path):
    x, loss, update, variables = model()
    saver = tb.train.Saver()
    target = servers["worker0"].target
    with tb.Session(target) as session:
        session.run(tb.global_variables_initializer())
        session.run(update, {x: X})
        path = saver.save(session, tmp_path / "model")
        before = session.run([loss, *variables], {x: X})
        tb.Session.reset(target)
    with tb.Session(target) as session:
        saver.restore(session, path)
        after = session.run([loss, *variables], {x: X})
    for value, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(value, other)


@pytest.mark.slow
def test_a_supervisor_restores_and_the_others_wait_for_the_chief(servers, tmp_path):
    x, _, update, (w, *_) = model()
    step = tb.train.create_global_step()
    count = tb.assign_add(step, np.int64(1))
    target = servers["worker0"].target
    for expected in (3, 6):
        supervisor = tb.train.Supervisor(logdir=tmp_path)
        with supervisor.managed_session(target) as session:
            assert tb.get_default_session() is session
            while not supervisor.should_stop():
                session.run(update, {x: X})
                if session.run(count) == expected:
                    supervisor.request_stop()
        assert tb.train.latest_checkpoint(tmp_path).endswith(f"-{expected}.safetensors")
        tb.Session.reset(target)
    other = tb.train.Supervisor(is_chief=False)
    with pytest.raises(DeadlineExceededError, match=r"waited 0\.1 s: the chief has not initialised"):
        other.prepare_or_wait_for_session(target, max_wait_secs=0.1)
    with tb.Session(target) as chief:
        chief.run(tb.global_variables_initializer())
    assert other.prepare_or_wait_for_session(target).run(w).shape == (5, 3)
    other.stop()


def test_a_supervisor_takes_an_operation_that_initialises_and_a_step_that_numbers(servers, tmp_path):
    with tb.device("/job:ps/task:1"):
        w, steps = tb.get_variable("w", [2]), tb.get_variable("steps", [], tb.int64, initializer="zeros")
    options = {"init_op": tb.group(w.assign([3.0, 4.0]), steps.initializer), "global_step": steps}
    supervisor = tb.train.Supervisor(logdir=tmp_path, **options)
    with supervisor.managed_session(servers["worker0"].target) as session:
        assert session.run(w).tolist() == [3, 4]
        session.run(steps.assign_add(7))
    assert tb.train.latest_checkpoint(tmp_path).endswith("-7.safetensors")


@pytest.mark.parametrize("by", ["MonitoredTrainingSession", "Supervisor"])
def test_a_chief_that_is_started_again_restores_while_others_train_and_initialises_nothing(
    servers, tmp_path, monkeypatch, by
):
    """Another worker's step just before the chief restores goes on from what the tasks have."""
    restore, target, others = tb.train.Saver.restore, servers["worker0"].target, []

    def chief_session():
        if by == "Supervisor":
            return tb.train.Supervisor(logdir=tmp_path).managed_session(target)
        return tb.train.MonitoredTrainingSession(target, checkpoint_dir=tmp_path)

    def restore_late(saver, session, path):
        others.append(other.run(update))
        restore(saver, session, path)

    with tb.device("/job:ps/task:0"):
        step = tb.train.create_global_step()
        update = tb.assign_add(step, np.int64(1))
    with chief_session() as session:
        session.run(update)
    monkeypatch.setattr(tb.train.Saver, "restore", restore_late)
    with tb.Session(target) as other:
        assert [other.run(update) for _ in range(3)] == [2, 3, 4]
        with tb.device("/job:ps/task:1"):
            tb.Variable(np.float32(7), name="since")  # a variable of no checkpoint
        saver = tb.train.Saver([step])
        monkeypatch.setattr("tensorbow.training.scaffold.Saver", lambda: saver)
        monkeypatch.setattr("tensorbow.training.supervisor.Saver", lambda: saver)
        with chief_session() as session:
            assert others == [5]
            assert session.run(step) == 1
            assert session.run("since:0") == 7
            assert other.run(update) == 2  # trains on from the checkpoint


def test_scaffolds_of_a_chief_and_of_a_worker_that_waits(servers):
    """A worker's local variables and pieces are its own; it waits for what the chief initialises."""
    target, told = servers["worker0"].target, threading.Event()
    with tb.device("/job:ps/task:1"), tb.container("box"):
        w = tb.Variable(np.float32([1, 2]), name="w")
    with tb.device("/job:worker/task:1"):
        local = tb.get_local_variable("local", [], initializer=tb.ones_initializer())
    report, of_w = tb.report_uninitialized_variables(), tb.report_uninitialized_variables([w])
    with tb.Session(target) as session:
        assert session.run(report).tolist() == [b"w", b"local"]

    def init_fn(scaffold, session):
        assert session.run(of_w).shape == (0,)
        told.wait(10)

    chief = tb.train.Scaffold(init_op=w.initializer, init_fn=init_fn)
    worker = tb.train.Scaffold(local_init_op=local.assign(5.0), ready_for_local_init_op=of_w, ready_op=report)
    hasty = tb.train.WorkerSessionCreator(worker, target, max_wait_secs=0.1)
    with pytest.raises(FailedPreconditionError, match=r"waited 0\.1 s for the chief to initialise w;"):
        tb.train.MonitoredSession(hasty)
    made = []

    def prepare():
        made.append(tb.train.MonitoredTrainingSession(target, scaffold=chief, graph=w.graph))

    thread = threading.Thread(target=prepare)
    thread.start()
    with tb.train.MonitoredTrainingSession(target, is_chief=False, scaffold=worker) as session:
        assert session.run(w).tolist() == [1, 2]
        assert session.run(local) == 5
        told.set()
        thread.join()
        assert session.run(report).shape == (0,)
        assert session.run(local) == 1  # initialised by the chief's default, since the graph is one
    made[0].close()


def test_long_waits_for_other_processes_are_told_of_once(servers, monkeypatch, caplog):
    monkeypatch.setattr(long_wait, "TOLD_S", 0.01)
    target, (silent,) = servers["worker0"].target, free_addresses(1)

    def told(wait, said):
        caplog.clear()
        with pytest.raises((UnavailableError, FailedPreconditionError, DeadlineExceededError)):
            wait()
        assert sum(said in line for line in caplog.messages) == 1, caplog.messages

    told(
        lambda: tb.Session(f"tcp://{silent}", connect_timeout_s=0.2),
        "start its tb.train.Server; this process",
    )
    with tb.device("/job:worker/task:0"):
        tb.get_variable("weight_of_no_chief", [2])
    not_yet = "has not initialised weight_of_no_chief; start the chief; this process waits up to 0.3 s"
    limit = {"max_wait_secs": 0.3}
    told(lambda: tb.train.MonitoredTrainingSession(target, is_chief=False, **limit), not_yet)
    scaffold = tb.train.Scaffold(ready_for_local_init_op=tb.report_uninitialized_variables())
    creator = tb.train.WorkerSessionCreator(scaffold, target, **limit)
    told(lambda: tb.train.MonitoredSession(creator), not_yet)
    supervisor = tb.train.Supervisor(is_chief=False)
    told(lambda: supervisor.prepare_or_wait_for_session(target, **limit), not_yet)


# Addresses and tokens -----------------------------------------------------------------------------


def test_a_cluster_spec_answers_questions():
    spec = tb.train.ClusterSpec({"ps": ["a:1", "b:2"], "worker": {1: "c:3", 4: "d:4"}})
    assert spec.jobs == ["ps", "worker"]
    assert (spec.num_tasks("ps"), spec.task_indices("worker")) == (2, [1, 4])
    assert spec.job_tasks("worker") == [None, "c:3", None, None, "d:4"]
    assert spec.as_dict() == {"ps": ["a:1", "b:2"], "worker": {1: "c:3", 4: "d:4"}}
    assert spec == tb.train.ClusterSpec(spec)
    assert spec.task_address("worker", 4) == "d:4"
    for wrong, said in (
        ({"ps": ["a"]}, "host:port"),
        ({"ps": "a:1"}, "a dictionary of addresses by job"),
        ({"ps": ["a:1"], "worker": ["a:1"]}, "'a:1' twice"),
        ({"p s": ["a:1"]}, "job"),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            tb.train.ClusterSpec(wrong)
    with pytest.raises(NotFoundError, match=r"no job 'chief'; there are: ps, worker"):
        spec.num_tasks("chief")
    with pytest.raises(NotFoundError, match=r"has no task 0; there are: 1, 4"):
        spec.task_address("worker", 0)


@pytest.mark.slow
def test_processes_prove_that_they_know_the_token(caplog):
    (address,) = free_addresses(1)
    x = tb.constant(2.0) * 3.0
    with tb.train.Server({"local": [address]}, token="one secret") as server:
        with pytest.raises(PermissionDeniedError, match=r"it knows another token; give all processes"):
            tb.Session(server.target, token="another", connect_timeout_s=5)
        said = "/job:local/task:0 refuses a connection of 127.0.0.1: it knows another token"
        assert said in caplog.messages
        with tb.Session(server.target) as session:  # of this process: knows its server's token
            assert session.run(x) == 6
        with pytest.raises(UnavailableError, match=r"cannot be listened on.*give /job:local/task:0 another"):
            tb.train.Server({"local": [address]})
    with pytest.raises(UnavailableError, match=r"does not answer .* start its tb\.train\.Server"):
        tb.Session(f"tcp://{address}", connect_timeout_s=0.1)
    with pytest.raises(UnavailableError, match=r"does not answer.*; this session has waited 0\.1 s"):
        tb.train.MonitoredSession(target=f"tcp://{address}", max_wait_secs=0.1, connect_timeout_s=0.1)
    with pytest.raises(
        InvalidArgumentError, match=r"expected a token for 192\.0\.2\.1, which other machines may"
    ):
        tb.train.Server({"local": ["192.0.2.1:2222"]})
    with tb.train.Server.create_local_server() as server, tb.Session(server.target) as session:
        assert session.run(x) == 6


@pytest.mark.slow
def test_parts_of_a_variable_live_on_parameter_tasks_in_turn(servers, tmp_path):
    """Three parts on two tasks: rows, a step, and a checkpoint of the whole."""
    target = servers["worker0"].target
    table = np.arange(14, dtype=np.float32).reshape(7, 2)
    with tb.device(tb.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:0")):
        w = tb.get_variable("w", initializer=table, partitioner=tb.fixed_size_partitioner(3))
        rows = tb.nn.embedding_lookup(w, [6, 0, 3], "div")
        update = tb.train.GradientDescentOptimizer(0.5).minimize(tb.reduce_sum(rows))
        whole = w.as_tensor()
    assert [part.device[-1] for part in w] == ["0", "1", "0"]
    with tb.Session(target) as session:
        session.run(tb.global_variables_initializer())
        np.testing.assert_array_equal(session.run(rows), table[[6, 0, 3]])
        session.run(update)
        table[[6, 0, 3]] -= 0.5
        np.testing.assert_array_equal(session.run(whole), table)
        path = tb.train.Saver().save(session, tmp_path / "w")
        session.run(update)
        tb.train.Saver({"w": w}).restore(session, path)
        np.testing.assert_array_equal(session.run(whole), table)


def test_loops_with_gradients_run_on_a_server(servers):
    x = tb.placeholder(tb.float64, [3])
    w = tb.Variable(np.array([1.0, 2, 3]), name="w")
    power = tb.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * w), [0, x])[1]
    fetched = [power, *tb.gradients(power, [x, w]), tb.map_fn(lambda v: v * v, x)]
    until = tb.while_loop(lambda a: tb.reduce_sum(a) < 50.0, lambda a: a * w, [x])
    with tb.Session(servers["worker0"].target) as session:
        session.run(w.initializer)
        found = session.run(fetched, {x: [1, 1, 2]})
        for got, expected in zip(found, ([1, 8, 54], [1, 8, 27], [3, 12, 54], [1, 1, 4]), strict=True):
            np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(session.run(until, {x: [1, 1, 1]}), [1, 16, 81])
