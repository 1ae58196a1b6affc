"""Collectives in a step: reductions, nests, shared work, and what is refused while the step is built."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError

pytestmark = [
    pytest.mark.usefixtures("graph"),
    pytest.mark.filterwarnings("ignore:central_values"),  # of independent replicas, replica 0's
]

LAYOUTS = [(["/cpu:0"], 1), (["/cpu:0"], 3), (["/cpu:0", "/cpu:1"], 2)]
NUMPY = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}
Pair = collections.namedtuple("Pair", "first second")


def own(replica, *shape):
    return np.random.default_rng(replica).normal(size=shape).astype(np.float32)


def results_of(step_fn, input_fn, devices, per_device, steps=1, **options):
    """Results of a step on each replica, in its last run."""
    with tb.MultiGpuReplicator(devices, per_device, **{"sync": "none", **options}) as repl:
        return list(repl.train(lambda *inputs: step_fn(repl, *inputs), input_fn, steps))[-1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("devices", "per_device"), LAYOUTS)
@pytest.mark.parametrize("op", NUMPY)
def test_reductions(devices, per_device, op):
    count = len(devices) * per_device

    def step_fn(repl, x):
        y = tb.square(x) + 1.0
        reduced = repl.all_reduce(y, op, "a label: with colon")
        return reduced, tb.all_reduce(y, op), tb.gradients(tb.reduce_sum(reduced), x)[0]

    reduced, again, gradient = results_of(
        step_fn, lambda replica_id: own(replica_id, 3, 5), devices, per_device
    )
    values = np.stack([own(replica, 3, 5) for replica in range(count)])
    squares = np.square(values) + 1
    expected = NUMPY[op](squares, 0)
    others = {
        "sum": lambda: count * np.ones_like(squares),  # each replica's loss has the same sum
        "mean": lambda: np.ones_like(squares),
        "max": lambda: count * (squares == expected),
        "min": lambda: count * (squares == expected),
        "prod": lambda: count * expected / squares,
    }
    for replica in range(count):
        np.testing.assert_allclose(reduced[replica], expected, rtol=1e-5)
        np.testing.assert_array_equal(again[replica], reduced[replica])
    np.testing.assert_allclose(gradient, others[op]() * 2 * values, rtol=1e-4)


@pytest.mark.slow
def test_nests_and_rows_of_every_replica():
    def step_fn(repl, x, y):
        nest = {"pair": Pair(x, [y, x * 2.0]), "number": tb.replica_id()}
        sums, rows = repl.all_sum(nest), repl.all_gather(nest)
        assert rows["pair"].first.shape.as_list() == [4, 3]
        single = repl.all_sum({"one": 1.0})["one"]
        return sums, rows, repl.broadcast(nest, 2), repl.all_sum([1.0, 2.0]) + 0.0 * single

    def input_fn(replica_id):
        return own(replica_id, 3), own(10 + replica_id, 2, 2)

    sums, rows, sent, numbers = results_of(step_fn, input_fn, ["/cpu:0", "/cpu:1"], 2)
    x, y = (np.stack(each) for each in zip(*map(input_fn, range(4)), strict=True))
    assert isinstance(sums["pair"], Pair)
    for replica in range(4):
        np.testing.assert_allclose(sums["pair"].first[replica], x.sum(0), rtol=1e-5)
        np.testing.assert_allclose(sums["pair"].second[0][replica], y.sum(0), rtol=1e-5, atol=1e-6)
        assert sums["number"][replica] == 0 + 1 + 2 + 3
        np.testing.assert_array_equal(rows["pair"].first[replica], x)
        np.testing.assert_array_equal(rows["number"][replica], range(4))
        np.testing.assert_array_equal(sent["pair"].second[1][replica], 2 * x[2])
        np.testing.assert_array_equal(numbers[replica], [4, 8])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("devices", "per_device"), LAYOUTS)
def test_shared_work(devices, per_device):
    """Each replica maps a part of the rows; the gradient of the whole is the sum over the replicas."""
    table, count = own(99, 12, 5), len(devices) * per_device

    def step_fn(repl):
        w = tb.Variable(np.full(5, 0.5, np.float32), name="w")

        def squares(rows):
            assert rows.shape.as_list() == [12 // count, 5]
            return tb.square(rows * w)

        rows = repl.map_gather(squares, table)
        total = repl.map_reduce(lambda nest: {"sum": tb.reduce_sum(squares(nest["rows"]))}, {"rows": table})
        gradient = repl.all_sum(tb.gradients(total["sum"], w)[0]) / float(count * count)
        return rows, total["sum"], gradient

    rows, total, gradient = results_of(step_fn, None, devices, per_device)
    for replica in range(count):
        np.testing.assert_allclose(rows[replica], np.square(table * 0.5), rtol=1e-5)
        np.testing.assert_allclose(total[replica], np.square(table * 0.5).sum(), rtol=1e-5)
        np.testing.assert_allclose(gradient[replica], (table**2).sum(0) / count, rtol=1e-4)


def test_sparse_rows_are_joined():
    def step_fn(repl, indices):
        table = tb.Variable(own(1, 6, 2), name="table")
        loss = tb.reduce_sum(tb.square(tb.gather(table, indices)))
        sparse = tb.gradients(loss, table)[0]
        assert isinstance(sparse, tb.IndexedSlices)
        total, mean = repl.all_sum(sparse), repl.all_reduce(sparse, "mean")
        assert isinstance(total, tb.IndexedSlices)
        return tb.convert_to_tensor(total), tb.convert_to_tensor(mean), total.indices

    def rows(replica):
        return np.array([replica, 5, replica], np.int32)

    total, mean, indices = results_of(step_fn, lambda replica_id: rows(replica_id), ["/cpu:0", "/cpu:1"], 2)
    expected = np.zeros((6, 2), np.float32)
    for replica in range(4):
        np.add.at(expected, rows(replica), 2 * own(1, 6, 2)[rows(replica)])
    for replica in range(4):
        np.testing.assert_allclose(total[replica], expected, rtol=1e-5)
        np.testing.assert_allclose(mean[replica], expected / 4, rtol=1e-5)
        np.testing.assert_array_equal(indices[replica], np.concatenate([rows(n) for n in range(4)]))


@pytest.mark.slow
def test_exchanges_that_are_ready_together_are_one():
    """Thirty gradients of a nest meet once, in one segment."""
    with tb.MultiGpuReplicator(["/cpu:0"], 2, "none") as repl:

        def step_fn(x):
            nest = [x * float(number) for number in range(30)]
            return tb.add_n(repl.all_sum(nest))

        repl.run(step_fn, lambda replica_id: own(replica_id, 3, 5))
        repl.init()
        kinds = [
            segment.kind.value for segment in repl._running.stepper.engine.learners.replicas[0].step.segments
        ]
        assert kinds.count("exchange") == 1


def test_what_is_refused_while_a_step_is_built():
    repl, other = tb.MultiGpuReplicator(["/cpu:0"], 2), tb.MultiGpuReplicator(["/cpu:0"], 2)
    for call in (
        lambda: repl.all_sum(1.0),
        lambda: repl.all_reduce([1.0], "max"),
        lambda: repl.all_gather(1.0),
        lambda: repl.broadcast(1.0),
        lambda: repl.map_reduce(lambda rows: rows, np.zeros((4, 2))),
        lambda: tb.map_gather(lambda rows: rows, np.zeros((4, 2))),
    ):
        with pytest.raises(FailedPreconditionError, match="inside a step: call it in the step_fn"):
            call()
        with repl.context(), pytest.raises(FailedPreconditionError, match="inside a step: call it in"):
            call()
    with repl.context(), pytest.raises(FailedPreconditionError, match="all_sum is for use inside a step"):
        tb.all_sum(1.0)
    with tb.Graph().as_default():  # another one than the Replicator was made in
        results = repl.run(lambda: tb.all_sum(tb.constant(2.0)))
        with pytest.raises(FailedPreconditionError, match="results of run have all replicas' values"):
            tb.all_sum(results)

    def refused(build, message, error=InvalidArgumentError):
        def step_fn(x):
            with pytest.raises(error, match=message):
                build(x)
            return x

        repl.run(step_fn, lambda replica_id: own(replica_id, 3))

    refused(lambda x: other.all_sum(x), "another Replicator", FailedPreconditionError)
    refused(lambda x: repl.all_reduce(x, "median"), "op.*sum, mean, max, min or prod|op.*'median'")
    refused(lambda x: repl.all_sum({"a": x, "b": x > 0}), r"all_sum\['b'\].*expected numbers, got bool")
    refused(lambda x: repl.all_reduce(tb.cast(x, tb.int32), "mean"), "floating numbers for a mean")
    refused(lambda x: repl.broadcast(x, 2), "source from 0 to 1, for 2 replicas, got 2")
    refused(lambda x: repl.map_reduce(lambda rows: rows, x), "rows that divide among 2 replicas")
    refused(lambda x: repl.all_reduce(tb.IndexedSlices(x, [0, 1, 2]), "max"), "sum or mean for IndexedSlices")


class AveragingOptimizer:
    """An optimiser that averages its gradients by itself, as in the paper's section 3.4."""

    def __init__(self, repl, optimizer):
        self._repl, self._optimizer = repl, optimizer

    def minimize(self, loss):
        return self.apply_gradients(self._optimizer.compute_gradients(loss))

    def apply_gradients(self, grads, *args, **kwargs):
        num_repls = self._repl.num_replicas
        mean_grads = []
        for grad, var in grads:
            label = f"mean of {var.name}"
            grad = self._repl.all_sum(grad / num_repls, label)
            mean_grads.append((grad, var))
        return self._optimizer.apply_gradients(mean_grads, *args, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["none", "ssgd"])
