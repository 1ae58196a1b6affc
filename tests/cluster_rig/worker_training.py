"""Training by two workers, compared with one process, and what ends it early; the program of a test.

The arguments say whether native code launches whole rounds, and whether all ways of averaging are tried.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import LearningEngine, StepProgram, Synchronisation, Trainer, TrainingConfig
from scheduler.engine import learning_engine
from scheduler.replicas.device_plans import DevicePlans
from scheduler.workers.find import worker_group
from scheduler.workers.shared_memory import are_together
from tensorbow.errors import AbortedError, InvalidArgumentError, NumericsError, ResourceExhaustedError
from tensorbow.ops import collectives
from tests.cluster_rig.two_machines import network_of_its_own
from tests.scheduler_rig.programs import Model, logistic, well
from tests.scheduler_rig.round_engines import labelled, spoilt
from tests.scheduler_rig.running import Prepared, cpu_devices

workers = worker_group()
RANK, COUNTS = workers.rank, [2, 1]  # devices, and replicas, of each worker
FIRST = sum(COUNTS[:RANK])
NATIVE = sys.argv[1] == "native"
ROUNDS = 12
EXCHANGE = os.environ.get("TENSORBOW_EXCHANGE", "")
DILOCO = {"sync": "diloco", "tau": 3, "exchange_dtype": "bfloat16"}


class Shard(Prepared):
    """The batches of this worker's replicas."""

    def __init__(self, batch: Callable[[int, int], tuple[Any, ...]], first: int, replicas: int) -> None:
        super().__init__(lambda round, replica: batch(round, first + replica), replicas)


def engine_of(model: Model, alone: bool, **options: Any) -> LearningEngine:
    own = {key: options.pop(key) for key in ("on_nan", "launch_ahead") if key in options}
    devices = cpu_devices(sum(COUNTS) if alone else COUNTS[RANK])
    more = {} if alone else {"workers": workers}
    engine = LearningEngine(
        model.program, model.shapes, devices, 1, Synchronisation(**options), **own, **more
    )
    engine.initialize(model.initial)
    return engine


def source_of(model: Model, alone: bool) -> Shard:
    return Shard(model.batch, 0 if alone else FIRST, sum(COUNTS) if alone else COUNTS[RANK])


def trained(model: Model, alone: bool, **options: Any) -> dict[str, np.ndarray]:
    with engine_of(model, alone, **options) as engine:
        assert engine.learners.launches_rounds is NATIVE, engine.learners.called_apart()
        assert engine.run(source_of(model, alone).open, 0, ROUNDS) == ROUNDS
        z = {f"z/{name}": value for name, value in engine.central_values().items()}
        return {**z, **engine.learners.values.state_arrays()}


def meeting() -> Model:
    """A step with a gather, a broadcast and a sum of its own, batch norm's statistics, and sparse rows."""
    with tb.Graph().as_default(), collectives.known_replicas(sum(COUNTS)):
        x = tb.placeholder(tb.float32, [4, 3], name="x")
        ids = tb.placeholder(tb.int64, [4], name="ids")
        values = np.linspace(-1, 1, 15).reshape(5, 3).astype(np.float32)
        table = tb.Variable(values, name="table", trainable=not NATIVE)  # updates of rows have no native code
        hidden = tb.nn.embedding_lookup(table, ids) * x
        gathered = collectives.all_gather(tb.reduce_mean(hidden))
        sent = collectives.broadcast(tb.reduce_sum(x), 2)
        total = collectives.all_sum(tb.reduce_max(x))
        statistics = tb.Variable(np.zeros(3, np.float32), name="statistics", trainable=False, combine="mean")
        w = tb.Variable(np.full(3, 0.5, np.float32), name="w")
        loss = (
            tb.reduce_mean(tb.square(hidden * w - 0.1 * sent - 0.05 * total)) + tb.reduce_sum(gathered) * 0.01
        )
        step = tb.train.GradientDescentOptimizer(0.05).minimize(loss)
        with tb.control_dependencies([step]):
            update = tb.assign_add(statistics, tb.reduce_mean(x, axis=0)).op

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        own = np.random.default_rng((5, round, replica))
        return own.normal(size=(4, 3)).astype(np.float32), own.integers(0, 5, size=4)

    shapes = [tb.TensorSpec((4, 3), tb.float32), tb.TensorSpec((4,), tb.int64)]
    program = StepProgram((x, ids), loss, update, {})
    return Model(program, shapes, program.initial_values(), batch)


