"""Memory plans: nothing that is live overlaps, in place only where legal, peaks near the lower bound."""

from itertools import combinations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import VariableLayout
from tensorbow.compiler.fold import fold
from tensorbow.compiler.group import group
from tensorbow.compiler.merge import merge
from tensorbow.compiler.plan_memory import overlap, plan_memory
from tensorbow.compiler.protect import protect
from tensorbow.compiler.prune import drop_unused, prune
from tensorbow.devices import get_device
from tensorbow.graph import Operation
from tensorbow.kernels import backend_for
from tensorbow.models import get_model
from tensorbow.program import Region
from tensorbow.program.nodes import storage_of
from tensorbow.specs import TensorSpec, int64
from tests.program_rig.examples import given_few
from tests.program_rig.interpreter import programs
from tests.program_rig.poisoned import PoisonedStep

WORKING = (Region.SLAB, Region.GRADIENTS)


def planned(fetches, feeds):
    """Units and plan of a step, by the passes in their order."""
    graph = next(f.graph for f in fetches)
    specs = {t: TensorSpec(np.shape(v), t.dtype) for t, v in feeds.items()}
    targets = [f if isinstance(f, Operation) else f.op for f in fetches if f not in specs]
    tensors = [f for f in fetches if not isinstance(f, Operation)]
    program = drop_unused(merge(drop_unused(fold(prune(targets, specs), specs, tensors))))
    program = protect(program, "cpu")
    program.check_invariants()
    drafts, _ = group(program, backend_for(get_device("/cpu:0")))
    plan = plan_memory(program, drafts, VariableLayout.of_graph(graph), {"status": int64})
    return program, drafts[0].units, plan


def check(program, units, plan):
    """No two values that are live at the same time share a byte, unless one took over the other's memory."""
    lives = {}
    for index, unit in enumerate(units):
        for value in unit.outputs:
            if storage_of(value) is value and plan.refs[value].region in WORKING:
                lives[value] = [index, index]
        for value in unit.inputs:
            if storage_of(value) in lives:
                lives[storage_of(value)][1] = index
    for value in program.fetches:
        if storage_of(value) in lives:
            lives[storage_of(value)][1] = len(units)
    buffers = [(plan.refs[v], *life, v) for v, life in lives.items()]
    for index, unit in enumerate(units):
        buffers += [(ref, index, index, None) for ref in plan.scratch[unit]]
    for (a, first, last, one), (b, start, stop, two) in combinations(buffers, 2):
        if not (overlap(a, b) and first <= stop and start <= last):
            continue
        older, newer = ((one, two), (two, one))[start < first]
        assert older is not None
        assert newer is not None
        unit = units[max(first, start)]
        assert min(last, stop) == max(first, start), "one lives on after the other took its memory"
        pairs = {(unit.outputs[o], storage_of(unit.inputs[s])) for o, s in unit.kernel.inplace}
        assert (newer, older) in pairs, "the kernel does not allow it"
        assert a.offset == b.offset


@pytest.mark.slow
@given_few(60, 400, programs())
def test_live_values_do_not_overlap(program):
    with tb.Graph().as_default():
        fetches, feeds, _ = program.build()
        elements = [f._as_graph_element() if hasattr(f, "_as_graph_element") else f for f in fetches]
        check(*planned(elements, feeds))


def lenet(batch_size, model="lenet"):
    images = tb.placeholder(tb.float32, [None, 28, 28, 1])
    labels = tb.placeholder(tb.int64, [None])
    outputs = get_model(model)(images, labels, classes=10)
    update = tb.train.MomentumOptimizer(0.01, 0.9, weight_decay=1e-4).minimize(outputs.loss)
    random = np.random.default_rng(0)
    feeds = {
        images: random.random((batch_size, 28, 28, 1), np.float32),
        labels: random.integers(0, 10, batch_size),
    }
    return [outputs.loss, outputs.metrics["accuracy"], update], feeds


