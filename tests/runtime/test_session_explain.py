"""`explain`: segments, order, addresses, peak memory, and why."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.runtime.nest import flatten, map_structure


@pytest.fixture(autouse=True)
def session():
    with tb.Graph().as_default(), tb.Session() as session:
        yield session


@pytest.mark.usefixtures("reference_kernels")
def test_the_text(session):
    x = tb.placeholder(tb.float32, [None, 3], name="x")
    w = tb.Variable(np.ones((3, 2), np.float32), name="w")
    tb.exp(x)  # not needed
    h = tb.nn.relu(tb.matmul(x, w, name="product"), name="h")
    y = tb.reduce_sum(h * tb.constant(2.0) * tb.constant(3.0), name="y")
    update = w.assign_sub(tb.gradients(y, [w])[0])
    text = str(session.explain([y, update], {x: np.zeros((4, 3))}))
    lines = text.splitlines()
    assert lines[0].startswith("mode: planned (every shape is known), on /device:CPU:0 by ")
    assert "bytes at peak, scratch counted; lower bound" in lines[1]
    assert any(line.startswith("regions: weights 256, ") for line in lines)
    assert any(line.startswith("feed x:0: float32[4, 3] input+0@0x") for line in lines)
    assert "segment step: " in text
    order = [text.index(f" {name}\n") for name in ("product", "h", "y", "AssignSub")]
    assert order == sorted(order)
    assert "weights+0@0x" in text
    assert "h: works in the memory of product:0" in text
    assert any(line.startswith("  pruned: ") and line.endswith("ops are needed") for line in lines)
    assert any(line.startswith("fetch ") and "-> ring+0" in line for line in lines)
    assert "Exp" not in text


def test_specs_stand_for_values(session):
    x = tb.placeholder(tb.float32, [None, 3], name="x")
    y = tb.tanh(x) * 2.0
    explanation = session.explain(y, {"x:0": tb.TensorSpec([5, 3], "float32")})
    assert explanation.lower_bound_nbytes <= explanation.peak_nbytes
    assert explanation.executable.inputs["x:0"].shape == (5, 3)
    with pytest.raises(InvalidArgumentError, match=r"feed x:0: float32\[\?, 3\] must be fully known"):
        session.explain(y, {x: tb.TensorSpec([None, 3], tb.float32)})
    for spec in (tb.TensorSpec([5, 4], tb.float32), tb.TensorSpec([5, 3], tb.float64)):
        with pytest.raises(InvalidArgumentError, match=r"feed x:0: expected float32\[\?, 3\], got"):
            session.explain(y, {x: spec})


def test_it_speaks_of_the_step_that_runs(session):
    v = tb.Variable(np.ones(3), name="v")
    read = v * 1.0
    write = v.assign_add(np.ones(3))
    explanation = session.explain([v.initial_value, read, write])
    assert "v+0" not in str(explanation)
    session.run(v.initializer)
    session.run([v.initial_value, read, write])
    assert len(session._cache) == 2
    copied = session.explain([v.read_value(), write.op])
    assert "is copied" not in str(copied)  # the read comes after the write
    assert "is copied: AssignAdd writes it before its last use" in str(
        session.explain([read.op.inputs[0], write])
    )


def test_nothing_to_do(session):
    c = tb.constant([1.0, 2.0])
    text = str(session.explain([c, c.op]))
    assert "segment step: 0 kernel calls" in text
    assert "lower bound 0 (0.0 % above)" in text


def test_nests():
    nest = {"a": [1, (2, 3)], "b": 4}
    assert flatten(nest) == [1, 2, 3, 4]
    assert map_structure(lambda x: x * 10, nest) == {"a": [10, (20, 30)], "b": 40}
