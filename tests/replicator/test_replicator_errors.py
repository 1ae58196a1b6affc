"""Misuse of Replicators: errors that name the place and the remedy."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from replicator.input_functions import InputOptions, ReplicaShare
from replicator.picked_inputs import inputs_of
from tensorbow.devices import CpuDevice
from tensorbow.errors import AbortedError, FailedPreconditionError, InvalidArgumentError, NotFoundError

pytestmark = pytest.mark.usefixtures("graph")

ONES = np.ones(2, np.float32)


@pytest.fixture
def repl():
    with tb.MultiGpuReplicator(["/cpu:0"], 2) as replicator:
        yield replicator


def second_batch(repl, first, second):
    """Runs a step whose second batch is another."""
    with tb.Session() as session:
        out = repl.run(lambda inputs: tb.ones([]), lambda: iter([first, second, first]))
        repl.init(session)
        session.run(out)
        try:
            session.run(out)
        finally:
            session.run(out)  # the replicas are still usable


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            {"x": ONES},
            {"x": np.ones(3, np.float32)},
            r"inputs\['x'\] of replica 0, batch 1: expected float32\[2\].*got float32\[3\]; give all batch",
        ),
        ((ONES, 1), (ONES, 2.5), r"inputs\[1\] of replica 0.*expected int32\[\].*got float32\[\]"),
        ({"x": ONES}, {"y": ONES}, r"inputs: expected a dictionary with 'x' .*got a dictionary with 'y'"),
        ((ONES, ONES), (ONES,), r"inputs: expected a tuple of 2 .*got a tuple of 1"),
        ({"x": ONES}, ONES, r"inputs: expected a dictionary with 'x' .*got ndarray"),
        ((ONES, {"a": ONES}), (ONES, ONES), r"inputs\[1\]: expected a dictionary"),
        (ONES, (ONES,), r"inputs: expected an array .*got a tuple of 1"),
        (ONES, ONES.astype(np.float64), r"expected float32\[2\].*got float64\[2\]; give all batches one"),
        (
            ONES,
            np.ones(3, np.float32),
            r"expected float32\[2\].*got float32\[3\]; give all .* shape, as by padded_batch",
        ),
    ],
)
def test_batches_that_differ_name_the_leaf(repl, first, second, message):
    with pytest.raises(InvalidArgumentError, match=message):
        second_batch(repl, first, second)


def test_replicas_that_differ_from_each_other(repl):
    with pytest.raises(InvalidArgumentError, match=r"inputs of replica 1, batch 0: expected float32\[2\]"):
        repl.run(lambda x: x, lambda replica_id: iter([np.ones(2 + replica_id, np.float32)]))


@pytest.mark.parametrize("other", [{"dispatch": "fcfs"}, {"sync": "sma"}, {}])
def test_an_option_that_is_refused_is_named_whatever_texts_are_beside_it(other):
    with pytest.raises(InvalidArgumentError, match=r"^tau: expected a whole number of at least 1, got 0$"):
        tb.MultiGpuReplicator(["/cpu:0"], 2, tau=0, **other)


def test_replicas_of_several_workers_are_counted_through():
    batches = [ONES, np.ones(3, np.float32)]
    inputs = inputs_of(InputOptions(lambda replica_id: iter(batches), prefetch=0), ReplicaShare(2, 1, 3))
    inputs.take(1)
    with pytest.raises(InvalidArgumentError, match=r"^inputs of replica 2, batch 1: expected float32\[2\]"):
        inputs.take(1)


def test_a_split_that_does_not_divide(repl):
    with pytest.raises(InvalidArgumentError, match=r"inputs\['x'\]: 5 rows do not split over 2 replicas"):
        repl.run(lambda i: i["x"], lambda: {"x": np.ones((5, 2), np.float32)}, tb.PER_WORKER)
    with pytest.raises(InvalidArgumentError, match="a scalar does not split over 2 replicas"):
        repl.run(lambda i: i, lambda: np.float32(3), tb.PER_WORKER)
    with pytest.raises(InvalidArgumentError, match="expected 2 parts, one per replica, got 1"):
        repl.run(lambda i: i, lambda: ONES, tb.PER_WORKER, input_split_fn=lambda nest, n: [nest])
    with pytest.raises(
        InvalidArgumentError, match="expected input_split_fn to be a function or None, got int 2"
    ):
        repl.run(lambda i: i, lambda: ONES, tb.PER_WORKER, input_split_fn=2)
    with pytest.raises(InvalidArgumentError, match="input_split_fn is for PER_WORKER"):
        repl.run(lambda i: i, lambda: ONES, input_split_fn=lambda nest, n: [nest] * n)
    with pytest.raises(InvalidArgumentError, match=r"PER_REPLICA or tb.PER_WORKER, got str 'all'"):
        repl.run(lambda i: i, lambda: ONES, "all")


def test_wrong_inputs(repl):
    for given in (ONES, [ONES], {"x": ONES}):
        kind = type(given).__name__
        message = f"expected input_fn to be a function that gives batches or None, got {kind} .*; write"
        with pytest.raises(InvalidArgumentError, match=message):
            repl.run(lambda x: x, given)
    with pytest.raises(
        InvalidArgumentError, match=r"inputs\[1\] of replica 0: expected numbers, or an array of strings"
    ):
        repl.run(lambda x, y: x, lambda: (ONES, "text"))
    for bad in (lambda a, b: ONES, lambda replica_id, b: ONES):
        with pytest.raises(InvalidArgumentError, match=r"it asks for \w+, b"):
            repl.run(lambda x: x, bad)
    digits, _ = tb.data.load("digits")
    with pytest.raises(
        InvalidArgumentError, match=r"gave the data set 'digits/train': .*yield dataset\.batch\(rows\)"
    ):
        repl.run(lambda x: x, lambda: digits)
    with pytest.raises(InvalidArgumentError, match=r"input_fn gave None: .*return or yield it"):
        repl.run(lambda x: x, lambda: None)
    with pytest.raises(
        tb.errors.OutOfRangeError, match=r"replica 0 has ended after 0 batches; .*must give one"
    ):
        repl.run(lambda x: x, lambda: iter([]))


def test_a_step_fn_that_does_not_take_what_the_input_gives(repl):
    def step(a, b):
        return a + b

    for input_fn, message in (
        (
            lambda: {"a": ONES, "b": ONES},
            r"step\(a, b\) gets one dict from input_fn, to be taken as one arg.*'b'",
        ),
        (lambda: (ONES, ONES, ONES), r"step\(a, b\) gets 3 from input_fn: too many positional"),
        (None, r"step\(a, b\) gets none, as there is no input_fn: missing .*'a'"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            repl.run(step, input_fn)
    with pytest.raises(TypeError, match="of the user"):
        repl.run(lambda: (_ for _ in ()).throw(TypeError("of the user")))
    for steps in (-1, 1.5, True):
        with pytest.raises(
            InvalidArgumentError,
            match=f"expected steps to be a whole number of at least 0 or None, got .* {steps}",
        ):
            repl.train(step, lambda: (ONES, ONES), steps)


def test_updates_that_are_not_finite_can_be_skipped():
    def input_fn(replica_id):
        for value in (1, np.nan if replica_id else 1, 1):
            yield np.full(2, value, np.float32)

    def step(x):
        w = tb.Variable(ONES, name="w")
        optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.5))
        with tb.control_dependencies([optimizer.minimize(tb.reduce_sum(w * x))]):
            return w.read_value()

    repl = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none", on_nan="skip")
    seen = [[w[0] for w in result] for result in repl.train(step, input_fn)]
    assert seen == [[0.5, 0.5], [0, 0.5], [-0.5, 0]]


def test_a_variable_made_outside_of_the_context(repl):
    outside = tb.Variable(ONES, name="outside")
    for step in (lambda x: x * outside, lambda x: outside * 2.0, lambda x: outside):
        with pytest.raises(
            InvalidArgumentError, match=r"inside `with replicator\.context\(\):` or in step_fn"
        ):
            repl.run(step, lambda: ONES)


def test_optimisers(repl):
    plain = tb.train.GradientDescentOptimizer(0.1)
    wrapped = repl.wrap_optimizer(plain)
    assert repl.wrap_optimizer(wrapped) is wrapped
    with pytest.raises(InvalidArgumentError, match="expected optimizer to be an optimizer, got int 3"):
        repl.wrap_optimizer(3)
    with repl.context():
        w = tb.Variable(ONES, name="w")
        loss = tb.reduce_sum(tb.square(w))
        for use in (
            lambda: wrapped.minimize(loss),
            lambda: wrapped.apply_gradients(wrapped.compute_gradients(loss)),
        ):
            with pytest.raises(
                FailedPreconditionError, match="of a wrapped optimizer is for use inside a step"
            ):
                use()
    with pytest.raises(
        InvalidArgumentError, match=r"not wrapped: use optimizer = replicator\.wrap_optimizer"
    ):
        repl.run(lambda x: plain.minimize(tb.reduce_sum(tb.square(w) * x)), lambda: ONES)
    with tb.NonReplicator() as single:
        single.run(lambda: plain.minimize(tb.reduce_sum(tb.square(tb.Variable(ONES)))))


@pytest.mark.parametrize("averaged", ["nothing", "half", "all"])
def test_a_collective_elsewhere_in_the_step_is_no_averaging(averaged):
    """Statistics of all replicas in the forward pass do not average the gradient, nor does one of two."""
    plain = tb.train.GradientDescentOptimizer(0.1)
    with tb.MultiGpuReplicator(["/cpu:0"], 2, "ssgd") as repl:

        def step(x):
            v, w = tb.Variable(ONES), tb.Variable(ONES)
            loss = tb.reduce_sum(v * w * (x - repl.all_reduce(x, "mean")))
            grads = [grad for grad, _ in plain.compute_gradients(loss)]
            count = {"nothing": 0, "half": 1, "all": 2}[averaged]
            mean = [*repl.all_reduce(grads[:count], "mean"), *grads[count:]]
            return plain.apply_gradients(list(zip(mean, [v, w], strict=True)))

        if averaged == "all":
            repl.run(step, lambda: ONES)
        else:
            with pytest.raises(
                InvalidArgumentError, match="average all gradients that it applies by a collective"
            ):
                repl.run(step, lambda: ONES)


def test_an_optimiser_that_is_not_wrapped_is_found_by_sparse_updates_too(repl):
    plain = tb.train.GradientDescentOptimizer(0.1)

    def step(rows):
        table = tb.Variable(np.ones((4, 2), np.float32))
        return plain.minimize(tb.reduce_sum(tb.gather(table, rows)))

    with pytest.raises(InvalidArgumentError, match=r"not wrapped: .*plain\.minimize"):
        repl.run(step, lambda: np.array([1, 3]))


def test_an_update_that_nothing_runs_is_warned_of(repl):
    optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))

    def forgetful(x):
        loss = tb.reduce_sum(tb.square(tb.Variable(ONES) - x))
        optimizer.minimize(loss)
        return loss

    with pytest.warns(
        UserWarning, match=r"forgetful builds GradientDescent, .*optimizer\.minimize\(loss\)"
    ) as seen:
        repl.run(forgetful, lambda: ONES)
    assert seen[0].filename == __file__


def test_an_input_that_fails_is_named(repl):
    def failing(replica_id):
        yield ONES
        if replica_id == 1:
            raise OSError("the disk is gone")
        yield ONES

    out = repl.run(lambda x: x, failing)
    with tb.Session() as session:
        repl.init(session)
        session.run(out)
        message = r"the input of replica 1, batch 1, failed: OSError: the disk is gone"
        with pytest.raises(AbortedError, match=message) as raised:
            session.run(out)
        causes = []
        error = raised.value
        while error is not None:
            causes.append(type(error))
            error = error.__cause__
        assert OSError in causes
    with pytest.raises(AbortedError, match=message):
        list(tb.MultiGpuReplicator(["/cpu:0"], 2).train(lambda x: x, failing))
    with pytest.raises(AbortedError, match="input_fn of replica 0 failed: KeyError: 'missing'"):
        repl.run(lambda x: x, lambda: {}["missing"])


def test_the_order_of_calls(repl):
    with pytest.raises(FailedPreconditionError, match=r"no step yet; call replicator\.run\(step_fn\)"):
        repl.init()
    with pytest.raises(FailedPreconditionError, match=r"central_values: there are no values before init\(\)"):
        repl.central_values()
    out = repl.run(lambda x: x, lambda: ONES)
    with tb.Session() as session:
        with pytest.raises(FailedPreconditionError, match=r"call replicator\.init\(session\) before"):
            session.run(out)
        with (
            tb.Session(graph=tb.Graph()) as other,
            pytest.raises(InvalidArgumentError, match="another graph"),
        ):
            repl.init(other)
        with pytest.raises(
            InvalidArgumentError, match="expected session to be a session or None, got str 'session'"
        ):
            repl.init("session")
        repl.init(session)
        with pytest.raises(FailedPreconditionError, match="initialised already"):
            repl.init(session)
        assert session.run(repl.run(lambda: tb.ones([2]))).shape == (2, 2)
        with pytest.raises(InvalidArgumentError, match="no replica 2 of 2"):
            repl.replica_values(2)


def test_a_step_inside_a_step_and_its_names_outside(repl):
    with pytest.raises(FailedPreconditionError, match="a step cannot run another"):
        repl.run(lambda: repl.run(lambda: tb.ones([2])))
    for name in (tb.replica_id, tb.num_replicas):
        with pytest.raises(FailedPreconditionError, match="for use inside a step"):
            name()
    with pytest.raises(InvalidArgumentError, match="expected step_fn to be a function, got int 3"):
        repl.run(3)
    with pytest.raises(InvalidArgumentError, match=r"output\['x'\] of step_fn: .*cannot make"):
        repl.run(lambda: {"x": object()})


def test_results_of_unknown_shape(repl):
    def step():
        return {"y": tb.placeholder(tb.float32, [None], name="hole")}

    with pytest.raises(InvalidArgumentError, match=r"placeholder hole, which nothing feeds"):
        repl.run(step)


def test_options():
    with pytest.raises(
        InvalidArgumentError, match="sync: expected one of sma, ssgd, easgd, diloco, none, got 'pair'"
    ):
        tb.MultiGpuReplicator(["/cpu:0"], 2, sync="pair")
    with pytest.raises(
        InvalidArgumentError, match="expected replicas_per_gpu to be a whole number of at least 1"
    ):
        tb.MultiGpuReplicator(["/cpu:0"], 0)
    with pytest.raises(InvalidArgumentError, match="expected at least one, got none"):
        tb.MultiGpuReplicator([], 1)
    for devices in ("/cpu:0", CpuDevice, 2):
        with pytest.raises(
            InvalidArgumentError,
            match=r"expected devices to be a list of devices or their names, as \['/cpu:0'\]",
        ):
            tb.MultiGpuReplicator(devices, 1)
    with pytest.raises(
        InvalidArgumentError, match="expected on_nan to be 'stop' or 'skip', got str 'ignore'"
    ):
        tb.MultiGpuReplicator(["/cpu:0"], 2, on_nan="ignore")
    with pytest.raises(InvalidArgumentError, match=r"alpha: expected 0 < alpha < 0\.6667"):
        tb.MultiGpuReplicator(["/cpu:0"], 2, alpha=0.9)
    with pytest.raises(NotFoundError):
        tb.NonReplicator("/warp:0")


def test_a_step_that_fails_says_which_line_and_the_replicas_stay_usable(repl):
    batch = np.zeros(2, np.float32)
    w_start = ONES

    def step(x):
        w = tb.Variable(w_start, name="w")
        loss = tb.reduce_sum(tb.square(w - x))
        optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))
        return optimizer.minimize(loss), loss

    out = repl.run(step, lambda: batch)
    with tb.Session() as session:
        repl.init(session)
        session.run(out)
        batch[...] = np.nan
        with pytest.raises(tb.errors.NumericsError, match="a gradient of replica 0 is not finite at step 1"):
            session.run(out)
        batch[...] = 0
        assert np.isfinite(session.run(out)[1]).all()


def test_a_device_that_is_named_twice_is_refused_when_the_replicator_is_made():
    with pytest.raises(InvalidArgumentError, match=r"expected different ones, .*CPU:0, .*CPU:0; for more"):
        tb.MultiGpuReplicator(["/cpu:0", "/cpu:0"])


def test_a_placeholder_that_nothing_feeds_is_refused(repl):
    with repl.context():
        rate = tb.placeholder(tb.float32, [], name="rate")
    with pytest.raises(InvalidArgumentError, match="placeholder rate, which nothing feeds: have input"):
        repl.run(lambda x: tb.reduce_sum(x) * rate, lambda: ONES)


@pytest.mark.parametrize("sync", ["ssgd", "none"])
def test_options_of_averaging_without_averaging_are_warned_of(sync):
    with pytest.warns(UserWarning, match=f"tau=2, mu=0.5: ignored, as sync='{sync}' averages no models"):
        tb.MultiGpuReplicator(["/cpu:0"], 2, sync, tau=2, mu=0.5)


def test_the_values_of_replicas_after_training():
    def step_fn(x):
        return tb.assign_add(tb.get_variable("w", [2], initializer="zeros", trainable=False), x)

    with tb.MultiGpuReplicator(["/cpu:0"], 2, "none") as repl:
        list(repl.train(step_fn, lambda replica_id: ONES * replica_id, 3))
        assert [repl.replica_values(replica)["w"][0] for replica in range(2)] == [0, 3]
        with pytest.raises(InvalidArgumentError, match="no replica 2 of 2"):
            repl.replica_values(2)
    with tb.MultiGpuReplicator(["/cpu:0"], 2) as repl:
        list(repl.train(step_fn, lambda: ONES, 3))
        with pytest.raises(FailedPreconditionError, match=r"after shutdown\(\), which keeps central_values"):
            repl.replica_values(1)


def test_a_list_that_was_meant_as_one_batch(repl):
    """A list is one of batches; errors where it does not fit say that a tuple is one batch."""
    hint = "input_fn gave a list, which is 2 batches; for one batch of 2 parts give a tuple"
    x, y = np.ones((4, 3), np.float32), np.ones(4, np.int64)
    with pytest.raises(InvalidArgumentError, match=f"missing a required argument: 'labels'; {hint}"):
        repl.run(lambda images, labels: images, lambda: [x, y])
    with pytest.raises(InvalidArgumentError, match=rf"got float32\[4\]; {hint}"):
        list(repl.train(tb.reduce_sum, lambda: [x, x[:, 0]], steps=2))
    with pytest.warns(UserWarning, match=f"has ended after 2 batches; {hint}"):
        assert len([*repl.train(tb.reduce_sum, lambda: [x, x], steps=3)]) == 2
    for batches in ([(x, y)] * 2, [x] * 9):
        with pytest.warns(UserWarning, match="batches; have input_fn give more"):
            list(repl.train(lambda *inputs: tb.reduce_sum(inputs[0]), lambda given=batches: given, steps=10))


def test_an_input_fn_that_gives_all_replicas_the_same_batches(repl):
    rows = tb.data.Dataset.from_tensor_slices(np.arange(40, dtype=np.float32))
    digits, _ = tb.data.load("digits")

    def generated():
        draw = np.random.default_rng(0)
        while True:
            yield draw.normal(size=4).astype(np.float32)

    def step(replicator):
        w = tb.get_variable("w", initializer=np.float32(1))
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))

        def step_fn(batch):
            images = batch[0] if isinstance(batch, tuple) else batch
            return optimizer.minimize(w * tb.reduce_mean(images))

        return step_fn

    equal = [
        lambda: rows.shuffle(40, seed=1).batch(4),
        lambda: rows.shuffle(40, seed=1).batch(4).map(lambda x: x * 2),
        generated,
        lambda: tb.DatasetBatches(digits, batch_size=4, replicas=1, seed=0),
    ]
    own = [
        lambda replica_id: rows.shuffle(40, seed=replica_id).batch(4),
        lambda: rows.shuffle(40).batch(4),
        lambda: np.ones(4, np.float32),
    ]
    for sync, inputs, warned in [("sma", equal, True), ("sma", own, False), ("none", equal[:1], False)]:
        for input_fn in inputs:
            with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2, sync) as replicator:
                with replicator.context():
                    step_fn = step(replicator)
                if warned:
                    with pytest.warns(UserWarning, match="the same batches, .*seed=replica_id") as caught:
                        replicator.run(step_fn, input_fn)
                    assert caught[0].filename == __file__
                else:
                    replicator.run(step_fn, input_fn)


def test_a_context_taken_for_a_number_is_named_as_users_know_it(repl):
    with pytest.raises(AbortedError, match="and 'InputContext'"):
        repl.run(lambda x: x, lambda number: np.ones(2) * (1 + number))


def test_a_collective_around_the_steps(repl):
    losses = repl.run(lambda: tb.ones([]))
    for collective in (tb.all_reduce, tb.all_sum, tb.all_gather, tb.broadcast):
        with pytest.raises(FailedPreconditionError, match=f"{collective.__name__} is for .*reduce_mean"):
            collective(losses)
    with tb.Graph().as_default(), tb.Session() as session:  # a plain program: one value
        assert session.run(tb.all_sum(tb.constant(2.0))) == 2


def test_the_name_of_a_replicator_has_the_options_that_were_given():
    options = {"tau": 8, "dispatch": "fcfs"}
    assert repr(tb.MultiGpuReplicator(["/cpu:0"], 2, **options)).endswith("; sync sma, tau 8, dispatch fcfs>")
    assert repr(tb.MultiGpuReplicator(["/cpu:0"], 2, "none")).endswith("; sync none>")