def equals_one_process() -> None:
    model, step = logistic(tb.float32), meeting()
    cases: list[tuple[Model, dict[str, Any]]] = [
        (step, {"tau": 2, "mu": 0.5, "staleness": 1}),
        (model, {"sync": "ssgd", "ema": 0.9}),
        (model, {"sync": "none"}),
        (model, {"sync": "diloco", "tau": 3, "staleness": 1, "exchange_dtype": "bfloat16"}),
    ]
    if sys.argv[2] == "all":
        others: list[dict[str, Any]] = [{}, {"sync": "ssgd"}, {"sync": "easgd"}, {"ssgd_from": 5}, DILOCO]
        others += [{"sync": "diloco", "tau": 2}, {"sync": "diloco", "tau": 2, "staleness": 1}]
        cases += [(which, options) for which in (step, model) for options in others]
    for which, options in cases:
        os.environ["TENSORBOW_EXCHANGE"] = "mpi" if "exchange_dtype" in options else EXCHANGE
        together, alone = trained(which, False, **options), trained(which, True, **options)
        assert len([name for name in together if name.startswith("replica")]) > 1
        if options.get("sync") == "none":  # there is no z
            together = {name: value for name, value in together.items() if name[0] != "z"}
        # A worker hands in the sum of its replicas as bfloat16, too: 2^-9 of it in each of 4 outer steps.
        near = 4e-3 if which is model and "exchange_dtype" in options else 1e-6
        for name, value in together.items():
            np.testing.assert_allclose(value, alone[name], rtol=near, atol=near, err_msg=f"{options} {name}")


def failed(expected: type[Exception], engine: LearningEngine, open_source: Any, **more: Any) -> str:
    with pytest.raises(expected) as found:
        engine.run(open_source, 0, ROUNDS, **more)
    return str(found.value)


def round_of(engine: LearningEngine) -> list[int]:
    """How often each replica has stepped: `count` is added up in every step."""
    return [int(replica.container.read("count")) for replica in engine.learners.replicas]


def counting() -> Model:
    """`well` whose replicas count their steps."""
    model = well()
    graph = model.program.graph
    with graph.as_default():
        count = tb.Variable(0, name="count", trainable=False, combine="first")
        with tb.control_dependencies([model.program.update]):
            update = tb.assign_add(count, 1).op
    program = StepProgram(model.program.inputs, model.program.loss, update, {})
    return Model(program, model.shapes, {**model.initial, "count": np.int32(0)}, model.batch)


def ends_together() -> None:
    """One of the workers fails or stops; both end at the same round, with an error that names it."""
    model = counting()
    bad = Model(model.program, model.shapes, model.initial, spoilt(model, (5, 2)))  # worker 1's
    for options in ({}, {"tau": 4}, {"sync": "none"}, {"sync": "ssgd"}):
        with engine_of(bad, False, **options) as engine:
            said = failed(NumericsError if RANK == 1 else AbortedError, engine, source_of(bad, False).open)
            assert "is not finite at step 5" in said, said
            assert ("worker 1 of 2" in said) == (RANK == 0), said
            steps = workers.all_gather(round_of(engine))
            assert steps[1] == [5], steps
            assert steps[0][0] in ((5,) if "ssgd" in options.values() else (6, 7)), steps
            assert steps[0][0] == steps[0][1], steps

    refusing = labelled()  # replica 1, which is worker 0's, gets a label out of range at step 6
    with engine_of(refusing, False) as engine:
        shard = source_of(refusing, False)
        said = failed(InvalidArgumentError if RANK == 0 else AbortedError, engine, shard.open)
        assert "label" in said, said
        assert "replica 1 at step 6" in said, said

    class GoneError(Exception):
        pass

    def interrupt(results: Any) -> None:
        if RANK == 0 and results.rounds[0] == 3:
            raise GoneError("by the caller")

    with engine_of(model, False) as engine:
        said = failed(
            GoneError if RANK == 0 else AbortedError,
            engine,
            source_of(model, False).open,
            on_results=interrupt,
        )
        assert ("GoneError: by the caller" in said) == (RANK == 1), said
        engine.initialize(model.initial)
        assert engine.run(source_of(model, False).open, 0, ROUNDS) == ROUNDS  # all may go on

    with engine_of(model, False, launch_ahead=3) as engine:
        stop = threading.Timer(0.05, engine.request_stop)
        if RANK == 1:
            stop.start()
        rounds = 4000
        ended = engine.run(source_of(model, False).open, 0, rounds)
        assert len(set(workers.all_gather(ended))) == 1
        assert {step for steps in workers.all_gather(round_of(engine)) for step in steps} == {ended}
        assert ended < rounds


