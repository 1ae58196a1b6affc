"""Neighbouring updates merged to one pass: which ones, and the same bits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.graph import Kernel
from tensorbow.kernels import merging
from tensorbow.kernels.merging import merge_updates
from tensorbow.ops.adaptive_updates import ApplyAdam
from tensorbow.ops.averaging import SmaCorrect
from tensorbow.ops.updates import ApplyGradientDescent
from tensorbow.program import Group, Ref, Region
from tensorbow.specs import float32, uint8
from tests.scalar_rig.numpy_backend import NumpyRulesBackend, used

OPTIMIZERS = {
    "descent": lambda: tb.train.GradientDescentOptimizer(0.05),
    "momentum": lambda: tb.train.MomentumOptimizer(0.05, 0.9),
    "decay": lambda: tb.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True, weight_decay=1e-3),
    "adam": lambda: tb.train.AdamOptimizer(0.01),
    "ftrl": lambda: tb.train.FtrlOptimizer(0.05, -0.4, l1_regularization_strength=0.01),
    "rmsprop": lambda: tb.train.RMSPropOptimizer(0.01, momentum=0.5),
}


def trained(optimizer, **options):
    """Losses, variables and slots of three steps, and the update calls of the step."""
    backend = NumpyRulesBackend(**options)
    with used(backend), tb.Graph().as_default() as graph:
        rng = np.random.default_rng(1)
        x = tb.placeholder(tb.float32, [5, 7])
        hidden = x
        for i, units in enumerate((6, 4, 3)):
            rows = hidden.shape.as_list()[1]
            w = tb.Variable(rng.standard_normal((rows, units)).astype(np.float32), name=f"w{i}")
            b = tb.Variable(np.zeros(units, np.float32), name=f"b{i}")
            hidden = tb.tanh(tb.nn.bias_add(tb.matmul(hidden, w), b))
        loss = tb.reduce_mean(tb.square(hidden - 0.5))
        train = OPTIMIZERS[optimizer]().minimize(loss)
        feeds = {x: rng.standard_normal((5, 7)).astype(np.float32)}
        with tb.Session(graph=graph) as session:
            session.run(tb.global_variables_initializer())
            losses = [session.run([loss, train], feeds)[0] for _ in range(3)]
            values = session.run(tb.global_variables())
        calls = [g for s in backend.bound[-2].segments for g in s.groups if g.definition.update is not None]
    return losses, values, calls


@pytest.mark.sampled(2)
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_merged_updates_have_the_same_bits(optimizer):
    losses, values, calls = trained(optimizer, fuses=False, merges=False)
    assert len(calls) == 6
    merged_losses, merged_values, fewer = trained(optimizer)
    assert len(fewer) == 1 or (optimizer == "decay" and len(fewer) == 2)
    assert sum(int(np.prod(g.inputs[0].shape)) for g in fewer) == 7 * 6 + 6 + 6 * 4 + 4 + 4 * 3 + 3
    assert losses == merged_losses
    assert losses[2] < losses[0]
    for value, merged in zip(values, merged_values, strict=True):
        np.testing.assert_array_equal(value, merged)


@pytest.mark.parametrize("optimizer", ["decay", "adam"])
def test_replicas_that_are_averaged_have_the_same_bits(optimizer):
    results = []
    for backend in (NumpyRulesBackend(fuses=False, merges=False), NumpyRulesBackend()):
        with used(backend), tb.Graph().as_default() as graph:
            rng = np.random.default_rng(2)
            x = tb.placeholder(tb.float32, [None, 5])
            variables = [
                tb.Variable(rng.standard_normal(s).astype(np.float32)) for s in ((5, 4), 4, (4, 3), 3)
            ]
            w1, b1, w2, b2 = variables
            hidden = tb.sigmoid(tb.matmul(x, w1) + b1)
            loss = tb.reduce_mean(tb.square(tb.tanh(tb.matmul(hidden, w2) + b2) - 0.5))
            train = OPTIMIZERS[optimizer]().minimize(loss)
            initializer = tb.global_variables_initializer()
            images = rng.standard_normal((12, 5)).astype(np.float32)
            with tb.TensorBowSession(graph=graph, replicas_per_device=3) as session:
                session.run(initializer)
                losses = [session.run([loss, train], {x: images})[0] for _ in range(4)]
                results.append([*losses, *session.run(variables)])
    for plain, merged in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, merged)
    assert any("updates in one pass" in g.note for e in backend.bound for s in e.segments for g in s.groups)


# Which ones ---------------------------------------------------------------------------------------------

KERNEL = Kernel(run=lambda call: None, pointwise=True)
RATE = Ref(Region.STATE, 0, (), float32)


def update(name, start, size, rate=RATE, gradient=Region.GRADIENTS, gradient_start=None, attrs=None):
    """One of gradient descent, of elements [start, start + size) of the flat buffer."""
    w = Ref(Region.WEIGHTS, 4 * start, (size,), float32)
    g = Ref(gradient, 4 * (start if gradient_start is None else gradient_start), (size,), float32)
    return Group(
        name,
        ApplyGradientDescent,
        KERNEL,
        {"weight_decay": 0.0} if attrs is None else attrs,
        (w, g, rate),
        (w,),
        reads=(w, g, rate),
        writes=(w,),
    )


def other(reads=(), writes=()):
    return Group("between", SmaCorrect, KERNEL, {}, (*writes, *reads), (), reads=reads, writes=writes)


def names(groups):
    return [group.name for group in merge_updates(groups)]


def test_the_order_in_memory_is_not_the_order_of_calls():
    groups = [update("c", 5, 2), update("a", 0, 3), update("b", 3, 2), update("far", 8, 1)]
    merged = merge_updates(groups)
    assert [g.name for g in merged] == ["a to c", "far"]
    first = merged[0]
    assert [(r.offset, r.shape) for r in first.inputs] == [(0, (7,)), (0, (7,)), (0, ())]
    assert first.outputs == (first.inputs[0],)
    assert {(r.region, r.offset) for r in first.writes} == {(Region.WEIGHTS, o) for o in (0, 12, 20)}
    assert "3 updates in one pass: a, b, c" in first.note


def test_what_differs_stays_apart():
    same = [update("a", 0, 3), update("b", 3, 2)]
    assert names(same) == ["a to b"]
    assert names([same[0], update("b", 3, 2, rate=Ref(Region.STATE, 8, (), float32))]) == ["a", "b"]
    assert names([same[0], update("b", 3, 2, attrs={"weight_decay": 0.1})]) == ["a", "b"]
    assert names([same[0], update("b", 3, 2, gradient_start=9)]) == ["a", "b"]
    assert names([same[0], update("b", 3, 2, gradient=Region.SLAB)]) == ["a", "b"]
    assert names([same[0], replace(same[1], predicated=True)]) == ["a", "b"]
    assert names([same[0], replace(same[1], definition=ApplyAdam)]) == ["a", "b"]
    assert names([same[0], replace(same[1], scratch=(RATE,))]) == ["a", "b"]
    assert names([same[0], replace(same[1], kernel=Kernel(run=lambda call: None))]) == ["a", "b"]


def test_a_call_between_that_minds_keeps_them_apart():
    a, b, c = update("a", 0, 3), update("b", 3, 2), update("c", 5, 4)
    weights = a.inputs[0]
    assert names([a, other(reads=(weights,)), b, c]) == ["a", "between", "b to c"]
    assert names([a, other(writes=(a.inputs[1],)), b, c]) == ["a", "between", "b to c"]
    assert names([a, other(reads=(a.inputs[1],)), b, c]) == ["between", "a to c"]
    assert names([a, other(reads=(c.inputs[0],)), b, c]) == ["between", "a to c"]
    assert names([a, b, c, other(reads=(weights,))]) == ["a to c", "between"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(1, 6)), max_size=30))
def test_sets_of_bytes(calls):
    entered, known = merging._Bytes(), set()
    for enters, offset, size in calls:
        ref = Ref(Region.WEIGHTS, offset, (size,), uint8)
        taken = set(range(offset, offset + size))
        assert entered.touch([ref]) == bool(known & taken)
        assert not entered.touch([replace(ref, region=Region.SLOTS)])
        if enters:
            entered.add([ref])
            known |= taken


def test_the_work_grows_with_the_calls_not_with_their_square(monkeypatch):
    looked_at = []
    touch = merging._Bytes.touch
    monkeypatch.setattr(merging._Bytes, "touch", lambda self, refs: looked_at.append(1) or touch(self, refs))
    groups = []
    for number in range(300):
        groups += [update(f"{number}", 3 * number, 3), other(reads=(RATE,))]
    assert len(merge_updates(groups)) == 301
    assert len(looked_at) < 4 * len(groups)


def test_a_second_update_of_the_same_variables_comes_second():
    first = [update("a", 0, 3), update("b", 3, 2)]
    second = [update("a2", 0, 3), update("b2", 3, 2)]
    merged = merge_updates([*first, *second])
    index = {name: i for i, g in enumerate(merged) for name in g.name.split(" to ")}
    assert sorted(index) == ["a", "a2", "b", "b2"]
    assert index["a"] < index["a2"]
    assert index["b"] < index["b2"]
