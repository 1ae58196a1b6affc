"""The end of a replicator's input, batches without examples, and how replicators show themselves."""

from __future__ import annotations

import gc
import itertools
import os
import queue
import signal
import threading
import time
import warnings

import numpy as np
import pytest

import tensorbow as tb
from replicator import multi_gpu
from tensorbow.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)

pytestmark = pytest.mark.usefixtures("graph")

ONES = np.ones(2, np.float32)


@pytest.fixture
def repl():
    with tb.MultiGpuReplicator(["/cpu:0"], 2) as replicator:
        yield replicator


def test_empty_batches(repl):
    """Their mean loss would be NaN, with gradients of zero."""
    empty, full = np.ones((0, 3), np.float32), np.ones((2, 3), np.float32)
    message = r"inputs\['x'\] of replica 0, batch 0: expected at least one example, got float32\[0, 3\]"
    for replication in (tb.PER_REPLICA, tb.PER_WORKER):
        with pytest.raises(InvalidArgumentError, match=message):
            repl.run(lambda i: i["x"], lambda: {"x": empty}, replication)
    with pytest.raises(InvalidArgumentError, match=r"inputs\[1\] of replica 0.* got int64\[0\]"):
        repl.run(lambda x, y: x, lambda: iter([(full, np.ones(0, np.int64))]))
    with pytest.raises(InvalidArgumentError, match=r"of replica 1, batch 0: expected float32\[2, 3\]"):
        repl.run(lambda x: x, lambda replica_id: iter([empty if replica_id else full]))
    assert repl.run(lambda x: x, lambda: np.ones((2, 0), np.float32)).shape == [2, 2, 0]


def test_input_that_ends_before_the_steps(repl):
    def step(x):
        return tb.reduce_sum(x)

    with pytest.warns(
        UserWarning, match="train: 2 of 5 steps: the input of replica 0 has ended after 2"
    ) as told:
        assert len(list(repl.train(step, lambda: iter([ONES] * 2), 5))) == 2
    assert (len(told), told[0].filename) == (1, __file__)
    assert len(list(repl.train(step, lambda: iter([ONES] * 2), 2))) == 2
    assert len(list(repl.train(step, lambda: iter([ONES] * 2)))) == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("short", "longer"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_an_input_that_ends_before_the_others_is_named(repl, short, longer, prefetch):
    def own(replica_id):
        for _ in range(3 if replica_id == short else 5):
            time.sleep(3e-4)  # so that a thread draws ahead
            yield ONES

    said = (
        f"replica {short} has ended after 3 batches, while that of replica {longer} goes on; all replicas end"
    )
    with pytest.warns(UserWarning, match=f"train: 3 steps: the input of {said}") as told:
        assert len(list(repl.train(tb.reduce_sum, own, prefetch=prefetch))) == 3
    assert (len(told), told[0].filename) == (1, __file__)
    with tb.Session() as session:
        result = repl.run(tb.reduce_sum, own, prefetch=prefetch)
        repl.init(session)
        for _ in range(3):
            session.run(result)
        with pytest.raises(tb.errors.OutOfRangeError, match=f"replica {short} .* {longer} goes on"):
            session.run(result)


def test_errors_of_input_fn_itself_name_the_replica_and_the_line(repl):
    def failing(replica_id):
        if replica_id:
            raise KeyError("no such file")
        return iter([ONES])

    here = r"\(at .*test_replicator_inputs.py:\d+ in"
    with pytest.raises(
        AbortedError, match=f"input_fn of replica 1 failed: KeyError: 'no such file' {here} failing"
    ) as info:
        repl.train(tb.reduce_sum, failing)
    assert isinstance(info.value.__cause__, KeyError)
    with pytest.raises(AbortedError, match=f"input_fn failed: ZeroDivisionError: .* {here}"):
        repl.train(tb.reduce_sum, lambda: 1 / 0, None, tb.PER_WORKER)

    def first_call(replica_id):
        def batch():
            raise (StopIteration if replica_id else ValueError("torn"))

        return batch

    with pytest.raises(AbortedError, match=f"input_fn of replica 0 failed: ValueError: torn {here} batch"):
        repl.train(tb.reduce_sum, first_call)
    with pytest.raises(tb.errors.OutOfRangeError, match="the input of replica 1 has ended after 0 batches"):
        repl.train(tb.reduce_sum, lambda replica_id: first_call(1) if replica_id else ONES)

    class Torn:
        def __iter__(self):
            raise OSError("gone")

    with pytest.raises(AbortedError, match=f"iterator of input_fn of replica 0 failed: OSError: gone {here}"):
        repl.train(tb.reduce_sum, Torn)

    def cut(nest, replicas):
        raise TypeError("cannot cut")

    with pytest.raises(AbortedError, match=f"input_split_fn, batch 0, failed: TypeError: .* {here} cut"):
        repl.train(tb.reduce_sum, lambda: iter([ONES]), None, tb.PER_WORKER, cut)

    def missing():
        raise tb.errors.NotFoundError("none")

    with pytest.raises(tb.errors.NotFoundError, match=r"^none$"):  # of this library: as it is
        repl.train(tb.reduce_sum, missing)


def test_what_a_replicator_looks_like(repl):
    assert repr(repl) == "<tb.MultiGpuReplicator 2 on /cpu:0; sync sma>"
    with tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], (1, 2), "ssgd") as several:
        assert repr(several) == "<tb.MultiGpuReplicator 1 on /cpu:0, 2 on /cpu:1; sync ssgd>"


