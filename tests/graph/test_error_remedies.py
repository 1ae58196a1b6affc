"""Errors say what to do and where the op was made, and name each thing once."""

import re
from itertools import pairwise

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import device_kinds
from tensorbow.errors import InvalidArgumentError, NotFoundError

pytestmark = pytest.mark.usefixtures("graph")

LINE = r"made at .*test_error_remedies\.py:\d+"
FLOATS = np.ones((2, 3), np.float32)


def running(make):
    def run():
        with tb.Session() as session:
            session.run(make())

    return run


def feeding(value):
    def run():
        x = tb.placeholder(tb.float32, [None, 3], name="x")
        with tb.Session() as session:
            session.run(x, {x: value})

    return run


CASES = {
    "a fed shape": (feeding(np.ones((1, 4))), rf"feed x:0: expected .*got \[1, 4\]; reshape.*{LINE}"),
    "a fed overflow": (feeding([[1e300, 0, 0]]), rf"finite value 1e\+300 overflows float32.*{LINE}"),
    "an integer loss": (lambda: tb.gradients(tb.constant(1), []), rf"not differentiable; .*tb\.cast.*{LINE}"),
    "a rank too small": (
        lambda: tb.matmul(FLOATS, FLOATS[0]),
        rf"expected rank 2; use tb\.expand_dims or tb\.reshape.*{LINE}",
    ),
    "an index": (
        running(lambda: tb.gather(tb.placeholder_with(FLOATS), [5])),
        rf"GatherV2: indices\[0\] = 5 is not in \[0, 2\); .*correct.*{LINE}",
    ),
    "an axis": (lambda: tb.argmax(FLOATS, 2), rf"^ArgMax: axis 2 is not in \[-2, 2\); count.*{LINE}"),
    "a padding": (
        lambda: tb.nn.conv2d(np.ones((1, 3, 3, 1)), np.ones((2, 2, 1, 1)), 1, "FULL"),
        r"^conv2d: expected padding to be 'SAME' or 'VALID', got str 'FULL'; .*tb\.pad",
    ),
    "a float beside integers": (
        lambda: tb.constant([1, 2]) * 0.5,
        rf"float64 cannot become int32 without loss.*tb\.cast.*{LINE}",
    ),
    "labels": (
        lambda: tb.nn.sparse_softmax_cross_entropy_with_logits(labels=np.zeros((3, 3), int), logits=FLOATS),
        rf"^SparseSoftmaxCrossEntropyWithLogits: labels .*expected \[batch\].*{LINE}",
    ),
    "a rate": (
        lambda: tb.train.GradientDescentOptimizer("a"),
        "expected learning_rate to be a finite number above 0.*got str 'a'",
    ),
    "rates": (
        lambda: tb.train.GradientDescentOptimizer([0.1, 0.2]),
        r"expected learning_rate to be a finite number above 0.*tb.per_replica\(\[...\]\) gives each replica",
    ),
    "a kind of device": (lambda: tb.device("gpuu0").__enter__(), "'gpuu0' names an unknown kind .*cpu"),
}


@pytest.fixture(autouse=True)
def fed_constant(monkeypatch):
    """A tensor whose value is not known while the step is compiled."""
    monkeypatch.setattr(tb, "placeholder_with", lambda a: tb.random_uniform(a.shape) + a, raising=False)


@pytest.mark.parametrize("case", CASES)
def test_remedy_and_line(case):
    call, expected = CASES[case]
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    text = str(caught.value)
    assert re.search(expected, text), text
    assert text.count("made at") <= 1
    words = re.findall(r"[a-z]+", text.partition(" (made at")[0].lower().replace("_", "").replace("v2", ""))
    assert not any(len(a) > 5 and a == b for a, b in pairwise(words)), text


def test_kinds_that_are_there_or_may_come(graph):
    for name in ("cpu", "gpu", "/cpu", "cpu:1", "/fpga:0", "fpga:0", *device_kinds()):
        with tb.device(name):
            tb.constant(1.0)


def test_loading_what_is_not_there():
    with tb.Session() as session, pytest.raises(NotFoundError, match=r"no variable 'nope'.*none; make them"):
        session.load_variables({"nope": 1.0})
