"""Sessions on a GPU: whole steps, parts of steps beside a CPU, what has no kernel, user kernels.

An emulated one here; `tests/gpu` runs the same on the GPU of the machine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import GpuDevice
from tensorbow.devices import registry as devices
from tensorbow.devices.names import DeviceName
from tensorbow.errors import UnimplementedError
from tensorbow.kernels.backends import backend_of_kind
from tensorbow.ops.linalg import MatrixInverse
from tests.gpu_rig.runtimes import needs_compiler

pytestmark = [needs_compiler, pytest.mark.usefixtures("found")]


@pytest.fixture
def found(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The GPU is found as /gpu:0 and, a share of it, /gpu:1."""
    limit = runtime.properties.memory_nbytes // 8
    entry = devices.DeviceKind(
        "gpu",
        lambda name: GpuDevice(name, runtime, limit_nbytes=limit),
        lambda: 2,
        lambda name: GpuDevice(name, runtime).describe(),
    )
    names = [DeviceName(kind="gpu", index=index) for index in range(2)]
    for name in names:
        monkeypatch.delitem(devices._devices, name, raising=False)
    monkeypatch.setitem(devices._kinds, "gpu", entry)
    yield
    for name in names:
        device = devices._devices.pop(name, None)
        if device is not None:
            device.close()


def lenet(size: int) -> tuple[tb.Graph, list[tb.Tensor], tb.Tensor, tb.Operation, tb.Operation]:
    graph = tb.Graph()
    with graph.as_default():
        tb.set_random_seed(4)
        images = tb.placeholder(tb.float32, [size, 28, 28, 1])
        labels = tb.placeholder(tb.int64, [size])
        loss = tb.models.LeNet()(images, labels, classes=10).loss
        update = tb.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
        return graph, [images, labels], loss, update, tb.global_variables_initializer()


@pytest.mark.slow
def test_lenet_learns_as_on_the_cpu(runtime: Any) -> None:
    graph, feeds, loss, update, initializer = lenet(4)
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(4, 28, 28, 1)), rng.integers(0, 10, 4)) for _ in range(6)]
    losses = {}
    for device in ("/cpu:0", "/gpu:0"):
        with tb.Session(graph=graph, device=device) as session:
            session.run(initializer)
            losses[device] = [
                session.run([loss, update], dict(zip(feeds, batch, strict=True)))[0] for batch in batches
            ]
    np.testing.assert_allclose(losses["/gpu:0"], losses["/cpu:0"], rtol=1e-4)
    assert runtime.counts["launch_graph"] == 5  # the first launch is call by call


def test_threads_run_steps_side_by_side() -> None:
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [64])
        y = tb.reduce_sum(tb.tanh(x) * 2.0)
    wrong: list[object] = []
    with tb.Session(graph=graph, device="/gpu:0") as session:

        def work(number: int) -> None:
            value = np.full(64, number / 10, np.float32)
            for _ in range(10):
                found = session.run(y, {x: value})
                if not np.allclose(found, 128 * np.tanh(number / 10), rtol=1e-5):
                    wrong.append((number, found))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not wrong


def test_a_step_over_gpu_and_cpu_passes_values_both_ways() -> None:
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [4, 4])
        with tb.device("/gpu:0"):
            a = tb.matmul(x, x)
        with tb.device("/cpu:0"):
            b = tb.matrix_inverse(a + np.eye(4, dtype=np.float32) * 10.0)
        with tb.device("/gpu:1"):
            c = tb.reduce_sum(tb.matmul(a, b))
        with tb.device("/gpu:0"):
            d = tb.exp(-c) + tb.reduce_mean(a)
    with tb.Session(graph=graph) as session:
        for seed in range(4):
            value = np.random.default_rng(seed).normal(size=(4, 4)).astype(np.float32)
            first = value @ value
            second = np.linalg.inv(first + np.eye(4) * 10)
            total = (first @ second).sum()
            found = session.run([c, d, b], {x: value})
            np.testing.assert_allclose(found[0], total, rtol=1e-4)
            np.testing.assert_allclose(found[1], np.exp(-total) + first.mean(), rtol=1e-4)
            np.testing.assert_allclose(found[2], second, rtol=1e-3, atol=1e-6)
        assert "send" in str(session.explain(d, {x: value}))


def test_an_op_without_a_gpu_kernel_is_named_or_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    backend_of_kind("gpu")  # registers the kernels
    monkeypatch.delitem(MatrixInverse.kernels, "gpu")
    graph = tb.Graph()
    with graph.as_default(), tb.device("/gpu:0"):
        x = tb.placeholder(tb.float32, [3, 3])
        y = tb.reduce_sum(tb.matrix_inverse(x, name="inverse"))
    value = np.diag([1.0, 2.0, 4.0]).astype(np.float32)
    named = pytest.raises(UnimplementedError, match=r"MatrixInverse.* no kernel for gpu devices.*cpu")
    with tb.Session(graph=graph) as session, named:
        session.run(y, {x: value})
    with tb.Session(graph=graph, allow_soft_placement=True) as session:
        assert session.run(y, {x: value}) == pytest.approx(1.75)


