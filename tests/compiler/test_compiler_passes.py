"""Prune, merge and group: what is computed, how often, in which segment."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import GRADIENT
from tensorbow.compiler.prune import prune
from tensorbow.errors import InvalidArgumentError, UnimplementedError
from tests.program_rig.poisoned import PoisonedStep, update_only

pytestmark = pytest.mark.usefixtures("graph")


def groups(executable):
    return [g for s in executable.segments for g in s.groups]


def compiled(fetches, feeds, **options):
    with PoisonedStep(fetches, feeds, **options) as step:
        return step.executable


def types(fetches, feeds):
    return [g.definition.name for g in groups(compiled(fetches, feeds))]


def test_prune_keeps_what_is_needed_in_the_programs_order():
    x = tb.placeholder(tb.float32, [2])
    a, unused, b = tb.negative(x), tb.exp(x), tb.tanh(x)
    with tb.control_dependencies([a]):
        c = tb.square(b)
    assert prune([c.op], {}) == [x.op, a.op, b.op, c.op]
    assert prune([c.op], {b}) == [x.op, a.op, c.op]
    assert unused.op not in prune([c.op], {})


@pytest.mark.usefixtures("reference_kernels")
def test_equal_ops_are_computed_once():
    x = tb.placeholder(tb.float32, [2, 3])
    y = tb.tanh(x + 1.0) * tb.tanh(x + 1.0) + tb.reduce_sum(x, 0) + tb.reduce_sum(x, 1, keepdims=True)
    made = types([y], {x: np.zeros((2, 3), np.float32)})
    assert (made.count("Tanh"), made.count("Sum")) == (1, 2)


def test_attributes_that_differ_keep_ops_apart():
    def fill(call):
        call.outputs[0][...] = call.attrs["value"]

    op = tb.define_op(
        "TestFill",
        spec=lambda i, a: i[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        attrs={"value": 0.0},
        kernel=fill,
        replace=True,
    )
    x = tb.placeholder(tb.float32, [2])
    feeds = {x: np.zeros(2, np.float32)}

    def count(*values):
        return len(groups(compiled([op(x, value=v) for v in values], feeds)))

    assert count(1.0, 1.0) == 1
    assert count(0.0, -0.0) == 2
    assert count(np.float32(0.0), np.float32(-0.0)) == 2
    assert count(1, True, 1.0) == 3
    assert count(np.array([1.0]), np.array([1.0]), np.array([2.0])) == 2
    assert count({"a": [1]}, {"a": [1]}, {"a": [2]}) == 2
    unhashable = {1, 2}
    assert count(unhashable, unhashable) == 1
    assert count({1, 2}, {1, 2}) == 2


def test_stateful_and_random_ops_are_never_merged():
    v = tb.Variable(0.0)
    twice = [v.assign_add(1.0), v.assign_add(1.0)]
    noise = [tb.random_uniform([2], seed=1), tb.random_uniform([2], seed=1)]
    assert types([*twice, *noise], {}).count("AssignAdd") == 2
    assert types(noise, {}) == ["RandomUniform", "RandomUniform"]


def test_reads_are_merged_only_while_no_write_lies_between():
    v = tb.Variable(np.ones(3))
    first, second = tb.tanh(v.read_value()), tb.tanh(v.read_value())
    write = v.assign_add(np.ones(3))
    third = tb.tanh(v.read_value())
    assert types([first, second], {}) == ["Tanh"]
    assert types([first, second, write, third], {}).count("Tanh") == 2


def test_what_nobody_reads_after_folding_is_dropped():
    x = tb.placeholder(tb.float32, [2, 3])
    y = tb.zeros_like(tb.exp(x)) + x
    assert types([y], {x: np.zeros((2, 3), np.float32)}) == ["Add"]


def test_one_segment_or_two_cut_before_the_first_weight_is_written():
    w = tb.Variable(np.ones((2, 3), np.float32), name="w")
    steps = tb.Variable(0, name="steps")
    x = tb.placeholder(tb.float32, [2, 3], name="x")
    count = steps.assign_add(1)
    loss = tb.reduce_sum(tb.square(w - x))
    update = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
    feeds = {x: np.zeros((2, 3), np.float32)}
    assert [s.name for s in compiled([loss, update, count], feeds).segments] == ["step"]
    executable = compiled([loss, update, count], feeds, rewriting=update_only, guard=loss)
    assert [s.name for s in executable.segments] == [GRADIENT, "update"]
    first, second = executable.segments
    assert [g.definition.name for g in second.groups] == ["AssignAdd", "ApplyGradientDescent"]
    assert first.groups[-1].definition.name == "CheckFinite"
    assert (first.fetches, second.fetches) == (False, True)
    assert all(g.predicated == bool(g.definition.writes) for g in groups(executable))


def test_a_guard_that_is_not_finite_keeps_variables_as_they_are():
    w = tb.Variable(np.ones(3, np.float32), name="w")
    x = tb.placeholder(tb.float32, [3], name="x")
    loss = tb.reduce_sum(w * x)
    update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    feeds = {x: np.array([1.0, np.nan, 2.0], np.float32)}
    for options in ({"rewriting": update_only}, {}):
        with PoisonedStep([loss, update], feeds, guard=loss, **options) as step:
            step.container.load({"w": np.ones(3), "w/Momentum": np.zeros(3)})
            step.run()
            np.testing.assert_array_equal(step.container.read("w"), np.ones(3))
            assert step.state("status") == 1
            assert "Mul" in step.binding.plan.find_nonfinite(0)
            feeds[x][1] = 0.0
            step.run(status=0, learning_rate=0.5)
            np.testing.assert_allclose(step.container.read("w"), [0.5, 1.0, 0.0])
            feeds[x][1] = np.nan


def test_writes_before_the_check_are_put_off_unless_somebody_reads_them():
    w = tb.Variable(np.ones(3, np.float32), name="w")
    count, used, last = (tb.Variable(0.0, trainable=False, name=n) for n in ("count", "used", "last"))
    x = tb.placeholder(tb.float32, [3], name="x")
    counted = count.assign_add(1.0)
    with tb.control_dependencies([used.assign_add(1.0)]):
        loss = tb.reduce_sum(w * x) + used.read_value()
    remembered = last.assign(loss)
    update = tb.train.GradientDescentOptimizer(0.5).minimize(loss)
    feeds = {x: np.array([1.0, np.nan, 2.0], np.float32)}
    options = {"rewriting": update_only, "guard": loss}
    with PoisonedStep([counted, remembered, loss, update, count], feeds, **options) as step:
        names = ("w", "count", "used", "last")
        step.container.load({"w": np.ones(3), "count": 0.0, "used": 0.0, "last": 0.0})
        step.run()
        after = [step.container.read(n).tolist() for n in names]
        assert after == [[1.0] * 3, 0.0, 1.0, 0.0]  # what the loss itself is made of cannot wait
        feeds[x][1] = 0.0
        results = step.run(status=0, learning_rate=0.5)
        assert results[:2] == [1.0, 5.0]
        assert results[3] == 1.0
        assert [step.container.read(n).tolist() for n in names] == [[0.5, 1.0, 0.0], 1.0, 2.0, 5.0]


def test_an_op_that_is_asked_to_run_runs_though_nobody_reads_it():
    x = tb.placeholder(tb.float32, [2])
    feeds = {x: np.zeros(2, np.float32)}
    alone, controlled = tb.tanh(x), tb.exp(x)
    with tb.control_dependencies([controlled]):
        y = tb.negative(x)
    assert types([alone.op, y], feeds) == ["Tanh", "Exp", "Neg"]
    assert types([tb.group(alone)], feeds) == ["Tanh"]


def test_a_guard_that_comes_too_late():
    w = tb.Variable(np.ones(3, np.float32), name="w")
    update = w.assign_sub(np.ones(3, np.float32))
    with tb.control_dependencies([update]):
        late = tb.reduce_sum(tb.square(w), name="late")
    with pytest.raises(InvalidArgumentError, match=r"late:0 is computed after .* has written a weight"):
        compiled([late], {}, rewriting=update_only, guard=late)


def test_step_scalars_and_counters_have_places_in_state():
    rate = tb.step_scalar("rate", tb.float32, 0.25)
    assert tb.step_scalar("rate", tb.float32, 0.25) is rate
    y = tb.random_uniform([3], seed=1) * rate
    with PoisonedStep([y, rate], {}) as step:
        assert step.executable.scalars == {"rate": 0.25}
        (counter,) = step.executable.counters
        keys = {"status", "replica", "random_stream", f"counter:{counter}", "rate"}
        assert set(step.executable.state) == keys
        first, default = step.run()
        again, changed = step.run(rate=0.5, **{f"counter:{counter}": 0})
        assert (default, changed) == (0.25, 0.5)
        np.testing.assert_array_equal(first * 2, again)
        assert not np.array_equal(step.run(rate=0.5, **{f"counter:{counter}": 1})[0], again)
        assert not np.array_equal(step.run(**{"random_stream": 3, f"counter:{counter}": 0})[0], again)


@pytest.mark.parametrize("key", ["status", "replica", "random_stream", "alpha", "mu", "counter:x"])
def test_keys_of_the_library_are_reserved(key):
    with pytest.raises(InvalidArgumentError, match="choose another key"):
        tb.step_scalar(key, tb.float32, 1.0)


def test_a_step_scalar_has_one_dtype_and_default():
    tb.step_scalar("rate", tb.float32, 0.25)
    with pytest.raises(InvalidArgumentError, match=r"rate exists as float32 with default 0.25"):
        tb.step_scalar("rate", tb.float32, 0.5)
    with pytest.raises(InvalidArgumentError, match="rate exists"):
        tb.step_scalar("rate", tb.float64, 0.25)
    with pytest.raises(InvalidArgumentError, match="must be floating"):
        tb.step_scalar("count", tb.int32, 1)


def test_an_op_without_a_kernel_for_the_device():
    op = tb.define_op(
        "TestNoKernel",
        spec=lambda i, a: i[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=lambda call: None,
        replace=True,
    )
    op.kernels["gpu"] = op.kernels.pop("cpu")
    x = tb.placeholder(tb.float32, [2])
    y = op(x, name="y")
    with pytest.raises(
        UnimplementedError, match=r"TestNoKernel y: op TestNoKernel has no kernel for cpu .*gpu.*made at"
    ):
        compiled([y], {x: np.zeros(2, np.float32)})


def test_what_is_read_first_and_written():
    v, w = tb.Variable(0.0, name="v"), tb.Variable(0.0, name="w")
    read_then_write = v.assign_add(1.0)
    assert compiled([read_then_write], {}).reads_first == {"v"}
    written_then_read = w.assign(2.0)
    with tb.control_dependencies([written_then_read]):
        after = w + 1.0
    executable = compiled([after, w], {})
    assert (executable.reads_first, executable.writes) == (frozenset(), {"w"})
    assert compiled([v], {}).reads_first == {"v"}