def numbers(count, slow=0.0):
    for number in range(count):
        time.sleep(slow)
        yield np.full(2, number, np.float32)


def results(repl, count, slow=0.0, **options):
    steps = repl.train(tb.reduce_sum, lambda: numbers(count, slow), **options)
    return [float(value[0]) for value in steps]


def test_a_thread_draws_the_next_input_while_a_step_runs(repl):
    drawn, wanted = queue.SimpleQueue(), threading.Semaphore(3)

    def inputs():
        for number, batch in enumerate(numbers(7, 0.001)):
            assert wanted.acquire(timeout=20)
            drawn.put((number, threading.current_thread() is threading.main_thread()))
            yield batch

    steps = repl.train(
        tb.reduce_sum, lambda context: inputs(), 4, tb.PER_WORKER, lambda nest, count: [nest] * 2
    )
    assert drawn.get(timeout=20) == (0, True)  # to learn its shape
    assert next(steps)[1] == 0
    for step in range(1, 4):
        assert next(steps)[1] == 2 * step
        if step == 1:
            assert drawn.get(timeout=20) == (1, True)  # the second one that takes long
        assert drawn.get(timeout=20) == (step + 1, False)  # nobody has asked for it yet
        wanted.release()
    steps.close()
    repl.shutdown()
    assert not [each for each in threading.enumerate() if each.name == "replicator inputs"]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_the_same_inputs_in_the_same_order_whoever_draws_them(repl, prefetch):
    assert results(repl, 9, 0.001, prefetch=prefetch) == [2.0 * number for number in range(9)]
    assert results(repl, 5, prefetch=prefetch) == [0, 2, 4, 6, 8]


def test_inputs_that_were_drawn_ahead_come_after_a_shutdown():
    repl = tb.NonReplicator()
    sums = repl.run(tb.reduce_sum, lambda: numbers(8, 0.001), prefetch=2)
    seen = []
    for _ in range(2):
        with tb.Session() as session:
            repl.init(session)
            seen += [float(session.run(sums)[0]) for _ in range(3)]
            repl.shutdown(session)
    assert seen == [0, 2, 4, 6, 8, 10]


def test_an_error_of_the_input_comes_at_its_step_with_the_users_line():
    def broken():
        yield from numbers(3, 0.001)
        raise ValueError("the disk is full")

    for prefetch in (0, 2):
        with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2) as repl:
            steps = repl.train(tb.reduce_sum, lambda replica_id: broken(), prefetch=prefetch)
            assert [float(next(steps)[0]) for _ in range(3)] == [0, 2, 4]
            with pytest.raises(
                AbortedError,
                match=r"replica 0, batch 3, failed: ValueError: the disk is full \(at .*replicator_inputs",
            ):
                next(steps)


def test_a_replicator_that_is_garbage_leaves_no_thread():
    repl = tb.NonReplicator()
    steps = repl.train(tb.reduce_sum, lambda: numbers(100, 0.001))
    next(steps)
    next(steps)
    threads = [each for each in threading.enumerate() if each.name == "replicator inputs"]
    assert len(threads) == 1
    del steps, repl  # neither is closed
    gc.collect()
    threads[0].join(20)
    assert not threads[0].is_alive()


