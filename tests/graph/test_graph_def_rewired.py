"""Training steps whose edges lead elsewhere: what native code fuses is what the graph says, or nothing."""

import copy
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.devices import get_device
from tensorbow.errors import TensorBowError
from tensorbow.kernels import ReferenceBackend, backend_for, register_backend

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from tensorbow.kernels.native.backend import NativeBackend

IMAGES = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
FEEDS = {"x:0": IMAGES, "labels:0": np.array([1, 2, 7, 0], np.int32)}
QUICK = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


def weights(*shape):
    return tb.Variable(tb.random_normal(list(shape), stddev=0.3, seed=len(shape)))


def step():
    """A dense step as a GraphDef, and by dtype and shape the names of its tensors."""
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float32, IMAGES.shape, name="x")
        labels = tb.placeholder(tb.int32, [4], name="labels")
        hidden = tb.nn.relu(tb.nn.bias_add(tb.matmul(x, weights(3, 8)), weights(8)))
        hidden = tb.tanh(tb.matmul(hidden, weights(8, 8)) + weights(8))
        logits = tb.matmul(hidden, weights(8, 8)) + weights(8)
        each = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tb.reduce_mean(each, name="loss")
        train = tb.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
        names = {}
        for op in graph.get_operations():
            for tensor in op.outputs:
                names.setdefault((tensor.dtype, tuple(tensor.shape)), []).append(tensor.name)
        init = tb.global_variables_initializer()
        return json.loads(graph.as_graph_def().to_json()), names, train.name, init.name


STEP, NAMES, TRAIN, INIT = step()
ALIKE = {name: names for names in NAMES.values() for name in names}
EDGES = [
    (index, number, others)
    for index, node in enumerate(STEP["node"])
    for number, source in enumerate(node.get("input", ()))
    if (others := [n for n in ALIKE.get(source if ":" in source else f"{source}:0", ()) if n != source])
]


def trained(backend, content):
    """The loss, and all variables after two steps; None where the program is refused."""
    device = get_device("/cpu:0")
    before = backend_for(device)
    register_backend("cpu", backend)
    try:
        with tb.Graph().as_default():
            tb.import_graph_def(tb.GraphDef.from_json(json.dumps(content)), name="")
            with tb.Session() as session:
                session.run(INIT)
                session.run(TRAIN, FEEDS)
                loss = session.run(["loss:0", TRAIN], FEEDS)[0]
                return [loss, *session.run(tb.global_variables())]
    except TensorBowError:
        return None
    finally:
        register_backend("cpu", before)


def check(changes):
    content = copy.deepcopy(STEP)
    for (index, number, _), name in changes:
        content["node"][index]["input"][number] = name
    expected, actual = trained(ReferenceBackend(), content), trained(NativeBackend(), content)
    assert (actual is None) == (expected is None)
    for ours, theirs in zip(actual or (), expected or (), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-3)


CHANGES = st.lists(
    st.sampled_from(EDGES).flatmap(lambda edge: st.tuples(st.just(edge), st.sampled_from(edge[2]))),
    min_size=1,
    max_size=2,
)


@pytest.mark.slow
def test_the_step_itself_trains():
    check([])
    assert trained(ReferenceBackend(), STEP) is not None


@pytest.mark.slow
@settings(max_examples=5, **QUICK)
@given(CHANGES)
def test_rewired_steps(changes):
    check(changes)


@pytest.mark.slow
@settings(max_examples=300, **QUICK)
@given(CHANGES)
def test_rewired_steps_thoroughly(changes):
    check(changes)
