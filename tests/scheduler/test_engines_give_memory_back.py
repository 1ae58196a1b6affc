"""Engines, trainers and replicators give memory and threads back by reference counting alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Trainer, TrainingConfig
from scheduler.training.models.evaluation import Evaluator
from tensorbow.compiler import Scratch
from tensorbow.devices import CpuDevice, Device
from tensorbow.errors import InvalidArgumentError, NumericsError
from tests.memory_rig.mapped import Mapped, mapped_without_collector
from tests.scheduler_rig.programs import logistic
from tests.scheduler_rig.running import Hesitant, Prepared

MODEL = logistic()
ENGINES: list[tuple[int, dict[str, Any]]] = [
    (1, {}),
    (2, {"tau": 2, "mu": 0.3}),
    (1, {"staleness": 1}),
    (2, {"sync": "ssgd"}),
    (1, {"sync": "none"}),
    (2, {"dispatch": "fcfs"}),
]


@pytest.fixture
def devices() -> Iterator[list[Device]]:
    with CpuDevice("/cpu:5") as first, CpuDevice("/cpu:6") as second, tb.Graph().as_default():
        yield [first, second]


@pytest.fixture
def mapped(devices: list[Device]) -> Iterator[Mapped]:
    with mapped_without_collector() as found:
        yield found


def engine(devices: list[Device], **options: Any) -> tb.LearningEngine:
    engine = tb.LearningEngine(
        MODEL.program, MODEL.shapes, devices, 2, tb.Synchronisation(**options), tb.train.Constant(0.1)
    )
    engine.initialize(MODEL.initial)
    engine.run(Prepared(MODEL.batch, 2 * len(devices)).open, 0, 5)
    engine.resize(1)
    engine.run(Prepared(MODEL.batch, len(devices)).open, 5, 8)
    return engine


def test_native_code_of_rounds_goes_with_its_engine(devices: list[Device]) -> None:
    pytest.importorskip("llvmlite", reason="native code needs llvmlite")
    with tb.LearningEngine(MODEL.program, MODEL.shapes, devices[:1], 2, tb.Synchronisation()) as made:
        code = weakref.ref(made.learners.launcher._program._code)
        assert code() is not None
    del made
    gc.collect()
    assert code() is None


@pytest.mark.slow
@pytest.mark.parametrize(("count", "options"), ENGINES)
def test_an_engine_gives_all_back(
    count: int, options: dict[str, Any], devices: list[Device], mapped: Mapped
) -> None:
    made = engine(devices[:count], **options)
    assert mapped.nbytes
    made.close()
    assert mapped.nbytes == 0
    engine(devices[:count], **options)  # which nobody closes
    mapped.assert_goes_back()
    assert all(device.memory.partitions == {} for device in devices)


def raising(*results: Any) -> None:
    raise ValueError("no more")


def spoilt(round: int, replica: int) -> Any:
    x, y = MODEL.batch(round, replica)
    return (x * np.nan if round == 2 else x), y


@pytest.mark.slow
@pytest.mark.parametrize(("fails", "count"), [("results", 1), ("numbers", 1), ("numbers", 2), ("source", 2)])
def test_an_engine_whose_run_has_failed_gives_all_back(
    fails: str, count: int, devices: list[Device], mapped: Mapped
) -> None:
    def failed() -> tb.LearningEngine:
        made = tb.LearningEngine(MODEL.program, MODEL.shapes, devices[:count], 2)
        made.initialize(MODEL.initial)
        batch = spoilt if fails == "numbers" else MODEL.batch
        source = Hesitant(batch, 2 * count, fail_at=(2, 1) if fails == "source" else None)
        with pytest.raises({"results": ValueError, "source": OSError}.get(fails, NumericsError)):
            made.run(source.open, 0, 9, raising if fails == "results" else None)
        return made

    failed().close()
    assert mapped.nbytes == 0
    failed()
    mapped.assert_goes_back()


class Lines:
    """A program of several steps: it learns with several batch sizes, and looks."""

    def __init__(self) -> None:
        self.graph = tb.Graph()
        with self.graph.as_default():
            self.x = tb.placeholder(tb.float32, [None, 3], name="x")
            self.labels = tb.placeholder(tb.int64, [None], name="labels")
            self.w = tb.Variable(np.ones((3, 4), np.float32), name="w")
            losses = tb.nn.sparse_softmax_cross_entropy_with_logits(
                labels=self.labels, logits=tb.matmul(tb.nn.dropout(self.x, rate=0.3, seed=1), self.w)
            )
            self.loss = tb.reduce_mean(losses)
            self.train = tb.train.MomentumOptimizer(0.1, 0.9).minimize(self.loss)
            self.init = tb.global_variables_initializer()

    def feeds(self, rows: int, label: int = 1) -> dict[Any, Any]:
        x = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
        return {self.x: x, self.labels: np.full(rows, label)}


def session(devices: list[Device], fails: bool = True, **options: Any) -> tb.TensorBowSession:
    program = Lines()
    made = tb.TensorBowSession(
        graph=program.graph,
        devices=devices,
        replicas_per_device=2,
        synchronisation=tb.Synchronisation(**options),
    )
    made.run(program.init)
    for rows in (8, 400, 8):
        made.run([program.loss, program.train], program.feeds(rows))
        made.run(program.loss, program.feeds(rows))
    if fails:
        with pytest.raises(InvalidArgumentError, match="label 9"):
            made.run(program.train, program.feeds(8, label=9))
    return made


@pytest.mark.parametrize("fails", [False, True], ids=["in a run", "after a run that failed"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.slow
def test_a_session_of_replicas_gives_all_back(
    count: int, fails: bool, devices: list[Device], mapped: Mapped
) -> None:
    session(devices[:count], fails).close()
    assert mapped.nbytes == 0
    session(devices[:count], fails)
    mapped.assert_goes_back()


def evaluator(devices: list[Device]) -> Evaluator:
    data, _ = tb.data.load("synthetic")
    model = tb.models.get_model("logreg")
    made = Evaluator(model, data, devices[0], threads=2)
    with tb.Graph().as_default():
        x, y = tb.placeholder(tb.float32, [None, *data.image_shape]), tb.placeholder(tb.int64, [None])
        loss = model(x, y, classes=data.classes).loss
        values = tb.StepProgram((x, y), loss, tb.no_op()).initial_values()
    assert made.evaluate(values) is not None
    return made


def trainer(devices: list[Device]) -> Trainer:
    config = TrainingConfig(model="logreg", dataset="synthetic", epochs=1, devices=("/cpu:5", "/cpu:6"))
    made = Trainer(config)
    made.train()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("use", [evaluator, trainer])
def test_evaluators_and_trainers_give_all_back(
    use: Callable[[list[Device]], Any], devices: list[Device], mapped: Mapped
) -> None:
    use(devices).close()
    assert mapped.nbytes == 0
    use(devices)
    mapped.assert_goes_back()


def replicated(devices: list[Device]) -> tb.MultiGpuReplicator:
    made = tb.MultiGpuReplicator(devices, 2)
    with made.context():
        w = tb.Variable(np.ones(200, np.float32), name="w")
        optimizer = made.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9))

    def step(x: Any) -> Any:
        loss = tb.reduce_sum(tb.square(w * x))
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    result = made.run(step, lambda: np.ones(200, np.float32))
    look = made.run(lambda x: tb.reduce_sum(w * x), lambda: np.ones(200, np.float32))
    session = tb.Session(device=devices[0])
    made.init(session)
    for _ in range(3):
        session.run([result, look])
    session.close()
    return made


@pytest.mark.slow
def test_a_replicator_gives_all_back(devices: list[Device], mapped: Mapped) -> None:
    with tb.Graph().as_default():
        made = replicated(devices)
        made.shutdown()
        assert mapped.nbytes == 0
    with tb.Graph().as_default():
        replicated(devices)
    gc.collect()  # its steps are in the graph outside, and graphs are cycles
    mapped.assert_goes_back()


# Steps of a replica --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "options"),
    [(1, {}), (2, {"sync": "ssgd"}), (1, {"staleness": 1})],
    ids=["sma", "ssgd", "stale"],
)
def test_replicas_work_in_one_scratch_for_all_batch_sizes(
    count: int, options: dict[str, Any], devices: list[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that are bound anew for a larger one give the bits that they give where they stay."""
    results = []
    for moves in (True, False):
        if not moves:
            monkeypatch.setattr(Scratch, "nbytes_for", staticmethod(lambda *rest, **more: 1 << 20))
        program = Lines()
        with tb.TensorBowSession(
            graph=program.graph,
            devices=devices[:count],
            replicas_per_device=2,
            synchronisation=tb.Synchronisation(**options),
        ) as session:
            session.run(program.init)
            fetches = [program.loss, program.train]
            losses = [session.run(fetches, program.feeds(rows))[0] for rows in (8, 4000, 8, 40, 4000, 8)]
            results.append([*losses, session.run(program.w).tobytes()])
            assert session._stepper is not None
            for replica in session._stepper.engine.learners.replicas:
                held = [holder for holder in replica.group.allocator.holders() if "slab" in holder.owner]
                assert sum(holder.num_blocks for holder in held) == 1
                assert held[0].nbytes < 1 << 20 if moves else held[0].nbytes == 1 << 20
    assert results[0] == results[1]
