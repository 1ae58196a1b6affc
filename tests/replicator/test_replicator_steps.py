"""Results of a replicated step: the engine's bits, the plain session's bits, any nest, any input."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import replicator
import scheduler.session
import tensorbow as tb
from scheduler import Stepper, StepProgram
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")

RNG = np.random.default_rng(5)
X = RNG.normal(size=(96, 5)).astype(np.float32)
Y = (X @ RNG.normal(size=(5, 3))).astype(np.float32)


def network(x, y, optimizer):
    """Loss and update of a small network with dropout."""
    w = tb.Variable(np.full((5, 3), 0.1, np.float32), name="w")
    b = tb.Variable(np.zeros(3, np.float32), name="b")
    hidden = tb.nn.dropout(x, rate=0.25, seed=9)
    loss = tb.reduce_mean(tb.square(tb.matmul(hidden, w) + b - y))
    return loss, optimizer.minimize(loss)


def rows(replica, round, size=4):
    first = (7 * round + 11 * replica) % 90
    return X[first : first + size], Y[first : first + size]


def input_fn(replica_id):
    round = 0
    while True:
        yield rows(replica_id, round)
        round += 1


def trained(make, steps=8):
    """Losses and z of a replicator's training."""
    with make() as repl:
        optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.05, 0.9))
        losses = list(repl.train(lambda x, y: network(x, y, optimizer)[0:2], input_fn, steps))
        assert all(update is None for _, update in losses)
        return np.stack([loss for loss, _ in losses]), repl.central_values()


def plain_program(optimizer):
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [4, 5], name="inputs_0")
        y = tb.placeholder(tb.float32, [4, 3], name="inputs_1")
        loss, update = network(x, y, optimizer)
    return graph, x, y, loss, update


def test_one_replica_is_the_plain_session_bit_for_bit():
    losses, central = trained(lambda: tb.NonReplicator("/cpu:0"))
    graph, x, y, loss, update = plain_program(tb.train.MomentumOptimizer(0.05, 0.9))
    with graph.as_default(), tb.Session() as session:
        session.run(tb.global_variables_initializer())
        expected = [
            session.run([loss, update], dict(zip((x, y), rows(0, round), strict=True)))[0]
            for round in range(8)
        ]
        for name in ("w", "b"):
            assert session.run(f"{name}:0").tobytes() == central[name].tobytes()
    assert losses[:, 0].tobytes() == np.array(expected).tobytes()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:central_values")  # of independent replicas, of which it is the first's
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tau": 3, "alpha": 0.2, "mu": 0.1},
        {"staleness": 1},
        {"sync": "ssgd"},
        {"sync": "none"},
        {"ssgd_from": 3, "clear_velocity": True},
    ],
)
@pytest.mark.parametrize("devices", [1, 2])
def test_several_replicas_are_the_engine_bit_for_bit(options, devices):
    names = [f"/cpu:{i}" for i in range(devices)]
    losses, central = trained(lambda: tb.MultiGpuReplicator(names, 2, **options))
    again, _ = trained(lambda: tb.MultiGpuReplicator(names, 2, **options))
    assert losses.tobytes() == again.tobytes()
    _, x, y, loss, update = plain_program(tb.train.MomentumOptimizer(0.05, 0.9))
    program = StepProgram((x, y), None, update, {"loss": loss})
    with tb.LearningEngine(program, 4, names, 2, tb.Synchronisation(**options)) as engine:
        engine.initialize()
        with Stepper(engine) as stepper:
            expected = [
                [result.metrics[0] for result in stepper.step([rows(i, t) for i in range(2 * devices)])]
                for t in range(8)
            ]
        for name in ("w", "b"):
            assert engine.central_values()[name].tobytes() == central[name].tobytes()
    assert losses.tolist() == expected


def test_a_schedule_is_followed():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none")

    def step(x):
        w = tb.Variable(np.zeros(2, np.float32), name="w")
        schedule = tb.train.PiecewiseConstant([2], [1.0, 0.5])
        optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(schedule))
        with tb.control_dependencies([optimizer.minimize(tb.reduce_sum(w * x))]):
            return w.read_value()

    seen = [w[0, 0] for w in repl.train(step, lambda: np.ones(2, np.float32), 4)]
    assert seen == [-1, -2, -3, -3.5]


def test_each_of_two_optimisers_of_a_step_has_its_rate():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none")

    def step():
        rates = [
            tb.train.PiecewiseConstant([1], [1.0, 0.5]),
            0.25,
            tb.train.PiecewiseConstant([0], [1.0, 4.0]),
        ]
        variables = [tb.Variable(np.zeros(1, np.float32)) for _ in rates]
        updates = [
            repl.wrap_optimizer(tb.train.GradientDescentOptimizer(rate)).minimize(tb.reduce_sum(v))
            for rate, v in zip(rates, variables, strict=True)
        ]
        with tb.control_dependencies(updates):
            return [v.read_value() for v in variables]

    (*_, last) = repl.train(step, steps=3)
    assert [w[1, 0] for w in last] == [-2.5, -0.75, -9]


def test_input_per_worker_is_split():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
    whole = np.arange(12, dtype=np.float32).reshape(6, 2)
    out = repl.run(lambda x: tb.identity(x), lambda: iter([whole]), tb.PER_WORKER)
    odd = repl.run(
        lambda x: tb.reduce_sum(x),
        lambda: whole,
        tb.PER_WORKER,
        input_split_fn=lambda nest, replicas: [nest[i::replicas] for i in range(replicas)],
    )
    with repl, tb.Session() as session:
        repl.init(session)
        assert session.run(out).reshape(6, 2).tolist() == whole.tolist()
        assert session.run(odd).tolist() == [0 + 1 + 4 + 5 + 8 + 9, 2 + 3 + 6 + 7 + 10 + 11]
        assert session.run(odd).tolist() == [0 + 1 + 4 + 5 + 8 + 9, 2 + 3 + 6 + 7 + 10 + 11]