def test_an_op_of_the_cpu_alone_runs_there_beside_a_gpu() -> None:
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [3, 3])
        y = tb.cholesky(x * 2.0) * 3.0
        with tb.device("/gpu:0"):
            z = tb.cholesky(x)
    value = np.diag([1.0, 2.0, 4.0]).astype(np.float32)
    with tb.Session(graph=graph, device="/gpu:0") as session:
        np.testing.assert_allclose(session.run(y, {x: value}), 3 * np.sqrt(2 * value), rtol=1e-6)
        assert "as it is computed matrix by matrix, by LAPACK, on the CPU" in str(
            session.explain(y, {x: value})
        )
        with pytest.raises(UnimplementedError, match=r"Cholesky.* no kernel for gpu devices.*cpu"):
            session.run(z, {x: value})


def test_variables_live_on_the_gpu_and_are_saved_and_restored(tmp_path) -> None:
    graph = tb.Graph()
    with graph.as_default():
        w = tb.Variable(np.arange(6, dtype=np.float32).reshape(2, 3), name="w")
        double = tb.assign(w, w * 2.0)
        saver = tb.train.Saver()
        initializer = tb.global_variables_initializer()
    with tb.Session(graph=graph, device="/gpu:0") as session:
        session.run(initializer)
        session.run(double)
        session.run(double)
        path = saver.save(session, str(tmp_path / "model"))
        session.load_variables({"w": np.zeros((2, 3), np.float32)})
        assert not session.run(w).any()
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(w), np.arange(6).reshape(2, 3) * 4)
    with tb.Session(graph=graph, device="/cpu:0") as session:  # what a GPU wrote, a CPU reads
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(w), np.arange(6).reshape(2, 3) * 4)


@pytest.mark.slow
def test_replicas_know_their_number_and_have_values_of_their_own() -> None:
    def results(names: list[str]) -> Any:
        with tb.Graph().as_default():
            tb.set_random_seed(3)
            replicator = tb.MultiGpuReplicator(devices=names, replicas_per_gpu=2, sync="none")

            def step(x: tb.Tensor) -> Any:
                own = tb.per_replica([0.5, 1.0, 2.0, 4.0])
                w = tb.get_variable("w", [3], initializer=tb.initializers.constant(0.5))
                update = tb.train.GradientDescentOptimizer(own).minimize(tb.reduce_sum(tb.square(w - x)))
                with tb.control_dependencies([update]):
                    return tb.replica_id(), own, tb.all_gather(own * x), tb.identity(w)

            def input_fn(replica_id: int) -> Iterator[Any]:
                yield from (np.full(3, replica_id + step, np.float32) for step in range(3))

            return [*replicator.train(step, input_fn, 3)]

    on_cpu, on_gpu = results(["/cpu:0", "/cpu:1"]), results(["/gpu:0", "/gpu:1"])
    assert on_gpu[0][0].tolist() == [0, 1, 2, 3]
    for here, there in zip(on_cpu, on_gpu, strict=True):
        for expected, found in zip(here, there, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
def test_a_replicator_trains_on_virtual_gpus() -> None:
    def losses(names: list[str]) -> list[float]:
        replicator = tb.MultiGpuReplicator(devices=names, replicas_per_gpu=2)
        with replicator.context():
            optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9))

        def step(batch: tb.Tensor) -> tb.Tensor:
            w = tb.get_variable("w", [3, 1], initializer=tb.initializers.constant(0.5))
            loss = tb.reduce_mean(tb.square(tb.matmul(batch, w) - 1.0))
            with tb.control_dependencies([optimizer.minimize(loss)]):
                return tb.identity(loss)

        def input_fn(replica_id: int):
            rng = np.random.default_rng(replica_id)
            while True:
                yield rng.normal(size=(8, 3)).astype(np.float32)

        return [float(np.mean(loss)) for loss in replicator.train(step, input_fn, 6)]

    on_cpu, on_gpu = losses(["/cpu:0", "/cpu:1"]), losses(["/gpu:0", "/gpu:1"])
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-5)
    assert on_gpu[-1] < on_gpu[0]


def test_dtypes_that_gpus_lack_are_computed_on_the_cpu() -> None:
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder("int8", [3])
        product = tb.multiply(tb.cast(tb.reshape(tb.add(x, x), [3, 1]), "float32"), 0.5, name="product")
        with tb.device("/gpu:0"):
            refused = tb.add(x, x, name="refused")
    with tb.Session(graph=graph, device="/gpu:0") as session:
        np.testing.assert_array_equal(session.run(product, {x: [1, -2, 70]}), [[1], [-2], [-58]])
        text = str(session.explain(product, {x: [1, -2, 70]}))
        assert "only CPUs compute in int8" in text
        assert "to /device:GPU:0" in text
        words = r"refused.*GPU kernels have no int8 \(they have: float32, .*tb\.cast to one of them, or place"
        with pytest.raises(UnimplementedError, match=words):
            session.run(refused, {x: [1, 2, 3]})