def refused(model: Model, **options: Any) -> str:
    with pytest.raises(InvalidArgumentError) as found:
        engine_of(model, False, **options)
    return str(found.value)


def summed_twice() -> Model:
    """A step of each worker with the same two sums over replicas, in another order."""
    with tb.Graph().as_default(), collectives.known_replicas(sum(COUNTS)):
        x = tb.placeholder(tb.float32, [3], name="x")
        w = tb.Variable(np.zeros(3, np.float32), name="w")
        values = [tb.reduce_max(x), tb.reduce_min(x)]
        first, second = map(collectives.all_sum, values if RANK == 0 else reversed(values))
        loss = tb.reduce_mean(tb.square(w - x)) + first - second
        program = StepProgram((x,), loss, tb.train.GradientDescentOptimizer(0.1).minimize(loss), {})
    return Model(program, [tb.TensorSpec((3,), tb.float32)], program.initial_values(), well().batch)


def differences_are_told() -> None:
    said = refused(well(7 + RANK))
    assert all(word in said for word in ("worker 0 of 2", "worker 1 of 2", "float32[7]", "float32[8]")), said
    said = refused(well(), tau=1 + RANK)
    assert "options of the synchronisation: " in said
    assert re.search(r"worker 0 of 2 \(.*\) has tau=1, worker 1 of 2 \(.*\) has tau=2; run the same", said), (
        said
    )
    assert "has backup=1" in refused(well(), sync="ssgd", backup=RANK)
    for sync in ("ssgd", "sma"):
        said = refused(well(rate=0.1 * (1 + RANK)), sync=sync)
        assert re.search(
            r"worker 0 of 2 \(.*\) has learning_rate=0.1, worker 1 of 2 \(.*\) has learning_rate=0.2;", said
        )
        said = refused(well(momentum=0.5 + 0.25 * RANK), sync=sync)
        assert "has momentum=0.5 of ApplyMomentum of w, worker 1" in said, said
    engine_of(well(rate=0.1 * (1 + RANK)), False, sync="none").close()  # replicas are independent
    said = refused(summed_twice())
    assert all(f"AllSum of the result of {name}" in said for name in ("Max", "Min")), said
    assert "dispatch: expected" in refused(well(), dispatch="fcfs")


def resized(model: Model, alone: bool, **options: Any) -> dict[str, np.ndarray]:
    """Trained with one, then three, then two replicas per device."""
    with engine_of(model, alone, **options) as engine:
        for number, per_device in enumerate((1, 3, 2)):
            if per_device > 1:
                engine.resize(per_device)
            here = engine.learners
            assert here.total == sum(COUNTS) * per_device
            shard = Shard(model.batch, here.numbers.start, here.count)
            assert engine.run(shard.open, 5 * number, 5 * number + 5) == 5 * number + 5
            assert here.launches_rounds is NATIVE
        return {**engine.central_values(), **here.values.state_arrays()}