def test_a_function_is_called_for_each_step():
    """As in the paper's section 3.2: input_fn returns a function that gives a nest of arrays."""
    calls = [0, 0]

    def input_fn(replica_id):
        def dequeue_trajectories():
            calls[replica_id] += 1
            return {"x": np.full(3, 10 * replica_id + calls[replica_id], np.float32)}

        return dequeue_trajectories

    with tb.MultiGpuReplicator(["/cpu:0"], 2) as repl:
        values = [v.tolist() for v in repl.train(lambda nest: nest["x"][0], input_fn, 3, prefetch=0)]
    assert values == [[1, 11], [2, 12], [3, 13]]
    assert calls == [3, 3]


def test_a_function_that_builds_tensors_becomes_part_of_the_step():
    def input_fn(replica_id):
        return lambda: tb.fill([2], float(replica_id)) + tb.random_uniform([2], seed=4)

    with tb.MultiGpuReplicator(["/cpu:0"], 2) as repl:
        first, second = repl.train(lambda x: x, input_fn, 2)
    assert (first != second).all()
    assert (np.floor(first) == [[0, 0], [1, 1]]).all()


@pytest.mark.parametrize("replication", [tb.PER_REPLICA, tb.PER_WORKER])
@pytest.mark.parametrize(("smaller", "expected"), [("drop", [12, 24]), ("pad", [12, 6, 24])])
def test_a_smaller_batch(repl, replication, smaller, expected):
    """The second batch has rows 1, 2 where four are expected: padded they are 1, 2, 1, 2."""

    def inputs():
        yield np.full((4, 1), 3, np.float32)
        yield np.array([[1], [2]], np.float32)
        yield np.full((4, 1), 6, np.float32)

    steps = repl.train(
        lambda x: tb.all_sum(tb.reduce_sum(x)),
        lambda: inputs(),
        None,
        replication,
        smaller_batch=smaller,
    )
    each = 2 if replication == tb.PER_REPLICA else 1
    assert [float(value[0]) / each for value in steps] == expected


def own_examples(replica_id):
    """Batches of 4, 4 and 3 examples of a replica, as of an epoch of 11."""
    rng = np.random.default_rng(replica_id)
    for count in (4, 4, 3, 4, 4, 3):
        yield {"x": rng.normal(size=(count, 5)).astype(np.float32), "scale": np.ones(5, np.float32)}


def trained_on_smaller_batches(repl):
    """Losses and outputs by step of momentum SGD that averages gradients; returns the variable last."""

    def step_fn(batch):
        assert list(batch["x"].shape.dims) == [None, 5]
        assert list(batch["scale"].shape.dims) == [5]
        w = tb.Variable(np.linspace(-1, 1, 5, dtype=np.float32), name="w")
        y = tb.reduce_sum(batch["x"] * w * batch["scale"], axis=1)
        loss = tb.reduce_mean(tb.square(y - 1.0))
        optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9))
        return loss, y, optimizer.minimize(loss)

    with tb.Graph().as_default():
        losses, outputs = [], []
        for loss, y, _ in repl.train(step_fn, own_examples, smaller_batch="compile"):
            losses.append(loss)
            outputs.append(y)
    return losses, outputs, repl.central_values()["w"]


@pytest.mark.slow
def test_the_step_is_compiled_for_smaller_batches():
    with tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], 1, "ssgd") as repl:
        losses, outputs, w = trained_on_smaller_batches(repl)
    assert [y.shape for y in outputs] == [(2, count) for count in (4, 4, 3, 4, 4, 3)]
    expected, velocity = np.linspace(-1, 1, 5), np.zeros(5)
    for loss, *batches in zip(losses, own_examples(0), own_examples(1), strict=True):
        errors = [batch["x"] @ expected - 1 for batch in batches]
        np.testing.assert_allclose(loss, [(error**2).mean() for error in errors], rtol=1e-5)
        grads = [2 * batch["x"].T @ error / len(error) for batch, error in zip(batches, errors, strict=True)]
        velocity = 0.9 * velocity + np.mean(grads, axis=0)
        expected = expected - 0.1 * velocity
    np.testing.assert_allclose(w, expected, rtol=1e-5)