def test_an_optimiser_that_averages_by_itself_trains_as_ssgd(sync):
    def trained(sync, wrap):
        with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], 2, sync) as repl:

            def step_fn(x):
                w = tb.Variable(own(7, 5, 2), name="w")
                loss = tb.reduce_mean(tb.square(tb.matmul(x, w) - 1.0))
                return loss, wrap(repl, tb.train.MomentumOptimizer(0.05, 0.9)).minimize(loss)

            losses = [loss for loss, _ in repl.train(step_fn, lambda replica_id: own(replica_id, 4, 5), 6)]
            return np.array(losses), repl.central_values()["w"]

    losses, w = trained(sync, AveragingOptimizer)
    expected, other = trained("ssgd", lambda repl, optimizer: repl.wrap_optimizer(optimizer))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(w, other, rtol=1e-5)


@pytest.mark.slow
def test_hyper_parameters_of_each_replica_have_the_bits_of_a_run_alone():
    rates, momenta, dropped = [0.1, 0.03, 0.3], [0.9, 0.5, 0.0], [0.2, 0.0, 0.5]

    def trained(devices, per_device, rate, momentum, drop):
        with tb.Graph().as_default(), tb.MultiGpuReplicator(devices, per_device, "none") as repl:

            def step_fn(x):
                w = tb.Variable(np.linspace(-1, 1, 6).reshape(3, 2).astype(np.float32), name="w")
                kept = tb.cast(x > drop(), tb.float32) * x
                loss = tb.reduce_mean(tb.square(tb.matmul(kept, w) - 1.0))
                optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(rate(), momentum()))
                return loss, optimizer.minimize(loss)

            def input_fn():
                draw = np.random.default_rng(0)
                while True:
                    yield draw.normal(size=(4, 3)).astype(np.float32)

            return np.array([loss for loss, _ in repl.train(step_fn, input_fn, 5)])

    for devices in (["/cpu:0"], ["/cpu:0", "/cpu:1", "/cpu:2"]):
        each = [lambda values=values: tb.per_replica(values) for values in (rates, momenta, dropped)]
        together = trained(devices, 3 // len(devices), *each)
        for number, values in enumerate(zip(rates, momenta, dropped, strict=True)):
            alone = trained(["/cpu:0"], 1, *(lambda value=value: value for value in values))
            np.testing.assert_array_equal(together[:, number], alone[:, 0])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "make",
    [
        lambda decay: tb.train.GradientDescentOptimizer(0.1, weight_decay=decay),
        lambda decay: tb.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True, weight_decay=decay),
        lambda decay: tb.train.AdamOptimizer(0.01, weight_decay=decay, decay_all=True),
    ],
    ids=["descent", "momentum", "adam"],
)
def test_weight_decay_of_each_replica_has_the_bits_of_a_run_alone(make, kernels):
    decays = [0.1, 0.0, 0.03]

    def trained(devices, per_device, decay):
        with tb.Graph().as_default(), tb.MultiGpuReplicator(devices, per_device, "none") as repl:
            repl.graph.seed = 0

            def step_fn(images, labels):
                hidden = tb.nn.relu(tb.layers.conv2d(images, 5, 3, name="conv"))
                logits = tb.layers.dense(tb.layers.flatten(hidden), 7, name="dense")
                losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
                loss = tb.reduce_mean(losses)
                return loss, repl.wrap_optimizer(make(decay())).minimize(loss)

            def input_fn():
                draw = np.random.default_rng(0)
                while True:
                    yield draw.normal(size=(6, 5, 4, 3)).astype(np.float32), draw.integers(0, 7, 6)

            losses = np.array([loss for loss, _ in repl.train(step_fn, input_fn, 4)])
            return losses, [repl.replica_values(number, slots=True) for number in range(repl.num_replicas)]

    alone = [trained(["/cpu:0"], 1, lambda decay=decay: decay) for decay in decays]
    kernel = [values["dense/kernel"] for _, (values,) in alone]
    assert not any(np.array_equal(kernel[number], kernel[number - 1]) for number in range(3))
    for devices in (["/cpu:0"], ["/cpu:0", "/cpu:1", "/cpu:2"]):
        losses, values = trained(devices, 3 // len(devices), lambda: tb.per_replica(decays))
        for number, (own_losses, (own,)) in enumerate(alone):
            np.testing.assert_array_equal(losses[:, number], own_losses[:, 0])
            assert own.keys() == values[number].keys()
            for name, value in own.items():
                np.testing.assert_array_equal(values[number][name], value, err_msg=name)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", ["ssgd", "sma"])
def test_a_weight_decay_that_is_a_tensor_trains_as_a_number(sync):
    def trained(decay):
        with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2, sync) as repl:

            def step_fn(x):
                w = tb.Variable(own(7, 5, 2), name="w")
                loss = tb.reduce_mean(tb.square(tb.matmul(x, w) - 1.0))
                optimizer = tb.train.MomentumOptimizer(0.05, 0.9, weight_decay=decay())
                return loss, repl.wrap_optimizer(optimizer).minimize(loss)

            losses = [loss for loss, _ in repl.train(step_fn, lambda replica_id: own(replica_id, 4, 5), 6)]
            return np.array(losses)

    expected = trained(lambda: 0.3)
    np.testing.assert_allclose(trained(lambda: tb.constant(0.3)), expected, rtol=1e-5)
    assert not np.allclose(trained(lambda: 0.0), expected, rtol=1e-2)


def test_values_of_each_replica_that_do_not_fit():
    with pytest.raises(FailedPreconditionError, match="per_replica is for use inside a step"):
        tb.per_replica([1.0, 2.0])
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)

    def step_fn(x):
        with pytest.raises(InvalidArgumentError, match="a value for each of 2 replicas, got 3 values"):
            tb.per_replica([1.0, 2.0, 3.0])
        for values in ([0.1, np.nan], [tb.constant(0.1), np.float32(np.inf)], [0.1, [-np.inf]]):
            with pytest.raises(
                InvalidArgumentError, match=r"finite numbers, got .*(nan|inf).* for replica 1"
            ):
                tb.per_replica(values[:2])
        for rates, decays, wrong in (
            ([0.1, -3.0], [0.0, 0.1], "rate .* -3"),
            ([0.1, 1], [0.1, -1], "decay .* -1"),
        ):
            with pytest.raises(InvalidArgumentError, match=rf"expected \w+_{wrong}$"):
                tb.train.MomentumOptimizer(tb.per_replica(rates), 0.9, weight_decay=tb.per_replica(decays))
        return x

    repl.run(step_fn, lambda: np.ones(2, np.float32))
