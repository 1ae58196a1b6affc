"""Several steps of one replicator: training and evaluation, and steps that are built after `init`."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import CpuDevice
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError

pytestmark = [
    pytest.mark.usefixtures("graph"),
    pytest.mark.filterwarnings("ignore:central_values"),  # of independent replicas, replica 0's
]

SYNCS = [{}, {"tau": 3, "mu": 0.2}, {"staleness": 1}, {"sync": "ssgd"}, {"sync": "none"}]


class Regression:
    """A model with dropout, its training step and an evaluation, over 3 replicas of 2 devices."""

    def __init__(self, rate=0.05, **options):
        self.repl = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], (1, 2), **options)
        self.optimizer = self.repl.wrap_optimizer(tb.train.MomentumOptimizer(rate, 0.9))

    def loss(self, x, training):
        with tb.variable_scope("model", reuse=tb.AUTO_REUSE):
            w = tb.get_variable("w", [4, 2], initializer=tb.initializers.zeros())
        hidden = tb.nn.dropout(x, rate=0.3, seed=7) if training else x
        return tb.reduce_mean(tb.square(tb.matmul(hidden, w) - 1.0))

    def train_step(self, x):
        loss = self.loss(x, training=True)
        with tb.control_dependencies([self.optimizer.minimize(loss)]):
            return tb.identity(loss)

    def eval_step(self, x):
        return {"loss": self.loss(x, training=False)}

    def build_train(self):
        return self.repl.run(self.train_step, self.input_fn)

    def build_eval(self):
        held_out = np.random.default_rng(99).normal(size=(5, 4)).astype(np.float32)
        return self.repl.run(self.eval_step, lambda: held_out)

    @staticmethod
    def input_fn(replica_id):
        rng = np.random.default_rng(replica_id)
        while True:
            yield rng.normal(size=(3, 4)).astype(np.float32)

    def state(self):
        values = [self.repl.replica_values(i, slots=True) for i in range(3)]
        return [self.repl.central_values()["model/w"], *(v[k] for v in values for k in sorted(v))]


def schedule():
    return tb.train.PiecewiseConstant([2, 4], [0.1, 0.05, 0.01])


def trained(looks, rate=0.05, **options):
    """Losses and all values of 7 rounds, with evaluations between them or without."""
    program = Regression(rate, **options)
    train, evaluate = program.build_train(), program.build_eval()
    with program.repl, tb.Session() as session:
        program.repl.init(session)
        losses = []
        for _ in range(7):
            losses.append(session.run(train))
            for _ in range(looks):
                assert session.run(evaluate)["loss"].shape == (3,)
        return [np.stack(losses), *program.state()]


@pytest.mark.slow
@pytest.mark.parametrize("options", SYNCS)
@pytest.mark.parametrize("rate", [0.05, "schedule"])
def test_an_evaluation_leaves_training_as_it_is_to_the_bit(options, rate):
    made = schedule if rate == "schedule" else lambda: rate
    for plain, looked in zip(trained(0, made(), **options), trained(2, made(), **options), strict=True):
        assert plain.tobytes() == looked.tobytes()


def test_an_evaluation_sees_each_replicas_own_weights():
    program = Regression()
    train, evaluate = program.build_train(), program.build_eval()
    x = np.random.default_rng(99).normal(size=(5, 4)).astype(np.float32)
    with program.repl, tb.Session() as session:
        program.repl.init(session)
        for _ in range(3):
            session.run(train)
        expected = [np.mean((x @ program.repl.replica_values(i)["model/w"] - 1) ** 2) for i in range(3)]
        np.testing.assert_allclose(session.run(evaluate)["loss"], expected, rtol=1e-5)
        assert len(set(expected)) == 3


def test_random_ops_of_an_evaluation_draw_anew_each_time():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
    out = repl.run(lambda: tb.random_uniform([4], seed=3))
    with repl, tb.Session() as session:
        repl.init(session)
        first, second = session.run(out), session.run(out)
    assert len({row.tobytes() for row in (*first, *second)}) == 4


def test_counters_of_an_evaluation_are_written():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
    with repl.context():
        seen = tb.Variable(0, trainable=False, combine="sum", name="seen")
    out = repl.run(lambda x: seen.assign_add(tb.shape(x)[0]), lambda: np.ones(5, np.float32))
    with repl, tb.Session() as session:
        repl.init(session)
        for _ in range(3):
            session.run(out)
        assert repl.central_values()["seen"] == 30


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", SYNCS)
def test_a_step_built_after_init_is_as_good_as_one_built_before(options):
    results = []
    for late in (False, True):
        program = Regression(**options)
        with tb.Graph().as_default():
            train = program.build_train()
            evaluate = None if late else program.build_eval()
            with program.repl, tb.Session() as session:
                program.repl.init(session)
                for _ in range(3):
                    session.run(train)
                if evaluate is None:
                    evaluate = program.build_eval()
                looked = session.run(evaluate)["loss"]
                for _ in range(2):
                    session.run(train)
                results.append([looked, *program.state()])
    for early, late in zip(*results, strict=True):
        assert early.tobytes() == late.tobytes()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", SYNCS)
def test_new_variables_are_taken_in_by_a_further_init_and_training_goes_on_bit_for_bit(options):
    results = []
    for grows in (False, True):
        program = Regression(**options)
        with tb.Graph().as_default():
            train = program.build_train()
            with program.repl, tb.Session() as session:
                program.repl.init(session)
                for _ in range(4):
                    session.run(train)
                if grows:
                    with program.repl.context():
                        extra = tb.Variable([5.0, 6.0], name="extra")
                        other = program.repl.wrap_optimizer(tb.train.AdamOptimizer(0.1))
                    more = program.repl.run(lambda e=extra, o=other: o.minimize(tb.reduce_sum(tb.square(e))))
                    with pytest.raises(
                        FailedPreconditionError,
                        match=r"variables extra, .*call replicator\.init\(session\) again",
                    ):
                        session.run(more)
                    session.run(train)  # the others go on
                    program.repl.init(session)
                    assert program.repl.central_values()["extra"].tolist() == [5, 6]
                else:
                    session.run(train)
                for _ in range(4):
                    session.run(train)
                values = [program.repl.replica_values(i, slots=True) for i in range(3)]
                results.append([v["model/w/Momentum"] for v in values] + [v["model/w"] for v in values])
                results[-1].append(program.repl.central_values()["model/w"])
                if grows:
                    session.run(more)
                    assert (program.repl.replica_values(2)["extra"] != [5, 6]).all()
                    with pytest.raises(FailedPreconditionError, match="initialised already"):
                        program.repl.init(session)
    for plain, grown in zip(*results, strict=True):
        assert plain.tobytes() == grown.tobytes()


def test_values_for_new_variables():
    device = CpuDevice("/cpu:0")
    repl = tb.MultiGpuReplicator([device], 2)
    with repl.context():
        old = tb.Variable([1.0], name="old")
    first = repl.run(lambda: old)
    with repl, tb.Session() as session:
        repl.init(session, {"old": np.array([2], np.float32)})
        held = device.memory.held_nbytes
        with repl.context():
            new = tb.Variable([3.0], name="new")
        second = repl.run(lambda: new)
        with pytest.raises(InvalidArgumentError, match=r"have old already; give values for .*\(new\)"):
            repl.init(session, {"old": np.array([9], np.float32)})
        with pytest.raises(InvalidArgumentError, match=r"variable new: expected shape \[1\]"):
            repl.init(session, {"new": np.zeros(2, np.float32)})
        assert device.memory.held_nbytes == held
        assert session.run(first).tolist() == [[2], [2]]
        repl.init(session, {"new": np.array([4], np.float32)})
        assert [values.tolist() for values in session.run([first, second])] == [[[2], [2]], [[4], [4]]]
    assert device.memory.held_nbytes == 0
    device.close()


def test_two_schedules_over_two_steps():
    """Each of a generator's and a discriminator's optimiser counts the steps that it applies."""
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none")
    with repl.context():
        first, second = (tb.Variable([0.0], name=name) for name in ("first", "second"))

    def step_with(variable, boundary):
        rate = tb.train.PiecewiseConstant([boundary], [1.0, 0.5])
        optimizer = repl.wrap_optimizer(tb.train.GradientDescentOptimizer(rate))
        return lambda: optimizer.minimize(tb.reduce_sum(variable))

    steps = [repl.run(step_with(first, 1)), repl.run(step_with(second, 0))]
    look = repl.run(lambda: [first, second])
    with repl, tb.Session() as session:
        repl.init(session)
        for number in (0, 1, 0, 0, 1):
            session.run(steps[number])
        assert [w[1, 0] for w in session.run(look)] == [-1 - 1 - 0.5, -1 - 0.5]


def test_a_schedule_that_comes_with_a_later_step_is_followed():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none")
    with repl.context():
        w = tb.Variable([0.0], name="w")
        optimizer = repl.wrap_optimizer(
            tb.train.GradientDescentOptimizer(tb.train.PiecewiseConstant([2], [1.0, 0.5]))
        )
    look = repl.run(lambda: w)
    with repl, tb.Session() as session:
        repl.init(session)
        assert not session.run(look).any()
        train = repl.run(lambda: optimizer.minimize(tb.reduce_sum(w)))
        repl.init(session)  # the optimiser counts in a variable
        seen = []
        for _ in range(4):
            session.run(train)
            seen.append(session.run(look)[1, 0])
    assert seen == [-1, -2, -3, -3.5]


def test_loops_between_init_and_shutdown_go_on():
    repl = tb.MultiGpuReplicator(["/cpu:0"], 2)
    with repl.context():
        w = tb.Variable([0.0], name="w")
        optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.5, 0.5))

    def step():
        with tb.control_dependencies([optimizer.minimize(tb.reduce_sum(w))]):
            return optimizer.get_slot(w, "Momentum").read_value()

    look = repl.run(lambda: w)
    with repl, tb.Session() as session:
        repl.init(session)  # the loop makes the slots
        velocities = [v[0, 0] for _ in range(2) for v in repl.train(step, steps=2)]
        assert velocities == [1.0, 1.5, 1.75, 1.875]
        assert (session.run(look) < -1).all()


@pytest.mark.slow
def test_a_step_that_fails_to_trace_leaves_the_replicas_usable():
    program = Regression()
    train = program.build_train()
    with program.repl, tb.Session() as session:
        program.repl.init(session)
        session.run(train)

        def broken(x):
            tb.Variable([1.0], name="left_over")
            raise ZeroDivisionError("of the user")

        with pytest.raises(ZeroDivisionError):
            program.repl.run(broken, program.input_fn)
        session.run(train)
        late = program.build_eval()
        with pytest.raises(FailedPreconditionError, match="left_over"):
            session.run(late)
        program.repl.init(session)
        session.run([late, train])


def test_an_evaluation_that_fails_says_which_line_and_training_goes_on():
    program = Regression()
    batch = np.zeros(2, np.int64)
    train = program.build_train()
    look = program.repl.run(lambda rows: tb.gather(tb.ones([3]), rows), lambda: batch)
    with program.repl, tb.Session() as session:
        program.repl.init(session)
        session.run([train, look])
        batch[1] = 7
        with pytest.raises(InvalidArgumentError, match=r"replica 0.*tb\.gather"):
            session.run(look)
        batch[1] = 1
        assert session.run([train, look])[1].shape == (3, 2)


@pytest.mark.parametrize("sync", ["sma", "ssgd", "none"])
def test_an_evaluation_gives_results_of_exchanges(sync):
    with tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=2, sync=sync) as repl:
        with repl.context():
            tb.Variable(np.zeros(1, np.float32), name="w")
        total, own = repl.run(lambda x: (tb.all_sum(x), x), lambda: np.float32([3.0]))
        with tb.Session() as session:
            repl.init(session)
            for _ in range(2):
                assert [value.tolist() for value in session.run((total, own))] == [[[6.0]] * 2, [[3.0]] * 2]