def test_smaller_batches_behind_other_steps_and_new_variables():
    """Each step keeps its programs apart, and gets them again where replicas are rebuilt."""
    with tb.MultiGpuReplicator(["/cpu:0"], 2, "none") as repl:
        with repl.context():
            total = tb.Variable(np.float32(0), trainable=False, name="total")

        def counted(factor):
            def step_fn(x):
                new = tb.Variable(np.float32(factor))
                return tb.assign_add(total, new * tb.cast(tb.shape(x)[0], tb.float32))

            return step_fn

        def inputs():
            for count in (4, 2, 4, 1, 2):
                yield np.zeros((count, 3), np.float32)

        with tb.Session() as session:
            ones = repl.run(counted(1), lambda: inputs(), smaller_batch="compile")
            repl.init(session)
            seen = [session.run(ones)[0] for _ in range(3)]
            tens = repl.run(counted(10), lambda: inputs(), smaller_batch="compile")
            repl.init(session)
            for step in (ones, tens, ones, tens, tens):
                seen.append(session.run(step)[0])
    assert seen == [4, 6, 10, 11, 51, 53, 73, 113]


@pytest.mark.parametrize("replication", [tb.PER_REPLICA, tb.PER_WORKER])
def test_unequal_parts_of_a_smaller_batch_are_refused(repl, replication):
    def inputs(replica_id):
        yield np.ones((4, 1), np.float32)
        yield np.ones((3 - replica_id, 1), np.float32)

    steps = repl.train(tb.reduce_sum, inputs, None, replication, smaller_batch="compile")
    next(steps)
    message = "expected 3 examples .* replica 1|replica 1.*expected 3 examples.*got 2|3 rows do not split"
    with pytest.raises(InvalidArgumentError, match=message):
        next(steps)


def test_only_what_is_smaller_is_compiled(repl):
    def larger():
        yield np.ones((4, 1), np.float32)
        yield np.ones((5, 1), np.float32)

    def narrower():
        yield np.ones((4, 3), np.float32)
        yield np.ones((4, 2), np.float32)

    for inputs in (larger, narrower):
        steps = repl.train(tb.reduce_sum, lambda inputs=inputs: inputs(), smaller_batch="compile")
        next(steps)
        with pytest.raises(InvalidArgumentError, match=r"batch 1: expected float32\[4"):
            next(steps)
        repl.shutdown()


def test_results_of_run_have_one_shape_for_all_batches(repl):
    with pytest.raises(InvalidArgumentError, match=r"its shape is .*reshape or reduce it"):
        repl.run(lambda x: x, lambda: np.ones((4, 1), np.float32), smaller_batch="compile")


def test_a_smaller_batch_is_refused_by_default(repl):
    def inputs():
        yield np.ones((4, 1), np.float32)
        yield np.ones((3, 1), np.float32)

    steps = repl.train(tb.reduce_sum, lambda: inputs())
    next(steps)
    with pytest.raises(
        InvalidArgumentError, match=r"batch 1: expected float32\[4, 1\].*got float32\[3, 1\]; for a smal"
    ):
        next(steps)


@pytest.mark.parametrize(
    ("arguments", "sync"),
    [
        ({"devices": ["/cpu:0", "/cpu:1"]}, "ssgd"),
        ({"devices": ["/cpu:0", "/cpu:1"], "replicas_per_gpu": (1, 2)}, "sma"),
        ({"devices": ["/cpu:0", "/cpu:1"], "tau": 4}, "sma"),
        ({"devices": ["/cpu:0", "/cpu:1"], "sync": "none"}, "none"),
        ({"devices": ["/cpu:0"], "replicas_per_gpu": 2}, "sma"),
    ],
)
def test_the_synchroniser_by_default(arguments, sync):
    with tb.MultiGpuReplicator(**arguments) as replicator:
        assert replicator.synchronisation.sync == sync


