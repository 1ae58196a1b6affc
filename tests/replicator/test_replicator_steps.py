"""What a replicated step computes: the engine's bits, the plain session's bits, any nest, any input."""

from __future__ import annotations

import ast
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

import replicator
import scheduler.tensorbow_session
import tensorbow as tb
from scheduler import Stepper, StepProgram
from tensorbow.devices import CpuDevice

RNG = np.random.default_rng(5)
X = RNG.normal(size=(96, 5)).astype(np.float32)
Y = (X @ RNG.normal(size=(5, 3))).astype(np.float32)


@pytest.fixture(autouse=True)
def own_graph():
    with tb.Graph().as_default():
        yield


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


@pytest.mark.parametrize(
    "options",
    [{}, {"tau": 3, "alpha": 0.2, "mu": 0.1}, {"staleness": 1}, {"sync": "ssgd"}, {"sync": "none"}],
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


Pair = namedtuple("Pair", ["first", "second"])


def test_any_nest_in_and_out():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)

    def batches(context):
        n = context.replica_id
        assert (context.num_replicas, context.num_input_pipelines) == (2, 2)
        yield {"a": [np.full(2, n, np.float32), 1.5], "b": Pair(np.int64(n), (np.array([True, n > 0]),))}
        yield {"b": (np.int64(n + 4), [np.array([False, True])]), "a": (np.full(2, 9, np.float32), 0.5)}

    def step(inputs):
        assert isinstance(inputs["b"], Pair)
        (vector, number), second = inputs["a"], inputs["b"].second
        return Pair([vector * number, inputs["b"].first], {"flags": second[0], "id": tb.replica_id()})

    first, second = list(repl.train(step, batches))
    assert isinstance(first, Pair)
    assert first.first[0].tolist() == [[0, 0], [1.5, 1.5]]
    assert first.first[1].tolist() == [0, 1]
    assert first.second["flags"].tolist() == [[True, False], [True, True]]
    assert first.second["id"].tolist() == [0, 1]
    assert second.first[0].tolist() == [[4.5, 4.5], [4.5, 4.5]]
    assert second.first[1].tolist() == [4, 5]


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


def test_tensors_as_input_are_built_into_the_step():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 3)
    out = repl.run(lambda x: x * 2.0, lambda: tb.ones([2]))
    with repl, tb.Session() as session:
        repl.init(session)
        assert (session.run(out) == 2).all()


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


def test_shutdown_gives_memory_back_and_init_starts_anew():
    device = CpuDevice("/cpu:0")
    repl = tb.MultiGpuReplicator([device], 2)
    optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.05, 0.9))
    out = repl.run(lambda x, y: network(x, y, optimizer)[0:2], input_fn)
    with tb.Session() as session:
        for _ in range(2):
            repl.init(session)
            session.run(out)
            assert device.memory.held_nbytes > 0
            repl.shutdown(session)
            repl.shutdown(session)
            assert device.memory.held_nbytes == 0
    device.close()


def test_leaving_a_training_loop_early_shuts_down():
    device = CpuDevice("/cpu:0")
    repl = tb.MultiGpuReplicator([device], 2)
    loop = repl.train(lambda x: tb.reduce_sum(x), lambda: np.ones(3, np.float32))
    for step, total in enumerate(loop):
        assert total.tolist() == [3, 3]
        if step == 4:
            break
    loop.close()
    assert device.memory.held_nbytes == 0
    device.close()


def test_neither_replicators_nor_tensorbow_session_own_buffers_or_streams():
    owners = {"stream_group", "StreamGroup", "Stream", "Binding", "RegionMemory", "allocator", "allocators"}
    owners |= {"allocate", "enqueue", "Container", "Replica", "Learners"}
    files = [*Path(replicator.__file__).parent.rglob("*.py"), Path(scheduler.tensorbow_session.__file__)]
    assert len(files) > 8
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        assert not names & owners, f"{file.name} uses {sorted(names & owners)}"
