"""`explain`: segments, order, addresses, peak memory, and why."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.runtime.explain import _repeated

pytestmark = pytest.mark.usefixtures("session")


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


@pytest.mark.parametrize("asked", ["/gpu:0", "/cpu:7"])
def test_soft_placement_is_told(session, asked):
    x = tb.placeholder(tb.float32, [2], name="x")
    with tb.device(asked):
        v = tb.Variable(np.ones(2, np.float32), name="v")
        y = tb.exp(x, name="y") * v
    z = tb.negative(y, name="z")
    with tb.Session(devices=[], allow_soft_placement=True) as soft:
        for fetches, names in (([z], "v, y, Mul"), (v, "v")):
            reason = f"on /cpu:0, as there is no /device:{asked[1:].upper()}; there are: /cpu:0"
            assert f"\n  {names}: {reason}\n" in f"{soft.explain(fetches, {x: [1.0, 2.0]})}\n"
        assert "as there is no" not in str(soft.explain(tb.negative(x), {x: [1.0, 2.0]}))
    with tb.device("/cpu:0"):
        here = tb.exp(x)
    assert " on /cpu:0, " not in str(session.explain(here, {x: [1.0, 2.0]}))


@pytest.mark.parametrize("devices", [1, 2])
def test_a_step_too_large_for_memory_is_explained_without_addresses(devices):
    x = tb.placeholder(tb.float64, [None], name="x")
    with tb.device(f"/cpu:{devices - 1}"):
        y = tb.reduce_sum(tb.exp(x) + x)
    v = tb.Variable(1.0)
    with tb.Session() as session:
        session.run(v.initializer)
        explanation = session.explain(y + tb.cast(v, tb.float64), {x: tb.TensorSpec([1 << 45], tb.float64)})
        text = str(explanation)
        assert "not bound: " in text
        assert "@0x" not in text
        assert f"feed x:0: float64[{1 << 45}] input+0\n" in text
        assert explanation.peak_nbytes >= 8 << 45
        assert session.run(y, {x: np.zeros(3)}) == 3


@dataclass
class Call:
    """A call of a plan that counts how often it is compared."""

    name: str
    what: int = 0
    compared: ClassVar[int] = 0

    def __eq__(self, other):
        Call.compared += 1
        return (self.name, self.what) == (other.name, other.what)


def test_repeated_calls_are_found_without_comparing_all_with_all():
    first = [Call(f"{n}") for n in range(400)]
    again = [Call("new"), *[Call(f"{n}") for n in range(3, 400)], Call("2", what=1)]
    Call.compared = 0
    assert _repeated([("a", first), ("b", first[:9])], again) == (range(1, 398), "3 to 399 of segment a")
    assert Call.compared < 4 * 400