def test_more_gpus_than_there_are(monkeypatch):
    monkeypatch.setattr(multi_gpu, "available_devices", lambda: [{"name": "/gpu:0", "kind": "gpu"}])
    with pytest.raises(
        NotFoundError, match=r"num_gpus of at most 1.* got 8; .*devices=\[f\"/cpu:\{i\}\" for i"
    ) as e:
        tb.MultiGpuReplicator(num_gpus=8)
    assert "\n" not in str(e.value)
    with pytest.raises(InvalidArgumentError, match="expected devices or num_gpus, got 1 devices and 1"):
        tb.MultiGpuReplicator(["/cpu:0"], num_gpus=1)


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_arrays_that_the_users_code_uses_again_are_not_overwritten(repl, prefetch):
    def inputs():
        buffer = np.zeros(2, np.float32)
        for number in range(12):
            time.sleep(0.0005)
            buffer[...] = number
            yield buffer

    steps = repl.train(lambda x: tb.reduce_sum(x), lambda replica_id: inputs(), prefetch=prefetch)
    found = []
    for value in steps:
        time.sleep(0.002)  # the thread draws meanwhile
        found.append(float(value[0]))
    assert found == [2.0 * number for number in range(12)]


@pytest.mark.parametrize("prefetch", [0, 1])
def test_the_input_may_depend_on_what_is_trained(prefetch):
    with tb.Graph().as_default(), tb.NonReplicator() as replicator:
        seen = []

        def input_fn():
            yield np.zeros(2, np.float32)
            for _ in range(5):
                time.sleep(0.0005)
                seen.append(float(replicator.central_values()["total"]))
                yield np.full(2, seen[-1], np.float32)

        def step_fn(x):
            total = tb.Variable(0.0, trainable=False, name="total", combine="sum")
            return total.assign_add(1.0), x

        list(replicator.train(step_fn, input_fn, 5, prefetch=prefetch))
    if not prefetch:
        assert seen == [1, 2, 3, 4]
    assert seen == sorted(seen)


def test_an_iterator_that_two_steps_draw_from_is_not_drawn_ahead():
    with tb.Graph().as_default(), tb.NonReplicator() as replicator, tb.Session() as session:
        shared = numbers(12, 0.001)
        first = replicator.run(tb.reduce_sum, lambda: shared)
        second = replicator.run(tb.reduce_max, lambda: shared)
        replicator.init(session)
        found = [(float(session.run(first)[0]), float(session.run(second)[0])) for _ in range(5)]
    assert found == [(0, 1), (4, 3), (8, 5), (12, 7), (16, 9)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork\\(\\) was called")  # by JAX, where another test has imported it
def test_a_forked_process_is_refused_and_does_not_hang(repl):
    steps = repl.train(tb.reduce_sum, lambda: numbers(50, 0.001))
    for _ in range(3):
        next(steps)
    child = os.fork()
    if not child:
        try:
            next(steps)
        except FailedPreconditionError as error:
            os._exit(0 if "forked" in str(error) else 2)
        finally:
            os._exit(3)
    assert os.waitpid(child, 0)[1] == 0
    next(steps)


def test_each_training_ends_its_thread(repl):
    for _ in range(3):
        assert len(list(repl.train(tb.reduce_sum, lambda: numbers(100, 0.001), 3))) == 3
        assert not [each for each in threading.enumerate() if each.name == "replicator inputs"]


def test_smaller_parts_of_different_lengths_are_refused(repl):
    def inputs():
        yield np.ones((4, 1), np.float32), np.arange(4)
        yield np.ones((2, 1), np.float32), np.arange(3)

    steps = repl.train(lambda x, y: tb.reduce_sum(x), lambda: inputs(), smaller_batch="pad")
    next(steps)
    with pytest.raises(InvalidArgumentError, match="in all parts of batch 1, got 2 and 3"):
        next(steps)


def test_dropping_ends_where_all_batches_are_smaller(repl):
    def inputs():
        yield np.ones((4, 1), np.float32)
        while True:
            yield np.ones((2, 1), np.float32)

    steps = repl.train(tb.reduce_sum, lambda: inputs(), smaller_batch="drop", prefetch=0)
    next(steps)
    with pytest.raises(InvalidArgumentError, match="1000 batches in a row are smaller than the first"):
        next(steps)


class Examples:
    """A data set by number, as PyTorch's are."""

    def __len__(self):
        return 3

    def __getitem__(self, number):
        return np.full(2, number + 1, np.float32)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([np.full(2, value, np.float32) for value in (1, 2, 3)], [2, 4, 6]),
        ([(np.full(2, value, np.float32),) for value in (1, 2)], [2, 4]),
        ([{"x": np.full(2, 5, np.float32)}], [10]),
        (Examples(), [2, 4, 6]),
        ([1.0, 2.0], [3, 3, 3, 3]),
        ((np.ones(2, np.float32),), [2, 2, 2, 2]),
    ],
)
def test_a_list_is_one_of_batches(repl, given, expected):
    def step_fn(x):
        return tb.all_reduce(tb.reduce_sum(x["x"] if isinstance(x, dict) else x), "mean")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [value[0] for value in repl.train(step_fn, lambda: given, 4)] == expected
    assert len(caught) == (len(expected) < 4)


