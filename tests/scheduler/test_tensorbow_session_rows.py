"""TensorBowSession and updates by rows: an embedding alone is seen as learning, and averaged as in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.scheduler_rig.reference import Sma

WORDS, WIDTH, RATE = 7, 2, 0.1
START = np.random.default_rng(1).normal(size=(WORDS, WIDTH)).astype(np.float32)


class Embedding:
    """sum (table[words] - 1)^2: its gradient touches the rows of a batch alone."""

    def __init__(self, optimizer):
        self.graph = tb.Graph()
        with self.graph.as_default():
            self.words = tb.placeholder(tb.int64, [None], name="words")
            self.table = tb.Variable(START, name="table")
            self.loss = tb.reduce_sum(tb.square(tb.gather(self.table, self.words) - 1.0))
            self.train = optimizer.minimize(self.loss)
            self.init = tb.global_variables_initializer()

    def batch(self, round, rows=8):
        return np.random.default_rng(round).integers(0, WORDS, rows)


def gradient(table, batch):
    """The dense gradient of `Embedding`'s loss; words that come twice add up."""
    words, table = batch[0], table.reshape(WORDS, WIDTH)
    result = np.zeros_like(table)
    np.add.at(result, words, 2 * (table[words] - 1))
    return result.reshape(-1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("options", "devices"), [({}, 1), ({"tau": 2}, 1), ({"staleness": 1}, 1), ({"mu": 0.3}, 2)]
)
def test_plain_sgd_on_an_embedding_is_averaged_as_in_numpy(options, devices):
    program = Embedding(tb.train.GradientDescentOptimizer(RATE))
    rounds, k = 6, 4
    reference = Sma(
        START.reshape(-1), k, gradient, lambda round: RATE, momentum=0.0, devices=devices, **options
    )
    reference.run(lambda t, i: (program.batch(t)[2 * i : 2 * i + 2],), 0, rounds)
    names = [f"/cpu:{i}" for i in range(devices)]
    with tb.TensorBowSession(
        graph=program.graph,
        devices=names,
        replicas_per_device=k // devices,
        synchronisation=tb.Synchronisation(**options),
    ) as session:
        session.run(program.init)
        for round in range(rounds):
            session.run(program.train, {program.words: program.batch(round)})
        np.testing.assert_allclose(session.run(program.table).reshape(-1), reference.z, rtol=1e-4, atol=1e-6)
        for i, w in enumerate(reference.w):
            np.testing.assert_allclose(
                session.replica_values(i)["table"].reshape(-1), w, rtol=1e-4, atol=1e-6
            )
        assert not np.allclose(reference.w[0], reference.w[1])


OPTIMIZERS = [
    lambda: tb.train.GradientDescentOptimizer(RATE),
    lambda: tb.train.MomentumOptimizer(RATE, 0.9),
    lambda: tb.train.AdagradOptimizer(RATE),
    lambda: tb.train.AdamOptimizer(RATE),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", OPTIMIZERS)
def test_one_replica_is_the_plain_session_bit_for_bit(make):
    program = Embedding(make())
    tables = []
    for session in (
        tb.Session(graph=program.graph),
        tb.TensorBowSession(graph=program.graph, replicas_per_device=1),
    ):
        with session:
            session.run(program.init)
            for round in range(5):
                session.run(program.train, {program.words: program.batch(round)})
            tables.append(session.run(program.table))
    assert tables[0].tobytes() == tables[1].tobytes()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", OPTIMIZERS)
def test_updates_by_rows_are_split_over_the_replicas(make):
    program = Embedding(make())
    with tb.TensorBowSession(graph=program.graph, replicas_per_device=2) as session:
        session.run(program.init)
        with pytest.raises(InvalidArgumentError, match="a global batch of 3 does not split over 2 replicas"):
            session.run(program.train, {program.words: [0, 1, 2]})
        for wrapped in (False, True):
            fetch = program.train
            if wrapped:
                with program.graph.as_default(), tb.control_dependencies([program.train]):
                    fetch = tb.identity(program.loss)
            before = [session.replica_values(i)["table"] for i in range(2)]
            session.run(fetch, {program.words: [0, 1, 5, 6]})
            changed = [
                np.flatnonzero((session.replica_values(i)["table"] != before[i]).any(axis=1))
                for i in range(2)
            ]
            if not wrapped:  # later rounds average all rows
                assert [rows.tolist() for rows in changed] == [[0, 1], [5, 6]]
            else:
                assert {0, 1} <= set(changed[0])
                assert {5, 6} <= set(changed[1])


def test_an_optimiser_of_ones_own_is_seen_as_well():
    class Halving(tb.train.Optimizer):
        """Halves the variable, whatever its gradient."""

        def _apply(self, variable, gradient, rate):
            return variable.assign(variable * 0.5)

    with tb.Graph().as_default():
        w = tb.Variable(np.full(2, 8, np.float32), name="w")
        train = Halving(1.0).minimize(tb.reduce_sum(tb.square(w)))
        with tb.Session("tensorbow", replicas_per_device=3) as session:
            session.run(tb.global_variables_initializer())
            session.run(train)
            assert [session.replica_values(i)["w"][0] for i in range(3)] == [4, 4, 4]
            assert session.run(w).tolist() == [8, 8]  # z follows by the next averaging


def test_a_graph_from_a_file_is_seen_as_well(tmp_path):
    program = Embedding(tb.train.GradientDescentOptimizer(RATE))
    tb.train.write_graph(program.graph, tmp_path, "graph.json")
    with tb.Graph().as_default() as graph:
        tb.import_graph_def(tb.train.read_graph(tmp_path / "graph.json"), name="")
        with tb.TensorBowSession(graph=graph, replicas_per_device=2) as session:
            session.run(program.init.name)
            session.run(program.train.name, {"words:0": [0, 6]})
            changed = [
                np.flatnonzero((session.replica_values(i)["table"] != START).any(axis=1)) for i in range(2)
            ]
            assert [rows.tolist() for rows in changed] == [[0], [6]]


def test_rows_that_the_user_writes_are_assigned_to_z_and_every_replica():
    program = Embedding(tb.train.GradientDescentOptimizer(RATE))
    with program.graph.as_default():
        write = tb.scatter_update(program.table, [2], [[9.0, 9.0]])
    with tb.TensorBowSession(graph=program.graph, replicas_per_device=2) as session:
        session.run(program.init)
        session.run(program.train, {program.words: [0, 1]})
        session.run(write)
        assert session.run(program.table)[2].tolist() == [9, 9]
        assert all(session.replica_values(i)["table"][2].tolist() == [9, 9] for i in range(2))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dense", [False, True])
def test_ssgd_averages_rows(dense):
    with tb.Graph().as_default() as graph:
        words = tb.placeholder(tb.int64, [None])
        table = tb.Variable(START, name="table")
        loss = tb.reduce_mean(tb.square(tb.gather(tb.identity(table) if dense else table, words)))
        train = tb.train.AdagradOptimizer(RATE).minimize(loss)
        init = tb.global_variables_initializer()
    tables = []
    for options in ({}, {"target": "tensorbow", "synchronisation": tb.Synchronisation("ssgd")}):
        with tb.Session(graph=graph, **options) as session:
            session.run(init)
            for first in range(3):
                session.run(train, {words: [first, 1, 2, first]})
            tables.append(session.run(table))
    np.testing.assert_allclose(tables[1], tables[0], rtol=1e-6)
    assert not np.array_equal(tables[0], START)