def changes_the_number_of_replicas() -> None:
    model = logistic(tb.float32)
    cases: list[dict[str, Any]] = [{"tau": 2, "mu": 0.5}, {"sync": "diloco", "tau": 2, "staleness": 1}]
    if sys.argv[2] == "all":
        cases += [{}, {"sync": "ssgd", "ema": 0.9}, {"sync": "easgd"}, {"sync": "none"}, {"staleness": 1}]
    for options in cases:
        together, alone = resized(model, False, **options), resized(model, True, **options)
        if options.get("sync") == "none":  # there is no z
            together = {name: value for name, value in together.items() if name.startswith("replica")}
        for name, value in together.items():
            np.testing.assert_allclose(value, alone[name], 1e-6, 1e-6, err_msg=f"{options} {name}")

    require_room = DevicePlans.require_room

    def scarce(self: Any, replicas: int, *more: Any) -> None:
        if RANK == 1 and replicas > 1:
            raise ResourceExhaustedError("no room, as the test asks")
        require_room(self, replicas, *more)

    with engine_of(model, False) as engine, pytest.MonkeyPatch.context() as patch:
        patch.setattr(DevicePlans, "require_room", scarce)
        with pytest.raises(ResourceExhaustedError, match="no room") as found:
            engine.resize(2)
        assert ("worker 1 of 2" in str(found.value)) == (RANK == 0)
        assert engine.run(source_of(model, False).open, 0, ROUNDS) == ROUNDS  # with as many as before

    def broken(*_: Any, **__: Any) -> None:
        raise ResourceExhaustedError("memory that was there is gone")

    engine = engine_of(model, False)
    with pytest.MonkeyPatch.context() as patch:
        if RANK == 1:
            patch.setattr(learning_engine, "made_again", broken)
        said = "memory that was there is gone"
        with pytest.raises(ResourceExhaustedError if RANK == 1 else AbortedError, match=said):
            engine.resize(2)
    engine.close()


def begins_with_weights_of_worker_0() -> None:
    """All replicas have the values that worker 0 is given; what does not fit there ends all workers."""
    x, y = np.linspace(-1, 1, 72).reshape(24, 3).astype(np.float32), np.arange(24) % 2
    config, data = TrainingConfig("logreg", epochs=1, batch_size=2), ((x, y), (x, y))
    given = {"weight": np.full((2, 3), 1 + RANK, np.float32), "bias": np.full(2, 1 + RANK, np.float32)}
    with Trainer(config, data=data, weights=given, workers=workers) as trainer:
        for replica in range(2):
            own = trainer.engine.learners.values.replica_values(replica)
            assert all((own[name] == 1).all() for name in ("weights", "biases")), own
        assert all((value == 1).all() for value in trainer.engine.central_values().values())
    wrong = {**given, "bias": np.ones(3 - RANK, np.float32)}
    with pytest.raises(InvalidArgumentError, match=r"got bias \[3\]"):
        Trainer(config, data=data, weights=wrong, workers=workers)


def links_are_seen() -> None:
    assert are_together(workers)
    with network_of_its_own() if RANK == 1 else nullcontext(True) as may_be_apart:
        assert are_together(workers) is not all(workers.all_gather(may_be_apart))
    workers.barrier()
    assert are_together(workers)


def communicators_are_given_back() -> None:
    engine = engine_of(counting(), False)
    lockstep = engine.lockstep
    assert lockstep is not None
    groups = [lockstep._host, lockstep.exchanges, lockstep._summing]
    with engine:
        assert engine.run(source_of(counting(), False).open, 0, 2) == 2
        assert all(group._communicator for group in groups)
    assert not any(group._communicator for group in groups)  # they are MPI's null communicator


def nobody_waits_for_one_that_cannot_close() -> None:
    def broken() -> None:
        close()
        raise MemoryError("as the test asks")

    for by_block in (True, False):
        engine = engine_of(counting(), False)
        close = engine.learners.close
        if RANK == 1:
            engine.learners.close = broken
        group = engine.lockstep.exchanges
        fails = pytest.raises(MemoryError) if RANK == 1 else nullcontext()
        with fails, engine if by_block else closing(engine):
            assert engine.run(source_of(counting(), False).open, 0, 2) == 2
        assert not group._communicator


links_are_seen()
communicators_are_given_back()
nobody_waits_for_one_that_cannot_close()
equals_one_process()
begins_with_weights_of_worker_0()
changes_the_number_of_replicas()
first, again = (trained(logistic(), False) for _ in range(2))
assert all(first[name].tobytes() == again[name].tobytes() for name in first)
ends_together()
differences_are_told()
print(f"worker {RANK} is done")