def test_an_empty_list_has_no_batch(repl):
    with pytest.raises(tb.errors.OutOfRangeError, match="ended after 0 batches; input_fn must give one"):
        repl.train(lambda x: x, lambda: [])


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_function_called_for_each_step_ends_fails_and_goes_on(repl, prefetch):
    calls = itertools.count()

    def batch():
        number = next(calls)
        if number == 3:
            raise OSError("disk hiccup")
        if number == 6:
            raise StopIteration
        return np.full(2, number, np.float32)

    with tb.Session() as session:
        result = repl.run(
            lambda x: tb.reduce_max(x), lambda: batch, tb.PER_WORKER, lambda x, n: [x] * n, prefetch=prefetch
        )
        repl.init(session)
        seen = [session.run(result)[0] for _ in range(3)]
        with pytest.raises(AbortedError, match=r"disk hiccup \(at .*test_replicator_inputs.py:\d+ in batch"):
            session.run(result)
        seen += [session.run(result)[0] for _ in range(2)]
        with pytest.raises(tb.errors.OutOfRangeError, match="has ended"):
            session.run(result)
    assert seen == [0, 1, 2, 4, 5]


def test_big_endian_arrays(repl):
    given = np.arange(4, dtype=">f4")
    assert [value[0] for value in repl.train(tb.reduce_sum, lambda: iter([given, given]))] == [6, 6]


@pytest.mark.parametrize("replication", [tb.PER_REPLICA, tb.PER_WORKER])
def test_dtypes_that_tensors_lack_are_widened(repl, replication):
    """As in data sets: integers become int64 and float16 becomes float32, in later batches too."""

    def batches():
        for labels in (np.int8, np.uint16, np.int64):
            yield np.array([[1.5], [2.5]], np.float16), np.array([3, 100], labels)

    def step(x, labels):
        assert (x.dtype, labels.dtype) == (tb.float32, tb.int64)
        return tb.reduce_sum(x), tb.reduce_sum(labels)

    seen = [*repl.train(step, batches, input_replication=replication)]
    expected = [4.0, 103] if replication == tb.PER_REPLICA else [1.5, 3]
    assert [[total[0] for total in totals] for totals in seen] == [expected] * 3
    with pytest.raises(InvalidArgumentError, match="uint64 cannot become int64 without loss"):
        next(repl.train(lambda x: x, lambda: iter([np.array([2**63], np.uint64)])))


def test_shuffles_of_several_replicas_differ_without_a_seed(repl):
    def order(replica_id):
        return tb.data.Dataset.from_tensor_slices(np.arange(64)).shuffle(64).batch(64)

    ((first, second),) = repl.train(lambda x: x, order)
    assert sorted(first) == sorted(second) == [*range(64)]
    assert (first != second).any()
    assert (first[:-1] > first[1:]).any()


def test_the_seed_of_the_graph_around_is_the_replicators():
    def values():
        with tb.Graph().as_default():
            tb.set_random_seed(5)
            with tb.MultiGpuReplicator(["/cpu:0"], 1) as repl:
                return next(repl.train(lambda: tb.random_normal([3]), None))

    np.testing.assert_array_equal(values(), values())


def test_ctrl_c_does_not_wait_for_an_input_fn_that_blocks():
    entered, release, ended = threading.Event(), threading.Event(), []

    def inputs(index):
        yield np.ones((4, 3), np.float32)
        entered.set()
        ended.append(release.wait(30))

    def interrupt():
        if entered.wait(30):
            os.kill(os.getpid(), signal.SIGINT)

    def step(x):
        return tb.reduce_sum(x)

    sender = threading.Thread(target=interrupt)
    sender.start()
    replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2)
    try:
        with pytest.raises(KeyboardInterrupt):
            for _ in replicator.train(step, inputs, steps=5):
                pass
        assert ended == []  # the input_fn still waits
    finally:
        release.set()
        sender.join()