def test_several_steps_share_the_replicas():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
    with repl.context():
        w = tb.Variable(np.zeros(2, np.float32), name="w")
        optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.5))
    train = repl.run(lambda x: optimizer.minimize(tb.reduce_sum(tb.square(w - x))), lambda: np.ones(2, "f4"))
    look = repl.run(lambda: w)
    with repl, tb.Session() as session:
        repl.init(session)
        assert not session.run(look).any()
        assert session.run(train) is None
        assert (session.run(look) != 0).all()
        assert session.run(look).shape == (2, 2)


def run_once(input_fn, *more, replicas=3):
    """Arguments that `step_fn` receives in one run, fetched."""
    repl = tb.MultiGpuReplicator(["/cpu:0"], replicas)
    (seen,) = repl.train(lambda *nest: nest, input_fn, 1, *more)
    return seen


def test_tensors_as_input_are_built_into_the_step():
    (twice,) = run_once(lambda: tb.ones([2]) * 2.0)
    assert twice.tolist() == [[2, 2]] * 3
    calls = []
    (numbers, flags) = run_once(
        lambda replica_id: calls.append(replica_id) or (tb.constant(replica_id), [True])
    )
    assert numbers.tolist() == [0, 1, 2]
    assert flags[0].tolist() == [True] * 3
    assert calls == [0, 1, 2]
    (batch,) = run_once(
        lambda ctx: calls.append(ctx) or tb.random_uniform([ctx.per_replica_batch_size(9)], seed=1)
    )
    assert batch.shape == (3, 3)
    assert len({row.tobytes() for row in batch}) == 3
    assert len(calls) == 4  # it is the same for all replicas, so it is built once


def test_tensors_of_a_worker_are_split():
    whole = np.arange(12, dtype=np.float32).reshape(6, 2)
    (own,) = run_once(lambda: tb.constant(whole), tb.PER_WORKER)
    assert own.reshape(6, 2).tolist() == whole.tolist()
    (mixed,) = run_once(lambda: {"x": tb.constant(whole), "y": np.arange(3)}, tb.PER_WORKER)
    assert mixed["x"].reshape(6, 2).tolist() == whole.tolist()
    assert mixed["y"].tolist() == [[0], [1], [2]]
    (every_third,) = run_once(
        lambda: tb.constant(whole), tb.PER_WORKER, lambda x, n: [x[i::n] for i in range(n)]
    )
    assert every_third.tolist() == [whole[i::3].tolist() for i in range(3)]
    with pytest.raises(InvalidArgumentError, match=r"inputs\['x'\]: 4 rows do not split over 3 replicas"):
        run_once(lambda: {"x": tb.ones([4, 3])}, tb.PER_WORKER)
    with pytest.raises(InvalidArgumentError, match="inputs: a scalar does not split"):
        run_once(lambda: tb.constant(1.0), tb.PER_WORKER)
    with pytest.raises(
        InvalidArgumentError, match=r"inputs of replica 1: expected float32.* as of replica 0"
    ):
        run_once(lambda replica_id: tb.ones([2 + replica_id]))


def test_replica_id_and_num_replicas():
    repl = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], (1, 2))
    out = repl.run(lambda: (tb.replica_id(), tb.num_replicas()))
    with repl, tb.Session() as session:
        repl.init(session)
        assert [value.tolist() for value in session.run(out)] == [[0, 1, 2], [3, 3, 3]]


def test_evaluation_in_the_steps_graph():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
    with repl.context():
        w = tb.Variable(np.zeros(2, np.float32), name="w")
        norm = tb.reduce_sum(tb.square(w))
        optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))
    for _ in repl.train(lambda x: optimizer.minimize(tb.reduce_sum(w * x)), lambda: np.ones(2, "f4"), 3):
        pass
    with tb.Session(graph=repl.graph) as session:
        session.load_variables(repl.central_values())
        assert session.run(norm) > 0


@pytest.mark.slow
def test_neither_replicators_nor_tensorbow_session_own_buffers_or_streams():
    owners = {"stream_group", "StreamGroup", "Stream", "Binding", "RegionMemory", "allocator", "allocators"}
    owners |= {"allocate", "enqueue", "Container", "Replica", "Learners"}
    files = [*Path(replicator.__file__).parent.rglob("*.py"), Path(scheduler.session.__file__)]
    assert len(files) > 8
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        assert not names & owners, f"{file.name} uses {sorted(names & owners)}"


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["sma", "ssgd", "none"])
def test_replicas_exchange_tensors_in_a_step(sync):
    with tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], replicas_per_gpu=2, sync=sync) as repl:
        optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.05))

        def step_fn(x, y):
            loss, update = network(x, y, optimizer)
            rows = tb.reduce_max(tb.all_gather(x), 0)
            return tb.all_sum(x), rows, tb.broadcast(x[0], 3), loss, update

        for round, (total, largest, first, *_) in enumerate(repl.train(step_fn, input_fn, 3)):
            batches = [rows(replica, round)[0] for replica in range(4)]
            for replica in range(4):
                np.testing.assert_allclose(total[replica], sum(batches), rtol=1e-5, atol=1e-5)
                np.testing.assert_array_equal(largest[replica], np.max(batches, 0))
                np.testing.assert_array_equal(first[replica], batches[3][0])