@pytest.mark.parametrize("batch_size", [4, 16, 32])
@pytest.mark.parametrize("model", ["lenet", "logreg"])
def test_peaks_are_within_a_tenth_of_the_lower_bound(batch_size, model):
    with tb.Graph().as_default():
        fetches, feeds = lenet(batch_size, model)
        program, units, plan = planned(fetches, feeds)
        check(program, units, plan)
        assert 0 < plan.peak_nbytes <= 1.1 * plan.lower_bound_nbytes
        assert plan.region_nbytes[Region.SLAB] == plan.peak_nbytes


def test_the_lower_bound_is_what_is_live():
    with tb.Graph().as_default():
        fetches, feeds = lenet(4)
        _, units, plan = planned(fetches, feeds)
        largest = max(
            sum(
                {
                    plan.refs[v].offset: v.spec.nbytes
                    for v in (*u.inputs, *u.outputs)
                    if plan.refs[v].region is Region.SLAB
                }.values()
            )
            for u in units
        )
        assert plan.lower_bound_nbytes >= largest


@pytest.mark.slow
def test_gradients_lie_at_their_variables_offsets():
    with tb.Graph().as_default() as graph:
        fetches, feeds = lenet(4)
        with PoisonedStep(fetches, feeds) as step:
            refs = VariableLayout.of_graph(graph).refs()
            updates = [g for s in step.executable.segments for g in s.groups if g.definition.update]
            assert len(updates) == 8
            for g in updates:
                variable, gradient = (g.inputs[i] for i in g.definition.update)
                assert gradient.region is Region.GRADIENTS
                assert (variable.offset, variable.shape) == (gradient.offset, gradient.shape)
                assert variable in refs.values()


def test_two_updates_of_one_variable_have_gradients_apart():
    with tb.Graph().as_default():
        w = tb.Variable(np.arange(6.0).reshape(2, 3), name="w")
        losses = tb.reduce_sum(tb.square(w)), tb.reduce_sum(tb.exp(w))
        grads = tb.gradients(losses[0], [w]) + tb.gradients(losses[1], [w])
        first, second = tb.train.GradientDescentOptimizer(1.0), tb.train.GradientDescentOptimizer(0.5)
        updates = [first.apply_gradients([(grads[0], w)]), second.apply_gradients([(grads[1], w)])]
        with PoisonedStep(updates, {}) as step:
            start = np.arange(6.0).reshape(2, 3)
            step.container.load({"w": start})
            step.run()
            np.testing.assert_allclose(step.container.read("w"), start - 2 * start - 0.5 * np.exp(start))


def test_one_gradient_for_two_variables():
    with tb.Graph().as_default():
        a, b = tb.Variable(np.ones(3), name="a"), tb.Variable(np.ones(3), name="b")
        update = tb.train.GradientDescentOptimizer(1.0).minimize(tb.reduce_sum(tb.square(a + b)))
        with PoisonedStep([update], {}) as step:
            step.container.load({"a": np.ones(3), "b": np.zeros(3)})
            step.run()
            np.testing.assert_allclose(step.container.read("a"), np.full(3, -1.0))
            np.testing.assert_allclose(step.container.read("b"), np.full(3, -2.0))


def test_a_kernel_that_declares_one_pair_is_not_given_twins():
    def shifted(call):
        (a, b), (out,) = call.inputs, call.outputs
        out[...] = a
        out[1:] += b[:-1]  # wrong if out is b

    op = tb.define_op(
        "TestShifted",
        spec=lambda i, a: i[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("a", "b"),
        kernel=tb.Kernel(run=shifted, inplace=((0, 0),)),
        replace=True,
    )
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float64, [3])
        h = tb.negative(x)
        with PoisonedStep([op(h, h)], {x: np.array([1.0, 10.0, 100.0])}) as step:
            np.testing.assert_array_equal(step.run()[0], [-1, -11, -110])


def test_feeds_and_constants_are_never_overwritten():
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float64, [3])
        c = tb.constant(np.ones(3))
        y, z = tb.negative(x), tb.add(c, x)
        with PoisonedStep([y, z, x, c], {x: np.arange(3.0)}) as step:
            for _ in range(2):
                np.testing.assert_array_equal(step.run(), [[0, -1, -2], [1, 2, 3], [0, 1, 2], [1, 1, 1]])
